"""Shapes of rewards: functions of five numbers and one feature of 0 or 1, drawn at random.

Each function here draws a `Shape` with one column for each action. It also draws the features that
an action depends on, and where the shape bends.
"""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray

Shape = Callable[[FloatArray], FloatArray]  # contexts (n_rows, 6) → (n_rows, n_actions)


def linear(rng: np.random.Generator, n_actions: int, size: float = 0.5) -> Shape:
    """Slopes for every feature, and an intercept."""
    slopes = rng.normal(0, size, (n_actions, 7))
    return lambda x: x @ slopes[:, :-1].T + slopes[:, -1]


def smooth(rng: np.random.Generator, n_actions: int, size: float = 1.0) -> Shape:
    """A wave of one number, a square of another, a product of two, and slopes."""
    first, second, third, fourth = _features(rng, n_actions, 4)
    slopes = linear(rng, n_actions, 0.3 * size)
    frequencies, phases = rng.uniform(1, 2, n_actions), rng.uniform(0, 2 * np.pi, n_actions)
    centres = rng.normal(0, 0.5, n_actions)
    waves, squares, products = _sizes(rng, n_actions, 1.0, 0.4, 0.4) * size

    def shape(x: FloatArray) -> FloatArray:
        found: FloatArray = waves * np.sin(frequencies * x[:, first] + phases)
        found = found + squares * ((x[:, second] - centres) ** 2 - 1)
        found = found + products * x[:, third] * x[:, fourth]
        return found + slopes(x)

    return shape


def steps(rng: np.random.Generator, n_actions: int) -> Shape:
    """A threshold of one number, and a corner where two numbers both exceed theirs."""
    features = _features(rng, n_actions, 3)
    cuts = rng.normal(0, 0.6, (3, n_actions))
    alone, together = _sizes(rng, n_actions, 0.5, 1.0)

    def shape(x: FloatArray) -> FloatArray:
        one, two, three = (x[:, own] > cut for own, cut in zip(features, cuts, strict=True))
        found: FloatArray = alone * (one - 0.5) + together * (two & three)
        return found

    return shape


def triples(rng: np.random.Generator, n_actions: int) -> Shape:
    """A nonlinear product of three numbers, and slopes; no two of the numbers reveal it."""
    first, second, third = _features(rng, n_actions, 3)
    (sizes,) = _sizes(rng, n_actions, 1.2)
    slopes = linear(rng, n_actions, size=0.3)
    return lambda x: sizes * np.tanh(2 * x[:, first] * x[:, second] * x[:, third]) + slopes(x)


def xor(rng: np.random.Generator, n_actions: int) -> Shape:
    """The right action depends on whether two numbers lie on the same side of thresholds."""
    first, second = rng.permutation(5)[:2]
    cuts = rng.normal(0, 0.3, 2)
    sides = np.array([(0.0, 0.7, -0.7, 0.7)[action % 4] for action in range(n_actions)])

    def shape(x: FloatArray) -> FloatArray:
        same = (x[:, first] > cuts[0]) == (x[:, second] > cuts[1])
        found: FloatArray = np.where(same, 1.0, -1.0)[:, None] * sides
        return found

    return shape


def _features(rng: np.random.Generator, n_actions: int, how_many: int) -> np.ndarray:
    """For every action, `how_many` different ones of the five numbers."""
    return np.stack([rng.permutation(5)[:how_many] for _ in range(n_actions)], axis=1)


def _sizes(rng: np.random.Generator, n_actions: int, *typical: float) -> FloatArray:
    """Random sizes close to the typical ones, up or down."""
    shape = (len(typical), n_actions)
    signs = rng.choice([-1.0, 1.0], shape)
    found: FloatArray = signs * rng.uniform(0.75, 1.25, shape) * np.array(typical)[:, None]
    return found
