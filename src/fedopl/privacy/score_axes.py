"""The axes along which scores of candidate policies get noise, chosen so that noise is small.

Candidates that decide what was done share the same large term of a doubly robust score, (y − μ)/e.
Noise of one size on each score would have to cover all of them being large at once, and differences
would have it twice. So scores are turned first: into gains over what was done, the learned policy's
less up to half of the arm's; the gain of the client's own policy, at half its size; and what was
done itself, enlarged, as it is small. The server turns sums back, and noise with them.
"""

from functools import cache
from itertools import product

import numpy as np

from fedopl.base.arrays import FloatArray

# How far models may say that outcomes lie from the middle of their range, in half-ranges. Scores
# are as right with any such models, and the less they may leave, the less noise it takes.
MOST_MODELLED = 2 / 3
# The client's own policy counts for less than the others: its value has more noise.
_OWN = 0.5


@cache
def score_axes(overlap: float, *, own: bool = True) -> FloatArray:  # (4, 4), or (3, 3)
    """What scores of the learned policy, an arm, what was done and the own policy are turned by.

    Without the last, where clients have no policies of their own, the others are as they were.

    With propensities of e or more, the first two gains may both be 1/e − 1 times as large as
    what models leave, or one of them, and the other once. Such pairs lie in an ellipse
    u² + v² − 2huv ≤ 1 that is smallest for about h = (1 − 2e)/(2 − 2e); of a circle h is 0.
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
    """The covariance of noise in scores, where turned ones have noise of variance 1."""
    back = np.linalg.inv(score_axes(overlap, own=own))
    found: FloatArray = back @ back.T
    return found


@cache
def longest_turned(overlap: float, *, own: bool = True) -> float:
    """How long a row's scores are after turning, at most, in half-ranges of the outcome.

    Outcomes y lie in ±1, models μ within `MOST_MODELLED`, propensities in e … 1. Scores are linear
    in each of y, μ and 1/e by itself, and length is convex: it is largest where all are at an end.
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
