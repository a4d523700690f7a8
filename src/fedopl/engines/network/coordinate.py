"""The server's side of a study over a network, for any transport: a run, or clients who join it."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from fedopl.base.errors import FedoplError, StorageError, StudyError
from fedopl.base.files import write_atomically
from fedopl.engines.aggregator import check_aggregators
from fedopl.engines.run import check_newcomers
from fedopl.results.files.run_folder import FAILURE, PROGRESS, load_record, save_record, writing
from fedopl.results.files.table_files import ProgressFile
from fedopl.results.record import Record
from fedopl.results.round import Round
from fedopl.server.exchange.answers import Transport
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.exchange.journal import Journal
from fedopl.server.membership.join_run import join_run
from fedopl.server.repeat_splits import Begun, journal_folder, run_splits
from fedopl.study.joining_later import study_with
from fedopl.study.mixture import Given
from fedopl.study.study import Study
from fedopl.study.study_file import check_named, read_study


class NetworkTransport(Transport, Protocol):
    """A transport to clients that connect at any time."""

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all clients are connected, but at most this many seconds."""


def coordinate(
    study: Path,
    transport: NetworkTransport,
    folder: Path,
    *,
    arrival: float,
    join: Path | None = None,
    progress: Progress | None = None,
) -> Record:
    """Wait for the clients, run the study, and write the run's folder, or the reason for a failure.

    An interrupted run continues from its journal. If `join` is the folder of a finished run, the
    transport's clients join that run.
    """
    with writing(folder):  # outside `try`: if another run has the folder, its files stay unchanged
        try:
            record = _record(study, transport, folder, arrival, join, _telling(folder, progress))
            save_record(record, folder)
            ProgressFile(folder / PROGRESS).clear()  # the record now has all exchanges
        except FedoplError as error:
            # Another process that waits for this run reads this file.
            write_atomically(folder / FAILURE, f"{error}\n".encode())
            raise
    return record


def _record(
    study: Path,
    transport: NetworkTransport,
    folder: Path,
    arrival: float,
    join: Path | None,
    progress: Progress,
) -> Record:
    (folder / FAILURE).unlink(missing_ok=True)
    agreed, candidates = read_study(study)
    if join is not None:
        before = run_to_join(join, folder)
        with_newcomers, shares = study_to_agree_to(before, agreed, transport.clients)
        transport.wait_for_all(arrival)
        journal = Journal(folder / "exchanges")
        return join_run(before, Conversation(with_newcomers, transport, journal, progress), shares)
    check_named(study, agreed, transport.clients)
    check_aggregators(agreed, ())
    write_atomically(folder / "study.json", agreed.model_dump_json(indent=1).encode() + b"\n")
    write_atomically(folder / "study.toml", study.read_bytes())
    transport.wait_for_all(arrival)

    def begin(one: Study, place: int) -> Begun:
        journal = Journal(journal_folder(folder / "exchanges", place))
        return Begun(Conversation(one, transport, journal, progress))

    return run_splits(agreed, begin, policies=candidates)


def _telling(folder: Path, progress: Progress | None) -> Progress:
    """A function that reports each exchange, and writes it to a file for other processes."""
    written = ProgressFile(folder / PROGRESS)
    written.clear()

    def tell(latest: Round) -> None:
        if progress is not None:
            progress(latest)
        written.tell(latest)

    return tell


# Shares in a file are rounded, so they may differ from computed ones by this much.
_AS_WRITTEN = 1e-6


def run_to_join(folder: Path, out: Path) -> Record:
    """The run in this folder; refused if the result would be written to the same folder."""
    if folder.resolve() == out.resolve():
        raise StorageError(f"{out}: is the run itself, which stays as it is; choose another folder")
    return load_record(folder)


def study_to_agree_to(
    run: Record, agreed: Study, newcomers: Collection[str]
) -> tuple[Study, dict[str, float]]:
    """The study that newcomers are asked about, and their shares if its mixture gives shares.

    `agreed` is the newcomers' copy of the study. It must be the study of the run. If the mixture
    gives shares, `agreed` must also have those of the newcomers.
    """
    check_newcomers(run, newcomers)
    before = run.study.before_screening
    given = agreed.mixture.shares if isinstance(agreed.mixture, Given) else {}
    shares = {name: given[name] for name in newcomers if name in given}
    expected = study_with(before, newcomers, shares, run.rows)
    as_before = agreed.model_copy(update={"mixture": before.mixture})
    if as_before != before or not _is_as_written(expected, agreed):
        raise StudyError(
            "study: it is not that of the run that is joined: take study.toml from the run's "
            "folder; where its mixture gives shares, add the newcomer's and shrink the others' in "
            "proportion"
        )
    return run.study.model_copy(update={"mixture": agreed.mixture}), shares


def _is_as_written(expected: Study, agreed: Study) -> bool:
    """Whether the mixtures are the same, up to rounding of shares."""
    first, second = expected.mixture, agreed.mixture
    if not (isinstance(first, Given) and isinstance(second, Given)):
        return first == second
    apart = [first.shares.get(name, 2.0) - share for name, share in second.shares.items()]
    return len(first.shares) == len(apart) and max(map(abs, apart)) <= _AS_WRITTEN
