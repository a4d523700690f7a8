"""Personal policies: what a study may say about them, and where they are possible."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.trees.tree_plan import LOOK_AHEAD

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study


class PersonalPlan(Checked):
    """Whether each client also has a policy of its own, shrunk toward everybody else's."""

    kind: Literal["ridge", "none"] = Field(
        default="none",
        description="ridge: each client moves everybody else's policy toward its own rows, as far "
        "as these and the other clients speak for it, and tells what that is worth; with "
        "[privacy], the shared policy, at home, and nobody is told anything of it",
    )


PersonalSetting = Annotated[
    PersonalPlan,
    BeforeValidator(lambda given: {"kind": given} if isinstance(given, str) else given),
]


def check_personal(study: "Study") -> None:
    """A PlacedError, unless the personal policies of the study can be solved for and valued."""
    if study.personal.kind != "none" and (why := why_not_personal(study)):
        raise PlacedError("personal.kind", f'{why}; say "none"')


def _why_not_this_kind(study: "Study") -> str | None:
    plan = study.policy
    if study.privacy and plan.kind != "linear":
        return (
            "with differential privacy nobody says what leaves or candidates are worth to all, so "
            "there is nothing that a client could move toward its own rows"
        )
    if study.caution and plan.kind != "linear":
        return (
            "caution takes standard errors from what leaves or candidates are worth, and a client "
            "is not told how sure the others' values are"
        )
    if plan.compares_candidates:
        return None
    if plan.has_leaves:
        if not plan.on_grid:
            return "a tree on observed thresholds is one party's alone"
        if study.tree.depth > LOOK_AHEAD:
            return f"sums tell what leaves are worth to others up to depth {LOOK_AHEAD}"
        return None
    if not plan.can_be_resolved or not study.has_intercept:
        return (
            "personal policies are trees, choices among candidates, and linear ones by "
            "csoaa-exact on shared features"
        )
    return None


def why_not_personal(study: "Study") -> str | None:
    """Why there can be no personal policies in this study, in words; None if there can be."""
    if (why := _why_not_this_kind(study)) is not None:
        return why
    if study.budget:
        return (
            "a budget is kept by one policy for all; what personal ones spend, nobody is told, so "
            "no price could be found at which they keep it"
        )
    if study.evaluation.is_cross_fitted:
        return (
            "values are cross-fitted, each fold's by policies that were learned without it, and a "
            "personal policy is solved for once, from all folds"
        )
    if not study.evaluation.share:
        return "personal policies are valued on held-out rows, and none are held out"
    return None
