"""Runs one client's SuperNode as a child process, within a `with` block."""

import os
import secrets
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fedopl.base.errors import FederationError, OptionError
from fedopl.engines.flower.federation_watcher import FINISHED, MARK, end_marked
from fedopl.engines.flower.local_federation import (
    HOST,
    QUIET,
    STOP_SECONDS,
    free_port,
    program,
    start_watcher,
)
from fedopl.engines.flower.warm_programs import CLIENT_APP_MODULES, WarmPrograms, can_fork
from fedopl.engines.network.early_imports import modules_for_answers
from fedopl.study.study_file import read_study


@dataclass(frozen=True, kw_only=True)
class NodeFiles:
    """The files that a node needs; all belong to the client."""

    client: Path  # its folder
    study: Path
    ca: Path
    key: Path

    def __post_init__(self) -> None:
        expected = {
            self.client: "the folder of the client",
            self.study: "the study, as --study names it",
            self.ca: "the certificate of the server's CA, in the folder that --certificates names",
            self.key: "the client's own key, in the folder that --certificates names",
        }
        for path, what in expected.items():
            if not path.exists():
                raise OptionError(f"{path}: there is no such file; expected {what}")


@dataclass
class FlowerNode:
    """A SuperNode that connects to this SuperLink; when it ends, so do all processes it started."""

    superlink: str  # HOST:PORT
    files: NodeFiles
    _token: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    _opened: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        files = self.files
        config = f'client="{files.client.resolve()}" study="{files.study.resolve()}"'
        command = [
            *(program("flower-supernode"), "--superlink", self.superlink),
            *("--host", HOST, "--port", str(free_port())),
            *("--root-certificates", str(files.ca)),
            *("--auth-supernode-private-key", str(files.key)),
            *("--node-config", config),
        ]
        self._watcher = start_watcher(self._token)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=self._environment(self._warm_programs()),
            start_new_session=True,  # Ctrl-C goes to us; then we stop the node
        )
        self._tell_watcher(f"+{self._process.pid}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        end_marked(self._token, STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        self._opened.close()
        self._tell_watcher(FINISHED)
        self._watcher.communicate()

    def wait(self) -> None:
        """Wait until the node ends, and raise an error: a node ends by itself only if it fails."""
        code = self._process.wait()
        raise FederationError(
            f"the node ended (exit code {code}); what it said last is above. Is its key registered "
            f"at {self.superlink}, and is the CA that of the server?"
        )

    def _tell_watcher(self, line: str) -> None:
        if self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.write(f"{line}\n".encode())
                self._watcher.stdin.flush()

    def _warm_programs(self) -> list[str]:
        """The folder of a ClientApp that has imported what it needs, if the system can fork."""
        if not can_fork():
            return []
        agreed, _ = read_study(self.files.study)
        modules = (*CLIENT_APP_MODULES, *modules_for_answers(agreed))
        programs = WarmPrograms([Path(program("flwr-clientapp"))], modules, self._environment([]))
        return [str(self._opened.enter_context(programs).folder)]

    def _environment(self, first: list[str]) -> dict[str, str]:
        folders = [*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        return {**os.environ, **QUIET, "PATH": os.pathsep.join(folders), MARK: self._token}
