"""HierOPO, the Bayesian baseline of the paper's experiments (section "Baselines").

Hong, Kveton, Zaheer, Katariya & Ghavamzadeh, "Multi-Task Off-Policy Learning from Bandit Feedback",
ICML 2023. It reads every client's rows in one place: a baseline, not a federated method.

Tasks are clients. With per-action blocks φ(x, a) = x_a a logged row speaks of its own action only,
so the model falls apart into one hierarchy for each action a:

    μ*_a ~ N(μ_q, Σ_q),    θ_{s,a} ~ N(μ*_a, Σ_0),    Y ~ N(x_aᵀθ_{s,a}, σ_s²).

Σ_q and Σ_0 = τ·I are multiples of the identity. Every Σ_0⁻¹ and G_s⁻¹ of the usual formulas is
multiplied out: with M_s = (I + τG_s)⁻¹ nothing is inverted that could be singular, a client without
a row of an action has G_s = 0 and M_s = I, and τ = 0 is complete pooling.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError, StudyError
from fedopl.base.labels import quoted
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.policy import checked_contexts


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HierPolicy:
    """π(x) = argmax_a x_aᵀθ̂_a − α·√(x_aᵀΣ̂_a x_a); ties go to the lowest code."""

    means: FloatArray  # (n_actions, n_own)  θ̂_a
    covariances: FloatArray  # (n_actions, n_own, n_own)  Σ̂_a
    pessimism: float  # α
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The lower confidence bound of each action's reward; the largest decides."""
        rows = checked_contexts(contexts, self.feature_names)
        blocks = _blocks(rows, len(self.action_names))
        expected = (blocks @ self.means[:, :, None])[:, :, 0]
        # Rounding can make a variance of zero negative.
        variances = np.maximum(((blocks @ self.covariances) * blocks).sum(axis=2), 0.0)
        bounds: FloatArray = (expected - self.pessimism * np.sqrt(variances)).T
        return bounds

    def decide(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context."""
        codes: IntArray = np.argmax(self.scores(contexts), axis=1)
        return codes


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The hierarchy's prior; every covariance is a multiple of the identity."""

    mean: float = 0.0  # μ_q, the same for every coefficient
    variance: float = 5.0  # Σ_q, how far μ* may lie from μ_q
    task_variance: float = 1.0  # Σ_0, how far a client may lie from μ*; 0 pools them all


DEFAULT_PRIOR = Prior()


@dataclass(frozen=True, eq=False, kw_only=True)
class _Evidence:
    """Sufficient statistics of one client's rows, by action."""

    precision: FloatArray  # (n_actions, n_own, n_own)  G_s = σ⁻² Σ φφᵀ
    pull: FloatArray  # (n_actions, n_own)  B_s = σ⁻² Σ φY


def hier_opo(
    clients: Mapping[str, LoggedData],
    target: str,
    *,
    noise_variances: Mapping[str, float],
    prior: Prior = DEFAULT_PRIOR,
    pessimism: float = 0.1,
) -> HierPolicy:
    """Learn the target client's policy from every client's rows.

    Args:
        clients: every client's rows; their columns are the actions' blocks, one after another.
        target: the client to learn a policy for.
        noise_variances: σ_s², the variance of the reward about its mean at each client.
        prior: μ_q, Σ_q and Σ_0.
        pessimism: α, the number of posterior standard deviations to stay below the mean.

    """
    _check_numbers(prior, pessimism)
    _check_clients(clients, target, noise_variances)
    evidence = {name: _evidence(data, noise_variances[name]) for name, data in clients.items()}
    latent_mean, latent_covariance = _latent(evidence, prior)
    means, covariances = _task(
        evidence[target], latent_mean, latent_covariance, prior.task_variance
    )
    return HierPolicy(
        means=means,
        covariances=covariances,
        pessimism=pessimism,
        action_names=clients[target].action_names,
        feature_names=clients[target].feature_names,
    )


def _evidence(data: LoggedData, noise_variance: float) -> _Evidence:
    """G_s = σ⁻² Σ φφᵀ and B_s = σ⁻² Σ φY, each action's over the rows that took it."""
    taken = data.actions == np.arange(data.n_actions)[:, None]  # (n_actions, n_rows)
    features = _blocks(data.contexts, data.n_actions) * taken[:, :, None]
    transposed = features.transpose(0, 2, 1)
    return _Evidence(
        precision=transposed @ features / noise_variance,
        pull=transposed @ data.rewards / noise_variance,
    )


def _latent(
    evidence: Mapping[str, _Evidence], prior: Prior
) -> tuple[FloatArray, FloatArray]:  # (n_actions, n_own), (n_actions, n_own, n_own)
    """The posterior N(μ̄, Σ̄) of μ*, for every action.

    Σ̄⁻¹ = Σ_q⁻¹ + Σ_s G_s(I + Σ_0G_s)⁻¹ and μ̄ = Σ̄(Σ_q⁻¹μ_q + Σ_s (I + G_sΣ_0)⁻¹B_s).
    """
    n_actions, n_own = next(iter(evidence.values())).pull.shape
    precision = np.tile(np.eye(n_own) / prior.variance, (n_actions, 1, 1))
    pull = np.full((n_actions, n_own), prior.mean / prior.variance)
    # Sorted: float sums depend on order, and a mapping may have any order.
    for _, one in sorted(evidence.items()):
        shrinkage = _shrinkage(one, prior.task_variance)
        precision += one.precision @ shrinkage
        pull += _apply(shrinkage, one.pull)
    covariance = _inverse(precision)
    return _apply(covariance, pull), covariance


def _task(
    evidence: _Evidence,
    latent_mean: FloatArray,
    latent_covariance: FloatArray,
    task_variance: float,
) -> tuple[FloatArray, FloatArray]:  # (n_actions, n_own), (n_actions, n_own, n_own)
    """The posterior N(θ̂_s, Σ̂_s) of one client's θ_s, for every action.

    θ̂_s = Σ̃_s(Σ_0⁻¹μ̄ + B_s) and Σ̂_s = Σ̃_s + Σ̃_sΣ_0⁻¹Σ̄Σ_0⁻¹Σ̃_s, where
    Σ̃_s = (Σ_0⁻¹ + G_s)⁻¹ = τM_s and so Σ̃_sΣ_0⁻¹ = M_s.
    """
    shrinkage = _shrinkage(evidence, task_variance)
    mean = _apply(shrinkage, latent_mean + task_variance * evidence.pull)
    return mean, task_variance * shrinkage + shrinkage @ latent_covariance @ shrinkage


def _shrinkage(evidence: _Evidence, task_variance: float) -> FloatArray:
    """M_s = (I + τG_s)⁻¹, symmetric, and the identity if there are no rows."""
    n_own = evidence.pull.shape[1]
    return _inverse(np.eye(n_own) + task_variance * evidence.precision)


def _inverse(matrices: FloatArray) -> FloatArray:  # (n_actions, n_own, n_own)
    return np.asarray(np.linalg.inv(matrices), np.float64)


def _apply(matrices: FloatArray, vectors: FloatArray) -> FloatArray:  # (n_actions, n_own)
    product: FloatArray = (matrices @ vectors[:, :, None])[:, :, 0]
    return product


def _blocks(contexts: FloatArray, n_actions: int) -> FloatArray:  # (n_actions, n_rows, n_own)
    """φ(x, a) = x_a for every action."""
    return contexts.reshape(len(contexts), n_actions, -1).transpose(1, 0, 2)


def _check_numbers(prior: Prior, pessimism: float) -> None:
    if not math.isfinite(prior.mean):
        raise OptionError(f"hier_opo: prior_mean: expected a finite number, came {prior.mean}")
    if not 0 < prior.variance < math.inf:
        raise OptionError(f"hier_opo: prior_variance: expected more than 0, came {prior.variance}")
    for name, number in (("task_variance", prior.task_variance), ("pessimism", pessimism)):
        if not 0 <= number < math.inf:
            raise OptionError(f"hier_opo: {name}: expected 0 or more, came {number}")


def _check_clients(
    clients: Mapping[str, LoggedData], target: str, noise_variances: Mapping[str, float]
) -> None:
    if target not in clients:
        raise OptionError(f"hier_opo: target '{target}' is not one of {quoted(sorted(clients))}")
    model = clients[target]
    if model.n_features % model.n_actions:
        raise DataError(
            f"{target}: expected a block of features for each of {model.n_actions} actions, "
            f"all as wide, came {model.n_features} features"
        )
    for name in sorted(clients):
        _check_client(clients[name], name, model, noise_variances.get(name))


def _check_client(data: LoggedData, name: str, model: LoggedData, noise: float | None) -> None:
    if noise is None or not 0 < noise < math.inf:
        raise OptionError(f"hier_opo: noise_variances['{name}']: expected above 0, came {noise}")
    if (data.action_names, data.feature_names) != (model.action_names, model.feature_names):
        raise StudyError(f"{name}: its actions or features are not those of the target")
    if data.weights is not None:
        raise DataError(f"{name}: HierOPO has no weights of rows; leave them out")
