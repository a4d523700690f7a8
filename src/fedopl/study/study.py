"""The study: what every party agrees on before anything runs. It is hashed; messages carry that."""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fedopl.base.schema import Encoding, Schema
from fedopl.base.validation import Checked
from fedopl.policies.columns import Column, LevelColumn, NumberColumn, tree_columns
from fedopl.policies.trees.growing import n_levels
from fedopl.policies.trees.plan_checks import check_plan
from fedopl.policies.trees.tree_plan import LOOK_AHEAD, MOST_CELLS, TreePlan
from fedopl.study.mixture import Empirical, Mixture

PolicyKind = Literal["linear", "tree", "finite"]
OracleName = Literal["csoaa-exact", "csoaa-sgd", "csoaa-vw", "wap", "direct"]


# A message has at most 1 GiB; numbers have 8 bytes, and some room is left for what else it says.
MOST_NUMBERS = (1 << 27) - 1024


class TrainingPlan(Checked):
    """How the iterative oracles go about it (Algorithms 1 and 2)."""

    rounds: int = Field(default=40, ge=1, le=100_000, description="how often clients are asked")
    local_steps: int = Field(default=20, ge=1, description="a client takes in each round")
    batch_size: int = Field(default=128, ge=1, description="rows behind each step")
    clients_per_round: int | None = Field(
        default=None, ge=1, description="drawn by seed and round; all of them if not said"
    )
    rate: float = Field(
        default=0.5, gt=0, le=2, description="length of a step, of the largest stable one"
    )
    proximal: float = Field(default=0.0, ge=0, description="FedProx: pull to the round's start")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of the server's steps")
    average: Literal["steps", "rounds"] = Field(
        default="steps", description="of all local steps, or only of where the later rounds ended"
    )


class NuisancePlan(Checked):
    """How scores come about."""

    kind: Literal["federated", "local"] = Field(
        default="federated", description="outcome models from everybody's sums, or each its own"
    )
    outcome: Literal["ridge", "ols"] = Field(default="ridge", description="the outcome model")
    propensity: Literal["auto", "known", "marginal", "logistic"] = Field(
        default="auto", description="the propensity model; auto is known, else what fits best"
    )
    folds: int = Field(default=5, ge=2, le=1000, description="of cross-fitting")
    clip: float | None = Field(
        default=None, gt=0, lt=1, description="smallest propensity; nothing is clipped if not said"
    )
    unseen: Literal["borrow", "mask", "refuse"] | None = Field(
        default=None, description="an action a client never took; borrow needs federated nuisances"
    )

    @model_validator(mode="after")
    def _can_borrow(self) -> Self:
        if self.unseen == "borrow" and self.kind == "local":
            raise ValueError("unseen: there is nothing to borrow from with local nuisances")
        return self

    @property
    def unseen_rule(self) -> Literal["borrow", "mask", "refuse"]:
        """What was said, or what suits the kind."""
        return self.unseen or ("borrow" if self.kind == "federated" else "mask")


class Grants(Checked):
    """What every client's limits must allow at least; who allows less cannot take part."""

    minimum_rows: int | None = Field(
        default=None, ge=1, description="clients speak for this many rows, or for fewer"
    )
    minimum_cell: int | None = Field(
        default=None, ge=0, description="cells of this many rows are told, or smaller ones"
    )
    parameter_share: float | None = Field(
        default=None, gt=0, description="this many numbers per row may be fitted, or more"
    )
    values: bool = Field(default=False, description="values of policies are told")
    value_queries: int = Field(default=0, ge=0, description="at least this many value queries")
    score_queries: int = Field(default=0, ge=0, description="at least this many sets of models")
    slope_queries: int = Field(default=0, ge=0, description="at least this many slopes")
    descriptions: int = Field(default=0, ge=0, description="at least this many descriptions")
    count_queries: int = Field(default=0, ge=0, description="at least this many counts in bins")
    cell_queries: int = Field(default=0, ge=0, description="at least this many levels of a tree")
    model_queries: int = Field(
        default=0, ge=0, description="models are told and compared at least this often"
    )
    classifier_queries: int = Field(
        default=0, ge=0, description="at least this many steps of a classifier of contexts"
    )


class Declared(Checked):
    """What all agree to be true of every row; whoever has other rows is told so."""

    reward: float | None = Field(
        default=None, gt=0, description="outcomes lie between minus this and this"
    )
    overlap: float | None = Field(
        default=None, gt=0, le=0.5, description="no propensity is below this"
    )


class Study(Checked):
    """Actions, features, policy class, oracle, nuisances, evaluation and seed: one agreed thing."""

    name: str = "study"
    actions: tuple[str, ...] = Field(min_length=2)
    features: tuple[str, ...] = Field(min_length=1)
    table: Schema | None = Field(default=None, description="what the columns of tables mean")
    policy: PolicyKind = "linear"
    policy_features: Literal["shared", "blocks"] = "shared"
    tree: TreePlan = TreePlan()
    candidates: tuple[str, ...] = ()
    oracle: OracleName = "csoaa-exact"
    plan: TrainingPlan = TrainingPlan()
    precision: Literal["rows", "clients"] = "rows"
    nuisances: NuisancePlan = NuisancePlan()
    mixture: Mixture = Empirical()
    evaluation_share: float = Field(default=0.25, ge=0, le=0.9)
    describe: bool = Field(default=True, description="overlap, and how decisions split")
    diagnose: bool = Field(
        default=False, description="clients tell where they differ, and what joining is worth"
    )
    declared: Declared = Declared()
    requires: Grants = Grants()
    quorum: float = Field(default=0.5, gt=0, le=1, description="of all clients, by number")
    seed: int = 0

    @model_validator(mode="after")
    def _fits_its_table(self) -> Self:
        table = self.table
        if table and (self.actions, self.features) != (table.actions, table.feature_names):
            raise ValueError("table: it has other actions or features than the study")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.policy_features == "blocks" and self.n_features % self.n_actions:
            raise ValueError(
                f"policy_features: {self.n_features} features cannot be cut into "
                f"{self.n_actions} equal blocks, one for each action"
            )
        if self.policy_features == "blocks" and self.oracle in ("wap", "csoaa-vw"):
            raise ValueError(f"oracle: {self.oracle} works on shared features, not on blocks")
        if self.nuisances.propensity == "known" and self.table and not self.table.propensity:
            raise ValueError(
                "nuisances.propensity: 'known', but no column of propensities is named"
            )
        if self.policy == "tree" and self.oracle != "csoaa-exact":
            raise ValueError("oracle: a tree is searched for; an oracle is for linear policies")
        if self.precision == "clients" and self.oracle not in ("csoaa-exact", "direct"):
            raise ValueError("precision: only csoaa-exact and direct can weigh clients by it")
        return self

    @model_validator(mode="after")
    def _can_find_its_mixture(self) -> Self:
        kind, tree = self.mixture.kind, self.tree
        if self.policy != "tree":
            return self
        if kind == "path":
            raise ValueError(
                "mixture: a path is tried with linear and finite policies; for a tree use kind = "
                '"skewed" with an alpha'
            )
        if kind == "minimax" and (tree.depth > LOOK_AHEAD or tree.thresholds == "observed"):
            raise ValueError(
                f"mixture: minimax solves for many mixtures, so a tree may have depth {LOOK_AHEAD} "
                "at most, and thresholds on a grid"
            )
        return self

    @model_validator(mode="after")
    def _can_be_told(self) -> Self:
        n_actions, n_features = self.n_actions, self.n_features
        n_pairs = n_actions * (n_actions - 1) // 2
        n_numbers = n_pairs * (n_features + 1) * (n_features + 2)
        if self.policy == "linear" and self.oracle == "wap" and n_numbers > MOST_NUMBERS:
            raise ValueError(
                f"oracle: wap sums squares of {n_features:,} features for {n_pairs:,} pairs of "
                f"actions, {n_numbers:,} numbers of which a message holds {MOST_NUMBERS:,}; use "
                "csoaa-exact, or fewer actions or features"
            )
        n_numbers = self.nuisances.folds * n_actions * ((n_features + 2) ** 2 + 1)
        if self.nuisances.kind == "federated" and n_numbers > MOST_NUMBERS:
            raise ValueError(
                f"nuisances: federated outcome models take squares of {n_features:,} features for "
                f"{n_actions:,} actions in {self.nuisances.folds:,} folds, {n_numbers:,} numbers "
                f"of which a message holds {MOST_NUMBERS:,}; use local ones, or fewer folds or "
                "features"
            )
        return self

    @model_validator(mode="after")
    def _has_the_tree_it_says(self) -> Self:
        if self.policy != "tree":
            if self.tree != TreePlan():
                raise ValueError(f"tree: the policy is {self.policy}, not a tree")
            return self
        if self.policy_features == "blocks" or self.precision == "clients":
            raise ValueError("policy: a tree has neither blocks of features nor precision")
        check_plan(self.tree, self.columns, self.actions)
        if self.tree.thresholds == "grid" and self.most_cells > MOST_CELLS:
            raise ValueError(
                f"tree: its grid has up to {self.most_cells:,} cells, at most {MOST_CELLS:,} are "
                "told; name the columns it may ask about, or lower bins"
            )
        n_open = 2 ** (n_levels(self.tree.depth) - 1)
        n_numbers = n_open * self.most_cells * (2 + self.n_actions)
        if self.tree.thresholds == "grid" and n_numbers > MOST_NUMBERS:
            raise ValueError(
                f"tree: its grid has up to {self.most_cells:,} cells in {n_open} "
                f"node{'s' * (n_open > 1)} at once, {n_numbers:,} numbers of which a message holds "
                f"{MOST_NUMBERS:,}; name the columns it may ask about, or lower bins or depth"
            )
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Another study, which is asked for its own digest."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("digest", None)
        return copy

    @property
    def encoding(self) -> Encoding | None:
        """How tables become features, where the study reads tables."""
        return self.table.encoding if self.table else None

    @property
    def columns(self) -> tuple[Column, ...]:
        """What a tree may be asked about, if the plan does not say otherwise."""
        return tree_columns(self.features, self.encoding)

    @property
    def cut_columns(self) -> tuple[NumberColumn, ...]:
        """The numbers that a tree may ask about and whose thresholds have yet to be agreed."""
        plan = self.tree
        return tuple(
            column
            for column in self.columns
            if isinstance(column, NumberColumn)
            and column.name not in plan.cuts
            and (not plan.columns or column.name in plan.columns)
        )

    @property
    def values_leaves(self) -> bool:
        """Whether a run ends with a look into the leaves of its tree."""
        return self.policy == "tree" and self.describe and self.evaluation_share > 0

    @property
    def most_cells(self) -> int:
        """How many cells a grid for this study may have."""
        bins = [self._most_bins(column) for column in self.columns]
        return sum(a * b for a, b in combinations(bins, 2)) + sum(bins)

    def _most_bins(self, column: Column) -> int:
        if self.tree.columns and column.name not in self.tree.columns:
            return 1
        if isinstance(column, LevelColumn):
            return len(column.levels)
        own = len(self.tree.cuts.get(column.name, ())) + 1
        groups = sum(group.column == column.name for group in self.tree.allowed)
        return max(own, self.tree.bins) + groups

    @property
    def n_actions(self) -> int:
        """The paper's d."""
        return len(self.actions)

    @property
    def n_features(self) -> int:
        """The paper's p."""
        return len(self.features)

    @property
    def has_intercept(self) -> bool:
        """Shared features come with an intercept for each action; the paper's blocks have none."""
        return self.policy_features == "shared"

    @cached_property
    def digest(self) -> bytes:
        """What every message carries, so that nobody answers for another study."""
        return hashlib.sha256(self.model_dump_json().encode()).digest()
