"""What a study says about its policy: one plan for each kind, and `kind` tells which."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator
from pydantic_core import PydanticKnownError

from fedopl.base.validation import Checked, PlacedError, same_as
from fedopl.policies.trees.tree_plan import TreePlan

OracleName = Literal["csoaa-exact", "csoaa-sgd", "csoaa-vw", "wap", "direct"]


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


class Linear(Checked):
    """A linear policy, π(x) = argmax_a φ(x, a)ᵀθ_a, and how it is found."""

    kind: Literal["linear"] = "linear"
    features: Literal["shared", "blocks"] = Field(
        default="shared", description="all features for each action, or equal blocks of them"
    )
    oracle: OracleName = Field(default="csoaa-exact", description="how the policy is found")
    precision: Literal["rows", "clients"] = Field(
        default="rows", description="clients: those with noisy scores count less"
    )
    training: TrainingPlan = Field(default=TrainingPlan(), description="of the iterative oracles")

    @model_validator(mode="after")
    def _has_a_fitting_oracle(self) -> Self:
        if self.features == "blocks" and self.oracle in ("wap", "csoaa-vw"):
            message = f"{self.oracle} works on shared features, not on blocks"
            raise PlacedError("oracle", message, ("oracle",))
        if self.precision == "clients" and self.oracle not in ("csoaa-exact", "direct"):
            message = "only csoaa-exact and direct can weigh clients by it"
            raise PlacedError("precision", message, ("precision",))
        return self


class Tree(TreePlan):
    """A tree of a few questions, and what it has to keep to."""

    kind: Literal["tree"] = "tree"


class Finite(Checked):
    """The best of the constant arms and of named candidates.

    A study agrees on the candidates' names alone. `learn` takes what they stand for with them:
    policies, or functions from contexts to action codes.
    """

    kind: Literal["finite"] = "finite"
    candidates: dict[str, Any] = Field(
        default_factory=dict, description="policies or functions by name, or only their names"
    )
    # Every client's own policy, which the choice is compared with, is linear in these.
    features: Literal["shared", "blocks"] = same_as(Linear, "features")

    @field_validator("candidates", mode="before")
    @classmethod
    def _by_name(cls, given: object) -> object:
        return dict.fromkeys(given) if isinstance(given, list | tuple) else given

    @property
    def by_name(self) -> "Finite":
        """The same without what the names stand for, as a study agrees on it."""
        return self.model_copy(update={"candidates": dict.fromkeys(self.candidates)})

    @field_serializer("candidates")
    def _only_names(self, candidates: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(candidates)


def _by_kind(given: object) -> object:
    """Let a kind's name stand for its plan with every default."""
    if not isinstance(given, str):
        return given
    if given not in ("linear", "tree", "finite"):
        raise PydanticKnownError("literal_error", {"expected": "'linear', 'tree' or 'finite'"})
    return {"kind": given}


PolicyPlan = Annotated[
    Annotated[Linear | Tree | Finite, Field(discriminator="kind")], BeforeValidator(_by_kind)
]
