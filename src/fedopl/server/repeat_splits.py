"""Runs a study under several splits of the rows, one after the other; combines by medians."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from fedopl.base.errors import FederationError
from fedopl.base.estimates import Estimate, median_estimate
from fedopl.policies.policy import Policy
from fedopl.results.record import Record
from fedopl.results.reliance import Contradiction, LeftOut, Reliance
from fedopl.results.round import Round, in_a_row
from fedopl.results.value_tables import TABLES, AnyPolicyTable, LeafTable, SplitTables, arm_name
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.federation import run_study
from fedopl.study.splits import split_studies
from fedopl.study.study import Study


class Begun(NamedTuple):
    """A new conversation, and how its only party learns alone, if there is only one."""

    conversation: Conversation
    alone: Callable[[], Policy] | None = None


def run_splits(
    study: Study,
    begin: Callable[[Study, int], Begun],
    *,
    policies: Mapping[str, Policy] | None = None,
) -> Record:
    """Run the study under each of its splits, and return the combined record.

    `begin` gets the study of a split and the split's number, from 0. With one split this is the
    same as `run_study`. If a split fails, the study fails.
    """
    studies = split_studies(study)
    records: list[Record] = []
    for place, one in enumerate(studies):
        conversation, alone = begin(one, place)
        n_before = sum(len(record.rounds) for record in records)
        conversation.progress = _counting_on(conversation.progress, n_before)
        try:
            records.append(run_study(conversation, policies=policies, alone=alone))
        except FederationError as error:
            if len(studies) == 1:
                raise
            raise FederationError(f"split {place + 1} of {len(studies)}: {error}") from None
    return combined_record(study, records)


def journal_folder(folder: Path, place: int) -> Path:
    """The folder of a split's journal; for the first split, the run's own folder."""
    return folder / f"split-{place + 1}" if place else folder


def _counting_on(progress: Progress | None, n_before: int) -> Progress | None:
    """A progress function that adds the number of exchanges of earlier splits."""
    if progress is None or not n_before:
        return progress

    def told(latest: Round) -> None:
        progress(replace(latest, exchange=latest.exchange + n_before))

    return told


_MOST_CONTRADICTIONS = 20
_MEDIANS = (*TABLES, "personal")  # of these tables


def combined_record(study: Study, records: Sequence[Record]) -> Record:
    """The record of a study, given those of its splits, the first first.

    Values of policies are medians over splits. The policy itself and its descriptions are those of
    the first split, so no value influenced which policy was picked.
    """
    if study.evaluation.refits:
        *valued, last = records
        return _refitted(combined_record(split_studies(study)[0], valued), study, last)
    first, *others = records
    if not others:
        return first
    best_arm, share = _best_arm(records), study.evaluation.valued_share
    return replace(
        first,
        study=study,
        best_arm=best_arm,
        **{
            name: _medians([getattr(one, name) for one in records], share, first.valued_on_all)
            for name in _MEDIANS
        },
        rounds=in_a_row(one.rounds for one in records),
        reliance=_reliance([one for one in records if one.best_arm == best_arm], share),
        splits=tuple(
            SplitTables(**{name: getattr(one, name) for name in TABLES}) for one in records
        ),
    )


def _refitted(valued: Record, study: Study, last: Record) -> Record:
    """What was valued, with the policy that was then learned once more, from all rows.

    What was not learned is valued by scores that were, too.
    """
    agreed = {"name": study.name, "seed": study.seed, "evaluation": study.evaluation}
    return replace(
        valued,
        study=last.study.model_copy(update=agreed),
        policy=last.policy,
        mixture=last.mixture,
        rows=last.rows,
        values=_estimated_by(last.values, valued.values),
        improvements=_estimated_by(last.improvements, valued.improvements),
        row_weights=last.row_weights,
        statistics=last.statistics,
        tree=last.tree,
        leaves=LeafTable(),  # those of the tree that was valued
        described=last.described,
        rounds=in_a_row([valued.rounds, last.rounds]),
        for_newcomers=None,
    )


def _estimated_by(last: AnyPolicyTable, valued: AnyPolicyTable) -> AnyPolicyTable:
    """The rows of the table that was valued, with the estimates of the last, where it has some."""
    known = last.estimates()
    return type(valued)(
        replace(row, estimate=known.get(cell, row.estimate))
        for cell, row in valued.by_cell().items()
    )


def _best_arm(records: Sequence[Record]) -> str:
    """The arm that was best on training rows under most splits, if it was valued."""
    first, *_ = records
    valued = {policy for policy, _ in first.values.by_cell()}
    often = Counter(one.best_arm for one in records if arm_name(one.best_arm) in valued)
    return max([first.best_arm, *often], key=lambda arm: often[arm])


def _medians(
    tables: Sequence[AnyPolicyTable], share: float, of_all: Collection[str]
) -> AnyPolicyTable:
    """The rows of the first split, each with the median over the splits that have it.

    One split is on this share of the rows, and on all of them for some policies.
    """
    first, *others = [table.by_cell() for table in tables]
    rows = []
    for cell, row in first.items():
        same = [row, *(table[cell] for table in others if cell in table)]
        own = 1.0 if row.policy in of_all else share
        rows.append(
            replace(
                row,
                estimate=median_estimate([one.estimate for one in same], share=own),
                level=max(one.level for one in same),
            )
        )
    return type(tables[0])(rows)


# --- what rests on whom ------------------------------------------------------------------------


def _reliance(records: Sequence[Record], share: float) -> Reliance | None:
    """The reliance on single clients by medians; all gains are over the same best arm."""
    found = [one.reliance for one in records if one.reliance is not None]
    if not found:
        return None
    by_client: dict[str, list[LeftOut]] = {}
    for one in found:
        for left in one.left_out:
            by_client.setdefault(left.client, []).append(left)
    # A client that moves the policy only under a minority of splits does not decide a median.
    often = [same for same in by_client.values() if 2 * len(same) > len(found)]
    often.sort(key=len, reverse=True)
    return Reliance(
        left_out=tuple(_left_out(same, share) for same in often),
        contradictions=_contradictions(found),
    )


def _left_out(found: list[LeftOut], share: float) -> LeftOut:
    first = found[0]
    arms = Counter(one.best_arm for one in found)
    return replace(
        first,
        best_arm=max(arms, key=lambda arm: arms[arm]),
        gain=_if_all([one.gain for one in found], share),
        gain_without=_if_all([one.gain_without for one in found], share),
        difference=_if_all([one.difference for one in found], share),
        better_off=int(median(one.better_off for one in found)),
        others=min(one.others for one in found),
    )


def _if_all(found: list[Estimate | None], share: float) -> Estimate | None:
    known = [one for one in found if one is not None]
    return median_estimate(known, share=share) if len(known) == len(found) else None


def _contradictions(found: Iterable[Reliance]) -> tuple[Contradiction, ...]:
    """Each contradiction that any split showed, as in the split where it was most serious."""
    gravest: dict[tuple[str, str], Contradiction] = {}
    for one in (one for reliance in found for one in reliance.contradictions):
        known = gravest.setdefault((one.client, one.about), one)
        if abs(one.deviations) > abs(known.deviations):
            gravest[one.client, one.about] = one
    return tuple(gravest.values())[:_MOST_CONTRADICTIONS]
