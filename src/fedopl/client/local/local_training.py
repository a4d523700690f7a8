"""Rounds of local steps at one client, and what they share: examples, batches, Vowpal's state.

The client's secret determines the rows that a round takes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.local.local_steps import (
    DiskExamples,
    Examples,
    StandardisedRows,
    examples,
    improve,
)
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.refusal import RefusalCode
from fedopl.study.plans import TrainingPlan
from fedopl.study.study import Study


class Batches:
    """Rows for each round of one client; the same for the same round, in any process.

    Rounds take consecutive parts of the shuffled rows, until these are shuffled again (an epoch).
    Steps that use every row once before any row again need fewer passes than independent draws. The
    rows that an epoch leaves out could be found by differencing with the sum over all rows. So
    there are no such rows, or as many as a round takes. Where that is not possible, batches are
    independent draws.
    """

    def __init__(self, draws: PrivateDraws) -> None:
        self.draws = draws
        self._epoch: tuple[tuple[int, int], IntArray] | None = None

    def of_round(self, turn: int, n_rows: int, plan: TrainingPlan) -> IntArray | None:
        """The rows of each step, (n_steps, n_batch_rows); None if every step takes all rows."""
        if plan.batch_size >= n_rows:
            return None
        shape = (plan.local_steps, plan.batch_size)
        n_draws = plan.local_steps * plan.batch_size
        n_rounds = rounds_per_epoch(n_rows, n_draws)
        if not n_rounds:
            return self.draws.generator(f"steps {turn}").integers(0, n_rows, shape)
        number, place = divmod(turn, n_rounds)
        if self._epoch is None or self._epoch[0] != (number, n_rows):
            shuffled = self.draws.generator(f"pack {number}").permutation(n_rows)
            self._epoch = (number, n_rows), shuffled
        return self._epoch[1][place * n_draws : (place + 1) * n_draws].reshape(shape)


def rounds_per_epoch(n_rows: int, n_draws: int) -> int:
    """How many rounds are drawn before the rows are shuffled again; 0 if too few rows remain."""
    n_rounds, left_out = divmod(n_rows, n_draws)
    return max(0, n_rounds - bool(left_out))


@dataclass(frozen=True, eq=False)
class ScoredStudyRows:
    """All rows with their scores: the data, how to iterate over it, and which scores these are."""

    given: LoggedData
    chunks: Callable[[], Iterable[ScoredChunk]]
    scores: object  # the same object for the same scores


class LocalTraining:
    """Takes the steps of each round (Algorithm 2)."""

    def __init__(self, study: Study, batches: Batches) -> None:
        self._linear, self.batches = study.linear, batches
        self._examples: tuple[object, bytes, StandardisedRows] | None = None
        self._vowpal: tuple[StandardisedRows, Vowpal] | None = None

    def examples(
        self, rows: ScoredStudyRows, centre: FloatArray, scale: FloatArray
    ) -> StandardisedRows:
        """The training rows, standardised once for all rounds with the same centre and scale."""
        key, kept = centre.tobytes() + scale.tobytes(), self._examples
        if kept is not None and kept[0] is rows.scores and kept[1] == key:
            return kept[2]
        found: StandardisedRows
        if not rows.given.is_on_disk:
            (whole,) = rows.chunks()
            found = examples(whole.scored_rows(), centre, scale)
        elif self._linear.oracle == "csoaa-vw":  # it takes all rows as lines of text
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        else:
            found = DiskExamples(rows.chunks, rows.given, centre, scale)
        self._examples = rows.scores, key, found
        return found

    def improved(
        self, parameters: FloatArray, rows: StandardisedRows, turn: int, mask: FloatArray | None
    ) -> FloatArray:  # shaped as parameters
        """The parameters after the steps of this round."""
        if self._linear.oracle == "csoaa-vw":
            return self._vowpal_steps(parameters, rows, turn)
        picks = self.batches.of_round(turn, rows.n_rows, self._linear.training)
        decay = float(1 / np.sqrt(1 + turn / 4))
        return improve(parameters, rows, self._linear.training, picks, decay, mask)

    def _vowpal_steps(
        self, parameters: FloatArray, rows: StandardisedRows, turn: int
    ) -> FloatArray:  # shaped as parameters
        assert isinstance(rows, Examples)  # noqa: S101  (others were refused)
        plan, rng = self._linear.training, self.batches.draws.generator(f"steps {turn}")
        # Vowpal's labels cannot carry row weights, so heavier rows are drawn more often instead.
        shares = None if rows.weights is None else rows.weights / rows.weights.sum()
        drawn = rng.choice(len(rows.features), (plan.local_steps, plan.batch_size), p=shares)
        if self._vowpal is None or self._vowpal[0] is not rows:
            self._vowpal = (rows, Vowpal(rows, plan.rate))
        return self._vowpal[1].improve(parameters, drawn)


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
