"""Ranges that are found before anything else, from sums of numbers and of their squares with noise.

A study goes on as the same with these ranges: everything that follows from ranges is then in units
in which numbers are about one in size. What is found is public, and any ranges keep the promise:
rows are bounded in units, whatever these are.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.study.private.privacy_plan import LEAST_FOUND, OF_FLAGS, PrivacyPlan, Range
from fedopl.study.private.private_setting import (
    FARTHEST_MEASURED,
    PrivateSetting,
    middles_and_units,
)
from fedopl.study.study import Study

# What squares are counted from: so they move a sum no further than numbers do.
MIDDLE_SQUARE = FARTHEST_MEASURED**2 / 2
# Of ranges that are found: more would say no more, and be hard to read.
_DIGITS = 4
# Deviations of the noise in mean squares that a variance has to be, at least.
_SURELY = 2.0


def with_ranges(study: Study, ranges: Mapping[str, Range]) -> Study:
    """The study with these ranges; a ValueError if it cannot have them."""
    plan = PrivateSetting(study).plan
    own = {"ranges": {**plan.ranges, **ranges}, "declared_ranges": plan.ranges}
    found = PrivacyPlan.model_validate(plan.model_dump() | own)
    return study.model_copy(update={"privacy": found})


def found_ranges(
    study: Study, sums: FloatArray, squares: FloatArray, n_rows: int, noise: float
) -> dict[str, Range]:
    """Two deviations to either side of the mean, by name, as far as noise lets them be known.

    Args:
        study: before it goes on.
        sums: by number, over all clients, in units of the declared ranges.
        squares: the same of squares, less `MIDDLE_SQUARE` each.
        n_rows: how many rows they are over.
        noise: in the total, in deviations of the release.

    """
    setting = PrivateSetting(study)
    names = setting.plan.measured
    middle, unit = middles_and_units(names, setting.plan.ranges)
    most = FARTHEST_MEASURED
    means = np.clip(sums / n_rows, -most, most)
    variances = squares / n_rows + MIDDLE_SQUARE - means**2
    # No narrower than noise leaves sure, and no wider than was declared.
    sure = _SURELY * noise * setting.deviation("spreads") / n_rows
    spread = np.sqrt(np.clip(variances, min(max(sure, LEAST_FOUND**2), 1.0), 1.0))
    ends = [middle + unit * (means + side * most * spread) for side in (-1, 1)]
    return {name: _readable((low, high)) for name, low, high in zip(names, *ends, strict=True)}


def _readable(ends: Sequence[float]) -> Range:
    """A range in few digits of its width, which is not taken for that of a flag."""
    low, high = float(ends[0]), float(ends[1])
    digits = _DIGITS - 1 - int(np.floor(np.log10(high - low)))
    found = round(low, digits), round(high, digits)
    return found if found != OF_FLAGS else (found[0], found[1] + 10.0**-digits)
