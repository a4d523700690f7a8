"""Runs one of Flower's programs as a fork of `fork_server.py`, or itself if there is none.

Usage: forked_program.py SOCKET PROGRAM ARGUMENT …, where PROGRAM is the path of Flower's own
program. It passes on its files, folder and environment, hands signals on to the fork, and ends with
its exit code. The file imports only Python's standard library, so that it starts at once.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

SIZE_BYTES = 8
HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def ask_and_wait() -> None:
    """Run the program, and end as it ends."""
    place, own, *arguments = sys.argv[1:]
    try:
        server, fork = asked(place, Path(own).name, arguments)
    except (OSError, ValueError):
        os.execv(own, [own, *arguments])

    def hand_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(fork, number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    code = int(line_from(server) or 1)
    os._exit(code if code >= 0 else 128 - code)


def asked(place: str, program: str, arguments: list[str]) -> tuple[socket.socket, int]:
    """A connection to the server, and the fork that it made."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(place)
    request = {
        "asker": os.getpid(),
        "program": program,
        "arguments": arguments,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
    }
    content = json.dumps(request).encode()
    socket.send_fds(server, [len(content).to_bytes(SIZE_BYTES, "big")], [0, 1, 2])
    server.sendall(content)
    return server, int(line_from(server))


def line_from(server: socket.socket) -> str:
    """The next line; empty if the server is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = server.recv(1)
        if not more:
            return ""
        line += more
    return line.decode()


if __name__ == "__main__":
    ask_and_wait()
