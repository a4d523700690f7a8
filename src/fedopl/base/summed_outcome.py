"""An outcome that is a weighted sum of columns: which weights are allowed, and its name."""

from collections.abc import Mapping

FEWEST_PARTS = 2


def fault_in_sum(parts: Mapping[str, float]) -> str | None:
    """What is wrong with the sum of these columns, each times its number; None if it is valid."""
    if len(parts) < FEWEST_PARTS:
        return "a sum has two columns or more; of one column, name the column"
    nothing = [column for column, weight in parts.items() if not weight]
    if nothing:
        return f"'{nothing[0]}' is multiplied by 0, so it has no part in the sum; leave it out"
    return None


def sum_in_words(parts: Mapping[str, float]) -> str:
    """The name of the sum: (days_home − 0.2 × pain)."""
    words = ""
    for column, weight in parts.items():
        sign = ("− " if weight < 0 else "+ ") if words else ("−" if weight < 0 else "")
        size = "" if abs(weight) == 1 else f"{abs(weight):.12g} × "
        words += f"{' ' if words else ''}{sign}{size}{column}"
    return f"({words})"
