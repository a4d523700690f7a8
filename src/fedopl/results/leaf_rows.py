"""What each action is worth in each leaf of a learned tree."""

from dataclasses import dataclass

from fedopl.base.estimates import Estimate


@dataclass(frozen=True, kw_only=True)
class LeafRow:
    """One action in one leaf, on held-out rows; the estimate is None where nobody could tell."""

    leaf: int  # counted from the first answer yes to the last answer no
    share: float  # of people in the mixture who end in the leaf
    action: str
    estimate: Estimate | None
