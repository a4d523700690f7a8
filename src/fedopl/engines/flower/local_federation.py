"""Flower's programs as processes: a whole federation on this machine, or the node of one client.

A federation has real processes, TLS and authenticated nodes, and listens only on 127.0.0.1. When a
`with` block ends, no process is left behind.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from fedopl.base.errors import FederationError, OptionError
from fedopl.base.files import write_atomically
from fedopl.engines.flower import federation_watcher
from fedopl.engines.flower.federation_watcher import FINISHED, MARK, end_marked
from fedopl.engines.flower.warm_programs import CLIENT_APP_MODULES, WarmPrograms, can_fork
from fedopl.engines.network.certificates import make_certificates, make_client_key
from fedopl.engines.network.early_imports import modules_for_answers
from fedopl.study.study_file import read_study

HOST = "127.0.0.1"
START_SECONDS, STOP_SECONDS, POLL_SECONDS = 60.0, 15.0, 0.2
REGISTERED_AT_ONCE = 4  # clients that are registered in parallel
CONNECTION = "local-federation"
# Flower's programs, and what a ServerApp imports beside Flower.
WARM = (
    *("flower-superlink", "flower-supernode", "flower-superexec"),
    *("flwr", "flwr-clientapp", "flwr-serverapp"),
)
SERVER_APP_MODULES = ("fedopl.engines.network.coordinate",)
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
# How often a part looks for work, in seconds. Flower's default of one second suits many machines;
# with a tenth, four parts that look and find nothing would take a third of a core.
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}


class FlowerProcesses(ABC):
    """Programs of Flower; when their `with` block ends, so do they and all that they started."""

    def __init__(self, study: Path) -> None:
        self.study = study
        self._token = secrets.token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watcher: subprocess.Popen[bytes] | None = None
        self._programs: WarmPrograms | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._watcher = _start_watcher(self._token)
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @abstractmethod
    def _start_all(self) -> None:
        """Start the programs."""

    def stop(self) -> None:
        """Stop every process that we started, and their descendants, and no others."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        end = time.monotonic() + STOP_SECONDS
        while time.monotonic() < end and any(p.poll() is None for p in self._processes.values()):
            time.sleep(POLL_SECONDS)
        # The processes they started would otherwise look for them for a while.
        end_marked(self._token, STOP_SECONDS)
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()
        self._opened.close()
        self._programs = None
        self._tell_watcher(FINISHED)
        if self._watcher is not None:
            self._watcher.communicate()
            self._watcher = None

    def _start(self, part: str, command: Sequence[str], log: BinaryIO | None = None) -> None:
        self._processes[part] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            env=self._environment(),
            start_new_session=True,  # Ctrl-C goes to us; then we stop all parts in order
        )
        self._tell_watcher(f"+{self._processes[part].pid}")

    def _warm_programs(
        self, names: Sequence[str], modules: Sequence[str] = (), log: BinaryIO | None = None
    ) -> None:
        """Import what these programs need, once for all of them, if the system can fork."""
        if not can_fork():
            return
        agreed, _ = read_study(self.study)
        programs = WarmPrograms(
            [Path(program(name)) for name in names],
            (*CLIENT_APP_MODULES, *modules, *modules_for_answers(agreed)),
            self._environment(),
            log,
        )
        self._programs = self._opened.enter_context(programs)

    def _environment(self) -> dict[str, str]:
        """Of Flower's programs: our mark, and where they are found, warm ones first of all."""
        first = [] if self._programs is None else [str(self._programs.folder)]
        folders = [*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        return {**os.environ, **QUIET, "PATH": os.pathsep.join(folders), MARK: self._token}

    def _tell_watcher(self, line: str) -> None:
        """Tell the watcher of a part, or that all have ended; all works without it, too."""
        if self._watcher is not None and self._watcher.stdin is not None:
            with suppress(OSError):
                self._watcher.stdin.write(f"{line}\n".encode())
                self._watcher.stdin.flush()


class LocalFederation(FlowerProcesses):
    """A SuperLink and a SuperNode for each client, as a context manager; they stop when it ends.

    Args:
        folder: where keys, logs and Flower's own files go.
        clients: each client's folder, by name.
        study: each client's own copy of the study.

    """

    def __init__(self, folder: Path, clients: Mapping[str, Path], study: Path) -> None:
        super().__init__(study)
        self.folder, self.clients, self.port = folder, clients, free_port()
        self.keys = folder / "keys"  # and certificates

    def _start_all(self) -> None:
        self._make_keys()
        self._warm_programs(
            WARM, SERVER_APP_MODULES, self._opened.enter_context(self._log("programs"))
        )
        self.start_superlink()
        # In parallel, as each registration is a Flower process that mostly imports and waits.
        with ThreadPoolExecutor(REGISTERED_AT_ONCE) as pool:
            list(pool.map(self.register, self.clients))
        for name in self.clients:
            self.start_node(name)

    def start_superlink(self) -> None:
        """Start the server, and wait until it listens."""
        command = [
            self._program("flower-superlink"),
            *("--host", HOST, "--port", str(self.port), "--enable-supernode-auth"),
            *("--ssl-ca-certfile", str(self.keys / "ca.crt")),
            *("--ssl-certfile", str(self.keys / "server.crt")),
            *("--ssl-keyfile", str(self.keys / "server.key")),
            "--disable-runtime-dependency-installation",
        ]
        with self._log("superlink") as log:
            self._start("superlink", command, log)
        end = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            if self._processes["superlink"].poll() is not None or time.monotonic() > end:
                place = self.folder / "logs" / "superlink.log"
                raise FederationError(f"superlink did not start; its log is {place}")
            time.sleep(POLL_SECONDS)

    def register(self, name: str) -> None:
        """Register a client's public key at the server, under its name."""
        self.flwr(
            "supernode", "register", str(self.keys / f"{name}.pub"), CONNECTION, "--name", name
        )

    def start_node(self, name: str) -> None:
        """Start a client's node; only this process gets the paths of the client's files."""
        ca, key = self.keys / "ca.crt", self.keys / f"{name}.key"
        link = f"{HOST}:{self.port}"
        arguments = node_arguments(link, ca, key, self.clients[name], self.study)
        with self._log(f"node-{name}") as log:
            self._start(f"node-{name}", [self._program("flower-supernode"), *arguments], log)

    def run(self, app: Path) -> str:
        """Submit an app, and return its run number."""
        return str(self.flwr("run", str(app), CONNECTION)["run-id"])

    def status(self, run: str) -> str:
        """Flower's status of a run, such as 'running' or 'finished:failed'."""
        (found,) = self.flwr("list", "--run-id", run, CONNECTION)["runs"]
        return str(found["status"])

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a Flower command, and return the JSON it prints; its exit code is not used."""
        command = [self._program("flwr"), *arguments]
        try:
            done = subprocess.run(
                [*command, "--format", "json"],
                capture_output=True,
                text=True,
                check=False,
                env=self._environment(),
                timeout=START_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise FederationError(f"flwr {arguments[0]} did not end in time") from None
        start = done.stdout.find("{")
        content = json.JSONDecoder().raw_decode(done.stdout[start:])[0] if start >= 0 else {}
        if not content.get("success"):
            said = (content.get("error-message") or done.stdout + done.stderr).strip().splitlines()
            raise FederationError(
                f"flwr {arguments[0]} failed: {said[-1] if said else 'it printed nothing'}"
            )
        return dict(content)

    def _log(self, part: str) -> BinaryIO:
        path = self.folder / "logs" / f"{part}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")

    def _make_keys(self) -> None:
        if not (self.keys / "ca.key").exists():
            make_certificates(self.keys, [HOST, "localhost"])
        for name in self.clients:
            if not (self.keys / f"{name}.key").exists():
                make_client_key(self.keys, name)
        config = (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{HOST}:{self.port}"\n'
            f'root-certificates = "{(self.keys / "ca.crt").resolve().as_posix()}"\n'
        )
        write_atomically(self.folder / "home" / "config.toml", config.encode())

    def _program(self, name: str) -> str:
        """The program's path, or its name, by which a fork is found first on PATH."""
        return program(name) if self._programs is None else name

    def _environment(self) -> dict[str, str]:
        home = {"FLWR_HOME": str((self.folder / "home").resolve())}
        return super()._environment() | PROMPT | home


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


class FlowerNode(FlowerProcesses):
    """A SuperNode that connects to the SuperLink at HOST:PORT."""

    def __init__(self, superlink: str, files: NodeFiles) -> None:
        super().__init__(files.study)
        self.superlink, self.files = superlink, files

    def _start_all(self) -> None:
        own = self.files
        arguments = node_arguments(self.superlink, own.ca, own.key, own.client, own.study)
        self._warm_programs(["flwr-clientapp"])
        self._start("node", [program("flower-supernode"), *arguments])

    def wait(self) -> None:
        """Wait until the node ends, and raise an error: a node ends by itself only if it fails."""
        code = self._processes["node"].wait()
        raise FederationError(
            f"the node ended (exit code {code}); what it said last is above. Is its key registered "
            f"at {self.superlink}, and is the CA that of the server?"
        )


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def program(name: str) -> str:
    """The path of one of Flower's own programs."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise FederationError(f"{name} is not installed here; pip install 'fedopl[flower]'")
    return str(path)


def node_arguments(superlink: str, ca: Path, key: Path, client: Path, study: Path) -> list[str]:
    """The arguments of the program of a client's node, which calls this SuperLink."""
    return [
        *("--superlink", superlink, "--host", HOST, "--port", str(free_port())),
        *("--root-certificates", str(ca), "--auth-supernode-private-key", str(key)),
        *("--node-config", f'client="{client.resolve()}" study="{study.resolve()}"'),
    ]


def _start_watcher(token: str) -> subprocess.Popen[bytes]:
    """A process that ends our processes if we cannot; it reads from a pipe that only we hold."""
    return subprocess.Popen(
        [sys.executable, federation_watcher.__file__, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal that ends us must not end the watcher
    )
