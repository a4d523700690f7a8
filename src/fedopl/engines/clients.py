"""The clients of a run: made when they are asked, and in regions, each behind an aggregator."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedopl.base.errors import DataError, FedoplError, OptionError, StudyError
from fedopl.base.labels import check_client_name, quoted
from fedopl.base.restricted import OnDemand, Restricted
from fedopl.client.aggregator_file import LEAST_MEMBERS, AggregatorFolder, RegionFolder
from fedopl.client.client_file import AGGREGATOR_FILE, Client
from fedopl.client.disclosure.ledger import FileLedger, Ledger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disk.store import FolderStore
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.engines.aggregator import Aggregator, check_aggregators
from fedopl.engines.in_process import Answering, InProcess
from fedopl.study.study import Study

# What must be the same at all clients of a study.
ALIKE = ("action_names", "feature_names", "schema", "outcome_names")
_MOST_TWICE = 3  # repeated names that an error lists


class ClientFactory(OnDemand[LoggedData]):
    """Clients by name, for simulations of very many; each client's rows are made when it is asked.

    Args:
        names: the clients' names.
        make: returns a client's rows, given its name. The rows must be the same each time; a hash
            checks this. All clients must have the same actions, features, outcomes and schema.

    """

    def __init__(self, names: Iterable[str], make: Callable[[str], LoggedData]) -> None:
        super().__init__(_checked(names), self._rows_of)
        self._hashes: dict[str, str] = {}
        if not callable(make):
            raise OptionError(f"make: expected a function, came {type(make).__name__}")
        self._make = make
        self._first: tuple[str, LoggedData] | None = None

    def _rows_of(self, name: str) -> LoggedData:
        data = self._given(name)
        if not isinstance(data, LoggedData):
            raise OptionError(
                f"make: expected LoggedData for '{name}', came {type(data).__name__}; return "
                "fedopl.LoggedData(...)"
            )
        self._check_alike(name, data)
        # Released sums and stored scores belong to the rows that were made the first time.
        made = fingerprint(data)
        if self._hashes.setdefault(name, made) != made:
            raise DataError(
                f"make: the rows of '{name}' are not those that were made before; let them follow "
                "from the name alone, as by a generator of random numbers seeded by it"
            )
        return data

    def _given(self, name: str) -> LoggedData:
        """What the user's function makes; whatever it raises says for which client."""
        try:
            return self._make(name)
        except FedoplError as error:
            raise type(error)(f"{name}: {error}") from error
        except Exception as error:
            error.add_note(f"raised by make('{name}') of a ClientFactory")
            raise

    def _check_alike(self, name: str, data: LoggedData) -> None:
        if self._first is None:
            self._first = name, data
        first_name, first = self._first
        for what in ALIKE:
            expected, came = getattr(first, what), getattr(data, what)
            if expected == came:
                continue
            if what == "schema":
                raise StudyError(f"{name}: its schema differs from that of {first_name}")
            raise StudyError(
                f"{name}: {what} differ from those of {first_name}: expected {quoted(expected)}, "
                f"came {quoted(came)}; make every client with the same {what}, in the same order"
            )


def _checked(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise OptionError(f"names: expected the names of clients, came {names!r}")
    found = tuple(names)
    if not found:
        raise OptionError("names: expected at least one client")
    for name in found:
        if not isinstance(name, str):
            raise OptionError(f"names: expected text, came {name!r}")
        check_client_name(name, "names")
    if len(set(found)) < len(found):
        twice = [name for name, times in Counter(found).items() if times > 1][:_MOST_TWICE]
        raise OptionError(f"names: {quoted(twice)} comes more than once; names tell clients apart")
    return found


# Rows by name, or regions of such.
Nested = Mapping[str, Any]


def aggregators_in(clients: Nested) -> tuple[str, ...]:
    """The names of all regions, at every depth, sorted."""
    return tuple(sorted(name for name, _ in _levels(clients) if name is not None))


def members_of(clients: Nested) -> Mapping[str, LoggedData]:
    """All clients with rows, at every depth, by name; those of a factory are still made later."""
    if isinstance(clients, ClientFactory) or not isinstance(clients, Mapping):
        return clients
    parts: list[Mapping[str, Any]] = []
    for name, own in _levels(clients):
        if not own and name is not None:
            raise OptionError(f"clients: the region '{name}' has no clients")
        if not isinstance(own, ClientFactory):
            own = {client: rows for client, rows in own.items() if not isinstance(rows, Mapping)}
        parts.append(own)
    times = Counter(name for part in parts for name in part)
    times.update(aggregators_in(clients))
    twice = sorted(name for name, n in times.items() if n > 1)
    if twice:
        raise OptionError(
            f"clients: {quoted(twice[:3])} is there more than once; names tell clients and regions "
            "apart, at all levels"
        )
    if any(isinstance(part, ClientFactory) for part in parts):
        return ChainMap(*parts)  # type: ignore[arg-type]
    return {name: rows for part in parts for name, rows in part.items()}


def _levels(clients: Nested, name: str | None = None) -> Iterator[tuple[str | None, Nested]]:
    """All clients without a name, then the regions at every depth, by name."""
    yield name, clients
    if not isinstance(clients, ClientFactory):
        for inner, own in clients.items():
            if isinstance(own, Mapping):
                yield from _levels(own, inner)


def sizes_of(clients: Nested) -> dict[str, int]:
    """The rows of every client or region that speaks to the server; 1 where they are made later."""
    if isinstance(clients, ClientFactory):
        return dict.fromkeys(clients, 1)
    return {
        name: sum(sizes_of(own).values()) if isinstance(own, Mapping) else own.n_rows
        for name, own in clients.items()
    }


def in_regions(
    clients: Nested,
    doors: Mapping[str, Answering],
    study: Study,
    ledger_of: Callable[[str], Ledger],
    minimum_members: int,
) -> Mapping[str, Answering]:
    """Who answers the server: doors of clients, and aggregators in front of those in regions."""
    if isinstance(clients, ClientFactory):
        return Restricted(doors, clients)

    def answering(name: str, own: Any) -> Answering:
        if not isinstance(own, Mapping):
            return doors[name]
        members = InProcess(in_regions(own, doors, study, ledger_of, minimum_members))
        return Aggregator(
            name, study, members, minimum_members=minimum_members, ledger=ledger_of(name)
        )

    return {name: answering(name, own) for name, own in clients.items()}


def regions_in(parties: Mapping[str, Client | RegionFolder]) -> Iterator[RegionFolder]:
    """All aggregators' folders, at every depth."""
    for party in parties.values():
        if isinstance(party, RegionFolder):
            yield party
            yield from regions_in(party.members)


def check_regions(study: Study, parties: Mapping[str, Client | RegionFolder]) -> None:
    """Refuse aggregators that the study does not list, or lists and are not there, or too small."""
    there = {region.name: region for region in regions_in(parties)}
    check_aggregators(study, sorted(there))
    missing = [name for name in study.aggregators if name not in there]
    if missing:
        raise OptionError(
            f"aggregators: the study lists {quoted(missing)}, and no folder of this name has an "
            f"{AGGREGATOR_FILE}"
        )
    for region in there.values():
        check_members(region, list(region.members))


def check_members(own: AggregatorFolder, members: Sequence[str]) -> None:
    """Refuse an aggregator that would release nothing, because it has too few members."""
    fewest = own.settings.minimum_members
    if len(members) < fewest:
        raise OptionError(
            f"{own.path}: expected at least {fewest} members (minimum_members), came "
            f"{len(members)}: {quoted(members)}; of fewer it releases nothing. Add members, or "
            f"say minimum_members = {len(members)}"
        )


def in_folders(
    parties: Mapping[str, Client | RegionFolder],
    doors: Mapping[str, Answering],
    study: Study,
    asker: str,
) -> dict[str, Answering]:
    """Who answers the server, by folders; each aggregator's ledger lies in its own."""

    def answering(name: str, party: Client | RegionFolder) -> Answering:
        if not isinstance(party, RegionFolder):
            return doors[name]
        return Aggregator(
            name,
            study,
            InProcess(in_folders(party.members, doors, study, name)),
            minimum_members=party.settings.minimum_members,
            ledger=FileLedger(party.ledger_path, asker),
            store=FolderStore(party.store_path),
        )

    return {name: answering(name, party) for name, party in parties.items()}


def fewest_members(limits: Limits) -> int:
    """How many members a pooled answer needs: any number, if somebody holds all rows anyway."""
    return 1 if limits == Limits.open() else LEAST_MEMBERS
