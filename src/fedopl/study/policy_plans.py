"""The plans of a study for its policy: one plan for each kind, selected by `kind`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator
from pydantic_core import PydanticKnownError

from fedopl.base.validation import Checked, PlacedError, same_as
from fedopl.policies.allowed.permissions import ByClient, NeverRules, Permissions
from fedopl.policies.tree_columns import Column, NumberColumn
from fedopl.policies.trees.growing import n_levels
from fedopl.policies.trees.tree_plan import LOOK_AHEAD, MOST_CELLS, TreePlan
from fedopl.study.plans import NetworkPlan, TrainingPlan

if TYPE_CHECKING:  # a study is checked by this as it is made
    pass

# A message has at most 1 GiB; a number has 8 bytes, and some room is left for other content.
MOST_NUMBERS = (1 << 27) - 1024
OracleName = Literal["csoaa-exact", "csoaa-sgd", "csoaa-vw", "wap", "direct"]


class KindOfPlan(Checked):
    """What depends on the kind of policy, so that callers need not ask for the kind itself."""

    has_leaves: ClassVar[bool] = False  # whether clients can be asked about each leaf
    compares_candidates: ClassVar[bool] = False  # whether named policies are valued all at once
    is_best_for_weights: ClassVar[bool] = True  # of its kind, on the rows it was learned from

    never: NeverRules = same_as(Permissions, "never")
    only: ByClient = same_as(Permissions, "only")

    @property
    def permissions(self) -> Permissions | None:
        """Who may get which action; None if everybody may get every action."""
        given = self.never or self.only
        return Permissions(never=self.never, only=self.only) if given else None

    @property
    def local_kind(self) -> str:
        """The kind of the policy that every client learns alone."""
        return "tree" if self.has_leaves else "linear"

    @property
    def on_grid(self) -> bool:
        """Whether the policy is searched for on a public grid."""
        return False

    @property
    def learned_by_one(self) -> bool:
        """Whether the only client learns the policy, with thresholds that may not leave it."""
        return self.has_leaves and not self.on_grid

    @property
    def can_be_resolved(self) -> bool:
        """Whether clients' score sums alone give the same policy again, for any mixture."""
        return False

    @property
    def starts_exactly(self) -> bool:
        """Whether it is, or begins with, the exact linear policy for the study's mixture."""
        return self.can_be_resolved

    def check_mixture(self, _kind: str) -> None:
        """Raise a PlacedError unless this kind of mixture can be found or used."""

    def check_joining(self) -> None:
        """Raise a PlacedError unless the worth of joining can be measured with such policies."""

    def check_columns(
        self, _columns: tuple[Column, ...], _actions: tuple[str, ...], _n_versions: int
    ) -> None:
        """Raise a PlacedError unless it can be learned for these columns and actions, so often."""

    @property
    def linear(self) -> "Linear":
        """The plan for the linear policies that this kind is compared with."""
        return Linear(precision="rows")

    @property
    def tree(self) -> TreePlan:
        """The rules of a tree; the defaults if the policy is no tree."""
        return TreePlan()

    @property
    def neural(self) -> NetworkPlan | None:
        """The settings of the network; None if the policy has none."""
        return None

    @property
    def named(self) -> dict[str, Any]:
        """The candidates that the policy is chosen among, besides constant arms."""
        return {}

    @property
    def by_name(self) -> Self:
        """The plan as a study agrees on it."""
        return self


# More standard errors than any estimate is ever wrong by.
MOST_CAUTION = 100.0


class CautionPlan(Checked):
    """How much better an uncertain action has to be; part of a policy's plan."""

    caution: float = Field(
        default=0.0,
        ge=0,
        le=MOST_CAUTION,
        description="how many standard errors to subtract from the score of an action, a leaf or a "
        "candidate",
    )


class Linear(CautionPlan, KindOfPlan):
    """A linear policy, π(x) = argmax_a φ(x, a)ᵀθ_a, and how it is found."""

    is_best_for_weights: ClassVar[bool] = False  # least squares stand in for the value itself

    kind: Literal["linear"] = "linear"
    features: Literal["shared", "blocks"] = Field(
        default="shared", description="all features for each action, or an equal block for each"
    )
    oracle: OracleName = Field(default="csoaa-exact", description="how the policy is found")
    precision: Literal["rows", "clients", "auto"] = Field(
        default="auto",
        description="how csoaa-exact and direct weigh clients. auto: less where scores are "
        "noisy, as far as clients are alike; clients: less where scores are noisy, whether alike "
        "or not; rows: as the mixture says, as always with other oracles",
    )
    training: TrainingPlan = Field(
        default=TrainingPlan(), description="how the iterative oracles take rounds"
    )

    @model_validator(mode="after")
    def _has_a_fitting_oracle(self) -> Self:
        if self.caution and not self.can_bend:
            message = "only csoaa-exact on shared features gives standard errors"
            raise PlacedError("caution", message)
        if self.features == "blocks" and self.oracle in ("wap", "csoaa-vw"):
            raise PlacedError("oracle", f"{self.oracle} works on shared features, not on blocks")
        if self.precision == "clients" and not self._starts_from_sums:
            raise PlacedError(
                "precision", "only csoaa-exact and direct can weigh clients by precision"
            )
        return self

    @property
    def _starts_from_sums(self) -> bool:
        return self.oracle in ("csoaa-exact", "direct")

    @property
    def counts_by_noise(self) -> bool:
        """Whether clients with noisy scores count less, as far as clients resemble each other."""
        return self.precision == "auto" and self._starts_from_sums

    @property
    def local_kind(self) -> str:
        """The kind of policy that the oracle finds."""
        return "pairwise" if self.oracle == "wap" else "linear"

    @property
    def can_be_resolved(self) -> bool:
        """True only for the exact oracle, which needs nothing but sums."""
        return self.oracle == "csoaa-exact"

    @property
    def by_gradients(self) -> bool:
        """Whether it is learned by gradient steps, on all features."""
        return self.oracle == "csoaa-sgd" and self.features == "shared"

    @property
    def can_bend(self) -> bool:
        """Whether it can be learned from sums of a basis' terms, just as from sums of features."""
        return self.can_be_resolved and self.features == "shared"

    @property
    def linear(self) -> "Linear":
        """The plan itself."""
        return self


class Tree(TreePlan, CautionPlan, KindOfPlan):
    """A tree of a few questions, and the rules that it must follow."""

    has_leaves: ClassVar[bool] = True

    kind: Literal["tree"] = "tree"

    @model_validator(mode="after")
    def _has_sums_to_doubt(self) -> Self:
        if self.caution and self.thresholds != "grid":
            message = "standard errors of leaves follow from sums over a grid; use the grid"
            raise PlacedError("caution", message)
        return self

    def refined(self, columns: Sequence[Column]) -> tuple[NumberColumn, ...]:
        """The numbers to refine; none with caution, as standard errors exist only on the grid."""
        return () if self.caution else super().refined(columns)

    @property
    def on_grid(self) -> bool:
        """True, unless the only client uses thresholds between its own values."""
        return self.thresholds == "grid"

    @property
    def tree(self) -> TreePlan:
        """The plan itself."""
        return self

    def check_mixture(self, kind: str) -> None:
        """Refuse a path, which is not tried, and minimax, which solves again for every step."""
        if kind == "path":
            raise PlacedError(
                "mixture",
                "a path works with linear and finite policies; for a tree use kind = "
                '"skewed" with an alpha',
            )
        if kind == "minimax" and (self.depth > LOOK_AHEAD or self.thresholds == "observed"):
            raise PlacedError(
                "mixture",
                f"minimax solves for many mixtures, so a tree may have depth {LOOK_AHEAD} "
                "at most, and thresholds on a grid",
            )

    def check_columns(
        self, columns: tuple[Column, ...], actions: tuple[str, ...], n_versions: int
    ) -> None:
        """Check that the plan's names exist, and that the sums over its grid fit into a message."""
        try:
            self.check(columns, actions)
        except PlacedError as error:
            raise error.within("policy", "tree") from None
        if self.thresholds == "observed":
            return
        most_cells = self.most_cells(columns)
        if most_cells > MOST_CELLS:
            message = (
                f"its grid has up to {most_cells:,} cells, at most {MOST_CELLS:,} are "
                "released; name the columns it may ask about, or lower bins"
            )
            raise PlacedError("tree", message, ("policy", "tree"))
        n_open = n_versions * 2 ** (n_levels(self.depth) - 1)
        n_numbers = n_open * most_cells * (2 + len(actions) * (2 if self.caution else 1))
        if n_numbers > MOST_NUMBERS:
            message = (
                f"its grid has up to {most_cells:,} cells in {n_open} "
                f"node{'s' * (n_open > 1)} at once, {n_numbers:,} numbers of which a message holds "
                f"{MOST_NUMBERS:,}; name the columns it may ask about, or lower bins or depth"
            )
            raise PlacedError("tree", message, ("policy", "tree"))


class Neural(NetworkPlan, KindOfPlan):
    """The exact linear policy, and a network trained in rounds on the scores' residuals."""

    is_best_for_weights: ClassVar[bool] = False  # rounds end where held-out rows say so

    kind: Literal["neural"] = "neural"

    @property
    def starts_exactly(self) -> bool:
        """True: the network begins with the exact linear policy."""
        return True

    @property
    def neural(self) -> NetworkPlan:
        """The plan itself."""
        return self

    @property
    def linear(self) -> Linear:
        """The plan for the exact policy that the network begins with."""
        return Linear()

    def check_mixture(self, kind: str) -> None:
        """Refuse mixtures that are found in a run: training is for one mixture."""
        if kind in ("path", "minimax"):
            raise PlacedError(
                "mixture",
                f"a {kind} mixture needs policies for many mixtures, and a network is trained "
                "for one; agree on the weights, or find them with a linear policy first",
            )

    def check_joining(self) -> None:
        """Refuse joining: each coalition would need its own training."""
        raise PlacedError(
            "joining.diagnose",
            "joining is judged by policies that are solved from sums; judge it with a linear "
            "policy",
        )


class Finite(CautionPlan, KindOfPlan):
    """The best of the constant arms and of named candidates.

    A study contains only the candidates' names. `learn` also takes the candidates themselves:
    policies, or functions from contexts to action codes.
    """

    compares_candidates: ClassVar[bool] = True

    kind: Literal["finite"] = "finite"
    candidates: dict[str, Any] = Field(
        default_factory=dict, description="policies or functions by name, or only their names"
    )
    # Every client's local policy, which the choice is compared with, is linear in these features.
    features: Literal["shared", "blocks"] = same_as(Linear, "features")

    @field_validator("candidates", mode="before")
    @classmethod
    def _by_name(cls, given: object) -> object:
        return dict.fromkeys(given) if isinstance(given, list | tuple) else given

    @property
    def linear(self) -> Linear:
        """The plan for linear policies in the same features."""
        return Linear(features=self.features, precision="rows")

    @property
    def named(self) -> dict[str, Any]:
        """The candidate behind each name, if known."""
        return self.candidates

    @property
    def by_name(self) -> Self:
        """The same plan with names only, as a study contains it."""
        return self.model_copy(update={"candidates": dict.fromkeys(self.candidates)})

    @field_serializer("candidates")
    def _only_names(self, candidates: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(candidates)


def _by_kind(given: object) -> object:
    """Accept a kind's name for its plan with all defaults."""
    if not isinstance(given, str):
        return given
    if given not in ("linear", "tree", "finite", "neural"):
        expected = "'linear', 'tree', 'finite' or 'neural'"
        raise PydanticKnownError("literal_error", {"expected": expected})
    return {"kind": given}


PolicyPlan = Annotated[
    Annotated[Linear | Tree | Finite | Neural, Field(discriminator="kind")],
    BeforeValidator(_by_kind),
]
