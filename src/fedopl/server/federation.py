"""Runs a study: enrol clients, collect sums, learn, evaluate."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.base.labels import GLOBAL, quoted
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.score_sums import ScoreSumsByFold
from fedopl.policies.kinds import misfit
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.record import Record, as_used
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.robust_weights import weighed
from fedopl.results.value_tables import (
    BEST_ARM,
    BEST_CANDIDATE,
    LOCAL,
    LOGGING,
    PERSONAL,
)
from fedopl.server.aggregate.evaluation import OnRows
from fedopl.server.aggregate.setting import Setting
from fedopl.server.diagnosis.diagnose import diagnose
from fedopl.server.enrol_and_score import Enrolled, enrol_clients, score
from fedopl.server.exchange.answers import Answers, Transport
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.learn_policy import Learned, Task, learn_policy
from fedopl.server.personal_queries import learned_by_others
from fedopl.server.policy_comparison import Candidates
from fedopl.server.private_choices import choose_privately, learn_tree_privately
from fedopl.server.private_learning import LearnedPrivately, learn_privately
from fedopl.server.private_values import value_privately
from fedopl.server.rest_on import asked_beside, what_rests_on_whom, without_each
from fedopl.server.screening import go_on_for, screen_if_wanted
from fedopl.server.target.value_there import value_at_target
from fedopl.study.joining_later import why_fixed
from fedopl.study.study import Study


def run_study(
    conversation: Conversation,
    *,
    policies: Mapping[str, Policy] | None = None,
    alone: Callable[[], Policy] | None = None,
) -> Record:
    """Run the study of a new conversation, and return its record.

    `policies` are the study's candidates that are policies. The other candidates are rules in
    clients' code. If the caller is the only party, `alone` learns the policy in its own process.
    """
    if conversation.study.privacy:
        return _run_privately(conversation, policies or {})
    if conversation.study.joining.diagnose and not conversation.study.evaluation.claims_values:
        raise OptionError("diagnose: joining is judged on held-out rows; hold some out")
    screen_if_wanted(conversation)
    study = conversation.study
    alone = _only_if_observed(study, conversation.transport, alone)
    setting = _prepare(conversation)
    candidates = Candidates(study, policies or {})
    learned = learn_policy(
        Task(setting=setting, conversation=conversation, candidates=candidates, alone=alone)
    )
    candidates.others = learned_by_others(learned)
    record, answers = _finish(conversation, candidates, learned, describe=study.evaluation.describe)
    if study.joining.diagnose and answers:
        found = diagnose(conversation, learned.setting, learned.to_value, answers, candidates)
        record = replace(record, diagnosis=found, rounds=tuple(conversation.rounds))
    if study.target:
        valued = candidates.without_rules(record.chosen, record.policy)
        found_there = value_at_target(conversation, learned.setting, valued, record)
        record = replace(record, target=found_there, rounds=tuple(conversation.rounds))
    return record


# By the kind of policy that a study with differential privacy wants.
LEARNING_PRIVATELY: dict[str, Callable[[Conversation], LearnedPrivately]] = {
    "linear": learn_privately,
    "tree": learn_tree_privately,
}


def _run_privately(conversation: Conversation, policies: Mapping[str, Policy]) -> Record:
    """The record of a run with noisy sums: the policy, and its value beside the best arm's."""
    plan = conversation.study.policy
    if plan.compares_candidates:
        learned = choose_privately(conversation, policies)
    else:
        learned = LEARNING_PRIVATELY[plan.kind](conversation)
    study = conversation.study
    setting, policy, chosen = learned.setting, learned.policy, next(iter(learned.valued))
    if study.table or study.permissions:
        # Add the study's encoding and permissions to the policy.
        policy = type(policy).from_numbers(policy.numbers_for(study), study)
    candidates = Candidates(study, {})
    candidates.policies, candidates.rules = dict(learned.valued), []
    answers = value_privately(learned.totals, learned.valued, learned.models)
    tables: dict[str, Any] = {}
    if answers:
        names = [*candidates.names(), *([LOGGING] if GLOBAL in answers else candidates.own)]
        tables = candidates.tables(setting, chosen, OnRows(answers=answers, names=names))
        conversation.measure(answers.exchange, value=tables["values"].of(chosen).value)
    return Record(
        study=study,
        policy=policy,
        chosen=chosen,
        best_arm=learned.best_arm,
        mixture=setting.weights,
        rows=setting.rows,
        **tables,
        rounds=tuple(conversation.rounds),
        statistics=setting.statistics,
        described=None,
    )


def _only_if_observed(
    study: Study, transport: Transport, alone: Callable[[], Policy] | None
) -> Callable[[], Policy] | None:
    """`alone` if the study has one party learn by itself, else None; refused with more parties."""
    if not study.policy.learned_by_one:
        return None
    n_clients = len(transport.clients)
    if alone is None or n_clients != 1:
        here = "this one is not" if n_clients == 1 else f"here are {n_clients:,} clients"
        raise OptionError(
            "thresholds: observed thresholds are values of rows, so they are only for one "
            f"client in its own process; {here}. Use the grid"
        )
    return alone


def evaluate_policies(
    conversation: Conversation,
    policies: Mapping[str, Policy],
    *,
    candidates: Mapping[str, Policy] | None = None,
) -> Record:
    """Value existing policies by the study's rules; gains are those of the first policy.

    `candidates` are those of the study's candidates that are policies. Clients are not asked how
    decisions split over groups: that question has its own budget, and is for learned policies.
    """
    policies = {
        name: one.on_terms_of_all_rows() if isinstance(one, LinearPolicy) else one
        for name, one in policies.items()
    }
    go_on_for(conversation, policies)
    study = conversation.study
    _check_can_value(study, policies)
    setting = _prepare(conversation)
    compared = Candidates(study, candidates or {})
    compared.policies.update(policies)
    if not study.policy.compares_candidates:
        compared.add_arm(setting.best_arm)  # only one arm, as clients value few policies in a study
        compared.add_references()
    chosen = next(iter(policies))
    given = Learned(setting=setting, chosen=chosen, policy=policies[chosen], statistics=None)
    record, _ = _finish(conversation, compared, given, describe=False)
    return record


def _check_can_value(study: Study, policies: Mapping[str, Policy]) -> None:
    if not policies:
        raise OptionError("policies: expected at least one")
    if study.privacy:
        raise OptionError(
            "privacy: the noise of this study is for one set of values, of the policy that its run "
            "learns. To value another policy, agree on a study without [privacy], or let the run's "
            "own report say what its policy is worth"
        )
    if not study.evaluation.claims_values:
        raise OptionError(
            "evaluation: this study holds no rows out, so there are none to value policies on. "
            "Under [evaluation], set share = 0.25, or for policies that were learned from other "
            'rows kind = "cross-fitted": then all rows value them'
        )
    if taken := sorted({BEST_ARM, BEST_CANDIDATE, LOGGING, LOCAL, PERSONAL} & policies.keys()):
        raise OptionError(
            f"policies: {quoted(taken)}: tables have such a row of their own; take another name"
        )
    for name, policy in policies.items():
        if (fault := misfit(policy, study)) is not None:
            raise OptionError(f"policy '{name}': {fault}")


def _prepare(conversation: Conversation) -> Setting:
    """Enrol all clients, and have them score their rows and sum up."""
    enrolled = enrol_clients(conversation)
    counted = enrolled.counted
    statistics, along = score(conversation, enrolled)
    by_fold = along.by_fold
    weights, statistics = weighed(statistics, counted, by_fold or {})
    return Setting(
        study=conversation.study,
        rows=counted.rows,
        row_weights=counted.weights,
        weights=weights,
        statistics=statistics,
        by_fold=by_fold,
        for_newcomers=_for_newcomers(enrolled, by_fold, conversation.study),
        cells=along.cells,
        contrasts=along.contrasts,
        clipped=enrolled.clipped,
    )


def _for_newcomers(
    enrolled: Enrolled, by_fold: Answers[ScoreSumsByFold] | None, study: Study
) -> ForNewcomers | None:
    """What is needed to add clients that join later; None if the study fixes its clients."""
    if why_fixed(study):
        return None
    names = tuple(sorted(enrolled.summed))
    return ForNewcomers(counted=names, total=enrolled.total, by_fold=dict(by_fold or {}))


def _with_cells(setting: Setting) -> ForNewcomers | None:
    """What newcomers need, with the sums that trees without each fold were found from."""
    kept, each = setting.for_newcomers, [tree.statistics.cells for tree in setting.trees_by_fold]
    if kept is None or not each:
        return kept
    return replace(kept, cells={name: np.stack([own[name] for own in each]) for name in each[0]})


def _finish(
    conversation: Conversation, candidates: Candidates, learned: Learned, *, describe: bool
) -> tuple[Record, Answers[Values] | None]:
    """Evaluate and describe the learned policy; the record, and the answers behind its values."""
    setting, study = learned.setting, learned.setting.study
    solved = without_each(learned) if study.evaluation.claims_values else {}
    candidates.add_by_fold(setting, learned.chosen, learned.price)
    candidates.beside = asked_beside(setting, solved, candidates.names())
    evaluated = candidates.evaluate(setting, conversation, learned.chosen, describe=describe)
    told, places, row_weights = evaluated.everything, candidates.places(), setting.row_weights
    outcomes, guardrails = evaluated.judged
    reliance = what_rests_on_whom(learned, solved, told or {}, places, conversation.checks.outcomes)
    record = Record(
        study=study,
        policy=learned.policy and as_used(learned.policy, study),
        chosen=learned.chosen,
        best_arm=setting.best_arm,
        mixture=setting.weights,
        rows={name: setting.rows[name] for name in setting.weights},
        row_weights=row_weights and {name: row_weights[name] for name in setting.weights},
        clipped={name: n for name, n in setting.clipped.items() if n},
        values=evaluated.values,
        gains=evaluated.gains,
        improvements=evaluated.improvements,
        rounds=tuple(conversation.rounds),
        statistics=setting.statistics,
        described=evaluated.described,
        fitted=evaluated.fitted,
        interactions=evaluated.interactions,
        tree=learned.tree,
        leaves=evaluated.leaves,
        search=learned.search,
        curve=learned.curve,
        reliance=reliance,
        outcomes=outcomes,
        guardrails=guardrails,
        # A policy that was only valued cannot be solved again from sums.
        for_newcomers=_with_cells(setting) if learned.statistics else None,
        personal=evaluated.personal,
    )
    return record, evaluated.answers
