"""How far the results of two folders of a job are apart: numbers that people use, and no others.

Policies, decisions, values, sums, what `run.json` says of them, and tables of the report. Hashes,
journals, ledgers and most words may differ.
"""

import csv
import html
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLES = (
    "values",
    "gains",
    "improvements",
    "personal",
    "outcomes",
    "guardrails",
    "splits",
    "leaves",
)
RESULT_FILES = {
    *("policy.json", "run.json", "mixture.json", "diagnosis.json", "budget.json", "target.json"),
    *("reliance.json", "sums.npz", "newcomers.npz", "report.html"),
    *("decided.csv", "decided.parquet"),
    *(f"{name}.csv" for name in TABLES),
}
# What run.json says of the study's hash, of versions and of times is left out.
NO_RESULTS = {"format", "version", "study", "finished", "python", "packages", "files"}
# Sections of a report about what was asked, told and set.
OF_THE_WAY = {"left", "privacy", "learning", "settings"}
NUMBER = re.compile(r"[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?")

MOST_PLACES = 6  # of a number that is shown rounded

# A place in a file → a number, or a text that may hold numbers, or an array.
Results = dict[str, Any]


def furthest_apart(before: Path, after: Path) -> list[tuple[str, float, str]]:
    """Each file of results that either folder of a job has: how far both are apart, and where."""
    found = sorted(
        {path.relative_to(folder) for folder in (before, after) for path in _result_files(folder)}
    )
    return [(str(path), *_furthest(before / path, after / path)) for path in found]


def _result_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        above = path.relative_to(folder).parts[:-1]
        if "clients" not in above and (path.name in RESULT_FILES or above[-1:] == ("personal",)):
            yield path


def _furthest(before: Path, after: Path) -> tuple[float, str]:
    """The largest difference of two files, and its place; infinite where they cannot be compared.

    Differences are relative to the larger number, and absolute where both are below 1.
    """
    if not (before.exists() and after.exists()):
        return math.inf, f"only {'before' if before.exists() else 'after'}"
    old, new = results_in(before), results_in(after)
    if other := sorted(old.keys() ^ new.keys()):
        return math.inf, f"{other[0]}: only {'before' if other[0] in old else 'after'}"
    apart = ((_apart(old[place], new[place]), place) for place in old)
    by, place = max(apart, default=(0.0, ""))
    return by, f"{place}: {_shown(old[place])} became {_shown(new[place])}" if by else ""


def _shown(value: object) -> str:
    return "" if isinstance(value, np.ndarray) else repr(value)[:80]


def _apart(old: Any, new: Any) -> float:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return _arrays_apart(old, new)
    if isinstance(old, str) and isinstance(new, str):
        return 0.0 if old == new else _texts_apart(old, new)
    if isinstance(old, float) and isinstance(new, float):
        return _arrays_apart(np.array([old]), np.array([new]))
    return math.inf


def _arrays_apart(old: np.ndarray, new: np.ndarray) -> float:
    if old.shape != new.shape:
        return math.inf
    if not (np.issubdtype(old.dtype, np.number) and np.issubdtype(new.dtype, np.number)):
        return 0.0 if np.array_equal(old, new) else math.inf
    finite = np.isfinite(old)
    if (finite != np.isfinite(new)).any() or not np.array_equal(
        old[~finite], new[~finite], equal_nan=True
    ):
        return math.inf
    was, now = old[finite].astype(float), new[finite].astype(float)
    scale = max(1.0, np.abs(was).max(initial=0), np.abs(now).max(initial=0))
    return float(np.abs(was - now).max(initial=0) / scale)


def _texts_apart(old: str, new: str) -> float:
    """The largest difference of numbers in texts that have the same words.

    A number that is shown rounded may be off by one in its last place.
    """
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return math.inf
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return max((_numbers_apart(was, now) for was, now in pairs), default=0.0)


def _numbers_apart(old: str, new: str) -> float:
    was, now = (float(text.replace(",", "").replace("−", "-")) for text in (old, new))
    places = min(len(text.partition(".")[2]) for text in (old, new))
    is_rounded = 0 < places <= MOST_PLACES and "e" not in old + new
    if is_rounded and abs(was - now) < 1.5 * 10.0**-places:
        return 0.0
    return _arrays_apart(np.array([was]), np.array([now]))


def results_in(path: Path) -> Results:
    """What a file of results says, by place."""
    return RESULT_READERS[path.suffix](path)


def _of_json(path: Path) -> Results:
    content = json.loads(path.read_text(encoding="utf-8"))
    if path.name == "run.json":
        content = {name: value for name, value in content.items() if name not in NO_RESULTS}
    return dict(_leaves(content))


def _leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict | list):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in pairs:
            yield from _leaves(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield place, float(content)
    else:
        yield place, str(content)


def _of_csv(path: Path) -> Results:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        f"row {number}, {name}": _cell(cell)
        for number, row in enumerate(rows, 1)
        for name, cell in row.items()
    }


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _of_parquet(path: Path) -> Results:
    from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


def _of_npz(path: Path) -> Results:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays}


def _of_html(path: Path) -> Results:
    """Cells of the tables of a report, and its key figures, without sections about the way."""
    found: Results = {}
    text = path.read_text(encoding="utf-8")
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        name = re.search(r'<h2 id="([^"]*)"', section)
        if name and name[1] not in OF_THE_WAY:
            cells = re.findall(r"<(?:td|th|dd)\b[^>]*>(.*?)</(?:td|th|dd)>", section, re.DOTALL)
            for place, cell in enumerate(cells):
                plain = html.unescape(re.sub(r"<[^>]*>", " ", cell))
                found[f"{name[1]}, cell {place}"] = " ".join(plain.split())
    return found


RESULT_READERS: dict[str, Callable[[Path], Results]] = {
    ".csv": _of_csv,
    ".html": _of_html,
    ".json": _of_json,
    ".npz": _of_npz,
    ".parquet": _of_parquet,
}
