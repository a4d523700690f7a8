"""Checks whether a study is possible: its plans may contradict each other, or ask for too much."""

from typing import TYPE_CHECKING

from fedopl.base.arrays import triangle_size
from fedopl.base.labels import quoted
from fedopl.base.validation import PlacedError
from fedopl.policies.basis import Basis
from fedopl.policies.neural import NeuralPolicy
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.study.guardrail import WHAT_WAS_DONE, guarded_columns
from fedopl.study.mixture import FOUND
from fedopl.study.policy_plans import MOST_NUMBERS
from fedopl.study.private.privacy_plan import check_private

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study

FEWEST_ON_PATH = 3  # folds: one to value, one to choose the mixture, and one to learn from
MOST_TO_SCREEN = 200  # features: their pairs are asked about one by one
# The number of policies that one query can ask about, at least, in a study that diagnoses.
MOST_DIAGNOSED = 128


def check_study(study: "Study") -> None:
    """Raise a PlacedError if its plans contradict each other, or ask for too much."""
    _check_table(study)
    _check_basis(study)
    _check_caution(study)
    study.policy.check_mixture(study.mixture.kind)
    if study.joining.diagnose:
        study.policy.check_joining()
    if study.mixture.robust and not study.policy.can_be_resolved:
        message = "only linear policies by csoaa-exact are learned from sums in this way"
        raise PlacedError("mixture.robust", message)
    _check_values(study)
    for plan in (study.costs, study.budget, study.ranges):
        if plan:
            plan.check(study)
    _check_guardrails(study)
    _check_personal(study)
    _check_target(study)
    if study.privacy:
        check_private(study, study.privacy)
    _check_message_sizes(study)
    study.policy.check_columns(study.columns, study.actions, len(study.left_out))
    if study.permissions:
        study.permissions.check(study.columns, study.actions)


def _check_table(study: "Study") -> None:
    table = study.table
    if table and (study.actions, study.features) != (table.actions, table.feature_names):
        raise PlacedError("table", "it has other actions or features than the study")
    if study.nuisances.propensity == "known" and table and not table.propensity:
        message = "'known', but no column of propensities is named"
        raise PlacedError("nuisances.propensity", message)
    if study.mixture.counts_weight and table and not table.weight:
        message = "'weight', but no column of weights is named ([rows] weight); count rows"
        raise PlacedError("mixture.count", message)
    for place, plan in (("policy", study.linear), ("nuisances", study.nuisances)):
        if plan.features == "blocks" and study.n_features % study.n_actions:
            message = (
                f"{study.n_features} features cannot be cut into {study.n_actions} equal "
                "blocks, one for each action"
            )
            raise PlacedError(f"{place}.features", message)


def _check_basis(study: "Study") -> None:
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


def _check_caution(study: "Study") -> None:
    """Refuse caution if no sums are released that standard errors could be computed from."""
    if study.caution and study.privacy:
        message = (
            "standard errors would be computed from sums with noise, and would mean little; "
            "set caution = 0, or agree on a study without [privacy]"
        )
        raise PlacedError("caution", message, ("policy", "caution"))
    if (study.is_cautious or study.doubts_leaves) and study.nuisances.kind == "local":
        message = (
            "standard errors are computed from the sums that federated outcome models are fitted "
            'from; with kind = "local" under [nuisances] there are none'
        )
        raise PlacedError("caution", message, ("policy", "caution"))


def _check_values(study: "Study") -> None:
    """Raise a PlacedError unless values can be computed as the study's evaluation says."""
    if study.evaluation.is_cross_fitted and (why := why_not_by_fold(study)):
        raise PlacedError("evaluation.kind", f"values cannot be cross-fitted: {why}; hold rows out")
    if study.evaluation.refits and (why := why_not_refit(study)):
        raise PlacedError("evaluation.kind", f"the policy cannot be learned once more: {why}")
    if study.evaluation.splits > 1:
        _check_repeated(study)


def why_not_by_fold(study: "Study") -> str | None:
    """Why policies of this study cannot be learned without each fold; None if they can be."""
    policy = study.policy
    if study.privacy:
        return "noise would be added once for each fold"
    if not (policy.can_be_resolved or policy.on_grid or policy.compares_candidates):
        return "only linear policies by csoaa-exact and trees on a grid are solved from sums"
    if study.mixture.kind == "path" and study.nuisances.folds < FEWEST_ON_PATH:
        return f"a path keeps one more fold back, so there have to be {FEWEST_ON_PATH} folds"
    return None


def why_not_refit(study: "Study") -> str | None:
    """Why the policy cannot be learned once more from all rows; None if it can be."""
    if study.privacy:
        return "it would need as much privacy again"
    if study.evaluates:
        return "no policy is learned"
    if study.mixture.kind in FOUND or study.policy.compares_candidates:
        return "another mixture may be found, or another candidate chosen, than was valued"
    if study.budget or study.guardrails:
        return "whether it keeps to a budget, or a guardrail, is known of the one that was valued"
    if study.joining.diagnose or study.personal.kind != "none" or study.target is not None:
        return "what is said of clients and of a target is about the policy that was valued"
    return None


def _check_repeated(study: "Study") -> None:
    """Refuse splits whose results are not comparable, or that have no value to compare."""
    if not study.evaluation.claims_values:
        message = "no rows are held out, so no split has a value to compare; hold some out"
    elif study.policy.compares_candidates:
        message = "another split may choose another candidate; they are compared under one"
    elif study.mixture.kind in FOUND or study.mixture.robust:
        message = "another split may find other weights of clients; agree on the weights"
    elif study.joining.diagnose:
        message = "joining is judged under one split"
    else:
        return
    raise PlacedError("evaluation.splits", message)


def _check_guardrails(study: "Study") -> None:
    """Refuse guardrails that cannot be judged in this study."""
    if not study.guardrails:
        return
    plan = study.evaluation
    if study.privacy:
        message = "with differential privacy only one outcome is valued; leave guardrails out"
    elif not plan.claims_values:
        message = "guardrails are judged by values, and none are claimed; hold rows out"
    elif plan.splits > 1:
        message = "guardrails are judged under one split; leave evaluation.splits out"
    else:
        message = ""
    if message:
        raise PlacedError("guardrails", message)
    for name, guardrail in study.guardrails.items():
        if guardrail.reference not in (WHAT_WAS_DONE, *study.actions):
            message = (
                f"'{guardrail.reference}' is neither \"{WHAT_WAS_DONE}\" nor an action; actions "
                f"are {quoted(study.actions)}"
            )
            raise PlacedError(f"guardrails.{name}", message, ("guardrails", name))
    if study.table and not set(guarded_columns(study)) <= set(study.table.outcomes):
        message = (
            f"they are about {quoted(guarded_columns(study))}, and tables are read with "
            f"{quoted(study.table.outcomes) or 'no further outcomes'}; name the same columns in "
            "outcomes of the schema"
        )
        raise PlacedError("guardrails", message)


def _check_personal(study: "Study") -> None:
    """A PlacedError, unless the personal policies of the study can be solved for and valued."""
    if study.personal.kind != "none" and (why := why_not_personal(study)):
        raise PlacedError("personal.kind", f'{why}; say "none"')


def _why_not_this_kind(study: "Study") -> str | None:
    plan = study.policy
    if study.privacy and plan.kind != "linear":
        return (
            "with differential privacy nobody says what leaves or candidates are worth to all, so "
            "there is nothing that a client could move toward its own rows"
        )
    if study.caution and plan.kind != "linear":
        return (
            "caution takes standard errors from what leaves or candidates are worth, and a client "
            "is not told how sure the others' values are"
        )
    if plan.compares_candidates:
        return None
    if plan.has_leaves:
        if not plan.on_grid:
            return "a tree on observed thresholds belongs to one client alone"
        if study.tree.depth > LOOK_AHEAD:
            return f"sums show what leaves are worth to the other clients up to depth {LOOK_AHEAD}"
        return None
    if not plan.can_be_resolved or not study.has_intercept:
        return (
            "personal policies are trees, choices among candidates, or linear policies by "
            "csoaa-exact on shared features"
        )
    return None


def why_not_personal(study: "Study") -> str | None:
    """Why there can be no personal policies in this study, in words; None if there can be."""
    if (why := _why_not_this_kind(study)) is not None:
        return why
    if study.budget:
        return (
            "the budget is met by one policy for all clients; no client reports what its personal "
            "policy spends, so no price could be found at which personal policies meet the budget"
        )
    if not study.evaluation.claims_values:
        return "personal policies are valued on rows that they have not seen, and none are held out"
    return None


def _check_target(study: "Study") -> None:
    """Refuse a target in a study that cannot say what a policy is worth there."""
    if study.target is None:
        return
    plan = study.evaluation
    if study.privacy:
        message = (
            "the weights that make sources look like the target are computed from exact means, "
            "which a study with differential privacy or secure aggregation does not have; leave "
            "[target] or [privacy] out"
        )
    elif not plan.claims_values:
        message = "a policy is valued there on held-out rows; hold some out (evaluation.share)"
    elif plan.splits > 1:
        message = "a policy is valued there under one split; leave evaluation.splits out"
    elif study.basis is not None and study.basis.screens:
        message = (
            "screening asks clients about outcomes, and the target has no outcomes; name "
            "products in [basis], and leave screened ones out"
        )
    elif study.policy.learned_by_one:
        message = "observed thresholds are for one client alone; use the grid"
    else:
        return
    raise PlacedError("target", message)


def _check_message_sizes(study: "Study") -> None:
    """Refuse a study if one of its messages would hold more numbers than a message may."""
    n_actions, folds = study.n_actions, study.nuisances.folds
    n_features = study.most_terms
    n_pairs = n_actions * (n_actions - 1) // 2
    n_numbers = n_pairs * (triangle_size(n_features + 1) + n_features + 1)
    if study.linear.oracle == "wap" and n_numbers > MOST_NUMBERS:
        message = (
            f"wap sums squares of {n_features:,} features for {n_pairs:,} pairs of "
            f"actions, {n_numbers:,} numbers of which a message holds {MOST_NUMBERS:,}; use "
            "csoaa-exact, or fewer actions or features"
        )
        raise PlacedError("oracle", message, ("policy", "oracle"))
    n_numbers = (n_actions + 4) * NeuralPolicy.numbers_shape(study)[0]
    if n_numbers > MOST_NUMBERS:
        message = (
            f"a query about policies may hold {n_numbers:,} numbers of networks, a message "
            f"holds {MOST_NUMBERS:,}; use fewer or narrower layers"
        )
        raise PlacedError("hidden", message, ("policy", "neural", "hidden"))
    at_once = n_actions + 4 + (MOST_DIAGNOSED if study.joining.diagnose else 0)
    at_once = (at_once + 4) * folds if study.evaluation.is_cross_fitted else at_once
    n_numbers = at_once * n_actions * (n_features + 1) * (n_features + 4) // 2
    if study.is_cautious and n_numbers > MOST_NUMBERS:
        message = (
            f"a query about policies may hold {n_numbers:,} numbers of doubts about {n_features:,} "
            f"terms, a message holds {MOST_NUMBERS:,}; use fewer features, or caution = 0"
        )
        raise PlacedError("caution", message, ("policy", "caution"))
    n_numbers = folds * n_actions * (triangle_size(n_features + 2) + 1)
    if study.nuisances.kind == "federated" and n_numbers > MOST_NUMBERS:
        message = (
            f"federated outcome models take squares of {n_features:,} features for "
            f"{n_actions:,} actions in {folds:,} folds, {n_numbers:,} numbers of which a "
            f"message holds {MOST_NUMBERS:,}; use local ones, or fewer folds or features"
        )
        raise PlacedError("nuisances", message)
    n_numbers = study.n_outcome_models * n_actions * (n_features + 2)
    if n_numbers > MOST_NUMBERS:
        message = (
            f"clients would be sent {study.n_outcome_models:,} outcome models of {n_features:,} "
            f"terms for {n_actions:,} actions, {n_numbers:,} numbers of which a message holds "
            f"{MOST_NUMBERS:,}; use local ones, or fewer folds or features"
        )
        raise PlacedError("nuisances", message)
