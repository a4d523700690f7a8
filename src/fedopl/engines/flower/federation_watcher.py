"""Ends what a federation's command started, once the command is gone without having done so.

A process of its own, which reads from a pipe that the command holds: `+PID` and `-PID` for parts
that were started and have ended, `done` when all have. The kernel closes the pipe however the
command ends, by SIGKILL too. It imports nothing but Python's own, to be there at once.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "FEDOPL_FEDERATION"  # in the environment of every process that we start, and of theirs
SWEEP_SECONDS, WATCH_SECONDS = 15.0, 0.2
FINISHED = "done"


def marked(token: str) -> list[int]:
    """Processes with our mark in their environment; only Linux shows it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={token}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def marks_are_seen() -> bool:
    """Whether the system shows the environment of processes."""
    return Path("/proc/self/environ").exists()


def end_marked(token: str, seconds: float) -> None:
    """Kill processes with our mark, and what they start meanwhile, until there are none."""
    end = time.monotonic() + seconds
    while (left := marked(token)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(WATCH_SECONDS)


def watch() -> None:
    """Read until the pipe is closed; then, unless all was done, end what is left."""
    token, parts = sys.argv[1], set[int]()
    for line in map(str.strip, sys.stdin):
        if line == FINISHED:
            return
        (parts.add if line.startswith("+") else parts.discard)(int(line[1:]))
    if not marks_are_seen():
        for leader in parts:  # each leads a group of its own
            with suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
    end_marked(token, SWEEP_SECONDS)


if __name__ == "__main__":
    watch()
