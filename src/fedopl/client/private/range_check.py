"""How a client's rows lie in the ranges that a private study declares; said to the client alone."""

from collections.abc import Iterator

import numpy as np

from fedopl.base.errors import DataError, OptionError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.private.private_rows import PrivateRows
from fedopl.client.table.logged_data import LoggedData
from fedopl.study.private_setting import PrivateSetting, middles_and_units
from fedopl.study.study import Study

_MANY = 0.01  # of rows; fewer beyond a range change little


def private_problems(name: str, data: LoggedData, study: Study) -> list[str]:
    """What keeps these rows from a private study."""
    if study.privacy is None:
        return []
    try:
        PrivateRows(data, study, PrivateDraws(study.seed, name, "a look ahead"))
    except (DataError, OptionError) as error:
        return [str(error)]
    return []


def private_cautions(data: LoggedData, study: Study) -> Iterator[str]:
    """What ranges do to these rows, where that is more than a little."""
    if study.privacy is None:
        return
    plan, n_rows, scales = study.privacy, data.n_rows, PrivateSetting(study).scales
    low, high = plan.outcome
    rewards = np.asarray(data.rewards[:])
    beyond = float(((rewards < scales.low) | (rewards > scales.high)).mean())
    if beyond > _MANY:
        yield (
            f"{beyond:.1%} of {n_rows:,} outcomes lie beyond privacy.outcome, {low:g} to {high:g}, "
            "and count as at its ends: values will be of outcomes so limited"
        )
    centre, unit = middles_and_units(study.features, plan.ranges)
    scaled = (np.asarray(data.contexts[:]) - centre) / unit
    for place, feature in enumerate(study.features):
        far = float((np.abs(scaled[:, place]) > 2).mean())
        spread = float(scaled[:, place].std())
        if feature in plan.ranges and far > 0.2:
            yield f"{far:.0%} of '{feature}' lie beyond its range; rows far out count for less"
        elif feature in plan.ranges and spread < 0.2:
            yield f"'{feature}' varies little in its range; a narrower one would need less noise"
    chances, least = data.propensities, study.declared.overlap
    if chances is not None and least is not None:
        small = float((np.asarray(chances[:]) < least).mean())
        if small > 0:
            yield (
                f"{small:.1%} of known propensities are below declared.overlap, {least:g}, and "
                "count as that: values will be off by it"
            )
