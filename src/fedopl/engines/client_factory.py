"""Clients whose rows are made when needed, so that not all rows are in memory at once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from fedopl.base.errors import DataError, FedoplError, OptionError, StudyError
from fedopl.base.labels import check_client_name, quoted
from fedopl.client.table.logged_data import LoggedData, fingerprint

# What must be the same at all clients of a study.
ALIKE = ("action_names", "feature_names", "schema", "outcome_names")
_MOST_TWICE = 3  # repeated names that an error lists


class ClientFactory(Mapping[str, LoggedData]):
    """Clients by name, for simulations of very many; each client's rows are made when it is asked.

    Args:
        names: the clients' names.
        make: returns a client's rows, given its name. The rows must be the same each time; a hash
            checks this. All clients must have the same actions, features, outcomes and schema.

    """

    def __init__(self, names: Iterable[str], make: Callable[[str], LoggedData]) -> None:
        self._hashes: dict[str, str] = dict.fromkeys(_checked(names), "")
        if not callable(make):
            raise OptionError(f"make: expected a function, came {type(make).__name__}")
        self._make = make
        self._first: tuple[str, LoggedData] | None = None

    def __getitem__(self, name: str) -> LoggedData:
        before = self._hashes[name]
        data = self._made(name)
        if not isinstance(data, LoggedData):
            raise OptionError(
                f"make: expected LoggedData for '{name}', came {type(data).__name__}; return "
                "fedopl.LoggedData(...)"
            )
        self._check_alike(name, data)
        # Released sums and stored scores belong to the rows that were made the first time.
        made = fingerprint(data)
        if before and before != made:
            raise DataError(
                f"make: the rows of '{name}' are not those that were made before; let them follow "
                "from the name alone, as by a generator of random numbers seeded by it"
            )
        self._hashes[name] = made
        return data

    def __contains__(self, name: object) -> bool:
        return name in self._hashes  # nobody is made for it

    def __iter__(self) -> Iterator[str]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)

    def _made(self, name: str) -> LoggedData:
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
