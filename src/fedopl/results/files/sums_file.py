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
from fedopl.results.sums.taken_rows import Taken, TakenRows
from fedopl.results.sums.term_choice import TermChoice
from fedopl.results.sums.tree_statistics import LeafDoubts, ThresholdsMoved, TreeStatistics
from fedopl.study.study import Study

_Answer = TypeVar("_Answer", bound=Message)
_DESCRIPTIONS = "told"  # the prefix that files written by earlier versions have


def sums_npz(record: Record) -> bytes:
    """Arrays by the client's sorted position, since names may hold what an archive may not."""
    statistics = record.statistics
    arrays = _of_answers("sums", statistics.sums)
    arrays |= _of_clients("borrowed", statistics.borrowed, statistics.clients)
    for place, name in enumerate(statistics.clients):
        if statistics.taken and name in statistics.taken.by_client:  # if the study is cautious
            sums, squared = statistics.taken.over_folds(name)
            arrays |= {f"taken.{place}": sums[None], f"taken.{place}.squared": squared[None]}
    if described := record.described:
        arrays["cuts"] = described.cuts
        arrays |= _of_answers(_DESCRIPTIONS, described.by_client)
    if choice := statistics.choice:
        arrays |= {"terms.penalties": choice.penalties, "terms.used": np.array(choice.n_terms)}
        arrays["terms.losses"] = np.array(list(choice.losses.values()))
    arrays |= _of_answers("fit", record.fitted)
    arrays |= _of_answers("interactions", record.interactions)
    if tree := record.tree:
        arrays |= {f"grid.{place}": np.array(cuts) for place, cuts in enumerate(tree.grid.cuts)}
        arrays["grid.levels"] = np.array(tree.grid.is_level)
        arrays |= _of_clients("cells", tree.cells, tree.clients)
        if tree.closer:  # the second look at thresholds, if there was one
            look = tree.closer.look
            arrays |= {"near.tree": as_array(look.root), "near.cuts": look.near}
            arrays |= _of_clients("near.gains", tree.closer.gains, tree.clients)
        if tree.doubts:
            arrays |= _of_clients("doubts", tree.doubts.cells, tree.clients)
    return _npz(arrays)


def load_sums(path: Path, study: Study, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record; `summary` names the clients, in the order of their positions."""
    clients, described = summary["clients"], summary["described"]
    searched = summary["searched"]
    found: dict[str, Any] = {"described": None}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            # If there are only sums of all clients, they cover everybody's rows.
            told = summary["rows"] if clients == [GLOBAL] else clients
            rows = {name: summary["rows"][name] for name in told}
            found["statistics"] = ScoreStatistics(
                study=study,
                sums=_answers_in(arrays, "sums", ScoreSums, study, clients),
                rows=rows,
                choice=_choice(arrays, study),
                borrowed=_told_in(arrays, "borrowed", clients),
                taken=_taken(arrays, study, clients),
            )
            if described is not None:
                by_client = _answers_in(arrays, _DESCRIPTIONS, Description, study, described)
                found["described"] = Descriptions(cuts=arrays["cuts"], by_client=by_client)
            # Runs of earlier versions did not ask clients.
            fitted = summary.get("fitted", ())
            found["fitted"] = _answers_in(arrays, "fit", ModelFit, study, fitted)
            told_by = summary.get("interactions", ())
            found["interactions"] = _answers_in(
                arrays, "interactions", InteractionsLeft, study, told_by
            )
            if searched is not None:
                found["tree"] = _tree(arrays, study, searched, found["statistics"].taken)
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
    return found


def _taken(arrays: Mapping[str, Any], study: Study, clients: Sequence[str]) -> TakenRows | None:
    if not (study.is_cautious or study.doubts_leaves):
        return None
    places = {name: f"taken.{place}" for place, name in enumerate(clients)}
    told = {name: key for name, key in places.items() if key in arrays}
    return TakenRows({n: Taken(arrays[key], arrays[f"{key}.squared"]) for n, key in told.items()})


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


def _tree(
    arrays: Mapping[str, Any], study: Study, searched: Sequence[str], taken: TakenRows | None
) -> TreeStatistics:
    """Sums over a grid, with a second look at thresholds and doubts, if there were any."""
    is_level = tuple(map(bool, arrays["grid.levels"]))
    cuts = tuple(tuple(arrays[f"grid.{k}"].tolist()) for k in range(len(is_level)))
    grid, closer, doubts = Grid(cuts, is_level), None, None
    if "near.tree" in arrays:
        root = from_array(arrays["near.tree"], study.columns, range(study.n_actions))
        look = SecondLook(root, grid, arrays["near.cuts"])
        closer = ThresholdsMoved(look, _told_in(arrays, "near.gains", searched))
    if taken is not None and study.doubts_leaves:
        doubted = {name: arrays[f"doubts.{k}"] for k, name in enumerate(searched)}
        doubts = LeafDoubts(caution=study.caution, cells=doubted, taken=taken)
    cells = {name: arrays[f"cells.{k}"] for k, name in enumerate(searched)}
    return TreeStatistics(study=study, grid=grid, cells=cells, closer=closer, doubts=doubts)


def _of_clients(part: str, told: Mapping[str, Any], clients: Sequence[str]) -> dict[str, Any]:
    """What these clients told, by the name of the part and position; some may not have told."""
    return {f"{part}.{place}": told[name] for place, name in enumerate(clients) if name in told}


def _told_in(arrays: Mapping[str, Any], part: str, clients: Sequence[str]) -> dict[str, Any]:
    """The same by client, of those that told."""
    places = {name: f"{part}.{place}" for place, name in enumerate(clients)}
    return {name: arrays[key] for name, key in places.items() if key in arrays}


def _of_answers(part: str, answers: Mapping[str, Message]) -> dict[str, Any]:
    """The numbers of these answers, by the name of the part, the client's position and field."""
    return {
        f"{part}.{place}.{name}": getattr(answer, name)
        for place, (_, answer) in enumerate(sorted(answers.items()))
        for name in _fields(type(answer))
    }


def _answers_in(
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
        **_of_answers("total", {"": kept.total} if kept.total else {}),
        **_of_answers("joined", kept.joined),
        **_of_answers("models", {"": kept.models} if kept.models else {}),
        **_of_answers("by_fold", kept.by_fold),
    }
    return _npz(arrays)


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
            total = _answers_in(arrays, "total", OutcomeSums, study, has_total)
            has_models = ("models",) if "models.0.models" in arrays else ()
            models = _answers_in(arrays, "models", SumScores, study, has_models)
            return ForNewcomers(
                counted=counted,
                total=total.get("total"),
                joined=_answers_in(arrays, "joined", OutcomeSums, study, joined),
                models=models.get("models"),
                by_fold=_answers_in(arrays, "by_fold", ScoreSumsByFold, study, by_fold),
                cells={name: arrays[f"cells.{place}"] for place, name in enumerate(searched)},
            )
    except Exception:  # whatever a damaged archive makes its reader say
        raise StorageError(f"{path}: was changed or cut off since it was written") from None


def _npz(arrays: Mapping[str, Any]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _names(names: Mapping[str, object] | Sequence[str]) -> "np.ndarray[Any, np.dtype[np.str_]]":
    return np.array(list(names), dtype=np.str_)
