"""Answers in a study with differential privacy: each has noise, or no row changes it."""

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.private.party import Party
from fedopl.client.private.private_workspace import PrivateWorkspace, asked_about
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_moments import (
    MeasureNumbers,
    NoisedMoments,
    RangesTaken,
    TakeRanges,
)
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately
from fedopl.messages.private.noised_values import (
    NoisedValues,
    ValueApart,
    ValuePrivately,
    ValuesApart,
)
from fedopl.messages.private.residual_step import ResidualSums, SumResiduals
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.secure.mask_shares import (
    SealedShares,
    ShareSecrets,
    Unmask,
    UnmaskingShares,
)
from fedopl.messages.secure.session_keys import RosterTaken, SessionKeys, TakeRoster, TellKeys
from fedopl.privacy.sum_grid import FINE
from fedopl.study.private.measured_ranges import MIDDLE_SQUARE
from fedopl.study.private.private_setting import FARTHEST_MEASURED
from fedopl.study.private.private_units import middles_and_units


def enrol_privately(space: PrivateWorkspace, _query: Enrol) -> Enrolment:
    """The number of training rows, which is public, without counts by action."""
    return Enrolment(n_rows=space.n_training, rows_per_action=np.zeros(space.study.n_actions))


def tell_keys(space: PrivateWorkspace, _query: TellKeys) -> SessionKeys:
    """The client's keys for masks."""
    return _party(space).told()


def take_roster(space: PrivateWorkspace, query: TakeRoster) -> RosterTaken:
    """Take the roster; from here on answers are masked for exactly these clients."""
    return _party(space).take(query)


def share_secrets(space: PrivateWorkspace, _query: ShareSecrets) -> SealedShares:
    """Shares of the secrets behind its masks, each for one other client."""
    return _party(space).sealed()


def unmask(space: PrivateWorkspace, query: Unmask) -> UnmaskingShares:
    """Shares that remove the masks from the sum of those who answered."""
    return _party(space).unmask(query)


def _party(space: PrivateWorkspace) -> Party:
    if space.party is None:
        raise RefusedError(RefusalCode.NOT_IN_STUDY)
    return space.party


def sum_privately(space: PrivateWorkspace, _query: SumPrivately) -> NoisedSums:
    """Squares and products of training rows, with noise."""
    return space.first_sums


def sum_residuals(space: PrivateWorkspace, query: SumResiduals) -> ResidualSums:
    """The residual sums of outcome models for one step, with noise."""
    if not 0 <= query.number < space.setting.n_steps:
        raise RefusedError(RefusalCode.MALFORMED)
    asked = b"%d %d %s" % (query.number, query.n_terms, query.parameters.tobytes())
    return ResidualSums(residuals=space.residual_sums(query, asked))


def values_privately(space: PrivateWorkspace, query: ValuePrivately) -> NoisedValues:
    """The values of policies on held-out rows, with noise."""
    return space.noised_values(query, b"values %s" % asked_about(query))


def values_apart(space: PrivateWorkspace, query: ValueApart) -> ValuesApart:
    """The same for this client alone, where the sums of all are under masks."""
    return space.values_apart(query, b"values apart %s" % asked_about(query))


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
