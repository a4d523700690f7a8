"""Runs a study with a real Flower federation of processes on this machine."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fedopl.base.errors import FederationError
from fedopl.client.client_file import Client
from fedopl.engines.aggregator import refuse_aggregators
from fedopl.engines.flower.flower_app_folder import WaitSeconds, write_flower_app
from fedopl.engines.flower.local_federation import POLL_SECONDS, LocalFederation
from fedopl.results.files.run_folder import FAILURE, PROGRESS, is_finished, load_record, writing
from fedopl.results.files.table_files import ProgressFile
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Progress
from fedopl.study.study_file import read_study

STATUS_SECONDS = 30.0  # between questions to Flower; each starts a process of a second or two
Teller = Callable[[str], None]


def run_over_flower(
    study: Path,
    clients: Mapping[str, Client],
    *,
    out: Path,
    wait: WaitSeconds,
    tell: Teller,
    progress: Progress | None = None,
) -> Record:
    """Start a federation, run the study, stop the federation, and return the record."""
    refuse_aggregators(read_study(study)[0])
    for client in clients.values():
        client.check_approvals()
    work = out / "flower"
    # The server's own process holds the lock on the run's folder.
    with writing(work):
        app = work / f"app-{int(time.time())}"
        write_flower_app(app, study, list(clients), out=out, wait=wait)
        folders = {name: client.path.parent for name, client in clients.items()}
        for ending in (
            "run.json",
            FAILURE,
            PROGRESS,
        ):  # files of an earlier attempt at this run, which is resumed
            (out / ending).unlink(missing_ok=True)
        tell("starting a SuperLink and a SuperNode for each client on 127.0.0.1")
        with LocalFederation(work, folders, study) as federation:
            tell("everybody is started; submitting the run")
            wait_for_run(federation, federation.run(app), out, tell, progress)
        tell("everything is stopped")
    record = load_record(out)
    if progress is not None:
        for latest in record.rounds:  # also those that were not seen before the end
            progress(latest)
    return record


def wait_for_run(
    federation: LocalFederation,
    run: str,
    out: Path,
    tell: Teller,
    progress: Progress | None = None,
) -> None:
    """Wait until the run's folder is finished, or Flower reports that the run ended without one."""
    exchanges, read_to = ProgressFile(out / PROGRESS), 0
    failure, trips, asked, status = out / FAILURE, 0, time.monotonic(), ""
    while not is_finished(out):
        done = len(list((out / "exchanges").rglob("*.bin")))
        if done > trips:
            trips = done
            tell(f"trip {trips} is done")
        if progress is not None:
            latest, read_to = exchanges.since(read_to)
            for one in latest:
                progress(one)
        if time.monotonic() - asked > STATUS_SECONDS:
            asked, status = time.monotonic(), federation.status(run)
        ended = status.startswith("finished") or failure.is_file()
        if ended and not is_finished(out):
            raise FederationError(
                failure.read_text(encoding="utf-8").strip()
                if failure.is_file()
                else f"the run ended as '{status}' without a result; see {out / 'flower' / 'logs'}"
            )
        time.sleep(POLL_SECONDS)
