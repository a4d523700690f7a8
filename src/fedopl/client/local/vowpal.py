"""Vowpal Wabbit's online CSOAA as the local oracle, as in the paper. Needs the `vw` extra."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.local.local_steps import Examples


class Vowpal:
    """One workspace for one client, kept between rounds, so that its step sizes keep decaying.

    `vowpalwabbit.sklearn.VW.fit` would build a new workspace each time and forget the weights.
    """

    def __init__(self, rows: Examples, rate: float) -> None:
        from vowpalwabbit import Workspace

        self._n_actions = rows.scores.shape[1]
        self._stride = 1 << (self._n_actions - 1).bit_length()  # weights of a feature lie together
        # The longest stable step on one row is one over the squared length of its features.
        step = rate / rows.trace
        options = f"--csoaa {self._n_actions} --sgd -l {step} --power_t 0.25 --noconstant --quiet"
        self._workspace: Any = Workspace(options)
        scores = rows.scores if rows.known is None else np.where(rows.known, rows.scores, np.nan)
        self._lines = [_line(x, g) for x, g in zip(rows.features, scores, strict=True)]

    def improve(self, parameters: FloatArray, picks: IntArray) -> FloatArray:
        """The given parameters after learning from these rows, one after the other."""
        cells = list(np.ndindex(parameters.shape))
        for action, feature in cells:
            # Costs are negative rewards, so weights are negative parameters.
            cost = -float(parameters[action, feature])
            self._workspace.set_weight(feature * self._stride, action, cost)
        for pick in picks.reshape(-1):
            self._workspace.learn(self._lines[pick])
        found = [self._workspace.get_weight(f * self._stride, a) for a, f in cells]
        return -np.array(found, np.float64).reshape(parameters.shape)


def _line(features: FloatArray, scores: FloatArray) -> str:
    """A row in Vowpal Wabbit's text format: costs of the scored actions, features by number."""
    known = [(action, s) for action, s in enumerate(scores.tolist(), start=1) if np.isfinite(s)]
    costs = " ".join(f"{action}:{-score!r}" for action, score in known)
    return f"{costs} | " + " ".join(f"{j}:{x!r}" for j, x in enumerate(features.tolist()))
