import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedopl
from fedopl.client.disk import disk_array, external_sort
from fedopl.client.disk.disk_array import DiskArray, DiskWriter
from fedopl.client.disk.external_sort import RecordOrder, Sorter, stable_order
from fedopl.client.rows import fold_turns
from fedopl.client.rows.fold_turns import TRAINING, by_stratum, turns_on_disk
from fedopl.client.rows.folds import Folds, assign_folds_and_hold_out
from fedopl.client.rows.row_keys import content_order, row_keys
from fedopl.client.table.logged_data import trusted


def on_disk_too(data, folder):
    """The same rows in files."""

    def stored(name, kind):
        array = getattr(data, name)
        if array is None:
            return None
        with DiskWriter(folder / name, array.shape[1:], kind) as writer:
            writer.append(array)
            return writer.finished()

    kinds = {
        "contexts": np.float64,
        "actions": np.uint8,
        "rewards": np.float64,
        "weights": np.float64,
        "groups": np.uint32,
    }
    arrays = {name: stored(name, kind) for name, kind in kinds.items()}
    return trusted(arrays, data.action_names, data.feature_names)


@st.composite
def tables(draw):
    """Small tables, most of them with rows that agree, and strata that are rare or empty."""
    n_rows = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_actions = draw(st.integers(2, 5))
    n_kinds = draw(st.sampled_from([1, 2, 7, 1000]))
    actions = rng.integers(0, draw(st.integers(1, n_actions)), n_rows)
    groups = rng.integers(0, draw(st.integers(1, 20)), n_rows) if draw(st.booleans()) else None
    return fedopl.LoggedData(
        rng.integers(0, n_kinds, (n_rows, draw(st.integers(1, 2)))) / 7,
        actions,
        rng.random(n_rows),
        action_names=[f"a{code}" for code in range(n_actions)],
        weights=rng.uniform(1, 2, n_rows) if draw(st.booleans()) else None,
        groups=groups,
    )


@settings(max_examples=80)
@given(
    data=tables(),
    n_folds=st.integers(2, 6),
    share=st.one_of(st.sampled_from([0.0, 0.5, 0.9]), st.floats(0, 0.9)),
    seed=st.integers(0, 5),
    per_bucket=st.sampled_from([1, 2, 3, 8, 1000]),
    per_slice=st.sampled_from([1, 5, 64]),
)
def test_folds_on_disk_are_those_in_memory(data, n_folds, share, seed, per_bucket, per_slice):
    data = data.taken(content_order(data))  # on disk, rows that agree are told apart by position
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_turns, "RECORDS_PER_BUCKET", per_bucket)
        patch.setattr(fold_turns, "BYTES_PER_SLICE", 8 * per_slice * data.n_features)
        patch.setattr(disk_array.slices, "__defaults__", (per_slice,))
        patch.setattr(external_sort, "MOST_BUCKETS", 4)
        stored = on_disk_too(data, Path(folder))
        ours = assign_folds_and_hold_out(stored, n_folds, share, seed)
        theirs = assign_folds_and_hold_out(data, n_folds, share, seed)
        assert isinstance(ours.of_row, DiskArray)
        np.testing.assert_array_equal(ours.of_row[:], theirs.of_row)
        assert ours.of_row.dtype == theirs.of_row.dtype == np.uint16
        assert (ours.n_folds, ours.reason, ours.n_parts) == (n_folds, theirs.reason, theirs.n_parts)
        assert ours.n_parts == n_folds + theirs.held_out.any()
        assert not list(Path(folder).glob(".*"))


@settings(max_examples=60)
@given(
    keys=st.lists(st.sampled_from([0, 1, 5, 2**63, 2**64 - 1, 2**64 - 2]), max_size=60),
    at_most=st.integers(1, 10),
    most_buckets=st.sampled_from([2, 3, 256]),
)
def test_records_are_sorted_in_files_however_skewed(keys, at_most, most_buckets):
    records = np.zeros(len(keys), TRAINING)
    records["key"], records["row"] = keys, np.arange(len(keys))
    shuffled = records[np.random.default_rng(0).permutation(len(keys))]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_sort, "MOST_BUCKETS", most_buckets)
        own = Path(folder) / "own"
        sorter = Sorter(own, RecordOrder(TRAINING, ("key", "row"), at_most), len(keys))
        for start in range(0, len(keys), 7):
            sorter.add(shuffled[start : start + 7])
        parts = list(sorter.ascending())
        assert all(len(part) <= at_most for part in parts)
        found = np.concatenate([*parts, records[:0]])
        assert found.tolist() == records[np.lexsort((records["row"], records["key"]))].tolist()
        assert not own.exists()


def test_records_that_agree_in_everything_are_sorted_too(tmp_path):
    sorter = Sorter(tmp_path / "own", RecordOrder(TRAINING, ("key", "row"), 3), 10)
    sorter.add(np.zeros(10, TRAINING))
    assert [len(part) for part in sorter.ascending()] == [3, 3, 3, 1]


@given(st.lists(st.integers(0, 5), max_size=50))
def test_equal_keys_stay_in_order(keys):
    array = np.array(keys, np.uint64)
    assert stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2**40, 2**63, 2**63 + 1, 2**64 - 1]), st.integers(0, 3)),
        min_size=1,
        max_size=60,
    )
)
def test_items_are_sorted_by_stratum_and_key_and_position(items):
    keys, strata = np.array(items, np.uint64).T
    strata = strata.astype(np.int64)
    expected = np.lexsort((np.arange(len(keys)), keys, strata))
    assert by_stratum(keys, strata).tolist() == expected.tolist()


def test_rows_that_agree_keep_their_order_in_large_tables():
    """An unstable sort is stable on short arrays only."""
    data = fedopl.LoggedData(np.ones((5000, 1)), np.arange(5000) % 2, np.arange(5000))
    data = data.taken(content_order(data))
    of_row = assign_folds_and_hold_out(data, 5, 0.0, 0).of_row
    turns = [of_row[data.actions == action] for action in (0, 1)]
    assert turns[0].tolist() == turns[1].tolist() == [0, 1, 2, 3, 4] * 500


def test_other_numbers_of_folds_are_dealt_in_the_same_turns(draw, tmp_path, monkeypatch):
    data = draw(200)
    stored = on_disk_too(data, tmp_path)
    assign_folds_and_hold_out(stored, 5, 0.25, 0)
    expected = assign_folds_and_hold_out(data, 3, 0.25, 0)
    monkeypatch.setattr(fold_turns, "row_keys", None)  # no row is looked at again
    again = assign_folds_and_hold_out(stored, 3, 0.25, 0)
    np.testing.assert_array_equal(again.of_row[:], expected.of_row)


@pytest.mark.parametrize("grouped", [False, True])
def test_folds_of_other_rows_are_not_taken_for_these(draw, tmp_path, grouped):
    groups = np.arange(200) // 4 if grouped else None
    for seed in range(2):
        data = draw(200, seed=seed, groups=groups)
        found = assign_folds_and_hold_out(on_disk_too(data, tmp_path), 5, 0.25, 0)
        expected = assign_folds_and_hold_out(data, 5, 0.25, 0)
        np.testing.assert_array_equal(found.of_row[:], expected.of_row)


def test_folds_cut_short_are_dealt_again(draw, tmp_path):
    data = draw(100)
    stored = on_disk_too(data, tmp_path)
    first = assign_folds_and_hold_out(stored, 5, 0.25, 0)
    expected = first.of_row[:]
    for path in tmp_path.glob("*-*"):
        os.truncate(path, 3)
    np.testing.assert_array_equal(assign_folds_and_hold_out(stored, 5, 0.25, 0).of_row[:], expected)


def test_a_part_knows_its_folds_and_how_many_parts_there_are(draw, tmp_path):
    data = draw(100)
    for source in (data, on_disk_too(data, tmp_path)):
        whole = assign_folds_and_hold_out(source, 4, 0.25, 0)
        expected = assign_folds_and_hold_out(data, 4, 0.25, 0)
        rows = slice(int(np.argmin(expected.held_out)), int(np.argmin(expected.held_out)) + 1)
        part = whole.part(rows)
        assert part.of_row.tolist() == expected.of_row[rows].tolist()
        assert not part.held_out.any()
        assert part.n_parts == whole.n_parts == 5
        assert part.learns_from(4).all()


def test_folds_made_by_hand_count_their_parts():
    plain = Folds(of_row=np.array([0, 1, 2], np.uint16), n_folds=2, reason="")
    assert plain.n_parts == plain.part(slice(0, 1)).n_parts == 3
    assert Folds(of_row=np.array([0, 1, 1], np.uint16), n_folds=2, reason="").n_parts == 2


def test_whole_folds_on_disk_are_refused_in_words(draw, tmp_path):
    whole = assign_folds_and_hold_out(on_disk_too(draw(50), tmp_path), 4, 0.25, 0)
    with pytest.raises(fedopl.DataError, match="a slice at a time"):
        _ = whole.held_out


def test_keys_are_those_of_memory(draw, tmp_path):
    data = draw(100)
    keys = row_keys(on_disk_too(data, tmp_path).contexts, 3, ("folds",))
    np.testing.assert_array_equal(keys, row_keys(data.contexts, 3, ("folds",)))


def test_a_deal_that_fails_leaves_nothing(draw, tmp_path, monkeypatch):
    stored = on_disk_too(draw(100), tmp_path)
    before = sorted(tmp_path.iterdir())

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fold_turns, "_places", broken)
    with pytest.raises(KeyboardInterrupt):
        assign_folds_and_hold_out(stored, 5, 0.25, 0)
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_is_refused_before_dealing(tmp_path, monkeypatch):
    class Usage:
        free = 100

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    counts = np.array([1000])
    with pytest.raises(fedopl.StorageError, match="dealing rows to folds needs 52,000 bytes"):
        next(turns_on_disk(iter([]), counts, counts // 2, tmp_path))
