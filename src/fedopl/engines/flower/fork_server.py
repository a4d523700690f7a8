"""Forks Flower's programs from one process that has imported them, so that each starts at once.

Flower starts a process for every message, and each would import Flower and fedopl anew, which takes
seconds. `forked_program.py` asks this process for a fork instead. A fork has the files, folder,
environment and arguments of who asks. If who asks ends, its fork is killed.
"""

import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedopl.engines.flower.forked_program import SIZE_BYTES

REQUEST_SECONDS = 10.0
READ_BYTES = 1 << 16
N_FILES = 3  # standard input, output and error


@dataclass(frozen=True)
class Request:
    """A program that is to run, with what, and the process that asks for it."""

    asker: int
    program: str
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]

    def become(self, start: Callable[[], Any]) -> None:
        """Run the program in this process, which is a fork, and end with its exit code."""
        for place, handle in enumerate(self.files):
            os.dup2(handle, place)
            os.close(handle)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv = [self.program, *self.arguments]
        sys.exit(start())


@dataclass
class ForkServer:
    """Answers requests on a socket; imports modules while nobody asks.

    As long as a fork runs, a file in `folder` with the number of who asks has its number.
    """

    folder: Path
    listener: socket.socket
    programs: Sequence[str]
    modules: list[str]
    _starts: dict[str, Callable[[], Any]] = field(default_factory=dict, init=False)
    _askers: dict[int, socket.socket] = field(default_factory=dict, init=False)  # by fork
    _notes: dict[int, Path] = field(default_factory=dict, init=False)  # by fork

    def serve(self) -> None:
        """Answer requests until this process is ended; a fork returns when its program ends."""
        for name in self.programs:
            (found,) = entry_points(group="console_scripts", name=name)
            self._starts[name] = found.load()
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.PollSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while (request := self._next(selector, woken)) is None:
                pass
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self.listener, woken, wake, *self._askers.values()):
            end.close()
        request.become(self._starts[request.program])

    def _next(self, selector: selectors.BaseSelector, woken: socket.socket) -> Request | None:
        """Do what there is to do; a request in a fork, None in the server."""
        ready = selector.select(0 if self.modules else None)
        if not ready and self.modules:
            import_module(self.modules.pop(0))
        for key, _ in ready:
            if key.fileobj is self.listener:
                asker, _ = self.listener.accept()
                request = self._forked(asker)
                if request is not None:
                    return request
                if asker.fileno() >= 0:
                    selector.register(asker, selectors.EVENT_READ)
            elif key.fileobj is woken:
                with suppress(BlockingIOError):
                    woken.recv(1024)
                self._tell_ended(selector)
            elif key.fd in selector.get_map():  # who asked says nothing more, so it ended
                selector.unregister(key.fileobj)
                self._kill_fork_of(key.fileobj)
        return None

    def _forked(self, asker: socket.socket) -> Request | None:
        """Fork for a request, and say which process it is; the request itself in the fork."""
        try:
            asker.settimeout(REQUEST_SECONDS)
            request = request_from(asker)
        except (OSError, TypeError, ValueError):
            asker.close()
            return None
        if request.program not in self._starts:
            asker.close()
            return None
        gc.freeze()  # what is shared stays shared: a fork's collector leaves it alone
        fork = os.fork()
        if fork == 0:
            asker.close()
            return request
        for handle in request.files:
            os.close(handle)
        self._askers[fork] = asker
        self._notes[fork] = self.folder / str(request.asker)
        self._notes[fork].write_text(str(fork))
        with suppress(OSError):
            asker.sendall(f"{fork}\n".encode())
        return None

    def _tell_ended(self, selector: selectors.BaseSelector) -> None:
        """Tell who asked with which code its fork ended."""
        for fork, asker in list(self._askers.items()):
            ended, status = os.waitpid(fork, os.WNOHANG)
            if ended:
                del self._askers[fork]
                self._notes.pop(fork).unlink(missing_ok=True)
                with suppress(OSError):
                    asker.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                with suppress(KeyError):
                    selector.unregister(asker)
                asker.close()

    def _kill_fork_of(self, asker: object) -> None:
        for fork, other in self._askers.items():
            if other is asker:
                os.kill(fork, signal.SIGKILL)  # not waited for yet, so the number is still its own


def request_from(asker: socket.socket) -> Request:
    """The request that comes on a connection."""
    head, files, _, _ = socket.recv_fds(asker, SIZE_BYTES, N_FILES)
    size, content = int.from_bytes(head, "big"), b""
    while len(content) < size:
        more = asker.recv(min(size - len(content), READ_BYTES))
        if not more:
            raise ValueError("the request ends too early")
        content += more
    return Request(**json.loads(content), files=files)


def serve_forks() -> None:
    """Serve on the socket with this file number, for these programs, with these modules."""
    folder, number, programs, modules = sys.argv[1:5]
    with socket.socket(fileno=int(number)) as listener:
        ForkServer(Path(folder), listener, programs.split(","), modules.split(",")).serve()


if __name__ == "__main__":
    serve_forks()
