"""The study: what every party agrees on before anything runs. Every message carries its hash."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Self

from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from fedopl.base.arrays import FloatArray
from fedopl.base.schema import Encoding, Schema
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.allowed.permissions import Permissions
from fedopl.policies.basis import Basis
from fedopl.policies.terms import Terms
from fedopl.policies.tree_columns import Column, NumberColumn, tree_columns
from fedopl.policies.trees.tree_plan import TreePlan
from fedopl.solvers.nested_ridge import FEWEST_FOLDS, fold_sets
from fedopl.study import plans
from fedopl.study.flat_form import flat_form, plans_of
from fedopl.study.guardrail import Guardrail
from fedopl.study.mixture import Empirical, Mixture
from fedopl.study.policy_plans import CautionPlan, Linear, PolicyPlan
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.spending import Budget, Costs
from fedopl.study.study_check import check_study


class Study(Checked):
    """The actions and features of a study, and its plans for learning and evaluation."""

    name: str = "study"
    actions: tuple[str, ...] = Field(min_length=2)
    features: tuple[str, ...] = Field(min_length=1)
    table: Schema | None = Field(default=None, description="what the columns of tables mean")
    basis: Basis | None = Field(
        default=None, description="where effects may bend; default: everything is linear"
    )
    costs: Costs | None = Field(default=None, description="what actions cost; default: nothing")
    budget: Budget | None = Field(default=None, description="what decisions may cost on average")
    policy: PolicyPlan = Linear()
    nuisances: plans.NuisanceSetting = plans.NuisancePlan()
    mixture: Mixture = Field(default=Empirical(), description="how much each client counts")
    evaluation: plans.EvaluationSetting = plans.EvaluationPlan()
    joining: plans.JoiningSetting = plans.JoiningPlan()
    personal: plans.PersonalSetting = plans.PersonalPlan()
    guardrails: dict[str, Guardrail] = Field(default={}, description="what must not get worse")
    target: plans.TargetPlan | None = Field(
        default=None, description="a client with contexts only, where the policy is to be used"
    )
    declared: plans.Declared = Field(
        default=plans.Declared(), description="what is true of every row"
    )
    ranges: plans.Ranges = Field(
        default=plans.Ranges(),
        description="where numbers lie; what lies beyond is clipped and counted",
    )
    privacy: PrivacyPlan | None = Field(
        default=None, description="differential privacy; default: exact sums"
    )
    requires: plans.Grants = Field(
        default=plans.Grants(), description="what every client's limits must at least allow"
    )
    aggregators: tuple[str, ...] = Field(
        default=(),
        description="clients that have no rows of their own and add up the answers of others, "
        "at every level",
    )
    evaluates: str = Field(
        default="", description="a hash of the saved policies, if it values these and learns none"
    )
    quorum: float = Field(
        default=0.5, gt=0, le=1, description="the share of clients that must answer"
    )
    seed: int = Field(default=0, description="decides folds, held-out rows and batches")

    # Flat settings that this kind of policy does not use; the hash covers them.
    _unused: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _read_flat_json(
        cls, given: Any, validated: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        # Hashed, sent and stored studies are JSON in the flat form; Python code passes plans.
        is_flat = info.mode == "json" and isinstance(given, dict)
        read, unused = plans_of(given) if is_flat else (given, {})
        study = validated(read)
        study._unused |= unused
        return study

    @model_serializer(mode="wrap")
    def _write_flat(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return flat_form(write(self), self._unused)

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        *preferred, last = self.evaluation.in_order(self.nuisances.folds)
        for plan in preferred:
            self.__dict__["evaluation"] = plan
            with suppress(PlacedError):
                check_study(self)
                return self
        self.__dict__["evaluation"] = last
        check_study(self)
        return self

    def is_target(self, client: str) -> bool:
        """Whether this client is the one that has contexts only."""
        return self.target is not None and self.target.client == client

    @property
    def is_screened(self) -> bool:
        """Whether the terms and the units of measurement are known."""
        if self.privacy and not self.privacy.is_measured:
            return False
        return self.basis is None or self.basis.is_screened

    @property
    def before_screening(self) -> Self:
        """The study as it was agreed, before the first answers of clients added to it."""
        if self.privacy and self.privacy.declared_ranges is not None:
            before = {"ranges": self.privacy.declared_ranges, "declared_ranges": None}
            return self.model_copy(update={"privacy": self.privacy.model_copy(update=before)})
        if self.basis is None or not (self.basis.screens and self.basis.is_screened):
            return self
        return self.model_copy(update={"basis": self.basis.before_screening()})

    @property
    def can_bend(self) -> bool:
        """Whether it can have a basis: it learns everything from sums, and on shared features."""
        return self.nuisances.features == "shared" and self.linear.can_bend

    @property
    def knows_propensities(self) -> bool:
        """Whether it says that propensities are known; rows in memory may have them anyway."""
        kind, table = self.nuisances.propensity, self.table
        return kind == "known" or bool(kind == "auto" and table and table.propensity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Another study, which computes its own digest."""
        copy = super().model_copy(update=update, deep=deep)
        for derived in ("digest", "agreed_digest", "terms", "permissions"):
            copy.__dict__.pop(derived, None)
        return copy

    @property
    def encoding(self) -> Encoding | None:
        """How tables become features, if the study reads tables."""
        return self.table.encoding if self.table else None

    @cached_property
    def permissions(self) -> Permissions | None:
        """Who may get which action; None if everybody may get every action."""
        return self.policy.permissions

    @property
    def linear(self) -> Linear:
        """The plan for linear policies, which other kinds are compared with."""
        return self.policy.linear

    @property
    def tree(self) -> TreePlan:
        """The rules of a tree; the defaults if the policy is no tree."""
        return self.policy.tree

    @property
    def neural(self) -> plans.NetworkPlan:
        """The settings of a network; the defaults if the policy has none."""
        return self.policy.neural or plans.NetworkPlan()

    @property
    def hidden(self) -> tuple[int, ...]:
        """The number of units of each hidden layer; empty if the policy has no network."""
        return self.policy.neural.hidden if self.policy.neural else ()

    @property
    def caution(self) -> float:
        """How many standard errors are subtracted in comparisons; 0 if caution is not possible."""
        return self.policy.caution if isinstance(self.policy, CautionPlan) else 0.0

    @property
    def is_cautious(self) -> bool:
        """Whether standard errors are subtracted from the scores of linear policies."""
        return self.linear.caution > 0

    @property
    def doubts_leaves(self) -> bool:
        """Whether standard errors are subtracted from the values of a tree's leaves."""
        return self.policy.has_leaves and self.caution > 0

    @property
    def personalises(self) -> bool:
        """Whether each client also has a policy of its own, whose value it tells."""
        return self.personal.kind != "none" and self.privacy is None

    @property
    def personalises_at_home(self) -> bool:
        """Whether clients may have policies of their own of which nothing is asked and told.

        With differential privacy: a policy of exact sums would tell of rows, and so would its
        value, which depends on all rows that the policy was solved from.
        """
        return self.personal.kind != "none" and self.privacy is not None

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the candidates that a finite policy is chosen among, besides constant arms."""
        return tuple(self.policy.named)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that a tree may ask about, unless the plan says otherwise."""
        return tree_columns(self.features, self.encoding)

    @property
    def cut_columns(self) -> tuple[NumberColumn, ...]:
        """The numbers that a tree may ask about and whose thresholds are not agreed yet."""
        return self.tree.uncut(self.columns)

    @property
    def values_leaves(self) -> bool:
        """Whether a run ends with values of the leaves of its tree."""
        return self.policy.has_leaves and self.evaluation.describe and self.evaluation.claims_values

    @property
    def left_out(self) -> tuple[int | None, ...]:
        """The fold that each version of what is learned goes without; last, None, that of all rows.

        Only if values are cross-fitted is there a version without each fold, to be valued on it.
        """
        return (*(range(self.nuisances.folds) if self.evaluation.is_cross_fitted else ()), None)

    @property
    def most_cells(self) -> int:
        """The most cells that a grid for this study may have."""
        return self.tree.most_cells(self.columns)

    @property
    def reward_sign(self) -> float:
        """The factor that turns values into logged units: −1 if less is better.

        If less is better, outcomes are negated on reading, so that learning always maximises.
        """
        return -1.0 if self.table and self.table.direction == "lower" else 1.0

    @property
    def net_costs(self) -> FloatArray | None:  # (n_actions, n_features + 1)
        """The costs subtracted from outcomes, as linear functions of features; None without any."""
        return self.costs.parameters(self) if self.costs and self.costs.are_net else None

    @property
    def largest_net(self) -> float | None:
        """The largest outcome net of costs, according to declared bounds; None if not known."""
        if self.declared.reward is None or self.costs is None or not self.costs.are_net:
            return self.declared.reward
        return None if self.costs.largest is None else self.declared.reward + self.costs.largest

    @cached_property
    def terms(self) -> Terms | None:
        """The functions of features that models are linear in; None for the features themselves."""
        return None if self.basis is None else Terms(self.basis, self.features)

    @property
    def chooses_terms(self) -> bool:
        """Whether a policy's terms, and their shrinkage, are chosen from sums by fold."""
        return self.basis is not None and self.policy.starts_exactly

    @property
    def n_terms(self) -> int:
        """The number of terms; without a basis, the number of features."""
        return self.n_features if self.terms is None else self.terms.n_terms

    @property
    def most_terms(self) -> int:
        """The largest number of terms that the study may come to have.

        A pair is a product, and perhaps one of two steps; a corner has two thresholds.
        """
        if self.basis is None or self.is_screened:
            return self.n_terms
        found = 2 * self.basis.screened_pairs + 3 * self.basis.screened_thresholds
        return self.n_terms + len(self.left_out) * found

    @property
    def stacked_sizes(self) -> tuple[int, ...]:
        """The number of terms of each outcome model in the weighted mean.

        Empty if a single model is used: on features alone without regressors, or with too few folds
        to choose weights.
        """
        plan = self.nuisances
        if plan.outcome == "ols" or plan.folds < FEWEST_FOLDS:
            return ()
        if self.terms is None:
            return (self.n_features,) if plan.joins_regressors else ()
        return tuple(self.terms.sizes[family] for family in self.terms.families)

    @property
    def n_outcome_models(self) -> int:
        """The number of outcome models per action that clients receive; 0 if each has its own."""
        folds, sizes = self.nuisances.folds, self.stacked_sizes
        if self.nuisances.kind == "local":
            return 0
        return len(fold_sets(folds)) * len(sizes) if sizes else folds + 1

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
        """Whether scores have an intercept: shared features do; the paper's blocks do not."""
        return self.linear.features == "shared"

    @cached_property
    def agreed_digest(self) -> bytes:
        """The hash that decides held-out rows; what the run finds first does not change it."""
        return self.before_screening.digest

    @cached_property
    def digest(self) -> bytes:
        """The hash that every message carries, so that no client answers for another study.

        What clients do at home alone is no part of it: the same is asked, with the same noise.
        """
        if self.personalises_at_home:
            return self.model_copy(update={"personal": plans.PersonalPlan()}).digest
        return hashlib.sha256(self.model_dump_json().encode()).digest()
