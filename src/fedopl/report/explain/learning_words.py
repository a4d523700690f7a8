"""What learning chose and limited, in words: terms, weights of rows and of clients, and caution."""

import math
from typing import Any, NamedTuple

import numpy as np

from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.policies.basis import Basis
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.policy import Policy
from fedopl.report.parts import Heading, Part, Table, texts
from fedopl.report.words.numbers import count, listed, percent, plain, told_apart
from fedopl.report.words.policy_labels import SO_FAR, valued_clients
from fedopl.results.record import Record
from fedopl.results.sums.noise_weights import NoiseWeights
from fedopl.results.sums.term_choice import TermChoice
from fedopl.results.value_tables import LOGGING
from fedopl.study.private.private_setting import PrivateSetting

_MOST_NAMED = 3
_HARDLY = 0.005  # of all weight: less is not worth a name


def noise_words(record: Record) -> str:
    """Which clients count more and which count less in learning; empty if none does."""
    found = weights_by_noise(record)
    if found is None:
        return ""
    starts = record.study.linear.oracle == "direct"
    where = "In the policy that the steps start from" if starts else "In learning"
    agreed = record.mixture
    moved = {name: abs(own - agreed[name]) for name, own in found.weights.items()}
    most = sorted(moved, key=lambda name: (-moved[name], name))[:_MOST_NAMED]
    changes = [
        f"{name} counts for {percent(found.weights[name])} instead of {percent(agreed[name])}"
        for name in most
    ]
    more = " (those that move most)" if len(moved) > len(most) else ""
    effect = f"in the mean over actions, {listed(changes)}{more}"
    if sum(moved.values()) / 2 < _HARDLY:
        effect = "that moves next to no weight"
    return (
        f"{where}, clients with noisier scores count less, as far as the effects of actions are "
        f"alike at all of them: {effect}. The policy is still meant for the mixture. With more "
        "rows, these weights return to the mixture, unless actions have the same effects at all "
        "clients; then all weights lead to the same policy."
    )


def noise_as_json(record: Record | None) -> dict[str, Any]:
    """The weights of clients in learning, if they differ from the mixture."""
    found = weights_by_noise(record) if record else None
    return {} if found is None else {"weights_for_learning": found.weights}


def weights_by_noise(record: Record) -> NoiseWeights | None:
    """Weights of clients in learning; None if they equal the mixture."""
    return record.statistics.noise_weights(record.mixture)


def noise_at_clients(record: Record) -> str:
    """A sentence on noise in clients' gains; empty if none was read separately under masks."""
    plan = record.study.privacy
    if plan is None or not plan.values_apart:
        return ""
    shares = [noise_share(record, client) for client in valued_clients(record)]
    least, most = percent(min(shares)), percent(max(shares))
    made = most if least == most else f"{least} to {most}"
    return (
        " Each client added all of the noise of the promise to its own values. The intervals "
        f"include it: {made} of the variance of gains over {SO_FAR} is noise."
    )


def noise_share(record: Record, client: str) -> float:
    """The share of noise in the variance of the learned policy's gain over the logging policy."""
    setting = PrivateSetting(record.study)
    gain = record.gains.over(LOGGING, client)
    names = list(dict.fromkeys(row.policy for row in record.values.rows))
    contrast = np.zeros(len(names))
    contrast[names.index(record.chosen)] = 1.0
    contrast[names.index(LOGGING)] = -1.0
    deviation = setting.scales.half_range * setting.deviation("values apart") / gain.n_rows
    noise = deviation**2 * float(contrast @ setting.noise_of_scores @ contrast)
    return min(noise / gain.standard_error**2, 1.0)


def limited_words(record: Record) -> str:
    """A sentence about the rows with limited weights; empty if there are none."""
    found = limited_weights(record)
    if not found or not any(found.rows.values()):
        return ""
    rows = listed([f"'{a}' in about {count(n)}" for a, n in found.rows.items() if n], 3)
    return (
        f"Of the rows learned from, these had a chance below {percent(found.below)}: {rows}. "
        "For learning, rows that got such an action count as if its chance had been "
        f"{percent(found.propensity)}; otherwise a few large weights would decide the policy. "
        "Values are not limited in this way."
    )


class LimitedWeights(NamedTuple):
    """Rows of all clients that reported them. The counts include noise."""

    propensity: float  # learning raises smaller propensities to this
    below: float  # the nearest public cut at or below it; rows below this cut were counted
    rows: dict[str, int]  # by action, the training rows with a propensity below that cut


def limited_weights(record: Record) -> LimitedWeights | None:
    """The rows with limited weights, by action; None if no weight is limited or nobody reported."""
    plan, actions = record.study.nuisances, record.study.actions
    floor = plan.learning_floor(len(actions))
    cut = max((one for one in CHANCE_CUTS if one <= floor), default=None)
    if floor <= (plan.clip or 0.0) or cut is None or record.described is None:
        return None
    n_bins = CHANCE_CUTS.index(cut) + 1
    by_client = record.described.by_client.values()
    rows = sum(counts.chances[:, :n_bins].sum(axis=1) for counts in by_client)
    return LimitedWeights(floor, cut, {a: round(n) for a, n in zip(actions, rows, strict=True)})


def caution_words(policy: Policy | None, record: Record | None) -> str:
    """What is subtracted from scores before the largest is chosen; empty if nothing is."""
    if record and record.study.policy.compares_candidates and record.study.caution:
        return (
            "The candidate was chosen with caution: by its value on training rows less "
            f"{plain(record.study.caution, 3)} standard errors of it."
        )
    if record and record.tree and record.study.doubts_leaves:
        return (
            "The tree was searched for with caution: each action in each leaf counted as its "
            f"worth on training rows less {plain(record.study.caution, 3)} standard errors, which "
            "are large where people were unlikely to get the action. Thresholds are those of the "
            "grid."
        )
    if not isinstance(policy, CautiousPolicy):
        return ""
    how_many = plain(record.study.linear.caution, 3) if record else "some"
    return (
        f"The policy is cautious: it subtracts {how_many} standard errors from each action's "
        "score, and then takes the largest. Standard errors are large for people like whom "
        "next to nobody got the action, so the action has to look better there by more. What "
        "is said about scores here is about scores before that subtraction."
    )


def caution_as_json(policy: Policy | None, record: Record | None) -> dict[str, Any]:
    """The number of standard errors subtracted, if any; null if only the policy is known."""
    if record and record.tree and record.study.doubts_leaves:
        return {"caution": record.study.caution}
    if not isinstance(policy, CautiousPolicy):
        return {}
    return {"caution": record.study.linear.caution if record else None}


_MOST_TERMS = 12  # pairs, or thresholds


def choice_parts(record: Record | None) -> tuple[Part, ...]:
    """The candidate terms, their out-of-fold losses, and the terms that were chosen."""
    choice = term_choice_of(record)
    if record is None or choice is None:
        return ()
    taken = "" if choice.family is None else _family_words(record, choice.family)
    who = "The linear part of the policy" if record.study.hidden else "The policy"
    said = (
        f"{who} could use {len(choice.losses)} sets of terms, and took {taken}. A richer set is "
        "taken if its loss is less by more than a standard error over folds. The loss is the "
        "squared error of predicted scores with each fold of training rows left out in turn, and "
        "follows from the clients' sums."
    )
    if choice.family is None:
        said = (
            "No client reported sums by fold, so no sets of terms could be compared: the policy is "
            "linear in the features as they are."
        )
    elif len(choice.losses) == 1:
        said = (
            f"The study set the policy's terms, {taken}; only how much their weights are shrunk "
            "was chosen, by the loss out of fold."
        )
    # And what the study screened for before terms were agreed.
    basis = _found_in_all(record)
    screened = (_screened_pairs(record, basis), _screened_thresholds(record, basis))
    compared = choice.family is not None and len(choice.losses) > 1
    table = (_table(record, choice),) if compared else ()
    return (Heading("How the terms were chosen"), *texts(said, *screened), *table)


def _found_in_all(record: Record | None) -> Basis | None:
    """The basis with the terms that the policy may use: those found with all training rows."""
    basis = record.study.basis if record else None
    return None if basis is None else basis.of_screening(-1)


def _used_rows(record: Record) -> str:
    """Which rows had a say in what was found."""
    if len(record.study.left_out) > 1:
        return (
            "Clients also looked without each fold. The policy by which a fold is valued uses only "
            "what was found without it."
        )
    return "Only training rows were used for this, not the rows that policies are valued on."


def _screened_thresholds(record: Record, basis: Basis | None) -> str:
    """Where outcomes were found to change sharply; there, a few bends may not be enough."""
    if basis is None or basis.found_thresholds is None:
        return ""
    looked = "Clients looked for values where outcomes change more sharply than bends can describe"
    if not basis.found_thresholds:
        return f"{looked}; none was found."
    # One number above its threshold, or two that both are.
    named = [
        "both " * (len(one) > 1) + " and ".join(f"{name} > {cut:g}" for name, cut in one)
        for one in basis.found_thresholds[:_MOST_TERMS]
    ]
    more = len(basis.found_thresholds) - len(named)
    found = "; ".join([*named, *([f"{count(more)} more"] if more else [])])
    first = ", the strongest first: " if len(named) > 1 else " "
    return f"{looked}, and found{first}{found}. Policies may jump there. {_used_rows(record)}"


def _screened_pairs(record: Record, basis: Basis | None) -> str:
    """How many pairs of features were screened, and which pairs became products."""
    if basis is None or basis.found_pairs is None:
        return ""
    looked = f"Of {count(math.comb(record.study.n_features, 2))} pairs of features"
    if not basis.found_pairs:
        return f"{looked}, no pair was found to act together, so no product was added."
    named = [f"{first} × {second}" for first, second in basis.found_pairs]
    were, order = ("was", "") if len(named) == 1 else ("were", ", the strongest first")
    return (
        f"{looked}, {count(len(named))} {were} found to predict outcomes better together than "
        f"apart{order}: {listed(named, most=_MOST_TERMS)}. Products of these could be used. "
        f"{_used_rows(record)}"
    )


def _table(record: Record, choice: TermChoice) -> Table:
    terms = record.study.terms
    sizes = {family: len(terms.usable(n)) for family, n in terms.sizes.items()} if terms else {}
    losses = list(choice.losses.values())
    beyond_first = told_apart([loss - losses[0] for loss in losses])
    return Table(
        caption="Loss out of fold, less that of the first line: less is better",
        headers=("Terms", "How many", "Loss", "Taken"),
        rows=tuple(
            (
                _family_words(record, family),
                count(sizes[family]),
                text,
                "taken" if family == choice.family else "",
            )
            for family, text in zip(choice.losses, beyond_first, strict=True)
        ),
        text_columns=(3,),
        long_names=True,
    )


def _family_words(record: Record, family: str) -> str:
    """The terms in which a policy of this family is linear, in words."""
    if family == "linear":
        return "features as they are"
    basis = _found_in_all(record)
    jumps = ["jumps at thresholds"] if basis and basis.found_thresholds else []
    if family == "thresholds":
        return listed(["features as they are", *jumps])
    products = family != "hinges" and basis is not None and bool(basis.multiplied)
    further = ["products of two"] * products
    further += ["soft steps"] * (family in ("steps", "waves")) + ["waves"] * (family == "waves")
    return listed(["features that bend at their knots", *further, *jumps])


def choice_as_json(record: Record | None) -> dict[str, Any]:
    """The chosen family and the losses of all families, if there was a choice."""
    choice = term_choice_of(record)
    if choice is None:
        return {}
    basis = _found_in_all(record)
    told: dict[str, Any] = {"taken": choice.family or "linear", "losses": dict(choice.losses)}
    if basis and basis.found_pairs is not None:
        told["found_pairs"] = [list(pair) for pair in basis.found_pairs]
    if basis and basis.found_thresholds is not None:
        told["found_thresholds"] = [[list(cut) for cut in one] for one in basis.found_thresholds]
    return {"terms": told}


def term_choice_of(record: Record | None) -> TermChoice | None:
    """The choice of terms; None if the policy's terms were not chosen from a basis."""
    if record is None or record.study.basis is None or not record.study.policy.starts_exactly:
        return None
    return record.statistics.choice
