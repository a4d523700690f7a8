"""Checks whether a study is possible with differential privacy."""

from typing import TYPE_CHECKING

from fedopl.base.labels import quoted
from fedopl.base.validation import PlacedError
from fedopl.privacy.subsampled import LEAST_DELTA
from fedopl.study.mixture import FOUND
from fedopl.study.private.privacy_plan import PrivacyPlan

if TYPE_CHECKING:
    from fedopl.study.study import Study

MOST_GRADIENTS = 1000  # rounds of csoaa-sgd
_ONE_STEP = (
    "with differential privacy, a round of csoaa-sgd is one step of all clients over the share of "
    "rows that privacy.sampled says"
)
# Tables of every two columns suffice for trees of two questions, one after the other.
MOST_PRIVATE_DEPTH = 2


def check_private(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless the study is possible with differential privacy."""
    encoding = study.encoding
    numbers = set(encoding.numeric if encoding else study.features)
    lacking = [name for name in study.features if name in numbers and name not in plan.ranges]
    unknown = [name for name in plan.ranges if name not in study.features]
    possible = {
        "policy": study.policy.kind in ("linear", "tree", "finite")
        and (study.linear.can_bend or study.linear.by_gradients),
        "tree.thresholds": study.tree.thresholds == "grid",
        "tree.depth": study.tree.depth <= MOST_PRIVATE_DEPTH,
        "tree.minimum_leaf": study.tree.minimum_leaf == 1,
        "policy.never": study.permissions is None or study.policy.kind != "tree",
        "basis.screened_pairs": study.basis is None or not study.basis.screened_pairs,
        "basis.screened_thresholds": study.basis is None or not study.basis.screened_thresholds,
        "basis.waves": study.basis is None or not study.basis.waves,
        "mixture": study.mixture.kind not in FOUND and not study.mixture.robust,
        "mixture.count": not study.mixture.counts_weight,
        "joining.diagnose": not study.joining.diagnose,
        "evaluation.splits": study.evaluation.splits == 1,
        "nuisances.propensity": study.nuisances.propensity in ("auto", "known"),
        "rows.weight": not (study.table and study.table.weight),
        "rows.group": plan.unit == "row" or not study.table or study.table.group is not None,
        "declared.overlap": study.declared.overlap is not None,
    }
    _check_gradients(study, plan)
    if plan.is_secure:
        _check_secure(study, plan)
    for place, is_possible in possible.items():
        if not is_possible:
            within = ("policy",) if place.startswith("tree.") else ()
            raise PlacedError(place, _PRIVATELY[place], (*within, *place.split(".")))
    if lacking:
        raise PlacedError(
            "privacy.ranges", f"no range of {quoted(lacking)}; say where most values lie"
        )
    if unknown:
        raise PlacedError("privacy.ranges", f"{quoted(unknown)} is no feature")


def _check_secure(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless totals are enough for the study, and it names their clients."""
    if study.policy.kind == "linear" and study.linear.by_gradients:
        message = "csoaa-sgd takes many steps, each with its own masks; use csoaa-exact"
        raise PlacedError("privacy.aggregation", f"with secure aggregation, {message}")
    if plan.values_apart and not study.evaluation.share:
        message = (
            "no rows are held out, so no client has values to report apart; hold some out: share"
        )
        raise PlacedError("privacy.values_apart", f"{message} = 0.25 under [evaluation]")
    if not plan.keys:
        message = (
            "secure aggregation needs every client's public key, or the server could "
            "impersonate clients; `fedopl keys clients` prints the lines to add under "
            "[privacy.keys]"
        )
        raise PlacedError("privacy.keys", message)


def _check_gradients(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless steps are set by the right keys, and each is of the right kind.

    A step of csoaa-sgd with noise is one gradient over sampled rows of every client.
    """
    if study.policy.kind != "linear" or not study.linear.by_gradients:
        if plan.sampled < 1:
            raise PlacedError("privacy.sampled", "only csoaa-sgd can take steps on sampled rows")
        return
    usual, training = type(study.linear.training)(), study.linear.training
    for name in ("local_steps", "batch_size", "clients_per_round", "proximal", "average"):
        if getattr(training, name) != getattr(usual, name):
            raise PlacedError(name, _ONE_STEP, ("policy", "training", name))
    if plan.steps != PrivacyPlan.model_fields["steps"].default:
        raise PlacedError("privacy.steps", "csoaa-sgd takes one for each of its rounds")
    if training.rounds > MOST_GRADIENTS:
        message = f"with differential privacy at most {MOST_GRADIENTS:,}: noise is for all of them"
        raise PlacedError("rounds", message, ("policy", "training", "rounds"))
    if plan.sampled < 1 and plan.delta < LEAST_DELTA:
        message = f"with sampled rows at least {LEAST_DELTA:g}, to which losses can be added up"
        raise PlacedError("privacy.delta", message)


# What each setting must be with differential privacy.
_PRIVATELY = {
    "policy": "with differential privacy, policies are linear, on shared features by csoaa-exact "
    "or csoaa-sgd, trees, or the best of candidates",
    "tree.thresholds": "observed thresholds are values of rows; with differential privacy, "
    "use the grid",
    "tree.depth": "with differential privacy, a tree asks one question or two, one after the "
    "other. Each further level would need its own tables, with their noise; depth = "
    f"{MOST_PRIVATE_DEPTH} at most",
    "tree.minimum_leaf": "with differential privacy, the rows of a leaf are not counted; leave "
    "it out, or give every question a price: split_cost",
    "policy.never": "with differential privacy, only linear policies and candidates obey rules "
    "on who may get what; a tree's tables would need noise for the replacing action, too",
    "basis.screened_pairs": "with differential privacy, pairs are named, not screened",
    "basis.screened_thresholds": "with differential privacy, thresholds are not screened",
    "basis.waves": "with differential privacy there are no waves: there would be too many terms "
    "for the noise",
    "mixture": "with differential privacy, weights of clients are agreed, not found",
    "mixture.count": "with differential privacy, clients count by rows",
    "joining.diagnose": "what joining is worth takes many more answers than the noise allows for",
    "evaluation.splits": "every split would be a further study, with its own noise",
    "nuisances.propensity": "with differential privacy, propensities are known or computed from "
    "noisy sums: auto or known",
    "rows.weight": "with differential privacy, all rows weigh the same",
    "rows.group": 'unit = "person", so say which column has the person',
    "declared.overlap": "with differential privacy, say how small propensities may be, as in "
    "overlap = 0.05",
}
