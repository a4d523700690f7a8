"""The run folder: a finished run as files that people and programs can read.

study.json       the study, exactly; study.toml beside it is what a person wrote
policy.json      the learned policy, unless it is a rule in code
values.csv       values on held-out rows, by policy and client
gains.csv        paired gains of the learned policy
improvements.csv paired gains of every policy over what was done
personal.csv     paired gains of clients' personal policies, where they have some
outcomes.csv     what further outcomes come to, by policy and client, where there are guardrails
guardrails.csv   whether each policy keeps to each guardrail
splits.csv       the same three as each split of the rows said by itself, where there were several
rounds.jsonl     every exchange: who answered, who refused, how many bytes
leaves.csv       of a tree: who ends in each leaf, and what each action is worth there
mixture.json     how the weights were found, where they were not agreed
diagnosis.json   where clients differ, and what joining is worth, if the study asks
budget.json      what the policy gains and spends at prices, where there is a budget
target.json      what the policy is worth at a site without outcomes, where the study has one
reliance.json    what would come out without single clients, and who contradicts itself
sums.npz         the clients' sums, from which other mixtures can be solved, and descriptions
newcomers.npz    what a client that joins later is scored and added with, where one can join
membership.json  who joined or left since, and who says what of the policy that came of it
before/          then the run as it was before, without sums or single answers of those who left
run.json         what was chosen, for whom, with which versions; written last
personal/        policies of single clients, of those who share theirs
exchanges/       the journal, from which a killed run goes on; of further splits in split-2/, …
progress.jsonl   over a network, while a run goes on: its exchanges so far
failed.txt       over a network: why there is no result
.lock            while a run writes here: which process that is
"""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from fedopl.base.errors import FedoplError, StorageError
from fedopl.base.files import occupied, write_atomically
from fedopl.policies.kinds import load_policy
from fedopl.policies.policy import policy_json
from fedopl.results.files.sums_file import load_newcomers, load_sums, newcomers_npz, sums_npz
from fedopl.results.files.table_files import TEXT_FILES, json_text
from fedopl.results.membership import Change, Membership, Valuation
from fedopl.results.record import Record
from fedopl.results.value_tables import TABLES, PolicyTable
from fedopl.study.study import Study

_FORMAT, _VERSION = "fedopl-run", 2
_NEWCOMERS, _MEMBERSHIP, _BEFORE = "newcomers.npz", "membership.json", "before/run.json"
FAILURE, LOCK, PERSONAL_FOLDER = "failed.txt", ".lock", "personal"
PROGRESS = "progress.jsonl"
_PACKAGES = ("fedopl", "numpy", "pyarrow", "pydantic", "scikit-learn", "scipy")
# Of the membership; the earlier run has a folder of its own.
_CHANGES: dict[str, TypeAdapter[Any]] = {
    "changes": TypeAdapter(tuple[Change, ...]),
    "valuations": TypeAdapter(tuple[Valuation, ...]),
}

Content = TypeVar("Content")


def save_record(record: Record, folder: Path, private: Mapping[str, bytes] | None = None) -> None:
    """Write the record; `run.json` comes last, so if it exists, all other files exist.

    `private` files are written with it. Only their owner can read them; the same holds for clients'
    sums.
    """
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    earlier = {}
    if record.membership:
        earlier[_BEFORE] = _write(record.membership.before, folder / "before", {}, {})
    _write(record, folder, private or {}, earlier, finished=finished)


def _write(
    record: Record,
    folder: Path,
    private: Mapping[str, bytes],
    earlier: Mapping[str, bytes],
    **when: str,
) -> bytes:
    """Write all files of a record, and return the content of `run.json`."""
    contents = {name: text.encode() for name, text in _texts(record).items()}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    for_its_owner = {"sums.npz": sums_npz(record), **private}
    if record.for_newcomers:
        for_its_owner[_NEWCOMERS] = newcomers_npz(record.for_newcomers)
    for name, content in for_its_owner.items():
        write_atomically(folder / name, content, mode=0o600)
    contents |= {**for_its_owner, **earlier}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    summary = _summary(record, hashes, when).encode()
    write_atomically(folder / "run.json", summary)
    return summary


def shared_personal(folder: Path, client: str) -> Path:
    """The path of a client's personal policy, if the client shares it."""
    return folder / PERSONAL_FOLDER / f"{client}.json"


def writing(folder: Path) -> AbstractContextManager[None]:
    """A context in which no other run writes into this folder; an error if one does."""
    return occupied(folder, LOCK, "wait until it has ended, or choose another folder")


def load_record(folder: Path) -> Record:
    """The record that was saved in this folder."""
    summary = _read(folder / "run.json", json.loads)
    if not isinstance(summary, dict) or summary.get("format") != _FORMAT:
        raise StorageError(f"{folder / 'run.json'}: is not a run saved by fedopl")
    if summary.get("version") != _VERSION:
        raise StorageError(
            f"{folder / 'run.json'}: expected version {_VERSION}, came {summary.get('version')!r}; "
            "load it with the fedopl that saved it"
        )
    _check_files(folder, summary)
    study = _read(folder / "study.json", Study.model_validate_json)
    if study.digest.hex() != summary.get("study"):
        raise StorageError(f"{folder / 'study.json'}: was changed since the run; its hash differs")
    try:
        return Record(
            study=study,
            policy=load_policy(folder / "policy.json") if summary["has_policy"] else None,
            chosen=summary["chosen"],
            best_arm=summary["best_arm"],
            mixture=summary["mixture"],
            rows=summary["rows"],
            clipped=summary.get("clipped", {}),
            row_weights=summary.get("row_weights"),
            doubt_then=summary.get("doubt_then"),
            **load_sums(folder / "sums.npz", study, summary),
            **_who_may_change(folder, study, summary["files"]),
            **_tables(folder, study, summary["files"]),
        )
    except (KeyError, TypeError):
        raise StorageError(f"{folder / 'run.json'}: a field is missing") from None


def _tables(folder: Path, study: Study, files: Mapping[str, str]) -> dict[str, Any]:
    """What text files say; tables know who is an aggregator."""
    text_files = ((name, file) for name, file in TEXT_FILES.items() if name in files)
    found = {file.field: _read(folder / name, file.read) for name, file in text_files}
    return {
        name: one.with_regions(study.aggregators) if isinstance(one, PolicyTable) else one
        for name, one in found.items()
    }


def _who_may_change(folder: Path, study: Study, files: Mapping[str, str]) -> dict[str, Any]:
    """What newcomers need, and which clients joined or left since, if there is anything."""
    found: dict[str, Any] = {}
    if _NEWCOMERS in files:
        found["for_newcomers"] = load_newcomers(folder / _NEWCOMERS, study)
    if _MEMBERSHIP in files:
        before = load_record(folder / "before")
        found["membership"] = Membership(before=before, **_read(folder / _MEMBERSHIP, _changes))
    return found


def _changes(text: str) -> dict[str, Any]:
    content = json.loads(text)
    return {name: kind.validate_python(content[name]) for name, kind in _CHANGES.items()}


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished run."""
    return (folder / "run.json").is_file()


def _texts(record: Record) -> dict[str, str]:
    """The text files of this record, by name, without empty ones."""
    texts = {"study.json": record.study.model_dump_json(indent=1) + "\n"}
    for name, file in TEXT_FILES.items():
        content = getattr(record, file.field)
        if content or file.field in TABLES:
            texts[name] = file.write(content)
    if record.policy:
        texts["policy.json"] = policy_json(record.policy)
    if record.membership:
        told = {n: kind.dump_python(getattr(record.membership, n)) for n, kind in _CHANGES.items()}
        texts[_MEMBERSHIP] = json_text(told)
    return texts


def _summary(record: Record, hashes: dict[str, str], when: Mapping[str, str]) -> str:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": record.study.name,
        "study": record.study.digest.hex(),
        "seed": record.study.seed,
        "verdict": record.verdict,
        "chosen": record.chosen,
        "best_arm": record.best_arm,
        **({"guardrails": _guardrails(record)} if record.guardrails else {}),
        "has_policy": record.policy is not None,
        "mixture": record.mixture,
        "rows": record.rows,
        **({"row_weights": record.row_weights} if record.row_weights else {}),
        **({"clipped": record.clipped} if record.clipped else {}),
        "clients": record.statistics.clients,
        "searched": record.tree.clients if record.tree else None,
        "described": sorted(record.described.by_client) if record.described else None,
        "fitted": sorted(record.fitted),
        "interactions": sorted(record.interactions),
        **({"doubt_then": record.doubt_then} if record.doubt_then is not None else {}),
        **when,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "files": hashes,
    }
    return json_text(content)


def _guardrails(record: Record) -> dict[str, dict[str, str]]:
    """For each guardrail, whether each policy keeps it."""
    return {
        name: {row.policy: row.verdict for row in record.guardrails.rows if row.guardrail == name}
        for name in record.study.guardrails
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _check_files(folder: Path, summary: dict[str, Any]) -> None:
    """Check that every file of the run is unchanged since it was written."""
    for name, expected in dict(summary.get("files") or {}).items():
        path = folder / name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
        if found != expected:
            raise StorageError(f"{path}: was changed or cut off since it was written")


def _read(path: Path, parse: Callable[[str], Content]) -> Content:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read: {error.strerror}; expected the folder of a finished run"
        ) from None
    except (ValueError, KeyError, TypeError, FedoplError):
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
