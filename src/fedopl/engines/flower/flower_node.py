"""Runs one client's SuperNode as a child process, within a `with` block."""

import secrets
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fedopl.base.errors import FederationError, OptionError
from fedopl.engines.flower.federation_watcher import FINISHED, end_marked
from fedopl.engines.flower.local_federation import (
    STOP_SECONDS,
    environment_of,
    node_arguments,
    program,
    start_watcher,
    tell_watcher,
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
        own = self.files
        arguments = node_arguments(self.superlink, own.ca, own.key, own.client, own.study)
        command = [program("flower-supernode"), *arguments]
        self._watcher = start_watcher(self._token)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment_of(self._token, self._warm_programs()),
            start_new_session=True,  # Ctrl-C goes to us; then we stop the node
        )
        tell_watcher(self._watcher, f"+{self._process.pid}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        end_marked(self._token, STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        self._opened.close()
        tell_watcher(self._watcher, FINISHED)
        self._watcher.communicate()

    def wait(self) -> None:
        """Wait until the node ends, and raise an error: a node ends by itself only if it fails."""
        code = self._process.wait()
        raise FederationError(
            f"the node ended (exit code {code}); what it said last is above. Is its key registered "
            f"at {self.superlink}, and is the CA that of the server?"
        )

    def _warm_programs(self) -> list[str]:
        """The folder of a ClientApp that has imported what it needs, if the system can fork."""
        if not can_fork():
            return []
        agreed, _ = read_study(self.files.study)
        modules = (*CLIENT_APP_MODULES, *modules_for_answers(agreed))
        environment = environment_of(self._token, [])
        programs = WarmPrograms([Path(program("flwr-clientapp"))], modules, environment)
        return [str(self._opened.enter_context(programs).folder)]
