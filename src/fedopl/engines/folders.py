"""Clients in folders, all in one process: run a study with them, value policies, or look first."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedopl.client.client_file import Client
from fedopl.client.door import Door
from fedopl.client.ledger import FileLedger
from fedopl.client.logged_data import LoggedData
from fedopl.client.store import FolderStore
from fedopl.engines.in_process import InProcess, fingerprint_of
from fedopl.engines.runs import Run
from fedopl.errors import StudyError
from fedopl.policies.linear import LinearPolicy
from fedopl.server.conversation import Progress
from fedopl.server.federation import evaluate_policies, run_study
from fedopl.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Clients:
    """The study's clients with their rows and doors; ledgers and scores lie in their folders."""

    data: dict[str, LoggedData]
    doors: dict[str, Door]


def open_clients(study: Study, clients: Mapping[str, Client]) -> Clients:
    """Read everybody's rows; limits that allow less than the study requires are an error."""
    if study.table is None:
        raise StudyError("study: it does not say what the columns of tables mean")
    for client in clients.values():
        lacking = client.settings.limits.lacking(study.requires)
        if lacking:
            message = f"limits: {'; '.join(lacking)}"
            raise StudyError(client.file.complaint(("limits",), message))
    data = {name: client.read(study.table) for name, client in clients.items()}
    study.mixture.weights({name: rows.n_rows for name, rows in data.items()})  # names them all
    return Clients(data=data, doors={n: _door(study, clients[n], data[n]) for n in clients})


def _door(study: Study, client: Client, data: LoggedData) -> Door:
    return Door(
        client.name,
        data,
        study,
        limits=client.settings.limits,
        store=FolderStore(client.store_path),
        ledger=FileLedger(client.ledger_path),
        secret=client.settings.secret,
    )


def run_with_clients(
    study: Study,
    clients: Clients,
    *,
    policies: Mapping[str, LinearPolicy] | None = None,
    journal: Path,
    threads: int = 1,
    progress: Progress | None = None,
) -> Run:
    """Run the study; whoever was killed goes on from the journal."""
    record = run_study(
        study,
        InProcess(clients.doors, threads),
        policies=policies,
        journal=journal,
        fingerprint=fingerprint_of(clients.data),
        progress=progress,
    )
    return Run.of(record, clients.doors)


def evaluate_with_clients(
    study: Study,
    clients: Clients,
    policies: Mapping[str, LinearPolicy],
    *,
    threads: int = 1,
    progress: Progress | None = None,
) -> Run:
    """Value these policies on held-out rows, as the study would."""
    record = evaluate_policies(study, InProcess(clients.doors, threads), policies, progress)
    return Run.of(record, clients.doors)
