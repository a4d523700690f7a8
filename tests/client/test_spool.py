import json
import os
import stat
import warnings

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.table import spool as spooling
from fedopl.client.table.encoder import Encoder
from fedopl.client.table.logged_data import fingerprint

N_ROWS = 101
ARRAYS = ("contexts", "actions", "rewards", "propensities", "weights", "groups")


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(spooling, "ROWS_PER_BATCH", 16)


def spool(path, schema, folder, *, number="float64", **own):
    return fedopl.read_logged(path, schema, on_disk=folder, numbers=number, **own)


def table(seed=0, **changes):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(3), N_ROWS) * 0.9 + 0.1 / 3
    columns = {
        "age": rng.normal(50, 10, N_ROWS),
        "visits": rng.integers(0, 9, N_ROWS),
        "sex": rng.choice(["f", "m", "x"], N_ROWS),
        "arm": rng.choice(["drug", "placebo"], N_ROWS),
        "cost": rng.normal(size=N_ROWS),
        "p": rng.uniform(0.1, 1, N_ROWS),
        "p0": chances[:, 0],
        "p1": chances[:, 1],
        "p2": 1 - chances[:, 0] - chances[:, 1],
        "w": rng.uniform(0.5, 2, N_ROWS),
        "person": rng.choice([f"P{i}" for i in range(30)], N_ROWS),
        "number": rng.choice(np.arange(0, 120, 5), N_ROWS),
    }
    return columns | changes


def gappy(columns, *names, seed=1, share=0.2):
    """The table with some cells of these columns missing."""
    rng = np.random.default_rng(seed)
    gaps = {name: rng.random(N_ROWS) < share for name in names}
    return columns | {
        name: [None if gap else value for value, gap in zip(columns[name], gaps[name], strict=True)]
        for name in names
    }


def schema(**changes):
    plain = {
        "action": "arm",
        "actions": ["placebo", "drug", "both"],
        "reward": "cost",
        "direction": "higher",
        "numeric": ["age", "visits"],
        "categorical": {"sex": ["f", "m", "x"]},
    }
    return fedopl.Schema(**plain | changes)


def stored(columns, folder, **options):
    path = folder / "north.parquet"
    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def assert_same(spooled, data):
    assert spooled.is_on_disk
    assert not data.is_on_disk
    whole = spooled.part(slice(None))
    for name in ARRAYS:
        ours, theirs = getattr(whole, name), getattr(data, name)
        if theirs is None:
            assert ours is None
        else:
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert ours.tobytes() == theirs.tobytes()  # bit for bit
    for name in ("action_names", "feature_names", "schema", "n_rows", "n_features", "n_actions"):
        assert getattr(spooled, name) == getattr(whole, name) == getattr(data, name)
    assert spooled.n_groups == data.n_groups
    assert spooled.rows_per_action.tolist() == data.rows_per_action.tolist()
    assert repr(spooled) == repr(data).replace(")", ", on disk)")


PLAIN = table()
EACH = {"both": "p2", "drug": "p1", "placebo": "p0"}
CASES = {
    "plain": (PLAIN, {}),
    "lower is better": (PLAIN, {"direction": "lower"}),
    "propensity": (PLAIN, {"propensity": "p"}),
    "propensity of each action": (PLAIN, {"propensity": EACH}),
    "weights": (PLAIN, {"weight": "w"}),
    "groups": (PLAIN, {"group": "person"}),
    "groups that are numbers": (PLAIN, {"group": "number"}),
    "no categories": (PLAIN, {"categorical": {}}),
    "only categories": (PLAIN, {"numeric": []}),
    "a column in two roles": (PLAIN, {"weight": "age"}),
    "indicator": (gappy(PLAIN, "age", "sex"), {"missing": "indicator"}),
    "indicator without gaps": (PLAIN, {"missing": "indicator"}),
    "dropped": (gappy(PLAIN, "age", "sex", "cost", "arm", share=0.1), {"missing": "drop"}),
    "dropped batches": (
        {**PLAIN, "age": [None] * 40 + list(PLAIN["age"][40:])},
        {"missing": "drop"},
    ),
    "dropped groups": (
        gappy(PLAIN, "age", "person", share=0.6),
        {"missing": "drop", "group": "person"},
    ),
    "all at once": (
        gappy(PLAIN, "age", "sex", "w", "p1", share=0.1),
        {
            "missing": "drop",
            "propensity": EACH,
            "weight": "w",
            "group": "person",
            "direction": "lower",
        },
    ),
}


@pytest.mark.parametrize("row_group_size", [7, 40, 1000])
@pytest.mark.parametrize(("columns", "rule"), CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore:.*dropped")
def test_a_spool_holds_the_rows_that_are_read(tmp_path, columns, rule, row_group_size):
    path = stored(columns, tmp_path, row_group_size=row_group_size)
    assert_same(
        spool(path, schema(**rule), tmp_path / "spools"), fedopl.read_logged(path, schema(**rule))
    )


def test_names_of_their_own_are_translated(tmp_path):
    columns = table()
    columns["years"] = columns.pop("age")
    columns["arm"] = np.where(columns["arm"] == "drug", "D", "placebo")
    own = {"columns": {"age": "years"}, "labels": {"arm": {"D": "drug"}}}
    path = stored(columns, tmp_path)
    assert_same(
        spool(path, schema(), tmp_path / "spools", **own), fedopl.read_logged(path, schema(), **own)
    )


def test_labels_of_dictionaries_are_labels(tmp_path):
    columns = pyarrow.table(table())
    for name in ("sex", "arm", "person"):
        place = columns.column_names.index(name)
        columns = columns.set_column(place, name, columns[name].dictionary_encode())
    path = tmp_path / "north.parquet"
    parquet.write_table(columns, path)
    rule = schema(group="person")
    assert_same(spool(path, rule, tmp_path / "spools"), fedopl.read_logged(path, rule))


def test_a_part_reads_its_rows(tmp_path):
    path = stored(PLAIN, tmp_path)
    rule = schema(propensity=EACH, weight="w", group="person")
    part = spool(path, rule, tmp_path / "spools").part(slice(30, 50))
    data = fedopl.read_logged(path, rule)
    assert not part.is_on_disk
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(part, name), getattr(data, name)[30:50])
        assert not getattr(part, name).flags.writeable


def test_half_the_digits_of_contexts_can_be_kept(tmp_path):
    path = stored(PLAIN, tmp_path)
    data = fedopl.read_logged(path, schema(weight="w"))
    half = spool(path, schema(weight="w"), tmp_path / "spools", number="float32")
    rounded = data.contexts.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(half.contexts[:], rounded)
    assert half.contexts.path.stat().st_size == data.contexts.size * 4
    for name in ("rewards", "weights"):
        np.testing.assert_array_equal(getattr(half, name)[:], getattr(data, name))


def test_features_too_large_for_half_the_digits_are_refused(tmp_path):
    path = stored(table(age=[1e39] * N_ROWS), tmp_path)
    with pytest.raises(fedopl.DataError, match="too large for float32"):
        spool(path, schema(), tmp_path / "spools", number="float32")


# --- what is refused -------------------------------------------------------------------------


def with_last(column, value):
    """Wrong in the last row, so in the last batch."""
    return {**PLAIN, column: [*list(PLAIN[column])[:-1], value]}


BAD = {
    "an unknown action": (with_last("arm", "surgery"), {}, "1 of 5 rows .*unknown: 'surgery'"),
    "an unknown level": (with_last("sex", "q"), {}, "column 'sex': 1 of 5 rows"),
    "infinite": (with_last("age", np.inf), {}, "column 'age': infinite in 1 of 5 rows"),
    "text": (table(age=["old"] * N_ROWS), {}, "column 'age': expected numbers, came text"),
    "a propensity above one": (with_last("p", 1.5), {"propensity": "p"}, "outside 0 to 1"),
    "a propensity of zero": (with_last("p", 0.0), {"propensity": "p"}, "cannot have probability 0"),
    "propensities off one": (
        with_last("p1", PLAIN["p1"][-1] + 0.01),
        {"propensity": EACH},
        "1 of 5 rows do not add up to 1|outside",
    ),
    "a weight of zero": (with_last("w", 0.0), {"weight": "w"}, "1 of 5 are zero or less"),
}


@pytest.mark.parametrize(("columns", "rule", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_refused_and_located(tmp_path, columns, rule, message):
    path = stored(columns, tmp_path)
    with pytest.raises(fedopl.DataError, match=message) as caught:
        spool(path, schema(**rule), tmp_path / "spools")
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith(("(in rows 97 to 101)", "(in rows 1 to 16)"))
    assert not list((tmp_path / "spools").iterdir())


@pytest.mark.parametrize(("columns", "rule", "_"), BAD.values(), ids=BAD)
def test_one_batch_is_refused_in_the_words_of_a_table(tmp_path, monkeypatch, columns, rule, _):
    monkeypatch.setattr(spooling, "ROWS_PER_BATCH", 1000)
    path = stored(columns, tmp_path)
    with pytest.raises(fedopl.DataError) as ours:
        spool(path, schema(**rule), tmp_path / "spools")
    with pytest.raises(fedopl.DataError) as theirs:
        fedopl.read_logged(path, schema(**rule))
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        (gappy(PLAIN, "sex", "age"), {}),
        (gappy(PLAIN, "sex", "age", "cost"), {}),
        (gappy(PLAIN, "sex", "w"), {"missing": "indicator", "weight": "w"}),
        (gappy(PLAIN, "person"), {"group": "person"}),
        (table(age=[None] * N_ROWS), {"missing": "drop"}),
    ],
)
def test_gaps_are_counted_in_all_rows(tmp_path, columns, rule):
    path = stored(columns, tmp_path)
    with pytest.raises(fedopl.DataError) as ours:
        spool(path, schema(**rule), tmp_path / "spools")
    with pytest.raises(fedopl.DataError) as theirs:
        fedopl.read_logged(path, schema(**rule))
    assert str(ours.value) == str(theirs.value)


def test_dropped_rows_are_warned_of_each_time(tmp_path):
    path = stored(gappy(PLAIN, "age", "sex"), tmp_path)
    rule, said = schema(missing="drop"), []
    called = {column: column for column in rule.columns}
    encoder = Encoder(schema=rule, name=str(path), called=called, labels={})
    (tmp_path / "spools").mkdir()
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spooling.spool(path, encoder, tmp_path / "spools")
        said += [str(warning.message) for warning in caught]
        assert caught[0].filename == __file__
    with pytest.warns(fedopl.FedoplWarning) as theirs:
        fedopl.read_logged(path, rule)
    assert said == [str(theirs[0].message)] * 2


def test_bad_files_are_refused(tmp_path):
    folder = tmp_path / "spools"
    with pytest.raises(fedopl.DataError, match="is not there"):
        spool(tmp_path / "north.parquet", schema(), folder)
    (tmp_path / "north.csv").write_text("a,b\n1,2\n")
    with pytest.raises(fedopl.DataError, match="only Parquet"):
        spool(tmp_path / "north.csv", schema(), folder)
    (tmp_path / "cut.parquet").write_bytes(stored(PLAIN, tmp_path).read_bytes()[:-50])
    with pytest.raises(fedopl.DataError, match=r"cannot be read as \.parquet"):
        spool(tmp_path / "cut.parquet", schema(), folder)
    empty = stored({name: column[:0] for name, column in PLAIN.items()}, tmp_path)
    with pytest.raises(fedopl.DataError, match="no rows"):
        spool(empty, schema(), folder)
    without = stored({name: column for name, column in PLAIN.items() if name != "age"}, tmp_path)
    with pytest.raises(fedopl.DataError, match="1 of the schema's 5 columns missing: 'age'"):
        spool(without, schema(), folder)
    with pytest.raises(fedopl.OptionError, match="float16"):
        spool(without, schema(), folder, number="float16")


def test_damage_in_the_middle_of_a_file_is_named(tmp_path):
    path = stored(PLAIN, tmp_path, row_group_size=20, compression="zstd")
    content = bytearray(path.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 400] = os.urandom(400)
    path.write_bytes(content)
    with pytest.raises(fedopl.DataError, match=f"^{path}"):
        spool(path, schema(), tmp_path / "spools")
    assert not list((tmp_path / "spools").iterdir())


def test_a_full_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    path = stored(PLAIN, tmp_path)

    class Usage:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    needed = N_ROWS * (4 * 8 + 1 + 8)
    with pytest.raises(fedopl.StorageError, match=f"needs {needed:,} bytes of disk, 100 are free"):
        spool(path, schema(), tmp_path / "spools")


# --- spools that are there -------------------------------------------------------------------


def home_of(data):
    return data.contexts.path.parent


def test_a_spool_is_used_again(tmp_path, monkeypatch):
    path = stored(PLAIN, tmp_path)
    first = spool(path, schema(), tmp_path / "spools")
    monkeypatch.setattr(spooling, "write_file", None)
    again = spool(path, schema(), tmp_path / "spools")
    assert home_of(again) == home_of(first)
    assert fingerprint(again) == fingerprint(first)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": schema(direction="lower")},
        {"number": "float32"},
        {"labels": {"sex": {"x": "m"}}},
        {"columns": {"age": "visits"}},
    ],
    ids=str,
)
def test_another_way_of_reading_is_another_spool(tmp_path, change):
    path = stored(PLAIN, tmp_path)
    first = spool(path, schema(), tmp_path / "spools")
    other = spool(path, **{"schema": schema(), "folder": tmp_path / "spools", **change})
    assert home_of(other) != home_of(first)
    assert fingerprint(other) != fingerprint(first)
    assert first.contexts.is_complete()


def test_another_table_takes_the_place_of_the_one_before(tmp_path):
    first = spool(stored(PLAIN, tmp_path), schema(), tmp_path / "spools")
    path = stored(table(seed=1), tmp_path)
    second = spool(path, schema(), tmp_path / "spools")
    assert_same(second, fedopl.read_logged(path, schema()))
    assert [home_of(second)] == list((tmp_path / "spools").iterdir())
    with pytest.raises(fedopl.StorageError, match="start again"):
        first.contexts[:1]


def cut(home):
    os.truncate(home / "rewards", 5)


def without_its_list(home):
    (home / "about.json").unlink()


def with_half_a_list(home):
    (home / "about.json").write_bytes((home / "about.json").read_bytes()[:40])


def with_another_list(home):
    (home / "about.json").write_text(json.dumps({"arrays": [], "gaps": {}}))


@pytest.mark.parametrize("damage", [cut, without_its_list, with_half_a_list, with_another_list])
def test_a_damaged_spool_is_written_anew(tmp_path, damage):
    path = stored(PLAIN, tmp_path)
    damage(home_of(spool(path, schema(), tmp_path / "spools")))
    assert_same(spool(path, schema(), tmp_path / "spools"), fedopl.read_logged(path, schema()))


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path):
    path, folder = stored(PLAIN, tmp_path), tmp_path / "spools"
    for name, age in (("old", 10_000), ("new", 10)):
        left = folder / f".writing-{name}"
        left.mkdir(parents=True)
        (left / "contexts").write_bytes(b"half")
        then = left.stat().st_mtime - age
        os.utime(left / "contexts", (then, then))
        os.utime(left, (then, then))
    data = spool(path, schema(), folder)
    assert sorted(folder.iterdir()) == sorted([folder / ".writing-new", home_of(data)])


def test_the_first_of_two_writers_is_the_one_that_both_use(tmp_path, monkeypatch):
    path, folder = stored(PLAIN, tmp_path), tmp_path / "spools"
    finish = spooling._finish

    def meanwhile(beside, home, *more):
        monkeypatch.setattr(spooling, "_finish", finish)
        faster.append(spool(path, schema(), folder))
        written.append((home / "contexts").stat().st_ino)
        finish(beside, home, *more)

    faster, written = [], []
    monkeypatch.setattr(spooling, "_finish", meanwhile)
    slower = spool(path, schema(), folder)
    assert slower.contexts.path.stat().st_ino == written[0]
    assert list(folder.iterdir()) == [home_of(slower)]
    assert_same(slower, fedopl.read_logged(path, schema()))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = stored(PLAIN, tmp_path)
    append = spooling._append

    def meanwhile(data, writers):
        os.utime(path)
        append(data, writers)

    monkeypatch.setattr(spooling, "_append", meanwhile)
    with pytest.raises(fedopl.DataError, match="changed while it was read"):
        spool(path, schema(), tmp_path / "spools")
    assert not list((tmp_path / "spools").iterdir())


def test_only_the_owner_can_read_a_spool(tmp_path):
    home = home_of(spool(stored(PLAIN, tmp_path), schema(group="person"), tmp_path / "spools"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home, home.parent)} == {0o700}
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    names = ("contexts", "actions", "rewards", "groups", "about.json")
    assert files == dict.fromkeys(names, 0o600)


def test_names_of_groups_are_not_kept(tmp_path):
    home = home_of(spool(stored(PLAIN, tmp_path), schema(group="person"), tmp_path / "spools"))
    assert not [path for path in home.iterdir() if b"P1" in path.read_bytes()]


# --- fingerprints ----------------------------------------------------------------------------


def test_the_fingerprint_changes_with_any_row(tmp_path):
    rule = schema(propensity="p", weight="w", group="number")
    prints = [fingerprint(spool(stored(PLAIN, tmp_path), rule, tmp_path / "spools"))]
    for column in ("age", "cost", "p", "w", "number"):
        changed = {**PLAIN, column: [*list(PLAIN[column])[:-1], PLAIN[column][0]]}
        prints.append(fingerprint(spool(stored(changed, tmp_path), rule, tmp_path / "spools")))
    assert len(set(prints)) == len(prints)


def test_the_fingerprint_is_of_rows_and_not_of_batches(tmp_path, monkeypatch):
    path = stored(PLAIN, tmp_path)
    first = fingerprint(spool(path, schema(), tmp_path / "a"))
    monkeypatch.setattr(spooling, "ROWS_PER_BATCH", 7)
    assert fingerprint(spool(path, schema(), tmp_path / "b")) == first


def test_a_spool_that_somebody_removes_at_once_is_missed(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(table()), path)
    monkeypatch.setattr(spooling, "_finish", lambda *_: None)
    with pytest.raises(fedopl.StorageError, match="is not what was written; start again"):
        spool(path, schema(), tmp_path / "spools")


def test_rows_in_a_file_without_a_digest_have_no_fingerprint(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(table()), path)
    data = spool(path, schema(), tmp_path / "spools")
    object.__setattr__(data.contexts, "digest", "")  # past the frozen dataclass
    with pytest.raises(ValueError, match="nobody took its digest"):
        fingerprint(data)


def test_only_parquet_files_and_known_numbers_are_spooled(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(table()), path)
    with pytest.raises(fedopl.OptionError, match="expected float64 or float32, came 'float16'"):
        spool(path, schema(), tmp_path / "spools", number="float16")
    (tmp_path / "rows.csv").write_text("age\n1\n", encoding="utf-8")
    with pytest.raises(fedopl.DataError, match="only Parquet files can be read in batches"):
        spool(tmp_path / "rows.csv", schema(), tmp_path / "spools")
