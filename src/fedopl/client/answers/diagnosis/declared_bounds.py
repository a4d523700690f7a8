"""Checks the rows against the bounds that the study declares for every row."""

import numpy as np

from fedopl.client.workspace import Workspace


def beyond_declared(space: Workspace) -> dict[str, int]:
    """How many rows contradict each bound of `Declared` that some contradict, held-out ones too.

    Propensities are those that scores use: known ones, or else those that were fitted, as they are
    before anything is clipped.
    """
    declared = space.study.declared
    counts = {"reward": 0, "overlap": 0}
    for chunk in space.unscored_chunks():
        if declared.reward is not None:
            beyond = np.abs(chunk.data.rewards) > declared.reward
            counts["reward"] += int(beyond.sum())
        if declared.overlap is not None:
            chances = space.propensities.of(chunk)
            counts["overlap"] += int((chances < declared.overlap).any(axis=1).sum())
    return {bound: n_rows for bound, n_rows in counts.items() if n_rows}
