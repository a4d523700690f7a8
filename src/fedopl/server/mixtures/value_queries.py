"""Values of policies at every client: asked for in batches, or taken from known answers."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_fields import fields_about, valued_split
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues, Values
from fedopl.messages.message import RowSplit
from fedopl.policies.by_fold import ByFold
from fedopl.policies.policy import Policy
from fedopl.results.sums.any_mixture import Solved
from fedopl.server.aggregate.evaluation import signed_estimate
from fedopl.server.exchange.conversation import Conversation

# Values of these policies at every client, in this order, then of the logging and the local policy.
# A candidate goes by its name, as it may be a rule that only clients can apply.
Ask = Callable[[Sequence[Solved]], Mapping[str, Values]]
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


@dataclass(frozen=True)
class ValueQueries:
    """Asks for the values of any number of policies, in queries of limited size."""

    ask: Ask
    most: int  # policies in one query
    sign: float = 1.0  # −1 if values are shown with the opposite sign, as outcomes were logged

    def value(
        self, groups: Sequence[Sequence[Solved]], anchor: Solved | None = None
    ) -> list[list[Valued]]:
        """The values of all policies, group by group.

        Policies of a group are in the same query, so that they can be compared on the same rows. An
        anchor comes first in every query. Equal groups are asked about once.
        """
        if not groups:
            return []
        head = [] if anchor is None else [anchor]
        distinct = {_group_key(group): list(group) for group in groups}
        found: dict[Hashable, list[Valued]] = {}
        sizes = {key: len(group) for key, group in distinct.items() if key != _group_key(head)}
        for batch in _batches(sizes, self.most - len(head)):
            asked = head + [policy for key in batch for policy in distinct[key]]
            answers = self.ask(asked)
            if not answers:
                raise FederationError("values: no client reported any")
            found[_group_key(head)] = [Valued(answers, place) for place in range(len(head))]
            place = len(head)
            for key in batch:
                found[key] = [Valued(answers, place + n) for n in range(len(distinct[key]))]
                place += len(distinct[key])
        return [found[_group_key(group)] for group in groups]

    def value_each(self, policies: Sequence[Solved]) -> list[Valued]:
        """The values of these policies; all are compared with the first, the anchor."""
        groups = [[policy] for policy in policies]
        return [one for (one,) in self.value(groups, anchor=policies[0])]


def asking(
    conversation: Conversation,
    clients: Sequence[str],
    split: RowSplit | None = None,
    known: Mapping[str, Policy] | None = None,
) -> Ask:
    """A function that asks clients for values, one exchange per batch.

    They are on rows of this split or, if none is named, on those that policies are valued on. Known
    are the candidates that are policies.
    """
    study = conversation.study

    def ask(asked: Sequence[Solved]) -> Mapping[str, Values]:
        fields = fields_about(asked, study, known)
        query = EstimateValues(split=split or valued_split(study), **fields)
        return conversation.each(query, clients)

    return ask


def picking(names: Sequence[str], answers: Mapping[str, Values]) -> Ask:
    """A function that takes candidates' values from known answers; no client is asked."""
    own = range(len(names), len(names) + N_OWN_CANDIDATES)

    def pick(wanted: Sequence[object]) -> Mapping[str, Values]:
        places = [*(names.index(str(name)) for name in wanted), *own]
        return {client: values.picked(places) for client, values in sorted(answers.items())}

    return pick


def _batches(sizes: Mapping[Hashable, int], room: int) -> Iterator[list[Hashable]]:
    """The groups in order, in batches of at most `room` policies."""
    batch: list[Hashable] = []
    used = 0
    for key, size in sizes.items():
        if size > room:
            raise OptionError(f"most: {size} policies must be valued in one query of {room}")
        if used + size > room:
            yield batch
            batch, used = [], 0
        batch.append(key)
        used += size
    if batch or not sizes:
        yield batch


def _group_key(group: Sequence[Solved]) -> Hashable:
    return tuple(policy_key(policy) for policy in group)


def policy_key(policy: Solved) -> Hashable:
    """A key that is equal for equal policies."""
    if isinstance(policy, str):
        return policy
    if isinstance(policy, ByFold):
        return _group_key(policy)
    return (policy.kind, policy.numbers().tobytes())
