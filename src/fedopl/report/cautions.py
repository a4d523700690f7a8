"""What one should know before acting on the report."""

from collections import defaultdict
from collections.abc import Iterator

from fedopl.base.arrays import BoolArray
from fedopl.messages.refusal import in_words
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.report.explain.support_levels import MOST_RARE, RARE, THIN, supports
from fedopl.report.parts import Caution
from fedopl.report.reliance_cautions import reliance_cautions
from fedopl.report.words.numbers import listed, percent, plain, plural
from fedopl.report.words.policy_labels import (
    OutcomeWords,
    gain_over,
    is_arm,
    valued_clients,
    verdict,
)
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING, arm_name


def cautions(record: Record) -> list[Caution]:
    """Everything there is to caution of, the gravest first; empty if nothing."""
    by_gravity = (
        _unclear_gain,
        reliance_cautions,
        _hidden,
        _unseen,
        _borrowed,
        _without_spread,
        _without_values,
        _not_heard,
        _thin,
        _rare,
    )
    return [caution for found_by in by_gravity for caution in found_by(record)]


def _unclear_gain(record: Record) -> Iterator[Caution]:
    gain = gain_over(record, arm_name(record.best_arm))
    if gain and not is_arm(record.study, record.chosen) and verdict(gain) == "unclear":
        yield Caution(
            "The gain may be nothing",
            "The 95 % interval of the gain over the best single action, "
            f"{gain.interval} {OutcomeWords.of(record.study).name}, touches zero.",
            "More rows, or more held-out rows, would tell.",
        )


def _hidden(record: Record) -> Iterator[Caution]:
    """Cells of a tree's grid that were hidden, where that may outweigh what the tree gains."""
    gain = gain_over(record, arm_name(record.best_arm))
    loss = record.tree.possible_loss(record.mixture) if record.tree else 0.0
    if gain and loss > abs(gain.value):
        yield Caution(
            "A better tree may have been passed over",
            "Clients hid small cells, which can move what any tree seems worth by up to "
            f"{plain(loss, 3)} {OutcomeWords.of(record.study).name} per decision; the gain over "
            f"the best single action is {gain.number}.",
            "Fewer bins, fewer columns or more rows would hide less. What the tree is worth "
            "on held-out rows is not touched by it.",
        )


def _unseen(record: Record) -> Iterator[Caution]:
    unknown = record.statistics.unknown(record.mixture)
    groups = {"Nobody took": unknown}
    if record.described:
        taken = record.described.taken()[-1].sum(axis=0)
        groups["Nobody, or too few to be reported, took"] = (taken == 0) & ~unknown
    for who, rows in groups.items():
        if rows.any():
            yield Caution(
                "An action without a past",
                f"{who} {_which_actions(record, rows)}.",
                "Nothing can be said about what it would do; the policy cannot be "
                "trusted to choose or to avoid it.",
            )


def _which_actions(record: Record, chosen: BoolArray, most: int = 5) -> str:
    names = zip(record.study.actions, chosen, strict=True)
    return listed([f"'{name}'" for name, is_it in names if is_it], most, joint="or")


def _borrowed(record: Record) -> Iterator[Caution]:
    """Actions that some clients tried and others did not, where those borrow an outcome model."""
    if not record.described or record.study.nuisances.unseen_rule != "borrow":
        return
    tried = record.described.taken()[-1].sum(axis=0) > 0
    where = [
        f"{_which_actions(record, never, 3)} at {client}"
        for client, counts in sorted(record.described.by_client.items())
        if (never := tried & (counts.taken[-1].sum(axis=0) == 0)).any()
    ]
    if where:
        yield Caution(
            "Judged by others",
            f"Nobody, or next to nobody, took {listed(where)}.",
            "What these would do there is taken from the other clients' outcome model; the "
            "intervals do not know how wrong that may be there.",
        )


def _without_spread(record: Record) -> Iterator[Caution]:
    single = [
        name
        for name in valued_clients(record)
        if record.values.of(LOGGING, name).degrees_of_freedom < 1
    ]
    if single:
        weight = percent(sum(record.mixture[name] for name in single))
        yield Caution(
            "No interval",
            f"{listed(single)} held out a single row or group, which shows no spread; {weight} of "
            "the weight is theirs.",
            "There is no interval and no advice for them, and what is said of all together is "
            "said without them. Hold out a larger share, or wait for more groups.",
        )


def _without_values(record: Record) -> Iterator[Caution]:
    valued = valued_clients(record)
    missing = sorted(set(record.mixture) - set(valued))
    if valued and missing:
        weight = percent(sum(record.mixture[name] for name in missing))
        yield Caution(
            "Values are missing",
            f"{listed(missing)} reported no values; {weight} of the weight is theirs.",
            "What is said about values speaks for the other clients only.",
        )


def _not_heard(record: Record) -> Iterator[Caution]:
    """Who did not contribute, one caution for each question and reason."""
    query_of = {latest.exchange: latest.query for latest in record.rounds}
    found: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for exchange, client, why in record.refusals:
        found[query_of[exchange], why].append((exchange, client))
    for (query, why), places in found.items():
        exchanges = {exchange for exchange, _ in places}
        first = f"exchange {min(exchanges) + 1}"
        several = f"{plural(len(exchanges), 'exchange')}, first in {first}"
        who = listed(sorted({client for _, client in places}))
        reason = in_words(why)
        yield Caution(
            "No answer",
            f"{who} gave no answer to “{QUERY_NAMED[query].title}” "
            f"({several if len(exchanges) > 1 else first}): {reason.why}.",
            reason.remedy,
        )


def _thin(record: Record) -> Iterator[Caution]:
    by_client: dict[str, list[str]] = defaultdict(list)
    for support in supports(record):
        if 0 < support.effective_rows < THIN:
            by_client[support.client].append(f"'{support.action}'")
    if by_client:
        where = [f"{client} ({listed(actions, 3)})" for client, actions in by_client.items()]
        yield Caution(
            "Thin support",
            f"Fewer than {THIN} effective rows speak for an action at {listed(where)}.",
            "There, values rest on models and on other clients more than on own rows.",
        )


def _rare(record: Record) -> Iterator[Caution]:
    by_client: dict[str, list[str]] = defaultdict(list)
    for support in supports(record):
        if support.taken and support.rare_share > MOST_RARE:
            share = percent(support.rare_share)
            by_client[support.client].append(f"'{support.action}' (for {share} of rows)")
    if by_client:
        where = [f"at {client} {listed(texts, 3)}" for client, texts in by_client.items()]
        yield Caution(
            "Unlikely actions",
            f"Some actions had a chance below {percent(RARE)}: {listed(where)}.",
            "The few who got them count for many, so a handful of rows can move the result.",
        )
