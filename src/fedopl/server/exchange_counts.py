"""How many exchanges and trips a run takes at most, for a view of what is left."""

from collections.abc import Callable
from math import ceil

from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.learning.contrast_squares import SumContrasts
from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.messages.private.noised_values import ValueApart
from fedopl.messages.secure.sum_numbers import n_sums
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.growing import n_levels
from fedopl.server.aggregate.grid_agreement import MOST_COUNTS
from fedopl.server.diagnosis.diagnose import diagnosing_exchanges
from fedopl.server.oracles import network_rounds
from fedopl.server.oracles.by_name import ORACLES
from fedopl.server.target.value_there import EXCHANGES
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.splits import split_studies
from fedopl.study.study import Study


def expected_exchanges(study: Study, n_clients: int) -> int:
    """How many exchanges a run takes at most, under all its splits."""
    return sum(_under_one_split(one, n_clients) for one in split_studies(study))


def _under_one_split(study: Study, n_clients: int) -> int:
    if study.privacy:
        return _privately(study, study.privacy)[0]
    diagnosis = diagnosing_exchanges(study, n_clients) if study.joining.diagnose else 0
    learning = LEARNING[study.policy.kind](study, n_clients)
    described = study.evaluation.describe + TellFit.needed(study) + study.values_leaves
    described += TellInteractions.needed(study)
    priced, at_target = study.budget is not None, EXCHANGES if study.target else 0
    asked = exchanges_to_evaluate(study) + learning + priced + described
    return asked + diagnosis + at_target


def expected_trips(study: Study, n_clients: int) -> int:
    """How many trips a run takes at most: enrolment rides with sums, descriptions with values.

    So do the cells of a tree with scores, where its grid is agreed beforehand; under masks, keys
    with enrolment, and the roster with the first sums.
    """
    saved = sum(map(_exchanges_along, split_studies(study)))
    return expected_exchanges(study, n_clients) - saved


def _exchanges_along(study: Study) -> int:
    """How many exchanges come along on the trip of another, under one split."""
    if study.privacy:
        exchanges, trips = _privately(study, study.privacy)
        return exchanges - trips
    describes, fits = study.evaluation.describe, TellFit.needed(study)
    described = describes * study.evaluation.claims_values + fits
    together = study.mixture.counts_weight + (study.nuisances.kind == "federated") + described
    along = study.values_leaves + cells_come_along(study) + SumByFold.needed(study)
    along += SumContrasts.needed(study) + TellInteractions.needed(study)
    screened = _n_screenings(study)
    return together + along + (1 + screened if screened else 0)


def _privately(study: Study, plan: PrivacyPlan) -> tuple[int, int]:
    """How many exchanges and trips it takes with differential privacy.

    Who takes part rides with the first sums, under masks but for keys and shares; measured ranges
    with the next, or, where clients may be lacking, with all that follow. Values that are read
    apart ride with their sum.
    """
    sums, apart = n_sums(study), ValueApart.needed(study)
    if not plan.is_secure:
        return 1 + sums + 2 * plan.measures_first, sums
    if not plan.dropouts:
        return 3 + sums + plan.measures_first + apart, sums + 1
    return 4 + 2 * sums + plan.measures_first * (sums - 1) + apart, 2 * sums + 2


def exchanges_to_evaluate(study: Study) -> int:
    """How many exchanges it takes to value policies that are there already."""
    scoring = 2 + study.mixture.counts_weight + (study.nuisances.kind == "federated")
    screened = _n_screenings(study)
    screening = 2 + screened if screened else 0
    along = SumByFold.needed(study) + SumContrasts.needed(study)
    return screening + scoring + study.evaluation.claims_values + along


def _n_screenings(study: Study) -> int:
    """How many kinds of terms are found first: rows are counted on that trip, too."""
    basis = study.basis
    return 0 if basis is None else (basis.screened_pairs > 0) + (basis.screened_thresholds > 0)


def cells_come_along(study: Study) -> bool:
    """Whether a tree's grid is known before anybody is asked."""
    return study.policy.on_grid and not study.cut_columns


def _linear_exchanges(study: Study, n_clients: int) -> int:
    """Those of the oracle, and of the mixture where it has to be found.

    Along a path there are sums, then values; for minimax everybody's own policy is valued, that of
    every step, and that of the average.
    """
    own, plan = ORACLES[study.linear.oracle].exchanges(study), study.mixture
    most = most_in_query(study)
    if plan.kind == "path":
        # The policy that the path begins with comes in every query.
        return own + 1 + ceil(len(plan.alphas) / (most - 1))
    if plan.kind == "minimax":
        return own + ceil(n_clients / most) + plan.steps + 1
    return own


def _tree_exchanges(study: Study, _n_clients: int) -> int:
    """Counts to agree on thresholds, cells for each level, and a second look."""
    if not study.policy.on_grid:
        return 0
    counts = MOST_COUNTS if study.cut_columns else 0
    return counts + n_levels(study.tree.depth) + SumNearThresholds.needed(study)


def _finite_exchanges(study: Study, _n_clients: int) -> int:
    """Values on training rows; along a path also on those to fit by and on those kept back."""
    return 3 if study.mixture.kind == "path" else 1


# By the kind of policy that the study wants.
LEARNING: dict[str, Callable[[Study, int], int]] = {
    "linear": _linear_exchanges,
    "tree": _tree_exchanges,
    "finite": _finite_exchanges,
    "neural": lambda study, _n_clients: network_rounds.exchanges(study),
}
