"""Runs a study under several splits of the rows, one after the other; combines by medians."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedopl.base.errors import FederationError
from fedopl.policies.policy import Policy
from fedopl.results.combine_splits import combined_record
from fedopl.results.record import Record
from fedopl.results.round import Round
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
