"""The server's side of a study over a network, whatever carries the bytes."""

from pathlib import Path
from typing import Protocol

from fedopl.base.errors import FedoplError
from fedopl.base.files import write_atomically
from fedopl.engines.aggregator import check_aggregators
from fedopl.engines.network.join_remotely import run_to_join, study_to_agree_to
from fedopl.results.progress_file import ProgressFile
from fedopl.results.record import Record
from fedopl.results.round import Round
from fedopl.results.run_folder import FAILURE, PROGRESS, save_record, writing
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.exchange.journal import Journal
from fedopl.server.exchange.transport import Transport
from fedopl.server.membership.join_run import join_run
from fedopl.server.repeat_splits import Begun, journal_folder, run_splits
from fedopl.study.study import Study
from fedopl.study.study_file import check_named, read_study


class NetworkTransport(Transport, Protocol):
    """A transport to clients that come when they like."""

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all clients are there, but no longer than this."""


def coordinate(
    study: Path,
    transport: NetworkTransport,
    folder: Path,
    *,
    arrival: float,
    join: Path | None = None,
    progress: Progress | None = None,
) -> Record:
    """Wait for the clients, run the study, and write the run's folder; why it failed, if it does.

    A run that was killed goes on from its journal. With the folder of a finished run to `join`, its
    clients are those who come later.
    """
    with writing(folder):  # outside: a run that finds another here leaves its files alone
        try:
            record = _record(study, transport, folder, arrival, join, _telling(folder, progress))
            save_record(record, folder)
            ProgressFile(folder / PROGRESS).clear()  # the record has all of it
        except FedoplError as error:
            # Whoever waits for a run in another process reads this file.
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
    """Reports each exchange, and writes it to a file for those who watch from another process."""
    written = ProgressFile(folder / PROGRESS)
    written.clear()

    def tell(latest: Round) -> None:
        if progress is not None:
            progress(latest)
        written.tell(latest)

    return tell
