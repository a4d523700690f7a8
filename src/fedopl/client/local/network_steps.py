"""Local steps of a network on the residuals of the linear policy, and its loss on other rows.

In each round every row is in one batch, and each batch has one step.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.messages.learning.policy_steps import TrainNetwork
from fedopl.messages.message import RowSplit
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import Layer, Network, network_numbers, network_of, passed
from fedopl.study.study import Study

_FORGET_MEAN, _FORGET_SQUARE = 0.9, 0.999
# The fewest rows of a step; with fewer rows there are fewer steps.
LEAST_BATCH = 16
# The number of rows whose loss is computed at a time.
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False, kw_only=True)
class NetworkRows:
    """Rows as the network sees them: everything in the units that the federation agreed on."""

    contexts: FloatArray  # (n_rows, n_features)
    scores: FloatArray  # (n_rows, n_actions), zero where unknown
    linear: FloatArray  # (n_rows, n_actions), the linear part's scores; zero where unknown
    known: BoolArray  # (n_rows, n_actions)
    weights: FloatArray | None  # (n_rows,), of mean one

    def taken(self, rows: IntArray | slice) -> "NetworkRows":
        """Some of the rows."""
        arrays = vars(self).items()
        some: dict[str, Any] = {n: own if own is None else own[rows] for n, own in arrays}
        return NetworkRows(**some)


class NetworkTraining:
    """The rows of a client's steps on a network, standardised once for all rounds."""

    def __init__(self, study: Study, obeyed: ObeyedScores) -> None:
        self._study, self._obeyed = study, obeyed
        self._kept: tuple[ScoredChunk, bytes, tuple[NetworkRows, NetworkRows]] | None = None

    def rows(self, whole: ScoredChunk, query: TrainNetwork) -> tuple[NetworkRows, NetworkRows]:
        """The rows that steps take, and the first fold, on which the loss is measured."""
        agreed = (query.linear, query.centre, query.scale, np.array([query.spread]))
        key = b"".join(array.tobytes() for array in agreed)
        if self._kept is None or self._kept[0] is not whole or self._kept[1] != key:
            fitting = self._rows_of(whole, RowSplit.FITTING, query)
            self._kept = whole, key, (fitting, self._rows_of(whole, RowSplit.VALIDATION, query))
        return self._kept[2]

    def _rows_of(self, whole: ScoredChunk, split: RowSplit, query: TrainNetwork) -> NetworkRows:
        """The rows of a split that have any score."""
        rows = whole.rows(split)
        contexts, scores = whole.data.contexts[rows], whole.scores[rows]
        # A softened policy takes only what may be given, too.
        if self._study.neural.loss == "softmax":
            scores = self._obeyed.allowed(contexts, scores)
        own = np.isfinite(scores).any(axis=1)
        contexts, scores = contexts[own], scores[own]
        linear = LinearPolicy.from_numbers(query.linear, self._study).scores(contexts)
        known, weights = np.isfinite(scores), whole.weights(rows)
        if weights is not None:
            weights = weights[own] / weights[own].mean()
        return NetworkRows(
            contexts=(contexts - query.centre[:-1]) / query.scale[:-1],
            scores=np.where(known, scores, 0.0) / query.spread,
            linear=np.where(known, linear, 0.0) / query.spread,
            known=known,
            weights=weights,
        )


# --- loss functions -------------------------------------------------------------------------------


class Regression:
    """Σ_a ½(Γ̂(a) − φᵀθ_a − f_a)²: the network predicts what the linear part misses."""

    def pulls(self, rows: NetworkRows, outputs: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """The gradient of each row's loss by output."""
        missed: FloatArray = outputs - (rows.scores - rows.linear)
        return missed * rows.known

    def lessened(self, rows: NetworkRows, outputs: FloatArray) -> FloatArray:  # (n_rows,)
        """Each row's loss, less its loss without the network."""
        missed = rows.scores - rows.linear
        return np.asarray((rows.known * outputs * (outputs / 2 - missed)).sum(axis=1))


class Softmax:
    """−Σ_a q_a Γ̂(a), where q is the softmax of φᵀθ + f: the value of a softened policy."""

    def pulls(self, rows: NetworkRows, outputs: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """The gradient of each row's loss by output."""
        chances = _chances(rows, outputs)
        value = (chances * rows.scores).sum(axis=1, keepdims=True)
        return np.asarray(chances * (value - rows.scores))

    def lessened(self, rows: NetworkRows, outputs: FloatArray) -> FloatArray:  # (n_rows,)
        """Each row's loss, less its loss without the network."""
        decided = np.where(rows.known, rows.linear, -np.inf).argmax(axis=1)[:, None]
        without = np.take_along_axis(rows.scores, decided, axis=1)[:, 0]
        return np.asarray(without - (_chances(rows, outputs) * rows.scores).sum(axis=1))


def _chances(rows: NetworkRows, outputs: FloatArray) -> FloatArray:  # (n_rows, n_actions)
    """Softmax over the actions that a row has a score for."""
    logits = np.where(rows.known, rows.linear + outputs, -np.inf)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


LOSSES: dict[str, Regression | Softmax] = {"regression": Regression(), "softmax": Softmax()}


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps:
    """How a round's steps are taken."""

    loss: Regression | Softmax
    rate: float
    batches: list[IntArray]  # the rows of each step; no row is in two


def dealt(n_rows: int, n_steps: int, rng: Generator) -> list[IntArray]:
    """All rows, shuffled and divided into batches, one for each step."""
    n_batches = max(1, min(n_steps, n_rows // LEAST_BATCH))
    return np.array_split(rng.permutation(n_rows), n_batches)


@np.errstate(over="ignore", invalid="ignore")  # the server's network may be anything
def trained(network: Network, rows: NetworkRows, steps: Steps) -> Network:
    """The network after the round's steps, each against the mean pull of its rows."""
    numbers, widths = network_numbers(network), [len(network[0].weights)]
    widths += [len(layer.biases) for layer in network]
    moments = Adam(numbers.shape)
    for own in steps.batches:
        slope = network_numbers(_slopes(network, rows.taken(own), steps))
        numbers = numbers - steps.rate * moments.step(slope)
        network = network_of(numbers, widths)
    return network


class Adam:
    """Steps of about the same length for every number (Kingma & Ba 2015)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._mean, self._square, self._n_steps = np.zeros(shape), np.zeros(shape), 0

    def step(self, slope: FloatArray) -> FloatArray:  # shaped as slope
        """The mean of recent gradients, in units of their size."""
        self._n_steps += 1
        self._mean += (1 - _FORGET_MEAN) * (slope - self._mean)
        self._square += (1 - _FORGET_SQUARE) * (slope**2 - self._square)
        mean = self._mean / (1 - _FORGET_MEAN**self._n_steps)
        size = np.sqrt(self._square / (1 - _FORGET_SQUARE**self._n_steps))
        return mean / (size + 1e-8)


def _slopes(network: Network, rows: NetworkRows, steps: Steps) -> Network:
    """The mean pull of these rows on every layer."""
    values = passed(network, rows.contexts)
    last = steps.loss.pulls(rows, values[-1])
    # Each row's gradient by the outputs of each layer, before they are rectified.
    pulls = [last if rows.weights is None else last * rows.weights[:, None]]
    for place in range(len(network) - 1, 0, -1):
        below = pulls[0] @ network[place].weights.T
        pulls.insert(0, below * (values[place] > 0))
    n_rows = len(rows.contexts)
    return tuple(
        Layer(value.T @ pull / n_rows, pull.sum(axis=0) / n_rows)
        for value, pull in zip(values, pulls, strict=False)
    )


# --- loss on rows that no step takes --------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore")
def losses(
    network: Network, rows: NetworkRows, loss: Regression | Softmax
) -> FloatArray:  # (n_rows,)
    """Each row's loss less its loss without the network; infinite where it is not a number."""
    found = np.empty(len(rows.contexts))
    for first in range(0, len(found), _ROWS_AT_ONCE):
        own = slice(first, first + _ROWS_AT_ONCE)
        some = rows.taken(own)
        found[own] = loss.lessened(some, passed(network, some.contexts)[-1])
    found[np.isnan(found)] = np.inf
    return found if rows.weights is None else found * rows.weights
