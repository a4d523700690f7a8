"""Ranges found before anything else, from noisy sums of numbers and of their squares.

The study then continues as the same study with these ranges. All quantities that follow from ranges
are then in units in which numbers are about one in size. The ranges found are public. Any ranges
keep the promise, since rows are bounded in units, whatever the units are.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.study.private.privacy_plan import LEAST_FOUND, OF_FLAGS, PrivacyPlan, Range
from fedopl.study.private.private_setting import FARTHEST_MEASURED, PrivateSetting
from fedopl.study.private.private_units import middles_and_units
from fedopl.study.study import Study

# Squares are measured from this, so that they move a sum no further than numbers do.
MIDDLE_SQUARE = FARTHEST_MEASURED**2 / 2
# Digits of ranges that are found; more digits would be hard to read and add nothing.
_DIGITS = 4
# A variance must be at least this many deviations of the noise in mean squares.
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
    """Two standard deviations to either side of the mean, by name, as far as noise allows.

    Args:
        study: before it continues with the ranges found.
        sums: by number, over all clients, in units of the declared ranges.
        squares: sums of squares likewise, less `MIDDLE_SQUARE` for each row.
        n_rows: the number of rows in the sums.
        noise: in the total, in deviations of the release.

    """
    setting = PrivateSetting(study)
    names = setting.plan.measured
    middle, unit = middles_and_units(names, setting.plan.ranges)
    most = FARTHEST_MEASURED
    means = np.clip(sums / n_rows, -most, most)
    variances = squares / n_rows + MIDDLE_SQUARE - means**2
    # At least as wide as noise can resolve, and at most as wide as declared.
    sure = _SURELY * noise * setting.deviation("spreads") / n_rows
    spread = np.sqrt(np.clip(variances, min(max(sure, LEAST_FOUND**2), 1.0), 1.0))
    ends = [middle + unit * (means + side * most * spread) for side in (-1, 1)]
    return {name: _readable((low, high)) for name, low, high in zip(names, *ends, strict=True)}


def _readable(ends: Sequence[float]) -> Range:
    """A range with few digits relative to its width, which is not mistaken for that of a flag."""
    low, high = float(ends[0]), float(ends[1])
    digits = _DIGITS - 1 - int(np.floor(np.log10(high - low)))
    found = round(low, digits), round(high, digits)
    return found if found != OF_FLAGS else (found[0], found[1] + 10.0**-digits)
