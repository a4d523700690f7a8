"""What answers work on in a study with differential privacy: bounded rows, and noise."""

import math
from functools import cached_property

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.private.private_rows import GRID, GridRows, PrivateRows, truncated
from fedopl.client.private.release import FINE, Noise, symmetric
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_sums import NoisedSums
from fedopl.messages.private.noised_values import NoisedValues, ValuePrivately
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.score_axes import MOST_MODELLED, score_axes
from fedopl.solvers.private_regression import FirstFit, first_fit
from fedopl.study.privacy_plan import PrivateSetting
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
        self.plan, self.bounds, self.scales = self.rows.plan, self.rows.bounds, self.rows.scales
        self.deviations = PrivateSetting(study).deviations

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
        rows = self.rows.on_grid(RowSplit.TRAINING, np.ones(0))
        outcomes = rows.bounded(rows.outcomes / GRID, self.bounds.product)
        n_columns, n_actions = self.study.n_features + 1, self.study.n_actions
        squares = np.empty((n_actions, n_columns, n_columns))
        products = np.empty((n_actions, n_columns))
        for action in range(n_actions):
            own = rows.features[rows.actions == action]
            squares[action] = own.T @ own
            products[action] = outcomes[rows.actions == action] @ own
        noise, deviation = self.noise(b"first sums"), self.deviations.first
        above = squares[:, *np.triu_indices(n_columns, 1)]
        diagonal = np.diagonal(squares, axis1=1, axis2=2)
        return NoisedSums(
            squares=symmetric(
                squares,
                noise.added(diagonal, deviation, "squares"),
                noise.added(above, deviation / math.sqrt(2), "beside squares"),
            ),
            products=noise.added(products, deviation, "products"),
        )

    @cached_property
    def own_fit(self) -> FirstFit:
        """What the client's own noisy sums tell: all that it may use of its rows elsewhere."""
        sums = self.first_sums
        return first_fit(sums.squares, sums.products, self.deviations.first)

    @cached_property
    def local_policy(self) -> LinearPolicy:
        """What the client's own noisy sums would decide."""
        parameters = self.scales.parameters(self.own_fit.parameters)
        return LinearPolicy(parameters, self.study.actions, self.study.features)

    # --- propensities ---------------------------------------------------------------------------

    def chances(self, split: RowSplit) -> FloatArray:  # (n_rows,)
        """How likely what was done was: known, or as the noisy sums tell; never below the agreed.

        Known ones are the row's own. Modelled ones follow from class means and one covariance
        (linear discriminant analysis), which noise covers.
        """
        least = self.study.declared.overlap or 0.0
        known = self.rows.known_chances(split)
        if known is None:
            modelled = self._modelled(self.rows.contexts(split))
            known = modelled[np.arange(len(modelled)), self.rows.actions(split)]
        return np.clip(known, least, 1.0)

    def _modelled(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        sums, fit = self.first_sums, self.own_fit
        means = sums.squares[:, :-1, -1] / fit.rows[:, None]
        total = fit.rows.sum()
        within = fit.square[:-1, :-1] / total
        centre = fit.rows @ means / total
        spread = within - np.outer(centre, centre)
        directions = np.linalg.pinv(spread, rcond=1e-6, hermitian=True) @ means.T
        scaled = (contexts - self.scales.centre) / self.scales.unit
        logits = scaled @ directions - 0.5 * np.einsum("ai,ia->a", means, directions)
        logits += np.log(fit.rows / total)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    # --- steps ----------------------------------------------------------------------------------

    @cached_property
    def training_rows(self) -> GridRows:
        """Training rows on the grid, with their propensities."""
        return self.rows.on_grid(RowSplit.TRAINING, self.chances(RowSplit.TRAINING))

    def residual_sums(self, parameters: FloatArray, asked: bytes) -> FloatArray:
        """Σ f·(y − fᵀθ)/e of each action's rows, bounded row by row, with noise."""
        rows = self.training_rows
        fitted = np.einsum("ij,ij->i", rows.features, parameters[rows.actions])
        left = (rows.outcomes - fitted) / GRID / rows.chances
        bounded = rows.bounded(left, self.bounds.step)
        sums = np.stack(
            [
                bounded[rows.actions == action] @ rows.features[rows.actions == action]
                for action in range(self.study.n_actions)
            ]
        )
        return self.noise(asked).added(sums, self.deviations.step, "residuals")

    # --- values ---------------------------------------------------------------------------------

    def noised_values(self, query: ValuePrivately, asked: bytes) -> NoisedValues:
        """Sums of what candidates' decisions score on held-out rows, and of squares, with noise."""
        split = RowSplit.EVALUATION
        contexts, actions = self.rows.contexts(split), self.rows.actions(split)
        outcomes = self.rows.outcomes(split) / self.scales.half_range
        wide = np.column_stack([contexts, np.ones(len(contexts))])
        modelled = (wide @ query.models.T - self.scales.outcome_centre) / self.scales.half_range
        scores = np.clip(modelled, -MOST_MODELLED, MOST_MODELLED)
        every = np.arange(len(scores))
        scores[every, actions] += (outcomes - scores[every, actions]) / self.chances(split)
        decided = [np.argmax(wide @ policy.T, axis=1) for policy in query.policies]
        decided.append(self.local_policy.decide(contexts))
        columns = [scores[every, codes] for codes in decided]
        columns.insert(len(query.policies), outcomes)
        turned = np.column_stack(columns) @ score_axes(self.study.declared.overlap or 1.0).T
        return self._released(self.rows.by_unit(turned, split), asked)

    def _released(self, values: FloatArray, asked: bytes) -> NoisedValues:
        on_grid, noise = truncated(values), self.noise(asked)
        # Finer than what is squared: truncation must not move means.
        sums = np.trunc(values * FINE).sum(axis=0)
        squares = on_grid.T @ on_grid
        deviation, above = self.deviations.value_squares, np.triu_indices(len(squares), 1)
        return NoisedValues(
            n_rows=self.rows.n_rows(RowSplit.EVALUATION),
            sums=noise.added(sums, self.deviations.values, "sums"),
            squares=symmetric(
                squares,
                noise.added(np.diagonal(squares), deviation, "squares"),
                noise.added(squares[above], deviation / math.sqrt(2), "beside squares"),
            ),
        )
