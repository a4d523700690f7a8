"""A view of some of the items of a mapping; an item is read only when it is used."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Viewed = TypeVar("Viewed")


class Restricted(Mapping[str, Viewed]):
    """The items with these names, in this order. Nothing is copied, as memory may be too small."""

    def __init__(self, whole: Mapping[str, Viewed], names: Iterable[str]) -> None:
        self._whole, self._names = whole, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Viewed:
        if name not in self._names:
            raise KeyError(name)
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
