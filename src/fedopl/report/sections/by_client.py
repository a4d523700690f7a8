"""Who gains and who loses: the learned policy at each client, beside its alternatives there."""

from fedopl.report.explain.in_doubt import IN_DOUBT, folded_if_doubted
from fedopl.report.explain.learning_words import noise_at_clients
from fedopl.report.figures.forest import GAIN_KEYS, Panel, forest, is_cut
from fedopl.report.parts import Part, Picture, Section, Table, Text
from fedopl.report.words.numbers import Span, count, plural
from fedopl.report.words.policy_labels import (
    OWN_OF_MEMBERS,
    SO_FAR,
    OutcomeWords,
    best_single,
    gain_over,
    has_network,
    of_regions,
    one_client_alone,
    only_together,
    opened,
    valued_clients,
    verdict,
)
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.record import Record
from fedopl.results.value_tables import LOCAL, LOGGING, MOST_VALUED_ALONE, PERSONAL
from fedopl.study.private.added_up import adds_under_masks

_MOST_DRAWN = 30  # clients in the figure
_NUMBERS = ("one alternative", "two alternatives", "three alternatives", "four alternatives")
_WORDS = {
    "better": "gains",
    "worse": "loses",
    "unclear": "no clear difference",
    "same": "no difference",
    "unknown": "not reported",
}


def by_client(record: Record) -> Section:
    """The section, or one sentence if nothing is known."""
    clients = valued_clients(record)
    rows = record.study.evaluation.valued("rows")
    nothing = f"There are no values of {rows}, so nothing is claimed about any client."
    if adds_under_masks(record.study):
        nothing = (
            "Answers of clients were added up under masks, so it is not known what a policy "
            "is worth at one of them: nothing is claimed about any client."
        )
    if only_together(record):
        nothing = (
            f"There are {count(len(record.mixture))} clients. Of more than "
            f"{count(MOST_VALUED_ALONE)}, a run keeps their values together, so it is not known "
            "what a policy is worth at one of them."
        )
    parts: tuple[Part, ...] = (Text(nothing),)
    if clients:
        kind = "linear policy" if has_network(record) else "policy"
        own = f"the {kind} the client would learn from its own rows alone, over {SO_FAR},"
        over = own if _has_own(record) else SO_FAR
        intro = (
            "A policy that is good for all together need not be good for each. Every client's own "
            f"{rows} say what the learned policy would gain there over {over} and over "
            f"{best_single(record)}."
        )
        if _has_own(record) and (of_members := of_regions(record, OWN_OF_MEMBERS)):
            intro += f" {of_members}"
        intro += noise_at_clients(record)
        if _has_personal(record):
            intro += (
                " It also shows the gain over the client's personal policy, which is that of "
                "all others moved toward its own rows. Below zero, the client does better "
                "with its personal policy."
            )
        parts = (Text(intro), _drawn(record, clients), _table(record, clients))
        parts = folded_if_doubted(record, parts)
    return Section(name="clients", title="Who gains and who loses", parts=parts)


def _comparisons(record: Record) -> dict[str, str]:
    """The policies to compare with, by column title."""
    columns = {"own policy": LOCAL} if _has_own(record) else {}
    columns |= {"done so far": LOGGING, "best single action": record.valued_arm}
    columns |= {"personal policy": PERSONAL} if _has_personal(record) else {}
    return {title: name for title, name in columns.items() if name != record.chosen}


def _has_own(record: Record) -> bool:
    """Whether clients have local policies; under masks these are not known."""
    return not adds_under_masks(record.study)


def _has_personal(record: Record) -> bool:
    """Whether clients have personal policies that differ from the shared one."""
    return bool(record.personal) and len(record.mixture) > 1


def _drawn(record: Record, clients: list[str]) -> Picture:
    shown = _extremes(record, clients)
    panels = [
        Panel(title=title, spans=[gain_over(record, name, client) for client in shown])
        for title, name in _comparisons(record).items()
    ]
    unit = OutcomeWords.of(record.study).name
    axis = f"gain in {unit} per decision; right of the line is better"
    caption = f"Gain of the learned policy at each client, over {_NUMBERS[len(panels) - 1]}."
    if len(shown) < len(clients):
        over = "their own policy" if _has_own(record) else SO_FAR
        caption += (
            f" Drawn are the {len(shown)} of {len(clients)} clients that gain least and most over "
            f"{over}; the table shows all."
        )
    if is_cut([span for panel in panels for span in panel.spans]):
        caption += " Lines that reach the edge go on beyond it."
    return Picture(
        name="clients",
        drawing=forest("clients", shown, panels, axis, zero=True),
        label=f"{caption} {_tally(record, clients)}",
        caption=caption,
        keys=GAIN_KEYS,
    )


def _extremes(record: Record, clients: list[str]) -> list[str]:
    """All clients, or those that gain least and most over their local policy or the logged one."""
    if len(clients) <= _MOST_DRAWN:
        return clients
    against = LOCAL if _has_own(record) else LOGGING
    spans = {client: gain_over(record, against, client) for client in clients}
    gains = {client: span.value if span else 0.0 for client, span in spans.items()}
    # Names break ties, so that the same record gives the same page.
    ranked = sorted(clients, key=lambda client: (-gains[client], client))
    return [*ranked[: _MOST_DRAWN // 2], *ranked[-_MOST_DRAWN // 2 :]]


def _table(record: Record, clients: list[str]) -> Table:
    against = _comparisons(record)
    rows, groups, doubts = [], record.values.groups(), clients_in_doubt(record)
    for client in clients:
        gains = [gain_over(record, name, client) for name in against.values()]
        words = [IN_DOUBT if client in doubts else _word(gain) for gain in gains]
        gap = "\n" if _has_personal(record) else " "  # of more columns, each is narrower
        cells = [
            word + (f"\n{g.number}{gap}({g.interval})" if g else "")
            for word, g in zip(words, gains, strict=True)
        ]
        used = record.gains.over(LOGGING, client).rows_used
        rows.append((client, used, *([count(groups[client])] if groups else []), *cells))
    unit, valued = OutcomeWords.of(record.study).name, record.study.evaluation.valued
    return Table(
        caption=f"Gain of the learned policy in {unit} per decision, with 95 % intervals "
        "(positive is better)",
        headers=(
            "Client",
            f"{opened(valued('rows'))} used",
            *[opened(valued("groups"))] * bool(groups),
            *(f"Over {title}" for title in against),
        ),
        rows=tuple(rows),
    )


def _tally(record: Record, clients: list[str]) -> str:
    if len(clients) == 1:
        return one_client_alone(record)
    doubts = clients_in_doubt(record)
    against, compared = (LOCAL, "its own policy") if _has_own(record) else (LOGGING, SO_FAR)
    found = [_word(gain_over(record, against, one)) for one in clients if one not in doubts]
    gains, loses = found.count("gains"), found.count("loses")
    if not gains and not loses:
        return f"Compared with {compared}, no client clearly gains, and none clearly loses."
    rest = len(clients) - gains - loses
    return (
        f"Compared with {compared}, {plural(gains, 'client gains', 'clients gain')} and "
        f"{plural(loses, 'client loses', 'clients lose')}; for {count(rest)} there is no clear "
        "difference."
    )


def _word(span: Span | None) -> str:
    if span and not span.is_known:
        return "undecided"
    return _WORDS[verdict(span) if span else "unknown"]
