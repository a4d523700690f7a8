"""A site without outcomes: a client that has contexts only, for which a policy is wanted."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedopl.base.validation import Checked, PlacedError

if TYPE_CHECKING:
    from fedopl.study.study import Study


Balance = Literal["each", "joint", "auto"]


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


def check_target(study: "Study") -> None:
    """Refuse a target in a study that cannot say what a policy is worth there."""
    if study.target is None:
        return
    plan = study.evaluation
    if study.privacy:
        message = (
            "the weights that make sources look like the target are computed from exact means, "
            "which a study with differential privacy or secure aggregation does not have; leave "
            "[target] or [privacy] out"
        )
    elif not plan.claims_values:
        message = "a policy is valued there on held-out rows; hold some out (evaluation.share)"
    elif plan.splits > 1:
        message = "a policy is valued there under one split; leave evaluation.splits out"
    elif study.basis is not None and study.basis.screens:
        message = (
            "screening asks clients about outcomes, and the target has no outcomes; name "
            "products in [basis], and leave screened ones out"
        )
    elif study.policy.learned_by_one:
        message = "observed thresholds are for one client alone; use the grid"
    else:
        return
    raise PlacedError("target", message)
