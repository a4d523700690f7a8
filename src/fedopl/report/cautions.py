"""What one should know before acting on the report."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.messages.refusal import in_words
from fedopl.report.explain.support_levels import MOST_RARE, RARE, THIN, supports
from fedopl.report.words.message_names import title_of
from fedopl.report.words.numbers import listed, percent, plain, plural
from fedopl.report.words.policy_labels import (
    OutcomeWords,
    gain_over,
    is_arm,
    valued_clients,
    verdict,
)
from fedopl.results.record import Record
from fedopl.results.value_tables import arm_name


@dataclass(frozen=True, kw_only=True)
class Caution:
    """One thing to know: its name, what it is, and what it means or what to do."""

    title: str
    what: str
    advice: str


def cautions(record: Record) -> list[Caution]:
    """Everything there is to caution of, the gravest first; empty if nothing."""
    return [
        *_unclear_gain(record),
        *_hidden(record),
        *_unseen(record),
        *_borrowed(record),
        *_without_values(record),
        *_not_heard(record),
        *_thin(record),
        *_rare(record),
    ]


def _unclear_gain(record: Record) -> list[Caution]:
    gain = gain_over(record, arm_name(record.best_arm))
    if gain is None or is_arm(record.study, record.chosen) or verdict(gain) != "unclear":
        return []
    unit = OutcomeWords.of(record.study).name
    return [
        Caution(
            title="The gain may be nothing",
            what="The 95 % interval of the gain over the best single action, "
            f"{gain.interval} {unit}, touches zero.",
            advice="More rows, or more held-out rows, would tell.",
        )
    ]


def _hidden(record: Record) -> list[Caution]:
    """Cells of a tree's grid that were hidden, where that may outweigh what the tree gains."""
    gain = gain_over(record, arm_name(record.best_arm))
    loss = record.tree.possible_loss(record.mixture) if record.tree else 0.0
    if gain is None or not loss or loss <= gain.value:
        return []
    unit = OutcomeWords.of(record.study).name
    return [
        Caution(
            title="A better tree may have been passed over",
            what="Clients hid small cells, which can move what any tree seems worth by up to "
            f"{plain(loss, 3)} {unit} per decision; the gain over the best single action is "
            f"{gain.number}.",
            advice="Fewer bins, fewer columns or more rows would hide less. What the tree is worth "
            "on held-out rows is not touched by it.",
        )
    ]


def _unseen(record: Record) -> list[Caution]:
    unknown = record.statistics.unknown(record.mixture)
    hardly = np.zeros_like(unknown)
    if record.described:
        taken = record.described.taken()[-1].sum(axis=0)
        hardly = (taken == 0) & ~unknown
    found = []
    for rows, who in ((unknown, "Nobody took"), (hardly, "Nobody, or too few to be told of, took")):
        names = [
            f"'{action}'" for action, is_it in zip(record.study.actions, rows, strict=True) if is_it
        ]
        if names:
            found.append(
                Caution(
                    title="An action without a past",
                    what=f"{who} {listed(names, joint='or')}.",
                    advice="Nothing can be said about what it would do; the policy cannot be "
                    "trusted to choose or to avoid it.",
                )
            )
    return found


def _borrowed(record: Record) -> list[Caution]:
    """Actions that some clients tried and others did not, where those borrow an outcome model."""
    if not record.described or record.study.nuisances.unseen_rule != "borrow":
        return []
    tried = record.described.taken()[-1].sum(axis=0) > 0
    where = []
    for client, counts in sorted(record.described.by_client.items()):
        never = tried & (counts.taken[-1].sum(axis=0) == 0)
        names = [f"'{a}'" for a, is_it in zip(record.study.actions, never, strict=True) if is_it]
        where += [f"{listed(names, 3, joint='or')} at {client}"] if names else []
    if not where:
        return []
    return [
        Caution(
            title="Judged by others",
            what=f"Nobody, or next to nobody, took {listed(where)}.",
            advice="What these would do there is taken from the other clients' outcome model; the "
            "intervals do not know how wrong that may be there.",
        )
    ]


def _without_values(record: Record) -> list[Caution]:
    valued = valued_clients(record)
    missing = sorted(set(record.mixture) - set(valued))
    if not valued or not missing:
        return []
    weight = percent(sum(record.mixture[name] for name in missing))
    return [
        Caution(
            title="Values are missing",
            what=f"{listed(missing)} told no values; {weight} of the weight is theirs.",
            advice="What is said about values speaks for the other clients only.",
        )
    ]


def _not_heard(record: Record) -> list[Caution]:
    """Who did not contribute, one caution for each question and reason."""
    query_of = {latest.exchange: latest.query for latest in record.rounds}
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for exchange, client, why in record.refusals:
        who = found.setdefault((query_of[exchange], why), {})
        who.setdefault(client, []).append(exchange)
    return [_not_heard_of(query, why, who) for (query, why), who in found.items()]


def _not_heard_of(query: str, why: str, who: dict[str, list[int]]) -> Caution:
    exchanges = sorted({exchange for places in who.values() for exchange in places})
    where = f"exchange {exchanges[0] + 1}"
    if len(exchanges) > 1:
        where = f"{plural(len(exchanges), 'exchange')}, first in exchange {exchanges[0] + 1}"
    reason = in_words(why)
    return Caution(
        title="No answer",
        what=f"{listed(sorted(who))} gave no answer to “{title_of(query)}” ({where}): "
        f"{reason.why}.",
        advice=reason.remedy,
    )


def _by_client(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    gathered: dict[str, list[str]] = {}
    for client, text in found:
        gathered.setdefault(client, []).append(text)
    return gathered


def _thin(record: Record) -> list[Caution]:
    by_client = _by_client(
        (support.client, f"'{support.action}'")
        for support in supports(record)
        if 0 < support.effective_rows < THIN
    )
    if not by_client:
        return []
    where = [f"{client} ({listed(actions, 3)})" for client, actions in by_client.items()]
    return [
        Caution(
            title="Thin support",
            what=f"Fewer than {THIN} effective rows speak for an action at {listed(where)}.",
            advice="There, values rest on models and on other clients more than on own rows.",
        )
    ]


def _rare(record: Record) -> list[Caution]:
    by_client = _by_client(
        (support.client, f"'{support.action}' (for {percent(support.rare_share)} of rows)")
        for support in supports(record)
        if support.taken and support.rare_share > MOST_RARE
    )
    if not by_client:
        return []
    where = [f"at {client} {listed(texts, 3)}" for client, texts in by_client.items()]
    return [
        Caution(
            title="Unlikely actions",
            what=f"Some actions had a chance below {percent(RARE)}: {listed(where)}.",
            advice="The few who got them count for many, so a handful of rows can move the result.",
        )
    ]
