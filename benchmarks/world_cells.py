"""The worlds, sizes, methods and draws that `policies.py` and `intervals.py` measure."""

from typing import NamedTuple

from harness import Options, options

from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world


class Asked(NamedTuple):
    """What to measure; sizes are rows of each client."""

    worlds: tuple[str, ...]
    sizes: tuple[int, ...]
    methods: tuple[str, ...]
    draws: int

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Worlds at all sizes; those that have a size of their own, once."""
        return [
            (world, size)
            for world in self.worlds
            for size in (self.sizes if shaped_world(world).rows is None else self.sizes[:1])
        ]


def told(doc: str, methods: tuple[str, ...], **own: tuple[str, ...] | type[int]) -> Options:
    """The command line, with flags for each of the four, and a script's own."""
    four = {"worlds": tuple(SHAPED_WORLDS), "sizes": int, "methods": methods, "draws": int}
    return options(doc, **four, **own)


def asked_for(given: Options, usual: Asked) -> Asked:
    """What was said on the command line, or what is usual."""
    (draws,) = given.chosen["draws"] or (usual.draws,)
    lists = (given.chosen[flag] or getattr(usual, flag) for flag in Asked._fields[:3])
    return Asked(*lists, draws)
