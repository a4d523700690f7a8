"""A study under several splits of the rows, one after the other, and the medians of results."""

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
    """A conversation in which nothing was asked yet, and how its only party learns alone."""

    conversation: Conversation
    alone: Callable[[], Policy] | None = None


def run_splits(
    study: Study,
    begin: Callable[[Study, int], Begun],
    *,
    policies: Mapping[str, Policy] | None = None,
) -> Record:
    """Run the study under each of its splits; `begin` is called with its own study and its place.

    With one split this is `run_study`. If a split fails, so does the study.
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
    """Where a split's trips are journalled; the first's are where they are without others."""
    return folder / f"split-{place + 1}" if place else folder


def _counting_on(progress: Progress | None, n_before: int) -> Progress | None:
    """Numbers exchanges on from those of earlier splits."""
    if progress is None or not n_before:
        return progress

    def told(latest: Round) -> None:
        progress(replace(latest, exchange=latest.exchange + n_before))

    return told
