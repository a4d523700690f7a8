"""Who may get which action: rules that override the preference of every policy of a study."""
