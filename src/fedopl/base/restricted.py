"""Mappings whose items are read, or made, only when they are used."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

Viewed = TypeVar("Viewed")


class OnDemand(Mapping[str, Viewed]):
    """An item for each of these names, in this order; `made` returns it each time it is used."""

    def __init__(self, names: Iterable[str], made: Callable[[str], Viewed]) -> None:
        self._names, self._made = dict.fromkeys(names), made

    def __getitem__(self, name: str) -> Viewed:
        if name not in self._names:
            raise KeyError(name)
        return self._made(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # nothing is made for it

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Restricted(OnDemand[Viewed]):
    """The items with these names, in this order. Nothing is copied, as memory may be too small."""

    def __init__(self, whole: Mapping[str, Viewed], names: Iterable[str]) -> None:
        super().__init__(names, whole.__getitem__)
