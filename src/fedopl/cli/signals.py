"""Commands that start processes stop them on the way out, whoever ends the command."""

import signal
import sys
from types import FrameType


def stop_when_told() -> None:
    """Let a signal to end, or a terminal that is closed, end the command as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has but one of them
            signal.signal(getattr(signal, name), _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
