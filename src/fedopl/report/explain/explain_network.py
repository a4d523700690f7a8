"""Explains neural policies: the effect of each feature, and how much features do together."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.allowed.permissions import OTHER
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.explain.curve_words import (
    curve_sentences,
    curve_table,
    curves_as_json,
    policy_as_json,
    policy_as_text,
)
from fedopl.report.explain.explain_curves import (
    N_POINTS,
    REACH,
    Curve,
    CurveExplanation,
    TermMoments,
)
from fedopl.report.explain.explain_weights import Explanation, explain_weights
from fedopl.report.words.numbers import listed, percent
from fedopl.results.record import Record

_N_MADE_UP = 2000
_TELLING = 0.5  # of how scores differ: where curves account for less, no sentence is made of them


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkExplanation:
    """Every feature's curve, drawn from the policy itself with all others at their means."""

    curves: CurveExplanation
    share: float  # of how scores differ in made-up contexts, what the curves say together

    @property
    def sentences(self) -> list[str]:
        """A sentence that the curves do not show everything, then what they show."""
        said = curve_sentences(self.curves)
        if self.share < _TELLING:  # what favours an action hangs on other features, too
            said = [text for text in said if " is favoured by " not in text]
        limits = (
            "Below, one feature moves while all others are at their means. In made-up contexts "
            "with the clients' means and covariances, that accounts for "
            f"{percent(max(self.share, 0.0))} of how scores differ; the rest is what features do "
            "only together, which is not shown here."
        )
        return [limits, *said]


def linear_alone(policy: NeuralPolicy) -> str | None:
    """A sentence that the network adds nothing, or None if it adds something."""
    if not policy.is_linear:
        return None
    return (
        "No network demonstrably did better on rows kept back, so the linear policy that training "
        "began with decides alone."
    )


def explain_network(policy: NeuralPolicy, record: Record) -> NetworkExplanation:
    """The curves of a policy; the run gives means and covariances."""
    means, covariances = record.statistics.term_moments(record.mixture)
    n_features = len(policy.feature_names)
    moments = means[:n_features], covariances[:n_features, :n_features]
    about = explain_weights(policy.start, record)
    # Sentences need names, levels and flags; the linear part's own weights explain nothing here.
    about = replace(
        about,
        features=policy.feature_names,
        effects=np.ones((len(about.names), n_features)),
        yes_no=about.yes_no[:n_features],
        typical=str(policy.names(moments[0][None, :], client=OTHER)[0]),
    )
    curves = [_curve(policy, about, moments, place) for place in range(n_features)]
    return NetworkExplanation(
        curves=CurveExplanation(
            weights=about,
            curves=tuple(sorted(curves, key=lambda curve: -float(curve.strength.max()))),
            pairs=(),
            waves=None,
            average=moments[0],
            from_run=True,
        ),
        share=_share_of_curves(policy, curves, moments, about),
    )


def network_as_text(policy: NeuralPolicy, record: Record | None, top: int) -> str:
    """The curves if the run is known; otherwise only the linear part, and a note about that."""
    if (alone := linear_alone(policy)) is not None:
        return f"{alone}\n\n{policy_as_text(policy.start, record, top)}"
    if record is None:
        return f"{_without_run(policy)}\n\n{policy_as_text(policy.start, None, top)}"
    found = explain_network(policy, record)
    words = "\n".join(found.sentences)
    return f"{words}\n\n{curve_table(found.curves, top)}"


def network_as_json(policy: NeuralPolicy, record: Record | None) -> dict[str, Any]:
    """The explanation of a neural policy as JSON, with all points of all curves."""
    if policy.is_linear or record is None:
        said = linear_alone(policy) or _without_run(policy)
        return {"network": said, "linear part": policy_as_json(policy.start, record)}
    found = explain_network(policy, record)
    beside = {"sentences": found.sentences, "share of curves": found.share}
    return curves_as_json(found.curves) | beside


def _without_run(policy: NeuralPolicy) -> str:
    layers = listed([str(width) for width in policy.hidden])
    return (
        f"A linear policy, and a network with layers of {layers} units that changes its "
        "scores. A network has no weights to read. Name the run that it came from to see its "
        "curves. The linear part alone, which does not decide:"
    )


def _curve(policy: NeuralPolicy, about: Explanation, moments: TermMoments, place: int) -> Curve:
    means, covariances = moments
    deviation = float(np.sqrt(covariances[place, place]))
    if about.yes_no[place]:
        at, likely = np.array([0.0, 1.0]), np.array([1 - means[place], means[place]])
        shown = at
    else:
        steps = np.linspace(-REACH, REACH, N_POINTS)
        at, likely = means[place] + deviation * steps, np.exp(-(steps**2) / 2)
        shown = at[:: N_POINTS // 4]
    contexts = np.tile(means, (len(at), 1))
    contexts[:, place] = at
    adds = _contrasted(policy, contexts)
    adds = adds - np.average(adds, axis=1, weights=likely)[:, None]
    return Curve(
        place=place,
        feature=policy.feature_names[place],
        at=at,
        adds=adds,
        shown=shown,
        strength=np.sqrt(np.average(adds**2, axis=1, weights=likely)),
    )


def _contrasted(policy: NeuralPolicy, contexts: FloatArray) -> FloatArray:  # (n_scores, n_rows)
    return policy.start.contrasted(policy.scores(contexts).T)[1]


def _share_of_curves(
    policy: NeuralPolicy, curves: list[Curve], moments: TermMoments, about: Explanation
) -> float:
    """The share of the variance of scores that the sum of the curves explains."""
    rng = np.random.default_rng(0)
    contexts = rng.multivariate_normal(*moments, _N_MADE_UP, method="eigh")
    flags = np.flatnonzero(about.yes_no)
    contexts[:, flags] = rng.random((_N_MADE_UP, len(flags))) < moments[0][flags]
    scores = _contrasted(policy, contexts)
    added = np.zeros_like(scores)
    for curve in curves:
        own = contexts[:, curve.place]
        added += [np.interp(own, curve.at, adds) for adds in curve.adds]
    total = float(scores.var(axis=1).sum())
    return 1 - float((scores - added).var(axis=1).sum()) / total if total else 1.0
