"""Where numbers lie within their declared ranges, with noise; and the ranges computed from that."""

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_moments import (
    MeasureNumbers,
    NoisedMoments,
    RangesTaken,
    TakeRanges,
)
from fedopl.messages.refusal import RefusalCode
from fedopl.privacy.sum_grid import FINE
from fedopl.study.private.measured_ranges import MIDDLE_SQUARE
from fedopl.study.private.private_setting import FARTHEST_MEASURED
from fedopl.study.private.private_units import middles_and_units


def measure_numbers(space: PrivateWorkspace, _query: MeasureNumbers) -> NoisedMoments:
    """Sums of numbers and of their squares over training rows, with noise."""
    names, most = space.plan.measured, FARTHEST_MEASURED
    middle, unit = middles_and_units(names, space.plan.ranges)
    places = [space.study.features.index(name) for name in names]
    sums, squares = np.zeros((2, len(names)))
    for chunk in space.rows.chunks(RowSplit.TRAINING):
        scaled = np.clip((chunk.contexts[:, places] - middle) / unit, -most, most)
        sums += np.trunc(scaled * FINE).sum(axis=0)
        squares += np.trunc((scaled**2 - MIDDLE_SQUARE) * FINE).sum(axis=0)
    noise, setting = space.noise(b"moments"), space.setting
    return NoisedMoments(
        sums=noise.added(sums, setting.deviation("means"), "means"),
        squares=noise.added(squares, setting.deviation("spreads"), "spreads"),
    )


def take_ranges(space: PrivateWorkspace, query: TakeRanges) -> RangesTaken:
    """Confirm the ranges that the door's study continued with; the answer is their number."""
    found = query.named(space.study)
    if any(space.plan.ranges[name] != own for name, own in found.items()):
        raise RefusedError(RefusalCode.MALFORMED)
    return RangesTaken(n_ranges=len(found))
