"""The study that continues a study with screened terms, once screening is done."""

from itertools import combinations, islice
from typing import NamedTuple

from fedopl.policies.basis import Basis, NamedPair, Threshold
from fedopl.policies.threshold_grid import candidate_cuts
from fedopl.study.private.measured_ranges import with_ranges
from fedopl.study.study import Study


class FoundTerms(NamedTuple):
    """The terms that screening found; None for kinds that were not screened for."""

    pairs: tuple[NamedPair, ...] | None = None
    thresholds: tuple[Threshold, ...] | None = None

    @classmethod
    def of(cls, study: Study) -> "FoundTerms":
        """The terms that were found for this study."""
        basis = study.basis
        return cls() if basis is None else cls(basis.found_pairs, basis.found_thresholds)

    @property
    def n_found(self) -> int:
        """The number of terms found."""
        return len(self.pairs or ()) + len(self.thresholds or ())


def after_screening(study: Study, found: FoundTerms) -> Study:
    """The study with the terms found; a ValueError if it cannot have them."""
    if study.basis is None:
        return study
    told = {"found_pairs": found.pairs, "found_thresholds": found.thresholds}
    return study.model_copy(update={"basis": Basis.model_validate(dict(study.basis) | told)})


def with_most_found(study: Study) -> Study:
    """The study with the most terms that screening may find, and with any ranges."""
    if study.privacy and not study.privacy.is_measured:
        return with_ranges(study, study.privacy.ranges)
    basis = study.basis
    if study.is_screened or basis is None:
        return study
    named = set(map(frozenset, basis.multiplied))
    others = (pair for pair in combinations(study.features, 2) if frozenset(pair) not in named)
    pairs = tuple(islice(others, basis.screened_pairs)) if basis.screened_pairs else None
    thresholds = _most_thresholds(basis) if basis.screened_thresholds else None
    return after_screening(study, FoundTerms(pairs, thresholds))


def _most_thresholds(basis: Basis) -> tuple[Threshold, ...]:
    """The most thresholds: corners first, while there are two numbers for one; values differ."""
    cuts = {name: iter(candidate_cuts(own)) for name, own in basis.knots.items()}
    corners: list[Threshold] = [
        ((a, next(cuts[a])), (b, next(cuts[b])))
        for a, b in islice(combinations(basis.knots, 2), basis.screened_thresholds)
    ]
    singles = ((name, cut) for name, own in cuts.items() for cut in own)
    left = basis.screened_thresholds - len(corners)
    return (*corners, *((one,) for one in islice(singles, left)))
