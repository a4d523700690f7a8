"""Signal handling: commands that start processes stop them however the command is ended."""

import signal
import sys
from types import FrameType


def stop_when_told() -> None:
    """Let SIGTERM, or a closed terminal, end the command with its usual cleaning up."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has only SIGTERM
            signal.signal(getattr(signal, name), _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
