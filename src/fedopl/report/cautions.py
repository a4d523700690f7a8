"""Cautions: what readers should know before they act on the report."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from fedopl.analysis.recommended import affordable_actions
from fedopl.base.arrays import BoolArray
from fedopl.messages.refusal import in_words
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.report.at_target import target_cautions
from fedopl.report.explain.support_levels import (
    MOST_RARE,
    THIN,
    overlap_cautions,
    rare_chance,
    supports,
)
from fedopl.report.parts import Caution
from fedopl.report.sections.action_overlap import fit_cautions
from fedopl.report.sections.resting_on_clients import reliance_cautions
from fedopl.report.words.numbers import count, listed, percent
from fedopl.report.words.policy_labels import (
    OutcomeWords,
    best_single,
    gain_over,
    is_arm,
    label,
    valued_clients,
    verdict,
    who_adds_up,
)
from fedopl.results.model_doubts import clients_of_a_part
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING
from fedopl.study.private.added_up import adds_under_masks

_FEW = 5  # an action that fewer rows took has no past to speak of
_BACK = (
    "Fewer terms, joining it with another action, or a higher parameter_share in client.toml may "
    "bring it back; fedopl check says which rule a client does not meet, and with which number."
)
_HOW_SCORED = f"No policy can choose it, and what it is worth is not known. {_BACK}"


def cautions(record: Record) -> list[Caution]:
    """All cautions about a run, the most serious first; empty if there are none."""
    by_gravity = (
        fit_cautions,
        _of_a_part,
        target_cautions,
        _unclear_gain,
        reliance_cautions,
        _unscored,
        _borrowed,
        overlap_cautions,
        _without_spread,
        _without_values,
        _not_heard,
        _without_sums,
        _clipped,
        _thin,
        _rare,
        _in_regions,
    )
    return [caution for found_by in by_gravity for caution in found_by(record)]


def _of_a_part(record: Record) -> Iterator[Caution]:
    """Clients valued only on rows that policies selected by their decisions."""
    rows, parts = record.study.evaluation.valued("rows"), clients_of_a_part(record)
    if where := [f"{name} ({estimate.rows_used})" for name, estimate in parts.items()]:
        yield Caution(
            "Values of a part of the rows",
            f"Not all {rows} were used at {listed(where)}: for the other rows, "
            "some policy decides on an action that has no score there.",
            "Results of these clients are about the rows used alone, which policies "
            f"selected. They are not what a policy is worth. {_BACK}",
        )


def _unclear_gain(record: Record) -> Iterator[Caution]:
    gain = gain_over(record, record.valued_arm)
    if not gain or is_arm(record.study, record.chosen) or verdict(gain) != "unclear":
        return
    if record.in_doubt or record.best_arm not in affordable_actions(record):
        return  # its interval says nothing, or it is no alternative
    study, valued = record.study, record.study.evaluation.valued("rows")
    who, arm = label(study, record.valued_as), best_single(record)
    what = f"There are too few {valued} to say whether {who} is better than {arm}."
    if gain.is_known:
        unit = OutcomeWords.of(record.study).name
        what = (
            f"What {who} gains over {arm}, {gain.number} {unit} per decision, has the 95 % "
            f"interval {gain.interval}: it may be better, and it may be worse."
        )
    more = "" if study.evaluation.is_cross_fitted else f", or more {valued},"
    advice = f"More rows{more} would decide it."
    yield Caution("No clear gain over a single action", what, advice)


def _unscored(record: Record) -> Iterator[Caution]:
    """Actions that no client has a score for, and why; then actions that very few rows took."""
    unknown = record.statistics.unknown(record.mixture)
    if record.described is None and unknown.any():
        yield Caution(
            "An action without a score",
            f"No client has a score for {_which_actions(record, unknown)}: no row took it, or too "
            "few rows did.",
            _HOW_SCORED,
        )
    if record.described is None:
        return
    taken = record.described.taken()[-1].sum(axis=0)
    known_of = taken >= _FEW
    if (lost := unknown & known_of).any():
        fewest, width = taken[lost].min(), record.study.n_terms + 1
        yield Caution(
            "An action without a score",
            f"No client has a score for {_which_actions(record, lost)}: a model needs "
            "minimum_cell rows of an action in every fold, at clients with "
            f"{width:,} / parameter_share rows to learn from; taken in {count(fewest)} rows or "
            "more, of all clients together.",
            _HOW_SCORED,
        )
    if (rest := ~known_of).any():
        yield Caution(
            "An action without a past",
            f"No row, or next to none, took {_which_actions(record, rest)}.",
            "What it would do is not known; do not trust the policy to choose it or to avoid it.",
        )


def _which_actions(record: Record, chosen: BoolArray, most: int = 5) -> str:
    names = zip(record.study.actions, chosen, strict=True)
    return listed([f"'{name}'" for name, is_it in names if is_it], most, joint="or")


def _borrowed(record: Record) -> Iterator[Caution]:
    """Actions that only some clients tried, if the other clients borrow an outcome model."""
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
            f"No row, or next to none, took {listed(where)}.",
            "What these actions would do there is predicted by the other clients' outcome "
            "model. The intervals do not include how wrong that model may be there.",
        )


def _without_spread(record: Record) -> Iterator[Caution]:
    freedom = {n: record.gains.over(LOGGING, n).degrees_of_freedom for n in valued_clients(record)}
    if single := [name for name, degrees in freedom.items() if degrees < 1]:
        weight = percent(sum(record.mixture[name] for name in single))
        evaluation = record.study.evaluation
        more = "Wait" if evaluation.is_cross_fitted else "Hold out a larger share, or wait"
        yield Caution(
            "No interval",
            f"{listed(single)} had a single {evaluation.valued('row or group')} to value by, which "
            f"shows no spread; {weight} of the weight is theirs.",
            "There is no interval and no advice for them, and results for all together leave "
            f"them out. {more} for more groups.",
        )


def _without_values(record: Record) -> Iterator[Caution]:
    valued = valued_clients(record)
    missing = sorted(set(record.mixture) - set(valued))
    if valued and missing:
        weight = percent(sum(record.mixture[name] for name in missing))
        speaks = "Results about values are about the other clients only."
        if adds_under_masks(record.study):
            speaks = (
                "This concerns values that the server reads for each client apart. Results "
                "for all together come from sums under masks, and nothing is claimed about "
                "these clients."
            )
        yield Caution(
            "Values are missing",
            f"{listed(missing)} reported no values; {weight} of the weight is theirs.",
            speaks,
        )


def _not_heard(record: Record) -> Iterator[Caution]:
    """The clients that did not contribute, one caution for each reason."""
    for why, (who, asked) in record.refusals_by_reason.items():
        reason = in_words(why)
        titles = listed([f"“{QUERY_NAMED[query].title}”" for query in asked])
        yield Caution(
            "No answer",
            f"{listed(sorted(who))} gave no answer to {titles}: {reason.why}.",
            reason.remedy,
        )


def _without_sums(record: Record) -> Iterator[Caution]:
    if record.without_sums:
        yield Caution(
            "No sums of terms",
            f"{listed(record.without_sums)} had too few rows for sums of "
            f"{record.study.n_terms + 1} terms (parameter_share): scored and valued, but not "
            "learned from.",
            "Use fewer features or terms, or wait for more rows.",
        )


def _clipped(record: Record) -> Iterator[Caution]:
    if record.clipped:
        each = [f"{count(n)} at {name}" for name, n in sorted(record.clipped.items())]
        yield Caution(
            "Numbers beyond agreed ranges",
            f"They count as the nearer end: {listed(each)}.",
            "Look for typos and other units there, or agree on wider [ranges].",
        )


def _thin(record: Record) -> Iterator[Caution]:
    thin = [one for one in supports(record) if 0 < one.effective_rows < THIN]
    by_client = groupby(thin, lambda one: one.client)
    actions = {client: [f"'{one.action}'" for one in own] for client, own in by_client}
    if where := [f"{client} ({listed(own, 3)})" for client, own in actions.items()]:
        yield Caution(
            "Thin support",
            f"Fewer than {THIN} effective rows support an action at {listed(where)}.",
            "There, values rest more on models and on other clients than on the client's own rows.",
        )


def _rare(record: Record) -> Iterator[Caution]:
    chance = rare_chance(record.study.n_actions)
    if chance is None:
        return
    by_client: dict[str, list[str]] = defaultdict(list)
    for support in supports(record):
        share = support.share_below(chance)
        if support.taken and share > MOST_RARE:
            by_client[support.client].append(f"'{support.action}' (for {percent(share)} of rows)")
    if by_client:
        where = [f"at {client} {listed(texts, 3)}" for client, texts in by_client.items()]
        yield Caution(
            "Unlikely actions",
            f"Some actions had a chance below {percent(chance)}: {listed(where)}.",
            "The few people who got them have large weights, so a handful of rows can move "
            "the result.",
        )


def _in_regions(record: Record) -> Iterator[Caution]:
    """A note on clients that speak for several."""
    if who := who_adds_up(record):
        yield Caution(
            "Not all clients are single ones",
            who,
            "What is said of such a client is about its members together. A single member may lose "
            "by the policy, lack support for an action, or account for most of what they report: "
            "this page cannot show it.",
        )
