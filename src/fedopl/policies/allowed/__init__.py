"""Who may get what: rules that every policy of a study obeys, whatever it would rather do."""
