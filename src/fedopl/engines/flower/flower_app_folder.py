"""A Flower App folder that `flwr run` accepts: our two apps, the study, and how to run it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from fedopl.base.errors import OptionError, StorageError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_node_name
from fedopl.engines.network.coordinate import run_to_join, study_to_agree_to
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


@dataclass(frozen=True, kw_only=True)
class WaitSeconds:
    """How long a server waits, in seconds."""

    arrival: float = 120.0  # for all clients to connect
    deadline: float = 120.0  # for answers, in each round trip


JOIN = """\
join = "{join}"  # the folder of a finished run, at the server, which these clients join
"""


def write_flower_app(
    folder: Path,
    study: Path,
    clients: Sequence[str],
    *,
    out: Path,
    wait: WaitSeconds,
    join: Path | None = None,
) -> list[Path]:
    """Write the folder's files, and return their paths; existing files are not overwritten.

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
    settings = {"clients": ",".join(sorted(clients)), **asdict(wait)}
    place = out.resolve().as_posix()
    joins = ""
    if join is not None and clients:
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
