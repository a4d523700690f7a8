"""What policies are worth at every client: asked about in batches, and added up with any signs."""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values
from fedopl.policies.kinds import Policy

# A policy, or the name of a candidate, which may be a rule that only clients can apply.
Askable = Policy | str
# Values of these policies at every client, in this order, then of the logging and the local policy.
Ask = Callable[[Sequence[Askable]], Mapping[str, Values]]
# Where in an answer about held-out rows a client's own policy stands: what it has alone. On other
# rows there is none, and the logging policy takes its place.
LOCAL_PLACE = -1
# The freedom of an estimate without any noise.
BOUNDLESS = 1_000_000


@dataclass(frozen=True, eq=False)
class Valued:
    """A policy's place in the answers of all clients."""

    answers: Mapping[str, Values]
    place: int

    def value(self, signed: Mapping[str, float]) -> Estimate:
        """Σ_c s_c·Q̂_c(π)."""
        return signed_estimate(self.answers, signed, self._combination({self.place: 1.0}))

    def gain(self, signed: Mapping[str, float], over: int) -> Estimate:
        """Σ_c s_c·(Q̂_c(π) − Q̂_c(ρ)), ρ the policy at another place; paired, on the same rows."""
        combination = self._combination({self.place: 1.0}) - self._combination({over: 1.0})
        return signed_estimate(self.answers, signed, combination)

    def gain_over_local(self, client: str) -> Estimate:
        """What a client gains by this policy over its own."""
        return self.gain({client: 1.0}, LOCAL_PLACE)

    def _combination(self, parts: Mapping[int, float]) -> FloatArray:  # (n_candidates,)
        combination = np.zeros(len(next(iter(self.answers.values())).means))
        for place, part in parts.items():
            combination[place] += part
        return combination


def signed_estimate(
    answers: Mapping[str, Values], signed: Mapping[str, float], combination: FloatArray
) -> Estimate:
    """Σ_c s_c·(q_c · combination), with standard error √Σ s_c²·v_c; signs may differ.

    Nothing is renormalised: a client that counts and did not answer is an error. Degrees of
    freedom are Welch & Satterthwaite's; a client of one row leaves none.
    """
    counted = sorted(name for name, sign in signed.items() if sign)
    missing = [name for name in counted if name not in answers]
    if missing:
        raise FederationError(f"values: none told by {quoted(missing)}, who count here")
    parts = [(signed[name], answers[name]) for name in counted]
    variances = [
        sign**2 * max(float(combination @ told.covariances @ combination), 0.0)
        for sign, told in parts
    ]
    return Estimate(
        value=math.fsum(sign * float(told.means @ combination) for sign, told in parts),
        standard_error=math.sqrt(math.fsum(variances)),
        n_rows=sum(told.n_rows for _, told in parts),
        degrees_of_freedom=_freedom(variances, [told.degrees_of_freedom for _, told in parts]),
    )


def _freedom(variances: list[float], freedoms: list[int]) -> int:
    """(Σv)² / Σ(v²/f)."""
    if min(freedoms, default=1) < 1:
        return 0
    spread = math.fsum(v**2 / free for v, free in zip(variances, freedoms, strict=True))
    return int(math.fsum(variances) ** 2 / spread) if spread > 0 else BOUNDLESS


def value_groups(
    ask: Ask, groups: Sequence[Sequence[Askable]], *, most: int, anchor: Askable | None = None
) -> list[list[Valued]]:
    """The values of all policies, at most so many in one query.

    Policies of a group come in one query, so that they can be compared on the same rows; with an
    anchor it comes first in all of them. The same group is asked about once.
    """
    if not groups:
        return []
    head = [] if anchor is None else [anchor]
    distinct = {_group_key(group): list(group) for group in groups}
    found: dict[Hashable, list[Valued]] = {}
    sizes = {key: len(group) for key, group in distinct.items() if key != _group_key(head)}
    for batch in _packed(sizes, most - len(head)):
        asked = head + [policy for key in batch for policy in distinct[key]]
        answers = _checked(ask(asked), len(asked))
        found[_group_key(head)] = [Valued(answers, place) for place in range(len(head))]
        place = len(head)
        for key in batch:
            found[key] = [Valued(answers, place + n) for n in range(len(distinct[key]))]
            place += len(distinct[key])
    return [found[_group_key(group)] for group in groups]


def _packed(sizes: Mapping[Hashable, int], room: int) -> Iterator[list[Hashable]]:
    """Groups in order, as many at a time as there is room for."""
    batch: list[Hashable] = []
    used = 0
    for key, size in sizes.items():
        if size > room:
            raise OptionError(f"most: {size} policies have to come together, room is for {room}")
        if used + size > room:
            yield batch
            batch, used = [], 0
        batch.append(key)
        used += size
    if batch or not sizes:
        yield batch


def _checked(answers: Mapping[str, Values], n_policies: int) -> Mapping[str, Values]:
    if not answers:
        raise FederationError("values: no client told any")
    expected = n_policies + N_OWN_CANDIDATES
    wrong = sorted(name for name, told in answers.items() if len(told.means) != expected)
    if wrong:
        raise FederationError(
            f"values: expected {expected} of each, came others from {quoted(wrong)}"
        )
    return answers


def _group_key(group: Sequence[Askable]) -> Hashable:
    return tuple(policy_key(policy) for policy in group)


def policy_key(policy: Askable) -> Hashable:
    """The same for policies that are the same."""
    if isinstance(policy, str):
        return policy
    return (policy.kind, policy.numbers().tobytes())
