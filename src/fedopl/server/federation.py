"""A study, run: enrol, sum, learn, evaluate."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.errors import FederationError
from fedopl.mixture import renormalised
from fedopl.policies.linear import LinearPolicy, PairwisePolicy, constant_policy
from fedopl.server.aggregation import weighted_sum
from fedopl.server.conversation import Conversation, Progress
from fedopl.server.evaluation import GainTable, ValueTable, gain_table, value_table
from fedopl.server.journal import Journal
from fedopl.server.nuisances import OutcomeModels, solve_outcomes
from fedopl.server.oracles import direct, exact, sgd, wap
from fedopl.server.oracles.setting import Setting
from fedopl.server.record import Record
from fedopl.server.statistics import Statistics, fault_in
from fedopl.server.transport import Transport
from fedopl.study import Study
from fedopl.wire.vocabulary import (
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
    "wap": wap.learn,
    "direct": direct.learn,
}
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"


def run_study(
    study: Study,
    transport: Transport,
    *,
    policies: dict[str, LinearPolicy] | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
) -> Record:
    """Run the study over this transport; with a journal, a killed run goes on where it was.

    `policies` are the study's candidates that are policies; the others are rules in clients' code.
    """
    conversation = Conversation(study, transport, Journal(journal), progress)
    rows = _enrol(conversation)
    models = _outcome_models(conversation, rows)
    statistics = _score(conversation, rows, models)
    rows = {name: rows[name] for name in statistics.sums}
    weights = renormalised(study.mixture.weights(_all_rows(rows, study)), rows.keys())
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
    values, gains = candidates.evaluate(setting, conversation, chosen)
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
    )


def _enrol(conversation: Conversation) -> dict[str, int]:
    """Training rows by client; from here on nobody can change how much it counts."""
    clients = conversation.transport.clients
    answers = conversation.ask(Enrol, clients, Enrolment)
    for name, answer in list(answers.items()):
        if answer.n_rows < 1:
            conversation.reject(name, "enrolled without a row")
            del answers[name]
    return {name: a.n_rows for name, a in conversation.require_quorum(answers).items()}


def _all_rows(rows: dict[str, int], study: Study) -> dict[str, int]:
    """The mixture is agreed over all clients it names, also over those who then stayed away."""
    named = getattr(study.mixture, "shares", {})
    return {**dict.fromkeys(named, 0), **rows}


def _outcome_models(conversation: Conversation, rows: dict[str, int]) -> OutcomeModels:
    """Federated outcome models, or none where the study wants each client's own."""
    study = conversation.study
    if study.nuisances.kind == "local":
        return OutcomeModels.none(study)
    answers = conversation.ask(SumOutcomes, rows, OutcomeSums)
    if not answers:
        raise FederationError(
            "no client could give outcome sums; with such small clients use nuisances='local', "
            "fewer features or fewer folds"
        )
    return solve_outcomes(study, answers)


def _score(conversation: Conversation, rows: dict[str, int], models: OutcomeModels) -> Statistics:
    """Have every client score its rows and sum up; who cannot, is out."""
    answers = conversation.ask(
        SumScores,
        rows,
        ScoreSums,
        models=models.parameters,
        supported=models.supported.astype(np.float64),
    )
    for name, answer in list(answers.items()):
        fault = fault_in(answer, conversation.study)
        if fault:
            conversation.reject(name, fault)
            del answers[name]
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

    def _names(self) -> list[str]:
        """In the order in which clients answer: linear, pairwise, rules."""
        linear = [n for n, p in self.policies.items() if not isinstance(p, PairwisePolicy)]
        pairwise = [n for n, p in self.policies.items() if isinstance(p, PairwisePolicy)]
        return [*linear, *pairwise, *self.rules]

    def _ask(self, setting: Setting, conversation: Conversation, split: Split) -> dict[str, Values]:
        fields: dict[str, FloatArray] = no_policies(self.study)
        for kind, is_pairwise in (("linear", False), ("pairwise", True)):
            stack = [
                policy.parameters
                for policy in self.policies.values()
                if isinstance(policy, PairwisePolicy) is is_pairwise
            ]
            fields[kind] = np.stack(stack) if stack else fields[kind]
        fields["rules"] = np.array([self.study.candidates.index(r) for r in self.rules], float)
        answers = conversation.ask(EstimateValues, setting.weights, Values, split=split, **fields)
        n_expected = len(self._names()) + 2
        for name, answer in list(answers.items()):
            if len(answer.means) != n_expected or answer.n_rows < 1:
                conversation.reject(name, f"valued {len(answer.means)} policies of {n_expected}")
                del answers[name]
        return answers
