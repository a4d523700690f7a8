"""How well rows support each action at each client, and when support is too thin."""

from dataclasses import dataclass
from itertools import pairwise

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.report.explain.groups import shares_of
from fedopl.results.record import Record

THIN, FAIR = 30, 100  # effective rows
RARE, OF_EVEN = 0.05, 0.5  # below the first one row counts for twenty; or that part of 1/actions
MOST_RARE = 0.01  # of the rows


@dataclass(frozen=True, eq=False, kw_only=True)
class ActionSupport:
    """The support of one action at one client."""

    client: str
    action: str
    taken: float
    effective_rows: float
    chances: FloatArray  # (n_chance_bins,) shares of rows by how likely the action was

    def share_below(self, cut: float) -> float:
        """The share of rows in which the action was less likely than one of `CHANCE_CUTS`."""
        return float(self.chances[: CHANCE_CUTS.index(cut) + 1].sum())

    @property
    def word(self) -> str:
        """A word for how well the action is supported."""
        if self.effective_rows >= FAIR:
            return "good"
        if self.effective_rows >= THIN:
            return "fair"
        return "thin" if self.effective_rows else "none reported"


def rare_chance(n_actions: int) -> float | None:
    """The chance below which an action is unlikely; None if there are too many actions.

    With many actions, it is half an even chance, since each of them is unlikely in a fair draw.
    """
    most = min(RARE, OF_EVEN / n_actions)
    return max((cut for cut in CHANCE_CUTS if cut <= most), default=None)


def supports(record: Record) -> list[ActionSupport]:
    """The support of every action at every client that answered, in order."""
    if record.described is None:
        return []
    return [
        ActionSupport(
            client=client,
            action=action,
            taken=float(counts.taken[-1, :, place].sum()),
            effective_rows=float(counts.effective_rows[place]),
            chances=shares_of(counts.chances[place]),
        )
        for client, counts in sorted(record.described.by_client.items())
        for place, action in enumerate(record.study.actions)
    ]


def chance_names() -> list[str]:
    """Names of the bins of propensities, in per cent."""
    ends = [f"{100 * cut:.0f}" for cut in CHANCE_CUTS]
    between = [f"{low}–{high}" for low, high in pairwise(ends)]
    return [f"<{ends[0]}", *between, f">{ends[-1]}"]
