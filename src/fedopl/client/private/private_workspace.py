"""What answers work on in a study with differential privacy: bounded rows, and noise."""

import math
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.private.private_rows import GRID, GridRows, PrivateRows, truncated
from fedopl.client.private.release import FINE, Noise, symmetric
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_sums import NoisedSums
from fedopl.messages.private.noised_values import NoisedValues, ValuePrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.score_axes import MOST_MODELLED, score_axes
from fedopl.solvers.private_regression import FirstFit, first_fit
from fedopl.study.private_setting import Bounds, PrivateSetting
from fedopl.study.study import Study


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
            raise OptionError("secret: noise that protects rows cannot follow from the seed alone")
        self.study, self.limits, self.draws = study, limits, draws
        self.store: Store = MemoryStore() if store is None else store
        self.rows = PrivateRows(data, study, draws)
        self._by_terms: dict[int, GridRows] = {}
        self.setting = PrivateSetting(study)
        self.plan, self.scales = self.setting.plan, self.setting.scales

    @property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return self.rows.n_rows(RowSplit.TRAINING)

    @cached_property
    def key(self) -> str:
        """Names what is stored for this study."""
        return f"{self.study.digest.hex()} private"

    def noise(self, asked: bytes) -> Noise:
        """Noise on the answer to this question."""
        return Noise(self.draws, self.study.digest, self.rows.fingerprint, asked)

    # --- the first sums -------------------------------------------------------------------------

    @cached_property
    def first_sums(self) -> NoisedSums:
        """Squares and products of training rows by action, with noise: the same whenever asked."""
        rows = self.rows.on_grid(RowSplit.TRAINING, np.ones(0), self.study.n_terms)
        outcomes = rows.bounded(rows.outcomes / GRID, self.setting.bounds.product)
        n_columns, n_actions = self.study.n_terms + 1, self.study.n_actions
        squares = np.empty((n_actions, n_columns, n_columns))
        products = np.empty((n_actions, n_columns))
        for action in range(n_actions):
            own = rows.features[rows.actions == action]
            squares[action] = own.T @ own
            products[action] = outcomes[rows.actions == action] @ own
        noise, deviation = self.noise(b"first sums"), self.setting.deviation("squares")
        above = squares[:, *np.triu_indices(n_columns, 1)]
        diagonal = np.diagonal(squares, axis1=1, axis2=2)
        return NoisedSums(
            squares=symmetric(
                squares,
                noise.added(diagonal, deviation, "squares"),
                noise.added(above, deviation / math.sqrt(2), "beside squares"),
            ),
            products=noise.added(products, self.setting.deviation("products"), "products"),
        )

    @cached_property
    def own_fit(self) -> FirstFit:
        """What the client's own noisy sums tell: all that it may use of its rows elsewhere."""
        sums, noise = self.first_sums, self.setting.first_noise
        return first_fit(sums.squares, sums.products, noise, self.setting.families)

    @cached_property
    def local_policy(self) -> LinearPolicy:
        """What the client's own noisy sums would decide."""
        parameters = self.scales.parameters(self.own_fit.parameters)
        actions, features = self.study.actions, self.study.features
        return LinearPolicy(parameters, actions, features, terms=self.study.terms)

    # --- propensities ---------------------------------------------------------------------------

    def chances(self, split: RowSplit) -> FloatArray:  # (n_rows,)
        """How likely what was done was: known, or as the noisy sums tell; never below the agreed.

        Known ones are the row's own. Modelled ones follow from class means and one covariance
        (linear discriminant analysis), which noise covers.
        """
        least = self.study.declared.overlap or 0.0
        known = self.rows.known_chances(split)
        if known is None:
            modelled = self._modelled(self.rows.units(split, self.study.n_features))
            known = modelled[np.arange(len(modelled)), self.rows.actions(split)]
        return np.clip(known, least, 1.0)

    def _modelled(self, scaled: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        sums, fit, features = self.first_sums, self.own_fit, slice(self.study.n_features)
        means = sums.squares[:, features, -1] / fit.rows[:, None]
        total = fit.rows.sum()
        within = fit.square[features, features] / total
        centre = fit.rows @ means / total
        spread = within - np.outer(centre, centre)
        directions = np.linalg.pinv(spread, rcond=1e-6, hermitian=True) @ means.T
        logits = scaled @ directions - 0.5 * np.einsum("ai,ia->a", means, directions)
        logits += np.log(fit.rows / total)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    # --- steps ----------------------------------------------------------------------------------

    def _training_rows(self, n_terms: int) -> GridRows:
        """Training rows on the grid, with their propensities; every step uses as many terms."""
        if n_terms not in self._by_terms:
            chances = self.chances(RowSplit.TRAINING)
            self._by_terms = {n_terms: self.rows.on_grid(RowSplit.TRAINING, chances, n_terms)}
        return self._by_terms[n_terms]

    def residual_sums(self, query: SumResiduals, asked: bytes) -> FloatArray:
        """Σ f·(y − fᵀθ)/e of each action's rows, bounded row by row, with noise."""
        n_actions, used = self.study.n_actions, query.columns
        rows, parameters = self._training_rows(query.n_terms), query.parameters[:, used]
        fitted = np.einsum("ij,ij->i", rows.features, parameters[rows.actions])
        left = (rows.outcomes - fitted) / GRID / rows.chances
        bounded = rows.bounded(left, Bounds(query.n_terms, n_actions).step)
        bounded *= self.rows.sampled(RowSplit.TRAINING, asked)
        sums = np.stack(
            [
                bounded[rows.actions == action] @ rows.features[rows.actions == action]
                for action in range(n_actions)
            ]
        )
        released = np.zeros_like(query.parameters)  # of terms that are not used, nothing is said
        deviation = self.setting.step_deviation(query.n_terms)
        released[:, used] = self.noise(asked).added(sums, deviation, "residuals")
        return released

    # --- values ---------------------------------------------------------------------------------

    def scores(self, split: RowSplit, models: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """Doubly robust scores with these outcome models, from the middle, in half-ranges."""
        contexts, actions = self.rows.contexts(split), self.rows.actions(split)
        terms = contexts if self.study.terms is None else self.study.terms.of(contexts)
        wide = np.column_stack([terms, np.ones(len(terms))])
        modelled = (wide @ models.T - self.scales.outcome_centre) / self.scales.half_range
        scores = np.clip(modelled, -MOST_MODELLED, MOST_MODELLED)
        every, outcomes = np.arange(len(scores)), self.rows.outcomes(split) / self.scales.half_range
        scores[every, actions] += (outcomes - scores[every, actions]) / self.chances(split)
        return scores

    def decisions(
        self, query: AsksAboutPolicies[Any], contexts: FloatArray
    ) -> list[IntArray]:  # of each policy, (n_rows,)
        """What the policies of a query decide; a rule of a client's code may look at all rows."""
        if len(getattr(query, RULES)):
            raise RefusedError(RefusalCode.MALFORMED)
        fields = [(name, one) for name in POLICY_FIELDS for one in getattr(query, name)]
        try:
            return [unpacked(name, one, self.study).decide(contexts) for name, one in fields]
        except ValueError:
            raise RefusedError(RefusalCode.MALFORMED) from None

    def noised_values(self, query: ValuePrivately, asked: bytes) -> NoisedValues:
        """Sums of what candidates' decisions score on held-out rows, and of squares, with noise."""
        split = RowSplit.EVALUATION
        contexts, scores = self.rows.contexts(split), self.scores(split, query.models)
        decided = [*self.decisions(query, contexts), self.local_policy.decide(contexts)]
        columns = [scores[np.arange(len(scores)), codes] for codes in decided]
        columns.insert(query.n_policies, self.rows.outcomes(split) / self.scales.half_range)
        turned = np.column_stack(columns) @ score_axes(self.study.declared.overlap or 1.0).T
        return self._released(self.rows.by_unit(turned, split), asked)

    def _released(self, values: FloatArray, asked: bytes) -> NoisedValues:
        on_grid, noise = truncated(values), self.noise(asked)
        # Finer than what is squared: truncation must not move means.
        sums = np.trunc(values * FINE).sum(axis=0)
        squares = on_grid.T @ on_grid
        deviation, above = self.setting.deviation("value squares"), np.triu_indices(len(squares), 1)
        return NoisedValues(
            n_rows=self.rows.n_rows(RowSplit.EVALUATION),
            sums=noise.added(sums, self.setting.deviation("values"), "sums"),
            squares=symmetric(
                squares,
                noise.added(np.diagonal(squares), deviation, "squares"),
                noise.added(squares[above], deviation / math.sqrt(2), "beside squares"),
            ),
        )
