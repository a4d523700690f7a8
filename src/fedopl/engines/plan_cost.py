"""What a study costs with any number of clients: bytes, trips and processor seconds.

The study is rehearsed with a few clients of made-up rows. Bytes are those of messages that were
really encoded: they depend on the study and, under masks, linearly on the number of clients, so
they hold for any number. Seconds are estimates: what a client and what the server spent in the
rehearsals on this machine, times how many there are.
"""

import math
from dataclasses import dataclass

from fedopl.base.arrays import check_whole
from fedopl.base.errors import OptionError
from fedopl.base.tables import text_table
from fedopl.client.aggregator_file import LEAST_MEMBERS
from fedopl.engines.aggregator import check_aggregators
from fedopl.engines.in_process import check_packages
from fedopl.engines.rehearse_cost import Rehearsed, Trip, rehearse_cost
from fedopl.report.words.numbers import plural
from fedopl.secure.neighbours import MOST_WITH_ALL, is_sound
from fedopl.study.mixture import FOUND
from fedopl.study.private.privacy_plan import LEAST_PARTIES
from fedopl.study.study import Study

# Clients of the two rehearsals; of the second, as many as this many seconds allow.
FEW, FEWEST_MORE, MOST_MORE = 12, 24, 200
REHEARSAL_SECONDS = 4.0
USUAL_ROWS = 1_000
MOST_PLANNED = 10**10


@dataclass(frozen=True, kw_only=True)
class PartyCost:
    """What one party of a run receives and sends, in bytes, and an estimate of its seconds."""

    receives: int
    sends: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cost of a run with many clients; `print` it."""

    clients: int
    rows: int  # of each client
    dropout: float  # the share of clients that never answer; under masks, in each sum
    groups: int  # 1 if there are none
    group: int  # clients in a group, the largest if they differ
    masked: bool  # each group is then a run by itself
    quorum: float
    trips: tuple[Trip, ...]  # of a client
    client: PartyCost
    aggregator: PartyCost | None  # of a group
    server: PartyCost  # under masks with groups, of one group
    rehearsed: tuple[int, int]  # clients of the rehearsals
    # Members that answer in the smallest group, and in the others; None without aggregators.
    answering: tuple[int, int] | None = None

    def __str__(self) -> str:
        return _in_words(self)

    @property
    def stops(self) -> bool:
        """Whether so many are lost that a run of the study would stop."""
        return not self.masked and 1 - self.dropout < self.quorum

    @property
    def refused(self) -> str:
        """Which groups take no part, as an aggregator releases nothing of so few; or "none"."""
        if self.answering is None or min(self.answering) >= LEAST_MEMBERS:
            return "none"
        return "all" if max(self.answering) < LEAST_MEMBERS else "the last"


def plan_cost(
    study: Study,
    *,
    clients: int,
    rows: int = USUAL_ROWS,
    dropout: float = 0.0,
    group: int | None = None,
) -> Plan:
    """Plan a run of so many clients with so many rows each.

    Args:
        study: what is to be run; whom it names does not matter, made-up clients stand in.
        clients: how many there are.
        rows: how many rows each has.
        dropout: the share of clients that never answer; under masks, that lack in each sum.
        group: the largest number of clients that speak to one aggregator; default: all to the
            server.

    """
    _check(study, clients, dropout, group)
    masked = _is_masked(study)
    largest = clients if group is None else min(group, clients)
    n_groups = math.ceil(clients / largest)
    if n_groups > 1 and not masked:  # which does not ask what aggregators cannot answer
        study = study.model_copy(update={"aggregators": ("group",)})
        check_aggregators(study, ())
    lacks = masked and dropout > 0
    first = rehearse_cost(study, FEW, rows=rows, lacks=lacks)
    each = (first.client_seconds + first.server_seconds) / FEW
    n_more = round(min(max(REHEARSAL_SECONDS / max(each, 1e-9), FEWEST_MORE), MOST_MORE))
    if masked:
        n_more = min(n_more, MOST_WITH_ALL)
    measured = _Measured(first, rehearse_cost(study, n_more, rows=rows, lacks=lacks))
    trips = measured.trips(largest)
    # Whoever lacks in a masked sum was there for keys: bytes are those of a run in which all are.
    answering = largest if masked else _answering(largest, dropout)
    lost_in_group = largest - answering
    client = PartyCost(
        receives=sum(trip.asked for trip in trips),
        sends=sum(trip.answered for trip in trips),
        seconds=measured.client_seconds(largest if masked else n_more),
    )
    fixed, slope = measured.server_seconds
    # Whoever never enrols is asked on the first trip alone.
    below = PartyCost(
        receives=client.sends * answering,
        sends=client.receives * answering + trips[0].asked * lost_in_group,
        seconds=fixed + slope * answering,
    )
    aggregator, server, in_groups = None, below, None
    if n_groups > 1 and not masked:
        aggregator = PartyCost(
            receives=below.receives + client.receives,
            sends=below.sends + client.sends,
            seconds=slope * (answering + 1),
        )
        server = PartyCost(
            receives=client.sends * n_groups,
            sends=client.receives * n_groups,
            seconds=fixed + slope * n_groups,
        )
        in_groups = (_answering(clients - (n_groups - 1) * largest, dropout), answering)
    return Plan(
        clients=clients,
        rows=rows,
        dropout=dropout,
        groups=n_groups,
        group=largest,
        masked=masked,
        quorum=study.quorum,
        trips=trips,
        client=client,
        aggregator=aggregator,
        server=server,
        rehearsed=(FEW, n_more),
        answering=in_groups,
    )


def _answering(n_clients: int, dropout: float) -> int:
    return n_clients - math.floor(dropout * n_clients)


@dataclass(frozen=True)
class _Measured:
    """Two rehearsals, from which costs follow for any number of clients."""

    few: Rehearsed
    more: Rehearsed

    def trips(self, n_clients: int) -> tuple[Trip, ...]:
        """What travels to and from a client: the same for any number, or in proportion to it."""
        if [one.queries for one in self.few.trips] != [one.queries for one in self.more.trips]:
            return self.more.trips  # how often it asks depends on rows
        return tuple(
            Trip(
                queries=one.queries,
                asked=self._along(one.asked, other.asked, n_clients),
                answered=self._along(one.answered, other.answered, n_clients),
            )
            for one, other in zip(self.few.trips, self.more.trips, strict=True)
        )

    def _along(self, few: int, more: int, n_clients: int) -> int:
        """On the line through two rehearsals, if sizes name every client, in whole words."""
        each, beyond = divmod(more - few, self.more.n_clients - self.few.n_clients)
        # What is not in proportion depends on rows: then the larger rehearsal counts.
        return more if beyond else few + each * (n_clients - self.few.n_clients)

    def client_seconds(self, n_clients: int) -> float:
        """Of one client; it has masks with all others."""
        few = self.few.client_seconds / self.few.n_clients
        more = self.more.client_seconds / self.more.n_clients
        slope = max(more - few, 0.0) / (self.more.n_clients - self.few.n_clients)
        return more + slope * (n_clients - self.more.n_clients)

    @property
    def server_seconds(self) -> tuple[float, float]:
        """Whatever the number of clients, and for each."""
        apart = self.more.n_clients - self.few.n_clients
        slope = (self.more.server_seconds - self.few.server_seconds) / apart
        slope = min(max(slope, 0.0), self.more.server_seconds / self.more.n_clients)
        return self.more.server_seconds - slope * self.more.n_clients, slope


def _is_masked(study: Study) -> bool:
    return study.privacy is not None and study.privacy.is_secure


def _check(study: Study, clients: int, dropout: float, group: int | None) -> None:
    """Refuse what cannot be planned, before anything is rehearsed."""
    check_packages(study)
    check_whole(clients, "clients", 2, MOST_PLANNED)
    if group is not None:
        check_whole(group, "group", 2, MOST_PLANNED)
    if not 0 <= dropout < 1:
        raise OptionError(f"dropout: expected a share from 0 to below 1, came {dropout:g}")
    for setting, is_there in (
        ("[target]", study.target is not None),
        ("[joining] diagnose", study.joining.diagnose),
        (f'[mixture] kind = "{study.mixture.kind}"', study.mixture.kind in FOUND),
        ('[policy] thresholds = "observed"', study.policy.learned_by_one),
    ):
        if is_there:
            raise OptionError(
                f"{setting}: what is asked then depends on single clients, so it cannot be planned "
                "from a few made-up ones; plan the study without it"
            )
    if study.nuisances.outcome == "plugged-in":
        raise OptionError("outcome: a plugged-in regressor is not part of the study file")
    if _is_masked(study):
        _check_masks(study, clients if group is None else min(group, clients), dropout)


def _check_masks(study: Study, size: int, dropout: float) -> None:
    if size > MOST_WITH_ALL:
        raise OptionError(
            f"group: every client is told the keys of all others that it has masks with, so "
            f"{size:,} together are too many; set --group to at most {MOST_WITH_ALL}"
        )
    lacking = math.ceil(dropout * size)
    colluders = study.privacy.colluders if study.privacy else 0
    if size < LEAST_PARTIES or not is_sound(size, colluders, lacking):
        raise OptionError(
            f"group: of {size} clients, {lacking} lacking and {colluders} colluding, the rest are "
            "too few for masks; take larger groups or a smaller --dropout (below a half)"
        )


def _in_words(plan: Plan) -> str:
    trips = [
        [str(place), ", ".join(trip.queries), in_bytes(trip.asked), in_bytes(trip.answered)]
        for place, trip in enumerate(plan.trips, start=1)
    ]
    parties = {"a client": plan.client}
    if plan.aggregator:
        parties["the aggregator of a group"] = plan.aggregator
    one_of_many = plan.masked and plan.groups > 1
    parties["the server of a group" if one_of_many else "the server"] = plan.server
    costs = [
        [who, in_bytes(party.receives), in_bytes(party.sends), f"{party.seconds:,.3g}"]
        for who, party in parties.items()
    ]
    few, more = plan.rehearsed
    return "\n".join(
        [
            _who(plan),
            "",
            text_table(["trip", "asked", "to a client", "from a client"], trips),
            "",
            text_table(["in the whole run", "receives", "sends", "processor seconds"], costs),
            "",
            _about_bytes(plan),
            f"Seconds are estimates from rehearsals with {few} and {more} made-up clients of "
            f"{plan.rows:,} rows, just now on this machine; waiting for a network is not counted.",
            *_warnings(plan),
        ]
    )


def _who(plan: Plan) -> str:
    said = f"{plan.clients:,} clients with {plan.rows:,} rows each"
    if plan.groups > 1:
        said += f", in {plan.groups:,} groups of up to {plan.group:,}"
    if plan.dropout and plan.masked:
        said += f"; in each sum up to {plan.dropout:.3g} of a group may be lacking"
    elif plan.dropout:
        said += f"; a share of {plan.dropout:.3g} never answers"
    return f"{said}. A run takes {len(plan.trips)} trips."


def _about_bytes(plan: Plan) -> str:
    said = "Bytes are exact: those of messages that were encoded, with what bundles add"
    if plan.masked:
        said += ", if nobody is lacking"
    return (
        f"{said}. They do not include what a transport adds. What depends on rows, such as the "
        "leaves of a tree and how often its thresholds are counted, is that of made-up ones."
    )


def _warnings(plan: Plan) -> list[str]:
    found = []
    if plan.stops:
        found.append(
            f"With the study's quorum of {plan.quorum:.3g} a run with so many missing stops; "
            "agree on a smaller one."
        )
    if plan.answering and plan.refused != "none":
        found.append(_too_few_members(plan, *plan.answering))
    if plan.masked and plan.groups > 1:
        found.append(
            "Under masks each group is a study of its own, with its own keys, noise and result; "
            "nobody adds up the groups."
        )
    return found


def _too_few_members(plan: Plan, in_smallest: int, in_others: int) -> str:
    """What an aggregator of so few members refuses, and what to do."""
    if plan.refused == "all":
        who, n_answering = "in each group", max(in_smallest, in_others)
        so = "so a run would stop"
    else:
        who, n_answering, so = "in the last group", in_smallest, "so that group takes no part"
    return (
        f"Only {plural(n_answering, 'member')} {who} would answer, and an aggregator releases "
        f"nothing of fewer than {LEAST_MEMBERS} (TOO_FEW_MEMBERS), {so}. Plan larger groups, or "
        "agree on a smaller minimum_members in aggregator.toml, with which costs are as above."
    )


def in_bytes(n_bytes: int) -> str:
    """A number of bytes, in the unit that fits."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.{3 if n_bytes < 1000 * size else 4}g} {unit}"
    return f"{n_bytes} B"
