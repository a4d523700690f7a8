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
        "result is worth; with [privacy], each client moves the shared policy, at home, and "
        "reports nothing about it",
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
    """Why there can be no personal policies in this study, in words; None if there can be."""
    if (why := _why_not_this_kind(study)) is not None:
        return why
    if study.budget:
        return (
            "the budget is met by one policy for all clients; no client reports what its personal "
            "policy spends, so no price could be found at which personal policies meet the budget"
        )
    if not study.evaluation.claims_values:
        return "personal policies are valued on rows that they have not seen, and none are held out"
    return None
