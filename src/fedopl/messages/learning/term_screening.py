"""Screening for pairs of features that act together, and for thresholds where outcomes jump.

It is asked before terms are agreed. With 40 features there are 780 products of two, too many for
sums of their squares. So clients first report for each product, in one number, whether it predicts
outcomes. Smooth terms cannot represent a jump at one value, or where two numbers both pass a
threshold. So clients also report where their own outcomes jump most, beyond what smooth terms
predict. A study whose `screened_pairs` or `screened_thresholds` is not zero begins with these
questions. It continues as the study that also has what was found, which is sent to clients.
"""

from itertools import combinations
from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import largest_statistic
from fedopl.policies.basis import NamedCut, NamedPair, Threshold, candidate_cuts
from fedopl.study.screened_study import FoundTerms, after_screening
from fedopl.study.study import Study


@message
class ProductStatistics(Message, code=134):
    """By action and two features, a t-statistic of their product; 0 if it rests on few rows.

    If values are cross-fitted, they are of the rows without each fold and, last, of all rows.
    """

    statistics: Annotated[Array, (Axis.VERSIONS, Axis.ACTIONS, Axis.FEATURE_PAIRS), PerClient]


@message
class ScreenProducts(Query[ProductStatistics], code=31, asked=Asked.EACH):
    """Ask which products of two features predict outcomes, besides the features themselves."""

    title = "Which features act together"
    content = "for each action and two features, a t-statistic of their product"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether pairs are to be found, and are not known yet."""
        basis = study.basis
        return basis is not None and not basis.is_screened and basis.screened_pairs > 0

    def fault_in(self, answer: ProductStatistics, _study: Study, n_rows: int) -> str | None:
        """Check for numbers that the rows allow."""
        if largest_size(answer.statistics) > largest_statistic(n_rows):
            return "a statistic is larger than its rows allow"
        return None


def feature_pairs(study: Study) -> list[NamedPair]:
    """Every two features, in the order of the statistics."""
    return list(combinations(study.features, 2))


MOST_JUMPS_TOLD = 32  # of an action
# The position of a number among features and of a cut among its candidates; those of a second
# number, −1 if there is none; the statistic there, and that in the middle of its part of the grid.
JUMP_NUMBERS = ("first", "first cut", "second", "second cut", "largest", "statistic")
NOT_THERE = -1.0


@message
class JumpStatistics(Message, code=135):
    """For each action, where outcomes jump most, and t-statistics of each.

    Lines of zeros stand for what is not reported: small statistics, or a side with few rows. If
    values are cross-fitted, they are of the rows without each fold and, last, of all rows.
    """

    strongest: Annotated[
        Array, (Axis.VERSIONS, Axis.ACTIONS, Axis.JUMPS_TOLD, Axis.JUMP_NUMBERS), PerClient
    ]


@message
class ScreenJumps(Query[JumpStatistics], code=38, asked=Asked.EACH):
    """Ask at which values, or corners of two, outcomes jump beyond what smooth terms predict."""

    title = "Where outcomes jump"
    content = "for each action, the strongest jumps: which numbers, where, and t-statistics"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether thresholds are to be found, and are not known yet."""
        basis = study.basis
        return basis is not None and not basis.is_screened and basis.screened_thresholds > 0

    def fault_in(self, answer: JumpStatistics, study: Study, n_rows: int) -> str | None:
        """Check that each is about numbers with knots, and what its rows allow."""
        found = answer.strongest
        if (found[..., :-2] % 1).any():
            return "the place of a jump is not a whole number"
        told = found[found[..., -1] != 0]
        if largest_size(told[:, -2:]) > largest_statistic(n_rows):
            return "a statistic is larger than its rows allow"
        if not all(_is_on_grid(line, study) for line in told):
            return "a jump is not on the grid of the study"
        return None


def n_candidates(study: Study) -> dict[int, int]:
    """How many values each number may jump at, by its position among features."""
    knots = study.basis.knots if study.basis else {}
    return {study.features.index(name): len(candidate_cuts(own)) for name, own in knots.items()}


def _is_on_grid(line: FloatArray, study: Study) -> bool:
    numbers: list[float] = line.tolist()[:4]
    first, _, second, _ = numbers
    return _threshold(study, numbers) is not None and (second == NOT_THERE or first < second)


@message
class FoundTaken(Message, code=96):
    """The numbers of pairs and thresholds that the study now has by screening."""

    n_found: Annotated[int, PerClient]


@message
class TakeFound(Query[FoundTaken], code=136, asked=Asked.EACH):
    """Ask to continue with the study that has these pairs and thresholds, whose hash it carries.

    A client continues with the first such study and no other. `found` is 1 for terms that a
    screening found, else 0.
    """

    title = "What screening found"
    content = "how many pairs of features and thresholds were added"
    pairs: Annotated[Array, (Axis.FOUND_PAIRS, Axis.TWO)]
    thresholds: Annotated[Array, (Axis.FOUND_THRESHOLDS, Axis.CORNER_NUMBERS)]
    found: Annotated[Array, (Axis.VERSIONS, Axis.FOUND_TERMS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study screened for terms."""
        return study.is_screened and study.before_screening is not study

    @classmethod
    def of(cls, study: Study) -> "TakeFound":
        """The query that makes clients continue with this study."""
        found = FoundTerms.of(study)
        places = [[study.features.index(name) for name in pair] for pair in found.pairs or ()]
        lines = [_line(study, threshold) for threshold in found.thresholds or ()]
        taken = np.zeros((len(study.left_out), len(found.terms)))
        every = len(study.left_out) * [range(len(found.terms))]
        for own, by_one in zip(taken, found.by_fold or every, strict=True):
            own[list(by_one)] = 1.0
        return cls(
            pairs=np.array(places, np.float64).reshape(-1, 2),
            thresholds=np.array(lines, np.float64).reshape(-1, 4),
            found=taken,
        )

    def named(self, study: Study) -> FoundTerms | None:
        """The features and values in the query; None if they are not all of the study."""
        basis = study.basis
        if basis is None:
            return None
        pairs = tuple(_pair(study, line) for line in self.pairs.tolist())
        thresholds = tuple(_threshold(study, line) for line in self.thresholds.tolist())
        if None in pairs or None in thresholds:
            return None
        by_fold = None
        if len(study.left_out) > 1:
            by_fold = tuple(tuple(np.flatnonzero(own).tolist()) for own in self.found)
        elif not self.found.all():
            return None
        return FoundTerms(
            pairs=tuple(filter(None, pairs)) if basis.screened_pairs else None,
            thresholds=tuple(filter(None, thresholds)) if basis.screened_thresholds else None,
            by_fold=by_fold,
        )

    def study_after(self, study: Study) -> Study | None:
        """The study that continues this one; None if it can have no such terms."""
        named = self.named(study)
        try:
            return None if named is None else after_screening(study, named)
        except ValueError:  # one of them twice, or of a feature with itself
            return None


def _pair(study: Study, line: list[float]) -> NamedPair | None:
    every = dict(enumerate(study.features))
    first, second = (every.get(int(place)) if place % 1 == 0 else None for place in line)
    return None if first is None or second is None else (first, second)


def _threshold(study: Study, line: list[float]) -> Threshold | None:
    if any(number % 1 for number in line):
        return None
    first, second = _cut(study, line[0], line[1]), _cut(study, line[2], line[3])
    if first is None:
        return None
    if line[2:] == [NOT_THERE, NOT_THERE]:
        return (first,)
    return None if second is None else (first, second)


def _cut(study: Study, place: float, cut: float) -> NamedCut | None:
    name = dict(enumerate(study.features)).get(int(place))
    knots = study.basis.knots.get(name) if study.basis and name is not None else None
    if name is None or knots is None:
        return None
    cuts = dict(enumerate(candidate_cuts(knots)))
    return (name, cuts[int(cut)]) if int(cut) in cuts else None


def _line(study: Study, threshold: Threshold) -> list[float]:
    knots = study.basis.knots if study.basis else {}
    numbers = [NOT_THERE] * 4
    for at, (name, cut) in enumerate(threshold):
        numbers[2 * at : 2 * at + 2] = [
            float(study.features.index(name)),
            float(candidate_cuts(knots[name]).index(cut)),
        ]
    return numbers
