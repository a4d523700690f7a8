"""What the policies of a run are called in its tables."""

LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"


def arm_name(action: str) -> str:
    """What a constant arm is called in the tables."""
    return f"everybody gets {action}"
