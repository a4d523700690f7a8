"""A study is answered for the rows that it was first asked about."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.client.disk.store import MemoryStore
from fedopl.client.rows.snapshots import Snapshots, _in_multiset
from fedopl.study.study import Study

STUDY = Study(actions=("a0", "a1", "a2"), features=("x0", "x1", "x2", "x3", "x4"))


def snapshots(store, **options):
    return Snapshots(store=store, seed=1, minimum_cell=5, **options)


def joined(*parts):
    arrays = [np.concatenate([getattr(p, n) for p in parts]) for n in ("contexts", "actions")]
    rewards = np.concatenate([part.rewards for part in parts])
    return fedopl.LoggedData(*arrays, rewards, action_names=parts[0].action_names)


def test_the_same_rows_in_another_order_are_the_same(draw):
    data, store = draw(100), MemoryStore()
    assert snapshots(store).pinned("north", STUDY, data, keep=True) is data
    turned = data.taken(np.arange(100)[::-1])
    assert snapshots(store).pinned("north", STUDY, turned, keep=True) is turned


@pytest.mark.parametrize("change", ["came", "went", "changed"])
def test_rows_that_came_went_or_changed_are_refused(draw, change):
    data, store = draw(100), MemoryStore()
    snapshots(store).pinned("north", STUDY, data, keep=True)
    rewards = data.rewards.copy()
    rewards[3] += 1
    other = {
        "came": joined(data, draw(1, seed=9)),
        "went": data.taken(np.arange(99)),
        "changed": fedopl.LoggedData(
            data.contexts, data.actions, rewards, action_names=data.action_names
        ),
    }[change]
    with pytest.raises(fedopl.StudyError, match=r"north: its rows are not those .* 1 (came|went)"):
        snapshots(store, new_rows="refuse").pinned("north", STUDY, other, keep=True)


def test_rows_that_came_can_be_left_out_but_none_that_went(draw):
    data, store = draw(100), MemoryStore()
    snapshots(store).pinned("north", STUDY, data, keep=True)
    leaving = snapshots(store, new_rows="leave out")
    left = leaving.pinned("north", STUDY, joined(draw(3, seed=9), data), keep=True)
    assert np.array_equal(left.contexts, data.contexts)
    with pytest.raises(fedopl.StudyError, match="1 went"):
        leaving.pinned("north", STUDY, data.taken(np.arange(99)), keep=True)


def test_two_studies_have_the_same_rows_or_differ_in_enough(draw):
    data, store = draw(100), MemoryStore()
    snapshots(store).pinned("north", STUDY, data, keep=True)
    other = STUDY.model_copy(update={"name": "other"})
    with pytest.raises(fedopl.StudyError, match="differ in 4 from those"):
        snapshots(store).pinned("north", other, joined(data, draw(4, seed=9)), keep=True)
    snapshots(store).pinned("north", other, joined(data, draw(5, seed=9)), keep=True)


def test_a_rehearsal_pins_nothing(draw):
    store = MemoryStore()
    snapshots(store).pinned("north", STUDY, draw(100), keep=False)
    assert store.get("snapshots") is None


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_equal_rows_are_counted(rows, pinned):
    found = _in_multiset(np.array(rows, np.uint64), np.array(pinned, np.uint64))
    left = list(pinned)
    expected = []
    for row in rows:
        expected.append(row in left)
        if row in left:
            left.remove(row)
    assert found.tolist() == expected
