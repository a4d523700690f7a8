"""A run's tables and rounds as text files that people and programs can read, and back."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple

from fedopl.base.estimates import Estimate
from fedopl.results.round import Round
from fedopl.results.value_tables import GainRow, GainTable, LeafRow, ValueRow, ValueTable

_ESTIMATE = ("value", "standard_error", "n_rows", "degrees_of_freedom")
_NO_ESTIMATE = ("",) * len(_ESTIMATE)


def values_csv(table: ValueTable) -> str:
    """values.csv."""
    rows = ((r.policy, r.client, *astuple(r.estimate), r.level, *r.interval) for r in table.rows)
    return _csv(("policy", "client", *_ESTIMATE, "level", "low", "high"), rows)


def values_from(text: str) -> ValueTable:
    """The table in a values.csv."""
    return ValueTable(
        tuple(
            ValueRow(
                policy=row["policy"],
                client=row["client"],
                estimate=_estimate(row),
                level=float(row["level"]),
            )
            for row in _rows(text)
        )
    )


def gains_csv(table: GainTable) -> str:
    """gains.csv."""
    rows = ((r.against, r.client, *astuple(r.estimate), *r.interval) for r in table.rows)
    return _csv(("against", "client", *_ESTIMATE, "low", "high"), rows)


def gains_from(text: str) -> GainTable:
    """The table in a gains.csv."""
    return GainTable(
        tuple(
            GainRow(against=row["against"], client=row["client"], estimate=_estimate(row))
            for row in _rows(text)
        )
    )


def leaves_csv(leaves: Iterable[LeafRow]) -> str:
    """leaves.csv."""
    rows = (
        (r.leaf, r.share, r.action, *(astuple(r.estimate) if r.estimate else _NO_ESTIMATE))
        for r in leaves
    )
    return _csv(("leaf", "share", "action", *_ESTIMATE), rows)


def leaves_from(text: str) -> tuple[LeafRow, ...]:
    """The rows of a leaves.csv."""
    return tuple(
        LeafRow(
            leaf=int(row["leaf"]),
            share=float(row["share"]),
            action=row["action"],
            estimate=_estimate(row) if row["value"] else None,
        )
        for row in _rows(text)
    )


def rounds_jsonl(rounds: Iterable[Round]) -> str:
    """rounds.jsonl: one exchange a line."""
    return "".join(json.dumps(asdict(latest)) + "\n" for latest in rounds)


def rounds_from(text: str) -> tuple[Round, ...]:
    """The exchanges of a rounds.jsonl."""
    rounds = []
    for line in text.splitlines():
        content = json.loads(line)
        for name in ("asked", "answered", "silent"):
            content[name] = tuple(content[name])
        rounds.append(Round(**content))
    return tuple(rounds)


def _csv(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _rows(text: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(io.StringIO(text))


def _estimate(row: dict[str, str]) -> Estimate:
    return Estimate(
        value=float(row["value"]),
        standard_error=float(row["standard_error"]),
        n_rows=int(row["n_rows"]),
        degrees_of_freedom=int(row["degrees_of_freedom"]),
    )
