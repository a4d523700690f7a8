"""Neural policies: an exact linear policy, and a network for its residuals."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.schema import Encoding
from fedopl.policies.allowed.permissions import Permissions, largest_allowed
from fedopl.policies.export.target import Target, Term
from fedopl.policies.linear import LinearPolicy, known_scores, linear_fields
from fedopl.policies.policy import Domain, Policy, checked_contexts
from fedopl.policies.terms import Terms


class Layer(NamedTuple):
    """One layer: the next units are inputs @ weights + biases."""

    weights: FloatArray  # (n_inputs, n_units)
    biases: FloatArray  # (n_units,)


Network = tuple[Layer, ...]


def network_size(widths: Sequence[int]) -> int:
    """The number of parameters of a network of these widths, from its inputs to its outputs."""
    return sum((n_inputs + 1) * n_units for n_inputs, n_units in pairwise(widths))


def network_of(numbers: FloatArray, widths: Sequence[int]) -> Network:
    """The layers of a network whose parameters are given in one array."""
    layers, start = [], 0
    for n_inputs, n_units in pairwise(widths):
        stop = start + (n_inputs + 1) * n_units
        own = numbers[start:stop].reshape(n_inputs + 1, n_units)
        layers.append(Layer(own[:-1], own[-1]))
        start = stop
    return tuple(layers)


def network_numbers(network: Network) -> FloatArray:  # (network_size,)
    """The parameters of all layers in one array."""
    return np.concatenate([np.vstack([*layer]).ravel() for layer in network])


def passed(network: Network, contexts: FloatArray) -> list[FloatArray]:
    """The input of each layer, contexts first, and the network's output last."""
    values = [contexts]
    for place, layer in enumerate(network):
        sums = values[-1] @ layer.weights + layer.biases
        is_last = place == len(network) - 1
        values.append(sums if is_last else np.maximum(sums, 0.0, out=sums))
    return values


def first_network(widths: Sequence[int], rng: np.random.Generator) -> Network:
    """Initial layers, as He et al. (2015) draw them; the output is zero everywhere."""
    layers = [
        Layer(np.sqrt(2 / n_inputs) * rng.standard_normal((n_inputs, n_units)), np.zeros(n_units))
        for n_inputs, n_units in pairwise(widths)
    ]
    last = layers[-1]
    return (*layers[:-1], Layer(np.zeros_like(last.weights), last.biases))


def on_raw_contexts(
    network: Network, centre: FloatArray, scale: FloatArray, spread: float
) -> Network:
    """Convert a network of standardised contexts, in units of `spread`, to one of raw contexts."""
    first, *others = network
    weights = first.weights / scale[:, None]
    layers = [Layer(weights, first.biases - centre @ weights), *others]
    layers[-1] = Layer(*(spread * part for part in layers[-1]))
    return tuple(layers)


# Layers of more contexts at once would not fit in a core's cache.
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False, repr=False)
class NeuralPolicy(Policy):
    """π(x) = argmax_a φ(x)ᵀθ_a + f_a(x): the scores of a linear policy plus those of a network.

    Ties go to the lowest code. A network whose last layer is zero leaves the linear policy
    unchanged. Deciding needs only numpy.
    """

    kind: ClassVar[str] = "neural"
    message_field: ClassVar[str] = "neural"
    message_axes: ClassVar[tuple[str, ...]] = ("neural policies", "neural numbers")
    explained_by: ClassVar[str] = "profiles"
    reads_columns: ClassVar[bool] = False

    parameters: FloatArray  # (n_actions, n_terms + 1), of the linear part
    network: Network  # from features to a number for each action
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None  # how a table becomes features, where the study reads tables
    terms: Terms | None = None  # what the linear part is linear in, if not the features themselves
    permissions: Permissions | None = None

    @property
    def start(self) -> LinearPolicy:
        """The linear part, from which the training of the network started."""
        return LinearPolicy(**linear_fields(self))

    @classmethod
    def beside(cls, start: LinearPolicy, network: Network) -> Self:
        """A policy with this linear part and this network."""
        return cls(**linear_fields(start), network=network)

    @property
    def hidden(self) -> tuple[int, ...]:
        """The number of units of each hidden layer."""
        return tuple(len(layer.biases) for layer in self.network[:-1])

    @property
    def is_linear(self) -> bool:
        """Whether the network adds nothing, so that the linear policy decides alone."""
        return not any(part.any() for part in self.network[-1])

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The score of each action; the largest decides."""
        rows = checked_contexts(contexts, self.feature_names)
        found = self.start.scores(rows)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            found[some] += passed(self.network, rows[some])[-1]
        return found

    def worth(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The scores of actions that clients have scores for; NaN for others."""
        return known_scores(self.scores(contexts))

    def preferred(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action with the largest score."""
        return np.asarray(np.argmax(self.scores(contexts), axis=1))

    def best_allowed(self, contexts: FloatArray, forbidden: BoolArray) -> IntArray:  # (n_rows,)
        """The allowed action with the largest score."""
        return largest_allowed(self.scores(contexts), forbidden)

    def written_in(self, target: Target[Term]) -> Term:
        """The action with the largest score, in another language."""
        columns = list(zip(self.feature_names, target.features(), strict=True))
        units = columns
        for place, layer in enumerate(self.network[:-1]):
            names = [f"unit {n} of layer {place + 1}" for n in range(1, len(layer.biases) + 1)]
            sums = target.rectified_sums(place + 1, units, np.vstack([*layer]).T)
            units = list(zip(names, sums, strict=True))
        start, last = self.start, self.network[-1]
        if start.terms is not None:
            columns = start.terms.written_in(target, start.n_used)
        linear = start.coefficients[:, : len(columns)]
        both = np.column_stack([linear, last.weights.T, start.intercepts + last.biases])
        scores = target.weighted_sums(self.action_names, [*columns, *units], both)
        return target.largest(dict(enumerate(scores)))

    # --- numbers and files ---------------------------------------------------------------------

    def numbers(self) -> FloatArray:  # (n_numbers,)
        """The policy as a message carries it: the linear part, then the layers."""
        return np.concatenate([self.parameters.ravel(), network_numbers(self.network)])

    def numbers_for(self, domain: Domain) -> FloatArray:  # (n_numbers,)
        """The numbers in a domain with further terms."""
        linear = self.start.numbers_for(domain)
        return np.concatenate([linear.ravel(), network_numbers(self.network)])

    @classmethod
    def numbers_shape(cls, domain: Domain) -> tuple[int]:
        """How many numbers a message has for one policy; 0 if the study has no network."""
        if not domain.hidden:
            return (0,)
        n_linear = int(np.prod(LinearPolicy.numbers_shape(domain)))
        return (n_linear + network_size(widths_in(domain)),)

    @classmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried; a ValueError if the numbers are invalid."""
        if not domain.hidden:
            raise ValueError("a study without a network has no neural policies")
        shape = LinearPolicy.numbers_shape(domain)
        n_linear = int(np.prod(shape))
        start = LinearPolicy.from_numbers(numbers[:n_linear].reshape(shape), domain)
        return cls.beside(start, network_of(numbers[n_linear:], widths_in(domain)))

    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""
        layers = [
            {"weights": layer.weights.T.tolist(), "biases": layer.biases.tolist()}
            for layer in self.network
        ]
        return {**self.start.content(), "layers": layers}

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""
        layers = tuple(
            Layer(np.array(one["weights"], np.float64).T, np.array(one["biases"], np.float64))
            for one in content["layers"]
        )
        n_inputs = len(domain.features)
        for weights, biases in layers:
            if weights.shape != (n_inputs, len(biases)) or biases.ndim != 1:
                raise ValueError("a layer has the wrong size")
            if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
                raise ValueError("a number is not finite")
            n_inputs = len(biases)
        if len(layers) < 2 or n_inputs != len(domain.actions):
            raise ValueError("the layers do not lead from features to actions")
        return cls.beside(LinearPolicy.from_content(content, domain), layers)

    def __repr__(self) -> str:
        layers = "-".join(map(str, self.hidden))
        sizes = f"{len(self.action_names)} actions, {len(self.feature_names)} features"
        return f"NeuralPolicy({sizes}, layers {layers})"


def widths_in(domain: Domain) -> tuple[int, ...]:
    """The widths of networks in this domain, from their inputs to their outputs."""
    return (len(domain.features), *domain.hidden, len(domain.actions))
