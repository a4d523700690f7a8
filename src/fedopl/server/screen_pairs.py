"""Screening: which products of two features are worth having as terms, from one number for each."""

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.product_screening import ScreenProducts, feature_pairs
from fedopl.policies.basis import Basis, NamedPair
from fedopl.policies.policy import Policy
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.found_pairs import after_screening
from fedopl.study.study import Study

# How likely any product is taken where none says anything.
FALSE_ALARM = 0.05


def screen_if_wanted(conversation: Conversation) -> None:
    """Ask which products outcomes speak for, and go on with the study that has them.

    Nobody has to answer: without anything to go by, no pair is found.
    """
    study = conversation.study
    if study.is_screened or study.basis is None:
        return
    clients = conversation.transport.clients
    enrolled, told = conversation.together(clients, Enrol(), ScreenProducts())
    both = sorted(set(enrolled) & set(told))
    found: tuple[NamedPair, ...] = ()
    if both:
        rows = np.stack([enrolled[name].rows_per_action for name in both])
        statistics = np.stack([told[name].statistics for name in both])
        found = strongest_pairs(study, study.basis, joint_statistics(statistics, rows))
    conversation.go_on_as(after_screening(study, found))


def go_on_for(conversation: Conversation, policies: Mapping[str, Policy]) -> None:
    """Go on with the study that these policies were learned in.

    Clients are asked first what learning asked them: only so are later questions the same to the
    byte, whose answers cost nothing the second time.
    """
    study = conversation.study
    if study.is_screened or study.basis is None:
        return
    conversation.together(conversation.transport.clients, Enrol(), ScreenProducts())
    bases = [policy.terms.basis for policy in policies.values() if policy.terms is not None]
    found = [one.found_pairs for one in bases if one.with_found(None) == study.basis]
    conversation.go_on_as(after_screening(study, next(filter(None, found), ())))


def joint_statistics(statistics: FloatArray, rows: FloatArray) -> FloatArray:
    """Everybody's statistics (n_clients, n_actions, n_pairs) as one: Σ √n_c·t_c / √Σ n_c."""
    weights = np.sqrt(rows)[..., None]
    total = np.sqrt(np.maximum(rows.sum(axis=0), 1.0))[:, None]
    joint: FloatArray = (weights * statistics).sum(axis=0) / total
    return joint


def strongest_pairs(study: Study, basis: Basis, joint: FloatArray) -> tuple[NamedPair, ...]:
    """The pairs whose product would hardly be so strong by chance for any action, in that order."""
    strength = np.abs(joint).max(axis=0)
    least = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / joint.size)
    named = set(map(frozenset, basis.multiplied))
    pairs = feature_pairs(study)
    order = np.argsort(-strength, kind="stable").tolist()
    taken = [pairs[k] for k in order if strength[k] >= least and frozenset(pairs[k]) not in named]
    return tuple(taken[: basis.screened_pairs])
