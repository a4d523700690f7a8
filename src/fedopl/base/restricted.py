"""Some of the items of a mapping, which stay where they are until they are looked at."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class Restricted(Mapping[str, Value]):
    """The items of these names, in this order; what very many clients told is not in memory."""

    def __init__(self, whole: Mapping[str, Value], names: Iterable[str]) -> None:
        self._whole, self._names = whole, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
