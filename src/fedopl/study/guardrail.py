"""Guardrails: further outcomes that must not get worse by more than a limit."""

from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from fedopl.base.validation import Checked

if TYPE_CHECKING:
    from fedopl.study.study import Study

# The reference of a guardrail, unless it is one action for everybody.
WHAT_WAS_DONE = "what was done"


class Guardrail(Checked):
    """How much more or less of an outcome there may be than under what was done, or an action."""

    column: str = Field(min_length=1, description="the column with the outcome, a number")
    at_most: float | None = Field(
        default=None, ge=0, description="the largest change that is allowed, against the comparison"
    )
    at_least: float | None = Field(
        default=None,
        ge=0,
        description="the smallest change that is allowed, against the comparison",
    )
    more_than: str | None = Field(
        default=None,
        description='the comparison: "what was done", or an action that everybody gets; the change '
        "counted is more of the outcome",
    )
    less_than: str | None = Field(
        default=None, description="the same; the change counted is less of the outcome"
    )
    confidence: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="confidence that all guardrails called kept or broken are rightly called so, "
        "together",
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("say how much may change: either at_most or at_least")
        if (self.more_than is None) == (self.less_than is None):
            raise ValueError(
                'say what is compared with: either more_than or less_than = "what was done", or '
                "an action"
            )
        return self

    @property
    def reference(self) -> str:
        """The reference of comparisons: `WHAT_WAS_DONE`, or the action that everybody gets."""
        return str(self.more_than if self.more_than is not None else self.less_than)

    @property
    def sign(self) -> float:
        """−1 if a fall of the outcome must be limited, or a rise is required."""
        return 1.0 if (self.at_most is not None) == (self.more_than is not None) else -1.0

    @property
    def limit(self) -> float:
        """The bound on `sign` times the change."""
        return self.at_most if self.at_most is not None else -float(self.at_least or 0.0)

    @property
    def words(self) -> str:
        """The guardrail in words: at most 0.005 more death than what was done."""
        amount, size = ("at most", self.at_most)
        if self.at_most is None:
            amount, size = ("at least", self.at_least)
        which = "more" if self.more_than is not None else "less"
        than = (
            WHAT_WAS_DONE
            if self.reference == WHAT_WAS_DONE
            else f"if everybody gets '{self.reference}'"
        )
        return f"{amount} {size:.12g} {which} {self.column} than {than}"


def guarded_columns(study: "Study") -> tuple[str, ...]:
    """The columns of all guardrails, each once, in the order in which queries name them."""
    return tuple(dict.fromkeys(one.column for one in study.guardrails.values()))
