"""How many exchanges and round trips a run takes at most. Progress displays use these numbers."""

from collections.abc import Callable
from math import ceil

from fedopl.messages.about_masks import n_sums
from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.evaluation.policy_values import queries_on_path
from fedopl.messages.learning.score_sums import SumByFold, SumContrasts
from fedopl.messages.private.noised_scores import ValueApart
from fedopl.messages.trees.bin_counts import MOST_COUNTS
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.growing import n_levels
from fedopl.server.diagnosis.diagnose import diagnosing_exchanges
from fedopl.server.oracles.linear_oracles import ORACLES
from fedopl.server.target.value_there import exchanges_at_target
from fedopl.study.mixture import BestSkew, Minimax
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.splits import split_studies
from fedopl.study.study import Study


def expected_exchanges(study: Study, n_clients: int) -> int:
    """How many exchanges a run takes at most, over all its splits."""
    return sum(_counts(one, n_clients)[0] for one in split_studies(study))


def expected_trips(study: Study, n_clients: int) -> int:
    """How many round trips a run takes at most.

    Several exchanges share a round trip: enrolment and sums; descriptions and values; scores and
    the cells of a tree whose grid is known beforehand. Under masks, keys and enrolment share one,
    and so do the roster and the first sums.
    """
    return sum(_counts(one, n_clients)[1] for one in split_studies(study))


def _counts(study: Study, n_clients: int) -> tuple[int, int]:
    """The numbers of exchanges and of round trips under one split."""
    if study.privacy:
        return _privately(study, study.privacy)
    told = study.evaluation.describe + study.values_leaves
    told += TellFit.needed(study) + TellInteractions.needed(study)
    exchanges = exchanges_to_evaluate(study) + LEARNING[study.policy.kind](study, n_clients)
    exchanges += told + (study.budget is not None) + exchanges_at_target(study)
    exchanges += diagnosing_exchanges(study, n_clients) if study.joining.diagnose else 0
    # Those that share the round trip of another.
    along = told + (study.evaluation.share > 0) + _beside_others(study, n_clients)
    along += study.mixture.counts_weight + (study.nuisances.kind == "federated")
    along += cells_come_along(study) + SumByFold.needed(study) + SumContrasts.needed(study)
    screened = _n_screenings(study)
    along += 1 + screened if screened else 0
    return exchanges, exchanges - along


def _beside_others(study: Study, n_clients: int) -> int:
    """How many exchanges for values to choose by share the round trip of those without a fold."""
    found = 0
    if study.policy.compares_candidates:
        found = _finite_exchanges(study, n_clients)
    elif study.policy.kind == "linear":
        found = _exchanges_for_mixture(study, n_clients)
    return found - found // len(study.left_out)


def _privately(study: Study, plan: PrivacyPlan) -> tuple[int, int]:
    """The numbers of exchanges and round trips with differential privacy.

    Without masks, enrolment travels with the first sums. Under masks, keys come before in a round
    trip of their own, and so do shares if clients may drop out. Measured ranges travel with the
    next sums, or with all later ones if clients may drop out. Values that are read on their own
    travel with their sum.
    """
    sums, apart = n_sums(study), ValueApart.needed(study)
    if not plan.is_secure:
        return 1 + sums + 2 * plan.measures_first, sums
    if not plan.dropouts:
        return 3 + sums + plan.measures_first + apart, sums + 1
    return 4 + 2 * sums + plan.measures_first * (sums - 1) + apart, 2 * sums + 2


def exchanges_to_evaluate(study: Study) -> int:
    """How many exchanges it takes to value existing policies."""
    scoring = 2 + study.mixture.counts_weight + (study.nuisances.kind == "federated")
    screened = _n_screenings(study)
    screening = 2 + screened if screened else 0
    along = SumByFold.needed(study) + SumContrasts.needed(study)
    valued = 1 + (study.evaluation.share > 0)  # also what was not learned, on all rows
    return screening + scoring + valued + along


def _n_screenings(study: Study) -> int:
    """How many kinds of terms screening looks for; its round trip also counts rows."""
    basis = study.basis
    return 0 if basis is None else (basis.screened_pairs > 0) + (basis.screened_thresholds > 0)


def cells_come_along(study: Study) -> bool:
    """Whether a tree's grid is known before any client is asked."""
    return study.policy.on_grid and not study.cut_columns


def _exchanges_for_mixture(study: Study, n_clients: int) -> int:
    """The exchanges for values by which the mixture of linear policies is found.

    A path takes values of its policies. Minimax takes those of each client's own policy, of the
    policy of every step, and of the policy for the average weights. All are asked for as often as
    there are versions, which go without a fold.
    """
    plan, n_versions = study.mixture, len(study.left_out)
    if isinstance(plan, BestSkew):
        return n_versions * queries_on_path(study, plan)
    if isinstance(plan, Minimax):
        return n_versions * (ceil(n_clients / most_in_query(study)) + plan.steps + 1)
    return 0


def _tree_exchanges(study: Study, _n_clients: int) -> int:
    """The exchanges for counts (to find thresholds), for cells of each level and for a second look.

    The second look moves thresholds off the grid.
    """
    if not study.policy.on_grid:
        return 0
    counts = MOST_COUNTS if study.cut_columns else 0
    return counts + n_levels(study.tree.depth) + SumNearThresholds.needed(study)


def _finite_exchanges(study: Study, _n_clients: int) -> int:
    """The exchanges for values on training rows, also without each fold if that is valued.

    A path needs as many more on the rows to fit on, and on the rows kept back.
    """
    return len(study.left_out) * (3 if study.mixture.kind == "path" else 1)


# By the kind of policy that the study wants.
LEARNING: dict[str, Callable[[Study, int], int]] = {
    "linear": lambda study, n_clients: (
        ORACLES[study.linear.oracle].exchanges(study) + _exchanges_for_mixture(study, n_clients)
    ),
    "tree": _tree_exchanges,
    "finite": _finite_exchanges,
    "neural": lambda study, _n_clients: study.neural.rounds,  # one for each round
}
