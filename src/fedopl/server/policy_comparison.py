"""Compares policies: one query asks about all of them, on the same rows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.interactions_left import InteractionsLeft, TellInteractions
from fedopl.messages.evaluation.model_fit import ModelFit, TellFit
from fedopl.messages.evaluation.policy_fields import fields_about, most_in_query, valued_split
from fedopl.messages.evaluation.policy_values import (
    N_OWN_CANDIDATES,
    NO_FOLD,
    Value,
    Values,
    ValuesByPart,
)
from fedopl.messages.message import Query, RowSplit
from fedopl.policies.kinds import in_message_order, packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import ByFold, Policy, Version
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import as_array
from fedopl.results.descriptions import Descriptions
from fedopl.results.value_tables import (
    BEST_ARM,
    BEST_CANDIDATE,
    LOCAL,
    LOGGING,
    MOST_VALUED_ALONE,
    PERSONAL,
    GainTable,
    GuardrailTable,
    ImprovementTable,
    LeafTable,
    OutcomeTable,
    PersonalTable,
    PolicyTable,
    ValueTable,
    arm_name,
    valued_as,
)
from fedopl.server.aggregate.evaluation import OnRows, first_valuing, rows_of
from fedopl.server.aggregate.group_decisions import described, public_cuts
from fedopl.server.aggregate.judge_guardrails import NOTHING_JUDGED, judge_guardrails
from fedopl.server.aggregate.leaf_table import leaf_rows
from fedopl.server.aggregate.others_policies import Fields
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.learn_by_fold import arms_by_fold, learn_by_fold
from fedopl.study.guardrail import WHAT_WAS_DONE, guarded_columns
from fedopl.study.study import Study

# The most values that may be asked for per held-out row. Clients' default limit is higher, but some
# rows may lack a score.
_VALUES_PER_ROW = 0.4
# An arm is valued if this share of rows has a score for it. A row without one counts for no policy.
_LEAST_SCORED = 0.999
# What differs between clients or between folds, and so is no policy for everybody.
_NOT_GIVEN = (LOGGING, LOCAL, PERSONAL, BEST_ARM, BEST_CANDIDATE)
# What every client tells. Across folds, values are of those that were learned from fold by fold.
_TOLD_BY_ALL = ("described", "fitted", "interactions")
_OF_ALL = " of all rows"


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The results of the last round trip."""

    values: ValueTable = field(default_factory=ValueTable)
    gains: GainTable = field(default_factory=GainTable)
    improvements: ImprovementTable = field(default_factory=ImprovementTable)
    answers: Answers[Values] | None = None  # from which the tables are made
    everything: Answers[Values] | None = None  # also has policies that tables do not show
    described: Descriptions | None = None
    fitted: dict[str, ModelFit] = field(default_factory=dict)
    interactions: dict[str, InteractionsLeft] = field(default_factory=dict)
    leaves: LeafTable = field(default_factory=LeafTable)
    judged: tuple[OutcomeTable, GuardrailTable] = NOTHING_JUDGED
    personal: PersonalTable = field(default_factory=PersonalTable)


class Candidates:
    """Policies to be compared: those with parameters, and rules that only clients can apply."""

    def __init__(self, study: Study, policies: Mapping[str, Policy]) -> None:
        self.study = study
        self.policies: dict[str, Policy] = {}
        self.rules: list[str] = []
        self.beside: Mapping[str, Version | ByFold] = {}  # valued, but not shown in tables
        self.others: Mapping[str, Fields] | None = None  # by client, to make a personal policy from
        self.by_fold: dict[str, ByFold] = {}  # what is valued fold by fold
        if not study.policy.compares_candidates:
            return
        for action in study.actions:
            self.add_arm(action)
        for name in study.candidates:
            if name in policies:
                self.policies[name] = policies[name]
            else:
                self.rules.append(name)

    def add_arm(self, action: str) -> None:
        """Add the policy that gives everybody this action."""
        self.policies[arm_name(action)] = self._arm(action)

    def _arm(self, action: str) -> Policy:
        return constant_policy(action, self.study.actions, self.study.features)

    def add_arms(self, setting: Setting) -> None:
        """Add every arm that all clients have scores for, the most promising first.

        If a client holds out few rows, fewer arms are added, so that it will answer. These are the
        best on training rows; their values come from other rows.
        """
        if self.study.policy.compares_candidates:
            return
        self.add_arm(setting.best_arm)
        self.add_references()
        room = room_for_policies(setting, len(self.names()))
        values = setting.statistics.arm_values(setting.weights)
        for place in np.argsort(-values, kind="stable").tolist():
            action = self.study.actions[place]
            if room and arm_name(action) not in self.policies and _is_scored(setting, place):
                self.add_arm(action)
                room -= 1

    def add_by_fold(self, setting: Setting, chosen: str, price: float = 0.0) -> None:
        """Value what was learned or chosen without each fold, if values are by fold.

        A best arm or candidate of the other folds is valued only where folds differ in it. The
        policy was learned at a price of what it spends, if there is a budget.
        """
        if not (self.study.evaluation.is_cross_fitted and setting.by_fold):
            return
        of_all = {BEST_ARM: arm_name(setting.best_arm), BEST_CANDIDATE: chosen}
        found = {BEST_ARM: ByFold(map(arm_name, arms_by_fold(setting)))}
        if not self.study.evaluates:  # what is only valued is the same in all folds
            is_chosen = self.study.policy.compares_candidates
            found[BEST_CANDIDATE if is_chosen else chosen] = learn_by_fold(setting, price)
        for name, own in found.items():
            if any(one != of_all.get(name) for one in own):
                self.by_fold[name] = own

    def add_references(self) -> None:
        """Add the arms that guardrails compare with."""
        for guardrail in self.study.guardrails.values():
            if guardrail.reference != WHAT_WAS_DONE:
                self.add_arm(guardrail.reference)

    def ask(
        self,
        setting: Setting,
        conversation: Conversation,
        split: RowSplit,
    ) -> dict[int | None, Answers[Values]]:
        """The values of all candidates at every client, on rows of this split without each fold."""
        names = self.names()
        self._check_room(names)
        fields, folds = self.fields(names), self.study.left_out
        queries = [
            Value(split=split, without=NO_FOLD if fold is None else fold, **fields)
            for fold in folds
        ]
        told = map(conversation.require_quorum, conversation.together(setting.weights, *queries))
        return {f: own.each(ValuesByPart.together) for f, own in zip(folds, told, strict=True)}

    def evaluate(
        self,
        setting: Setting,
        conversation: Conversation,
        chosen: str,
        *,
        describe: bool,
        asked: Collection[str] | None = None,
    ) -> Evaluated:
        """Values on rows not used for learning, and how decisions split, in one round trip.

        The learned policy is valued on held-out rows, if there are some, or each fold by one that
        was learned without it. What was not learned is valued on all rows. All clients of the
        setting are asked, unless `asked` names some. The policy was learned at a price of what it
        spends, if there is a budget.
        """
        policy = self.policies.get(chosen)
        tree = policy if isinstance(policy, TreePolicy) else None
        values: dict[str, Value | Mapping[str, Value]] = {}
        beside: dict[str, Query[Any]] = {}
        by_fold = setting.by_fold if self.study.evaluation.is_cross_fitted else None
        if by_fold or self.study.evaluation.share:
            fields = self._fields_about(self.beside)
            values["values"] = (
                {name: Value(**fields, **own) for name, own in self.others.items()}
                if self.others
                else Value(**fields)
            )
            fields = self._fields_about({})
            for place, column in enumerate(guarded_columns(self.study), 1):
                values[f"outcome {column}"] = Value(outcome=place, **fields)
        if not self.study.evaluation.is_cross_fitted:
            fields = {"split": RowSplit.ALL, **self.fields(self.not_learned(setting))}
            values[f"values{_OF_ALL}"] = Value(**fields)
            for place, column in enumerate(guarded_columns(self.study), 1):
                values[f"outcome {column}{_OF_ALL}"] = Value(outcome=place, **fields)
        if describe:
            beside["described"] = Describe(cuts=public_cuts(setting), **self.fields([chosen]))
        if describe and TellFit.needed(self.study):
            beside["fitted"] = TellFit()
        if describe and TellInteractions.needed(self.study):
            beside["interactions"] = TellInteractions()
        if describe and self.study.values_leaves and tree:
            beside["leaves"] = self._in_leaves(tree, self.by_fold.get(chosen))
        clients = setting.weights if asked is None else asked
        queries = {**values, **beside}
        found = conversation.together(clients, *queries.values())
        replies = dict(zip(queries, found, strict=True))
        if by_fold:  # only clients whose sums by fold the policies were learned from
            others = {name: "" for name in clients if name not in by_fold}
            told = [name for name in queries if name not in _TOLD_BY_ALL]
            replies |= {name: replies[name] and replies[name].without(others) for name in told}
        replies |= {name: replies[name].each(ValuesByPart.together) for name in values}
        everything = replies.get("values")
        shown = self._shown(everything, self.own)
        valued = OnRows(answers=shown, names=[*self.names(), *self.own]) if shown else None
        of_all = self._of_all(setting, replies.get(f"values{_OF_ALL}"))
        tables = self.tables(setting, chosen, valued, of_all)
        answers = self._shown(everything, [LOGGING, LOCAL])
        if answers:
            value = tables["values"].of(self.valued_as(chosen)).value
            conversation.measure(answers.exchange, value=value)
        return Evaluated(
            **tables,
            judged=self._judged(setting, replies, answers) if answers else NOTHING_JUDGED,
            answers=answers,
            everything=everything,
            described=described(setting, replies.get("described")),
            fitted=dict(replies.get("fitted") or {}),
            interactions=dict(replies.get("interactions") or {}),
            leaves=leaf_rows(tree, replies.get("leaves"), setting),
        )

    def _in_leaves(self, tree: TreePolicy, by_fold: ByFold | None) -> Value:
        """Ask what every action is worth in the leaves; across folds, what trees without each are.

        The rows of a leaf helped to find it, so across folds they say too much of its action.
        """
        known = self.known
        arms = [known[arm_name(action)] for action in self.study.actions]
        is_across = self.study.evaluation.is_cross_fitted
        asked = [by_fold or tree] if is_across else arms
        fields = fields_about(asked, self.study)
        return Value(split=valued_split(self.study), tree=as_array(tree.root), **fields)

    def _judged(
        self, setting: Setting, replies: Mapping[str, Any], valued: Answers[Values]
    ) -> tuple[OutcomeTable, GuardrailTable]:
        """Values of further outcomes, and verdicts on guardrails."""
        names = [*self.names(), LOGGING, LOCAL]

        def on_rows(what: str, told: Mapping[str, Values]) -> list[OnRows]:
            of_all = self._of_all(setting, replies.get(f"{what}{_OF_ALL}"))
            return [*([of_all] if of_all else []), OnRows(answers=told, names=names)]

        told = {
            column: on_rows(f"outcome {column}", replies[f"outcome {column}"] or {})
            for column in guarded_columns(self.study)
        }
        return judge_guardrails(setting, told, names, on_rows("values", valued))

    def tables(
        self,
        setting: Setting,
        chosen: str,
        valued: OnRows | None,  # all policies
        of_all: OnRows | None = None,  # those that were not learned, on all rows
    ) -> dict[str, Any]:
        """Tables of the candidates' values, and of the chosen one's gains over others."""
        each = [on for on in (of_all, valued) if on]
        there = {name for on in each for name in on.names}
        names = [name for name in (*self.names(), *self.own) if name in there]
        # If candidates are compared, intervals hold for all of them together (Bonferroni).
        level = 1 - 0.05 / len(names) if self.study.policy.compares_candidates and names else 0.95
        values = ((name, "") for name in names)
        given = [name for name in names if name not in _NOT_GIVEN]
        past = [(name, LOGGING) for name in given if first_valuing(each, [name, LOGGING])]
        together = 1 - 0.05 / max(len(past), 1)  # Bonferroni
        weights, sign = setting.weights, self.study.reward_sign
        found: dict[str, PolicyTable] = {
            "values": ValueTable(rows_of(each, weights, values, level=level, sign=sign)),
            "improvements": ImprovementTable(rows_of(each, weights, past, level=together)),
        }
        if valued:
            own = self.valued_as(chosen)
            gains = [("", name) for name in valued.names if name not in (chosen, own)]
            found["gains"] = GainTable(rows_of([valued], weights, gains, learned=own))
            if self.others is not None:
                # Over the shared, local and logging policies and the best arm.
                against = dict.fromkeys([own, LOCAL, LOGGING, arm_name(setting.best_arm)])
                personal = [(PERSONAL, name) for name in against if name in valued.names]
                found["personal"] = PersonalTable(rows_of([valued], weights, personal))
        regions = self.study.aggregators
        return {name: table.with_regions(regions) for name, table in found.items()}

    def names(self) -> list[str]:
        """The candidates' names, in the order of clients' answers."""
        return [*self._asked({})]

    def not_learned(self, setting: Setting) -> list[str]:
        """The candidates that no row was learned from: those of the study, and arms with scores."""
        scored = (
            action for place, action in enumerate(self.study.actions) if _is_scored(setting, place)
        )
        given = {*map(arm_name, scored), *self.study.candidates}
        return [name for name in self.names() if name in given]

    def _of_all(self, setting: Setting, answers: Answers[Values] | None) -> OnRows | None:
        """What all rows say of them and, next to last, of what was done."""
        names = [*self.not_learned(setting), LOGGING, ""]
        return OnRows(answers=answers, names=names) if answers else None

    def _asked(self, beside: Mapping[str, Version | ByFold]) -> dict[str, Version | ByFold]:
        """All that is valued, in the order of clients' answers: candidates first."""
        rules = {rule: rule for rule in self.rules}
        found = {**self.policies, **rules, **beside, **self.by_fold}
        return {name: found[name] for name in in_message_order(found)}

    def valued_as(self, chosen: str) -> str:
        """Whose values are those of the way in which the policy was learned or chosen."""
        return valued_as(chosen, self.by_fold)

    def without_rules(self, chosen: str, policy: Policy | None) -> Policy | ByFold | None:
        """The policy as it is valued, by fold if values are; None if a rule decides in a fold."""
        by_fold = self.by_fold.get(self.valued_as(chosen))
        if by_fold is None:
            return policy
        found = ByFold(self.known.get(one, one) if isinstance(one, str) else one for one in by_fold)
        return found if len(found.policies) == len(found) else None

    @property
    def known(self) -> dict[str, Policy]:
        """The policies that have a name: every arm, and the candidates that are no rules."""
        arms = {arm_name(action): self._arm(action) for action in self.study.actions}
        return arms | self.policies

    def places(self) -> dict[str, int]:
        """The position of each candidate's value in an answer about held-out rows."""
        names = [*self._asked(self.beside), *self.own]
        return {name: place for place, name in enumerate(names)}

    @property
    def own(self) -> list[str]:
        """The policies that clients value without being asked, in the order of their answers."""
        return [*[PERSONAL] * (self.others is not None), LOGGING, LOCAL]

    def _shown(self, answers: Answers[Values] | None, own: list[str]) -> Answers[Values] | None:
        """The answers without the policies that tables do not show."""
        names = [*self.names(), *own]
        if answers is None or len(names) == len(self.places()):
            return answers
        places = self.places()
        kept = [places[name] for name in names]

        def shown(client: str) -> Values:
            return answers[client].picked(kept)

        if len(answers) > MOST_VALUED_ALONE:  # then answers are in a file, and stay there
            return Answers(answers.exchange, {name: partial(shown, name) for name in answers})
        return Answers(answers.exchange, {name: shown(name) for name in answers})

    def fields(self, names: list[str]) -> dict[str, Any]:
        """The fields of a query that hold these candidates."""
        policies = [self.policies[name] for name in names if name in self.policies]
        rules = [self.study.candidates.index(rule) for rule in self.rules if rule in names]
        return packed(policies, self.study, rules)

    def _fields_about(self, beside: Mapping[str, Version | ByFold]) -> Fields:
        """The fields of a query for values of all candidates and of what is valued beside them."""
        asked = self._asked(beside)
        self._check_room(asked)
        fields = fields_about(asked.values(), self.study, self.known)
        return {"split": valued_split(self.study), **fields}

    def _check_room(self, names: Collection[str]) -> None:
        most = most_in_query(self.study)
        if len(names) > most:
            raise OptionError(f"policies: one query carries {most} of them, came {len(names)}")


def room_for_policies(setting: Setting, n_asked: int) -> int:
    """How many more policies a query may have before a client refuses for too few rows."""
    study = setting.study
    if study.aggregators:
        return 0  # how few rows a member has, nobody here knows
    plan = study.evaluation
    held_out = plan.share / (1 - plan.share) if plan.share else 1.0
    fewest = min(setting.rows[name] for name in setting.weights) * held_out
    by_rows = int(_VALUES_PER_ROW * fewest) - n_asked - N_OWN_CANDIDATES - study.personalises
    return max(0, min(most_in_query(study) - n_asked, by_rows))


def _is_scored(setting: Setting, action: int) -> bool:
    """Whether every client with weight has scores of this action on about every row."""
    sums = setting.statistics.sums
    counted = [sums[name] for name, weight in setting.weights.items() if weight > 0]
    return all(own.shares[action] >= _LEAST_SCORED for own in counted)
