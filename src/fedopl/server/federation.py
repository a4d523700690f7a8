"""A study, run: enrol, sum, learn, evaluate."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedopl.errors import FederationError, OptionError
from fedopl.policies.kinds import Policy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.server.aggregation import agreed_weights
from fedopl.server.candidates import LEARNED, Candidates
from fedopl.server.conversation import Answers, Conversation, Progress, Question
from fedopl.server.faults import fault_in_outcome_sums, fault_in_score_sums
from fedopl.server.grid import MOST_COUNTS
from fedopl.server.journal import Journal
from fedopl.server.nuisances import OutcomeModels, solve_outcomes
from fedopl.server.oracles import direct, exact, sgd, tree, wap
from fedopl.server.oracles.setting import Setting
from fedopl.server.record import Record
from fedopl.server.statistics import Statistics
from fedopl.server.transport import Transport
from fedopl.study import Study
from fedopl.trees.growing import n_levels
from fedopl.trees.rules import agreed_grid
from fedopl.wire.vocabulary import (
    CellSums,
    Enrol,
    Enrolment,
    OutcomeSums,
    ScoreSums,
    SumOutcomes,
    SumScores,
)

ORACLES: dict[str, Callable[[Setting, Conversation], LinearPolicy]] = {
    "csoaa-exact": exact.learn,
    "csoaa-sgd": sgd.learn,
    "csoaa-vw": sgd.learn,  # the same rounds; only the clients' steps differ
    "wap": wap.learn,
    "direct": direct.learn,
}


def run_study(
    study: Study,
    transport: Transport,
    *,
    policies: Mapping[str, Policy] | None = None,
    alone: Callable[[], Policy] | None = None,
    journal: Path | None = None,
    fingerprint: str = "",
    progress: Progress | None = None,
) -> Record:
    """Run the study over this transport; with a journal, a killed run goes on where it was.

    `policies` are the study's candidates that are policies; the others are rules in clients' code.
    `alone` gives what the only party learned by itself, where the caller is that party.
    `fingerprint` stands for everybody's rows, where the caller has them: a journal is not replayed
    for other rows.
    """
    alone = _only_if_observed(study, transport, alone)
    conversation = Conversation(study, transport, Journal(journal, fingerprint), progress)
    setting = _prepare(conversation)
    candidates = Candidates(study, policies or {})
    if study.policy == "finite":
        chosen, policy = candidates.best(setting, conversation)
        return _finish(setting, conversation, candidates, chosen, policy, describe=study.describe)
    learned, found = _learned(setting, conversation, alone)
    candidates.add(LEARNED, learned)
    candidates.add_arm(setting.best_arm)
    record = _finish(setting, conversation, candidates, LEARNED, learned, describe=study.describe)
    return replace(record, tree=found)


def _only_if_observed(
    study: Study, transport: Transport, alone: Callable[[], Policy] | None
) -> Callable[[], Policy] | None:
    """How the party learns alone, where the study says so, and one party it is."""
    if study.policy != "tree" or study.tree.thresholds == "grid":
        return None
    if alone is None or len(transport.clients) != 1:
        raise OptionError(
            "thresholds: observed ones are somebody's values, so they are for one party in its own "
            f"process; here are {len(transport.clients)} clients. Use the grid"
        )
    return alone


def _learned(
    setting: Setting, conversation: Conversation, alone: Callable[[], Policy] | None
) -> tuple[Policy, tree.TreeStatistics | None]:
    """The policy, and for a tree what it was found from."""
    study = setting.study
    if study.policy != "tree":
        return ORACLES[study.oracle](setting, conversation), None
    return tree.learn(setting, conversation) if alone is None else (alone(), None)


def expected_exchanges(study: Study) -> int:
    """How many exchanges a run takes at most; for a view of what is left."""
    extra = {
        "csoaa-sgd": study.plan.rounds,
        "csoaa-vw": study.plan.rounds,
        "wap": 1,
        "direct": direct.MOST_EXCHANGES,
    }
    oracle = {"finite": 1, "tree": _tree_exchanges(study)}.get(
        study.policy, extra.get(study.oracle, 0)
    )
    return exchanges_to_evaluate(study) + oracle + study.describe + study.values_leaves


def _tree_exchanges(study: Study) -> int:
    """Counts to agree on thresholds, and cells for each level."""
    if study.tree.thresholds == "observed":
        return 0
    return n_levels(study.tree.depth) + (MOST_COUNTS if study.cut_columns else 0)


def expected_trips(study: Study) -> int:
    """How many trips a run takes at most: enrolment rides with sums, descriptions with values.

    So do the cells of a tree with scores, where its grid is agreed beforehand.
    """
    together = (study.nuisances.kind == "federated") + (
        study.describe and study.evaluation_share > 0
    )
    return expected_exchanges(study) - together - study.values_leaves - cells_come_along(study)


def exchanges_to_evaluate(study: Study) -> int:
    """How many exchanges it takes to value policies that are there already."""
    scoring = 2 + (study.nuisances.kind == "federated")
    return scoring + (study.evaluation_share > 0)


def evaluate_policies(
    study: Study,
    transport: Transport,
    policies: Mapping[str, Policy],
    *,
    candidates: Mapping[str, Policy] | None = None,
    progress: Progress | None = None,
) -> Record:
    """Value policies that are there already, as the study would; gains are those of the first.

    `candidates` are the study's own that are policies. Nobody is asked how decisions split: that
    has a budget of its own, and is for what was learned.
    """
    if not policies or not study.evaluation_share:
        raise OptionError("policies: expected at least one, and rows held out to value it on")
    for name, policy in policies.items():
        if (policy.action_names, policy.feature_names) != (study.actions, study.features):
            raise OptionError(f"policy '{name}': its actions or features are not the study's")
        if isinstance(policy, TreePolicy) and policy.encoding != study.encoding:
            raise OptionError(f"policy '{name}': its columns or levels are not the study's")
    conversation = Conversation(study, transport, Journal(), progress)
    setting = _prepare(conversation)
    compared = Candidates(study, candidates or {})
    for name, policy in policies.items():
        compared.add(name, policy)
    if study.policy != "finite":
        compared.add_arm(setting.best_arm)
    chosen = next(iter(policies))
    return _finish(setting, conversation, compared, chosen, policies[chosen], describe=False)


def _prepare(conversation: Conversation) -> Setting:
    """Enrol everybody and have rows scored and summed."""
    study = conversation.study
    rows, models = _enrol(conversation)
    statistics, cells = _score(conversation, rows, models)
    weights = agreed_weights(study.mixture, {name: rows[name] for name in statistics.sums})
    if np.isnan(statistics.arm_values(weights)).all():
        raise FederationError("no client has a score for any action")
    return Setting(study=study, rows=rows, weights=weights, statistics=statistics, cells=cells)


def _finish(
    setting: Setting,
    conversation: Conversation,
    candidates: Candidates,
    chosen: str,
    policy: Policy | None,
    *,
    describe: bool,
) -> Record:
    """Evaluate, describe, and write down what there is."""
    study = setting.study
    if policy and study.table:
        policy = replace(policy, encoding=study.encoding)
    evaluated = candidates.evaluate(setting, conversation, chosen, describe=describe)
    return Record(
        study=study,
        policy=policy,
        chosen=chosen,
        best_arm=setting.best_arm,
        mixture=setting.weights,
        rows={name: setting.rows[name] for name in setting.weights},
        values=evaluated.values,
        gains=evaluated.gains,
        rounds=tuple(conversation.rounds),
        statistics=setting.statistics,
        described=evaluated.described,
        leaves=evaluated.leaves,
    )


def _enrol(conversation: Conversation) -> tuple[dict[str, int], OutcomeModels]:
    """Training rows by client, which nobody can change from here on, and shared outcome models.

    Both are asked for on one trip: whoever does not enrol has its sums left out.
    """
    study = conversation.study
    questions = [Question(Enrol, Enrolment, {})]
    if study.nuisances.kind == "federated":
        questions.append(Question(SumOutcomes, OutcomeSums, {}))
    enrolled, *sums = conversation.ask_together(conversation.transport.clients, *questions)
    enrolled = conversation.drop(
        enrolled, lambda answer: None if answer.n_rows > 0 else "enrolled without a row"
    )
    rows = {name: a.n_rows for name, a in conversation.require_quorum(enrolled).items()}
    if not sums:
        return rows, OutcomeModels.none(study)
    usable = conversation.drop_by_name(
        sums[0],
        lambda name, answer: fault_in_outcome_sums(answer) if name in rows else "did not enrol",
    )
    # One client is enough: whoever cannot add to the models may still use them.
    return rows, solve_outcomes(study, conversation.require_quorum(usable, share=0))


def _score(
    conversation: Conversation, rows: dict[str, int], models: OutcomeModels
) -> tuple[Statistics, Answers[CellSums] | None]:
    """Have every client score its rows and sum up; who cannot, is out.

    Where all thresholds of a tree were agreed beforehand, sums over its grid come along.
    """
    study = conversation.study
    supported = models.supported.astype(np.float64)
    fields = {"models": models.parameters, "supported": supported}
    questions = [Question(SumScores, ScoreSums, fields)]
    if cells_come_along(study):
        questions.append(tree.asking_for_cells(agreed_grid(study.tree, study.columns, {})))
    answers, *cells = conversation.ask_together(rows, *questions)
    answers = conversation.drop(answers, lambda answer: fault_in_score_sums(answer, study))
    statistics = Statistics(study=study, sums=conversation.require_quorum(answers))
    return statistics, cells[0] if cells else None


def cells_come_along(study: Study) -> bool:
    """Whether a tree's grid is known before anybody is asked."""
    return study.policy == "tree" and study.tree.thresholds == "grid" and not study.cut_columns
