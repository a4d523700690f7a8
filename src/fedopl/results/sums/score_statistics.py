"""Clients' score sums, which give the exact linear policy for any mixture."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, frozen
from fedopl.base.labels import GLOBAL
from fedopl.base.restricted import Restricted
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.linear import LinearPolicy
from fedopl.results.sums.any_mixture import nonzero, only_of, scored_by_all, sizes
from fedopl.results.sums.noise_weights import Borrowed, ClientNoise, Errors, NoiseWeights
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.results.sums.term_choice import (
    Pooled,
    TermChoice,
    contrasts_of,
    means_by_noise,
    plain_terms,
    pooled_means,
)
from fedopl.solvers import least_squares
from fedopl.solvers.linear_solvers import never_taken, residual_variances, solve_scores
from fedopl.solvers.nested_ridge import narrowed, shrunk_solution
from fedopl.study.mixture import FOUND, Weights, renormalised
from fedopl.study.study import Study

# A share that is left after a subtraction, and is only rounding.
_NOTHING = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreStatistics:
    """Every client's mean squares and products, by name."""

    study: Study
    sums: Mapping[str, ScoreSums]
    rows: Mapping[str, float]  # that the sums rest on, by client
    choice: TermChoice | None = None  # of the terms of a basis; plain features where none was made
    screening: int = -1  # whose terms may be used: of all rows, or without the fold of its number
    borrowed: Borrowed = field(default_factory=dict)
    taken: TakenRows | None = None  # where a study is cautious
    # Cached by clients, as many mixtures are solved for; statistics of fewer clients share it.
    _noise: dict[tuple[str, ...], ClientNoise | None] = field(default_factory=dict, repr=False)
    _errors: Errors = field(default_factory=dict, repr=False)  # shared in the same way
    _latest: dict[tuple[float, ...], Pooled] = field(default_factory=dict, init=False, repr=False)
    _policy: dict[tuple[tuple[str, float], ...], LinearPolicy] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def clients(self) -> list[str]:
        """The clients that reported sums."""
        return sorted(self.sums)

    @property
    def is_of_all(self) -> bool:
        """Whether there are only sums over all clients, because answers were added under masks."""
        return GLOBAL in self.sums

    def restricted(self, names: Collection[str]) -> Self:
        """The sums of these clients alone."""
        return replace(self, sums=only_of(self.sums, names))

    def solve(self, weights: Weights) -> LinearPolicy:
        """The exact CSOAA policy for these weights; no client is asked.

        The latest one is kept, as what rests on whom is found from it.
        """
        key = tuple(weights.items())
        if key not in self._policy:
            self._policy.clear()
            self._policy[key] = self._solved_for(weights)
        return self._policy[key]

    def _solved_for(self, weights: Weights) -> LinearPolicy:
        parameters = self._solved(self._means(weights))
        if self.study.linear.precision == "clients":
            parameters = self._solved(self._by_precision(weights, parameters))
        elif by_noise := self.noise_weights(weights):
            parameters = self._solved_by_noise(weights, parameters, by_noise)
        wide = least_squares.widen(parameters, self.blocks, self.study.n_terms)
        policy = LinearPolicy.from_numbers(wide, self.study)
        if self.taken is None:
            return policy
        # With the rows of clients that count, and on the terms of the policy.
        counting = [name for name in self.sums if weights.get(name)]
        errors = self.taken.errors(counting, self._used)
        return CautiousPolicy.doubting(policy, self.study.linear.caution * errors)

    def _solved(self, means: Pooled) -> FloatArray:  # (n_actions, n_columns)
        """Parameters by least squares, or by ridge on the chosen terms.

        Penalties were chosen for differences between actions, so they apply to these alone.
        """
        if self.study.terms is None:
            return solve_scores(*means, intercept=self.study.has_intercept)
        grams, products, _, shares = means
        penalties = (self.choice or plain_terms(self.study)).penalties
        _, apart = contrasts_of(means)
        if len(grams) > 1:
            solved = shrunk_solution(grams, apart, self._used, penalties)
        else:
            both = np.vstack([apart, (products - apart)[np.argmax(shares)]])
            each = np.append(penalties, penalties.min())
            found = shrunk_solution(grams, both, self._used, each)
            solved = found[:-1] + found[-1]
        return never_taken(solved, shares <= 0)

    @property
    def _used(self) -> IntArray:  # (n_used,)
        """The places of the terms that were chosen and may be used."""
        return self._usable((self.choice or plain_terms(self.study)).n_terms)

    def _usable(self, n_terms: int) -> IntArray:
        """The places of the first terms, less those that its screening did not find."""
        terms = self.study.terms
        return np.arange(n_terms) if terms is None else terms.usable(n_terms, [self.screening])

    def noise_weights(self, weights: Weights) -> NoiseWeights | None:
        """The weights of clients in learning; None if they count as in the mixture."""
        # Found or robust weights are a result of their own; noise must not undo them. If noise was
        # added for privacy, scores carry no information about their own noise.
        study = self.study
        is_found = study.mixture.kind in FOUND or study.mixture.robust is not None
        if not study.linear.counts_by_noise or is_found or study.privacy:
            return None
        weights = renormalised(weights, self.sums.keys())
        counting = tuple(name for name, weight in weights.items() if weight > 0)
        if counting not in self._noise:
            own, blocks = self._of_usable(counting), self.blocks is not None
            self._noise[counting] = ClientNoise.of(
                own, self.rows, self.borrowed, self._errors, blocks=blocks
            )
        found = self._noise[counting]
        return found.weights_for(weights, self.study.mixture.largest_share) if found else None

    def _of_usable(self, names: Collection[str]) -> Mapping[str, ScoreSums]:
        """The sums of these clients, over the terms that its screening found."""
        own, terms = Restricted(self.sums, names), self.study.terms
        if terms is None or terms.basis.found_by_fold is None:
            return own
        used = self._usable(terms.n_terms)
        return {
            name: replace(
                sums, grams=narrowed(sums.grams, used), products=narrowed(sums.products, used)
            )
            for name, sums in own.items()
        }

    def _solved_by_noise(
        self, weights: Weights, parameters: FloatArray, by_noise: NoiseWeights
    ) -> FloatArray:  # (n_actions, n_columns)
        """Differences between actions weighted by noise; their common part as in the mixture."""
        means = means_by_noise(self.sums, weights, by_noise)
        solved = self._solved(means)
        if by_noise.compared is None:
            return solved
        common = parameters[by_noise.compared].mean(axis=0)
        return np.where(by_noise.compared[:, None], solved + common, solved)

    def solve_contrast(self, signed: Mapping[str, float]) -> LinearPolicy:
        """The policy for signed weights, by least squares as in CSOAA."""
        signed = nonzero(signed, self.sums)
        known = scored_by_all(np.stack([self.sums[name].shares for name in signed]) > 0, signed)
        flipped = {
            name: replace(
                self.sums[name],
                products=np.sign(sign) * self.sums[name].products,
                shares=np.where(known, self.sums[name].shares, 0.0),
            )
            for name, sign in signed.items()
        }
        # Weighting clients by precision would change the requested contrast.
        by_rows = self.study.linear.model_copy(update={"precision": "rows"})
        study = self.study.model_copy(update={"policy": by_rows})
        # A difference between clients has no standard error of this kind.
        return replace(self, study=study, sums=flipped, taken=None).solve(sizes(signed))

    def arm_values(self, weights: Weights) -> FloatArray:  # (n_actions,)
        """The value of each constant arm on training rows; NaN if no client has a score."""
        _, products, _, shares = self._means(weights)
        return np.where(shares > 0, products[:, -1], np.nan)

    def arm_values_without(self, weights: Weights, client: str) -> FloatArray:  # (n_actions,)
        """The arms' values at all other clients, by subtraction from the mixture's values."""
        own, weight = self.sums[client], renormalised(weights, self.sums.keys())[client]
        _, products, _, shares = self._means(weights)
        left = shares - weight * own.shares
        scores = shares * products[:, -1] - weight * own.shares * own.products[:, -1]
        known = left > _NOTHING * shares
        return np.where(known, scores / np.where(known, left, 1.0), np.nan)

    def unknown(self, weights: Weights) -> BoolArray:  # (n_actions,)
        """The actions that no client has a score for."""
        return np.isnan(self.arm_values(weights))

    def loss(self, weights: Weights) -> Callable[[FloatArray], float]:
        """Mean (Γ̂(a) − φᵀθ_a)² over the actions that have scores, as a function of θ."""
        grams, products, squares, shares = self._means(weights)
        known = shares > 0

        def of(parameters: FloatArray) -> float:
            own = least_squares.narrow(parameters, self.blocks)
            return float(residual_variances(grams, products, squares, own)[known].mean())

        return of

    def standardisation(self, weights: Weights) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of every term, then 0 and 1 for the intercept.

        Without an intercept nothing can be centred: then zero and the root mean square.
        """
        study, grams = self.study, self._means(weights)[0]
        centre, scale = np.zeros(study.n_terms + 1), np.ones(study.n_terms + 1)
        columns = self.blocks or [np.arange(study.n_terms)]
        known = grams[:, -1, -1] > 0
        if self.blocks is None:
            grams, known = grams[known], known[known]  # any action's rows will do
        for own, gram, is_known in zip(columns, grams, known, strict=False):
            if not is_known:
                continue
            if study.has_intercept:
                centre[own] = gram[:-1, -1]
            squares = np.diagonal(gram)[:-1]
            variance = squares - centre[own] ** 2
            # Cancellation leaves a tiny variance of a constant, which must not be divided by: use 1
            # instead.
            scale[own] = np.sqrt(np.where(variance > 1e-14 * squares, variance, 1.0))
        return centre, scale

    def term_moments(self, weights: Weights) -> tuple[FloatArray, FloatArray]:
        """Means (n_terms,) and covariances (n_terms, n_terms) of terms in the mixture."""
        grams = self._means(weights)[0]
        gram = grams[grams[:, -1, -1] > 0][0]  # any action's rows will do
        means = gram[:-1, -1]
        return means, gram[:-1, :-1] - np.outer(means, means)

    def is_flag(self, weights: Weights) -> BoolArray:  # (n_terms + 1,)
        """Which terms, features first, are 0 or 1 in every row: then E[x²] = E[x]."""
        centre, scale = self.standardisation(weights)
        return np.isclose(centre**2 + scale**2, centre, rtol=1e-9, atol=0.0)

    @property
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, if the policy has them."""
        if self.study.linear.features != "blocks":
            return None
        return least_squares.equal_blocks(self.study.n_features, self.study.n_actions)

    def _means(self, weights: Weights) -> Pooled:
        """Mixture means, cached for the latest weights, since several functions use them."""
        own = {GLOBAL: 1.0} if self.is_of_all else renormalised(weights, self.sums.keys())
        key = tuple(own.values())
        if key not in self._latest:
            self._latest.clear()
            self._latest[key] = self._pooled(own)
        return self._latest[key]

    def _pooled(self, weights: Weights, emphasis: Mapping[str, FloatArray] | None = None) -> Pooled:
        """Mixture means, read-only."""
        grams, products, squares, shares = map(frozen, pooled_means(self.sums, weights, emphasis))
        return grams, products, squares, shares

    def _by_precision(self, weights: Weights, parameters: FloatArray) -> Pooled:
        """Generalised least squares: a client with noisy scores about the first fit counts less.

        The objective becomes Σ_c λ_c/v_c(a) · mean (Γ̂(a) − φᵀθ)², no longer the λ-mixture's own.
        """
        emphasis = {}
        # The floor keeps a client whose scores are fitted exactly from having infinite weight.
        for name, sums in self.sums.items():
            variances = residual_variances(sums.grams, sums.products, sums.squares, parameters)
            emphasis[name] = 1 / np.maximum(variances, 1e-300 + 1e-12 * np.maximum(sums.squares, 0))
        return self._pooled(renormalised(weights, self.sums.keys()), emphasis)
