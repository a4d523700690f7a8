"""Answers in a study with differential privacy: each with noise, or a number that no row moves."""

from typing import Any

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.private.party import Party
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately
from fedopl.messages.private.noised_values import (
    AsksForNoisedValues,
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
from fedopl.policies.kinds import POLICY_FIELDS


def enrol_privately(space: PrivateWorkspace, _query: Enrol) -> Enrolment:
    """How many rows there are to learn from, which is public; not what was done in them."""
    return Enrolment(n_rows=space.n_training, rows_per_action=np.zeros(space.study.n_actions))


def tell_keys(space: PrivateWorkspace, _query: TellKeys) -> SessionKeys:
    """The client's keys for masks."""
    return _party(space).told()


def take_roster(space: PrivateWorkspace, query: TakeRoster) -> RosterTaken:
    """Who takes part; from here on answers are masked for just these."""
    return _party(space).take(query)


def share_secrets(space: PrivateWorkspace, _query: ShareSecrets) -> SealedShares:
    """Shares of what its masks follow from, each for one other client."""
    return _party(space).sealed()


def unmask(space: PrivateWorkspace, query: Unmask) -> UnmaskingShares:
    """Shares that take masks off the sum of those who answered."""
    return _party(space).unmask(query)


def _party(space: PrivateWorkspace) -> Party:
    if space.party is None:
        raise RefusedError(RefusalCode.NOT_IN_STUDY)
    return space.party


def sum_privately(space: PrivateWorkspace, _query: SumPrivately) -> NoisedSums:
    """Squares and products of training rows, with noise."""
    return space.first_sums


def sum_residuals(space: PrivateWorkspace, query: SumResiduals) -> ResidualSums:
    """What outcome models leave, with noise; a step each."""
    if not 0 <= query.number < space.setting.n_steps:
        raise RefusedError(RefusalCode.MALFORMED)
    asked = b"%d %d %s" % (query.number, query.n_terms, query.parameters.tobytes())
    return ResidualSums(residuals=space.residual_sums(query, asked))


def values_privately(space: PrivateWorkspace, query: ValuePrivately) -> NoisedValues:
    """What policies are worth on held-out rows, with noise."""
    return space.noised_values(query, b"values %s" % _asked_about(query))


def values_apart(space: PrivateWorkspace, query: ValueApart) -> ValuesApart:
    """The same, to be read of this client where sums of all are under masks."""
    return space.values_apart(query, b"values apart %s" % _asked_about(query))


def _asked_about(query: AsksForNoisedValues[Any]) -> bytes:
    """What noise on values follows from: models and policies."""
    asked_about = [getattr(query, field).tobytes() for field in POLICY_FIELDS]
    policies = b"".join(b"%d %s" % (len(one), one) for one in asked_about)
    return b"%s %s" % (query.models.tobytes(), policies)
