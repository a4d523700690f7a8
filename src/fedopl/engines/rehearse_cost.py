"""A study run with made-up clients in this process, to measure its bytes and processor seconds.

What is made up has the study's columns and nothing else of its rows: numbers are normal, labels and
actions equally likely, and outcomes linear.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.restricted import Restricted
from fedopl.base.seeds import generator_for
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import public_key
from fedopl.client.disk.store import Store
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.aggregator import Aggregator
from fedopl.engines.clients import ClientFactory
from fedopl.engines.in_process import Answering, DoorsOnDemand, InProcess
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree_columns import LevelColumn
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.repeat_splits import Begun, run_splits
from fedopl.study.guardrail import guarded_columns
from fedopl.study.mixture import Empirical
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.study import Study

MADE_UP_SECRET = "of made-up clients"  # noqa: S105  (it protects nobody)


def names_of(n_clients: int) -> list[str]:
    """What made-up clients are called, in sorted order."""
    width = len(str(n_clients - 1))
    return [f"{place:0{width}d}" for place in range(n_clients)]


def study_for(study: Study, n_clients: int, lacking: int = 0) -> Study:
    """The study with so many made-up clients in place of those that it names, all alike.

    Under masks, so many of them may be lacking.
    """
    counts = "weight" if study.mixture.counts_weight else "rows"
    others: dict[str, object] = {"mixture": Empirical(count=counts)}
    if study.privacy and study.privacy.is_secure:
        keys = {name: public_key(name, MADE_UP_SECRET) for name in names_of(n_clients)}
        plan = study.privacy.model_dump() | {"keys": keys, "dropouts": lacking}
        plan["colluders"] = min(study.privacy.colluders, 1)
        others["privacy"] = PrivacyPlan.model_validate(plan)
    return study.model_copy(update=others)


def _maker(study: Study, n_rows: int) -> Callable[[str], LoggedData]:
    """A function that makes so many rows of a client, given its name."""
    centres, units = _places(study)
    rng = generator_for(study.seed, purpose="made-up effects")
    slopes = rng.normal(size=(study.n_actions, study.n_features)) / np.sqrt(study.n_features)
    table = study.table
    most = study.declared.reward or 1.0
    low, high = study.privacy.outcome if study.privacy else (-most, most)
    outcomes = table.outcomes if table else guarded_columns(study)

    def make(name: str) -> LoggedData:
        rng = generator_for(study.seed, client=name, purpose="made-up rows")
        drawn = rng.normal(size=(n_rows, study.n_features))
        contexts = _with_labels(study, centres + units * drawn, rng)
        actions = np.arange(n_rows) % study.n_actions
        means = np.einsum("ip,ip->i", drawn, slopes[actions])
        rewards = (low + high) / 2 + (high - low) / 2 * np.tanh(means + rng.normal(size=n_rows))
        return LoggedData(
            contexts,
            actions,
            rewards,
            np.full(n_rows, 1 / study.n_actions) if study.knows_propensities else None,
            action_names=study.actions,
            feature_names=study.features,
            weights=np.ones(n_rows) if table and table.weight else None,
            groups=np.arange(n_rows) if table and table.group else None,
            outcomes={name: rng.random(n_rows) for name in outcomes},
            schema=table,
        )

    return make


def _places(study: Study) -> tuple[FloatArray, FloatArray]:
    """The middle and the spread of every feature, from what the study says of it."""
    centres, units = np.zeros(study.n_features), np.ones(study.n_features)
    known = {
        name: list(knots) for name, knots in (study.basis.knots if study.basis else {}).items()
    }
    if study.privacy:
        known |= {name: list(ends) for name, ends in study.privacy.ranges.items()}
    for place, name in enumerate(study.features):
        if said := known.get(name):
            centres[place] = (min(said) + max(said)) / 2
            units[place] = (max(said) - min(said)) / 3 or 1.0
    return centres, units


def _with_labels(study: Study, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The contexts, in which every column of labels has one of its levels."""
    for column in study.columns:
        if isinstance(column, LevelColumn):
            levels = rng.integers(len(column.features) + 1, size=len(contexts))
            for place, feature in enumerate(column.features, start=1):
                contexts[:, feature] = levels == place
    return contexts


@dataclass(frozen=True, kw_only=True)
class Trip:
    """What travels to and from one client on a trip, in bytes."""

    queries: tuple[str, ...]
    asked: int
    answered: int


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """A run with made-up clients: what travelled, and who worked for how long."""

    n_clients: int
    trips: tuple[Trip, ...]
    sent: int  # bytes, by the server to all clients, or to all aggregators
    received: int
    client_seconds: float  # of the processor, all clients together
    server_seconds: float
    # All aggregators together, to and from their members, if clients are in groups.
    sent_below: int = 0
    received_below: int = 0
    aggregator_seconds: float = 0.0


def rehearse_cost(
    study: Study,
    n_clients: int,
    *,
    rows: int,
    lacks: bool = False,
    dropout: float = 0.0,
    group: int | None = None,
) -> Rehearsed:
    """Run the study with made-up clients in this process, and measure.

    Under masks, `lacks` says that clients may be lacking; without masks, a share never answers. In
    groups, an aggregator adds up each group's answers.
    """
    groups = _groups(n_clients, group or n_clients)
    agreed = study_for(study, n_clients, lacking=int(lacks))
    if group is not None:
        agreed = agreed.model_copy(update={"aggregators": tuple(groups)})
    clients = ClientFactory(names_of(n_clients), _maker(agreed, rows))
    silent = frozenset(
        name for own in groups.values() for name in own[: math.floor(dropout * len(own))]
    )
    heard: list[_Heard] = []

    def begin(one: Study, _place: int) -> Begun:
        def door_to(name: str, data: LoggedData, kept: Store) -> Door:
            return Door(name, data, one, limits=Limits.open(), store=kept, secret=MADE_UP_SECRET)

        doors = DoorsOnDemand(clients, door_to)
        below = [_Measuring(Restricted(doors, own), silent) for own in groups.values()]
        transport = below[0]
        if group is not None:
            aggregators = {
                name: Aggregator(name, one, members, minimum_members=1)
                for name, members in zip(groups, below, strict=True)
            }
            transport = _Measuring(aggregators, frozenset())
        heard.append(_Heard(Conversation(one, transport), transport, below))
        return Begun(heard[-1].conversation)

    arm = constant_policy(study.actions[0], study.actions, study.features)
    before = time.process_time()
    run_splits(agreed, begin, policies=dict.fromkeys(study.candidates, arm))
    seconds = time.process_time() - before
    members = [one for own in heard for one in own.below]
    at_clients = sum(one.seconds for one in members)
    beyond_server = sum(own.transport.seconds for own in heard)
    grouped = group is not None
    return Rehearsed(
        n_clients=n_clients,
        trips=tuple(trip for own in heard for trip in own.transport.trips_of(own.conversation)),
        sent=sum(own.transport.sent for own in heard),
        received=sum(own.transport.received for own in heard),
        client_seconds=at_clients,
        server_seconds=max(seconds - beyond_server, 0.0),
        sent_below=grouped * sum(one.sent for one in members),
        received_below=grouped * sum(one.received for one in members),
        aggregator_seconds=max(beyond_server - at_clients, 0.0),
    )


def _groups(n_clients: int, size: int) -> dict[str, tuple[str, ...]]:
    """Made-up clients by group; the last may have fewer."""
    names = names_of(n_clients)
    parts = [tuple(names[start : start + size]) for start in range(0, n_clients, size)]
    return {f"group {place:06d}": own for place, own in enumerate(parts)}


class _Heard(NamedTuple):
    """A run under one split, the server's transport, and those to clients."""

    conversation: Conversation
    transport: "_Measuring"
    below: "list[_Measuring]"


class _Measuring(InProcess):
    """A transport that counts bytes and the seconds that clients work; some never answer."""

    def __init__(self, doors: Mapping[str, Answering], silent: frozenset[str]) -> None:
        super().__init__(doors)
        self.silent = silent
        self.sizes: list[tuple[int, int]] = []  # of the largest query and answer of each trip
        self.sent = self.received = 0
        self.seconds = 0.0

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        self.sent += sum(map(len, queries.values()))
        asked = {name: query for name, query in queries.items() if name not in self.silent}
        largest = 0
        for name, query in asked.items():
            began = time.process_time()
            answer = self.doors[name].handle(query)
            self.seconds += time.process_time() - began
            self.received += len(answer)
            largest = max(largest, len(answer))
            yield name, answer
        self.sizes.append((max(map(len, queries.values())), largest))

    def trips_of(self, conversation: Conversation) -> Iterator[Trip]:
        """What was asked on each trip, with the bytes of one client."""
        for place, (asked, answered) in enumerate(self.sizes):
            own = (one.query for one in conversation.rounds if one.trip == place)
            yield Trip(queries=tuple(own), asked=asked, answered=answered)
