"""A network of rectified layers as plain arrays: its parameters, and its output for contexts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray


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
