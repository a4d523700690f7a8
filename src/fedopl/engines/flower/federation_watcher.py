"""Ends the processes of a federation if the command that started them died without ending them.

The watcher is a separate process. It reads from a pipe that the command holds: `+PID` for a part
that was started, `-PID` for one that has ended, `done` when all have ended. The kernel closes the
pipe whenever the command ends, even by SIGKILL. The file imports only Python's standard library, so
that it starts at once.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "FEDOPL_FEDERATION"  # in the environment of every process we start, and of their children
SWEEP_SECONDS, WATCH_SECONDS = 15.0, 0.2
FINISHED = "done"


def marked(token: str) -> list[int]:
    """The processes with our mark in their environment; only Linux shows environments."""
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
    """Kill all processes with our mark, including new ones, until none is left or time is up."""
    end = time.monotonic() + seconds
    while (left := marked(token)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(WATCH_SECONDS)


def watch() -> None:
    """Read until the pipe is closed; unless it said `done`, end all processes that are left."""
    token, parts = sys.argv[1], set[int]()
    for line in map(str.strip, sys.stdin):
        if line == FINISHED:
            return
        (parts.add if line.startswith("+") else parts.discard)(int(line[1:]))
    if not marks_are_seen():
        for leader in parts:  # each part leads its own process group
            with suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)
    end_marked(token, SWEEP_SECONDS)


if __name__ == "__main__":
    watch()
