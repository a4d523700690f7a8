"""The run folder: a finished run as files that people and programs can read.

study.json     the study, exactly; study.toml beside it is what a person wrote
policy.json    the learned policy, unless it is a rule in code
values.csv     values on held-out rows, by policy and client
gains.csv      paired gains of the learned policy
rounds.jsonl   every exchange: who answered, who refused, how many bytes
leaves.csv     of a tree: who ends in each leaf, and what each action is worth there
mixture.json   how the weights were found, where they were not agreed
diagnosis.json where clients differ, and what joining is worth, if the study asks
sums.npz       the clients' sums, from which other mixtures can be solved, and descriptions
run.json       what was chosen, for whom, with which versions; written last
exchanges/     the journal, from which a killed run goes on
failed.txt     over a network: why there is no result
"""

import csv
import hashlib
import io
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, astuple, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedopl.base.errors import FedoplError, StorageError
from fedopl.base.estimates import Estimate
from fedopl.base.files import write_atomically
from fedopl.messages.evaluation.description import Description
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.message import Message
from fedopl.policies.kinds import load_policy
from fedopl.policies.saving import policy_json
from fedopl.policies.trees.grid import Grid
from fedopl.results.descriptions import Descriptions
from fedopl.results.diagnosis_file import (
    diagnosis_from,
    diagnosis_json,
    search_from,
    search_json,
)
from fedopl.results.leaf_rows import LeafRow
from fedopl.results.record import Record
from fedopl.results.round import Round
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.results.value_tables import GainRow, GainTable, ValueRow, ValueTable
from fedopl.study.study import Study

FORMAT, VERSION = "fedopl-run", 1
FAILURE = "failed.txt"
PACKAGES = ("fedopl", "numpy", "pyarrow", "pydantic", "scikit-learn", "scipy")
ESTIMATE = ("value", "standard_error", "n_rows", "degrees_of_freedom")

Found = TypeVar("Found")
Told = TypeVar("Told", bound=Message)


def save_record(record: Record, folder: Path, private: Mapping[str, bytes] | None = None) -> None:
    """Write the record; `run.json` comes last, so whoever finds it finds the rest.

    `private` files are written with it, to be read by their owner alone.
    """
    files = {
        "study.json": record.study.model_dump_json(indent=1) + "\n",
        "values.csv": _csv(
            ("policy", "client", *ESTIMATE, "level", "low", "high"),
            (
                (r.policy, r.client, *astuple(r.estimate), r.level, *r.interval)
                for r in record.values.rows
            ),
        ),
        "gains.csv": _csv(
            ("against", "client", *ESTIMATE, "low", "high"),
            ((r.against, r.client, *astuple(r.estimate), *r.interval) for r in record.gains.rows),
        ),
        "rounds.jsonl": "".join(json.dumps(asdict(latest)) + "\n" for latest in record.rounds),
    }
    if record.leaves:
        files["leaves.csv"] = _csv(
            ("leaf", "share", "action", *ESTIMATE),
            (
                (r.leaf, r.share, r.action, *(astuple(r.estimate) if r.estimate else [""] * 4))
                for r in record.leaves
            ),
        )
    if record.search:
        files["mixture.json"] = search_json(record.search)
    if record.diagnosis:
        files["diagnosis.json"] = diagnosis_json(record.diagnosis)
    if record.policy:
        files["policy.json"] = policy_json(record.policy)
    contents = {name: text.encode() for name, text in files.items()} | {"sums.npz": _sums(record)}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    for name, content in (private or {}).items():
        write_atomically(folder / name, content, mode=0o600)
    contents |= private or {}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    write_atomically(folder / "run.json", _summary(record, hashes).encode())


def load_record(folder: Path) -> Record:
    """The record that was saved in this folder."""
    summary = _read(folder / "run.json", json.loads)
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise StorageError(f"{folder / 'run.json'}: is not a run saved by fedopl")
    if summary.get("version") != VERSION:
        raise StorageError(
            f"{folder / 'run.json'}: expected version {VERSION}, came {summary.get('version')!r}; "
            "load it with the fedopl that saved it"
        )
    _check_files(folder, summary)
    study = _read(folder / "study.json", Study.model_validate_json)
    if study.digest.hex() != summary.get("study"):
        raise StorageError(f"{folder / 'study.json'}: was changed since the run; its hash differs")
    sums, described = _load_sums(folder / "sums.npz", study, summary)
    try:
        return Record(
            study=study,
            policy=load_policy(folder / "policy.json") if summary["has_policy"] else None,
            chosen=summary["chosen"],
            best_arm=summary["best_arm"],
            mixture=summary["mixture"],
            rows=summary["rows"],
            values=ValueTable(_read(folder / "values.csv", _value_rows)),
            gains=GainTable(_read(folder / "gains.csv", _gain_rows)),
            rounds=_read(folder / "rounds.jsonl", _rounds),
            statistics=ScoreStatistics(study=study, sums=sums),
            described=described,
            tree=_load_tree(folder / "sums.npz", study, summary),
            leaves=_read_if(folder / "leaves.csv", _leaf_rows, summary) or (),
            search=_read_if(folder / "mixture.json", search_from, summary),
            diagnosis=_read_if(folder / "diagnosis.json", diagnosis_from, summary),
        )
    except (KeyError, TypeError):
        raise StorageError(f"{folder / 'run.json'}: a field is missing") from None


def _check_files(folder: Path, summary: dict[str, Any]) -> None:
    """Every file of the run has to be what was written."""
    for name, expected in dict(summary.get("files") or {}).items():
        path = folder / name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
        if found != expected:
            raise StorageError(f"{path}: was changed or cut off since it was written")


def is_finished(folder: Path) -> bool:
    """Whether a run ended here."""
    return (folder / "run.json").is_file()


# --- writing -----------------------------------------------------------------------------------


def _csv(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _summary(record: Record, hashes: dict[str, str]) -> str:
    content = {
        "format": FORMAT,
        "version": VERSION,
        "name": record.study.name,
        "study": record.study.digest.hex(),
        "seed": record.study.seed,
        "verdict": record.verdict,
        "chosen": record.chosen,
        "best_arm": record.best_arm,
        "has_policy": record.policy is not None,
        "mixture": record.mixture,
        "rows": record.rows,
        "clients": sorted(record.statistics.sums),
        "searched": sorted(record.tree.cells) if record.tree else None,
        "lost": record.tree.lost if record.tree else None,
        "described": sorted(record.described.by_client) if record.described else None,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "files": hashes,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _sums(record: Record) -> bytes:
    """Arrays by client position and field; names may hold what a file in an archive may not."""
    arrays: dict[str, Any] = {}
    sums = record.statistics.sums
    for position, name in enumerate(sorted(sums)):
        arrays |= {f"sums.{position}.{f}": getattr(sums[name], f) for f in _arrays(ScoreSums)}
    if record.described:
        arrays["cuts"] = record.described.cuts
        for position, (_, told) in enumerate(sorted(record.described.by_client.items())):
            arrays |= {f"told.{position}.{f}": getattr(told, f) for f in _arrays(Description)}
    if record.tree:
        arrays |= {f"grid.{k}": np.array(cuts) for k, cuts in enumerate(record.tree.grid.cuts)}
        arrays["grid.levels"] = np.array(record.tree.grid.is_level)
        for position, (_, cells) in enumerate(sorted(record.tree.cells.items())):
            arrays[f"cells.{position}"] = cells
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _arrays(message: type[Message]) -> list[str]:
    return [field.name for field in fields(message) if field.name not in ("study", "exchange")]


# --- reading -----------------------------------------------------------------------------------


def _read(path: Path, parse: Callable[[str], Found]) -> Found:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be read: {error.strerror}; expected the folder of a finished run"
        ) from None
    except (ValueError, KeyError, TypeError, FedoplError):
        raise StorageError(f"{path}: was changed or cut off since it was written") from None


def _read_if(path: Path, parse: Callable[[str], Found], summary: dict[str, Any]) -> Found | None:
    """What a file says, if the run wrote it."""
    return _read(path, parse) if path.name in summary["files"] else None


def _value_rows(text: str) -> tuple[ValueRow, ...]:
    return tuple(
        ValueRow(
            policy=row["policy"],
            client=row["client"],
            estimate=_estimate(row),
            level=float(row["level"]),
        )
        for row in csv.DictReader(io.StringIO(text))
    )


def _gain_rows(text: str) -> tuple[GainRow, ...]:
    return tuple(
        GainRow(against=row["against"], client=row["client"], estimate=_estimate(row))
        for row in csv.DictReader(io.StringIO(text))
    )


def _leaf_rows(text: str) -> tuple[LeafRow, ...]:
    return tuple(
        LeafRow(
            leaf=int(row["leaf"]),
            share=float(row["share"]),
            action=row["action"],
            estimate=_estimate(row) if row["value"] else None,
        )
        for row in csv.DictReader(io.StringIO(text))
    )


def _estimate(row: dict[str, str]) -> Estimate:
    return Estimate(
        value=float(row["value"]),
        standard_error=float(row["standard_error"]),
        n_rows=int(row["n_rows"]),
        degrees_of_freedom=int(row["degrees_of_freedom"]),
    )


def _rounds(text: str) -> tuple[Round, ...]:
    rounds = []
    for line in text.splitlines():
        content = json.loads(line)
        for name in ("asked", "answered", "silent"):
            content[name] = tuple(content[name])
        rounds.append(Round(**content))
    return tuple(rounds)


def _load_tree(path: Path, study: Study, summary: dict[str, Any]) -> TreeStatistics | None:
    if summary["searched"] is None:
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            is_level = tuple(bool(level) for level in arrays["grid.levels"])
            cuts = tuple(tuple(arrays[f"grid.{k}"].tolist()) for k in range(len(is_level)))
            cells = {name: arrays[f"cells.{k}"] for k, name in enumerate(summary["searched"])}
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
    grid, lost = Grid(cuts, is_level), dict(summary["lost"])
    return TreeStatistics(study=study, grid=grid, cells=cells, lost=lost)


def _load_sums(
    path: Path, study: Study, summary: dict[str, Any]
) -> tuple[dict[str, ScoreSums], Descriptions | None]:
    def told(message: type[Told], part: str, position: int) -> Told:
        content = {name: arrays[f"{part}.{position}.{name}"] for name in _arrays(message)}
        return message(study=study.digest, exchange=0, **content)

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            sums = {name: told(ScoreSums, "sums", k) for k, name in enumerate(summary["clients"])}
            if summary["described"] is None:
                return sums, None
            by_client = {
                name: told(Description, "told", k) for k, name in enumerate(summary["described"])
            }
            return sums, Descriptions(cuts=arrays["cuts"], by_client=by_client)
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
