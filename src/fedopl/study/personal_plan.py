"""Personal policies: the study's setting, and when they are possible."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.trees.tree_plan import LOOK_AHEAD

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study


class PersonalPlan(Checked):
    """Whether each client also has its own policy, shrunk toward that of all others."""

    kind: Literal["ridge", "none"] = Field(
        default="none",
        description="ridge: each client moves the policy of all other clients toward its own rows, "
        "as far as its rows and the other clients support that, and reports what the "
        "result is worth",
    )


PersonalSetting = Annotated[
    PersonalPlan,
    BeforeValidator(lambda given: {"kind": given} if isinstance(given, str) else given),
]


def check_personal(study: "Study") -> None:
    """Raise a PlacedError unless the study can solve for its personal policies and value them."""
    if study.personalises and (why := why_not_personal(study)):
        raise PlacedError("personal.kind", f'{why}; say "none"')


def _why_not_this_kind(study: "Study") -> str | None:
    plan = study.policy
    if plan.compares_candidates:
        return (
            "a personal choice subtracts no standard errors from values" if study.caution else None
        )
    if plan.has_leaves:
        if not plan.on_grid:
            return "a tree on observed thresholds belongs to one client alone"
        if study.tree.depth > LOOK_AHEAD:
            return f"sums show what leaves are worth to the other clients up to depth {LOOK_AHEAD}"
        return None
    if not plan.can_be_resolved or not study.has_intercept:
        return (
            "personal policies are trees, choices among candidates, or linear policies by "
            "csoaa-exact on shared features"
        )
    return None


def why_not_personal(study: "Study") -> str | None:
    """Why this study can have no personal policies, in words; None if it can."""
    if study.privacy:
        return (
            "the noise of a private study is for one set of values, and values of personal "
            "policies would be another set"
        )
    if (why := _why_not_this_kind(study)) is not None:
        return why
    if study.budget:
        return (
            "the budget is met by one policy for all clients, and personal policies would spend "
            "other amounts"
        )
    if study.is_cautious:
        return "personal policies have no standard errors that caution could subtract from scores"
    if study.evaluation.is_cross_fitted:
        return (
            "values are cross-fitted: each fold is valued by policies learned without it. A "
            "personal policy is solved once, from all folds"
        )
    if not study.evaluation.share:
        return "personal policies are valued on held-out rows, and none are held out"
    return None
