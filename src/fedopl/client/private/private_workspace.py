"""What answers are computed from in a study with differential privacy: bounded rows, and noise.

Sums with noise are the only numbers of rows that leave.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.decompositions import symmetric_pinv
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.private.party import Party
from fedopl.client.private.private_rows import GridRows, PrivateChunk, PrivateRows, truncated
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_scores import (
    AsksForNoisedScores,
    AsksForNoisedValues,
    NoisedValues,
    ValueApart,
    ValuePrivately,
    ValuesApart,
)
from fedopl.messages.private.noised_sums import NoisedSums, SumResiduals
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.exact_noise import (
    FINE,
    FINE_STEP,
    GRID,
    KeyedBits,
    discrete_gaussian,
    row_by_row,
    variance_on_grid,
)
from fedopl.privacy.score_axes import MOST_MODELLED
from fedopl.solvers.private_regression import FirstFit, FirstNoise, first_fit
from fedopl.study.private.added_up import AddedUp, Counting, WholeWeights
from fedopl.study.private.private_setting import Bounds, PrivateSetting
from fedopl.study.study import Study

# Sums of whole numbers below this are exact in floating point.
LARGEST_EXACT = 2.0**53


@dataclass(frozen=True)
class Noise:
    """Noise that follows from the client's secret, all of its rows, and the question.

    The same question has the same noise: fresh noise would average out.
    """

    draws: PrivateDraws
    study: bytes
    # A hash of the rows. If sums of other rows had the same noise, their difference would disclose
    # the rows that differ.
    fingerprint: str
    asked: bytes

    def added(self, sums: FloatArray, deviation: float, what: str) -> FloatArray:
        """Sums, in whole fine steps of the grid, with noise of this deviation, in units."""
        _check_exact(sums)
        drawn = self._drawn(sums.shape, variance_on_grid(deviation, FINE_STEP), what)
        return (sums + drawn) / FINE

    def _drawn(self, shape: tuple[int, ...], variance: int, what: str, scale: int = 1) -> IntArray:
        named = f"{self.fingerprint}\x1f{what}\x1f{variance}\x1f{FINE_STEP / scale}".encode()
        label = hashlib.sha256(self.study + named + self.asked).digest()
        return discrete_gaussian(shape, variance, KeyedBits(self.draws.key, label))


@dataclass(frozen=True)
class NoiseOfOne(Noise):
    """A client's part of the noise in a total, for sums with the client's weight in that total.

    The sums stay whole numbers, in steps so fine that a client's weight is a whole number, too.
    """

    party: AddedUp
    weights: WholeWeights

    def added(self, sums: FloatArray, deviation: float, what: str) -> Any:
        """Sums in whole steps, times the weight, with this client's part of the noise."""
        _check_exact(sums)
        weight, scale = self.weights.by_client[self.draws.client], self.weights.scale
        variance = variance_on_grid(self.party.own_deviation(deviation), FINE_STEP / scale)
        # The label includes the weight: the same sums at two weights must not have the same noise.
        drawn = self._drawn(sums.shape, variance, f"{what} times {weight}", scale)
        return weight * sums.astype(np.int64) + drawn


def _check_exact(sums: FloatArray) -> None:
    if not np.abs(sums).max(initial=0.0) < LARGEST_EXACT:
        raise RefusedError(RefusalCode.NORM_TOO_LARGE)


def noised_squares(squares: FloatArray, deviation: float, noise: Noise) -> FloatArray:
    """Symmetric matrices with noise; off the diagonal, noise is smaller by √2.

    So noise is the same in every direction, and a row moves a matrix by its Frobenius length.
    """
    n_columns = squares.shape[-1]
    rows, columns = np.triu_indices(n_columns, 1)
    diagonal = np.diagonal(squares, axis1=-2, axis2=-1)
    above = noise.added(squares[..., rows, columns], deviation / math.sqrt(2), "beside squares")
    full = np.zeros(squares.shape, above.dtype)
    full[..., rows, columns] = above
    full += np.swapaxes(full, -1, -2)
    places = np.arange(n_columns)
    full[..., places, places] = noise.added(diagonal, deviation, "squares")
    return full


class PrivateWorkspace:
    """One client's rows in one private study. Nothing in it leaves without noise."""

    def __init__(
        self,
        data: LoggedData,
        study: Study,
        limits: Limits,
        draws: PrivateDraws,
        *,
        store: Store | None = None,
    ) -> None:
        if draws.secret == SEED_ALONE:
            raise OptionError(
                "secret: noise that protects rows cannot be drawn from the seed alone"
            )
        self.study, self.limits, self.draws = study, limits, draws
        self.store: Store = MemoryStore() if store is None else store
        self.rows = PrivateRows(data, study, draws)
        self._by_terms: dict[int, list[GridRows]] = {}
        self.setting = PrivateSetting(study)
        self.plan, self.scales = self.setting.plan, self.setting.scales
        # This client among the others, if answers leave under masks.
        self.party = Party(self.rows, study, draws, self.store) if self.plan.is_secure else None

    @property
    def n_rows_given(self) -> int:
        """The number of all rows."""
        return self.rows.given.n_rows

    @property
    def n_training(self) -> int:
        """The number of training rows."""
        return self.rows.n_rows(RowSplit.TRAINING)

    @cached_property
    def key(self) -> str:
        """The name under which it stores what belongs to this study."""
        return f"{self.study.digest.hex()} private"

    def noise(self, asked: bytes, counting: Counting = Counting.ALIKE) -> Noise:
        """The noise on the answer to this question.

        Under masks it is this client's part of the noise in the total, for sums that have the
        client's weight in that total.
        """
        alone = self._noise_of_one(asked)
        if self.party is None:
            return alone
        together = self.party.together
        return NoiseOfOne(**vars(alone), party=together, weights=together.weights_of(counting))

    def _noise_of_one(self, asked: bytes) -> Noise:
        """The whole noise of the promise, for what is read of this client alone."""
        return Noise(self.draws, self.study.digest, self.rows.fingerprint, asked)

    # --- the first sums -------------------------------------------------------------------------

    @cached_property
    def first_sums(self) -> NoisedSums:
        """Squares and products of training rows by action, with noise; always the same."""
        squares, products = self._exact_sums(self.study.n_terms)
        noise, deviation = self.noise(b"first sums"), self.setting.deviation("squares")
        return NoisedSums(
            squares=noised_squares(squares, deviation, noise),
            products=noise.added(products, self.setting.deviation("products"), "products"),
        )

    def _exact_sums(self, n_terms: int) -> tuple[FloatArray, FloatArray]:
        """Squares and products of training rows by action, for the first `n_terms` terms."""
        shape = (self.study.n_actions, n_terms + 1)
        squares, products = np.zeros((*shape, n_terms + 1)), np.zeros(shape)
        for chunk in self.rows.chunks(RowSplit.TRAINING):
            rows = chunk.on_grid(n_terms)
            outcomes = rows.bounded(rows.outcomes / GRID, self.setting.bounds.product)
            for action in range(self.study.n_actions):
                own = rows.features[rows.actions == action]
                squares[action] += own.T @ own
                products[action] += outcomes[rows.actions == action] @ own
        return squares, products

    @cached_property
    def own_fit(self) -> FirstFit:
        """The fit to the client's own noisy sums: all that it may use of its rows elsewhere."""
        sums, noise = self.first_sums, self.setting.first_noise
        return first_fit(sums.squares, sums.products, noise, self.setting.families)

    @cached_property
    def _own_sums(self) -> tuple[FloatArray, FirstFit]:
        """Squares of features by action with enough noise of their own, and the fit to them.

        Under masks the first sums have only a part of their noise: these are drawn separately.
        """
        if self.party is None:
            return self.first_sums.squares, self.own_fit
        deviation = self.setting.deviation("own")
        noise = self._noise_of_one(b"own sums")
        exact, _ = self._exact_sums(self.study.n_features)
        squares = noised_squares(exact, deviation, noise)
        told_of_none = FirstNoise(deviation, deviation)
        products, families = np.zeros(squares.shape[:2]), [self.study.n_features]
        return squares, first_fit(squares, products, told_of_none, families)

    @cached_property
    def local_policy(self) -> LinearPolicy:
        """The policy that the client's own noisy sums lead to."""
        parameters = self.scales.parameters(self.own_fit.parameters)
        return LinearPolicy.from_numbers(parameters, self.study)

    # --- propensities ---------------------------------------------------------------------------

    def chances(self, chunk: PrivateChunk) -> FloatArray:  # (n_rows,)
        """The propensity of each logged action: known or modelled; never below the declared one.

        Known propensities are the row's own. Modelled ones follow from class means and one
        covariance (linear discriminant analysis), which have noise.
        """
        least = self.study.declared.overlap or 0.0
        known = chunk.known_chances
        if known is None:
            modelled = self._modelled(chunk.units(self.study.n_features))
            known = modelled[np.arange(len(modelled)), chunk.actions]
        return np.clip(known, least, 1.0)

    def _modelled(self, scaled: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        (squares, fit), features = self._own_sums, slice(self.study.n_features)
        means = squares[:, features, -1] / fit.rows[:, None]
        total = fit.rows.sum()
        within = fit.square[features, features] / total
        centre = fit.rows @ means / total
        spread = within - np.outer(centre, centre)
        directions = symmetric_pinv(spread, rcond=1e-6) @ means.T
        logits = row_by_row(scaled, directions) - 0.5 * np.einsum("ai,ia->a", means, directions)
        logits += np.log(fit.rows / total)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    # --- steps ----------------------------------------------------------------------------------

    def _training_rows(self, n_terms: int) -> Iterable[GridRows]:
        """Training rows on the grid, with their propensities; all steps use as many terms."""
        if n_terms in self._by_terms:
            return self._by_terms[n_terms]
        chunks = self.rows.chunks(RowSplit.TRAINING)
        found = (chunk.on_grid(n_terms, self.chances(chunk)) for chunk in chunks)
        if self.rows.given.is_on_disk:
            return found
        self._by_terms = {n_terms: list(found)}
        return self._by_terms[n_terms]

    def residual_sums(self, query: SumResiduals, asked: bytes) -> FloatArray:
        """Σ f·(y − fᵀθ)/e over each action's rows, bounded row by row, with noise."""
        n_actions, used = self.study.n_actions, query.columns
        parameters, taken = query.parameters[:, used], self.rows.sampled(asked)
        sums = np.zeros(parameters.shape)
        for rows in self._training_rows(query.n_terms):
            fitted = np.einsum("ij,ij->i", rows.features, parameters[rows.actions])
            left = (rows.outcomes - fitted) / GRID / rows.chances
            bounded = rows.bounded(left, Bounds(query.n_terms, n_actions).step)
            bounded *= taken[rows.whose]
            for action in range(n_actions):
                own = rows.actions == action
                sums[action] += bounded[own] @ rows.features[own]
        noise = self.noise(asked, Counting.TRAINING)
        noised = noise.added(sums, self.setting.step_deviation(query.n_terms), "residuals")
        # Nothing is released about terms that are not used.
        released = np.zeros(query.parameters.shape, noised.dtype)
        released[:, used] = noised
        return released

    # --- values ---------------------------------------------------------------------------------

    def scores(self, chunk: PrivateChunk, models: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """Doubly robust scores with these outcome models, from the middle, in half-ranges."""
        terms, half = self.study.terms, self.scales.half_range
        found = chunk.contexts if terms is None else terms.of(chunk.contexts)
        wide = np.column_stack([found, np.ones(len(found))])
        modelled = (row_by_row(wide, models.T) - self.scales.outcome_centre) / half
        scores = np.clip(modelled, -MOST_MODELLED, MOST_MODELLED)
        taken = np.arange(len(scores)), chunk.actions
        scores[taken] += (chunk.outcomes / half - scores[taken]) / self.chances(chunk)
        return scores

    def decisions(
        self, query: AsksAboutPolicies[Any], contexts: FloatArray
    ) -> list[IntArray]:  # of each policy, (n_rows,)
        """Decisions of a query's policies; refuses rules in code, which may look at all rows."""
        if len(getattr(query, RULES)):
            raise RefusedError(RefusalCode.MALFORMED)
        fields = [(name, one) for name in POLICY_FIELDS for one in getattr(query, name)]
        try:
            found = [unpacked(name, one, self.study).at(self.draws.client) for name, one in fields]
        except ValueError:
            raise RefusedError(RefusalCode.MALFORMED) from None
        return [policy.decide(contexts) for policy in found]

    def noised_values(self, query: ValuePrivately, asked: bytes) -> NoisedValues:
        """Sums of the scores of candidates' decisions on held-out rows, and squares, with noise."""
        of_squares = self.noise(asked, Counting.HELD_OUT_SQUARES)
        return NoisedValues(**self._valued(query, self.noise(asked, Counting.HELD_OUT), of_squares))

    def values_apart(self, query: ValueApart, asked: bytes) -> ValuesApart:
        """The same sums, to be read where masks hide others: with all noise, drawn separately."""
        noise = self._noise_of_one(asked)
        return ValuesApart(**self._valued(query, noise, noise, " apart"))

    def _turned_scores(
        self, query: AsksForNoisedValues[Any], chunk: PrivateChunk
    ) -> FloatArray:  # (n_rows, n_axes)
        scores = self.scores(chunk, query.models)
        decided = self.decisions(query, chunk.contexts)
        if self.party is None:
            here = self.local_policy.at(self.draws.client)
            decided.append(here.decide(chunk.contexts))
        columns = [scores[np.arange(len(scores)), codes] for codes in decided]
        columns.insert(query.n_policies, chunk.outcomes / self.scales.half_range)
        return row_by_row(np.column_stack(columns), self.setting.score_axes.T)

    def _valued(
        self, query: AsksForNoisedValues[Any], noise: Noise, of_squares: Noise, apart: str = ""
    ) -> dict[str, Any]:
        """The fields of the answer, with noise."""
        sums, squares = self._sums_of_scores(query)
        deviation = self.setting.deviation(f"value squares{apart}")
        return {
            "n_rows": self.rows.n_rows(RowSplit.EVALUATION),
            "sums": noise.added(sums, self.setting.deviation(f"values{apart}"), f"sums{apart}"),
            "squares": noised_squares(squares, deviation, of_squares),
        }

    def _sums_of_scores(self, query: AsksForNoisedValues[Any]) -> tuple[FloatArray, FloatArray]:
        """Sums of turned scores and of their squares, in whole steps, without noise."""
        n_axes, chunks = len(self.setting.score_axes), self.rows.chunks(RowSplit.EVALUATION)
        turned = ((chunk.whose, self._turned_scores(query, chunk)) for chunk in chunks)
        sums, squares = np.zeros(n_axes), np.zeros((n_axes, n_axes))
        for values in self.rows.by_unit(turned):
            on_grid = truncated(values)
            squares += on_grid.T @ on_grid
            # In finer steps than the squares: truncation must not move means.
            sums += np.trunc(values * FINE).sum(axis=0)
        return sums, squares


def asked_about(query: AsksForNoisedScores[Any]) -> bytes:
    """The bytes that determine the noise on values: models and policies."""
    asked = [getattr(query, field).tobytes() for field in POLICY_FIELDS]
    policies = b"".join(b"%d %s" % (len(one), one) for one in asked)
    return b"%s %s" % (query.models.tobytes(), policies)
