"""sums.npz: clients' sums and descriptions, from which policies for other mixtures are solved."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.description import Description
from fedopl.messages.evaluation.interactions_left import InteractionsLeft
from fedopl.messages.evaluation.model_fit import ModelFit
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums import ScoreSums, ScoreSumsByFold, SumScores
from fedopl.messages.message import Message
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import as_array, from_array
from fedopl.policies.trees.second_look import SecondLook
from fedopl.results.descriptions import Descriptions
from fedopl.results.record import Record
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.results.sums.term_choice import TermChoice
from fedopl.results.sums.tree_statistics import LeafDoubts, ThresholdsMoved, TreeStatistics
from fedopl.study.study import Study

_Answer = TypeVar("_Answer", bound=Message)
_DESCRIPTIONS = "told"  # the prefix that files written by earlier versions have


def sums_npz(record: Record) -> bytes:
    """Arrays by the client's sorted position, since names may hold what an archive may not."""
    sums = record.statistics.sums
    arrays = arrays_of("sums", [sums[name] for name in sorted(sums)])
    borrowed = record.statistics.borrowed
    places = {f"borrowed.{place}": name for place, name in enumerate(sorted(sums))}
    arrays |= {key: borrowed[name] for key, name in places.items() if name in borrowed}
    arrays |= _taken_arrays(record.statistics)
    if described := record.described:
        arrays["cuts"] = described.cuts
        by_client = described.by_client
        arrays |= arrays_of(_DESCRIPTIONS, [by_client[name] for name in sorted(by_client)])
    if choice := record.statistics.choice:
        arrays |= {"terms.penalties": choice.penalties, "terms.used": np.array(choice.n_terms)}
        arrays["terms.losses"] = np.array(list(choice.losses.values()))
    arrays |= arrays_of("fit", [record.fitted[name] for name in sorted(record.fitted)])
    left = record.interactions
    arrays |= arrays_of("interactions", [left[name] for name in sorted(left)])
    if tree := record.tree:
        arrays |= {f"grid.{place}": np.array(cuts) for place, cuts in enumerate(tree.grid.cuts)}
        arrays["grid.levels"] = np.array(tree.grid.is_level)
        arrays |= {f"cells.{k}": tree.cells[name] for k, name in enumerate(tree.clients)}
        arrays |= _closer_arrays(tree)
        if tree.doubts:
            told = tree.doubts.cells
            arrays |= {f"doubts.{k}": told[name] for k, name in enumerate(tree.clients)}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def load_sums(path: Path, study: Study, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record; `summary` names the clients, in the order of their positions."""
    clients, described = summary["clients"], summary["described"]
    searched = summary["searched"]
    found: dict[str, Any] = {"described": None}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            sums = answers_in(arrays, "sums", ScoreSums, study, clients)
            choice = _choice(arrays, study)
            # If there are only sums of all clients, they cover everybody's rows.
            told = summary["rows"] if clients == [GLOBAL] else clients
            rows = {name: summary["rows"][name] for name in told}
            places = {name: f"borrowed.{place}" for place, name in enumerate(clients)}
            borrowed = {name: arrays[key] for name, key in places.items() if key in arrays}
            found["statistics"] = ScoreStatistics(
                study=study,
                sums=sums,
                rows=rows,
                choice=choice,
                borrowed=borrowed,
                taken=_taken(arrays, study, clients),
            )
            if described is not None:
                by_client = answers_in(arrays, _DESCRIPTIONS, Description, study, described)
                found["described"] = Descriptions(cuts=arrays["cuts"], by_client=by_client)
            # Runs of earlier versions did not ask clients.
            fitted = summary.get("fitted", ())
            found["fitted"] = answers_in(arrays, "fit", ModelFit, study, fitted)
            told_by = summary.get("interactions", ())
            found["interactions"] = answers_in(
                arrays, "interactions", InteractionsLeft, study, told_by
            )
            if searched is not None:
                cells = {name: arrays[f"cells.{k}"] for k, name in enumerate(searched)}
                grid = _grid(arrays)
                found["tree"] = TreeStatistics(
                    study=study,
                    grid=grid,
                    cells=cells,
                    closer=_closer(arrays, study, grid, searched),
                    doubts=_doubts(arrays, study, searched, found["statistics"].taken),
                )
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
    return found


def _taken_arrays(statistics: ScoreStatistics) -> dict[str, Any]:
    """Sums over the rows that took each action, of all folds, if the study is cautious."""
    arrays: dict[str, Any] = {}
    taken = statistics.taken
    for place, name in enumerate(statistics.clients):
        if taken and name in taken.sums:
            sums, squared = taken.over_folds(name)
            arrays |= {f"taken.{place}": sums[None], f"taken.{place}.squared": squared[None]}
    return arrays


def _taken(arrays: Mapping[str, Any], study: Study, clients: Sequence[str]) -> TakenRows | None:
    if not (study.is_cautious or study.doubts_leaves):
        return None
    places = {name: f"taken.{place}" for place, name in enumerate(clients)}
    told = {name: key for name, key in places.items() if key in arrays}
    return TakenRows(
        sums={name: arrays[key] for name, key in told.items()},
        squared_weights={name: arrays[f"{key}.squared"] for name, key in told.items()},
    )


def _choice(arrays: Mapping[str, Any], study: Study) -> TermChoice | None:
    """The terms that the run used, if it had a basis to choose from."""
    if study.terms is None or "terms.used" not in arrays:
        return None
    n_terms = int(arrays["terms.used"])
    losses = dict(zip(study.terms.families, arrays["terms.losses"].tolist(), strict=False))
    taken = [family for family in losses if study.terms.sizes[family] == n_terms]
    return TermChoice(
        n_terms=n_terms,
        penalties=arrays["terms.penalties"],
        losses=losses,
        family=taken[0] if taken else None,
    )


def _grid(arrays: Mapping[str, Any]) -> Grid:
    is_level = tuple(bool(level) for level in arrays["grid.levels"])
    return Grid(tuple(tuple(arrays[f"grid.{k}"].tolist()) for k in range(len(is_level))), is_level)


def _closer_arrays(tree: TreeStatistics) -> dict[str, Any]:
    """The second look at thresholds, if there was one."""
    if tree.closer is None:
        return {}
    gains = {
        f"near.gains.{k}": tree.closer.gains[name]
        for k, name in enumerate(tree.clients)
        if name in tree.closer.gains
    }
    look = tree.closer.look
    return {"near.tree": as_array(look.root), "near.cuts": look.near, **gains}


def _closer(
    arrays: Mapping[str, Any], study: Study, grid: Grid, searched: Sequence[str]
) -> ThresholdsMoved | None:
    if "near.tree" not in arrays:
        return None
    root = from_array(arrays["near.tree"], study.columns, range(study.n_actions))
    keys = {name: f"near.gains.{k}" for k, name in enumerate(searched)}
    gains = {name: arrays[key] for name, key in keys.items() if key in arrays}
    return ThresholdsMoved(SecondLook(root, grid, arrays["near.cuts"]), gains)


def _doubts(
    arrays: Mapping[str, Any], study: Study, searched: Sequence[str], taken: TakenRows | None
) -> LeafDoubts | None:
    """The uncertainty of sums over cells, if the study is cautious."""
    if taken is None or not study.doubts_leaves:
        return None
    cells = {name: arrays[f"doubts.{k}"] for k, name in enumerate(searched)}
    return LeafDoubts(caution=study.caution, cells=cells, taken=taken)


def arrays_of(part: str, answers: Sequence[Message]) -> dict[str, Any]:
    """The numbers of these answers, by the name of the part, position and field."""
    return {
        f"{part}.{place}.{name}": getattr(answer, name)
        for place, answer in enumerate(answers)
        for name in _fields(type(answer))
    }


def answers_in(
    arrays: Mapping[str, Any],
    part: str,
    message: type[_Answer],
    study: Study,
    clients: Sequence[str],
) -> dict[str, _Answer]:
    """The answers stored under this name, by client, in the order of their positions."""
    return {
        client: message(
            study=study.digest,
            exchange=0,
            **{name: arrays[f"{part}.{place}.{name}"] for name in _fields(message)},
        )
        for place, client in enumerate(clients)
    }


def _fields(message: type[Message]) -> list[str]:
    """All fields except the envelope with the study and the exchange."""
    return [field.name for field in fields(message) if field.name not in ("study", "exchange")]


def newcomers_npz(kept: ForNewcomers) -> bytes:
    """Arrays by the client's position in lists of names."""
    arrays: dict[str, Any] = {
        "counted": _names(kept.counted),
        "joined": _names(kept.joined),
        "by_fold": _names(kept.by_fold),
        "searched": _names(kept.cells),
        **{f"cells.{place}": own for place, own in enumerate(kept.cells.values())},
        **arrays_of("total", [kept.total] if kept.total else []),
        **arrays_of("joined", list(kept.joined.values())),
        **arrays_of("models", [kept.models] if kept.models else []),
        **arrays_of("by_fold", list(kept.by_fold.values())),
    }
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def load_newcomers(path: Path, study: Study) -> ForNewcomers:
    """The stored data for newcomers."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            counted, joined, by_fold = (
                tuple(map(str, arrays[names])) for names in ("counted", "joined", "by_fold")
            )
            # Runs of earlier versions have none of these.
            searched = map(str, arrays["searched"]) if "searched" in arrays else ()
            has_total = ("total",) if "total.0.sums" in arrays else ()
            total = answers_in(arrays, "total", OutcomeSums, study, has_total)
            has_models = ("models",) if "models.0.models" in arrays else ()
            models = answers_in(arrays, "models", SumScores, study, has_models)
            return ForNewcomers(
                counted=counted,
                total=total.get("total"),
                joined=answers_in(arrays, "joined", OutcomeSums, study, joined),
                models=models.get("models"),
                by_fold=answers_in(arrays, "by_fold", ScoreSumsByFold, study, by_fold),
                cells={name: arrays[f"cells.{place}"] for place, name in enumerate(searched)},
            )
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None


def _names(names: Mapping[str, object] | Sequence[str]) -> "np.ndarray[Any, np.dtype[np.str_]]":
    return np.array(list(names), dtype=np.str_)
