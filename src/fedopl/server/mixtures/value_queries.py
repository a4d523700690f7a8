"""Values of policies at every client: asked for in batches, or taken from known answers."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_fields import fields_about, valued_split
from fedopl.messages.evaluation.policy_values import (
    N_OWN_CANDIDATES,
    NO_FOLD,
    Value,
    Values,
    ValuesByPart,
)
from fedopl.messages.message import RowSplit
from fedopl.policies.kinds import packed
from fedopl.policies.policy import ByFold, Policy
from fedopl.results.sums.any_mixture import Solved
from fedopl.server.aggregate.evaluation import signed_estimate
from fedopl.server.exchange.conversation import Conversation

# Values of these policies at every client, in this order, then of the logging and the local policy.
# A candidate goes by its name, as it may be a rule that only clients can apply.
Ask = Callable[[Sequence[Solved]], Mapping[str, Values]]
# By the fold that goes without, None for all rows.
Fold = int | None
# The same for the policies of several folds, all on one trip.
AskTogether = Callable[[Mapping[Fold, Sequence[Solved]]], Mapping[Fold, Mapping[str, Values]]]
# Policies that are in the same query, so that they can be compared on the same rows.
Groups = Sequence[Sequence[Solved]]
# The position of a client's local policy in an answer about values. Answers about rows that the
# policies are learned from have none; there, this is the position of the logging policy.
_LOCAL_PLACE = -1
# The position of the policy that all others in a query are compared with.
ANCHOR = 0


@dataclass(frozen=True, eq=False)
class Valued:
    """A policy's place in the answers of all clients."""

    answers: Mapping[str, Values]
    place: int

    def value(self, signed: Mapping[str, float]) -> Estimate:
        """Σ_c s_c·Q̂_c(π)."""
        return signed_estimate(self.answers, signed, self._units()[self.place])

    def gain(self, signed: Mapping[str, float], over: int) -> Estimate:
        """Σ_c s_c·(Q̂_c(π) − Q̂_c(ρ)) for the policy ρ at place `over`; paired on the same rows."""
        units = self._units()
        return signed_estimate(self.answers, signed, units[self.place] - units[over])

    def gain_over_local(self, client: str) -> Estimate:
        """The client's gain with this policy over its local one."""
        return self.gain({client: 1.0}, _LOCAL_PLACE)

    def _units(self) -> FloatArray:  # (n_candidates, n_candidates)
        return np.eye(len(next(iter(self.answers.values())).means))


@dataclass(frozen=True, eq=False)
class Batched:
    """Groups of policies in as many queries as it takes; a group is in one of them.

    An anchor comes first in every query. Equal groups are asked about once.
    """

    queries: list[list[Solved]]
    places: list[tuple[int, range]]  # of each group: its query, and where in it

    @classmethod
    def of(cls, groups: Groups, most: int, anchor: Solved | None = None) -> Self:
        """These groups, in queries of at most so many policies."""
        head = [] if anchor is None else [anchor]
        queries = [head]
        found: dict[Hashable, tuple[int, range]] = {_group_key(head): (0, range(len(head)))}
        for group in groups:
            if _group_key(group) in found:
                continue
            if len(head) + len(group) > most:
                raise OptionError(
                    f"most: {len(group)} policies must be valued in one query of {most - len(head)}"
                )
            if len(queries[-1]) + len(group) > most:
                queries.append(head)
            start = len(queries[-1])
            queries[-1] = [*queries[-1], *group]
            found[_group_key(group)] = len(queries) - 1, range(start, start + len(group))
        return cls(queries if groups else [], [found[_group_key(group)] for group in groups])

    def valued(self, answers: Sequence[Mapping[str, Values]]) -> list[list[Valued]]:
        """The values of all policies, group by group, from the answers to all queries."""
        if not all(answers):
            raise FederationError("values: no client reported any")
        return [[Valued(answers[query], place) for place in own] for query, own in self.places]


def value_together(
    batched: Mapping[Fold, Batched], ask: AskTogether
) -> dict[Fold, list[list[Valued]]]:
    """The values of the policies of every fold; one query of each of them is on the same trip."""
    told: dict[Fold, list[Mapping[str, Values]]] = {fold: [] for fold in batched}
    for turn in range(max((len(own.queries) for own in batched.values()), default=0)):
        asked = {f: own.queries[turn] for f, own in batched.items() if turn < len(own.queries)}
        for fold, answers in ask(asked).items():
            told[fold].append(answers)
    return {fold: own.valued(told[fold]) for fold, own in batched.items()}


@dataclass(frozen=True)
class ValueQueries:
    """Asks for the values of any number of policies, in queries of limited size."""

    ask: Ask
    most: int  # policies in one query
    sign: float = 1.0  # −1 if values are shown with the opposite sign, as outcomes were logged

    def value(self, groups: Groups, anchor: Solved | None = None) -> list[list[Valued]]:
        """The values of all policies, group by group; an anchor comes first in every query."""
        batched = Batched.of(groups, self.most, anchor)
        return batched.valued([self.ask(asked) for asked in batched.queries])

    def value_each(self, policies: Sequence[Solved]) -> list[Valued]:
        """The values of these policies; all are compared with the first, the anchor."""
        groups = [[policy] for policy in policies]
        return [one for (one,) in self.value(groups, anchor=policies[0])]


def asking(
    conversation: Conversation,
    clients: Sequence[str],
    known: Mapping[str, Policy] | None = None,
) -> Ask:
    """A function that asks for values on the rows that policies are valued on, a query at a time.

    Known are the candidates that are policies.
    """
    study = conversation.study

    def ask(asked: Sequence[Solved]) -> Mapping[str, Values]:
        query = Value(split=valued_split(study), **fields_about(asked, study, known))
        return conversation.each(query, clients).each(ValuesByPart.together)

    return ask


def asking_without(
    conversation: Conversation, clients: Sequence[str], split: RowSplit
) -> AskTogether:
    """A function that asks for values on rows of this split, without the fold that is left out."""

    def ask(asked: Mapping[Fold, Sequence[Solved]]) -> Mapping[Fold, Mapping[str, Values]]:
        queries = []
        for fold, own in asked.items():
            policies = [one for one in own if isinstance(one, Policy)]
            fields: dict[str, Any] = packed(policies, conversation.study)
            without = NO_FOLD if fold is None else fold
            queries.append(Value(split=split, without=without, **fields))
        told = conversation.together(clients, *queries)
        return {f: own.each(ValuesByPart.together) for f, own in zip(asked, told, strict=True)}

    return ask


def picking(names: Sequence[str], answers: Mapping[str, Values]) -> Ask:
    """A function that takes candidates' values from known answers; no client is asked."""
    own = range(len(names), len(names) + N_OWN_CANDIDATES)

    def pick(wanted: Sequence[object]) -> Mapping[str, Values]:
        places = [*(names.index(str(name)) for name in wanted), *own]
        return {client: values.picked(places) for client, values in sorted(answers.items())}

    return pick


def _group_key(group: Sequence[Solved]) -> Hashable:
    return tuple(policy_key(policy) for policy in group)


def policy_key(policy: Solved) -> Hashable:
    """A key that is equal for equal policies."""
    if isinstance(policy, str):
        return policy
    if isinstance(policy, ByFold):
        return _group_key(policy)
    return (policy.kind, policy.numbers().tobytes())
