"""Whole numbers of 64 bits, as in files and messages; Python's own have no limit."""

import math

from fedopl.base.errors import OptionError

LEAST, MOST = -(2**63), 2**63 - 1
MOST_SHOWN = 200  # characters


def is_beyond_64_bits(value: object) -> bool:
    """Whether this is a whole number that does not fit into 64 bits."""
    return isinstance(value, int) and not LEAST <= value <= MOST


def check_64_bits(value: object, name: str) -> None:
    """Refuse a whole number that does not fit into 64 bits; other values are not checked."""
    if is_beyond_64_bits(value):
        raise OptionError(f"{name}: expected a whole number of 64 bits, came {shown(value)}")


def shown(value: object) -> str:
    """A value as Python writes it, shortened if it is very long or cannot be written."""
    if isinstance(value, int) and not LEAST <= value <= MOST:
        return f"one of about {math.ceil(value.bit_length() * math.log10(2)):,} digits"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
