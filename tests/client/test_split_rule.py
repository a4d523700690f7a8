"""Law: folds and held-out rows have enough rows of every action that is corrected."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedopl
from fedopl.client.rows.split_rule import FEWEST_USED, split_by_rule
from parquet_rows import write_rows

ACTIONS = ("a0", "a1", "a2")


def table(counts, seed=0, *, group_size=0):
    """A table in which so many rows took each action; some agree in contexts."""
    rng = np.random.default_rng(seed)
    actions = rng.permutation(np.repeat(np.arange(3), counts))
    return fedopl.LoggedData(
        rng.integers(0, 3, (len(actions), 2)).astype(float),
        actions,
        rng.normal(size=len(actions)),
        action_names=ACTIONS,
        groups=rng.integers(0, len(actions) // group_size + 2, len(actions))
        if group_size
        else None,
    )


def rows_in(data, split):
    """Rows by fold and action; held-out rows come last."""
    found = np.zeros((split.folds.n_folds + 1, 3), int)
    np.add.at(found, (np.asarray(split.folds.of_row[:]), np.asarray(data.actions[:])), 1)
    return found


@settings(max_examples=150)
@given(
    counts=st.lists(st.integers(0, 70), min_size=3, max_size=3).filter(lambda c: sum(c) > 3),
    n_folds=st.sampled_from([2, 5, 20]),
    share=st.sampled_from([0.0, 0.05, 0.25, 0.5]),
    cell=st.sampled_from([0, 1, 5, 9]),
    group_size=st.sampled_from([0, 0, 1, 3, 12]),
    seed=st.integers(0, 99),
)
def test_a_fold_that_is_used_has_enough_rows_of_each_corrected_action(
    counts, n_folds, share, cell, group_size, seed
):
    data = table(counts, seed, group_size=group_size)
    split = split_by_rule(data, n_folds, share, seed, cell)
    found = rows_in(data, split)
    assert FEWEST_USED <= split.n_used <= n_folds
    assert not found[split.n_used : -1].any()
    assert split.share in (0.0, share)
    assert not found[-1].any() or split.share
    if cell > 1:
        assert (found[: split.n_used, split.corrected] >= cell).all()
        assert not split.share or (found[-1, split.corrected] >= cell).all()
        assert split.corrected.any() or not split.share
    else:
        assert (split.n_used, split.share) == (n_folds, share)
        assert split.corrected.tolist() == (found[:-1].sum(axis=0) > 0).tolist() or group_size


@given(st.lists(st.integers(0, 70), min_size=3, max_size=3).filter(lambda c: sum(c) > 9))
def test_as_many_folds_are_used_as_have_enough_rows(counts):
    data = table(counts)
    split = split_by_rule(data, 20, 0.0, 0, 5)
    fewest = min((count for count in counts if count >= 10), default=10)
    assert split.corrected.tolist() == [count >= 10 for count in counts]
    assert split.n_used == max(2, min(20, fewest // 5))


def test_rows_in_any_order_are_in_the_same_folds():
    data = table([40, 30, 20])
    expected = split_by_rule(data, 5, 0.25, 0, 5).folds.of_row
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(data.n_rows)
        found = split_by_rule(data.taken(order), 5, 0.25, 0, 5).folds.of_row
        assert found.tolist() == expected[order].tolist()


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_on_disk_are_split_as_in_memory(tmp_path, grouped):
    rng = np.random.default_rng(0)
    actions = rng.choice(np.array(ACTIONS), 200, p=[0.5, 0.4, 0.1])
    person = {"columns": {"person": rng.integers(0, 90, 200)}, "group": "person"}
    path = tmp_path / "rows.parquet"
    rows = rng.normal(size=(200, 2)), actions, rng.normal(size=200)
    schema = write_rows(path, *rows, actions=ACTIONS, **(person if grouped else {}))
    for n_folds, share, cell in ((5, 0.25, 5), (20, 0.0, 5), (5, 0.5, 0), (20, 0.05, 4)):
        both = [
            split_by_rule(fedopl.read_logged(path, schema, on_disk=folder), n_folds, share, 1, cell)
            for folder in (None, tmp_path / "rows")
        ]
        assert len({(split.n_used, split.share, tuple(split.corrected)) for split in both}) == 1
        assert np.array_equal(both[0].folds.of_row, both[1].folds.of_row[:])
