"""The study: what every party agrees on before anything runs. It is hashed; messages carry that."""

import hashlib
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedopl.errors import OptionError
from fedopl.mixture import Empirical, Mixture
from fedopl.validation import in_words

PolicyKind = Literal["linear", "finite"]
OracleName = Literal["csoaa-exact", "csoaa-sgd", "csoaa-vw", "wap", "direct"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise OptionError(in_words(error, type(self).__name__.lower())) from None


class TrainingPlan(_Part):
    """How the iterative oracles go about it (Algorithms 1 and 2)."""

    rounds: int = Field(default=40, ge=1, le=100_000)
    local_steps: int = Field(default=20, ge=1)
    batch_size: int = Field(default=128, ge=1)
    clients_per_round: int | None = Field(default=None, ge=1)
    rate: float = Field(default=0.5, gt=0, le=2, description="of the largest stable step")
    proximal: float = Field(default=0.0, ge=0, description="FedProx: pull to the round's start")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of the server's steps")


class NuisancePlan(_Part):
    """How scores come about."""

    kind: Literal["federated", "local"] = "federated"
    outcome: Literal["ridge", "ols"] = "ridge"
    propensity: Literal["auto", "known", "marginal", "logistic"] = "auto"
    folds: int = Field(default=5, ge=2, le=1000)
    clip: float | None = Field(default=None, gt=0, lt=1)
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


class Study(_Part):
    """Actions, features, policy class, oracle, nuisances, evaluation and seed: one agreed thing."""

    name: str = "study"
    actions: tuple[str, ...] = Field(min_length=2)
    features: tuple[str, ...] = Field(min_length=1)
    policy: PolicyKind = "linear"
    policy_features: Literal["shared", "blocks"] = "shared"
    candidates: tuple[str, ...] = ()
    oracle: OracleName = "csoaa-exact"
    plan: TrainingPlan = TrainingPlan()
    precision: Literal["rows", "clients"] = "rows"
    nuisances: NuisancePlan = NuisancePlan()
    mixture: Mixture = Empirical()
    evaluation_share: float = Field(default=0.25, ge=0, le=0.9)
    quorum: float = Field(default=0.5, gt=0, le=1, description="of all clients, by number")
    seed: int = 0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.policy_features == "blocks" and self.n_features % self.n_actions:
            raise ValueError(
                f"policy_features: {self.n_features} features cannot be cut into "
                f"{self.n_actions} equal blocks, one for each action"
            )
        if self.policy_features == "blocks" and self.oracle in ("wap", "csoaa-vw"):
            raise ValueError(f"oracle: {self.oracle} works on shared features, not on blocks")
        if self.precision == "clients" and self.oracle not in ("csoaa-exact", "direct"):
            raise ValueError("precision: only csoaa-exact and direct can weigh clients by it")
        return self

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

    @property
    def digest(self) -> bytes:
        """What every message carries, so that nobody answers for another study."""
        return hashlib.sha256(self.model_dump_json().encode()).digest()
