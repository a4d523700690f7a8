"""Moments as text, in UTC and to the millisecond: 2026-01-31T23:59:59.001+00:00."""

import time
from datetime import UTC, datetime
from functools import lru_cache

_SECONDS = len("2026-01-31T23:59:59")
_MILLISECONDS = slice(_SECONDS + 1, _SECONDS + 4)


def present_moment() -> str:
    """The present moment."""
    return timestamp(time.time_ns() // 1_000_000)


# Thousands of answers are written down in a second, several of them in the same millisecond.
@lru_cache(64)
def timestamp(milliseconds: int) -> str:
    """The moment so many milliseconds after the beginning of 1970."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_text_of(seconds)}.{rest:03}+00:00"


@lru_cache(64)
def milliseconds_of(moment: str) -> int:
    """The way back."""
    return 1000 * _seconds_of(moment[:_SECONDS]) + int(moment[_MILLISECONDS])


# Calendars are slow.
@lru_cache(64)
def _text_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(64)
def _seconds_of(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
