"""What a study promises to every row or person: differential privacy, and the bounds it rests on.

Features are measured from the middle of their range, in quarters of its width, so that most are
about one in size, and outcomes likewise. Ranges are public: nobody's value decides them.
"""

import math
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.privacy.accountant import mu_for, noise_for, split_mu
from fedopl.privacy.score_axes import longest_turned
from fedopl.study.mixture import FOUND

if TYPE_CHECKING:
    from fedopl.study.study import Study

# Shares of μ² in training: the first sums, and all steps together.
FIRST_SHARE = 0.4
# Shares of μ² in evaluation: values, and what their variance is found from.
VALUE_SHARE = 0.8
# Policies that are valued, beside what was done and the client's own: the learned one and an arm.
N_VALUED = 2
Range = tuple[float, float]


def longest_scores(overlap: float | None) -> float:
    """How long a row's scores of all candidates are together, turned, in half-ranges."""
    return longest_turned(overlap or 1.0)


class Deviations(NamedTuple):
    """Standard deviations of the noise on each release, in units of the study."""

    first: float  # of squares on the diagonal, and of products; beside the diagonal over √2
    step: float
    values: float
    value_squares: float  # on the diagonal; beside it over √2


class PrivacyPlan(Checked):
    """How much any one row, or person, may change the chances of any result."""

    epsilon: float = Field(
        gt=0, le=50, description="chances of any result change by a factor of at most e^epsilon"
    )
    delta: float = Field(default=1e-6, gt=0, lt=0.5, description="save for so small a probability")
    unit: Literal["row", "person"] = Field(
        default="row", description="what is protected; a person is all rows of one group"
    )
    most_rows_per_person: int = Field(
        default=1, ge=1, description="of a person with more rows, the first so many are used"
    )
    noise: Literal["local"] = Field(
        default="local", description="each client adds noise to its own answers"
    )
    steps: int = Field(
        default=4, ge=1, le=20, description="of learning, each an exchange, after the first sums"
    )
    outcome: Range = Field(description="where outcomes lie; those beyond count as at its ends")
    ranges: dict[str, Range] = Field(
        default_factory=dict,
        description="for each number, where most values lie; rows far beyond count for less",
    )

    @model_validator(mode="after")
    def _has_ranges(self) -> Self:
        named = {"outcome": self.outcome, **{f"ranges.{k}": v for k, v in self.ranges.items()}}
        for name, (low, high) in named.items():
            if not low < high:
                raise PlacedError(name, f"expected [low, high], came [{low:g}, {high:g}]")
        if self.most_rows_per_person > 1 and self.unit == "row":
            message = 'rows of a person are counted with unit = "person"'
            raise PlacedError("most_rows_per_person", message)
        return self

    def check_rows(self, client: str, n_rows: int) -> None:
        """Refuse a promise that would allow to publish somebody's row as it is."""
        if self.delta * n_rows >= 1:
            raise OptionError(
                f"privacy.delta: {self.delta:g} is no promise for {client}, which has {n_rows:,} "
                "rows: so likely could one of them be told as it is. Take less than "
                f"{1 / n_rows:.1g}"
            )

    @cached_property
    def mu(self) -> float:
        """The promise as Gaussian differential privacy, of training and of evaluation alike.

        No row is in both, so the study as a whole has no more.
        """
        return mu_for(self.epsilon, self.delta)

    def deviations(self, bounds: "Bounds", overlap: float | None) -> Deviations:
        """How much noise each release has."""
        first, *steps = split_mu(
            self.mu, [FIRST_SHARE, *[(1 - FIRST_SHARE) / self.steps] * self.steps]
        )
        values, squares = split_mu(self.mu, [VALUE_SHARE, 1 - VALUE_SHARE])
        longest = longest_scores(overlap)
        rows = self.most_rows_per_person
        return Deviations(
            first=noise_for(rows * math.hypot(bounds.square, bounds.product), first),
            step=noise_for(rows * bounds.step, steps[0]),
            values=noise_for(rows * longest, values),
            # A person's scores are added up before they are squared.
            value_squares=noise_for((rows * longest) ** 2, squares),
        )

    def scales(self, features: tuple[str, ...], reward_sign: float) -> "Scales":
        """The units of these features; a flag without a range is 0 or 1.

        Outcomes of which less is better are negated on reading, and so is their range.
        """
        ranges = [self.ranges.get(name, (0.0, 1.0)) for name in features]
        low, high = np.array(ranges, dtype=np.float64).T
        is_number = np.array([name in self.ranges for name in features])
        return Scales(
            centre=(low + high) / 2,
            # A flag lies at the ends of its range, most numbers well within theirs.
            unit=(high - low) / np.where(is_number, 4.0, 2.0),
            outcome=self.outcome if reward_sign > 0 else (-self.outcome[1], -self.outcome[0]),
        )


def check_private(study: "Study", plan: PrivacyPlan) -> None:
    """A PlacedError, unless the study can be had with differential privacy."""
    encoding = study.encoding
    numbers = set(encoding.numeric if encoding else study.features)
    lacking = [name for name in study.features if name in numbers and name not in plan.ranges]
    unknown = [name for name in plan.ranges if name not in study.features]
    refused = {
        "policy": study.policy.kind == "linear" and study.linear.can_bend,
        "basis": study.basis is None,
        "mixture": study.mixture.kind not in FOUND and not study.mixture.robust,
        "mixture.count": not study.mixture.counts_weight,
        "joining.diagnose": not study.joining.diagnose,
        "evaluation.kind": not study.evaluation.is_cross_fitted,
        "evaluation.splits": study.evaluation.splits == 1,
        "nuisances.propensity": study.nuisances.propensity in ("auto", "known"),
        "rows.weight": not (study.table and study.table.weight),
        "rows.group": plan.unit == "row" or not study.table or study.table.group is not None,
        "declared.overlap": study.declared.overlap is not None,
    }
    for place, is_possible in refused.items():
        if not is_possible:
            raise PlacedError(place, _PRIVATELY[place])
    if lacking:
        raise PlacedError("privacy.ranges", f"no range of {quoted(lacking)}; say where most lie")
    if unknown:
        raise PlacedError("privacy.ranges", f"{quoted(unknown)} is no feature")


# What each setting has to be, beside differential privacy.
_PRIVATELY = {
    "policy": "with differential privacy, policies are linear, on shared features by csoaa-exact",
    "basis": "with differential privacy, policies are linear in the features; leave it out",
    "mixture": "with differential privacy, weights of clients are agreed, not found",
    "mixture.count": "with differential privacy, clients count by rows",
    "joining.diagnose": "what joining is worth takes many more answers than the noise is for",
    "evaluation.kind": "with differential privacy, values are of held-out rows",
    "evaluation.splits": "every split would be another study, with its own noise",
    "nuisances.propensity": "with differential privacy they are known, or follow from noisy sums: "
    "auto or known",
    "rows.weight": "with differential privacy, all rows weigh the same",
    "rows.group": 'unit = "person", so say which column has the person',
    "declared.overlap": "with differential privacy, say how small propensities may be, as in "
    "overlap = 0.05",
}


class Scales:
    """What features and outcomes are measured from, and in."""

    def __init__(self, centre: FloatArray, unit: FloatArray, outcome: Range) -> None:
        self.centre, self.unit = centre, unit
        self.low, self.high = outcome
        self.outcome_centre = (self.low + self.high) / 2
        self.outcome_unit = (self.high - self.low) / 6

    @property
    def half_range(self) -> float:
        """How far outcomes lie from the middle of their range, at most."""
        return (self.high - self.low) / 2

    @cached_property
    def to_units(self) -> FloatArray:  # (n_features + 1, n_features + 1)
        """What turns features and an intercept, as they are, into the same in units."""
        n_features = len(self.unit)
        found = np.eye(n_features + 1)
        found[:-1, :-1] /= self.unit[:, None]
        found[:-1, -1] = -self.centre / self.unit
        return found

    def parameters(self, in_units: FloatArray) -> FloatArray:  # shaped as in_units
        """Coefficients of outcomes as they are on features as they are."""
        found: FloatArray = self.outcome_unit * (in_units @ self.to_units)
        found[:, -1] += self.outcome_centre
        return found


class Bounds:
    """How large a row's part in each release is, at most, in units of the study."""

    def __init__(self, n_features: int, n_actions: int) -> None:
        size = math.sqrt(n_features + 1)
        self.radius = math.sqrt(n_features)  # of features; rows further out count for less
        self.square = n_features + 1.0  # of features and an intercept
        self.product = 1.2 * size  # of features and an intercept, times the outcome
        self.step = 0.6 * n_actions * size  # the same, times a residual over its propensity


class PrivateSetting:
    """All that follows from a private study's settings: units, bounds, and the sizes of noise."""

    def __init__(self, study: "Study") -> None:
        if study.privacy is None:
            raise TypeError("the study has no differential privacy")
        self.plan: PrivacyPlan = study.privacy
        self.bounds = Bounds(study.n_features, study.n_actions)
        self.scales = self.plan.scales(study.features, study.reward_sign)
        self.deviations = self.plan.deviations(self.bounds, study.declared.overlap)
