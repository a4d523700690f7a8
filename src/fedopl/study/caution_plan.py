"""Caution about uncertain actions: the study's setting, and when it is possible."""

from typing import TYPE_CHECKING

from pydantic import Field

from fedopl.base.validation import Checked, PlacedError

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study

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


def check_caution(study: "Study") -> None:
    """Refuse caution if no sums are released that standard errors could be computed from."""
    if study.caution and study.privacy:
        message = (
            "standard errors would be computed from sums with noise, and would mean little; "
            "set caution = 0, or agree on a study without [privacy]"
        )
        raise PlacedError("caution", message, ("policy", "caution"))
    if (study.is_cautious or study.doubts_leaves) and study.nuisances.kind == "local":
        message = (
            "standard errors are computed from the sums that federated outcome models are fitted "
            'from; with kind = "local" under [nuisances] there are none'
        )
        raise PlacedError("caution", message, ("policy", "caution"))
