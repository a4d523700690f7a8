"""`fedopl cost`: what a study would cost with any number of clients; asks no client."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import AsJson, StudyPath
from fedopl.cli.printing import say_json

if TYPE_CHECKING:
    from fedopl.engines.plan_cost import PartyCost, Plan

_OPTIONS = ("clients", "rows", "dropout", "group")


def cost(
    study: StudyPath = Path("study.toml"),
    *,
    clients: Annotated[
        int, typer.Option("--clients", min=2, help="the number of clients to plan for")
    ] = 1000,
    rows: Annotated[
        int, typer.Option(min=10, max=1_000_000, help="the number of rows of each client")
    ] = 1000,
    dropout: Annotated[
        float, typer.Option(help="the share of clients that never answer; under masks, in each sum")
    ] = 0.0,
    group: Annotated[
        int | None,
        typer.Option(
            min=2, help="clients that speak to one aggregator; default: all speak to the server"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many bytes, trips and seconds a run takes; rehearses with made-up rows."""
    from fedopl.engines.plan_cost import plan_cost
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    try:
        plan = plan_cost(agreed, clients=clients, rows=rows, dropout=dropout, group=group)
    except OptionError as error:
        raise OptionError(_with_options(str(error))) from None
    if as_json:
        say_json(asdict(plan) | {"stops": plan.stops, "refused": plan.refused})
        return
    typer.echo(_in_words(plan))


def _with_options(error: str) -> str:
    """The error, in which arguments of Python are called as the command calls them."""
    return f"--{error}" if error.partition(":")[0] in _OPTIONS else error


def _in_words(plan: "Plan") -> str:
    from fedopl.base.tables import text_table

    trips = [
        [
            str(place),
            ", ".join(trip.queries),
            in_bytes(trip.asked),
            in_bytes(trip.answered),
        ]
        for place, trip in enumerate(plan.trips, start=1)
    ]
    parties = {"a client": plan.client}
    if plan.aggregator:
        parties["the aggregator of a group"] = plan.aggregator
    one_of_many = plan.masked and plan.groups > 1
    parties["the server of a group" if one_of_many else "the server"] = plan.server
    costs = [_line(who, party) for who, party in parties.items()]
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


def _line(who: str, party: "PartyCost") -> list[str]:
    return [who, in_bytes(party.receives), in_bytes(party.sends), f"{party.seconds:,.3g}"]


def _who(plan: "Plan") -> str:
    said = f"{plan.clients:,} clients with {plan.rows:,} rows each"
    if plan.groups > 1:
        said += f", in {plan.groups:,} groups of up to {plan.group:,}"
    if plan.dropout and plan.masked:
        said += f"; in each sum up to {plan.dropout:.3g} of a group may be lacking"
    elif plan.dropout:
        said += f"; a share of {plan.dropout:.3g} never answers"
    return f"{said}. A run takes {len(plan.trips)} trips."


def _about_bytes(plan: "Plan") -> str:
    said = "Bytes are exact: those of messages that were encoded, with what bundles add"
    if plan.masked:
        said += ", if nobody is lacking"
    return (
        f"{said}. They do not include what a transport adds. What depends on rows, such as the "
        "leaves of a tree and how often its thresholds are counted, is that of made-up ones."
    )


def _warnings(plan: "Plan") -> list[str]:
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


def _too_few_members(plan: "Plan", in_smallest: int, in_others: int) -> str:
    """What an aggregator of so few members refuses, and what to do."""
    from fedopl.client.aggregator_file import LEAST_MEMBERS
    from fedopl.report.words.numbers import plural

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
