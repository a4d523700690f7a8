"""Agreed ranges of numbers: what lies beyond counts as the nearer end, and is counted."""

from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.study.private.privacy_plan import Range

if TYPE_CHECKING:
    from fedopl.study.study import Study


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
