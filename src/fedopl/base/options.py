"""Checks of settings that arrive as plain numbers."""

from numbers import Integral, Real

from fedopl.base.errors import OptionError


def check_probability(value: object, name: str) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise OptionError(f"{name}: expected a propensity between 0 and 1, came {value!r}")


def check_whole(value: object, name: str, least: int, most: int) -> None:
    """Refuse what is not a whole number in this range."""
    if not isinstance(value, Integral) or not least <= int(value) <= most:
        raise OptionError(f"{name}: expected {least} to {most}, came {value!r}")
