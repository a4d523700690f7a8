"""How a result depends on single clients: the result without each, and inconsistent answers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedopl.base.estimates import Estimate
from fedopl.base.tables import html_table

if TYPE_CHECKING:
    from fedopl.results.sums.tree_statistics import TreeStatistics
    from fedopl.study.study import Study


def follows_from_sums(study: "Study", tree: "TreeStatistics | None") -> bool:
    """Whether sums alone show what the others would learn without a client."""
    if tree:
        return tree.is_exact
    return study.policy.compares_candidates or study.policy.can_be_resolved


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The result without one client, valued on the rows of all others."""

    client: str
    weight: float  # in the mixture
    best_arm: str  # without it
    # The gain over the best arm at the others: by the learned policy, and by what they would learn.
    gain: Estimate | None
    gain_without: Estimate | None  # None where no such policy could be solved for and valued
    difference: Estimate | None  # what the others would gain if it were left out
    better_off: int = 0  # others that would gain
    others: int = 0  # that reported values


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """A number that a client reported, and what its other answers, or all other clients, imply."""

    client: str
    about: str
    reported: float
    implied: float
    deviations: float  # how far apart they are: in standard errors, or as a multiple


@dataclass(frozen=True, kw_only=True)
class Reliance:
    """How the result depends on each client; those with the most influence come first."""

    left_out: tuple[LeftOut, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()

    def _repr_html_(self) -> str:
        left_out = [
            [one.client, f"{one.weight:.1%}", one.best_arm, str(one.difference or "–")]
            for one in self.left_out
        ]
        found = [
            [one.client, one.about, f"{one.reported:.4g}", f"{one.implied:.4g}"]
            for one in self.contradictions
        ]
        tables = [
            html_table(["left out", "weight", "best arm", "what the others would gain"], left_out)
        ]
        if found:
            tables.append(html_table(["contradiction", "about", "reported", "implied"], found))
        return "".join(tables)
