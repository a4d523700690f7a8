"""Screening: finds terms that are worth adding, from clients' first reports.

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
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.term_screening import (
    NOT_THERE,
    JumpStatistics,
    ProductStatistics,
    ScreenJumps,
    ScreenProducts,
    feature_pairs,
    n_candidates,
)
from fedopl.policies.basis import (
    N_PARTS_OF_GRID,
    Basis,
    NamedPair,
    Threshold,
    candidate_cuts,
    part_of_grid,
)
from fedopl.policies.policy import Policy
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.screened_study import FoundTerms, after_screening
from fedopl.study.study import Study

# The probability that any threshold, or any product, is added if outcomes depend on none.
FALSE_ALARM = 0.05

Places = tuple[int, ...]  # the positions of one or two numeric features


def screen_if_wanted(conversation: Conversation) -> None:
    """Ask which terms predict outcomes, and continue with a study that has these terms.

    No client has to answer. Without answers, no terms are found.
    """
    study, basis = conversation.study, conversation.study.basis
    if study.is_screened or basis is None:
        return
    asked = _asked(conversation)
    each = [_found(study, basis, *asked, screening) for screening in range(len(study.left_out))]
    conversation.go_on_as(after_screening(study, FoundTerms.together(each)))


def _found(
    study: Study,
    basis: Basis,
    rows: Mapping[str, FloatArray],
    products: Mapping[str, ProductStatistics],
    jumps: Mapping[str, JumpStatistics],
    screening: int,
) -> FoundTerms:
    """What one screening found: without a fold, or with all rows."""
    pairs: tuple[NamedPair, ...] = ()
    if products:
        by_client = np.stack([rows[name] for name in sorted(products)])
        statistics = np.stack([products[name].statistics[screening] for name in sorted(products)])
        pairs = strongest_pairs(study, basis, joint_statistics(statistics, by_client))
    told = {name: own.strongest[screening] for name, own in jumps.items()}
    thresholds = strongest_thresholds(study, basis, told, rows)
    return FoundTerms(
        pairs=pairs if basis.screened_pairs else None,
        thresholds=thresholds if basis.screened_thresholds else None,
    )


def go_on_for(conversation: Conversation, policies: Mapping[str, Policy]) -> None:
    """Continue with the study in which these policies were learned.

    Clients first get the same questions as in learning. Only then are later questions the same,
    byte by byte. Answers to repeated questions cost nothing the second time.
    """
    study, basis = conversation.study, conversation.study.basis
    if study.is_screened or basis is None:
        return
    _asked(conversation)
    bases = [policy.terms.basis for policy in policies.values() if policy.terms is not None]
    same = [one for one in bases if one.before_screening() == basis]
    found = [FoundTerms(one.found_pairs, one.found_thresholds) for one in same]
    nothing = FoundTerms(
        () if basis.screened_pairs else None, () if basis.screened_thresholds else None
    )
    conversation.go_on_as(
        after_screening(study, next((one for one in found if one.terms), nothing))
    )


def _asked(
    conversation: Conversation,
) -> tuple[dict[str, FloatArray], dict[str, ProductStatistics], dict[str, JumpStatistics]]:
    """By enrolled client, its rows of each action, and its answers if it was asked."""
    wanted = [one() for one in (ScreenProducts, ScreenJumps) if one.needed(conversation.study)]
    enrolled, *told = conversation.together(conversation.transport.clients, Enrol(), *wanted)
    answers = [(n, a) for own in told for n, a in own.items() if n in enrolled]
    return (
        {name: own.rows_per_action for name, own in enrolled.items()},
        {name: answer for name, answer in answers if isinstance(answer, ProductStatistics)},
        {name: answer for name, answer in answers if isinstance(answer, JumpStatistics)},
    )


def joint_statistics(statistics: FloatArray, rows: FloatArray) -> FloatArray:
    """All clients' statistics (n_clients, n_actions, n_pairs) combined: Σ √n_c·t_c / √Σ n_c."""
    weights = np.sqrt(rows)[..., None]
    total = np.sqrt(np.maximum(rows.sum(axis=0), 1.0))[:, None]
    joint: FloatArray = (weights * statistics).sum(axis=0) / total
    return joint


def strongest_pairs(study: Study, basis: Basis, joint: FloatArray) -> tuple[NamedPair, ...]:
    """The pairs whose product is too strong for some action to be chance, strongest first."""
    strength = np.abs(joint).max(axis=0)
    least = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / joint.size)
    named = set(map(frozenset, basis.multiplied))
    pairs = feature_pairs(study)
    order = np.argsort(-strength, kind="stable").tolist()
    taken = [pairs[k] for k in order if strength[k] >= least and frozenset(pairs[k]) not in named]
    return tuple(taken[: basis.screened_pairs])


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
