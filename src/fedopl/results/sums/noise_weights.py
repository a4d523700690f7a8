"""Weights by noise, as far as clients are alike: how `precision = "auto"` learns for a mixture.

A client's regression of scores on features estimates its own coefficients θ_c, with an error that
depends on its rows and their noise. If all clients have the same coefficients, each of them informs
about the others, and weighting clients by precision gives the least error. If they differ, only the
client itself shows what is right there, and it must count by its weight λ_c in the mixture. So with

    s_c  the noise of the client's scores (the error that generalised cross-validation finds for its
         own ridge regression, so that misfit of a shared one is not taken for noise), by its rows,
    τ²   the variance of θ_c between clients, beyond what noise explains,
    k_c = τ² / (τ² + s_c)

a share k_c of λ_c stays with the client, and what all give up is shared by 1 / (τ² + s_c). This is
the best linear prediction of Σ_c λ_c θ_c, if clients have similar, standardised features. With more
and more rows s_c goes to 0. Then k_c goes to 1, and the weights go to λ, unless τ² is 0; but then
all weights have the same solution. The target stays that of the mixture.

Only differences between actions decide. So noise and τ² are those of scores less the mean score of
their row: a client whose rewards are higher or steeper for all actions alike does not count as
different.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.restricted import Restricted
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.solvers.client_differences import standard_frames, variance_between
from fedopl.solvers.least_squares import ridge_errors
from fedopl.study.mixture import Weights, capped

# By client, the actions it never took, so that its scores of them are others' models alone.
Borrowed = Mapping[str, BoolArray]  # (n_actions,)
# The mean noise of all clients counts like this many rows of a client's own.
ROWS_FOR_EQUAL_NOISE = 20.0
Errors = dict[tuple[str, bytes], FloatArray]  # of own regressions, by client and known actions
CLIENTS_AT_ONCE = 4096  # clients whose regressions are in memory together
# Shares of rows are sums of weights, in any order.
_ALL_ROWS = 1 - 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class NoiseWeights:
    """The weights of clients in learning, instead of their weights in the mixture."""

    emphasis: Mapping[str, FloatArray]  # (n_actions,), times λ_c
    weights: Weights  # what clients count for, in the mean over actions
    # (n_actions,), those with the same rows and features; None if actions have different ones.
    compared: BoolArray | None

    def of(self, products: FloatArray) -> FloatArray:  # (…, n_actions, n_columns), as products
        """The products of what decides: scores less the mean score of their row, if all have it."""
        if self.compared is None:
            return products
        common = products[..., self.compared, :].mean(axis=-2, keepdims=True)
        return np.asarray(products - self.compared[:, None] * common)


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientNoise:
    """How noisy the scores of some clients are, and how much their effects differ."""

    names: tuple[str, ...]  # sorted
    shares: FloatArray  # (n_clients, n_actions), of rows with a score
    noise: FloatArray  # (n_clients, n_known), s_c of actions that somebody has scores of
    between: float  # τ²
    is_compared: bool  # whether all these actions have the same features and the same rows

    @classmethod
    def of(
        cls,
        sums: Mapping[str, ScoreSums],
        rows: Mapping[str, float],
        borrowed: Borrowed,
        errors: Errors | None = None,
        *,
        blocks: bool,
    ) -> Self | None:
        """From sums of clients that add any, and numbers of rows; None if there is no estimate.

        With blocks, every action has features of its own, and no intercept. What is in `errors` is
        not computed again: a client's are the same whoever else counts.
        """
        each = ((name, sums[name]) for name in sorted(sums))
        told = {name: (own.shares, len(own.grams)) for name, own in each if own.has_sums}
        names = tuple(told)
        if len(names) < 2:
            return None
        shares = np.stack([share for share, _ in told.values()])
        known = _known(shares)
        if known.sum() < 2:
            return None
        n_rows = np.array([[rows[name]] for name in names]) * shares[:, known]
        is_compared = not blocks and bool((shares[:, known] >= _ALL_ROWS).all())
        tells = np.ones(shares.shape, np.bool_)
        places = {name: place for place, name in enumerate(names)}
        for name in borrowed.keys() & places.keys():
            tells[places[name]] = ~borrowed[name]
        regressions = _Regressions.of(
            Restricted(sums, names),
            known,
            n_rows,
            tells=tells[:, known],
            n_grams=max(n_grams for _, n_grams in told.values()),
            errors={} if errors is None else errors,
        )
        if is_compared:
            regressions = regressions.of_contrasts()
        return cls(
            names=names,
            shares=shares,
            noise=regressions.noise,
            between=regressions.between(intercept=not blocks),
            is_compared=is_compared,
        )

    def weights_for(self, mixture: Weights, largest: float | None = None) -> NoiseWeights:
        """The weights of these clients in learning, none above the largest share, if any."""
        known = _known(self.shares)
        agreed = np.array([[mixture[name]] for name in self.names]) * self.shares[:, known]
        agreed /= agreed.sum(axis=0)
        shared = _shared_out(agreed, self.noise, self.between)
        if largest is not None:
            shared = _cut(shared, largest)
        emphasis = np.ones(self.shares.shape)
        emphasis[:, known] = np.divide(shared, agreed, out=np.zeros_like(shared), where=agreed > 0)
        return NoiseWeights(
            emphasis=dict(zip(self.names, emphasis, strict=True)),
            weights=dict(zip(self.names, shared.mean(axis=1).tolist(), strict=True)),
            compared=known if self.is_compared else None,
        )


def _known(shares: FloatArray) -> BoolArray:  # (n_actions,)
    """The actions that some client has scores for."""
    return np.asarray((shares > 0).any(axis=0))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Regressions:
    """Every client's own regressions of scores on features, for the actions that have scores."""

    grams: FloatArray  # (n_clients, 1 or n_actions, n_columns, n_columns)
    products: FloatArray  # (n_clients, n_actions, n_columns)
    variances: FloatArray  # (n_clients, n_actions), of scores about the client's own model
    n_rows: FloatArray  # (n_clients, n_actions), with a score

    @classmethod
    def of(
        cls,
        sums: Mapping[str, ScoreSums],
        known: BoolArray,
        n_rows: FloatArray,
        *,
        tells: BoolArray,
        n_grams: int,  # the most of any client
        errors: Errors,
    ) -> Self:
        """The regressions; with few rows a variance is uncertain, and shrunk to the clients' mean.

        So is the variance of scores that are only others' models, which carry no information about
        noise, and that of a single row, which has no error about a model of other rows.
        """
        first = next(iter(sums.values()))
        grams = np.empty((len(sums), n_grams, *first.grams.shape[1:]))
        products = np.empty((len(sums), *first.products[known].shape))
        squares = np.empty((len(sums), int(known.sum())))
        every = slice(None) if known.all() else known
        for place, own in enumerate(sums.values()):
            grams[place] = own.grams
            products[place], squares[place] = own.products[every], own.squares[every]
        grams = grams[:, known] if n_grams > 1 else grams
        keys = [(name, known.tobytes()) for name in sums]
        new = [place for place, key in enumerate(keys) if key not in errors]
        for start in range(0, len(new), CLIENTS_AT_ONCE):
            p = new[start : start + CLIENTS_AT_ONCE]
            found = ridge_errors(grams[p], products[p], squares[p], n_rows[p])
            errors.update(zip([keys[place] for place in p], found, strict=True))
        own_errors = np.stack([errors[key] for key in keys])
        tells = tells & np.isfinite(own_errors)
        telling, own_errors = np.where(tells, n_rows, 0.0), np.where(tells, own_errors, 0.0)
        mean = (telling * own_errors).sum(axis=0) / np.maximum(telling.sum(axis=0), 1e-300)
        own_errors = np.where(tells, own_errors, mean)
        variances = n_rows * own_errors + ROWS_FOR_EQUAL_NOISE * mean
        variances /= n_rows + ROWS_FOR_EQUAL_NOISE
        # Scores without any noise would have an infinite weight.
        least = np.maximum(1e-12 * squares.max(axis=0), 1e-300)
        return cls(
            grams=grams, products=products, variances=np.maximum(variances, least), n_rows=n_rows
        )

    def of_contrasts(self) -> Self:
        """The regressions of scores less the mean score of their row, which all actions have.

        A row's residual corrects the score of one action only, so the noise of two actions' scores
        is not correlated.
        """
        n_actions = self.products.shape[1]
        means = self.variances.mean(axis=1, keepdims=True)
        return replace(
            self,
            grams=self.grams[:, :1],
            products=self.products - self.products.mean(axis=1, keepdims=True),
            variances=(1 - 2 / n_actions) * self.variances + means / n_actions,
        )

    @property
    def noise(self) -> FloatArray:  # (n_clients, n_actions)
        """s_c(a), the variance of a mean score about the client's own model."""
        noise: FloatArray = np.divide(
            self.variances,
            self.n_rows,
            out=np.full(self.n_rows.shape, np.inf),
            where=self.n_rows > 0,
        )
        return noise

    def between(self, *, intercept: bool) -> float:
        """τ², the variance of coefficients between clients, for standardised features."""
        n_grams = self.grams.shape[1]
        frames = standard_frames(self.grams, self.n_rows[:, :n_grams], intercept=intercept)
        turned = frames @ self.grams @ np.swapaxes(frames, -1, -2)
        products = (frames @ self.products[..., None])[..., 0]
        return variance_between(turned, products, self.noise)


def _shared_out(agreed: FloatArray, noise: FloatArray, between: float) -> FloatArray:
    """λ_c·k_c + Σ_d λ_d·(1 − k_d)·p_c, with p_c ∝ 1 / (τ² + s_c), by client and action."""
    if not np.isfinite(between):
        return agreed
    spread = between + noise
    kept = agreed * (between / spread)
    precision = 1 / spread
    left = 1 - kept.sum(axis=0)
    shared: FloatArray = kept + left * precision / precision.sum(axis=0)
    return shared


def _cut(shared: FloatArray, largest: float) -> FloatArray:  # (n_clients, n_actions)
    """The shares with no client above the largest share, by action, as far as that is possible."""
    cut = np.empty_like(shared)
    for action, own in enumerate(shared.T):
        by_place = {f"{place:09}": weight for place, weight in enumerate(own.tolist())}
        most = max(largest, 1 / np.count_nonzero(own))
        cut[:, action] = list(capped(by_place, most).values())
    return cut
