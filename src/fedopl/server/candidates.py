"""Policies to be compared: asked about all at once, on the same rows."""

from collections.abc import Mapping

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.errors import OptionError
from fedopl.mixture import renormalised
from fedopl.policies.linear import LinearPolicy, PairwisePolicy, constant_policy
from fedopl.server.aggregation import weighted_sum
from fedopl.server.conversation import Answers, Conversation, Question
from fedopl.server.description import Descriptions, described, describing
from fedopl.server.evaluation import GainTable, ValueTable, gain_table, value_table
from fedopl.server.faults import fault_in_values
from fedopl.server.oracles.setting import Setting
from fedopl.study import Study
from fedopl.wire.vocabulary import (
    N_OWN_CANDIDATES,
    EstimateValues,
    Split,
    Values,
    most_candidates,
    no_policies,
)

# The kinds of policy that a value query has a field for, of the same name.
CARRIED_KINDS = (LinearPolicy.kind, PairwisePolicy.kind)
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"


def arm_name(action: str) -> str:
    """What a constant arm is called in the tables."""
    return f"everybody gets {action}"


class Candidates:
    """Policies to be compared: those with parameters, and rules that only clients can apply."""

    def __init__(self, study: Study, policies: Mapping[str, LinearPolicy]) -> None:
        self.study = study
        self.policies: dict[str, LinearPolicy] = {}
        self.rules: list[str] = []
        if study.policy != "finite":
            return
        for action in study.actions:
            self.add_arm(action)
        for name in study.candidates:
            if name in policies:
                self.add(name, policies[name])
            else:
                self.rules.append(name)

    def add(self, name: str, policy: LinearPolicy) -> None:
        """Compare with this policy."""
        self.policies[name] = policy

    def add_arm(self, action: str) -> None:
        """Compare with everybody getting this action."""
        arm = constant_policy(action, self.study.actions, self.study.features)
        self.add(arm_name(action), arm)

    def best(self, setting: Setting, conversation: Conversation) -> tuple[str, LinearPolicy | None]:
        """The candidate of the largest value on training rows."""
        (told,) = conversation.ask_together(setting.weights, self._question(Split.TRAINING))
        answers = conversation.require_quorum(self._checked(conversation, told))
        weights = renormalised(setting.weights, answers.keys())
        means = weighted_sum(weights, {name: a.means for name, a in answers.items()})
        names = self._names()
        chosen = names[int(np.argmax(means[: len(names)]))]
        return chosen, self.policies.get(chosen)

    def evaluate(
        self, setting: Setting, conversation: Conversation, chosen: str, *, describe: bool
    ) -> tuple[ValueTable, GainTable, Descriptions | None]:
        """Values on rows that nothing was learned from, and how decisions split, on one trip.

        No values are claimed where no rows were held out.
        """
        questions = {}
        if self.study.evaluation_share:
            questions["values"] = self._question(Split.EVALUATION)
        if describe:
            questions["described"] = describing(setting, self._fields([chosen]))
        if not questions:
            return ValueTable(()), GainTable(()), None
        found = conversation.ask_together(setting.weights, *questions.values())
        told = dict(zip(questions, found, strict=True))
        values, gains = self._tables(setting, conversation, told.get("values"), chosen)
        return values, gains, described(setting, conversation, told.get("described"))

    def _tables(
        self,
        setting: Setting,
        conversation: Conversation,
        answers: Answers[Values] | None,
        chosen: str,
    ) -> tuple[ValueTable, GainTable]:
        answers = None if answers is None else self._checked(conversation, answers)
        if not answers:
            return ValueTable(()), GainTable(())
        names = [*self._names(), LOGGING, LOCAL]
        # Several candidates at once: intervals that hold for all of them together (Bonferroni).
        level = 1 - 0.05 / len(names) if self.study.policy == "finite" else 0.95
        values = value_table(answers, setting.weights, names, level)
        conversation.measure(answers.exchange, value=values.of(chosen).value)
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

    def _fields(self, names: list[str]) -> dict[str, FloatArray]:
        """The fields that carry these candidates."""
        fields = no_policies(self.study)
        for kind, policies in self._by_kind().items():
            carried = [policy.parameters for name, policy in policies.items() if name in names]
            if carried:
                fields[kind] = np.stack(carried)
        rules = [self.study.candidates.index(rule) for rule in self.rules if rule in names]
        return {**fields, "rules": np.array(rules, np.float64)}

    def _question(self, split: Split) -> Question:
        names, most = self._names(), most_candidates(self.study)
        if len(names) > most:
            raise OptionError(f"policies: one query carries {most} of them, came {len(names)}")
        return Question(EstimateValues, Values, {"split": split, **self._fields(names)})

    def _checked(self, conversation: Conversation, answers: Answers[Values]) -> Answers[Values]:
        n_expected = len(self._names()) + N_OWN_CANDIDATES
        return conversation.drop(answers, lambda answer: fault_in_values(answer, n_expected))
