"""What screening found, sent to clients: the study continues with these terms."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.learning.jump_screening import NOT_THERE
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.policies.basis import NamedCut, NamedPair, Threshold, candidate_cuts
from fedopl.study.screened_study import FoundTerms, after_screening
from fedopl.study.study import Study


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
