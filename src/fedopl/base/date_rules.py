"""Named rules that turn a date into a feature, in the same way at every client."""

import re
from datetime import date

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = tuple(str(month) for month in range(1, 13))
# The rules that give labels, each with all its labels in order. Other rules give numbers.
LABELLED = {"weekday": WEEKDAYS, "month": MONTHS}
COUNTED = ("year", "hour")
SINCE = re.compile(r"days since (\d{4}-\d{2}-\d{2})")
RULES_IN_WORDS = '"days since YYYY-MM-DD", "year", "month", "weekday" or "hour"'


def is_date_rule(text: object) -> bool:
    """Whether this is the name of a rule, with a day that exists."""
    if not isinstance(text, str):
        return False
    if found := SINCE.fullmatch(text):
        try:
            date.fromisoformat(found[1])
        except ValueError:
            return False
        return True
    return text in LABELLED or text in COUNTED


def date_rule(text: object) -> str:
    """The rule of this name; refused if there is none."""
    if not isinstance(text, str) or not is_date_rule(text):
        raise ValueError(f"expected a rule for dates, {RULES_IN_WORDS}, came {text!r}")
    return text
