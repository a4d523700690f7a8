"""A client's rows as one study sees them: split, scored, and ready to be summed."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedopl import least_squares
from fedopl.arrays import BoolArray, FloatArray, IntArray, compact_codes
from fedopl.client.cells import ScoredRows
from fedopl.client.descent import Examples, examples
from fedopl.client.folds import Folds, assign_folds_and_set_apart
from fedopl.client.guards import guarded_scores
from fedopl.client.limits import RefusedError
from fedopl.client.logged_data import LoggedData
from fedopl.client.nuisances import Nuisances, fit_nuisances
from fedopl.client.outcome import action_blocks
from fedopl.client.propensity import Propensities, fit_propensities
from fedopl.client.rarity import without_rare_cells, without_rare_values
from fedopl.client.scores import aipw_scores
from fedopl.client.statistics import ScoreMeans, score_means
from fedopl.client.store import Arrays, MemoryStore, Store, fingerprint
from fedopl.client.sums import fold_sums, measured_from_zero, predict
from fedopl.client.support import Support, support_of
from fedopl.client.tree_alone import tree_alone
from fedopl.client.vowpal import Vowpal
from fedopl.errors import DataError
from fedopl.least_squares import LinearModels
from fedopl.policies.kinds import Policy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy, as_array, from_array
from fedopl.solving import solve_scores
from fedopl.study import Study
from fedopl.wire.vocabulary import N_PARTS, RefusalCode, Split

# What is kept of scoring: the scores, for which models, the client's own policy, the support.
KEPT = {"values", "models", "local", "chances", "effective_rows"}

Rule = Callable[[FloatArray], NDArray[np.generic]]


class Workspace:
    """Everything the door needs to know about the rows; nothing here ever leaves by itself."""

    def __init__(
        self,
        data: LoggedData,
        study: Study,
        store: Store,
        rules: Mapping[str, Rule],
        rows_needed: int,
        minimum_cell: int,
    ) -> None:
        self._given, self.study, self.store, self.rules = data, study, store, rules
        self.rows_needed = rows_needed  # behind any sum of scores that may be told
        self._minimum_cell = minimum_cell
        self._examples: tuple[bytes, Examples] | None = None
        self._vowpal: tuple[Examples, Vowpal] | None = None

    @cached_property
    def folds(self) -> Folds:
        """The fold of each row, and which rows are set apart; the seed decides, not the order."""
        study = self.study
        return assign_folds_and_set_apart(
            self._given, study.nuisances.folds, study.evaluation_share, study.seed
        )

    @cached_property
    def parts(self) -> Folds:
        """The training rows dealt to `N_PARTS` parts, for models to be fitted without each."""
        study = self.study
        return assign_folds_and_set_apart(self._given, N_PARTS, study.evaluation_share, study.seed)

    @cached_property
    def data(self) -> LoggedData:
        """The rows, without values that would give a few of them away."""
        return without_rare_values(self._given, self.training, self._minimum_cell)

    @cached_property
    def training(self) -> BoolArray:  # (n_rows,)
        """The rows that may be learned from."""
        return ~self.folds.set_apart

    @cached_property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return int(self.training.sum())

    def rows(self, split: Split) -> BoolArray:  # (n_rows,)
        """The rows of a split."""
        if split is Split.TRAINING:
            return self.training
        if split is Split.EVALUATION:
            return self.folds.set_apart
        first: BoolArray = self.folds.of_row == 0
        return first if split is Split.VALIDATION else self.training & ~first

    @cached_property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """Training rows that took each action."""
        return np.bincount(self.data.actions[self.training], minlength=self.data.n_actions)

    @cached_property
    def rows_per_cell(self) -> IntArray:  # (n_folds, n_actions)
        """Training rows of each fold that took each action."""
        shape = (self.folds.n_folds, self.data.n_actions)
        return np.bincount(self._cells, minlength=shape[0] * shape[1]).reshape(shape)

    @cached_property
    def _cells(self) -> IntArray:  # (n_training,)
        """The fold and action of each training row, as one number."""
        cells = self.folds.of_row.astype(np.int64) * self.data.n_actions + self.data.actions
        return cells[self.training]

    @cached_property
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, where the policy has them."""
        return action_blocks(self.data) if self.study.policy_features == "blocks" else None

    @cached_property
    def mask(self) -> FloatArray | None:  # (n_actions, n_features + 1)
        """Which parameters an oracle may move, if not all."""
        if self.blocks is None:
            return None
        mask = np.zeros((self.data.n_actions, self.data.n_features + 1))
        for action, own in enumerate(self.blocks):
            mask[action, own] = 1.0
        return mask

    # --- scores --------------------------------------------------------------------------------

    def outcome_sums(self) -> tuple[FloatArray, FloatArray]:
        """Σ w·zzᵀ and Σ w² for each fold and action, measured from zero."""
        sums = fold_sums(self.without_rare(self._cells), self.folds)
        return measured_from_zero(sums), sums.squared_weights

    def without_rare(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        return without_rare_cells(self.data, self.training, cells, self._minimum_cell)

    def scored_with(self, models: FloatArray) -> Arrays:
        """All that later queries need, for these outcome models or, without any, for our own.

        Nothing is kept yet: what may not be told must not be used later either.
        """
        key = np.frombuffer(hashlib.sha256(models.tobytes()).digest(), np.uint8)
        kept = self._kept()
        if kept is not None and np.array_equal(kept["models"], key):
            return kept
        nuisances = self._borrowed(models) if len(models) else self._own_nuisances
        values = aipw_scores(self.data, nuisances, clip=self.study.nuisances.clip).values
        local = self._learned_alone() if self._needs_local_policy else np.empty(0)
        guarded = guarded_scores(self._unseen(values), self.training, self.rows_needed)
        if not np.isfinite(guarded[self.training]).any():
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        support = support_of(self.data, nuisances.propensities, self.training)
        return {"values": guarded, "models": key, "local": local, **vars(support)}

    def keep(self, scored: Arrays) -> None:
        """Keep the scores, so that a fresh process answers later queries without a fit."""
        self.store.put(self._key, scored)
        self._examples = None

    @property
    def scores(self) -> FloatArray:  # (n_rows, n_actions)
        """The scores of all rows, found again if another process made them."""
        return self._scored["values"]

    @property
    def local_policy(self) -> Policy:
        """What this client would have learned alone."""
        study, local = self.study, self._scored["local"]
        if study.policy != "tree":
            return LinearPolicy(local, study.actions, study.features)
        root = from_array(local, study.columns, range(study.n_actions))
        return TreePolicy(root, study.actions, study.features, study.encoding)

    @property
    def support(self) -> Support:
        """How well each action is supported by the training rows."""
        return Support(self._scored["chances"], self._scored["effective_rows"])

    @property
    def _scored(self) -> Arrays:
        kept = self._kept()
        if kept is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return kept

    def _kept(self) -> Arrays | None:
        """What was stored, unless it is not what we store."""
        kept = self.store.get(self._key)
        if kept is None or set(kept) != KEPT:
            return None
        fits = kept["values"].shape == (self.data.n_rows, self.data.n_actions)
        return kept if fits else None

    def decisions(self, rows: BoolArray, what: str = "") -> IntArray:  # (n_policies, n_rows)
        """What every policy valued so far decided for these rows, or which leaves they were in."""
        kept = self.store.get(self._decisions_key(rows, what))
        known = None if kept is None else kept.get("decisions")
        if known is None or known.ndim != 2 or known.shape[1] != rows.sum():
            return np.empty((0, int(rows.sum())), np.uint8)
        return known

    def remember(self, rows: BoolArray, decided: list[IntArray], what: str = "") -> None:
        """Keep what these policies decided, behind those before: who came first is a twin's."""
        every = [*self.decisions(rows, what), *map(compact_codes, decided)]
        different = {hashlib.sha256(codes.tobytes()).digest(): codes for codes in every}
        if different:
            known = np.stack([*different.values()])
            self.store.put(self._decisions_key(rows, what), {"decisions": known})

    def _decisions_key(self, rows: BoolArray, what: str) -> str:
        return f"{self._key} {hashlib.sha256(rows.tobytes()).hexdigest()} {what}"

    def agree_on_grid(self, n_cuts: FloatArray, cuts: FloatArray) -> None:
        """Keep to the first grid that was asked about: another would tell what lies between."""
        key, grid = f"{self._key} grid", {"n_cuts": n_cuts, "cuts": cuts}
        kept = self.store.get(key)
        if kept is None or set(kept) != set(grid):
            self.store.put(key, grid)
        elif not all(np.array_equal(kept[name], grid[name]) for name in grid):
            raise RefusedError(RefusalCode.BUDGET_SPENT)

    @cached_property
    def _key(self) -> str:
        persistent = not isinstance(self.store, MemoryStore)
        rows = fingerprint(self.data) if persistent else ""
        return f"{self.study.digest.hex()} {rows} {self.rows_needed} {self._minimum_cell}"

    @property
    def _needs_local_policy(self) -> bool:
        """To compare with on held-out rows, or because it is what the party is after."""
        study = self.study
        alone = study.policy == "tree" and study.tree.thresholds == "observed"
        return alone or study.evaluation_share > 0

    def _unseen(self, values: FloatArray) -> FloatArray:
        never = self.rows_per_action == 0
        rule = self.study.nuisances.unseen_rule
        if never.any() and rule == "refuse":
            raise RefusedError(RefusalCode.UNSEEN_ACTION)
        if never.any() and rule == "mask":
            values = values.copy()
            values[:, never] = np.nan
        return values

    @cached_property
    def propensities(self) -> Propensities:
        """How likely each action was in each row: known, or fitted out of fold."""
        plan = self.study.nuisances
        try:
            return fit_propensities(self.data, self.folds, plan.propensity, self.study.seed)
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    @cached_property
    def _own_nuisances(self) -> Nuisances:
        plan = self.study.nuisances
        given = self.propensities
        return fit_nuisances(self.data, self.folds, plan.outcome, given, self.study.seed)

    def _borrowed(self, models: FloatArray) -> Nuisances:
        linear = LinearModels(
            coefficients=np.nan_to_num(models[..., :-1]),
            intercepts=models[..., -1],
            penalties=np.zeros(models.shape[:2]),
        )
        return Nuisances(
            outcome_means=predict(self.data, self.folds, linear),
            propensities=self.propensities.values,
            folds=self.folds.of_row,
            supported=linear.supported,
            outcome="federated",
            propensity=self.propensities.chosen,
            notes=(),
        )

    # --- what is made of them ------------------------------------------------------------------

    def scored_rows(self, scores: FloatArray) -> ScoredRows:
        """The training rows with these scores, to learn a tree from."""
        data = self.data
        return ScoredRows(
            contexts=data.contexts, scores=scores, weights=data.weights, used=self.training
        )

    def score_means(self, scores: FloatArray) -> ScoreMeans:
        """What the exact oracle needs to know of the training rows."""
        return score_means(self.data, scores, self.training, self.blocks)

    def fitting_means(self) -> ScoreMeans:
        """The same without the first fold, to be tried on it.

        Values that few rows of either side have beside the usual one are left out, for the means
        over all tell one side by the other.
        """
        first = self.rows(Split.VALIDATION)[self.training]
        data = self.without_rare(first.astype(np.int64))
        return score_means(data, self.scores, self.rows(Split.FITTING), self.blocks)

    def examples(self, centre: FloatArray, scale: FloatArray) -> Examples:
        """Training rows for the iterative oracle, made once for each standardisation."""
        key = centre.tobytes() + scale.tobytes()
        if self._examples is None or self._examples[0] != key:
            scores = self.scores
            rows = np.flatnonzero(self.training & np.isfinite(scores).any(axis=1))
            data = self.data
            made = examples(data.contexts, scores, data.weights, centre, scale, rows)
            self._examples = (key, made)
        return self._examples[1]

    def vowpal(self, rows: Examples) -> Vowpal:
        """The one Vowpal Wabbit workspace for these examples."""
        if self._vowpal is None or self._vowpal[0] is not rows:
            self._vowpal = (rows, Vowpal(rows, self.study.plan.rate))
        return self._vowpal[1]

    def _learned_alone(self) -> FloatArray:  # (n_actions, n_features + 1), or a tree's numbers
        """Own nuisances, own scores, the exact oracle or search: numbers that never leave."""
        values = aipw_scores(self.data, self._own_nuisances).values
        if self.study.policy == "tree":
            study = self.study
            rows = self.scored_rows(values)
            return as_array(tree_alone(rows, study.tree, study.columns, study.actions))
        means = score_means(self.data, values, self.training, self.blocks)
        parameters = solve_scores(
            means.grams,
            means.products,
            means.squares,
            means.shares,
            intercept=self.study.has_intercept,
        )
        return least_squares.widen(parameters, self.blocks, self.data.n_features)
