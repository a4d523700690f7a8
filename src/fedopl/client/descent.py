"""Local steps of the CSOAA oracle: stochastic least squares on the scores (Algorithm 2)."""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray
from fedopl.study import TrainingPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """A client's training rows, standardised as the whole federation agreed."""

    features: FloatArray  # (n_rows, n_features + 1)
    scores: FloatArray  # (n_rows, n_actions), zero where unknown
    known: BoolArray | None  # (n_rows, n_actions), None if all are
    weights: FloatArray | None  # (n_rows,), of mean one
    curvature: float  # the largest eigenvalue of the mean of φφᵀ
    trace: float


def examples(
    contexts: FloatArray,
    scores: FloatArray,
    weights: FloatArray | None,
    centre: FloatArray,
    scale: FloatArray,
) -> Examples:
    """Standardise, and measure how steep the objective is here."""
    features = np.ones((len(contexts), contexts.shape[1] + 1))
    features[:, :-1] = (contexts - centre[:-1]) / scale[:-1]
    known = np.isfinite(scores)
    complete = bool(known.all())
    weights = None if weights is None else weights / weights.mean()
    weighted = features if weights is None else features * weights[:, None]
    gram = weighted.T @ features / len(features)
    return Examples(
        features=features,
        scores=scores if complete else np.where(known, scores, 0.0),
        known=None if complete else known,
        weights=weights,
        curvature=float(np.linalg.eigvalsh(gram)[-1]),
        trace=float(np.trace(gram)),
    )


def improve(
    parameters: FloatArray,
    rows: Examples,
    plan: TrainingPlan,
    mask: FloatArray | None,
    rng: np.random.Generator,
    decay: float,
) -> FloatArray:
    """Take the plan's local steps from these parameters.

    The step is a share of the largest that is stable, 1/(curvature + trace/batch), so that one rate
    suits features of any scale. `mask` keeps parameters outside an action's block at zero.
    """
    n_rows = len(rows.features)
    batch = min(plan.batch_size, n_rows)
    step = plan.rate * decay / (rows.curvature + rows.trace / batch + plan.proximal)
    current = parameters
    picks = rng.integers(0, n_rows, (plan.local_steps, batch)) if batch < n_rows else None
    for turn in range(plan.local_steps):
        pick = slice(None) if picks is None else picks[turn]
        features = rows.features[pick]
        error = features @ current.T
        error -= rows.scores[pick]
        if rows.known is not None:
            error *= rows.known[pick]
        if rows.weights is not None:
            error *= rows.weights[pick, None]
        gradient = error.T @ features
        gradient /= batch
        if plan.proximal:
            gradient += plan.proximal * (current - parameters)
        if mask is not None:
            gradient *= mask
        current = current - step * gradient
    return current
