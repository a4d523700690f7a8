"""The units of a private study's features, terms and outcomes, from public ranges.

Numbers are measured from the middle of their range, in quarters of its width, and flags in halves,
so that most are about one in size. Outcomes are measured from the middle of theirs, in sixths.
Terms of a basis are measured so that they would be about uncorrelated and of variance one if
features varied independently within their ranges. Ranges are public: no row's value decides them.
"""

from collections.abc import Mapping
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.decompositions import cholesky, inv
from fedopl.base.seeds import generator_for
from fedopl.privacy.exact_noise import row_by_row
from fedopl.study.private.privacy_plan import OF_FLAGS, PrivacyPlan, Range

if TYPE_CHECKING:
    from fedopl.study.study import Study

# The number of made-up contexts for scaling the terms of a basis, and the share that is added to
# variances first.
_N_MADE_UP, _ROUND_BEYOND = 4096, 0.02
_LEAST_VARIANCE = 0.01  # of a term; those of a basis are about one in size


class Scales:
    """The origins and units of features, or terms, and outcomes."""

    def __init__(self, centre: FloatArray, turned: FloatArray, outcome: Range) -> None:
        self.centre = centre  # (n_terms,)
        # Factors on centred terms; those of a simpler family use only its own terms.
        self.turned = turned  # (n_terms, n_terms), zero below the diagonal
        self.low, self.high = outcome
        self.outcome_centre = (self.low + self.high) / 2
        self.outcome_unit = (self.high - self.low) / 6

    @property
    def half_range(self) -> float:
        """The largest distance of outcomes from the middle of their range."""
        return (self.high - self.low) / 2

    def units(self, terms: FloatArray) -> FloatArray:  # (n_rows, n_terms), the first ones
        """Terms, all or only the first ones, in units of the study."""
        n_terms = terms.shape[1]
        return row_by_row(terms - self.centre[:n_terms], self.turned[:n_terms, :n_terms])

    @cached_property
    def to_units(self) -> FloatArray:  # (n_terms + 1, n_terms + 1)
        """The matrix that turns raw terms and an intercept into units of the study."""
        found = np.eye(len(self.centre) + 1)
        found[:-1, :-1] = self.turned.T
        found[:-1, -1] = -self.centre @ self.turned
        return found

    def parameters(self, in_units: FloatArray) -> FloatArray:  # shaped as in_units
        """Coefficients in units of the study, converted to raw terms and raw outcomes."""
        found: FloatArray = self.outcome_unit * (in_units @ self.to_units)
        found[:, -1] += self.outcome_centre
        return found


def scales_of(study: "Study", plan: PrivacyPlan) -> Scales:
    """The units of a study's terms; a flag without a range is 0 or 1.

    If less of an outcome is better, outcomes are negated on reading, and so is their range.
    """
    low, high = plan.outcome
    outcome = (low, high) if study.reward_sign > 0 else (-high, -low)
    centre, unit = middles_and_units(study.features, plan.ranges)
    if study.terms is None:
        return Scales(centre, np.diag(1 / unit), outcome)
    # Noisy sums can be solved well only if no term is nearly a combination of others.
    rng = generator_for(0, purpose="made-up contexts in public ranges")
    drawn = rng.normal(size=(_N_MADE_UP, study.n_features))
    is_number = are_numbers(study.features, plan.ranges)
    made_up = centre + unit * np.where(is_number, np.clip(drawn, -2, 2), np.sign(drawn))
    terms = study.terms.of(made_up)
    spread = np.cov(terms, rowvar=False)
    variances = np.diag(spread).copy()
    # A term that hardly varies within the ranges would become huge for rows beyond them.
    variances[study.n_features :] = np.maximum(variances[study.n_features :], _LEAST_VARIANCE)
    spread += np.diag((1 + _ROUND_BEYOND) * variances - np.diag(spread))
    return Scales(terms.mean(axis=0), inv(cholesky(spread)).T, outcome)


def middles_and_units(
    features: tuple[str, ...], ranges: Mapping[str, Range]
) -> tuple[FloatArray, FloatArray]:  # (n_features,) each
    """The middle of each feature's range, and its unit."""
    low, high = np.array([ranges.get(name, OF_FLAGS) for name in features]).T
    # A flag lies at the ends of its range; most numbers lie well within theirs.
    return (low + high) / 2, (high - low) / np.where(are_numbers(features, ranges), 4.0, 2.0)


def are_numbers(features: tuple[str, ...], ranges: Mapping[str, Range]) -> BoolArray:
    """Which features are not flags; a feature from 0 to 1, such as a share, counts as a flag."""
    return np.array([ranges.get(name, OF_FLAGS) != OF_FLAGS for name in features])


def likely_values(features: tuple[str, ...], ranges: Mapping[str, Range]) -> dict[str, FloatArray]:
    """For each feature, typical values according to its public range."""
    middles, units = middles_and_units(features, ranges)
    normal = np.array([NormalDist().inv_cdf(share) for share in np.linspace(0.01, 0.99, 99)])
    is_number = are_numbers(features, ranges)
    values = middles + units * np.where(is_number, normal[:, None], np.sign(normal)[:, None])
    return dict(zip(features, values.T, strict=True))
