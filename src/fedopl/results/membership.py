"""Which clients joined or left a finished run, and what is known about the policy since.

A policy is solved again from the available sums; its value is known only at clients that valued it.
So every valuation names its policy and its clients.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from fedopl.base.labels import GLOBAL
from fedopl.policies.policy import Policy, policy_json
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.value_tables import TABLES, Row

if TYPE_CHECKING:
    from fedopl.results.record import Record


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
        names = {row.client for row in record.values.rows} - {GLOBAL}
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
