"""What a study promises to every row or person: differential privacy, and the ranges it needs."""

import math
import re
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.basis import LARGEST_KNOT
from fedopl.privacy.accountant import mu_for
from fedopl.secure.neighbours import is_sound

Range = tuple[float, float]
OF_FLAGS = (0.0, 1.0)
# The least width of a measured range, as a share of the declared range.
LEAST_FOUND = 1e-3
# With secure aggregation: with two clients, each learns the other's sums from their total.
LEAST_PARTIES, LEAST_HONEST = 3, 2
_PUBLIC_KEY = re.compile("[0-9a-f]{64}")


class PrivacyPlan(Checked):
    """How much any one row, or person, may change the chances of any result."""

    epsilon: float = Field(
        gt=0,
        le=50,
        description="the chance of any result changes by a factor of at most e^epsilon; set 50, "
        "which promises next to nothing, if masks alone are to protect",
    )
    delta: float = Field(
        default=1e-6,
        gt=0,
        lt=0.5,
        description="by this much a chance may exceed that factor",
    )
    unit: Literal["row", "person"] = Field(
        default="row", description="what is protected; a person is all rows of one group"
    )
    most_rows_per_person: int = Field(
        default=1,
        ge=1,
        description="of a person with more rows, only this many are used, the first ones",
    )
    aggregation: Literal["plain", "secure"] = Field(
        default="plain",
        description="secure: answers are masked, and the server can read their total alone",
    )
    noise: Literal["local", "total"] = Field(
        default="local",
        description="local: each client's answers have all the noise of the promise; total: "
        "their sum has. total needs secure aggregation, and is the default there",
    )
    colluders: int = Field(
        default=1,
        ge=0,
        description="secure: the promise holds even if this many clients tell the server all they "
        "know",
    )
    dropouts: int = Field(
        default=0,
        ge=0,
        description="secure: this many clients may be lacking in a sum, which is then over the "
        "others; each sum takes two trips. 0: all clients must answer",
    )
    values_apart: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="secure: this share of the budget of held-out rows is spent on each client's "
        "own values. The server reads them, with all the noise of the promise. 0: it reads no "
        "client's own values",
    )
    keys: dict[str, str] = Field(
        default_factory=dict,
        description="secure: by client, the public key that `fedopl keys` prints",
    )
    steps: int = Field(
        default=4,
        ge=1,
        le=20,
        description="number of steps of learning after the first sums; each is an exchange",
    )
    sampled: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of rows in each step of csoaa-sgd, drawn at random",
    )
    scales: Literal["declared", "measured"] = Field(
        default="declared",
        description="measured: a tenth of the budget is spent first, in one more trip, to find "
        "where numbers lie within their ranges. The ranges may then be wide",
    )
    outcome: Range = Field(
        description="where outcomes lie; outcomes beyond the range are moved to its ends"
    )
    ranges: dict[str, Range] = Field(
        default_factory=dict,
        description="for each number, where most values lie; rows far beyond count for less",
    )
    declared_ranges: dict[str, Range] | None = Field(
        default=None,
        description="the agreed ranges, if others were measured since; a run fills it in",
    )

    @property
    def is_secure(self) -> bool:
        """Whether the server reads only totals."""
        return self.aggregation == "secure"

    @property
    def measures_first(self) -> bool:
        """Whether ranges are found from noisy sums before anything else."""
        return self.scales == "measured"

    @property
    def is_measured(self) -> bool:
        """Whether the units of numbers are known."""
        return not self.measures_first or self.declared_ranges is not None

    @property
    def measured(self) -> tuple[str, ...]:
        """The numbers whose ranges are found; a number from 0 to 1 counts as a flag."""
        declared = self.declared_ranges or self.ranges
        return tuple(name for name, own in sorted(declared.items()) if own != OF_FLAGS)

    @property
    def n_sharing_noise(self) -> int:
        """The number of clients whose noise together makes up the promised noise."""
        lacking = self.colluders + self.dropouts
        return len(self.keys) - lacking if self.noise == "total" else 1

    @property
    def noise_of_total(self) -> float:
        """The deviation of noise in a total of all clients, relative to that of a release."""
        return self.noise_of(len(self.keys))

    def noise_of(self, n_clients: int) -> float:
        """The deviation of noise in a total over `n_clients`, relative to that of a release."""
        return math.sqrt(n_clients / self.n_sharing_noise)

    @property
    def mu_alone(self) -> float:
        """What one client's own noise promises, if all others tell the server all they know."""
        return self.mu * math.sqrt(self.n_sharing_noise)

    @model_validator(mode="after")
    def _shares_noise(self) -> Self:
        # If no answer is seen alone, the full noise in each would be more than is promised.
        if self.is_secure and "noise" not in self.model_fields_set:
            self.__dict__["noise"] = "total"
        return self

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if not self.is_secure:
            for name in ("colluders", "dropouts", "values_apart", "keys"):
                if getattr(self, name) != type(self).model_fields[name].get_default(
                    call_default_factory=True
                ):
                    raise PlacedError(name, 'only with aggregation = "secure"')
            if self.noise == "total":
                message = "clients can share the noise only if nobody sees a single answer: set "
                raise PlacedError("noise", message + 'aggregation = "secure"')
            return self
        for name, key in self.keys.items():
            if not _PUBLIC_KEY.fullmatch(key):
                message = f"expected the 64 digits that `fedopl keys` prints, came '{key}'"
                raise PlacedError(f"keys.{name}", message, ("keys", name))
        if self.keys and len(self.keys) < LEAST_PARTIES:
            message = (
                f"{quoted(sorted(self.keys))}: of fewer than {LEAST_PARTIES} clients, each would "
            )
            raise PlacedError("keys", message + "learn the other's sums from the total")
        if len(set(self.keys.values())) < len(self.keys):
            raise PlacedError("keys", "two clients have the same key; each needs its own secret")
        if self.keys and len(self.keys) - self.colluders < LEAST_HONEST:
            message = f"of {len(self.keys)} clients, at most {len(self.keys) - LEAST_HONEST} may "
            raise PlacedError(
                "colluders",
                message + "collude: otherwise a single client would have no other to hide among",
            )
        if (
            self.keys
            and self.dropouts
            and not is_sound(len(self.keys), self.colluders, self.dropouts)
        ):
            most = (len(self.keys) - self.colluders - 1) // 2
            message = (
                f"of {len(self.keys)} clients of which {self.colluders} may collude, at most "
                f"{most} may be lacking. Of the others, more than half must be honest and "
                "answer, or the server could tell different things to two halves"
            )
            raise PlacedError("dropouts", message)
        return self

    @model_validator(mode="after")
    def _has_ranges(self) -> Self:
        named = {"outcome": self.outcome, **{f"ranges.{k}": v for k, v in self.ranges.items()}}
        for name, (low, high) in named.items():
            if not low < high:
                raise PlacedError(name, f"expected [low, high], came [{low:g}, {high:g}]")
            if max(-low, high) > LARGEST_KNOT:
                message = f"expected numbers of at most {LARGEST_KNOT:g}"
                raise PlacedError(name, f"{message}, came [{low:g}, {high:g}]")
        if self.declared_ranges is not None and (
            not self.measures_first or set(self.declared_ranges) != set(self.ranges)
        ):
            message = "a run fills it in, where scales are measured; leave it out"
            raise PlacedError("declared_ranges", message)
        for name, (low, high) in (self.declared_ranges or {}).items():
            found, width = self.ranges[name], high - low
            share = (found[1] - found[0]) / width
            # Rounding may make it slightly more or less.
            is_near = low - 0.6 * width <= found[0] and found[1] <= high + 0.6 * width
            if not (is_near and LEAST_FOUND / 2 <= share <= 1.1):
                message = f"[{found[0]:g}, {found[1]:g}] does not follow from [{low:g}, {high:g}]"
                raise PlacedError(f"ranges.{name}", message)
        if self.measures_first and not self.measured:
            message = "there is no number whose range could be measured: flags lie at their ends"
            raise PlacedError("scales", message)
        if self.most_rows_per_person > 1 and self.unit == "row":
            message = 'rows of a person are counted with unit = "person"'
            raise PlacedError("most_rows_per_person", message)
        return self

    def check_rows(self, client: str, n_rows: int) -> None:
        """Refuse a promise that would allow to publish somebody's row unchanged."""
        if self.delta * n_rows >= 1:
            raise OptionError(
                f"privacy.delta: {self.delta:g} is no promise for {client}, which has {n_rows:,} "
                "rows: with that probability a row could be revealed as it is. Take less than "
                f"{1 / n_rows:.1g}"
            )

    @cached_property
    def mu(self) -> float:
        """The promise as Gaussian differential privacy, for training and for evaluation alike.

        No row is in both, so the study as a whole discloses no more.
        """
        return mu_for(self.epsilon, self.delta)
