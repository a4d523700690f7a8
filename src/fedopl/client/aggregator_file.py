"""`aggregator.toml`: a folder of clients whose answers an aggregator adds up."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fedopl.base.errors import OptionError
from fedopl.base.labels import check_client_name
from fedopl.base.toml_file import TomlFile
from fedopl.base.validation import Checked
from fedopl.client.client_file import AGGREGATOR_FILE, FILE_NAME, Client, read_client

# Of fewer members than this, a total would be nearly one member's own answer.
LEAST_MEMBERS = 3


class AggregatorFile(Checked):
    """The whole file."""

    name: str | None = Field(
        default=None,
        min_length=1,
        description="the aggregator's name in the study; default: the folder's name",
    )
    minimum_members: int = Field(
        default=LEAST_MEMBERS,
        ge=1,
        description="the fewest members whose answers it adds up and releases",
    )


@dataclass(frozen=True, kw_only=True)
class AggregatorFolder:
    """An aggregator's folder: its file and its ledger."""

    name: str
    path: Path  # of aggregator.toml
    settings: AggregatorFile

    @property
    def ledger_path(self) -> Path:
        """Where it records its answers."""
        return self.path.parent / "ledger.jsonl"

    @property
    def store_path(self) -> Path:
        """Where it keeps them, to send them again."""
        return self.path.parent / "answers"


@dataclass(frozen=True, kw_only=True)
class RegionFolder(AggregatorFolder):
    """The same, with a folder for each member in it."""

    members: dict[str, "Client | RegionFolder"]


def read_aggregator(path: str | Path) -> AggregatorFolder:
    """The aggregator in this folder, or of this aggregator.toml."""
    path = Path(path)
    path = path / AGGREGATOR_FILE if path.is_dir() else path
    file = TomlFile.read(path)
    settings = file.parsed(AggregatorFile)
    name = settings.name or path.resolve().parent.name
    check_client_name(name, file.complaint(("name",), "name"))
    if (path.parent / FILE_NAME).is_file():
        raise OptionError(
            f"{path}: {FILE_NAME} is there, too; an aggregator has no rows of its own: give these "
            "a folder in it"
        )
    return AggregatorFolder(name=name, path=path, settings=settings)


def is_aggregator(path: str | Path) -> bool:
    """Whether this is an aggregator's folder, or its file."""
    path = Path(path)
    return path.name == AGGREGATOR_FILE or (path / AGGREGATOR_FILE).is_file()


def read_region(path: str | Path) -> RegionFolder:
    """The aggregator in this folder, with its members."""
    own = read_aggregator(path)
    members = read_parties(own.path.parent)
    if not members:
        raise OptionError(
            f"{own.path}: expected a folder for each member beside it, such as "
            f"{own.path.parent / 'site' / FILE_NAME}; there is none"
        )
    return RegionFolder(name=own.name, path=own.path, settings=own.settings, members=members)


def read_parties(folder: str | Path) -> dict[str, Client | RegionFolder]:
    """Who speaks to the server: clients and aggregators in this folder, by name."""
    folder = Path(folder)
    found: dict[str, Client | RegionFolder] = {}
    alone = folder / FILE_NAME
    paths = [alone] if alone.is_file() else sorted(folder.glob(f"*/{FILE_NAME}"))
    own: list[Client | RegionFolder] = [read_client(path) for path in paths]
    own += [read_region(path) for path in sorted(folder.glob(f"*/{AGGREGATOR_FILE}"))]
    for party in own:
        if party.name in found:
            raise OptionError(
                f"{party.path}: the name '{party.name}' is that of {found[party.name].path}; give "
                "each its own"
            )
        found[party.name] = party
    return found
