"""Which clients joined or left a finished run, and what is known about the policy since.

A policy is solved again from the available sums; its value is known only at clients that valued it.
So every valuation names its policy and its clients.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from fedopl.base.labels import GLOBAL, quoted
from fedopl.policies.policy import Policy, policy_json
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.spending.budget_words import gain_words
from fedopl.results.value_tables import TABLES, Row, arm_name

if TYPE_CHECKING:
    from fedopl.results.record import Record

# A newcomer's gain that rests on fewer held-out rows than this says little.
FEW_HELD_OUT = 30


def policy_digest(policy: Policy | None) -> str:
    """The hash by which a valuation identifies its policy."""
    return hashlib.sha256(policy_json(policy).encode()).hexdigest() if policy else ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A client that joined, or that left."""

    kind: Literal["joined", "left"]
    client: str
    when: str  # the day and time in UTC, ISO 8601
    rows: int  # training rows that it brought, or took away
    share: float | None = None  # of the mixture, where that gives every client one
    # The exchanges with the client, if it joined.
    exchanges: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, kw_only=True)
class Valuation:
    """The value of one policy to each of some clients, on held-out rows."""

    policy: str  # its digest
    values: tuple[Row, ...] = ()
    gains: tuple[Row, ...] = ()
    improvements: tuple[Row, ...] = ()
    in_doubt: tuple[str, ...] = ()  # clients whose own answers belie the models behind values

    @classmethod
    def of(cls, record: "Record") -> Self:
        """The valuation of a run's policy by all its clients, if all were asked."""
        names = {row.client for row in record.gains.rows} - {GLOBAL}
        return cls(
            policy=policy_digest(record.policy),
            **{name: getattr(record, name) for name in TABLES},
            in_doubt=tuple(sorted(clients_in_doubt(record))) if names else (),
        ).by_clients(names)

    def by_clients(self, names: Collection[str]) -> Self:
        """The part of the valuation by these clients."""
        kept: dict[str, Any] = {
            kind: tuple(row for row in getattr(self, kind) if row.client in names)
            for kind in TABLES
        }
        return replace(
            self,
            **kept,
            in_doubt=tuple(name for name in self.in_doubt if name in names),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Membership:
    """How the clients of a finished run changed, and the run as it was before."""

    changes: tuple[Change, ...]  # the first first
    valuations: tuple[Valuation, ...]  # of every policy there was, by those who are in
    before: "Record"  # the run in which everybody was asked, without sums

    @property
    def joined(self) -> list[str]:
        """The clients that joined and still take part."""
        return self._whose_last("joined")

    @property
    def left(self) -> list[str]:
        """The clients that left and did not come back."""
        return self._whose_last("left")

    def _whose_last(self, kind: str) -> list[str]:
        last = {change.client: change.kind for change in self.changes}
        return sorted(name for name, did in last.items() if did == kind)

    def of_policy(self, policy: Policy | None) -> Valuation:
        """All that is known about this policy's value, by client."""
        digest = policy_digest(policy)
        own = [one for one in self.valuations if one.policy == digest]
        return Valuation(
            policy=digest,
            **{kind: tuple(row for one in own for row in getattr(one, kind)) for kind in TABLES},
            in_doubt=tuple(name for one in own for name in one.in_doubt),
        )


def who_changed(membership: Membership) -> str:
    """Which clients joined and which left, in a few words."""
    did = [
        f"{quoted(names)} {verb}"
        for names, verb in ((membership.joined, "joined"), (membership.left, "left"))
        if names
    ]
    return " and ".join(did) or "clients joined and left again"


def known_of_it(record: "Record", membership: Membership) -> str:
    """The known value of the policy, and for which clients, in one or two plain sentences."""
    known = membership.of_policy(record.policy)
    told, against = sorted({row.client for row in known.gains}), arm_name(record.best_arm)
    others = sorted(set(record.rows) - set(told))
    since = f"The policy was solved again after {who_changed(membership)}"
    if not told:
        nothing = "nothing is claimed about what it is worth"
        return f"{since}, and no client has valued it since: {nothing}."
    gains = {row.client: row for row in known.gains if row.against == against}
    said = [_gain(name, gains, known.in_doubt) for name in told]
    unknown = (
        f"; {quoted(others)} were not asked about it, so nothing is claimed there, nor for all "
        "together"
        if others
        else "; all who are in have valued it, each for itself"
    )
    return f"{since}. Gain over the best constant arm, {against}: {'; '.join(said)}{unknown}."


def _gain(client: str, gains: dict[str, Row], in_doubt: tuple[str, ...]) -> str:
    row = gains.get(client)
    if client in in_doubt:
        return f"in doubt at '{client}', whose answers belie the models, so nothing is claimed"
    if row is None:
        return f"not told at '{client}'"
    n_rows = row.estimate.n_rows
    few = f", by only {n_rows:,} held-out rows, which say little" if n_rows < FEW_HELD_OUT else ""
    if row.estimate.value == row.estimate.standard_error == 0:
        return f"none at '{client}', where it decides as that arm for all held-out rows{few}"
    return f"{gain_words(row.estimate)} at '{client}'{few}"


def since_then(record: "Record", membership: Membership) -> list[str]:
    """What stays unchanged, and what the run said before."""
    notes = []
    if record.study.nuisances.kind == "federated":
        notes.append(
            "Scores are as each client made them when it came, by outcome models from those who "
            "were in then: only a run with everybody makes them anew."
        )
        if membership.left:
            notes.append(f"These models keep what {quoted(membership.left)} added to them.")
    notes.append(f"About the earlier policy, the run says: {membership.before.verdict}")
    return notes
