"""What the case studies share: a table read with care, paired differences, and where results go.

A script reads a public table that its user downloaded, runs the study, and writes `NAME.json` and
figures into a folder. `experiments/case_pages.py` puts them into docs/NAME.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from pyarrow import csv
from scipy import stats
from threadpoolctl import threadpool_limits

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedopl

# As in benchmarks/charts.py.
STYLE = {
    "svg.hashsalt": "fedopl",
    "svg.fonttype": "none",  # small files, and letters that can be searched for
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0b5fa5", "#d95f02", "#1b8a5a", "#7a3fa0", "#6b6b6b"


class CaseError(Exception):
    """The study cannot run; the text says why and what to do."""


@dataclass(frozen=True)
class Source:
    """Where a table comes from, and what has to be in it."""

    title: str
    how_to_get: str  # what to download, from where
    terms: str
    columns: tuple[str, ...]

    def read(self, path: Path) -> pa.Table:
        """The columns of a CSV file, perhaps with .gz; empty cells are missing values."""
        if path.is_dir():
            raise CaseError(f"{path}: is a folder; expected the file of the {self.title} itself")
        if not path.is_file():
            raise CaseError(
                f"{path}: there is no such file. This study needs the {self.title}, which is not "
                f"part of fedopl.\n{self.how_to_get}\nTerms: {self.terms}"
            )
        try:
            table = csv.read_csv(path, convert_options=_AS_WRITTEN)
        except (pa.ArrowInvalid, OSError) as error:
            raise CaseError(f"{path}: cannot be read as a CSV file: {error}") from None
        lacking = [name for name in self.columns if name not in table.column_names]
        if lacking:
            raise CaseError(
                f"{path}: has no column {', '.join(lacking)}; expected "
                f"{', '.join(self.columns)}.\n{self.how_to_get}"
            )
        if not table.num_rows:
            raise CaseError(f"{path}: has no rows")
        return table.select(self.columns)


_AS_WRITTEN = csv.ConvertOptions(strings_can_be_null=True, null_values=["", "NA"])


def numbers(table: pa.Table, column: str) -> np.ndarray:  # (n_rows,)
    """A column of numbers; NaN where one is missing."""
    try:
        found = table[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise CaseError(f"{column}: expected numbers: {error}") from None
    return np.asarray(found, dtype=float)


def labels(table: pa.Table, column: str) -> np.ndarray:  # (n_rows,)
    """A column of labels; "unknown" where one is missing."""
    found = table[column].cast(pa.string()).to_pylist()
    return np.array(["unknown" if label is None else label for label in found])


# --- differences ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A mean over patients and draws, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def mean_over(values: np.ndarray, draws: np.ndarray, units: np.ndarray) -> Mean:
    """The mean of values that come in draws and belong to units, such as patients.

    Both are sampled, so the error is clustered both ways: the variance over units plus that over
    draws, less what is counted twice (Cameron, Gelbach & Miller 2011).
    """
    n, mean = len(values), float(values.mean())
    left = values - mean
    by_unit, by_draw = (
        float((np.bincount(codes, left) ** 2).sum()) / n**2
        for codes in (_codes(units), _codes(draws))
    )
    n_draws = len(np.unique(draws))
    spread = max(by_unit + (by_draw - float((left**2).sum()) / n**2) * (n_draws > 1), by_unit)
    wide = float(stats.t.ppf(0.975, max(n_draws - 1, 1))) if n_draws > 1 else 1.96
    half = wide * spread**0.5
    return Mean(mean, mean - half, mean + half)


def _codes(values: np.ndarray) -> np.ndarray:
    return np.unique(values, return_inverse=True)[1]


# --- pages ----------------------------------------------------------------------------------------


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], n_texts: int = 1) -> list[str]:
    """A table; its first columns are texts, the others numbers."""
    rule = "|---" * n_texts + "|---:" * (len(head) - n_texts) + "|"
    top, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return [top, rule, *others]


def points(value: float, digits: int = 1, *, signed: bool = False) -> str:
    """A share in per cent, or a difference of two in percentage points."""
    text = f"{100 * value:{'+' if signed else ''}.{digits}f}"
    text = text.lstrip("+-") if float(text) == 0 else text
    return text.replace("-", "−")


def interval(mean: Mean, digits: int = 1) -> str:
    """A difference in percentage points and its interval."""
    low, high = points(mean.low, digits, signed=True), points(mean.high, digits, signed=True)
    return f"{points(mean.value, digits, signed=True)} ({low} to {high})"


@contextmanager
def drawn(figures: dict[str, Figure], name: str, width: float, height: float) -> Iterator[Axes]:
    """Axes of a new figure in the style of all others."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
        yield axes
        figures[name] = figure


def write_case(
    out: Path, name: str, content: Mapping[str, Any], figures: Mapping[str, Figure]
) -> None:
    """Write the results, and the figures beside them; the same numbers give the same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for title, figure in figures.items():
        with plt.rc_context(STYLE):
            figure.savefig(out / f"{title}.svg", metadata={"Date": None})
        plt.close(figure)


# --- the command line -----------------------------------------------------------------------------


def parser(text: str | None, table: str, name: str) -> argparse.ArgumentParser:
    """What every case can be told."""
    found = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    found.add_argument("table", type=Path, help=f"the path of {table}")
    found.add_argument("--out", type=Path, default=Path(name), help="the folder for results")
    found.add_argument("--quick", action="store_true", help="a try in seconds, for no conclusions")
    return found


def at_least_one(text: str) -> int:
    """A number of repetitions on the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, came {text}")
    return int(text)


def numbered(n: int, what: str) -> str:
    """A number of things, as in "1 draw" or "20 draws"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def processor_time(seconds: float) -> str:
    """How long one processor was busy, in words."""
    minutes = round(seconds / 60)
    return numbered(minutes, "minute") if minutes > 1 else numbered(round(seconds), "second")


def run_case(study: Callable[[argparse.Namespace], list[str]], options: argparse.Namespace) -> int:
    """Run a study and print what it returns; 1 with one clear message where it cannot run."""
    began, cpu = time.perf_counter(), time.process_time()
    try:
        with threadpool_limits(1):
            lines = study(options)
    except (CaseError, fedopl.FedoplError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines))
    print(
        f"\nResults and figures are in {options.out}. It took {time.perf_counter() - began:.0f} s, "
        f"{time.process_time() - cpu:.0f} s of the processor."
    )
    return 0
