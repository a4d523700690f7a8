"""Runs studies and evaluates policies with clients in folders; clients join or leave a run."""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedopl.base.errors import OptionError, StorageError, StudyError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_client_name, quoted
from fedopl.client.aggregator_file import read_parties
from fedopl.client.client_file import Client, read_client, read_clients
from fedopl.client.disclosure.ledger import FileLedger, Ledger
from fedopl.client.disclosure.limits import as_limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.clients import check_regions, in_folders, regions_in
from fedopl.engines.folder_doors import THIS_MACHINE, check_client, door_of
from fedopl.engines.in_process import InProcess, fingerprint_of, only_policy
from fedopl.engines.runs import Run, load_run
from fedopl.policies.policy import Policy
from fedopl.results.files.run_folder import LOCK, PERSONAL_FOLDER, shared_personal, writing
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.exchange.journal import Journal
from fedopl.server.exchange_counts import exchanges_to_evaluate, expected_exchanges
from fedopl.server.federation import evaluate_policies
from fedopl.server.membership.join_run import join_run
from fedopl.server.membership.solve_again import leave_run, require_open
from fedopl.server.repeat_splits import Begun, journal_folder, run_splits
from fedopl.study.joining_later import study_with, why_no_newcomer
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


_TOML = "study.toml"


def join_rows(
    run: Run,
    clients: Mapping[str, LoggedData],
    *,
    shares: Mapping[str, float] | None = None,
    limits: object = "open",
) -> Run:
    """The run with these new clients, whose rows are in memory; see `Run.join`."""
    _check_named(clients)
    study = _study_for(run, clients, shares or {})
    for name, data in clients.items():
        _check_rows(name, data, study)
    own: dict[str, Any] = {"limits": as_limits(limits), "secret": SEED_ALONE}
    agreed = study.before_screening
    doors = {name: Door(name, data, agreed, **own) for name, data in clients.items()}
    return _joined(run, study, doors, shares or {})


def leave_in_memory(run: Run, client: str) -> Run:
    """The run without this client; see `Run.leave`."""
    return _as_run(leave_run(run, client), run)


def join_folder(
    run: str | Path,
    client: str | Path,
    *,
    share: float | None = None,
    out: str | Path | None = None,
) -> tuple[Run, Path]:
    """Let a client in a folder join a saved run; return the new run and its new folder."""
    found, newcomer = load_run(run), read_client(client)
    shares = {} if share is None else {newcomer.name: share}
    study = _study_for(found, [newcomer.name], shares)
    folder = _folder_for(run, f"+{newcomer.name}", out)
    _, doors = open_clients(study.before_screening, {newcomer.name: newcomer})
    joined = _joined(found, study, doors, shares)
    _save(joined, folder, Path(run))
    return joined, folder


def leave_folder(
    run: str | Path, client: str, *, out: str | Path | None = None
) -> tuple[Run, Path]:
    """Take a client out of a saved run; return the new run and its new folder."""
    found = load_run(run)
    left = leave_in_memory(found, client)
    folder = _folder_for(run, f"-{client}", out)
    _save(left, folder, Path(run))
    return left, folder


def check_newcomers(run: Record, names: Collection[str]) -> None:
    """Raise an error unless clients with these names can join this run."""
    require_open(run, why_no_newcomer(run.study))
    if not names:
        raise OptionError("clients: expected rows by client name, as in {'west': data}; came none")
    for name in names:
        check_client_name(name, "clients")
    if known := sorted(set(names) & run.rows.keys()):
        raise OptionError(
            f"clients: {quoted(known)} is in this run already. It can leave the run first; "
            "another client with the same name needs another name (name in client.toml)"
        )


def _study_for(run: Run, names: Collection[str], shares: Mapping[str, float]) -> Study:
    """The study that newcomers with these names agree to; an error if they cannot join."""
    check_newcomers(run, names)
    return study_with(run.study, list(names), shares, run.rows)


def _check_named(clients: object) -> None:
    """Refuse whatever is no mapping from names to rows."""
    given = list(clients) if isinstance(clients, Mapping) else [clients]
    for one in given:
        if not isinstance(one, str):
            what = "as a name" if isinstance(clients, Mapping) else "in its place"
            raise OptionError(
                "clients: expected rows by client name, as in {'west': data}; came "
                f"{type(one).__name__} {what}"
            )


def _check_rows(name: str, data: object, study: Study) -> None:
    """Refuse data that are not rows with this study's actions and features."""
    if not isinstance(data, LoggedData):
        raise OptionError(
            f"clients: expected LoggedData by name, came {type(data).__name__} for '{name}'"
        )
    for what in ("actions", "features"):
        expected, came = getattr(study, what), getattr(data, f"{what[:-1]}_names")
        if expected != came:
            raise StudyError(
                f"{name}: expected the run's {what} {quoted(expected)}, came {quoted(came)}; give "
                "the newcomer the same, in the same order"
            )


def _joined(run: Run, study: Study, doors: Mapping[str, Door], shares: Mapping[str, float]) -> Run:
    conversation = Conversation(study, InProcess(doors))
    record = join_run(run, conversation, shares)
    return _as_run(record, run, {name: door.ledger for name, door in doors.items()})


def _as_run(record: Record, before: Run, ledgers: Mapping[str, Ledger] | None = None) -> Run:
    """The record as a run, with the ledger entries of its present clients, old and new."""
    plain = Record(**{field.name: getattr(record, field.name) for field in fields(Record)})
    since = Run.of(plain, ledgers or {})
    own = {**before.ledger, **since.ledger}
    ledger = {name: entries for name, entries in sorted(own.items()) if name in record.rows}
    return replace(since, ledger=ledger, solved_for_clients=before.solved_for_clients)


def _folder_for(run: str | Path, ending: str, out: str | Path | None) -> Path:
    """The folder for the result; it must be empty. The original run is not changed."""
    beside = Path(run) if Path(run).name else Path(run).resolve()
    plain = re.sub(r"[^\w.+-]+", "-", ending)
    folder = Path(out) if out else beside.with_name(f"{beside.name}{plain}")
    if folder.resolve() == beside.resolve():
        raise StorageError(
            f"{folder}: is the run itself, which stays as it is; choose another --out"
        )
    _check_empty(folder)
    return folder


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(p.name != LOCK for p in folder.iterdir())):
        raise StorageError(f"{folder}: is there already; name another folder with --out")


def _save(run: Run, folder: Path, before: Path) -> None:
    """Write the run; add the original study.toml if it describes the same study."""
    with writing(folder):
        _check_empty(folder)  # another process may have written since the first check
        for kept in (before / _TOML, before / "before" / _TOML):
            if kept.is_file():
                text = kept.read_bytes()
                write_atomically(folder / "before" / _TOML, text)
                if run.membership and run.study == run.membership.before.study:
                    write_atomically(folder / _TOML, text)
                break
        run.save(folder)
