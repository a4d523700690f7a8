"""The plans of a study for training, scores, evaluation, clients, bounds and limits.

Each plan is defined here once, with its defaults, descriptions and checks. `Study`, the sections of
`study.toml`, the arguments of `learn` and the reference page are built from the plans.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.solvers.nested_ridge import FEWEST_FOLDS
from fedopl.study.private.privacy_plan import Range

if TYPE_CHECKING:
    from fedopl.study.study import Study


AUTO, CROSS_FITTED, HELD_OUT, REFIT = "auto", "cross-fitted", "held-out", "refit"
USUAL_SHARE = 0.25  # of rows held out
MOST_FOLDS_VALUED = 5  # with more, variances across folds exceed what was measured
MOST_SPLITS = 100
LEAST_SHARE = 0.05  # of rows held out
# A share of an even chance: in a uniform trial of many actions, every action is unlikely, and no
# weight is limited.
MOST_LIMITED = 0.5
Balance = Literal["each", "joint", "auto"]


class TrainingPlan(Checked):
    """Settings of the iterative oracles (Algorithms 1 and 2)."""

    rounds: int = Field(default=40, ge=1, le=100_000, description="how often clients are asked")
    local_steps: int = Field(
        default=20, ge=1, description="number of steps that a client takes in each round"
    )
    batch_size: int = Field(default=128, ge=1, description="number of rows in each step")
    clients_per_round: int | None = Field(
        default=None,
        ge=1,
        description="number of clients drawn for each round, by seed and round; default: all",
    )
    rate: float = Field(
        default=0.5,
        gt=0,
        le=2,
        description="length of a step, as a share of the largest stable step",
    )
    proximal: float = Field(
        default=0.0, ge=0, description="FedProx: strength of the pull to the round's start"
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="momentum of the server's steps")
    average: Literal["steps", "rounds"] = Field(
        default="steps", description="average all local steps, or only the ends of the later rounds"
    )


class NetworkPlan(Checked):
    """A network beside the exact linear policy, and how it is trained."""

    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(64, 64), min_length=1, max_length=8, description="units of each hidden layer"
    )
    loss: Literal["regression", "softmax"] = Field(
        default="regression",
        description="regression: squared error of predicted scores; softmax: the value of a "
        "softened policy",
    )
    rounds: int = Field(default=30, ge=2, le=10_000, description="how often clients are asked")
    local_steps: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="number of batches of a client's rows in each round, fewer if a batch would "
        "have under 16 rows; each is one step",
    )
    rate: float = Field(default=0.003, gt=0, le=1, description="length of a step")
    patience: int = Field(
        default=8,
        ge=1,
        description="number of rounds without a lower held-out loss before training stops",
    )


class NuisancePlan(Checked):
    """How scores are computed."""

    kind: Literal["federated", "local"] = Field(
        default="federated",
        description="outcome models from the sums of all clients, or each client's own",
    )
    outcome: Literal["ridge", "ols", "boosting", "plugged-in"] = Field(
        default="ridge",
        description="the outcome model; boosting: each client's own trees, combined with ridge; "
        "plugged-in: a scikit-learn regressor, given in Python in place of a name",
    )
    features: Literal["shared", "blocks"] = Field(
        default="shared",
        description="features of outcome models: all for each action, or an equal block for each",
    )
    propensity: Literal["auto", "known", "marginal", "logistic", "boosting"] = Field(
        default="auto",
        description="the propensity model; auto: known propensities, else the model that fits best",
    )
    folds: int = Field(default=5, ge=2, le=20, description="of cross-fitting")
    clip: float | None = Field(
        default=None, gt=0, lt=1, description="smallest propensity; default: no clipping"
    )
    learning_clip: float = Field(
        default=0.05,
        ge=0,
        lt=1,
        description="smallest propensity in the scores that policies are learned from, but never "
        "more than half an even chance; 0: no limit. Values are not limited",
    )
    unseen: Literal["borrow", "mask", "refuse"] | None = Field(
        default=None,
        description="what to do about an action that a client never took; borrow needs federated "
        "nuisances",
    )

    # A study only agrees that a model is plugged in; `learn` passes it to clients in one process.
    _regressor: Any = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _by_name(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        regressor = given.get("outcome") if isinstance(given, dict) else None
        if not callable(getattr(regressor, "fit", None)):
            return validated(given)
        plan = validated({**given, "outcome": "plugged-in"})
        plan._regressor = regressor
        return plan

    @property
    def regressor(self) -> Any:
        """The outcome model that was plugged in, if it is known here."""
        return self._regressor

    @model_validator(mode="after")
    def _can_borrow_and_join(self) -> Self:
        if self.unseen == "borrow" and self.kind == "local":
            raise ValueError("unseen: there is nothing to borrow from with local nuisances")
        if not self.joins_regressors:
            return self
        if self.features == "blocks":
            raise ValueError(f"outcome: {self.outcome} models are of all features; use ridge")
        if self.folds < FEWEST_FOLDS:
            raise ValueError(
                f"outcome: weights of {self.outcome} models are chosen on other folds than those "
                f"they are used in and fitted to, so there have to be {FEWEST_FOLDS} folds"
            )
        return self

    @property
    def joins_regressors(self) -> bool:
        """Whether clients combine regressors of their own with models from sums."""
        return self.outcome in ("boosting", "plugged-in")

    def learning_floor(self, n_actions: int) -> float:
        """The smallest propensity used in learning policies.

        Values use `clip` alone, since limited weights are less noisy but biased.
        """
        return max(self.clip or 0.0, min(self.learning_clip, MOST_LIMITED / n_actions))

    @property
    def outcome_model(self) -> str:
        """The name of the outcome model, on all features or on blocks of them."""
        return self.outcome if self.features == "shared" else f"block-{self.outcome}"

    @property
    def unseen_rule(self) -> Literal["borrow", "mask", "refuse"]:
        """The given setting, or the default for this kind."""
        return self.unseen or ("borrow" if self.kind == "federated" else "mask")


class EvaluationPlan(Checked):
    """How the policy is evaluated, and on which rows."""

    kind: Literal["auto", "cross-fitted", "held-out", "refit"] = Field(
        default="auto",
        description="cross-fitted: all rows are learned from, and each fold is valued by a policy "
        "learned without it; held-out: a share of rows values the policy learned from the others; "
        "refit: then the policy is learned once more, from all rows; auto: cross-fitted if the "
        "policy is solved from sums, else refit; held-out where neither is possible",
    )
    share: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        description="share of rows held out, 0 or 0.05 to 0.5; with 0, the learned policy is not "
        "valued. Said without a kind, these rows are held out; default: a quarter, if any must be",
    )
    describe: bool = Field(
        default=True, description="clients report how decisions split, and how likely actions were"
    )
    splits: int = Field(
        default=1,
        ge=1,
        le=MOST_SPLITS,
        description="number of splits of the rows, run one after the other; results are medians, "
        "with an error that includes how far splits differ; each split counts as a study",
    )

    @field_validator("share")
    @classmethod
    def _is_none_or_enough(cls, share: float) -> float:
        if 0 < share < LEAST_SHARE:
            raise ValueError(f"hold out 0, or at least {LEAST_SHARE:g}, came {share:g}")
        return share

    @model_validator(mode="before")
    @classmethod
    def _holds_out_what_it_must(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        kind = given.get("kind", HELD_OUT if "share" in given else AUTO)
        share = given.get("share", USUAL_SHARE if kind in (HELD_OUT, REFIT) else 0.0)
        if kind == CROSS_FITTED and share:
            raise ValueError("share: cross-fitted values hold no rows out; leave share out")
        if kind == AUTO and share:
            raise ValueError('share: with kind = "auto" the study decides; leave one of both out')
        if kind == REFIT and not share:
            raise ValueError("share: refit holds rows out before all are learned from; leave 0 out")
        return {**given, "kind": kind, "share": share}

    @property
    def is_cross_fitted(self) -> bool:
        """Whether all rows are used for learning, and are valued fold by fold."""
        return self.kind == CROSS_FITTED

    def in_order(self, n_folds: int) -> tuple[Self, ...]:
        """Itself alone; or, of which a study with so many folds takes the first that it allows."""
        if self.kind != AUTO:
            return (self,)
        by_fold = [self.model_copy(update={"kind": CROSS_FITTED})]
        others = [
            self.model_copy(update={"kind": kind, "share": USUAL_SHARE})
            for kind in (REFIT, HELD_OUT)
        ]
        return (*(by_fold if n_folds <= MOST_FOLDS_VALUED else []), *others)

    @property
    def refits(self) -> bool:
        """Whether the policy is learned once more, from all rows, after it was valued."""
        return self.kind == REFIT

    @property
    def claims_values(self) -> bool:
        """Whether policies are valued."""
        return self.share > 0 or self.is_cross_fitted

    @property
    def valued_share(self) -> float:
        """The share of rows that one split values."""
        return 1.0 if self.is_cross_fitted else self.share

    @property
    def rows_valued(self) -> str:
        """Which rows are valued, in words."""
        return "all rows" if self.is_cross_fitted else "held-out rows"

    def valued(self, units: str) -> str:
        """The name of the rows or groups that are valued: all, if none are held out."""
        return units if self.is_cross_fitted else f"held-out {units}"


class JoiningPlan(Checked):
    """What clients are asked, so that each can see whether joining pays."""

    diagnose: bool = Field(
        default=False, description="clients report where they differ, and what joining is worth"
    )


class PersonalPlan(Checked):
    """Whether each client also has its own policy, shrunk toward that of all others."""

    kind: Literal["ridge", "none"] = Field(
        default="none",
        description="ridge: each client moves the policy of all other clients toward its own rows, "
        "as far as its rows and the other clients support that, and reports what the "
        "result is worth; with [privacy], each client moves the shared policy, at home, and "
        "reports nothing about it",
    )


class TargetPlan(Checked):
    """Who the target is, and when nothing is claimed about it."""

    client: str = Field(
        min_length=1,
        description="the client with contexts only: its table has no action and no outcome",
    )
    balance: Balance = Field(
        default="each",
        description="each: every source finds weights that make its own rows look like the target; "
        "joint: weights are found for all sources' rows together; auto: joint if each "
        "source for itself leaves too few effective rows",
    )
    least_rows: int = Field(
        default=50,
        ge=10,
        description="with fewer effective rows of sources than this, no value is claimed there",
    )
    screen: float = Field(
        default=0.01,
        ge=0,
        le=0.2,
        description="a source is left out if chance alone would show so large a difference of its "
        "outcomes with less than this probability, over all sources; with 0 no source is "
        "left out; sources are compared only where each finds its own weights",
    )

    @property
    def asks_each(self) -> bool:
        """Whether sources are asked to find weights of their own."""
        return self.balance != "joint"

    @property
    def may_balance_jointly(self) -> bool:
        """Whether sources may be asked for sums from which weights for all of them follow."""
        return self.balance != "each"


class Declared(Checked):
    """Bounds that all clients agree to hold for every row; a client with other rows refuses."""

    reward: float | None = Field(
        default=None, gt=0, description="outcomes lie between minus this number and this number"
    )
    overlap: float | None = Field(
        default=None, gt=0, le=0.5, description="no propensity is below this"
    )


class Ranges(Checked):
    """Where outcomes and features lie; a typo of three digits cannot move a sum any further."""

    outcome: Range | None = Field(
        default=None, description="the least and the largest outcome, as logged"
    )
    features: dict[str, Range] = Field(
        default_factory=dict, description="the least and the largest number, by feature"
    )

    @field_validator("outcome", "features")
    @classmethod
    def _rise(cls, given: Range | dict[str, Range] | None) -> Range | dict[str, Range] | None:
        each = given if isinstance(given, dict) else {"outcome": given} if given else {}
        for name, (low, high) in each.items():
            if not low < high:
                of = "" if name == "outcome" else f"{name}: "
                raise ValueError(f"{of}expected the lower end first, came {low:g}, {high:g}")
        return given

    def __bool__(self) -> bool:
        return self.outcome is not None or bool(self.features)

    def check(self, study: "Study") -> None:
        """Raise a PlacedError for unknown features, or beside ranges of differential privacy."""
        unknown = [name for name in self.features if name not in study.features]
        if unknown:
            message = f"no feature is called {quoted(unknown)}; there are {quoted(study.features)}"
            raise PlacedError("ranges.features", message)
        if self and study.privacy:
            message = "with [privacy], ranges are those of [privacy]: privacy.outcome and .ranges"
            raise PlacedError("ranges", message)


class Grants(Checked):
    """What every client's limits must at least allow; clients that allow less cannot take part."""

    minimum_rows: int | None = Field(
        default=None, ge=1, description="clients answer with this many rows, or with fewer"
    )
    minimum_cell: int | None = Field(
        default=None, ge=0, description="clients let cells of this many rows leave, or smaller ones"
    )
    parameter_share: float | None = Field(
        default=None, gt=0, description="clients allow this many terms for each row, or more"
    )
    values: bool = Field(default=False, description="clients report values of policies")


def _short_for(name: str, *types: type) -> Callable[[object], object]:
    """Let a value of these types stand for a plan in which only the field `name` is set."""
    return lambda given: {name: given} if isinstance(given, types) else given


# Plans as a study and `learn` take them: "local", 0.25 or True stand for the whole plan.
NuisanceSetting = Annotated[NuisancePlan, BeforeValidator(_short_for("kind", str))]
EvaluationSetting = Annotated[
    EvaluationPlan,
    BeforeValidator(_short_for("share", int, float)),
    BeforeValidator(_short_for("kind", str)),
]
JoiningSetting = Annotated[JoiningPlan, BeforeValidator(_short_for("diagnose", bool))]
PersonalSetting = Annotated[PersonalPlan, BeforeValidator(_short_for("kind", str))]
