"""Where clients differ: how they chose actions, what came of them, and whom they saw (Theorem 3).

Every client tells its own models, and compares all clients' with its own on its own contexts. That
gives the propensity and outcome parts of Theorem 3 for every two clients. A classifier that tells
one client's contexts from all others' bounds the total variation of contexts from below.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.errors import OptionError
from fedopl.mixture import renormalised
from fedopl.server.aggregation import weighted_sum
from fedopl.server.conversation import Answers, Conversation
from fedopl.server.faults import (
    fault_in_classifier_sums,
    fault_in_model_shifts,
    fault_in_models,
)
from fedopl.wire.vocabulary import (
    MOST_CLIENTS,
    ClassifierSums,
    ClassifyContexts,
    CompareModels,
    Models,
    ModelShifts,
    Split,
    TellModels,
)

MOST_STEPS = 10
# A step that would lower the loss by less than half its square changes nothing that can be seen.
SMALLEST_STEP = 1e-4
# Keeps contexts that can be told apart with certainty from growing parameters without end.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Shift:
    """One part of Theorem 3 for every two clients: of the first, at its contexts, from the second.

    Estimates are about right on average, so that those of small shifts may be negative. NaN is what
    nobody told; a client from itself is 0.
    """

    names: tuple[str, ...]
    estimates: FloatArray  # (n_clients, n_clients)
    standard_errors: FloatArray  # (n_clients, n_clients)

    def divergences(self, client: str) -> FloatArray:  # (n_clients,)
        """Of one client from each, none below 0, as `theory.bounds.shift_bound` takes them."""
        found = self.estimates[self.names.index(client)]
        return np.where(np.isnan(found), np.nan, np.maximum(found, 0.0))


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelShift:
    """How clients' models differ."""

    names: tuple[str, ...]
    propensity_kl: Shift
    propensity_tv: Shift
    outcome_kl: Shift  # over the actions that both clients have models of


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """Tells the target's contexts from the others'; the intercept is the last parameter."""

    parameters: FloatArray  # (n_features + 1,)
    n_steps: int
    converged: bool
    total_variation: float  # at least; 2·accuracy − 1 on held-out rows, NaN if not told
    standard_error: float


# --- models --------------------------------------------------------------------------------------


def ask_for_models(conversation: Conversation, clients: Iterable[str]) -> Answers[Models]:
    """Every client's own models, without those that cannot be."""
    return conversation.drop(conversation.ask(TellModels, clients, Models), fault_in_models)


def compare(conversation: Conversation, models: Answers[Models]) -> ModelShift:
    """Have every client compare all models with its own; who does not answer is NaN."""
    names = tuple(sorted(models))
    if not 1 < len(names) <= MOST_CLIENTS:
        raise OptionError(
            f"models: expected those of 2 to {MOST_CLIENTS:,} clients to compare, came {len(names)}"
        )
    fields = {
        field: np.stack([getattr(models[name], field) for name in names])
        for field in ("propensities", "outcomes", "variances", "supported")
    }
    answers = conversation.drop(
        conversation.ask(CompareModels, names, ModelShifts, **fields),
        lambda answer: fault_in_model_shifts(answer, len(names)),
    )
    supported = fields["supported"]
    have_both = supported @ supported.T > 0  # some action that both have a model of
    everything = np.ones_like(have_both)
    return ModelShift(
        names=names,
        propensity_kl=_assembled(names, answers, "propensity_kl", everything),
        propensity_tv=_assembled(names, answers, "propensity_tv", everything),
        outcome_kl=_assembled(names, answers, "outcome_kl", have_both),
    )


def _assembled(
    names: tuple[str, ...], answers: Mapping[str, ModelShifts], field: str, known: FloatArray
) -> Shift:
    estimates, errors = (np.full((len(names), len(names)), np.nan) for _ in range(2))
    for place, name in enumerate(names):
        if name in answers:
            told = (answers[name].compared > 0) & known[place]
            estimates[place, told] = getattr(answers[name], field)[told]
            errors[place, told] = np.sqrt(getattr(answers[name], f"{field}_variance")[told])
    np.fill_diagonal(estimates, 0.0)
    np.fill_diagonal(errors, 0.0)
    return Shift(names=names, estimates=estimates, standard_errors=errors)


# --- contexts ------------------------------------------------------------------------------------


def tell_apart(conversation: Conversation, target: str, weights: Mapping[str, float]) -> Classifier:
    """A logistic classifier of the target against the mixture of the others, half the weight each.

    Newton's method, one step for each round of sums; whoever has none in the first round is left
    out. It ends where steps are small, after `MOST_STEPS`, or where somebody's sums would rest on
    too few rows; then the last parameters that all gave sums for are the classifier's. Held-out
    rows say how good it is.
    """
    shares = _half_each(target, weights)
    parameters = following = penalty = np.zeros(conversation.study.n_features + 1)
    n_steps, size = 0, math.inf
    for turn in range(MOST_STEPS + 1):
        sums = _asked(conversation, target, shares, following, Split.TRAINING)
        if turn == 0:
            if not _can_tell(target, sums):
                break
            shares = _half_each(target, {name: shares[name] for name in sums})
        elif len(sums) < len(shares):
            break
        parameters, n_steps = following, turn
        gradient, hessian = _mixed(shares, sums)
        penalty = penalty if turn else _penalty(hessian)
        step, size = _newton_step(gradient + penalty * parameters, hessian + np.diag(penalty))
        if size < SMALLEST_STEP:
            break
        following = parameters + step / max(1.0, size)
    bound, error = _bound(conversation, target, shares, parameters)
    return Classifier(
        parameters=parameters,
        n_steps=n_steps,
        converged=size < SMALLEST_STEP,
        total_variation=bound,
        standard_error=error,
    )


def _can_tell(target: str, told: Mapping[str, ClassifierSums]) -> bool:
    """Whether there is the target, and somebody to tell it from."""
    return target in told and len(told) > 1


def _half_each(target: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Half of all weight for the target; the others share the rest as in the mixture."""
    others = [name for name in sorted(weights) if name != target and weights[name] > 0]
    if target not in weights or not others:
        raise OptionError(f"target: expected '{target}' and another client with weight")
    rest = renormalised(dict(weights), others)
    return {target: 0.5, **{name: 0.5 * rest[name] for name in others}}


def _asked(
    conversation: Conversation,
    target: str,
    shares: Mapping[str, float],
    parameters: FloatArray,
    split: Split,
) -> dict[str, ClassifierSums]:
    """What the target and the others say of a classifier."""
    told: dict[str, ClassifierSums] = {}
    for is_target, names in ((1, [target]), (0, [name for name in shares if name != target])):
        fields = {"split": split, "is_target": is_target, "parameters": parameters}
        answers = conversation.ask(ClassifyContexts, names, ClassifierSums, **fields)
        told |= conversation.drop_by_name(
            answers, lambda name, answer: fault_in_classifier_sums(answer, int(name == target))
        )
    return told


def _mixed(
    shares: Mapping[str, float], sums: Mapping[str, ClassifierSums]
) -> tuple[FloatArray, FloatArray]:
    """Gradient and Hessian of the loss, over the target and the others."""
    gradient = weighted_sum(shares, {name: sums[name].gradient for name in sums})
    return gradient, weighted_sum(shares, {name: sums[name].hessian for name in sums})


def _penalty(hessian: FloatArray) -> FloatArray:  # (n_features + 1,)
    """A ridge penalty on slopes, in units of each feature's variance; none on the intercept."""
    weight = max(float(hessian[-1, -1]), np.finfo(float).tiny)
    variances = np.diagonal(hessian) / weight - (hessian[-1] / weight) ** 2
    penalty: FloatArray = RIDGE * weight * np.maximum(variances, 0.0)
    penalty[-1] = 0.0
    return penalty


def _newton_step(gradient: FloatArray, hessian: FloatArray) -> tuple[FloatArray, float]:
    """The step to the minimum of the quadratic, and its length in units of the loss."""
    diagonal = np.diagonal(hessian)
    scales = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    slope = gradient / scales
    step = -np.linalg.lstsq(hessian / np.outer(scales, scales), slope, rcond=1e-12)[0]
    return step / scales, math.sqrt(max(0.0, float(-slope @ step)))


def _bound(
    conversation: Conversation, target: str, shares: Mapping[str, float], parameters: FloatArray
) -> tuple[float, float]:
    """TV ≥ P_target(taken for the target) − P_others(the same) = 2·accuracy − 1, and its error."""
    told = _asked(conversation, target, shares, parameters, Split.EVALUATION)
    if not _can_tell(target, told):
        return math.nan, math.nan
    signed = {
        name: 2 * share * (1 if name == target else -1)
        for name, share in _half_each(target, {name: shares[name] for name in told}).items()
    }
    bound = sum(signed[name] * told[name].target_share for name in sorted(told))
    variance = sum(signed[name] ** 2 * told[name].target_share_variance for name in sorted(told))
    return bound, math.sqrt(variance)
