"""Trips taken apart: transports on which a test hears, edits or spoils single messages."""

from dataclasses import dataclass

from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled, unheaded
from fedopl.messages.derived_sizes import axis_sizes


def by_question(replies):
    """The answers by client, apart for each question of the trip."""
    apart = {name: unbundled(unheaded(content)[0]) for name, content in replies.items()}
    return [dict(zip(apart, answers, strict=True)) for answers in zip(*apart.values(), strict=True)]


def by_client(answers):
    """The way back: what each client replies to the whole trip."""
    return {name: bundled([told[name] for told in answers]) for name in answers[0]}


def n_trips(rounds):
    """How many trips these rounds took."""
    return len({latest.trip for latest in rounds})


def travelled_with(rounds, exchange):
    """All exchanges of this one's trip, itself among them."""
    return [latest.exchange for latest in rounds if latest.trip == rounds[exchange].trip]


@dataclass(frozen=True)
class Trip:
    """What clients reply on one trip, and what they answered before."""

    replies: dict[str, bytes]  # client → reply to the whole trip
    earlier: list[dict[str, bytes]]  # of every exchange before this trip, by client
    place: int  # in the trip, of the question that a tampering is about


class Tampered(InProcess):
    """A transport on which the trips that carry some exchanges are tampered with.

    `tampers` are functions by exchange, from a `Trip` to the replies that the server gets.
    """

    def __init__(self, doors, tampers):
        super().__init__(doors)
        self.tampers, self.earlier = tampers, []

    def exchange(self, queries):
        replies = dict(super().exchange(queries))
        answers, earlier = by_question(replies), self.earlier
        self.earlier = [*earlier, *answers]
        for exchange, tamper in self.tampers.items():
            if len(earlier) <= exchange < len(self.earlier):
                return tamper(Trip(replies, earlier, exchange - len(earlier)))
        return list(replies.items())


def in_one_message(change):
    """A tampering with the answers to one question; those to others on its trip stay as they are.

    `change` takes these answers and a list of those to every earlier question, all by client.
    """

    def _tamper(trip):
        answers = by_question(trip.replies)
        earlier = [*trip.earlier, *answers[: trip.place]]
        answers[trip.place] = change(answers[trip.place], earlier)
        return list(by_client(answers).items())

    return _tamper


class Edited(InProcess):
    """A transport on which one client edits every message that it sends."""

    def __init__(self, doors, study, client, edit):
        super().__init__(doors)
        self.sizes, self.client, self.edit = axis_sizes(study), client, edit

    def exchange(self, queries):
        for name, content in super().exchange(queries):
            messages = [codec.decode(part, self.sizes) for part in unbundled(unheaded(content)[0])]
            if name == self.client:
                messages = [self.edit(message) for message in messages]
            yield name, bundled([codec.encode(message) for message in messages])


class Listening(InProcess):
    """A transport that keeps every query with its answer, as (client, query, answer)."""

    def __init__(self, doors):
        super().__init__(doors)
        self.heard = []

    def exchange(self, queries):
        for name, content in super().exchange(queries):
            pairs = zip(unbundled(queries[name]), unbundled(unheaded(content)[0]), strict=True)
            self.heard += [(name, query, answer) for query, answer in pairs]
            yield name, content


class Counted(InProcess):
    """A transport that counts trips, and that can break before one of them."""

    def __init__(self, doors, breaks_at=None):
        super().__init__(doors)
        self.trips, self.breaks_at = 0, breaks_at

    def exchange(self, queries):
        if self.trips == self.breaks_at:
            raise KeyboardInterrupt
        self.trips += 1
        return super().exchange(queries)
