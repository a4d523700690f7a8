"""The studies that a study with screened pairs goes on as, once it is known which are found."""

from itertools import combinations, islice

from fedopl.policies.basis import Basis, NamedPair
from fedopl.study.study import Study


def after_screening(study: Study, pairs: tuple[NamedPair, ...]) -> Study:
    """The study with these pairs found; a ValueError if it cannot have them."""
    if study.basis is None:
        return study
    basis = Basis.model_validate(dict(study.basis) | {"found_pairs": pairs})
    return study.model_copy(update={"basis": basis})


def with_most_pairs(study: Study) -> Study:
    """The study with as many pairs as screening may find, whichever they are."""
    if study.is_screened or study.basis is None:
        return study
    named = set(map(frozenset, study.basis.multiplied))
    others = (pair for pair in combinations(study.features, 2) if frozenset(pair) not in named)
    return after_screening(study, tuple(islice(others, study.basis.screened_pairs)))
