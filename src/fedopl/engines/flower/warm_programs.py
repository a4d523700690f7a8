"""Flower's programs as forks of one process that has imported Flower and fedopl, in a `with` block.

Flower looks for its programs on PATH. There it finds, in a private folder, scripts that ask for a
fork. If the process with the imports is gone, or cannot start, they run Flower's own programs.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from fedopl.engines.flower import fork_server, forked_program
from fedopl.engines.flower.federation_watcher import marks_are_seen

SCRIPT = '#!/bin/sh\nexec {python} -IS {asking} {socket} {own} "$@"\n'
WAITING = 128  # requests that may wait while a module is imported
# What a ClientApp imports beside Flower, in parts: requests are answered between them.
CLIENT_APP_MODULES = (
    *("fedopl.study.study_file", "fedopl.client.door"),
    "fedopl.engines.flower.flower_apps",
)


def can_fork() -> bool:
    """Whether forks are safe here, and are found when all has to end."""
    return hasattr(os, "fork") and marks_are_seen()


@dataclass
class WarmPrograms:
    """Scripts named as Flower's programs, and the process that they ask for a fork.

    Args:
        programs: the paths of Flower's own programs.
        modules: what is imported beside Flower, in this order.
        environment: the environment of the process; forks have that of who asks.
        log: where the process itself writes.

    """

    programs: Sequence[Path]
    modules: Sequence[str]
    environment: Mapping[str, str]
    log: BinaryIO | None = None
    folder: Path = field(default=Path(), init=False)

    def __enter__(self) -> Self:
        # Only its owner can enter the folder, and so connect. A socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="fedopl-"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._socket))
            listener.listen(WAITING)
            self._forks.mkdir()
            for own in self.programs:
                self._write_script(own)
            names = ",".join(own.name for own in self.programs)
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", fork_server.__file__),
                    *(str(self._forks), str(listener.fileno()), names, ",".join(self.modules)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                env=self.environment,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C goes to us
            )
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def fork_of(self, process: int) -> int | None:
        """The running fork that this process asked for, if it asked for one."""
        try:
            return int((self._forks / str(process)).read_text())
        except (OSError, ValueError):
            return None

    @property
    def _socket(self) -> Path:
        return self.folder / "socket"

    @property
    def _forks(self) -> Path:
        return self.folder / "forks"

    def _write_script(self, own: Path) -> None:
        words = {
            "python": sys.executable,
            "asking": forked_program.__file__,
            "socket": str(self._socket),
            "own": str(own),
        }
        script = self.folder / own.name
        script.write_text(SCRIPT.format(**{key: shlex.quote(word) for key, word in words.items()}))
        script.chmod(0o700)
