"""Peers of `privacy.py`: other ways to learn a linear policy with differential privacy.

All learn a linear model of every action's outcome, the loss of fedopl's first sums, and take the
action with the largest prediction. Clients add noise of their own (local noise), in floating point,
since the rows here are simulated and need no protection. A row's features f (with an intercept) are
no longer than √(p + 1), as fedopl's are. If a method leaves numbers open, several are tried, and
the best is reported, in hindsight.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtr

from fedopl.privacy.accountant import mu_for

Array = np.ndarray
RADIUS = 1.0  # of features, in √p
LARGEST_OUTCOME = 4.5  # AdaSSP bounds outcomes by it
FULL_STEPS = 15
ROUNDS, LOCAL_STEPS, SAMPLED = 10, 15, 0.1


class Rows(NamedTuple):
    """One client's rows, bounded."""

    features: Array  # (n_rows, p + 1), an intercept last
    actions: Array  # (n_rows,)
    outcomes: Array  # (n_rows,)


class Budget(NamedTuple):
    """What is promised; nothing, where ε is infinite."""

    epsilon: float
    delta: float

    @property
    def mu(self) -> float:
        """The same as Gaussian differential privacy."""
        return mu_for(self.epsilon, self.delta) if math.isfinite(self.epsilon) else math.inf


def bounded(contexts: Array, actions: Array, outcomes: Array) -> Rows:
    """Rows that are too long count for less; nothing is moved."""
    longest = RADIUS * math.sqrt(contexts.shape[1])
    weights = np.minimum(1.0, longest / np.linalg.norm(contexts, axis=1))
    wide = np.column_stack([contexts, np.ones(len(contexts))])
    return Rows(wide * weights[:, None], actions, outcomes * weights)


# --- sufficient statistics ------------------------------------------------------------------------


def adassp(
    clients: Sequence[Rows], n_actions: int, budget: Budget, rng: np.random.Generator, _: object
) -> Array:  # (n_actions, p + 1)
    """AdaSSP (Wang 2018): noisy squares and products, and a ridge as large as the noise asks for.

    A third of μ² each for the smallest eigenvalue, squares and products.
    """
    p = clients[0].features.shape[1]
    share = budget.mu / math.sqrt(3)
    square, largest = p, LARGEST_OUTCOME * math.sqrt(p)
    deviations = [math.sqrt(len(clients)) * moves / share for moves in (square, largest)]
    found = np.empty((n_actions, p))
    for action in range(n_actions):
        gram, products = np.zeros((p, p)), np.zeros(p)
        for own in clients:
            taken = own.features[own.actions == action]
            limited = np.clip(own.outcomes, -LARGEST_OUTCOME, LARGEST_OUTCOME)
            gram += taken.T @ taken
            products += limited[own.actions == action] @ taken
        noise = np.triu(rng.normal(size=(p, p))) * deviations[0]
        least = max(np.linalg.eigvalsh(gram)[0] + rng.normal() * deviations[0], 0.0)
        # With probability 95 %, noise has no eigenvalue beyond this.
        reach = deviations[0] * math.sqrt(p * math.log(2 * p**2 / 0.05))
        gram += noise + np.triu(noise, 1).T + max(0.0, reach - least) * np.eye(p)
        found[action] = np.linalg.solve(gram, products + rng.normal(size=p) * deviations[1])
    return found


# --- gradients ------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """What gradient methods leave open."""

    rate: float  # 1 is the step that would end at once if features were round
    bound: float  # of a row's gradient


def gradients(rows: Rows, parameters: Array, bound: float) -> Array:  # (n_actions, p + 1)
    """Σ f·(y − fᵀθ_a), each row's no longer than its bound."""
    left = rows.outcomes - np.einsum("ij,ij->i", rows.features, parameters[rows.actions])
    most = bound / np.linalg.norm(rows.features, axis=1)
    parts = rows.features * np.clip(left, -most, most)[:, None]
    return np.stack([parts[rows.actions == a].sum(axis=0) for a in range(len(parameters))])


def full_gradient(
    clients: Sequence[Rows], n_actions: int, budget: Budget, rng: np.random.Generator, how: Steps
) -> Array:
    """DP-GD: steps along noisy gradients of all rows; the mean of the later half."""
    deviation = how.bound * math.sqrt(FULL_STEPS * len(clients)) / budget.mu
    n_rows = sum(len(own.actions) for own in clients)
    parameters = np.zeros((n_actions, clients[0].features.shape[1]))
    path = []
    for _ in range(FULL_STEPS):
        total = sum(gradients(own, parameters, how.bound) for own in clients)
        total = total + deviation * rng.normal(size=parameters.shape)
        parameters = parameters + how.rate * n_actions / n_rows * total
        path.append(parameters)
    return np.mean(path[FULL_STEPS // 2 :], axis=0)


def sampled(rows: Rows, rng: np.random.Generator) -> Rows:
    """Each row with the same probability, by itself (Poisson)."""
    chosen = rng.random(len(rows.actions)) < SAMPLED
    return Rows(*(column[chosen] for column in rows))


def sampled_gradient(
    clients: Sequence[Rows], n_actions: int, budget: Budget, rng: np.random.Generator, how: Steps
) -> Array:
    """DP-SGD (Abadi et al. 2016): every step a Poisson sample of each client's rows."""
    n_steps = ROUNDS * LOCAL_STEPS
    deviation = how.bound * noise_of_sampled(budget, n_steps) * math.sqrt(len(clients))
    n_rows = SAMPLED * sum(len(own.actions) for own in clients)
    parameters = np.zeros((n_actions, clients[0].features.shape[1]))
    path = []
    for _ in range(n_steps):
        total = sum(gradients(sampled(own, rng), parameters, how.bound) for own in clients)
        total = total + deviation * rng.normal(size=parameters.shape)
        parameters = parameters + how.rate / 10 * n_actions / n_rows * total
        path.append(parameters)
    return np.mean(path[n_steps // 2 :], axis=0)


def averaged(
    clients: Sequence[Rows], n_actions: int, budget: Budget, rng: np.random.Generator, how: Steps
) -> Array:
    """DP-FedAvg: clients take DP-SGD steps of their own, and each round averages their models."""
    deviation = how.bound * noise_of_sampled(budget, ROUNDS * LOCAL_STEPS)
    parameters = np.zeros((n_actions, clients[0].features.shape[1]))
    path = []
    for _ in range(ROUNDS):
        ends = []
        for own in clients:
            local = parameters
            for _ in range(LOCAL_STEPS):
                noise = deviation * rng.normal(size=local.shape)
                total = gradients(sampled(own, rng), local, how.bound) + noise
                local = local + how.rate / 10 * n_actions / (SAMPLED * len(own.actions)) * total
            ends.append(local)
        parameters = np.mean(ends, axis=0)
        path.append(parameters)
    return np.mean(path[ROUNDS // 2 :], axis=0)


GRADIENT_STEPS = tuple(Steps(*pair) for pair in product((0.15, 0.5), (2.0, 5.0)))
Learner = Callable[[Sequence[Rows], int, Budget, np.random.Generator, object], Array]
PEERS: dict[str, tuple[Learner, tuple[object, ...]]] = {
    "AdaSSP": (adassp, (None,)),
    f"DP-GD, {FULL_STEPS} steps": (full_gradient, GRADIENT_STEPS),
    f"DP-SGD, {ROUNDS * LOCAL_STEPS} samples": (sampled_gradient, GRADIENT_STEPS),
    f"DP-FedAvg, {ROUNDS} rounds": (averaged, GRADIENT_STEPS),
}

# --- what sampled steps cost ----------------------------------------------------------------------

_STEP = 4e-5  # of privacy losses, which are rounded up to it
_FURTHEST = 12.0  # noise, in deviations


@cache
def noise_of_sampled(budget: Budget, n_steps: int) -> float:
    """σ over the bound, so that so many Poisson-sampled Gaussian steps keep the promise."""
    if math.isinf(budget.epsilon):
        return 0.0
    low, high = 0.1, 200.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        kept = delta_of_sampled(middle, n_steps, budget.epsilon) <= budget.delta
        low, high = (low, middle) if kept else (middle, high)
    return high


def delta_of_sampled(sigma: float, n_steps: int, epsilon: float) -> float:
    """The larger of δ(ε) where a row is taken away, and where one is added.

    By the distribution of privacy losses, on a grid, convolved by Fourier transforms (Koskela,
    Jälkö & Honkela 2020). Losses are rounded up, so δ is never too small but for rounding errors.
    """
    return max(_delta(sigma, n_steps, epsilon, removed=removed) for removed in (True, False))


def _delta(sigma: float, n_steps: int, epsilon: float, *, removed: bool) -> float:
    losses, chances = _losses(sigma, removed=removed)
    # So far the sum goes, but for a probability that counts for nothing beside δ.
    mean, spread = chances @ losses, math.sqrt(chances @ losses**2 - (chances @ losses) ** 2)
    reach = epsilon + n_steps * abs(mean) + 12 * spread * math.sqrt(n_steps) + np.abs(losses).max()
    size = next_fast_len(int(2 * reach / _STEP) + 1)
    placed = np.zeros(size)
    np.add.at(placed, np.ceil(losses / _STEP).astype(int) % size, chances)
    total = np.maximum(irfft(rfft(placed) ** n_steps, size), 0.0)
    places = np.arange(size)
    sums = _STEP * np.where(places > size // 2, places - size, places)
    beyond = sums > epsilon
    return float(total[beyond] @ -np.expm1(epsilon - sums[beyond]))


def _losses(sigma: float, *, removed: bool) -> tuple[Array, Array]:
    """Privacy losses of one step and their probabilities, finely cut.

    Without the row a step is N(0, σ²), with it a mixture of that and N(1, σ²) that has the share
    of samples it is in.
    """
    ends = np.linspace(-_FURTHEST * sigma, _FURTHEST * sigma + 1, 200_001)
    middle = (ends[1:] + ends[:-1]) / 2
    without = np.diff(ndtr(ends / sigma))
    with_it = (1 - SAMPLED) * without + SAMPLED * np.diff(ndtr((ends - 1) / sigma))
    ratio = np.log1p(SAMPLED * np.expm1((2 * middle - 1) / (2 * sigma**2)))
    return (ratio, with_it) if removed else (-ratio, without)
