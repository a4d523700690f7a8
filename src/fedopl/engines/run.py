"""Runs studies and evaluates policies with clients in folders, all in this process."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fedopl.base.errors import StorageError, StudyError
from fedopl.base.files import write_atomically
from fedopl.client.aggregator_file import read_parties
from fedopl.client.client_file import Client, read_clients
from fedopl.client.disclosure.ledger import FileLedger, Ledger
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.folder_doors import THIS_MACHINE, check_client, door_of
from fedopl.engines.in_process import InProcess, fingerprint_of, only_policy
from fedopl.engines.regions import check_regions, in_folders, regions_in
from fedopl.engines.runs import Run
from fedopl.policies.policy import Policy
from fedopl.results.files.run_folder import LOCK, PERSONAL_FOLDER, shared_personal, writing
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.exchange.journal import Journal
from fedopl.server.exchange_counts import exchanges_to_evaluate, expected_exchanges
from fedopl.server.federation import evaluate_policies
from fedopl.server.repeat_splits import Begun, journal_folder, run_splits
from fedopl.study.splits import split_studies
from fedopl.study.study import Study
from fedopl.study.study_file import check_named, read_study

Watch = Callable[[Study, tuple[str, ...], int], AbstractContextManager[Progress | None]]


def _nobody_watches(*_run: object) -> AbstractContextManager[None]:
    return nullcontext()


Opened = tuple[dict[str, LoggedData], dict[str, Door]]


def open_clients(study: Study, clients: Mapping[str, Client]) -> Opened:
    """All clients' rows and doors; refused if limits allow less than the study requires."""
    _check_approvals(clients)
    return _opened(study, clients, _tables(study, clients))


def _tables(study: Study, clients: Mapping[str, Client]) -> dict[str, LoggedData]:
    """All clients' rows as they are now."""
    if study.table is None:
        raise StudyError("study: it does not say what the columns of tables mean")
    for client in clients.values():
        check_client(study, client)
    return {name: client.rows_for(study) for name, client in clients.items()}


def _check_approvals(clients: Mapping[str, Client]) -> None:
    """Raise an error, before any client is asked, if a client's owner could not approve."""
    for client in clients.values():
        client.check_approvals()


def _opened(
    study: Study, clients: Mapping[str, Client], tables: Mapping[str, LoggedData]
) -> Opened:
    data = {name: client.pinned(study, tables[name]) for name, client in clients.items()}
    return data, {name: door_of(study, clients[name], data[name]) for name in clients}


def run(
    study: str | Path,
    clients: str | Path,
    *,
    out: str | Path,
    resume: bool = False,
    threads: int = 1,
    watch: Watch = _nobody_watches,
) -> Run:
    """Run a study file with clients in folders, and save the run in a folder.

    Args:
        study: the study file.
        clients: the folder with a folder for each client.
        out: the run's folder; if it is not empty, `resume` is needed.
        resume: continue the run in the folder, if it is one of this study and these rows.
        threads: how many clients work at once.
        watch: a context manager that gives a function to be called after every exchange, or None.

    """
    agreed, candidates = read_study(study)
    folder = Path(out)
    check_folder(folder, agreed, resume=resume)
    parties, found = read_parties(clients), read_clients(clients)
    check_named(study, agreed, parties)
    check_regions(agreed, parties)
    _check_approvals(found)
    # Read rows for all splits before the first one starts. Rows added later are in none of them.
    tables = _tables(agreed, found)
    opened = [_opened(one, found, tables) for one in split_studies(agreed)]
    first_doors = opened[0][1]
    ledgers: dict[str, Ledger] = {name: door.ledger for name, door in first_doors.items()}
    ledgers |= {region.name: FileLedger(region.ledger_path) for region in regions_in(parties)}
    taking_part = tuple(sorted(parties))
    n_expected = expected_exchanges(agreed, len(taking_part))
    with writing(folder), watch(agreed, taking_part, n_expected) as progress:
        check_folder(folder, agreed, resume=resume)  # another process may have written since
        write_atomically(folder / "study.json", agreed.model_dump_json(indent=1).encode() + b"\n")
        write_atomically(folder / "study.toml", Path(study).read_bytes())

        def begin(one: Study, place: int) -> Begun:
            data, doors = opened.pop(0)  # frees the memory of finished splits
            journal = Journal(journal_folder(folder / "exchanges", place), fingerprint_of(data))
            answering = in_folders(parties, doors, one, THIS_MACHINE)
            conversation = Conversation(one, InProcess(answering, threads), journal, progress)
            return Begun(conversation, only_policy(answering))

        record = run_splits(agreed, begin, policies=candidates)
        finished = Run.of(record, ledgers)
        _share_personal(folder, found, first_doors)
        finished.save(folder)
    return finished


def _share_personal(folder: Path, clients: Mapping[str, Client], doors: Mapping[str, Door]) -> None:
    """Write the personal policies of clients whose owners want to share them."""
    for name, client in sorted(clients.items()):
        policy = doors[name].personal_policy if client.settings.share_personal else None
        if policy is not None:
            (folder / PERSONAL_FOLDER).mkdir(exist_ok=True)
            policy.save(shared_personal(folder, name))


def check_folder(folder: Path, study: Study, *, resume: bool) -> None:
    """Refuse to overwrite an earlier run, unless it is resumed."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: is a file; choose another folder with --out")
    if not resume and folder.is_dir() and any(path.name != LOCK for path in folder.iterdir()):
        raise StorageError(
            f"{folder}: is not empty; --resume continues the run in it, --out names another folder"
        )
    known, content = folder / "study.json", f"{study.model_dump_json(indent=1)}\n"
    if known.is_file() and content not in _as_agreed(known.read_text(encoding="utf-8")):
        raise StorageError(f"{folder}: holds a run of another study; --out names another folder")


def _as_agreed(kept: str) -> tuple[str, ...]:
    """A saved study as it is, and as it was before screening found terms."""
    try:
        agreed = Study.model_validate_json(kept).before_screening
    except ValueError:
        return (kept,)
    return kept, f"{agreed.model_dump_json(indent=1)}\n"


def evaluate(
    policies: Mapping[str, Policy],
    study: str | Path,
    clients: str | Path,
    *,
    threads: int = 1,
    watch: Watch = _nobody_watches,
) -> Run:
    """Value saved policies on all clients' held-out rows; compare the first with the others.

    The arguments are those of `run`. Only the clients' ledgers and scores are written. To clients,
    this is a study of its own, of these policies. If a study has several splits, the first is used:
    its policy has learned from the held-out rows of the others.
    """
    whole, candidates = read_study(study)
    parties, found = read_parties(clients), read_clients(clients)
    check_named(study, whole, parties)
    check_regions(whole, parties)
    agreed = split_studies(whole)[0].model_copy(update={"evaluates": _hash_of(policies)})
    _, doors = open_clients(agreed, found)
    answering = in_folders(parties, doors, agreed, THIS_MACHINE)
    with watch(agreed, tuple(sorted(answering)), exchanges_to_evaluate(agreed)) as progress:
        conversation = Conversation(agreed, InProcess(answering, threads), progress=progress)
        record = evaluate_policies(conversation, policies, candidates=candidates)
    return Run.of(record, {name: door.ledger for name, door in doors.items()})


def _hash_of(policies: Mapping[str, Policy]) -> str:
    """A hash of these policies and what they are called."""
    digest = hashlib.sha256()
    for name, policy in policies.items():
        digest.update(f"{name}\x1f{policy.kind}\x1f".encode())
        digest.update(policy.numbers().tobytes())
    return digest.hexdigest()
