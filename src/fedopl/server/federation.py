"""A study, run: enrol, sum, learn, evaluate."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.errors import FederationError, OptionError
from fedopl.mixture import renormalised
from fedopl.policies.linear import LinearPolicy, PairwisePolicy, constant_policy
from fedopl.server.aggregation import agreed_weights, weighted_sum
from fedopl.server.conversation import Conversation, Progress
from fedopl.server.description import Descriptions, describe
from fedopl.server.evaluation import GainTable, ValueTable, gain_table, value_table
from fedopl.server.faults import (
    fault_in_outcome_sums,
    fault_in_score_sums,
    fault_in_values,
)
from fedopl.server.journal import Journal
from fedopl.server.nuisances import OutcomeModels, solve_outcomes
from fedopl.server.oracles import direct, exact, sgd, wap
from fedopl.server.oracles.setting import Setting
from fedopl.server.record import Record
from fedopl.server.statistics import Statistics
from fedopl.server.transport import Transport
from fedopl.study import Study
from fedopl.wire.vocabulary import (
    N_OWN_CANDIDATES,
    Enrol,
    Enrolment,
    EstimateValues,
    OutcomeSums,
    ScoreSums,
    Split,
    SumOutcomes,
    SumScores,
    Values,
    no_policies,
)

ORACLES: dict[str, Callable[[Setting, Conversation], LinearPolicy]] = {
    "csoaa-exact": exact.learn,
    "csoaa-sgd": sgd.learn,
    "csoaa-vw": sgd.learn,  # the same rounds; only the clients' steps differ
    "wap": wap.learn,
    "direct": direct.learn,
}
# The kinds of policy that a value query has a field for, of the same name.
CARRIED_KINDS = (LinearPolicy.kind, PairwisePolicy.kind)
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"


def run_study(
    study: Study,
    transport: Transport,
    *,
    policies: dict[str, LinearPolicy] | None = None,
    journal: Path | None = None,
    fingerprint: str = "",
    progress: Progress | None = None,
) -> Record:
    """Run the study over this transport; with a journal, a killed run goes on where it was.

    `policies` are the study's candidates that are policies; the others are rules in clients' code.
    `fingerprint` stands for everybody's rows, where the caller has them: a journal is not replayed
    for other rows.
    """
    conversation = Conversation(study, transport, Journal(journal, fingerprint), progress)
    rows = _enrol(conversation)
    models = _outcome_models(conversation, rows)
    statistics = _score(conversation, rows, models)
    rows = {name: rows[name] for name in statistics.sums}
    weights = agreed_weights(study.mixture, rows)
    setting = Setting(study=study, weights=weights, statistics=statistics)
    arms = statistics.arm_values(weights)
    if np.isnan(arms).all():
        raise FederationError("no client has a score for any action")
    best_arm = study.actions[int(np.nanargmax(arms))]
    candidates = _Candidates(study, policies or {})
    if study.policy == "finite":
        chosen, policy = candidates.best(setting, conversation)
    else:
        chosen, policy = LEARNED, ORACLES[study.oracle](setting, conversation)
        candidates.add(LEARNED, policy)
        candidates.add(f"everybody gets {best_arm}", _arm(study, best_arm))
    if policy and study.table:
        policy = replace(policy, encoding=study.table.encoding)
    values, gains = candidates.evaluate(setting, conversation, chosen)
    described = candidates.describe(setting, conversation, chosen) if study.describe else None
    return Record(
        study=study,
        policy=policy,
        chosen=chosen,
        best_arm=best_arm,
        mixture=weights,
        rows=rows,
        values=values,
        gains=gains,
        rounds=tuple(conversation.rounds),
        statistics=statistics,
        described=described,
    )


def _enrol(conversation: Conversation) -> dict[str, int]:
    """Training rows by client; from here on nobody can change how much it counts."""
    clients = conversation.transport.clients
    answers = conversation.ask(Enrol, clients, Enrolment)
    answers = conversation.drop(
        answers, lambda answer: None if answer.n_rows > 0 else "enrolled without a row"
    )
    return {name: a.n_rows for name, a in conversation.require_quorum(answers).items()}


def _outcome_models(conversation: Conversation, rows: dict[str, int]) -> OutcomeModels:
    """Federated outcome models, or none where the study wants each client's own."""
    study = conversation.study
    if study.nuisances.kind == "local":
        return OutcomeModels.none(study)
    answers = conversation.drop(
        conversation.ask(SumOutcomes, rows, OutcomeSums), fault_in_outcome_sums
    )
    # One client is enough: whoever cannot add to the models may still use them.
    return solve_outcomes(study, conversation.require_quorum(answers, share=0))


def _score(conversation: Conversation, rows: dict[str, int], models: OutcomeModels) -> Statistics:
    """Have every client score its rows and sum up; who cannot, is out."""
    answers = conversation.ask(
        SumScores,
        rows,
        ScoreSums,
        models=models.parameters,
        supported=models.supported.astype(np.float64),
    )
    answers = conversation.drop(
        answers, lambda answer: fault_in_score_sums(answer, conversation.study)
    )
    return Statistics(study=conversation.study, sums=conversation.require_quorum(answers))


def _arm(study: Study, action: str) -> LinearPolicy:
    return constant_policy(action, study.actions, study.features)


class _Candidates:
    """Policies to be compared: those with parameters, and rules that only clients can apply."""

    def __init__(self, study: Study, policies: dict[str, LinearPolicy]) -> None:
        self.study = study
        self.policies: dict[str, LinearPolicy] = {}
        self.rules: list[str] = []
        if study.policy != "finite":
            return
        for action in study.actions:
            self.add(f"everybody gets {action}", _arm(study, action))
        for name in study.candidates:
            if name in policies:
                self.add(name, policies[name])
            else:
                self.rules.append(name)

    def add(self, name: str, policy: LinearPolicy) -> None:
        self.policies[name] = policy

    def best(self, setting: Setting, conversation: Conversation) -> tuple[str, LinearPolicy | None]:
        """The candidate of the largest value on training rows."""
        answers = conversation.require_quorum(self._ask(setting, conversation, Split.TRAINING))
        weights = renormalised(setting.weights, answers.keys())
        means = weighted_sum(weights, {name: a.means for name, a in answers.items()})
        names = self._names()
        chosen = names[int(np.argmax(means[: len(names)]))]
        return chosen, self.policies.get(chosen)

    def evaluate(
        self, setting: Setting, conversation: Conversation, chosen: str
    ) -> tuple[ValueTable, GainTable]:
        """Values on rows that nothing was learned from; none are claimed where there are none."""
        if not self.study.evaluation_share:
            return ValueTable(()), GainTable(())
        answers = self._ask(setting, conversation, Split.EVALUATION)
        if not answers:
            return ValueTable(()), GainTable(())
        names = [*self._names(), LOGGING, LOCAL]
        # Several candidates at once: intervals that hold for all of them together (Bonferroni).
        level = 1 - 0.05 / len(names) if self.study.policy == "finite" else 0.95
        values = value_table(answers, setting.weights, names, level)
        return values, gain_table(answers, setting.weights, names, chosen)

    def _by_kind(self) -> dict[str, dict[str, LinearPolicy]]:
        """The policies, apart for each field of the query that carries them."""
        by_kind: dict[str, dict[str, LinearPolicy]] = {kind: {} for kind in CARRIED_KINDS}
        for name, policy in self.policies.items():
            if policy.kind not in by_kind:
                raise OptionError(f"candidates: no message carries policies of kind {policy.kind}")
            by_kind[policy.kind][name] = policy
        return by_kind

    def _names(self) -> list[str]:
        """In the order in which clients answer: linear, pairwise, rules."""
        return [name for part in self._by_kind().values() for name in part] + self.rules

    def describe(
        self, setting: Setting, conversation: Conversation, chosen: str
    ) -> Descriptions | None:
        """How the decisions of what was chosen split."""
        return describe(setting, conversation, self._fields([chosen]))

    def _fields(self, names: list[str]) -> dict[str, FloatArray]:
        """The fields that carry these candidates."""
        fields = no_policies(self.study)
        for kind, policies in self._by_kind().items():
            carried = [policy.parameters for name, policy in policies.items() if name in names]
            if carried:
                fields[kind] = np.stack(carried)
        rules = [self.study.candidates.index(rule) for rule in self.rules if rule in names]
        return {**fields, "rules": np.array(rules, np.float64)}

    def _ask(self, setting: Setting, conversation: Conversation, split: Split) -> dict[str, Values]:
        fields = self._fields(self._names())
        answers = conversation.ask(EstimateValues, setting.weights, Values, split=split, **fields)
        n_expected = len(self._names()) + N_OWN_CANDIDATES
        return conversation.drop(answers, lambda answer: fault_in_values(answer, n_expected))
