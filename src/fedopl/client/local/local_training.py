"""Rounds of local steps on one client, and what they share: examples, batches, Vowpal's state."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.local.local_steps import Examples, LocalRound, examples, improve
from fedopl.client.local.minibatches import Batches
from fedopl.client.local.vowpal import Vowpal
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.study.study import Study


class LocalTraining:
    """Takes the steps of one round after the other (Algorithm 2)."""

    def __init__(self, study: Study, batches: Batches) -> None:
        self._linear, self.batches = study.linear, batches
        self._examples: tuple[ScoredChunk, bytes, Examples] | None = None
        self._vowpal: tuple[Examples, Vowpal] | None = None

    def examples(self, rows: ScoredChunk, centre: FloatArray, scale: FloatArray) -> Examples:
        """The training rows, standardised once for all rounds that agree in how."""
        key = centre.tobytes() + scale.tobytes()
        if self._examples is None or self._examples[0] is not rows or self._examples[1] != key:
            self._examples = (rows, key, examples(rows.scored_rows(), centre, scale))
        return self._examples[2]

    def improved(
        self, parameters: FloatArray, rows: Examples, turn: int, mask: FloatArray | None
    ) -> FloatArray:  # shaped as parameters
        """The parameters after the steps of this round."""
        if self._linear.oracle == "csoaa-vw":
            return self._vowpal_steps(parameters, rows, turn)
        picks = self.batches.of_round(turn, len(rows.features), self._linear.training)
        this = LocalRound(picks=picks, decay=float(1 / np.sqrt(1 + turn / 4)))
        return improve(parameters, rows, self._linear.training, this, mask)

    def _vowpal_steps(self, parameters: FloatArray, rows: Examples, turn: int) -> FloatArray:
        plan, rng = self._linear.training, self.batches.generator(f"steps {turn}")
        # Its labels have no room for row weights: heavier rows are drawn more often instead.
        shares = None if rows.weights is None else rows.weights / rows.weights.sum()
        drawn = rng.choice(len(rows.features), (plan.local_steps, plan.batch_size), p=shares)
        if self._vowpal is None or self._vowpal[0] is not rows:
            self._vowpal = (rows, Vowpal(rows, plan.rate))
        return self._vowpal[1].improve(parameters, drawn)
