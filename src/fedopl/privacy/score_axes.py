"""The axes along which scores of candidate policies get noise, chosen so that noise is small.

Candidates that decide what was done share the same large term of a doubly robust score, (y − μ)/e.
Noise of one size on each score would have to cover all scores being large at once, and differences
would contain it twice. So scores are rotated first, into: the gains over what was done, where the
learned policy's gain is taken less up to half of the arm's; the gain of the client's own policy, at
half its size; and the score of what was done, enlarged, as it is small. The server rotates sums
back, and the noise with them.
"""

from functools import cache
from itertools import product

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import inv

# How far models may predict outcomes from the middle of their range, in half-ranges. Scores are
# unbiased with any such models, and smaller residuals need less noise.
MOST_MODELLED = 2 / 3
# The client's own policy matters less than the others, so its value gets more noise.
_OWN = 0.5


@cache
def score_axes(overlap: float, *, own: bool = True) -> FloatArray:  # (4, 4), or (3, 3)
    """The matrix that rotates scores: of the learned policy, an arm, what was done, the own policy.

    If clients have no policies of their own, the last is left out and the others stay the same.

    With propensities of e or more, the first two gains may both be 1/e − 1 times as large as the
    models' residuals; or one of them is, and the other is as large as the residuals. Such pairs lie
    in an ellipse u² + v² − 2huv ≤ 1 that is smallest for about h = (1 − 2e)/(2 − 2e); for a circle
    h is 0.
    """
    shared = max(0.0, 1 - 2 * overlap) / max(2 - 2 * overlap, 1.0)
    axes = np.diag([1.0, np.sqrt(1 - shared**2), 1 / np.sqrt(overlap), _OWN])
    axes[0, 1] = -shared
    gains = np.eye(4)
    gains[[0, 1, 3], 2] = -1.0
    size = 3 + own
    found: FloatArray = (axes @ gains)[:size, :size]
    found.setflags(write=False)
    return found


def noise_of_scores(overlap: float, *, own: bool = True) -> FloatArray:  # as the axes
    """The covariance of noise in scores, if rotated scores have noise of variance 1."""
    back = inv(score_axes(overlap, own=own))
    return back @ back.T


@cache
def longest_turned(overlap: float, *, own: bool = True) -> float:
    """The largest length of a row's rotated scores, in half-ranges of the outcome.

    Outcomes y lie in ±1, models μ within `MOST_MODELLED`, propensities in e … 1. Scores are linear
    in each of y, μ and 1/e separately, and length is convex, so it is largest if all are at an end.
    """
    ends = (-MOST_MODELLED, MOST_MODELLED)
    scores = []
    for outcome, weight, modelled in product((-1.0, 1.0), (1.0, 1 / overlap), ends):
        taken = modelled + (outcome - modelled) * weight
        # Each policy decides what was done, or something else.
        for learned, arm, alone in product((taken, *ends), repeat=3):
            scores.append((learned, arm, outcome, alone)[: 3 + own])
    axes = score_axes(overlap, own=own)
    return float(np.linalg.norm(np.array(scores) @ axes.T, axis=1).max())
