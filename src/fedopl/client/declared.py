"""Whether rows are as the study declares all of them to be."""

import numpy as np

from fedopl.arrays import BoolArray
from fedopl.client.workspace import Workspace


def beyond_declared(space: Workspace) -> dict[str, int]:
    """How many rows contradict each bound of `Declared` that some contradict, held-out ones too.

    Propensities are those that scores use: known ones, or else those that were fitted, as they are
    before anything is clipped.
    """
    declared = space.study.declared
    found: dict[str, BoolArray] = {}
    if declared.reward is not None:
        found["reward"] = np.abs(space.data.rewards) > declared.reward
    if declared.overlap is not None:
        known = np.nan_to_num(space.propensities.values, nan=np.inf)
        found["overlap"] = np.any(known < declared.overlap, axis=1)
    return {bound: int(rows.sum()) for bound, rows in found.items() if rows.any()}
