"""Groups of rows: the bins of a number, yes and no, or the levels of a column."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.results.descriptions import BINARY_CUTS, Descriptions
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class RowGroup:
    """Rounded counts of one group's rows, by action: as the policy decides, and as logged."""

    name: str
    decided: FloatArray  # (n_actions,)
    taken: FloatArray  # (n_actions,)


def shares_of(counts: FloatArray) -> FloatArray:  # shaped as counts
    """Shares of the total; zeros if the total is zero."""
    return counts / counts.sum() if counts.sum() else np.zeros(len(counts))


def overall(described: Descriptions) -> RowGroup:
    """All rows as one group: the intercept's bins hold all rows."""
    return RowGroup(
        name="everybody",
        decided=described.decided()[-1].sum(axis=0),
        taken=described.taken()[-1].sum(axis=0),
    )


def groups_of(study: Study, described: Descriptions) -> dict[str, list[RowGroup]]:
    """The groups of each feature or column, without empty groups."""
    decided, taken = described.decided(), described.taken()
    labels = dict(study.table.categorical) if study.table else {}
    # The features that encode a level of a column.
    encoded = {f"{column}={level}" for column, levels in labels.items() for level in levels[1:]}
    found = {
        feature: [
            RowGroup(name=name, decided=decided[place, b], taken=taken[place, b])
            for b, name in bin_names(described.cuts[place]).items()
        ]
        for place, feature in enumerate(study.features)
        if feature not in encoded
    }
    for column, levels in labels.items():
        found[column] = _level_groups(study, described, column, levels)
    return {
        feature: kept
        for feature, groups in found.items()
        if (kept := [g for g in groups if g.decided.sum() + g.taken.sum() > 0])
    }


def bin_names(cuts: FloatArray) -> dict[int, str]:
    """The name of each bin that can hold a row."""
    if tuple(cuts) == BINARY_CUTS:
        return {1: "no", 2: "yes"}
    # Adding 0.0 makes −0 a plain 0.
    ends = [f"{cut + 0.0:,.10g}".replace("-", "−") for cut in cuts]
    # An end belongs to the bin below it.
    between = [f"above {low} to {high}" for low, high in pairwise(ends)]
    return dict(enumerate([f"up to {ends[0]}", *between, f"above {ends[-1]}"]))


def _level_groups(
    study: Study, described: Descriptions, column: str, levels: tuple[str, ...]
) -> list[RowGroup]:
    """The first level, with the remaining rows, then the levels that have a column of their own."""
    named = {level: f"{column}={level}" for level in levels[1:]}
    missing = f"{column} is missing"
    if missing in study.features:
        named["missing"] = missing
    groups = []
    for name, feature in named.items():
        place = study.features.index(feature)
        ones = int(np.searchsorted(described.cuts[place], 1.0))
        decided, taken = described.decided()[place, ones], described.taken()[place, ones]
        groups.append(RowGroup(name=name, decided=decided, taken=taken))
    everybody = overall(described)
    # Clients round each count, so levels may add up to more than the total.
    decided = np.maximum(everybody.decided - sum(group.decided for group in groups), 0)
    taken = np.maximum(everybody.taken - sum(group.taken for group in groups), 0)
    return [RowGroup(name=levels[0], decided=decided, taken=taken), *groups]


def difference(groups: list[RowGroup]) -> float:
    """How far decisions in the groups differ from those for all rows: 0 equal, 1 disjoint."""
    counts = np.array([group.decided for group in groups])
    totals = counts.sum(axis=1)
    if not totals.sum():
        return 0.0
    everybody = counts.sum(axis=0) / totals.sum()
    shares = counts / np.maximum(totals, 1)[:, None]
    return float((np.abs(shares - everybody).sum(axis=1) / 2 * totals).sum() / totals.sum())
