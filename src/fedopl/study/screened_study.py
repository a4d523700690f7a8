"""The study that continues a study with screened terms, once screening is done."""

from collections.abc import Iterator, Sequence
from itertools import combinations, cycle, islice
from typing import NamedTuple, Self

from fedopl.policies.basis import Basis, NamedPair, Threshold, candidate_cuts
from fedopl.study.private.private_setting import with_ranges
from fedopl.study.study import Study


class FoundTerms(NamedTuple):
    """The terms that screening found; None for kinds that were not screened for."""

    pairs: tuple[NamedPair, ...] | None = None
    thresholds: tuple[Threshold, ...] | None = None
    by_fold: tuple[tuple[int, ...], ...] | None = None  # as in `Basis.found_by_fold`

    @classmethod
    def of(cls, study: Study) -> Self:
        """The terms that were found for this study."""
        basis = study.basis
        if basis is None:
            return cls()
        return cls(basis.found_pairs, basis.found_thresholds, basis.found_by_fold)

    @classmethod
    def together(cls, each: Sequence["FoundTerms"]) -> "FoundTerms":
        """All that these screenings found: first what the last one did, with all rows.

        With a single screening, it is what this one found.
        """
        *_, of_all = each
        if len(each) == 1:
            return of_all
        every = (of_all, *each)
        pairs = tuple(dict.fromkeys(pair for one in every for pair in one.pairs or ()))
        jumps = tuple(dict.fromkeys(jump for one in every for jump in one.thresholds or ()))
        places = {term: place for place, term in enumerate((*pairs, *jumps))}
        return cls(
            None if of_all.pairs is None else pairs,
            None if of_all.thresholds is None else jumps,
            tuple(tuple(sorted(places[term] for term in one.terms)) for one in each),
        )

    @property
    def terms(self) -> tuple[NamedPair | Threshold, ...]:
        """The pairs, then the thresholds."""
        return (*(self.pairs or ()), *(self.thresholds or ()))


def after_screening(study: Study, found: FoundTerms) -> Study:
    """The study with the terms found; a ValueError if it cannot have them."""
    if study.basis is None:
        return study
    told = {
        "found_pairs": found.pairs,
        "found_thresholds": found.thresholds,
        "found_by_fold": found.by_fold,
    }
    return study.model_copy(update={"basis": Basis.model_validate(dict(study.basis) | told)})


def with_most_found(study: Study) -> Study:
    """The study with the most terms that screening may find, and with any ranges."""
    if study.privacy and not study.privacy.is_measured:
        return with_ranges(study, study.privacy.ranges)
    basis = study.basis
    if study.is_screened or basis is None:
        return study
    named = set(map(frozenset, basis.multiplied))
    pairs = [pair for pair in combinations(study.features, 2) if frozenset(pair) not in named]
    thresholds = _thresholds(basis)
    # No two screenings find the same, while there are others.
    most = [
        FoundTerms(
            tuple(pairs[n * basis.screened_pairs :][: basis.screened_pairs])
            if basis.screened_pairs
            else None,
            next(thresholds) if basis.screened_thresholds else None,
        )
        for n in range(len(study.left_out))
    ]
    return after_screening(study, FoundTerms.together(most))


def _thresholds(basis: Basis) -> Iterator[tuple[Threshold, ...]]:
    """The most that each screening may find: corners first, while there are two numbers for one.

    Values differ, while there are others on the grid.
    """
    cuts = {name: cycle(candidate_cuts(own)) for name, own in basis.knots.items()}
    most = basis.screened_thresholds
    while True:
        corners: list[Threshold] = [
            ((a, next(cuts[a])), (b, next(cuts[b])))
            for a, b in islice(combinations(basis.knots, 2), most)
        ]
        singles = (
            (name, next(cuts[name]))
            for name, own in basis.knots.items()
            for _ in candidate_cuts(own)
        )
        yield (*corners, *((one,) for one in islice(singles, most - len(corners))))
