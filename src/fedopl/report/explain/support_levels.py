"""How well each action is supported at each client, and when that is too thin to rest on."""

from dataclasses import dataclass
from itertools import pairwise

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.report.explain.groups import shares_of
from fedopl.results.record import Record

THIN, FAIR = 30, 100  # effective rows
RARE = 0.05  # a propensity below this makes one row count for twenty or more
MOST_RARE = 0.01  # of the rows


@dataclass(frozen=True, eq=False, kw_only=True)
class ActionSupport:
    """One action at one client."""

    client: str
    action: str
    taken: float
    effective_rows: float
    chances: FloatArray  # (n_chance_bins,) shares of rows by how likely the action was

    @property
    def rare_share(self) -> float:
        """The share of rows in which the action was unlikely."""
        return float(self.chances[: CHANCE_CUTS.index(RARE) + 1].sum())

    @property
    def word(self) -> str:
        """How much weight it bears."""
        if self.effective_rows >= FAIR:
            return "good"
        if self.effective_rows >= THIN:
            return "fair"
        return "thin" if self.effective_rows else "none reported"


def supports(record: Record) -> list[ActionSupport]:
    """Every action at every client that answered, in order."""
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
    """What the bins of propensities are called, in per cent."""
    ends = [f"{100 * cut:.0f}" for cut in CHANCE_CUTS]
    between = [f"{low}–{high}" for low, high in pairwise(ends)]
    return [f"<{ends[0]}", *between, f">{ends[-1]}"]
