"""An estimated mean with its standard error, such as the value of a policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

# A mean describes only a part of the rows if it leaves out more than this share of them, and more
# than this number. A smaller difference may come from noise on the number of rows used.
MOST_UNUSED, MOST_BY_NOISE = 0.01, 10


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over rows, with a standard error that respects weights and clusters."""

    value: float
    standard_error: float
    n_rows: int
    degrees_of_freedom: int
    of_rows: int | None = None  # all rows, used or not; None if their number is unknown

    @property
    def is_of_a_part(self) -> bool:
        """Whether so many rows are left out that the mean describes only the rows used."""
        if self.of_rows is None:
            return False
        return self.of_rows - self.n_rows > max(MOST_UNUSED * self.of_rows, MOST_BY_NOISE)

    @property
    def rows_used(self) -> str:
        """The rows used, out of all rows if their number is known."""
        return f"{self.n_rows:,}" + ("" if self.of_rows is None else f" of {self.of_rows:,}")

    @property
    def n_groups(self) -> int | None:
        """The number of groups in one client's rows; None if rows are not grouped.

        A mean over several clients has fewer degrees of freedom than its groups.
        """
        units = self.degrees_of_freedom + 1
        return units if units < self.n_rows else None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The two-sided interval at this level, by Student's t."""
        if self.degrees_of_freedom < 1:
            return (-math.inf, math.inf)
        from scipy.special import stdtrit  # here, as it is slow to import

        reach = float(stdtrit(self.degrees_of_freedom, 0.5 + level / 2)) * self.standard_error
        return (self.value - reach, self.value + reach)

    def as_json(self, level: float = 0.95) -> dict[str, Any]:
        """Its numbers and its interval, for programs."""
        return {**vars(self), "interval": self.interval(level)}

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.4g} (95 % interval {low:.4g} to {high:.4g}, {self.n_rows:,} rows)"


@dataclass(frozen=True, kw_only=True)
class RegionEstimate(Estimate):
    """The same for a region: its members' degrees of freedom together do not count groups."""

    @property
    def n_groups(self) -> int | None:
        """None: how many groups the members have, nobody above their aggregator knows."""
        return None


def median_estimate(found: Sequence[Estimate], *, share: float = 1.0) -> Estimate:
    """The median of estimates under several splits of the same rows, each on this share of them.

    The variance is median(σ̂² + (θ̂ − median θ̂)²): Chernozhukov et al. (2018, section 3.4). One
    unusual split changes neither. Estimates on different rows differ by (1 − share)·σ̂² anyway.
    σ̂² includes this already, so only the variation beyond it is added. The degrees of freedom are
    the smallest of all estimates.
    """
    if len(found) == 1:
        return found[0]
    value = median(one.value for one in found)
    variances = [
        (v := one.standard_error**2) + max(0.0, (one.value - value) ** 2 - (1 - share) * v)
        for one in found
    ]
    return type(found[0])(
        value=value,
        standard_error=math.sqrt(median(variances)),
        n_rows=min(one.n_rows for one in found),
        degrees_of_freedom=min(one.degrees_of_freedom for one in found),
    )
