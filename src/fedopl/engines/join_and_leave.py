"""Clients join or leave finished runs in this process, with rows in memory or in folders."""

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedopl.base.errors import OptionError, StorageError, StudyError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_client_name, quoted
from fedopl.client.client_file import read_client
from fedopl.client.disclosure.ledger import Ledger
from fedopl.client.disclosure.limits import as_limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.in_process import InProcess
from fedopl.engines.run import open_clients
from fedopl.engines.runs import Run, load_run
from fedopl.results.files.run_folder import LOCK, writing
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.membership.join_run import join_run
from fedopl.server.membership.solve_again import leave_run, require_open
from fedopl.study.joining_later import study_with, why_no_newcomer
from fedopl.study.study import Study

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
    run = Run.with_ledger(plain, ledger)
    return replace(run, solved_for_clients=before.solved_for_clients)


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
