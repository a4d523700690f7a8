"""Text from other parties, made safe to display."""

import unicodedata

# These characters reverse the direction of text, so that one name reads as another.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(letter if _is_read(letter) else "�" for letter in text)


def _is_read(letter: str) -> bool:
    if letter in "\n\t":
        return True
    return unicodedata.category(letter) not in ("Cc", "Cs") and letter not in _TURNING
