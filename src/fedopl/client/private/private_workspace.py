"""What answers work on in a study with differential privacy: bounded rows, and noise."""

from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.private.party import Party
from fedopl.client.private.private_rows import GridRows, PrivateRows, truncated
from fedopl.client.private.release import Noise, NoiseOfOne, noised_squares
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_sums import NoisedSums
from fedopl.messages.private.noised_values import NoisedValues, ValuePrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.linear import LinearPolicy
from fedopl.privacy.score_axes import MOST_MODELLED
from fedopl.privacy.sum_grid import FINE, GRID
from fedopl.solvers.private_regression import FirstFit, FirstNoise, first_fit
from fedopl.study.added_up import Counting
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
        # Where answers leave under masks: this client among the others.
        self.party = Party(self.rows, study, draws, self.store) if self.plan.is_secure else None

    @property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return self.rows.n_rows(RowSplit.TRAINING)

    @cached_property
    def key(self) -> str:
        """Names what is stored for this study."""
        return f"{self.study.digest.hex()} private"

    def noise(self, asked: bytes, counting: Counting = Counting.ALIKE) -> Noise:
        """Noise on the answer to this question.

        Under masks it is a part of the total's, to sums that count as the client does there.
        """
        about = (self.draws, self.study.digest, self.rows.fingerprint, asked)
        if self.party is None:
            return Noise(*about)
        together = self.party.together
        return NoiseOfOne(*about, together, together.weights_of(counting))

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
        return NoisedSums(
            squares=noised_squares(squares, deviation, noise),
            products=noise.added(products, self.setting.deviation("products"), "products"),
        )

    @cached_property
    def own_fit(self) -> FirstFit:
        """What the client's own noisy sums tell: all that it may use of its rows elsewhere."""
        sums, noise = self.first_sums, self.setting.first_noise
        return first_fit(sums.squares, sums.products, noise, self.setting.families)

    @cached_property
    def _own_sums(self) -> tuple[FloatArray, FirstFit]:
        """Squares of features by action with noise enough by itself, and what they tell.

        Under masks the first sums have but a part of their noise, so these are drawn apart.
        """
        if self.party is None:
            return self.first_sums.squares, self.own_fit
        rows = self.rows.on_grid(RowSplit.TRAINING, np.ones(0), self.study.n_features)
        of_actions = [rows.features[rows.actions == a] for a in range(self.study.n_actions)]
        deviation = self.setting.deviation("own")
        noise = Noise(self.draws, self.study.digest, self.rows.fingerprint, b"own sums")
        squares = noised_squares(np.stack([own.T @ own for own in of_actions]), deviation, noise)
        told_of_none = FirstNoise(deviation, deviation)
        products, families = np.zeros(squares.shape[:2]), [self.study.n_features]
        return squares, first_fit(squares, products, told_of_none, families)

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
        (squares, fit), features = self._own_sums, slice(self.study.n_features)
        means = squares[:, features, -1] / fit.rows[:, None]
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
        noise = self.noise(asked, Counting.TRAINING)
        noised = noise.added(sums, self.setting.step_deviation(query.n_terms), "residuals")
        # Of terms that are not used, nothing is said.
        released = np.zeros(query.parameters.shape, noised.dtype)
        released[:, used] = noised
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
        decided = self.decisions(query, contexts)
        if self.party is None:
            decided.append(self.local_policy.decide(contexts))
        columns = [scores[np.arange(len(scores)), codes] for codes in decided]
        columns.insert(query.n_policies, self.rows.outcomes(split) / self.scales.half_range)
        turned = np.column_stack(columns) @ self.setting.score_axes.T
        return self._released(self.rows.by_unit(turned, split), asked)

    def _released(self, values: FloatArray, asked: bytes) -> NoisedValues:
        on_grid, split = truncated(values), RowSplit.EVALUATION
        # Finer than what is squared: truncation must not move means.
        sums = np.trunc(values * FINE).sum(axis=0)
        noise = self.noise(asked, Counting.HELD_OUT)
        of_squares = self.noise(asked, Counting.HELD_OUT_SQUARES)
        deviation = self.setting.deviation("value squares")
        return NoisedValues(
            n_rows=self.rows.n_rows(split),
            sums=noise.added(sums, self.setting.deviation("values"), "sums"),
            squares=noised_squares(on_grid.T @ on_grid, deviation, of_squares),
        )
