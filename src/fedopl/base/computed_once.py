"""An attribute that is computed when it is first used, and kept."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Computed = TypeVar("Computed")


class computed_once(Generic[Computed]):  # noqa: N801  (it is used like `property`)
    """`functools.cached_property` without its lock, which Python gave up after 3.11.

    All objects of a class share that lock, and taking it takes longer than most of what is computed
    for a client of a few rows. Two threads may compute the same value twice.
    """

    def __init__(self, compute: Callable[[Any], Computed]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Computed: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Computed:
        if instance is None:
            return self
        value: Computed = self._compute(instance)
        instance.__dict__[self._name] = value  # found there from now on
        return value
