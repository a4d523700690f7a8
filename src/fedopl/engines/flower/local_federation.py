"""A whole Flower federation on this machine: real processes, TLS, authenticated nodes.

Everything listens only on 127.0.0.1, and no process is left behind.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from fedopl.base.errors import FederationError
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


@dataclass
class LocalFederation:
    """A SuperLink and a SuperNode for each client, as a context manager; they stop when it ends.

    Args:
        folder: where keys, logs and Flower's own files go.
        clients: each client's folder, by name.
        study: each client's own copy of the study.

    """

    folder: Path
    clients: Mapping[str, Path]
    study: Path
    port: int = 0
    _token: str = field(default_factory=lambda: secrets.token_hex(16), init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _programs: WarmPrograms | None = field(default=None, init=False)
    _opened: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        try:
            self.port = self.port or free_port()
            self._make_keys()
            self._watcher = start_watcher(self._token)
            self._warm_programs()
            self.start_superlink()
            # In parallel, as each registration is a Flower process that mostly imports and waits.
            with ThreadPoolExecutor(REGISTERED_AT_ONCE) as pool:
                list(pool.map(self.register, self.clients))
            for name in self.clients:
                self.start_node(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # --- its parts -----------------------------------------------------------------------------

    @property
    def keys(self) -> Path:
        """The folder of keys and certificates."""
        return self.folder / "keys"

    def start_superlink(self) -> None:
        """Start the server, and wait until it listens."""
        self._start(
            "superlink",
            "flower-superlink",
            *("--host", HOST, "--port", str(self.port), "--enable-supernode-auth"),
            *("--ssl-ca-certfile", str(self.keys / "ca.crt")),
            *("--ssl-certfile", str(self.keys / "server.crt")),
            *("--ssl-keyfile", str(self.keys / "server.key")),
            "--disable-runtime-dependency-installation",
        )
        end = time.monotonic() + START_SECONDS
        while not _listens(self.port):
            if self._processes["superlink"].poll() is not None or time.monotonic() > end:
                log = self.folder / "logs" / "superlink.log"
                raise FederationError(f"superlink did not start; its log is {log}")
            time.sleep(POLL_SECONDS)

    def register(self, name: str) -> None:
        """Register a client's public key at the server, under its name."""
        self.flwr(
            "supernode", "register", str(self.keys / f"{name}.pub"), CONNECTION, "--name", name
        )

    def start_node(
        self, name: str, *, study: Path | None = None, ca: Path | None = None, **environment: str
    ) -> None:
        """Start a client's node; only this process gets the paths of the client's files.

        A node with an `environment` of its own starts Flower's programs anew for every message.
        """
        ca, key = ca or self.keys / "ca.crt", self.keys / f"{name}.key"
        own = (self.clients[name], study or self.study)
        arguments = node_arguments(f"{HOST}:{self.port}", ca, key, *own)
        self._start(f"node-{name}", "flower-supernode", *arguments, environment=environment or None)

    def kill(self, part: str) -> None:
        """Kill one part with all its descendants, as a power cut would."""
        process = self._processes.pop(part)
        for pid in [process.pid, *self._descendants_of(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + STOP_SECONDS
        while self._fork_of(process.pid) is not None and time.monotonic() < end:
            time.sleep(POLL_SECONDS / 10)
        self._tell_watcher(f"-{process.pid}")

    def end(self, part: str) -> None:
        """Stop one part gracefully."""
        process = self._processes.pop(part)
        process.terminate()
        process.wait(STOP_SECONDS)
        self._tell_watcher(f"-{process.pid}")

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

    # --- how they are started ------------------------------------------------------------------

    def _warm_programs(self) -> None:
        """Import what Flower's programs need, once for all of them, while the server starts."""
        if not can_fork():
            return
        agreed, _ = read_study(self.study)
        log = self._opened.enter_context(self._log("programs"))
        programs = WarmPrograms(
            [Path(program(name)) for name in WARM],
            (*CLIENT_APP_MODULES, *SERVER_APP_MODULES, *modules_for_answers(agreed)),
            self._environment(),
            log,
        )
        self._programs = self._opened.enter_context(programs)

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

    def _start(
        self, part: str, command: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        # Forks have imported what they need, so a change of PYTHONPATH comes too late for them.
        warm = environment is None
        with self._log(part) as log:
            self._processes[part] = subprocess.Popen(
                [self._program(command) if warm else program(command), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment(warm=warm), **(environment or {})},
                start_new_session=True,  # Ctrl-C goes to us; then we stop all parts in order
            )
        self._tell_watcher(f"+{self._processes[part].pid}")

    def _program(self, name: str) -> str:
        """The program's path, or its name, by which a fork is found first on PATH."""
        return program(name) if self._programs is None else name

    def _fork_of(self, pid: int) -> int | None:
        return None if self._programs is None else self._programs.fork_of(pid)

    def _descendants_of(self, pid: int) -> list[int]:
        """All descendants of a process, and the forks that it and they asked for."""
        fork = self._fork_of(pid)
        children = [] if fork is None else [fork]
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                children += map(int, path.read_text().split())
        return [*children, *(one for child in children for one in self._descendants_of(child))]

    def _tell_watcher(self, line: str) -> None:
        if self._watcher is not None:
            tell_watcher(self._watcher, line)

    def _environment(self, *, warm: bool = True) -> dict[str, str]:
        first = [str(self._programs.folder)] if warm and self._programs is not None else []
        home = {"FLWR_HOME": str((self.folder / "home").resolve())}
        return environment_of(self._token, first) | PROMPT | home


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


def environment_of(token: str, first: Sequence[str]) -> dict[str, str]:
    """The environment of Flower's programs: our mark, and where they are found, `first` of all."""
    folders = [*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return {**os.environ, **QUIET, "PATH": os.pathsep.join(folders), MARK: token}


def tell_watcher(watcher: subprocess.Popen[bytes], line: str) -> None:
    """Tell the watcher of a part, or that all have ended; all works without a watcher, too."""
    if watcher.stdin is not None:
        with suppress(OSError):
            watcher.stdin.write(f"{line}\n".encode())
            watcher.stdin.flush()


def start_watcher(token: str) -> subprocess.Popen[bytes]:
    """A process that ends our processes if we cannot; it reads from a pipe that only we hold."""
    return subprocess.Popen(
        [sys.executable, federation_watcher.__file__, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal that ends us must not end the watcher
    )
