"""Screening: finds terms that are worth adding, from clients' first reports."""

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.term_screening import (
    JumpStatistics,
    ProductStatistics,
    ScreenJumps,
    ScreenProducts,
    feature_pairs,
)
from fedopl.policies.basis import Basis, NamedPair
from fedopl.policies.policy import Policy
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.found_thresholds import FALSE_ALARM, strongest_thresholds
from fedopl.study.screened_study import FoundTerms, after_screening
from fedopl.study.study import Study


def screen_if_wanted(conversation: Conversation) -> None:
    """Ask which terms predict outcomes, and continue with a study that has these terms.

    No client has to answer. Without answers, no terms are found.
    """
    study, basis = conversation.study, conversation.study.basis
    if study.is_screened or basis is None:
        return
    asked = _asked(conversation)
    each = [_found(study, basis, *asked, screening) for screening in range(len(study.left_out))]
    conversation.go_on_as(after_screening(study, FoundTerms.together(each)))


def _found(
    study: Study,
    basis: Basis,
    rows: Mapping[str, FloatArray],
    products: Mapping[str, ProductStatistics],
    jumps: Mapping[str, JumpStatistics],
    screening: int,
) -> FoundTerms:
    """What one screening found: without a fold, or with all rows."""
    pairs: tuple[NamedPair, ...] = ()
    if products:
        by_client = np.stack([rows[name] for name in sorted(products)])
        statistics = np.stack([products[name].statistics[screening] for name in sorted(products)])
        pairs = strongest_pairs(study, basis, joint_statistics(statistics, by_client))
    told = {name: own.strongest[screening] for name, own in jumps.items()}
    thresholds = strongest_thresholds(study, basis, told, rows)
    return FoundTerms(
        pairs=pairs if basis.screened_pairs else None,
        thresholds=thresholds if basis.screened_thresholds else None,
    )


def go_on_for(conversation: Conversation, policies: Mapping[str, Policy]) -> None:
    """Continue with the study in which these policies were learned.

    Clients first get the same questions as in learning. Only then are later questions the same,
    byte by byte. Answers to repeated questions cost nothing the second time.
    """
    study, basis = conversation.study, conversation.study.basis
    if study.is_screened or basis is None:
        return
    _asked(conversation)
    bases = [policy.terms.basis for policy in policies.values() if policy.terms is not None]
    same = [one for one in bases if one.before_screening() == basis]
    found = [FoundTerms(one.found_pairs, one.found_thresholds) for one in same]
    nothing = FoundTerms(
        () if basis.screened_pairs else None, () if basis.screened_thresholds else None
    )
    conversation.go_on_as(
        after_screening(study, next((one for one in found if one.n_found), nothing))
    )


def _asked(
    conversation: Conversation,
) -> tuple[dict[str, FloatArray], dict[str, ProductStatistics], dict[str, JumpStatistics]]:
    """By enrolled client, its rows of each action, and its answers if it was asked."""
    wanted = [one() for one in (ScreenProducts, ScreenJumps) if one.needed(conversation.study)]
    enrolled, *told = conversation.together(conversation.transport.clients, Enrol(), *wanted)
    answers = [(n, a) for own in told for n, a in own.items() if n in enrolled]
    return (
        {name: own.rows_per_action for name, own in enrolled.items()},
        {name: answer for name, answer in answers if isinstance(answer, ProductStatistics)},
        {name: answer for name, answer in answers if isinstance(answer, JumpStatistics)},
    )


def joint_statistics(statistics: FloatArray, rows: FloatArray) -> FloatArray:
    """All clients' statistics (n_clients, n_actions, n_pairs) combined: Σ √n_c·t_c / √Σ n_c."""
    weights = np.sqrt(rows)[..., None]
    total = np.sqrt(np.maximum(rows.sum(axis=0), 1.0))[:, None]
    joint: FloatArray = (weights * statistics).sum(axis=0) / total
    return joint


def strongest_pairs(study: Study, basis: Basis, joint: FloatArray) -> tuple[NamedPair, ...]:
    """The pairs whose product is too strong for some action to be chance, strongest first."""
    strength = np.abs(joint).max(axis=0)
    least = NormalDist().inv_cdf(1 - FALSE_ALARM / 2 / joint.size)
    named = set(map(frozenset, basis.multiplied))
    pairs = feature_pairs(study)
    order = np.argsort(-strength, kind="stable").tolist()
    taken = [pairs[k] for k in order if strength[k] >= least and frozenset(pairs[k]) not in named]
    return tuple(taken[: basis.screened_pairs])
