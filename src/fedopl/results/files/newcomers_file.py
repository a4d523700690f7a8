"""newcomers.npz: what is needed to score and add a client that joins a finished run later."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.results.files.sums_file import answers_in, arrays_of
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.study.study import Study


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
