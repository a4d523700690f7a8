"""Every fault a table can have, through `check` and through `run`: one clear word, or a caution."""

import re

import pytest

from tiny_study import NAMES, rows, write_csv

N_ROWS = 160
ROWS = rows(N_ROWS)
CHANCES = ["0.5"] * N_ROWS


def with_cell(column, cell):
    return {column: [cell, *ROWS[column][1:]]}


def with_propensities(tiny, north, *, each_action=False):
    """Everybody tossed coins and says so, but for these propensities of north."""
    columns = ("p_usual", "p_new") if each_action else ("p",)
    for turn, name in enumerate(NAMES):
        told = dict.fromkeys(columns, CHANCES)
        told |= {columns[0]: north} if name == "north" else {}
        write_csv(tiny.table(name), {**rows(seed=turn), **told})
    spelled = '{ usual = "p_usual", new = "p_new" }' if each_action else '"p"'
    tiny.edit("[features]", f"propensity = {spelled}\n\n[features]")
    tiny.edit('"marginal"', '"known"')


def in_latin_1(tiny):
    """Everybody's label has an umlaut, and north writes it in one byte."""
    tiny.edit('"alone"', '"für sich"')
    for turn, name in enumerate(NAMES):
        table = rows(seed=turn)
        table["living"] = [label.replace("alone", "für sich") for label in table["living"]]
        write_csv(tiny.table(name), table, "latin-1" if name == "north" else "utf-8")


# What is done to north's table, and what the message has to name: the column, what was expected or
# came, and what to do.
FAULTS = {
    "a number is missing": (
        lambda tiny: tiny.change(**with_cell("severity", "")),
        ["'severity' 1", "1 of 160 rows", "missing", "'drop' or 'indicator'"],
    ),
    "a number is NaN": (
        lambda tiny: tiny.change(**with_cell("severity", "NaN")),
        ["'severity' 1", "1 of 160 rows", "missing", "'drop' or 'indicator'"],
    ),
    "a number is infinite": (
        lambda tiny: tiny.change(**with_cell("severity", "inf")),
        ["'severity'", "1 of 160 rows", "infinite"],
    ),
    "an outcome is infinite": (
        lambda tiny: tiny.change(**with_cell("gain", "-inf")),
        ["'gain'", "1 of 160 rows", "infinite"],
    ),
    "an outcome is missing": (
        lambda tiny: tiny.change(**with_cell("gain", "")),
        ["'gain' 1", "1 of 160 rows", "'drop'"],
    ),
    "a number is a word": (
        lambda tiny: tiny.change(**with_cell("severity", "high")),
        ["column 'severity'", "expected numbers, came text", "1 of 160 rows", "'high'"],
    ),
    "a column is missing": (
        lambda tiny: tiny.change(severity=None),
        ["columns missing: 'severity'", "the table has 'age', 'living', 'arm', 'gain'"],
    ),
    "a column has another name": (
        lambda tiny: tiny.change(severity=None, severty=ROWS["severity"]),
        ["columns missing: 'severity'", "is it 'severty' for 'severity'?"],
    ),
    "a column is there twice": (
        lambda tiny: tiny.table().write_text(
            tiny.table().read_text().replace("living", "age", 1), encoding="utf-8"
        ),
        ["more than one column is called 'age'", "rename"],
    ),
    "an action is unknown": (
        lambda tiny: tiny.change(**with_cell("arm", "placebo")),
        ["column 'arm'", "1 of 160 rows", "'usual', 'new'", "unknown: 'placebo'"],
    ),
    "a level is unknown": (
        lambda tiny: tiny.change(**with_cell("living", "hostel")),
        ["column 'living'", "1 of 160 rows", "'with others', 'alone'", "unknown: 'hostel'"],
    ),
    "a propensity is 0": (
        lambda tiny: with_propensities(tiny, ["0", *CHANCES[1:]]),
        ["propensities", "1 of 160 rows", "cannot have probability 0"],
    ),
    "a propensity is above 1": (
        lambda tiny: with_propensities(tiny, ["1.5", *CHANCES[1:]]),
        ["propensities", "1 values outside 0 to 1", "range from 0.5 to 1.5", "not weights"],
    ),
    "propensities do not add up": (
        lambda tiny: with_propensities(tiny, ["0.7", *CHANCES[1:]], each_action=True),
        ["propensities", "1 of 160 rows do not add up to 1", "1.2", "each action's probability"],
    ),
    "text is not UTF-8": (in_latin_1, ["is not utf-8 text", "encoding", "latin-1"]),
    "an encoding does not exist": (
        lambda tiny: tiny.add('encoding = "klingon"\n', tiny.settings()),
        ["klingon", 'probably encoding = "utf-8"'],
    ),
    "the file is empty": (
        lambda tiny: tiny.table().write_text(""),
        ["the file is empty", "expected a header and at least one row"],
    ),
    "there is a header alone": (
        lambda tiny: tiny.table().write_text(",".join(ROWS) + "\n"),
        ["no rows", "expected a header and at least one row"],
    ),
    "the file is not there": (
        lambda tiny: tiny.table().unlink(),
        ["the file is not there", "check the path"],
    ),
    "the file is of an unknown kind": (
        lambda tiny: (
            tiny.table().rename(tiny.table().with_suffix(".mat"))
            and tiny.edit("data.csv", "data.mat", tiny.settings())
        ),
        ["expected a file that ends in .csv, .csv.gz, ", "data.mat"],
    ),
}
every_fault = pytest.mark.parametrize(("fault", "said"), FAULTS.values(), ids=FAULTS)


@every_fault
def test_check_names_the_fault_and_goes_on_with_the_others(tiny, fault, said):
    fault(tiny)
    done = tiny.check()
    assert (done.code, done.err) == (1, "")
    (named,) = [line for line in done.out.splitlines() if "✗" in line and "north" in line]
    for words in [str(tiny.table().parent / "data."), *said]:
        assert words in named
    assert "Not ready" in done.out
    assert "── south: LoggedData(160 rows" in done.out
    assert not tiny.out.exists()


@every_fault
def test_run_names_the_fault_and_leaves_nothing_behind(tiny, fault, said):
    fault(tiny)
    done = tiny.run()
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("fedopl: ")
    for words in [str(tiny.table().parent / "data."), *said]:
        assert words in done.err
    assert not tiny.out.exists()
    assert not (tiny.clients / "north" / "ledger.jsonl").exists()


def test_nobody_is_advised_to_drop_infinite_numbers_by_a_rule_that_keeps_them(tiny):
    tiny.change(**with_cell("severity", "inf"))
    tiny.add('[rows]\nmissing = "drop"\n')
    done = tiny.check()
    assert done.code == 0 or "'drop'" not in done.out


def test_the_encoding_setting_makes_other_text_readable(tiny):
    in_latin_1(tiny)
    tiny.add('encoding = "latin-1"\n', tiny.settings())
    assert tiny.check().code == 0


# --- what is allowed, and should be known ---------------------------------------------------------


def cautions(tiny):
    done = tiny.check("--json")
    assert (done.code, done.err) == (0, "")
    return " ".join(done.json()["clients"]["north"]["cautions"])


def test_a_column_the_study_does_not_name_is_not_read(tiny):
    tiny.change(notes=["secret"] * N_ROWS)
    assert cautions(tiny) == ""


def test_tiny_propensities_are_allowed_and_cautioned(tiny):
    with_propensities(tiny, ["1e-6"] * 20 + CHANCES[20:])
    assert "below 0.05" in cautions(tiny)
    assert "effective rows" in cautions(tiny)
    assert tiny.run().code == 0


def test_a_constant_outcome_is_allowed_and_cautioned(tiny):
    tiny.change(gain=["1"] * N_ROWS)
    assert "the outcome is the same in every row" in cautions(tiny)
    assert tiny.run().code == 0


def test_rows_that_repeat_are_allowed_and_cautioned(tiny):
    write_csv(tiny.table(), {name: cells[:80] * 2 for name, cells in ROWS.items()})
    assert "80 rows repeat another row exactly" in cautions(tiny)
    assert tiny.run().code == 0


def test_a_level_nobody_else_saw_is_a_difference_not_a_fault(tiny):
    tiny.edit('"alone"]', '"alone", "in a home"]')
    tiny.change(living=["in a home"] * 40 + ROWS["living"][40:])
    done = tiny.check("--json").json()
    assert done["ready"]
    assert any(
        "'living=in a home' varies, but not at south, west" in text for text in done["differences"]
    )


def test_an_action_one_client_never_took_is_borrowed_and_cautioned(tiny):
    tiny.change(arm=["usual"] * N_ROWS)
    found = tiny.check("--json").json()
    assert "'new' was never taken" in " ".join(found["clients"]["north"]["cautions"])
    assert found["differences"] == ["action 'new' was never taken at north"]
    assert found["clients"]["north"]["refusals"] == []
    assert tiny.run("--json").json()["refusals"] == []


def test_an_action_one_client_never_took_makes_it_refuse_where_the_study_says_so(tiny):
    tiny.change(arm=["usual"] * N_ROWS)
    tiny.add('unseen = "refuse"\n')
    told = tiny.check().out
    assert "would refuse SumScores (UNSEEN_ACTION)" in told
    assert "nuisances.unseen" in told
    done = tiny.run()
    assert done.code == 0
    assert "north did not answer SumScores (UNSEEN_ACTION)" in done.out


def test_an_action_nobody_took_is_a_problem(tiny):
    for turn, name in enumerate(NAMES):
        write_csv(tiny.table(name), {**rows(seed=turn), "arm": ["usual"] * N_ROWS})
    done = tiny.check()
    assert done.code == 1
    assert "no row took 'new': take it out of the study's actions" in done.out


def test_rows_with_gaps_are_dropped_where_the_study_says_so_and_counted(tiny):
    tiny.change(**with_cell("severity", ""))
    tiny.add('[rows]\nmissing = "drop"\n')
    told = "dropped 1 of 160 rows for missing values (by column: 'severity' 1)"
    assert told in cautions(tiny)
    done = tiny.run()
    assert done.code == 0
    assert told in done.text
    assert "Warning" not in done.text


def test_gaps_are_marked_where_the_study_says_so(tiny):
    for turn, name in enumerate(NAMES):
        table = rows(400, seed=turn)
        table["severity"] = [cell if row % 4 else "" for row, cell in enumerate(table["severity"])]
        write_csv(tiny.table(name), table)
    tiny.add('[rows]\nmissing = "indicator"\n')
    assert tiny.check().code == 0
    done = tiny.run()
    assert done.code == 0
    assert "severity is missing" in (tiny.out / "policy.json").read_text()


def test_clients_with_too_few_rows_stop_nobody_and_are_named_in_one_line(tiny):
    tiny.edit('"Tiny"', '"Tiny"\nquorum = 0.3')
    for name, n_rows in (("north", 1), ("west", 29)):
        write_csv(tiny.table(name), rows(n_rows))
    checked = tiny.check()
    assert checked.code == 0
    assert "rows: 29, minimum_rows is 30: takes no part" in checked.out
    left_out = "take no part, with fewer rows than minimum_rows: north (1 rows), west (29 rows)"
    assert checked.out.count(left_out) == 1
    assert "TOO_FEW_ROWS" not in checked.out
    clients = tiny.check("--json").json()["clients"]
    assert [name for name, found in clients.items() if not found["takes_part"]] == ["north", "west"]
    done = tiny.run()
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if "TOO_FEW_ROWS" in line]
    assert line.startswith("north and west did not answer Enrol and SumOutcomes (TOO_FEW_ROWS): ")


def test_more_folds_than_rows_can_fill_are_left_empty_and_check_says_how_many(tiny):
    tiny.add("folds = 20\n")
    said = tiny.check().out
    n_used = [int(found) for found in re.findall(r"splits: (\d+) of 20 folds", said)]
    assert len(n_used) == 3
    assert all(5 < n < 20 for n in n_used)
    assert "would refuse" not in said
    done = tiny.run()
    assert done.code == 0
    assert "did not answer" not in done.out


def test_a_run_that_fails_for_its_clients_says_what_can_be_done(tiny):
    for name in NAMES:
        tiny.add("[limits]\nminimum_rows = 1000\n", tiny.settings(name))
    assert "minimum_rows" in tiny.run().err
