"""How a client's rows lie in the declared ranges of a private study; shown to the client alone."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedopl.base.errors import DataError, OptionError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.private.private_rows import PrivateRows
from fedopl.client.table.logged_data import LoggedData
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.private.private_units import middles_and_units
from fedopl.study.study import Study

_MANY = 0.01  # a share of rows; fewer rows beyond a range change little


def private_problems(name: str, data: LoggedData, study: Study) -> list[str]:
    """What prevents these rows from taking part in a private study."""
    if study.privacy is None:
        return []
    try:
        PrivateRows(data, study, PrivateDraws(study.seed, name, "a look ahead"))
    except (DataError, OptionError) as error:
        return [str(error)]
    return []


def private_cautions(data: LoggedData, study: Study) -> Iterator[str]:
    """What the ranges change in these rows, where that is more than a little."""
    if study.privacy is None:
        return
    plan, n_rows, scales = study.privacy, data.n_rows, PrivateSetting(study).scales
    low, high = plan.outcome
    beyond = _mean(data, lambda part: (part.rewards < scales.low) | (part.rewards > scales.high))
    if beyond > _MANY:
        yield (
            f"{beyond:.1%} of {n_rows:,} outcomes lie beyond privacy.outcome, {low:g} to "
            f"{high:g}, and are moved to its ends: values will be of outcomes limited in this "
            "way"
        )
    centre, unit = middles_and_units(study.features, plan.ranges)
    far = _mean(data, lambda part: np.abs((part.contexts - centre) / unit) > 2)
    mean = _mean(data, lambda part: (part.contexts - centre) / unit)
    spread = np.sqrt(_mean(data, lambda part: ((part.contexts - centre) / unit - mean) ** 2))
    for place, feature in enumerate(study.features):
        if feature in plan.ranges and far[place] > 0.2:
            yield (
                f"{far[place]:.0%} of '{feature}' lie beyond its range; rows far out count for less"
            )
        elif feature in plan.ranges and spread[place] < 0.2 and not plan.measures_first:
            yield (
                f"'{feature}' varies little in its range; a narrower range would need less noise, "
                'or let the run find it: scales = "measured"'
            )
    least = study.declared.overlap
    if data.propensities is not None and least is not None:
        small = float(_mean(data, lambda part: np.asarray(part.propensities) < least).mean())
        if small > 0:
            yield (
                f"{small:.1%} of known propensities are below declared.overlap, {least:g}, "
                "and are raised to it: values will be biased by that"
            )


def _mean(data: LoggedData, of: Callable[[LoggedData], Any]) -> Any:  # (n_columns,), or a number
    """The mean of a function of the rows, over all rows, in slices."""
    return sum(of(data.part(rows)).sum(axis=0) for rows in data.slices()) / data.n_rows
