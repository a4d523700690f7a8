import csv
import gzip
import io
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import fedopl
from fedopl.base.schema import Encoding
from fedopl.client.apply_policy import decide_table
from fedopl.client.table import batched_io, columns

SITES = ("north", "south", "west")
ACTIONS = ("wait", "drug", "knife")
TABLE = {
    "id": ["01", "2", "003", "x,y"],
    "age": ["30", "-0.5", "1e1", " 2.5"],
    "site": ["north", "west", "south", "north"],
    "note": ["", "NA", 'say "no"', "two\nlines"],
}
SCHEMA = {
    "action": "arm",
    "actions": ACTIONS,
    "reward": "cost",
    "direction": "lower",
    "numeric": ["age"],
    "categorical": {"site": SITES},
}
KINDS = ["csv", "csv.gz", "parquet"]
# The same table with what cannot be decided: a gap, a word, an endless number, a label not known.
DOUBTFUL = {
    "id": ["a", "b", "c", "d", "e", "f"],
    "age": ["30", "NA", "old", "-inf", "4", "5"],
    "site": ["north", "north", "west", "west", "mars", ""],
}


def policy(missing="error"):
    """One with whole parameters, so that no sum depends on its order."""
    encoding = Encoding(numeric=["age"], categorical={"site": SITES}, missing=missing)
    n_features = len(encoding.feature_names)
    parameters = np.random.default_rng(3).integers(-8, 9, (3, n_features + 1)).astype(float)
    return fedopl.LinearPolicy(parameters, ACTIONS, encoding.feature_names, encoding)


def csv_text(table, **options):
    text = io.StringIO()
    writer = csv.writer(text, **{"lineterminator": "\n", **options})
    writer.writerows([list(table), *zip(*table.values(), strict=True)])
    return text.getvalue()


def stored(table, path):
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(table), path)
        return path
    content = csv_text(
        {name: ["" if cell is None else cell for cell in column] for name, column in table.items()}
    ).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def cells(path):
    """The rows of a file, header first."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        return [tuple(table.column_names), *zip(*(c.to_pylist() for c in table), strict=True)]
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))]


def decisions(path):
    return [row[-1] or None for row in cells(path)[1:]]


# --- the same decisions as on arrays ---------------------------------------------------------

AGES = st.integers(-400, 400).map(lambda n: n / 4)
TABLES = st.lists(st.tuples(AGES, st.sampled_from(SITES)), min_size=1)
WITH_GAPS = st.lists(st.tuples(st.none() | AGES, st.none() | st.sampled_from(SITES)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", ["error", "drop", "indicator"])
@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_decided_as_the_contexts_read_from_it(data, missing, kind, tmp_path):
    gaps = [] if missing == "error" else data.draw(WITH_GAPS)
    rows = [*gaps, *data.draw(TABLES)]
    table = {"age": [row[0] for row in rows], "site": [row[1] for row in rows]}
    table |= {"arm": ["wait"] * len(rows), "cost": [1] * len(rows)}
    source, out = stored(table, tmp_path / f"in.{kind}"), tmp_path / f"out.{kind}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedopl.FedoplWarning)
        logged = fedopl.read_logged(source, fedopl.Schema(**SCHEMA, missing=missing))
    learned = policy(missing)
    done = decide_table(learned, source, out, undecided="blank")
    decided = [name for name in decisions(out) if name]
    assert decided == learned.names(logged.contexts).tolist()
    assert (done.n_rows, done.n_undecided) == (len(rows), len(rows) - logged.n_rows)
    assert done.counts == {name: decided.count(name) for name in ACTIONS}


SPELLINGS = ["", "NA", "NaN", "nan", "null", "None", " NA", "true", "FALSE", " true", "inf", "-INF"]
SPELLINGS += ["+1", " 1.5", "1.5\t", "1e3", "1E+3", ".5", "5.", "0x10", "1_000", "1,5", "9" * 30]
CELLS = st.sampled_from(SPELLINGS) | st.text("0123456789+-.eEinfaN \t", max_size=8)


@given(CELLS)
@example("nan(1)")
@example("\u0661")
@example("-0x1F")
def test_a_cell_is_the_number_that_a_file_of_it_alone_would_hold(cell):
    alone = arrow_csv.read_csv(io.BytesIO(f'a,b\n"{cell}",x\n'.encode()))["a"]
    try:
        expected = columns.numbers(alone, "a").tolist()
    except fedopl.DataError:
        expected = None
    for company in ([], ["7"], ["word"]):
        column = pyarrow.chunked_array([[cell, *company]])
        values, others = columns.numbers_in_text(column)
        assert others.tolist()[1:] == [c == "word" for c in company]
        if expected is None or "x" in cell:
            assert others[0]
        else:
            np.testing.assert_array_equal(values[:1], expected)


def test_flags_are_numbers_cell_by_cell(tmp_path):
    table = {"age": ["true", "False", "1", "2.5"], "site": ["north"] * 4}
    plain = {**table, "age": ["1", "0", "1", "2.5"]}
    outs = [tmp_path / "flags.csv", tmp_path / "plain.csv"]
    for one, out in zip((table, plain), outs, strict=True):
        decide_table(policy(), stored(one, tmp_path / "in.csv"), out)
    assert decisions(outs[0]) == decisions(outs[1])


def test_numbers_in_parquet_may_be_whole_decimal_or_flags(tmp_path):
    for values in ([1, 0], [True, False], pyarrow.array(["1", "0"]).cast(pyarrow.decimal128(5, 2))):
        source = stored({"age": values, "site": ["west"] * 2}, tmp_path / "in.parquet")
        decide_table(policy(), source, tmp_path / "out.parquet")
        expected = policy().names([[1, 0, 1], [0, 0, 1]]).tolist()
        assert decisions(tmp_path / "out.parquet") == expected


def test_pairwise_policies_decide_too(tmp_path):
    pairs = fedopl.PairwisePolicy(**vars(policy()))
    out = tmp_path / "out.csv"
    decide_table(pairs, stored(TABLE, tmp_path / "in.csv"), out)
    contexts = [[30, 0, 0], [-0.5, 0, 1], [10, 1, 0], [2.5, 0, 0]]
    assert decisions(out) == pairs.names(contexts).tolist()


def test_a_saved_policy_decides_the_same(tmp_path):
    policy("indicator").save(tmp_path / "policy.json")
    loaded, source = fedopl.load_policy(tmp_path / "policy.json"), stored(TABLE, tmp_path / "a.csv")
    first = decide_table(policy("indicator"), source, tmp_path / "1.csv")
    assert decide_table(loaded, source, tmp_path / "2.csv") == first
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


def test_columns_and_labels_may_have_names_of_their_own(tmp_path):
    own = {"Alter": TABLE["age"], "Ort": ["N", "west", "S", "N"]}
    names = {"age": "Alter", "site": "Ort", "cost": "Kosten"}
    labels = {"site": {"N": "north", "S": "south"}, "arm": {"x": "wait"}}
    decide_table(policy(), stored(TABLE, tmp_path / "a.csv"), tmp_path / "a.out.csv")
    decide_table(
        policy(),
        stored(own, tmp_path / "b.csv"),
        tmp_path / "b.out.csv",
        columns=names,
        labels=labels,
    )
    assert decisions(tmp_path / "a.out.csv") == decisions(tmp_path / "b.out.csv")
    assert cells(tmp_path / "b.out.csv")[0] == ("Alter", "Ort", "action")


# --- batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_batches_do_not_matter(tmp_path, monkeypatch, kind):
    table = {name: [*column] * 50 for name, column in TABLE.items()}
    table |= {"age": [float(age) for age in table["age"]]} if kind == "parquet" else {}
    source = stored(table, tmp_path / f"in.{kind}")
    told = []
    whole = decide_table(policy(), source, tmp_path / f"whole.{kind}")
    monkeypatch.setattr(batched_io, "BLOCK_BYTES", 100)
    monkeypatch.setattr(batched_io, "BATCH_CELLS", 40)
    assert decide_table(policy(), source, tmp_path / f"cut.{kind}", progress=told.append) == whole
    assert cells(tmp_path / f"whole.{kind}") == cells(tmp_path / f"cut.{kind}")
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] == whole.n_rows == 200


# --- what stays ------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(
    names=st.lists(TEXTS.filter(lambda name: name not in ("age", "site", "action")), max_size=3),
    data=st.data(),
    ends=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_cell_of_a_csv_file_comes_out_as_the_same_text(names, data, ends, quoting, tmp_path):
    row = st.tuples(*[TEXTS for _ in names])
    rows = [("30", "north", *texts) for texts in data.draw(st.lists(row, max_size=5))]
    table = [("age", "site", *names), *rows]
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator=ends, quoting=quoting).writerows(table)
    decide_table(policy(), tmp_path / "in.csv", tmp_path / "out.csv")
    assert [row[:-1] for row in cells(tmp_path / "out.csv")] == table
    assert cells(tmp_path / "out.csv")[0][-1] == "action"


def test_a_plain_file_stays_plain(tmp_path):
    source = tmp_path / "in.csv"
    source.write_bytes(b"\xef\xbb\xbfage,site,zip\r\n 30,north,01\r\n1e0,west,\r\n")
    decide_table(policy(), source, tmp_path / "out.csv", column="to do")
    first, second = policy().names([[30, 0, 0], [1, 0, 1]])
    expected = f"age,site,zip,to do\n 30,north,01,{first}\n1e0,west,,{second}\n"
    assert (tmp_path / "out.csv").read_text() == expected


def test_columns_that_are_passed_on_may_share_a_name(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text('x,age,"a,b",x,site\n1,30,2,3,north\n')
    decide_table(policy(), source, tmp_path / "out.csv")
    assert [row[:-1] for row in cells(tmp_path / "out.csv")] == [
        ("x", "age", "a,b", "x", "site"),
        ("1", "30", "2", "3", "north"),
    ]


def test_parquet_keeps_its_types_and_its_metadata(tmp_path):
    frame = pandas.DataFrame(
        {
            "age": np.array([1, 2], np.int8),
            "site": pandas.Categorical(["north", "west"]),
            "when": pandas.to_datetime(["2024-01-01", None]),
            "tags": [[1, 2], None],
        },
        index=["r1", "r2"],
    )
    frame.to_parquet(tmp_path / "in.parquet")
    decide_table(policy(), tmp_path / "in.parquet", tmp_path / "out.parquet")
    before, after = (parquet.read_table(tmp_path / f"{n}.parquet") for n in ("in", "out"))
    assert after.drop_columns("action").equals(before, check_metadata=True)
    assert after.schema.field("action").type == pyarrow.string()
    assert list(pandas.read_parquet(tmp_path / "out.parquet").index) == ["r1", "r2"]


def test_one_kind_of_file_can_become_another(tmp_path):
    table = {"age": [30.0, None], "site": ["north", "west"], "n": [1, None], "ok": [True, False]}
    decide_table(policy("indicator"), stored(table, tmp_path / "in.parquet"), tmp_path / "a.csv.gz")
    rows = cells(tmp_path / "a.csv.gz")
    assert [row[:-1] for row in rows] == [
        ("age", "site", "n", "ok"),
        ("30", "north", "1", "true"),
        ("", "west", "", "false"),
    ]
    decide_table(policy("indicator"), tmp_path / "a.csv.gz", tmp_path / "b.parquet", column="again")
    assert cells(tmp_path / "b.parquet") == [
        (*row, again)
        for row, again in zip(rows, ["again", *(r[-1] for r in rows[1:])], strict=True)
    ]


def test_another_encoding_is_read_and_utf_8_is_written(tmp_path):
    (tmp_path / "in.csv").write_bytes("age,site,name\n30,north,José\n".encode("latin-1"))
    decide_table(policy(), tmp_path / "in.csv", tmp_path / "out.csv", encoding="latin-1")
    assert cells(tmp_path / "out.csv")[1][:-1] == ("30", "north", "José")


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_alone_stays_alone(tmp_path, kind):
    types = {"age": pyarrow.array([], pyarrow.int64()), "site": pyarrow.array([], "string")}
    source = stored(types, tmp_path / f"in.{kind}")
    done = decide_table(policy(), source, tmp_path / f"out.{kind}")
    assert (done.n_rows, done.n_undecided) == (0, 0)
    assert done.counts == dict.fromkeys(ACTIONS, 0)
    assert cells(tmp_path / f"out.{kind}") == [("age", "site", "action")]


# --- what cannot be decided ------------------------------------------------------------------


def test_rows_in_doubt_are_left_empty_and_counted_when_asked(tmp_path):
    source = stored(DOUBTFUL, tmp_path / "in.csv")
    for kind in KINDS:
        done = decide_table(policy(), source, tmp_path / f"out.{kind}", undecided="blank")
        first = policy().names([[30, 0, 0]])[0]
        assert decisions(tmp_path / f"out.{kind}") == [first, *[None] * 5]
        assert (done.n_rows, done.n_undecided) == (6, 5)
        assert done.counts[first] == sum(done.counts.values()) == 1
    assert parquet.read_table(tmp_path / "out.parquet")["action"].null_count == 5


def test_gaps_are_no_doubt_where_the_policy_knows_what_to_make_of_them(tmp_path):
    source = stored(DOUBTFUL, tmp_path / "in.csv")
    done = decide_table(policy("indicator"), source, tmp_path / "out.csv", undecided="blank")
    known = policy("indicator").names([[30, 0, 0, 0, 0], [0, 1, 0, 0, 0], [5, 0, 0, 0, 1]])
    assert decisions(tmp_path / "out.csv") == [known[0], known[1], None, None, None, known[2]]
    assert done.n_undecided == 3


def test_rows_in_doubt_are_refused_in_words_that_say_what_and_how_many(tmp_path):
    source = stored(DOUBTFUL, tmp_path / "in.csv")
    with pytest.raises(fedopl.DataError) as caught:
        decide_table(policy(), source, tmp_path / "out.csv")
    assert str(caught.value) == (
        f"{source}: 5 of the first 6 rows cannot be decided (by column: 'age' 1 not a number, such "
        "as 'old', 'age' 1 infinite, 'age' 1 missing, 'site' 1 not one of the policy's 3 labels, "
        "such as 'mars', 'site' 1 missing); complete them, or say undecided='blank' (--undecided "
        "blank) to leave them empty"
    )


def test_rows_are_counted_from_the_beginning_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(batched_io, "BLOCK_BYTES", 100)
    table = {"age": ["30"] * 60, "site": [*["north"] * 50, "mars", *["north"] * 9]}
    with pytest.raises(fedopl.DataError, match=r"1 of the first 5\d rows"):
        decide_table(policy(), stored(table, tmp_path / "in.csv"), tmp_path / "out.csv")


def test_parquet_has_doubts_of_the_same_kinds(tmp_path):
    table = {"age": [30.0, None, np.nan, np.inf, 4.0], "site": [*["north"] * 4, None]}
    source = stored(table, tmp_path / "in.parquet")
    with pytest.raises(fedopl.DataError, match="'age' 1 infinite, 'age' 2 missing, 'site' 1 miss"):
        decide_table(policy(), source, tmp_path / "out.parquet")
    decide_table(policy(), source, tmp_path / "out.parquet", undecided="blank")
    assert decisions(tmp_path / "out.parquet")[1:] == [None] * 4


def test_a_cell_that_swallowed_rows_is_not_repeated(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text('age,site\n30,"north\n31,south\n32,west with a long tale to tell\n')
    with pytest.raises(fedopl.DataError, match="not one of the policy's 3 labels") as caught:
        decide_table(policy(), source, tmp_path / "out.csv")
    assert "west" not in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what is refused -------------------------------------------------------------------------

GOOD = b"age,site\n30,north\n"
BAD_FILES = {
    "nothing.csv": (None, "the file is not there"),
    "empty.csv": (b"", "the file is empty"),
    "blank.csv": (b"\n\n", "cannot be read as .csv"),
    "table.xlsx": (GOOD, r"expected a file that ends in \.csv, \.csv\.gz, .*\.parquet, came"),
    "latin.csv": (b"age,site,n\n30,north,\xe9\n", "is not utf-8 text; say its encoding"),
    "latin head.csv": (b"age,site,\xe9\n30,north,1\n", "is not utf-8 text; say its encoding"),
    "short.csv": (b"age,site,n\n30,north,1\n31,secret\n", r"Expected 3 columns, got 2$"),
    "long.csv": (b"age,site\n30,north,secret\n", r"Expected 2 columns, got 3$"),
    "late.csv": (b"age,site\n" + b"30,north\n" * 20 + b"30,secret,1\n", r"columns, got 3$"),
    "fake.parquet": (GOOD, "cannot be read as .parquet"),
    "fake.csv.gz": (GOOD, "is not compressed; rename it to fake.csv"),
    "cut.csv.gz": (gzip.compress(os.urandom(99) + GOOD)[:-20], r"csv.gz|utf-8"),
    "open.csv": (GOOD + b'"' + b"secret" * 50, "row is too long to be one; is a quotation mark"),
    "missing.csv": (b"age,other\n30,1\n", "1 of the schema's 2 columns missing: 'site'; the table"),
    "renamed.csv": (b"Age,site\n30,north\n", "missing: 'age'; is it 'Age' for 'age'"),
    "twice.csv": (b"age,site,age\n30,north,1\n", "more than one column is called 'age'"),
}


@pytest.mark.parametrize(("file", "case"), BAD_FILES.items(), ids=BAD_FILES)
def test_a_bad_file_is_refused_in_words_that_name_it(tmp_path, monkeypatch, file, case):
    content, message = case
    monkeypatch.setattr(batched_io, "BLOCK_BYTES", 100)
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(fedopl.DataError, match=message) as caught:
        decide_table(policy(), tmp_path / file, tmp_path / "out.csv", undecided="blank")
    assert file in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.csv").exists()


BAD_KINDS = {
    "text for numbers": ({"age": ["1"], "site": ["west"]}, "'age': expected numbers, came string"),
    "a list for a label": ({"age": [1], "site": [["west"]]}, "'site': expected labels, came list"),
}


@pytest.mark.parametrize(("table", "message"), BAD_KINDS.values(), ids=BAD_KINDS)
def test_a_parquet_column_of_another_kind_is_refused_whole(tmp_path, table, message):
    source = stored(table, tmp_path / "in.parquet")
    with pytest.raises(fedopl.DataError, match=message):
        decide_table(policy(), source, tmp_path / "out.parquet", undecided="blank")


@pytest.mark.parametrize("cell", [[1, 2], b"\xff"])
def test_what_has_no_text_is_not_written_as_csv(tmp_path, cell):
    source = stored({"age": [1], "site": ["west"], "odd": [cell]}, tmp_path / "in.parquet")
    with pytest.raises(fedopl.OptionError, match=r"column 'odd' .* ends in .parquet"):
        decide_table(policy(), source, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_a_folder_is_neither_read_nor_written(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    source = stored(TABLE, tmp_path / "in.csv")
    with pytest.raises(fedopl.DataError, match="the file is a folder"):
        decide_table(policy(), tmp_path / "folder.csv", tmp_path / "out.csv")
    with pytest.raises(fedopl.OptionError, match="is a folder; name a file"):
        decide_table(policy(), source, tmp_path / "folder.csv")


@pytest.mark.parametrize("encoding", ["nonsense", "ascii"])
def test_an_encoding_that_does_not_fit_is_refused(tmp_path, encoding):
    source = stored({**TABLE, "id": ["é"] * 4}, tmp_path / "in.csv")
    with pytest.raises(fedopl.DataError, match=f"is not {encoding} text"):
        decide_table(policy(), source, tmp_path / "out.csv", encoding=encoding)


def test_a_policy_learned_on_arrays_cannot_read_tables(tmp_path):
    source = stored(TABLE, tmp_path / "in.csv")
    with pytest.raises(fedopl.PolicyError, match=r"learned on arrays.*use policy\.decide"):
        decide_table(replace(policy(), encoding=None), source, tmp_path / "out.csv")


def test_the_new_column_needs_a_name_of_its_own(tmp_path):
    source = stored({**TABLE, "action": ["x"] * 4}, tmp_path / "in.csv")
    with pytest.raises(fedopl.OptionError, match=r"a column 'action' already; .*--column"):
        decide_table(policy(), source, tmp_path / "out.csv")
    decide_table(policy(), source, tmp_path / "out.csv", column="decision")
    assert cells(tmp_path / "out.csv")[0][-2:] == ("action", "decision")


def test_a_table_is_not_written_over_itself(tmp_path):
    source = stored(TABLE, tmp_path / "in.csv")
    before = source.read_bytes()
    (tmp_path / "link.csv").symlink_to(source)
    for out in (source, tmp_path / "link.csv", tmp_path / "." / "in.csv"):
        with pytest.raises(fedopl.OptionError, match="is the table that is read"):
            decide_table(policy(), source, out)
    assert source.read_bytes() == before


@pytest.mark.parametrize("out", ["out.xlsx", "out", "out.gz"])
def test_only_kinds_of_files_that_are_known_are_written(tmp_path, out):
    source = stored(TABLE, tmp_path / "in.csv")
    with pytest.raises(fedopl.OptionError, match=r"ends in \.csv, \.csv\.gz, \.parquet"):
        decide_table(policy(), source, tmp_path / out)


def test_doubt_is_met_in_one_of_two_ways(tmp_path):
    source = stored(TABLE, tmp_path / "in.csv")
    with pytest.raises(fedopl.OptionError, match="expected 'error' or 'blank', came 'skip'"):
        decide_table(policy(), source, tmp_path / "out.csv", undecided="skip")


# --- all or nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_halfway_leaves_everything_as_it_was(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(batched_io, "BLOCK_BYTES", 100)
    source, out = tmp_path / "in.csv", tmp_path / f"out.{kind}"
    source.write_bytes(b"age,site\n" + b"30,north\n" * 50 + b"30,mars\n")
    out.write_bytes(b"before")
    told = []
    with pytest.raises(fedopl.DataError, match="mars"):
        decide_table(policy(), source, out, progress=told.append)
    assert told
    assert out.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", out.name]


def test_a_disk_that_fails_is_not_the_tables_fault(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(batched_io, "_lines", full)
    with pytest.raises(fedopl.StorageError, match=r"out\.csv: cannot be written: No space left"):
        decide_table(policy(), stored(TABLE, tmp_path / "in.csv"), tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_finished_table_takes_the_place_of_the_old_one(tmp_path):
    (tmp_path / "out.csv").write_bytes(b"before")
    decide_table(policy(), stored(TABLE, tmp_path / "in.csv"), tmp_path / "out.csv")
    assert cells(tmp_path / "out.csv")[0] == (*TABLE, "action")


# --- however long the table is ---------------------------------------------------------------

STATUS = Path("/proc/self/status")
# Not resource.getrusage, whose peak begins with that of the process that started this one.
DECIDE_AND_REPORT = """
import re, sys
from pathlib import Path
import fedopl
from fedopl.client.apply_policy import decide_table

done = decide_table(fedopl.load_policy(sys.argv[1]), sys.argv[2], sys.argv[3])
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
print(done.n_rows, int(peak[1]) * 1024)
"""


@pytest.mark.skipif(not STATUS.exists(), reason="no way to ask for the peak of memory")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_million_rows_of_twenty_columns_fit_in_little_memory(tmp_path, kind):
    rng = np.random.default_rng(0)
    names = [f"x{column}" for column in range(18)]
    table = {name: rng.standard_normal(10_000).round(6) for name in names}
    table |= {"site": rng.choice(SITES, 10_000), "note": ["some, text"] * 10_000}
    whole = pyarrow.concat_tables([pyarrow.table(table)] * 100)
    write = parquet.write_table if kind == "parquet" else arrow_csv.write_csv
    write(whole, tmp_path / f"in.{kind}")
    encoding = Encoding(numeric=names, categorical={"site": SITES})
    parameters = rng.standard_normal((3, len(encoding.feature_names) + 1))
    learned = fedopl.LinearPolicy(parameters, ACTIONS, encoding.feature_names, encoding)
    learned.save(tmp_path / "policy.json")
    paths = [str(tmp_path / name) for name in ("policy.json", f"in.{kind}", f"out.{kind}")]
    command = [sys.executable, "-c", DECIDE_AND_REPORT, *paths]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    n_rows, peak_bytes = map(int, told.stdout.split())
    assert n_rows == 1_000_000
    assert peak_bytes < 400e6
