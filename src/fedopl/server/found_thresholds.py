"""Finds thresholds that are worth adding as terms, from clients' reports of jumps in outcomes.

For each part of a grid, a client reports whether outcomes jump there, and where the largest jump
is. Statistics of the same part are added up over clients. The place of the jump is a median over
clients and actions, in that part or close by. It is weighted by rows and squared statistics.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.term_screening import NOT_THERE, n_candidates
from fedopl.policies.basis import Basis, Threshold
from fedopl.policies.threshold_grid import N_PARTS_OF_GRID, candidate_cuts, part_of_grid
from fedopl.study.study import Study

# The probability that any threshold, or any product, is added if outcomes depend on none.
FALSE_ALARM = 0.05

Places = tuple[int, ...]  # the positions of one or two numeric features


class _Told(NamedTuple):
    """One jump that one client reports for one action."""

    places: Places
    cuts: tuple[float, ...]
    largest: float
    statistic: float


@dataclass(eq=False)
class _Item:
    """All reports about one numeric feature, or about two together."""

    strength: dict[tuple[int, ...], float] = field(default_factory=lambda: defaultdict(float))
    told: dict[tuple[str, int], list[_Told]] = field(
        default_factory=lambda: defaultdict(list)
    )  # by client and action


def strongest_thresholds(
    study: Study,
    basis: Basis,
    told: Mapping[str, FloatArray],
    rows: Mapping[str, FloatArray],
) -> tuple[Threshold, ...]:
    """The thresholds that are too strong to be chance, strongest first."""
    sizes = n_candidates(study)
    items: dict[Places, _Item] = defaultdict(_Item)
    for action in range(study.n_actions):
        total = sum(float(rows[name][action]) for name in told)
        for name in sorted(told):
            share = np.sqrt(rows[name][action] / max(total, 1.0))
            # Lines of neighbouring parts may have the same place: they are one piece of evidence.
            strongest: dict[tuple[Places, Places], float] = {}
            for line in _lines(told[name][action]):
                parts = tuple(
                    part_of_grid(int(cut), sizes[place])
                    for place, cut in zip(line.places, line.cuts, strict=True)
                )
                known = strongest.get((line.places, parts), 0.0)
                strongest[line.places, parts] = max(known, line.statistic, key=abs)
                items[line.places].told[name, action].append(line)
            for (places, parts), statistic in strongest.items():
                items[places].strength[action, *parts] += share * statistic
    least = _least_strength(study, basis, len(sizes))
    found: list[tuple[float, Threshold]] = []
    for item in items.values():
        key, strength = max(item.strength.items(), key=lambda one: (abs(one[1]), one[0]))
        if abs(strength) >= least:
            found.append((abs(strength), _placed(study, basis, item, rows, key[1:])))
    found.sort(key=lambda one: (-one[0], one[1]))
    return tuple(threshold for _, threshold in found[: basis.screened_thresholds])


def _lines(strongest: FloatArray) -> Iterable[_Told]:
    for first, cut, second, other, *told in strongest[strongest[:, -1] != 0].tolist():
        if second == NOT_THERE:
            yield _Told((int(first),), (cut,), *told)
        else:
            yield _Told((int(first), int(second)), (cut, other), *told)


def _least_strength(study: Study, basis: Basis, n_numbers: int) -> float:
    """The strength that chance reaches in at most a share `FALSE_ALARM` of studies.

    This holds for all parts of all grids together.
    """
    numbers = set(basis.knots)
    n_pairs = sum(set(pair) <= numbers for pair in basis.multiplied)
    n_parts = n_numbers * N_PARTS_OF_GRID + n_pairs * N_PARTS_OF_GRID**2
    return NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / (study.n_actions * n_parts))


def _placed(
    study: Study,
    basis: Basis,
    item: _Item,
    rows: Mapping[str, FloatArray],
    parts: tuple[int, ...],
) -> Threshold:
    """The threshold in this part of the grid, or beside it, by the clients' reports."""
    places = next(iter(item.told.values()))[0].places
    candidates = [candidate_cuts(basis.knots[study.features[place]]) for place in places]
    sizes = np.array([len(own) / N_PARTS_OF_GRID for own in candidates])
    middle = (np.array(parts) + 0.5) * sizes
    cuts, counts = [], []
    for (name, action), told in item.told.items():
        near = [one for one in told if (np.abs(one.cuts - middle) <= 1.5 * sizes).all()]
        if near:
            own = max(near, key=lambda one: (abs(one.largest), abs(one.statistic)))
            cuts.append(own.cuts)
            counts.append(float(rows[name][action]) * own.largest**2)
    return tuple(
        (study.features[place], own[_weighted_median(told, counts)])
        for place, own, told in zip(places, candidates, zip(*cuts, strict=True), strict=True)
    )


def _weighted_median(places: Sequence[float], counts: Sequence[float]) -> int:
    """The smallest place such that it and those below have at least half of all counts."""
    order = np.argsort(places, kind="stable")
    up_to = np.cumsum(np.array(counts)[order])
    return int(places[order[np.searchsorted(up_to, up_to[-1] / 2)]])
