"""Tables of a run as files, data frames and text: what is written is read again, of every kind."""

import csv
import io
from typing import Any

import pytest

from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.results.files.table_files import TEXT_FILES
from fedopl.results.value_tables import (
    LEARNED,
    LOGGING,
    PERSONAL,
    GainTable,
    GuardrailRow,
    GuardrailTable,
    ImprovementTable,
    LeafRow,
    LeafTable,
    OutcomeTable,
    PersonalTable,
    Row,
    SplitTables,
    ValueTable,
)

ESTIMATE = Estimate(value=0.1, standard_error=0.25, n_rows=40, degrees_of_freedom=9, of_rows=41)
NUMBERS = ["value", "standard_error", "n_rows", "degrees_of_freedom", "of_rows"]


def rows(**fields):
    return [Row(client=client, estimate=ESTIMATE, **fields) for client in (GLOBAL, "north")]


VALUES = ValueTable(rows(policy=LEARNED, level=0.99))
GAINS = GainTable(rows(against=LOGGING))
IMPROVEMENTS = ImprovementTable(rows(policy=LEARNED, against=LOGGING, level=0.975))
TABLES: dict[str, Any] = {
    "values.csv": VALUES,
    "gains.csv": GAINS,
    "improvements.csv": IMPROVEMENTS,
    "personal.csv": PersonalTable(rows(policy=PERSONAL, against=LOGGING)),
    "outcomes.csv": OutcomeTable(rows(policy=LEARNED, outcome="death")),
    "guardrails.csv": GuardrailTable(
        GuardrailRow(guardrail="deaths", policy=LEARNED, verdict="kept", estimate=known)
        for known in (ESTIMATE, None)
    ),
    "leaves.csv": LeafTable(
        LeafRow(leaf=leaf, share=0.5, action="new", estimate=known)
        for leaf, known in enumerate(
            (Estimate(value=1.0, standard_error=0.5, n_rows=9, degrees_of_freedom=8), None)
        )
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_is_written_is_read_again(name):
    table, file = TABLES[name], TEXT_FILES[name]
    again = file.read(file.write(table))
    assert type(again) is type(table)
    assert again == table


@pytest.mark.parametrize("name", TABLES)
def test_files_and_frames_have_the_same_columns_in_the_same_order(name):
    table = TABLES[name]
    (header, first, *_) = csv.reader(io.StringIO(TEXT_FILES[name].write(table)))
    frame = table.to_frame("pandas")
    assert [column for column in frame.columns if column not in table.unsaved] == header
    assert len(frame) == len(table) == len([*table])
    own = dict(zip(header, first, strict=True))
    shown = [name for name in NUMBERS if name in own]
    assert [float(own[name]) for name in shown] == [
        getattr(table.rows[0].estimate, name) for name in shown
    ]
    assert all(f"{cell}" in str(table) for cell in first[:1])


def test_tables_of_splits_are_read_again():
    split = SplitTables(values=VALUES, gains=GAINS, improvements=IMPROVEMENTS)
    file = TEXT_FILES["splits.csv"]
    found = file.read(file.write((split, split)))
    assert [vars(one) for one in found] == [vars(split)] * 2


def test_a_table_knows_its_groups_and_without_any_has_none():
    estimate = Estimate(value=0.0, standard_error=1.0, n_rows=40, degrees_of_freedom=39)
    alone = ValueTable([Row(policy=LEARNED, client="north", estimate=estimate)])
    assert VALUES.groups() == {"north": 10, GLOBAL: 10}
    assert alone.groups() == {}
    assert VALUES.column("groups") == [10, 10]
    assert not ValueTable()
