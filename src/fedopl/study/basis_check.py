"""Checks whether a study can use its basis, and can find terms of it by screening."""

from typing import TYPE_CHECKING

from fedopl.base.validation import PlacedError
from fedopl.policies.basis import Basis

if TYPE_CHECKING:
    from fedopl.study.study import Study

MOST_TO_SCREEN = 200  # features: their pairs are asked about one by one


def check_basis(study: "Study") -> None:
    """Raise a PlacedError unless the study can use its basis."""
    if study.basis is None:
        return
    unknown = study.basis.unknown(study.features)
    if unknown:
        raise PlacedError("basis", unknown)
    if not study.can_bend:
        message = "only csoaa-exact on shared features can learn from sums of these terms"
        raise PlacedError("basis", message)
    if study.basis.waves and study.target is not None:
        message = (
            "a target site reports means of all terms, so a study with a target cannot have waves"
        )
        raise PlacedError("basis", message, ("basis", "waves"))
    if study.basis.screens:
        _check_screening(study, study.basis)


def _check_screening(study: "Study", basis: Basis) -> None:
    """Refuse to screen if there is nothing to multiply, or splits would have other terms."""
    pairs = basis.screened_pairs > 0
    place = "screened_pairs" if pairs else "screened_thresholds"
    what, otherwise = (
        ("pairs", "name the pairs ([basis] pairs)")
        if pairs
        else ("thresholds", "leave them out (screened_thresholds = 0)")
    )
    if pairs and basis.kind == "hinges":
        place, message = "kind", "hinges have no products, so there is nothing to screen for"
    elif pairs and not 1 < study.n_features <= MOST_TO_SCREEN:
        message = f"pairs of 2 to {MOST_TO_SCREEN} features are screened, here are "
        message += f"{study.n_features:,}; name the pairs ([basis] pairs)"
    elif basis.is_screened and len(basis.found_by_fold or [()]) != len(study.left_out):
        place, message = "found_by_fold", f"expected what {len(study.left_out)} screenings found"
    elif study.evaluation.splits > 1:
        message = f"another split may find other {what}; {otherwise}"
    else:
        return
    raise PlacedError("basis", message, ("basis", place))
