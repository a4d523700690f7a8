"""A run's tables, rounds, search and diagnosis as text files for people and programs, and back."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

from fedopl.results.diagnosis import Diagnosis
from fedopl.results.guardrail_tables import GuardrailRow, GuardrailTable, OutcomeRow, OutcomeTable
from fedopl.results.mixture_search import MinimaxSearch, Search, SkewPath
from fedopl.results.reliance import Reliance
from fedopl.results.round import Round
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.target_value import AtTarget
from fedopl.results.value_tables import (
    GainRow,
    GainTable,
    ImprovementRow,
    ImprovementTable,
    LeafRow,
    PersonalTable,
    SplitTables,
    ValueRow,
    ValueTable,
)

_ESTIMATE = ("value", "standard_error", "n_rows", "degrees_of_freedom", "of_rows")
_NO_ESTIMATE = ("",) * (len(_ESTIMATE) - 1)
# By the name of the kind of search in the file.
_SEARCHES: dict[str, type[Search]] = {"path": SkewPath, "minimax": MinimaxSearch}

Row = TypeVar("Row")


def search_json(search: Search) -> str:
    """mixture.json: the path or the ascent, and which of the two it is."""
    (kind,) = (kind for kind, found in _SEARCHES.items() if isinstance(search, found))
    return _json({"kind": kind, **TypeAdapter(type(search)).dump_python(search)})


def diagnosis_json(diagnosis: Diagnosis) -> str:
    """diagnosis.json; numbers that are not finite are written as JavaScript does."""
    return _json(TypeAdapter(Diagnosis).dump_python(diagnosis))


def _reliance_json(reliance: Reliance) -> str:
    return _json(TypeAdapter(Reliance).dump_python(reliance))


def _policies_csv(table: ValueTable | ImprovementTable) -> str:
    groups = iter(table.groups_by_row())
    rows = (
        (r.policy, r.client, *astuple(r.estimate), next(groups), r.level, *r.interval)
        for r in table.rows
    )
    return _csv(("policy", "client", *_ESTIMATE, "groups", "level", "low", "high"), rows)


def _gains_csv(table: GainTable | PersonalTable) -> str:
    groups = iter(table.groups_by_row())
    rows = (
        (r.against, r.client, *astuple(r.estimate), next(groups), *r.interval) for r in table.rows
    )
    return _csv(("against", "client", *_ESTIMATE, "groups", "low", "high"), rows)


def _outcomes_csv(table: OutcomeTable) -> str:
    rows = (
        (r.outcome, r.policy, r.client, *astuple(r.estimate), r.level, *r.interval)
        for r in table.rows
    )
    return _csv(("outcome", "policy", "client", *_ESTIMATE, "level", "low", "high"), rows)


def _guardrails_csv(table: GuardrailTable) -> str:
    nothing = ("",) * (len(_ESTIMATE) + 2)
    rows = (
        (
            *(r.guardrail, r.policy, r.verdict, r.level),
            *((*astuple(r.estimate), *r.interval) if r.estimate and r.interval else nothing),
        )
        for r in table.rows
    )
    return _csv(("guardrail", "policy", "verdict", "level", *_ESTIMATE, "low", "high"), rows)


def _leaves_csv(leaves: Iterable[LeafRow]) -> str:
    rows = (
        (r.leaf, r.share, r.action, *(astuple(r.estimate)[:-1] if r.estimate else _NO_ESTIMATE))
        for r in leaves
    )
    return _csv(("leaf", "share", "action", *_ESTIMATE[:-1]), rows)


_KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "values": (ValueTable, ValueRow),
    "gains": (GainTable, GainRow),
    "improvements": (ImprovementTable, ImprovementRow),
}


def _splits_csv(splits: Iterable[SplitTables]) -> str:
    """All tables of all splits; gains are labelled by the policy they are over."""
    rows = (
        (place, kind, policy, client, *astuple(row.estimate), row.level, *row.interval)
        for place, split in enumerate(splits, start=1)
        for kind in _KINDS
        for (policy, client), row in getattr(split, kind).by_cell().items()
    )
    header = ("split", "table", "policy", "client", *_ESTIMATE, "level", "low", "high")
    return _csv(header, rows)


def _splits(text: str) -> tuple[SplitTables, ...]:
    lines = [
        {**line, "against": line["policy"], "estimate": line}
        for line in csv.DictReader(io.StringIO(text))
    ]
    return tuple(
        SplitTables(
            **{
                kind: table(
                    tuple(
                        TypeAdapter(row).validate_strings(line)
                        for line in lines
                        if (line["split"], line["table"]) == (place, kind)
                    )
                )
                for kind, (table, row) in _KINDS.items()
            }
        )
        for place in dict.fromkeys(line["split"] for line in lines)
    )


def _rounds_jsonl(rounds: Iterable[Round]) -> str:
    return "".join(json.dumps(asdict(latest)) + "\n" for latest in rounds)


def _rounds(text: str) -> tuple[Round, ...]:
    return tuple(map(TypeAdapter(Round).validate_json, text.splitlines()))


def _search(text: str) -> Search:
    content = json.loads(text)
    adapter: TypeAdapter[Search] = TypeAdapter(_SEARCHES[content.pop("kind")])
    return adapter.validate_python(content)


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _csv(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _rows(text: str, kind: type[Row]) -> tuple[Row, ...]:
    """The lines as rows of this kind; an estimate's numbers have columns of their own."""
    adapter = TypeAdapter(kind)
    read = ({k: v for k, v in row.items() if v} for row in csv.DictReader(io.StringIO(text)))
    return tuple(
        adapter.validate_strings({**row, "estimate": row} if "value" in row else row)
        for row in read
    )


class TextFile(NamedTuple):
    """One field of a record as a file."""

    field: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _curve_json(curve: BudgetCurve) -> str:
    said = TypeAdapter(BudgetCurve).dump_python(curve)
    # Left out if there are none: curves were stored before candidates had budgets.
    return _json({key: told for key, told in said.items() if key != "names" or told})


def _target_json(found: AtTarget) -> str:
    return _json(TypeAdapter(AtTarget).dump_python(found))


TEXT_FILES = {
    "values.csv": TextFile("values", _policies_csv, lambda t: ValueTable(_rows(t, ValueRow))),
    "gains.csv": TextFile("gains", _gains_csv, lambda t: GainTable(_rows(t, GainRow))),
    "personal.csv": TextFile("personal", _gains_csv, lambda t: PersonalTable(_rows(t, GainRow))),
    "improvements.csv": TextFile(
        "improvements", _policies_csv, lambda t: ImprovementTable(_rows(t, ImprovementRow))
    ),
    "outcomes.csv": TextFile(
        "outcomes", _outcomes_csv, lambda t: OutcomeTable(_rows(t, OutcomeRow))
    ),
    "guardrails.csv": TextFile(
        "guardrails", _guardrails_csv, lambda t: GuardrailTable(_rows(t, GuardrailRow))
    ),
    "splits.csv": TextFile("splits", _splits_csv, _splits),
    "rounds.jsonl": TextFile("rounds", _rounds_jsonl, _rounds),
    "leaves.csv": TextFile("leaves", _leaves_csv, lambda t: _rows(t, LeafRow)),
    "mixture.json": TextFile("search", search_json, _search),
    "diagnosis.json": TextFile(
        "diagnosis", diagnosis_json, lambda t: TypeAdapter(Diagnosis).validate_python(json.loads(t))
    ),
    "budget.json": TextFile(
        "curve", _curve_json, lambda t: TypeAdapter(BudgetCurve).validate_python(json.loads(t))
    ),
    "reliance.json": TextFile(
        "reliance", _reliance_json, lambda t: TypeAdapter(Reliance).validate_python(json.loads(t))
    ),
    "target.json": TextFile(
        "target", _target_json, lambda t: TypeAdapter(AtTarget).validate_python(json.loads(t))
    ),
}
