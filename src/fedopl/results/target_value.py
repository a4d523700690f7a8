"""The value of a policy at a site without outcomes, and the evidence for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedopl.base.estimates import Estimate


@dataclass(frozen=True, kw_only=True)
class TargetSource:
    """One client with outcomes, compared with the target."""

    client: str
    n_rows: int  # that are valued
    effective_rows: float  # after weighing; 0 where no weights make them look like the target
    correction: float | None  # what its scores of the policy have beyond models, on average
    standard_error: float | None
    chance: float | None  # of so large a difference from the other sources; None without others
    used: bool
    why_not: str = ""
    share: float | None = None  # of all weight, where weights are found for all sources together

    @property
    def is_left_out(self) -> bool:
        """Whether it does not count because its outcomes differ from the other sources'."""
        return not self.used and self.chance is not None


@dataclass(frozen=True, kw_only=True)
class TargetRegion:
    """A region where the target may have people that no source has seen."""

    words: str
    share: float  # of the target's rows
    source_rows: float  # valued rows of all sources there


@dataclass(frozen=True, kw_only=True)
class AtTarget:
    """The policy and every action at the target; without values, `why_not` gives the reason."""

    client: str
    n_rows: int = 0  # of the target
    effective_rows: float = 0.0  # of the sources that are used, together
    values: Mapping[str, Estimate] = field(default_factory=dict)  # by policy
    gain: Estimate | None = None  # of the learned policy over the best constant arm of all sources
    # The same, paired, over that arm and every other arm that everybody may get, by its name.
    gains: Mapping[str, Estimate] = field(default_factory=dict)
    why_not: str = ""
    sources: tuple[TargetSource, ...] = ()
    regions: tuple[TargetRegion, ...] = ()
    # The mixture of sources whose contexts come nearest to the target's.
    mixture: Mapping[str, float] = field(default_factory=dict)
    skewness: float | None = None  # its price
    gap: float | None = None  # left in a mean or mean square, in standard deviations
    gap_as_agreed: float | None = None  # the same of the mixture that the policy is learned for
    # "each": each source found its own weights. "joint": they are for all sources' rows together,
    # `mixture` has the sources' shares of them, and `gap` is what they leave.
    balance: str = "each"
    n_steps: int = 0  # it took to find weights for all together

    @property
    def has_joint_weights(self) -> bool:
        """Whether weights for all sources' rows together were found, and values under them."""
        return self.balance == "joint" and self.effective_rows > 0

    @property
    def unseen(self) -> tuple[TargetRegion, ...]:
        """Regions with a good part of the target, in which sources have hardly any rows."""
        return self._hardly_seen(GOOD_PART)

    @property
    def thin(self) -> tuple[TargetRegion, ...]:
        """Regions with some part of the target and few rows of sources: little is known there."""
        return self._hardly_seen(SOME)

    def _hardly_seen(self, share: float) -> tuple[TargetRegion, ...]:
        few = (one for one in self.regions if one.source_rows < LEAST_SEEN)
        return tuple(one for one in few if one.share >= share)

    @property
    def left_out(self) -> tuple[TargetSource, ...]:
        """The sources that are left out."""
        return tuple(one for one in self.sources if not one.used)

    @property
    def best_arm_there(self) -> str | None:
        """The arm that looks best at the target, which is the one that least is gained over."""
        return min(self.gains, key=lambda arm: self.gains[arm].value) if self.gains else None

    def in_words(self, chosen: str) -> str:
        """What the policy is worth there, and what it gains, in one or two plain sentences."""
        where = f"At '{self.client}', which has contexts only,"
        if self.why_not:
            return f"{where} nothing is claimed about the policy's value: {self.why_not}."
        found = self.values[chosen]
        low, high = found.interval()
        return (
            f"{where} the policy is worth {found.value:.4g} (95 % interval {low:.4g} to "
            f"{high:.4g}), by {self.effective_rows:,.0f} effective rows of "
            f"{sum(one.used for one in self.sources)} of "
            f"{len(self.sources)} {'source' if len(self.sources) == 1 else 'sources'}."
            f"{self._gains_in_words()}"
        )

    def _gains_in_words(self) -> str:
        """The gains over the arm that is best at the sources, and over the one that is best there.

        The first of `gains` is over the sources' best arm, if its value at the target is known.
        """
        there = self.best_arm_there
        if self.gain is None or there is None:
            return ""
        first = next(iter(self.gains))
        if first == there:
            return f" Over '{first}', which is best at the sources and there, {_gained(self.gain)}."
        return (
            f" Over '{first}', which is best at the sources, {_gained(self.gain)}; over '{there}', "
            f"which looks best there and was picked by these numbers, {_gained(self.gains[there])}."
        )


def _gained(gain: Estimate) -> str:
    low, high = gain.interval()
    return f"it gains {gain.value:.4g} ({low:.4g} to {high:.4g})"


# Fewer valued rows of sources than this count as hardly any, in a region with a good part
# of the target, or with some part of it.
LEAST_SEEN = 10
GOOD_PART, SOME = 0.15, 0.05
