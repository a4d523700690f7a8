"""A study over Flower: as an App folder that `flwr run` accepts, or run on this machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from fedopl.base.errors import FederationError, OptionError, StorageError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_node_name
from fedopl.client.client_file import Client
from fedopl.engines.flower.local_federation import POLL_SECONDS, LocalFederation
from fedopl.engines.network.coordinate import run_to_join, study_to_agree_to
from fedopl.results.files.run_folder import FAILURE, PROGRESS, is_finished, load_record, writing
from fedopl.results.files.table_files import ProgressFile
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Progress
from fedopl.study.study_file import read_study

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedopl-app"
version = "1.0.0"
description = "A fedopl study as a Flower App"
license = "Apache-2.0"
dependencies = ["fedopl[flower]=={version}"]

[tool.hatch.build.targets.wheel]
packages = ["fedopl_app"]

[tool.flwr.app]
publisher = "fedopl"

[tool.flwr.app.components]
serverapp = "fedopl_app.server_app:app"
clientapp = "fedopl_app.client_app:app"

[tool.flwr.app.config]
clients = "{clients}"  # as they are registered: flwr supernode register KEY.pub --name NAME
out = "{out}"  # the run's folder, at the server; a run that was killed goes on from there
arrival = {arrival:.1f}  # seconds to wait for everybody to be there
deadline = {deadline:.1f}  # seconds to wait for answers on each trip
"""

SERVER_APP = '''\
"""The server's side: the study beside this file, run over Flower's Grid."""

from pathlib import Path

from fedopl.engines.flower.flower_apps import server_app

app = server_app(Path(__file__).parents[1] / "study.toml")
'''

CLIENT_APP = '''\
"""A client's side: bytes to its door. The node's own configuration names its files."""

from fedopl.engines.flower.flower_apps import client_app

app = client_app()
'''

README = """\
# {name}, as a Flower App

Server: `flwr run . NAME-OF-THE-SUPERLINK`; the run's folder is `{out}`. `flwr run` ends with 0 even
where a run fails: look for `run.json` in that folder, or run `fedopl report {out}`.

Every client starts its SuperNode with its own files, which never leave it:

    flower-supernode --superlink HOST:PORT --root-certificates ca.crt \\
      --auth-supernode-private-key NAME.key \\
      --node-config 'client="/path/to/its/folder" study="/path/to/study.toml"'

The client reads the study from its own copy: compare `sha256sum study.toml` before you start.
fedopl's docs/deployment.md has the whole story.
"""


JOIN = """\
join = "{join}"  # the folder of a finished run, at the server, which these clients join
"""


def write_flower_app(
    folder: Path,
    study: Path,
    clients: Sequence[str],
    *,
    out: Path,
    arrival: float = 120.0,
    deadline: float = 120.0,
    join: Path | None = None,
) -> list[Path]:
    """Write the folder's files, and return their paths; existing files are not overwritten.

    The server waits `arrival` seconds for all to connect, and `deadline` for answers on each trip.
    If `join` is the folder of a finished run, the `clients` join that run.
    """
    agreed, candidates = read_study(study)
    if candidates:
        raise OptionError(
            f"{study}: candidates that are saved policies cannot go with a Flower App"
        )
    if not clients:
        raise OptionError("clients: name at least one")
    for name in clients:
        check_node_name(name)
    if folder.exists() and any(folder.iterdir()):
        raise StorageError(f"{folder}: is not empty; name another folder")
    settings = {"clients": ",".join(sorted(clients)), "arrival": arrival, "deadline": deadline}
    place = out.resolve().as_posix()
    joins = ""
    if join is not None:
        study_to_agree_to(run_to_join(join, out), agreed, clients)
        joins = JOIN.format(join=join.resolve().as_posix())
    files = {
        "pyproject.toml": PYPROJECT.format(version=version("fedopl"), out=place, **settings)
        + joins,
        "README.md": README.format(name=agreed.name, out=place),
        "study.toml": study.read_text(encoding="utf-8"),
        "fedopl_app/__init__.py": '"""A fedopl study as a Flower App."""\n',
        "fedopl_app/server_app.py": SERVER_APP,
        "fedopl_app/client_app.py": CLIENT_APP,
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]


STATUS_SECONDS = 30.0  # between questions to Flower; each starts a process of a second or two
Teller = Callable[[str], None]


def run_over_flower(
    study: Path,
    clients: Mapping[str, Client],
    *,
    out: Path,
    arrival: float = 120.0,
    deadline: float = 120.0,
    tell: Teller,
    progress: Progress | None = None,
) -> Record:
    """Start a federation, run the study, stop the federation, and return the record."""
    if read_study(study)[0].aggregators:
        raise OptionError(
            "aggregators: over Flower there are none: a node's program is started for each message "
            "and ends after it, so no member can call it; use `fedopl server` and `fedopl "
            "aggregate`, or `fedopl run`"
        )
    for client in clients.values():
        client.check_approvals()
    work = out / "flower"
    # The server's own process holds the lock on the run's folder.
    with writing(work):
        app = work / f"app-{int(time.time())}"
        write_flower_app(app, study, list(clients), out=out, arrival=arrival, deadline=deadline)
        folders = {name: client.path.parent for name, client in clients.items()}
        for ending in ("run.json", FAILURE, PROGRESS):  # of an earlier attempt, which is resumed
            (out / ending).unlink(missing_ok=True)
        tell("starting a SuperLink and a SuperNode for each client on 127.0.0.1")
        with LocalFederation(work, folders, study) as federation:
            tell("everybody is started; submitting the run")
            wait_for_run(federation, federation.run(app), out, tell, progress)
        tell("everything is stopped")
    record = load_record(out)
    if progress is not None:
        for latest in record.rounds:  # also those that were not seen before the end
            progress(latest)
    return record


def wait_for_run(
    federation: LocalFederation,
    run: str,
    out: Path,
    tell: Teller,
    progress: Progress | None = None,
) -> None:
    """Wait until the run's folder is finished, or Flower reports that the run ended without one."""
    exchanges, read_to = ProgressFile(out / PROGRESS), 0
    failure, trips, asked, status = out / FAILURE, 0, time.monotonic(), ""
    while not is_finished(out):
        done = len(list((out / "exchanges").rglob("*.bin")))
        if done > trips:
            trips = done
            tell(f"trip {trips} is done")
        if progress is not None:
            latest, read_to = exchanges.since(read_to)
            for one in latest:
                progress(one)
        if time.monotonic() - asked > STATUS_SECONDS:
            asked, status = time.monotonic(), federation.status(run)
        ended = status.startswith("finished") or failure.is_file()
        if ended and not is_finished(out):
            raise FederationError(
                failure.read_text(encoding="utf-8").strip()
                if failure.is_file()
                else f"the run ended as '{status}' without a result; see {out / 'flower' / 'logs'}"
            )
        time.sleep(POLL_SECONDS)
