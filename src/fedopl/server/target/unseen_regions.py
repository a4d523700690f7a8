"""Regions where the target may have people that no source has seen. All count their rows there."""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import symmetric_pinv
from fedopl.messages.target.context_moments import ContextMoments
from fedopl.messages.target.transported_values import TransportedValues
from fedopl.results.target_value import TargetRegion
from fedopl.server.aggregate.setting import Setting
from fedopl.server.target.found_mixture import pooled_moments

# Standard deviations beyond which about half, a fifth and a tenth of the target's rows lie.
_BEYOND = {0.0: "half", 0.84: "fifth", 1.28: "tenth"}
_FAR = 1.28


def regions_for(setting: Setting, moments: ContextMoments) -> list[tuple[str, FloatArray]]:
    """Half-spaces in which the target has a good part of its rows, and sources may have few.

    Three lie in the direction in which the target differs most from the sources. This is the
    direction of a logistic classifier after its first step. One more is for the single feature in
    which the target extends furthest from the sources.
    """
    p = setting.study.n_features
    means, covariances = pooled_moments(setting)
    there = moments.means[:p]
    spread = np.sqrt(np.maximum(moments.squares[:p] - there**2, 0.0))
    own = np.sqrt(np.maximum(np.diagonal(covariances), 0.0))
    safe = np.where(own > 0, own, np.where(spread > 0, spread, 1.0))
    inverse = symmetric_pinv(covariances / np.outer(safe, safe), rcond=1e-10)
    apart = (there - means) / safe
    # For features that do not vary at the sources, the direction is the difference itself.
    direction = (inverse @ apart + np.where(own > 0, 0.0, apart)) / safe
    middle = float(direction @ there)
    width = math.sqrt(max(float(direction**2 @ spread**2), 0.0))
    found = [
        (
            f"roughly the {part} of the target that is furthest from the sources",
            np.append(direction, -(middle + beyond * width)),
        )
        for beyond, part in _BEYOND.items()
    ]
    reach = np.stack([apart - _FAR * spread / safe, apart + _FAR * spread / safe])
    side, place = np.unravel_index(np.argmax(np.abs(reach)), reach.shape)
    sign = 1.0 if side else -1.0
    cut = there[place] + sign * _FAR * spread[place]
    single = np.zeros(p + 1)
    single[place], single[-1] = sign, -sign * cut
    words = f"{setting.study.features[place]} {'above' if side else 'below'} {cut:.4g}"
    found.append((words, single))
    return found


def seen_in(
    regions: list[tuple[str, FloatArray]],
    there: TransportedValues,
    told: Mapping[str, TransportedValues],
) -> tuple[TargetRegion, ...]:
    """The share of the target, and the number of source rows, in each region."""
    return tuple(
        TargetRegion(
            words=words,
            share=float(there.shares[place]),
            source_rows=float(sum(told[n].shares[place] * told[n].n_rows for n in sorted(told))),
        )
        for place, (words, _) in enumerate(regions)
    )
