"""sums.npz: clients' sums and descriptions, from which policies for other mixtures are solved."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.messages.evaluation.description import Description
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.message import Message
from fedopl.policies.trees.grid import Grid
from fedopl.results.descriptions import Descriptions
from fedopl.results.record import Record
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.study.study import Study

_Answer = TypeVar("_Answer", bound=Message)


class Sums(NamedTuple):
    """What the file holds."""

    statistics: ScoreStatistics
    described: Descriptions | None
    tree: TreeStatistics | None


def sums_npz(record: Record) -> bytes:
    """Arrays by the client's place in sorted order: names may hold what an archive may not."""
    sums = record.statistics.sums
    arrays = _arrays("sums", [sums[name] for name in sorted(sums)])
    if described := record.described:
        arrays["cuts"] = described.cuts
        arrays |= _arrays("told", [described.by_client[n] for n in sorted(described.by_client)])
    if tree := record.tree:
        arrays |= {f"grid.{place}": np.array(cuts) for place, cuts in enumerate(tree.grid.cuts)}
        arrays["grid.levels"] = np.array(tree.grid.is_level)
        arrays |= {f"cells.{k}": tree.cells[name] for k, name in enumerate(tree.clients)}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def load_sums(path: Path, study: Study, summary: Mapping[str, Any]) -> Sums:
    """What was written; `summary` names the clients, in the order of their places."""
    clients, described = summary["clients"], summary["described"]
    searched, lost = summary["searched"], summary["lost"]
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            sums = _answers(arrays, "sums", ScoreSums, study, clients)
            return Sums(
                ScoreStatistics(study=study, sums=sums),
                _described(arrays, study, described),
                _tree(arrays, study, searched, lost),
            )
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None


def _described(
    arrays: Mapping[str, Any], study: Study, clients: Sequence[str] | None
) -> Descriptions | None:
    if clients is None:
        return None
    by_client = _answers(arrays, "told", Description, study, clients)
    return Descriptions(cuts=arrays["cuts"], by_client=by_client)


def _tree(
    arrays: Mapping[str, Any],
    study: Study,
    clients: Sequence[str] | None,
    lost: Mapping[str, float],
) -> TreeStatistics | None:
    if clients is None:
        return None
    is_level = tuple(bool(level) for level in arrays["grid.levels"])
    cuts = tuple(tuple(arrays[f"grid.{k}"].tolist()) for k in range(len(is_level)))
    cells = {name: arrays[f"cells.{k}"] for k, name in enumerate(clients)}
    return TreeStatistics(study=study, grid=Grid(cuts, is_level), cells=cells, lost=dict(lost))


def _arrays(part: str, answers: Sequence[Message]) -> dict[str, Any]:
    return {
        f"{part}.{place}.{name}": getattr(answer, name)
        for place, answer in enumerate(answers)
        for name in _fields(type(answer))
    }


def _answers(
    arrays: Mapping[str, Any],
    part: str,
    message: type[_Answer],
    study: Study,
    clients: Sequence[str],
) -> dict[str, _Answer]:
    return {
        client: message(
            study=study.digest,
            exchange=0,
            **{name: arrays[f"{part}.{place}.{name}"] for name in _fields(message)},
        )
        for place, client in enumerate(clients)
    }


def _fields(message: type[Message]) -> list[str]:
    """All but the envelope: whose study and which exchange it was."""
    return [field.name for field in fields(message) if field.name not in ("study", "exchange")]
