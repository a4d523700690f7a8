"""The basis: public functions of features that outcome models and policies are linear in.

Where effects bend, a model that is linear in x is wrong, and one that is linear in hinges, products
and steps of x need not be. A study agrees on these functions before anything is summed, so that
sums over clients are of the same terms, and what is learned is still solved from sums.
"""

from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError

# From the plainest to the richest; each has the terms of those before it, and some more.
FAMILIES = ("linear", "hinges", "splines", "steps")
# Sums grow with the square of the number of terms, and beyond so large numbers they overflow.
MOST_KNOTS, LARGEST_KNOT = 20, 1e15


class Basis(Checked):
    """Where numbers may bend, and which features may act together."""

    kind: Literal["auto", "hinges", "splines", "steps"] = Field(
        default="auto",
        description="which terms there are; auto has all, and uses those of the least loss out of "
        "fold",
    )
    knots: dict[str, tuple[float, ...]] = Field(
        min_length=1, description="for each number that may bend, two or more values, rising"
    )
    products: tuple[str, ...] = Field(
        default=(), description="features of which any two may act together"
    )

    @model_validator(mode="after")
    def _has_rising_knots(self) -> Self:
        for name, knots in self.knots.items():
            if expected := lacking(knots):
                raise PlacedError("knots", f"'{name}': expected {expected}", ("knots",))
        if len(set(self.products)) < len(self.products):
            raise PlacedError("products", "a feature is named twice", ("products",))
        return self

    @property
    def families(self) -> tuple[str, ...]:
        """The sets of terms that learning may choose between."""
        return FAMILIES if self.kind == "auto" else (self.kind,)

    def unknown(self, features: tuple[str, ...]) -> str | None:
        """What it names that is no feature, in words; None if nothing."""
        missing = [name for name in (*self.knots, *self.products) if name not in features]
        return f"{quoted(sorted(set(missing)))} is no feature" if missing else None


def lacking(knots: tuple[float, ...]) -> str | None:
    """What knots of a number ought to be and these are not; None if they are."""
    if len(knots) < 2 or any(low >= high for low, high in pairwise(knots)):
        return "two or more, rising"
    if len(knots) > MOST_KNOTS:
        return f"at most {MOST_KNOTS}, came {len(knots)}"
    if max(map(abs, knots)) > LARGEST_KNOT:
        return f"numbers of at most {LARGEST_KNOT:g}"
    if len({f"{knot:g}" for knot in knots}) < len(knots):  # their terms would have the same name
        return "knots that differ in their first six digits"
    return None
