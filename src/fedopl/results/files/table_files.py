"""A run's tables, rounds, search and diagnosis as text files for people and programs, and back."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from fedopl.results.diagnosis import Diagnosis
from fedopl.results.mixture_search import MinimaxSearch, Search, SkewPath
from fedopl.results.reliance import Reliance
from fedopl.results.round import Round
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.target_value import AtTarget
from fedopl.results.value_tables import (
    TABLES,
    EstimateTable,
    GainTable,
    GuardrailTable,
    ImprovementTable,
    LeafTable,
    OutcomeTable,
    PersonalTable,
    SplitTables,
    ValueTable,
)

# By the name of the kind of search in the file.
_SEARCHES: dict[str, type[Search]] = {"path": SkewPath, "minimax": MinimaxSearch}


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """diagnosis.json; numbers that are not finite are written as JavaScript does."""
    return json_text(TypeAdapter(Diagnosis).dump_python(diagnosis))


def search_json(search: Search) -> str:
    """mixture.json: the path or the ascent, and which of the two it is."""
    (kind,) = (kind for kind, found in _SEARCHES.items() if isinstance(search, found))
    return json_text({"kind": kind, **TypeAdapter(type(search)).dump_python(search)})


def _splits_csv(splits: Iterable[SplitTables]) -> str:
    """All tables of all splits; gains are labelled by the policy they are over."""
    names = [name for name in ValueTable.columns if name != "groups"]
    rows = (
        (place, kind, *cells)
        for place, split in enumerate(splits, start=1)
        for kind in TABLES
        for table in [getattr(split, kind)]
        for cells in zip(*map(table.column, [table.named, *names[1:]]), strict=True)
    )
    return _csv(["split", "table", *names], rows)


def _splits(text: str) -> tuple[SplitTables, ...]:
    found: dict[str, dict[str, Any]] = {}
    for line in csv.DictReader(io.StringIO(text)):
        split = found.setdefault(line["split"], {kind: [] for kind in TABLES})
        split[line["table"]].append({TABLES[line["table"]].named: line.pop("policy"), **line})
    return tuple(
        SplitTables(**{kind: _as_table(TABLES[kind], lines) for kind, lines in split.items()})
        for split in found.values()
    )


_ROUND = TypeAdapter(Round)


def _rounds_jsonl(rounds: Iterable[Round]) -> str:
    return "".join(json.dumps(asdict(latest)) + "\n" for latest in rounds)


def _rounds(text: str) -> tuple[Round, ...]:
    return tuple(map(_ROUND.validate_json, text.splitlines()))


def _search(text: str) -> Search:
    content = json.loads(text)
    adapter: TypeAdapter[Search] = TypeAdapter(_SEARCHES[content.pop("kind")])
    return adapter.validate_python(content)


def json_text(content: Any) -> str:
    """JSON that people can read as well."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _csv(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _as_table(table: type[EstimateTable[Any]], lines: Iterable[Mapping[str, str]]) -> Any:
    """The lines as a table; an estimate's numbers have columns of their own."""
    adapter, known = TypeAdapter(table.row), dict(table.implied)
    rows = (known | {name: said for name, said in line.items() if said} for line in lines)
    return table(
        adapter.validate_strings({**row, "estimate": row} if "value" in row else row)
        for row in rows
    )


class TextFile(NamedTuple):
    """One field of a record as a file."""

    field: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _curve_json(curve: BudgetCurve) -> str:
    said = TypeAdapter(BudgetCurve).dump_python(curve)
    # Left out if there are none: curves were stored before candidates had budgets.
    return json_text({key: told for key, told in said.items() if key != "names" or told})


def _table_file(field: str, table: type[EstimateTable[Any]]) -> TextFile:
    names = [name for name in table.columns if name not in table.unsaved]
    return TextFile(
        field,
        lambda content: _csv(names, zip(*map(content.column, names), strict=True)),
        lambda text: _as_table(table, csv.DictReader(io.StringIO(text))),
    )


def _json_file(field: str, kind: type[Any]) -> TextFile:
    adapter = TypeAdapter(kind)
    return TextFile(
        field,
        lambda content: json_text(adapter.dump_python(content)),
        lambda text: adapter.validate_python(json.loads(text)),
    )


TEXT_FILES = {
    "values.csv": _table_file("values", ValueTable),
    "gains.csv": _table_file("gains", GainTable),
    "personal.csv": _table_file("personal", PersonalTable),
    "improvements.csv": _table_file("improvements", ImprovementTable),
    "outcomes.csv": _table_file("outcomes", OutcomeTable),
    "guardrails.csv": _table_file("guardrails", GuardrailTable),
    "splits.csv": TextFile("splits", _splits_csv, _splits),
    "rounds.jsonl": TextFile("rounds", _rounds_jsonl, _rounds),
    "leaves.csv": _table_file("leaves", LeafTable),
    "mixture.json": TextFile("search", search_json, _search),
    "diagnosis.json": _json_file("diagnosis", Diagnosis),
    "budget.json": _json_file("curve", BudgetCurve)._replace(write=_curve_json),
    "reliance.json": _json_file("reliance", Reliance),
    "target.json": _json_file("target", AtTarget),
}


@dataclass(frozen=True)
class ProgressFile:
    """A run's exchanges so far, for whoever watches it from another process.

    Lines are as in `rounds.jsonl`; an exchange that came to more has a further line.
    """

    path: Path

    def clear(self) -> None:
        """Forget an earlier run."""
        self.path.unlink(missing_ok=True)

    def tell(self, latest: Round) -> None:
        """Append an exchange; a run does not fail because nobody can watch it."""
        with suppress(OSError), self.path.open("ab", buffering=0) as file:
            file.write(_rounds_jsonl([latest]).encode())

    def since(self, position: int) -> tuple[Iterable[Round], int]:
        """The exchanges from this byte on, and the byte after them."""
        try:
            with self.path.open("rb") as file:
                file.seek(position)
                content = file.read()
        except OSError:  # not begun yet, or over
            return (), position
        *lines, unfinished = content.split(b"\n")
        return map(_ROUND.validate_json, lines), position + len(content) - len(unfinished)
