import copy
import itertools
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest

import fedopl
from fedopl.client.disk.disk_array import DiskArray, DiskWriter, check_space

ROWS = np.arange(24.0).reshape(8, 3) / 7


def written(folder, rows=ROWS, stored=np.float64, pieces=(0, 3, 3, 8)):
    with DiskWriter(folder / "rows", rows.shape[1:], stored) as writer:
        for start, stop in itertools.pairwise(pieces):
            writer.append(rows[start:stop])
        return writer.finished()


@pytest.mark.parametrize(
    "rows", [slice(None), slice(2, 5), slice(5, 2), slice(-2, None), slice(6, 99), slice(0, 0)]
)
@pytest.mark.parametrize("array", [ROWS, ROWS[:, 0], ROWS[:, :0]], ids=["2", "1", "no columns"])
def test_a_slice_is_that_of_the_array(tmp_path, array, rows):
    stored = written(tmp_path, array)
    assert (len(stored), stored.shape, stored.ndim) == (8, array.shape, array.ndim)
    assert stored.dtype == stored[rows].dtype == np.float64
    np.testing.assert_array_equal(stored[rows], array[rows])


def test_half_the_digits_are_kept_and_all_are_read(tmp_path):
    stored = written(tmp_path, stored=np.float32)
    assert stored.path.stat().st_size == ROWS.size * 4
    assert stored[2:4].dtype == np.float64
    np.testing.assert_array_equal(stored[:], ROWS.astype(np.float32).astype(np.float64))


def test_rows_may_be_appended_in_any_layout(tmp_path):
    stored = written(tmp_path, np.asfortranarray(ROWS))
    np.testing.assert_array_equal(stored[:], ROWS)


def test_rows_of_another_width_are_not_appended(tmp_path):
    with (
        DiskWriter(tmp_path / "rows", (3,), float) as writer,
        pytest.raises(ValueError, match=r"expected rows of shape \(3,\), came \(2,\)"),
    ):
        writer.append(ROWS[:, :2])


def test_the_digest_is_of_the_rows_and_not_of_the_pieces(tmp_path):
    digest = written(tmp_path).digest
    assert digest == written(tmp_path, pieces=(0, 1, 8)).digest
    assert digest != written(tmp_path, ROWS + 1e-9).digest
    assert len(digest) == 32


def test_only_the_owner_can_read_the_file(tmp_path):
    assert stat.S_IMODE(written(tmp_path).path.stat().st_mode) == 0o600


def test_a_write_may_take_less_than_was_given(tmp_path):
    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, content):
            return self.file.write(content[:7])

        def __getattr__(self, name):
            return getattr(self.file, name)

    with DiskWriter(tmp_path / "rows", (3,), float) as writer:
        writer._file = Slow(writer._file)
        writer.append(ROWS)
        np.testing.assert_array_equal(writer.finished()[:], ROWS)


def test_a_file_that_was_cut_short_is_noticed(tmp_path):
    stored = written(tmp_path)
    assert stored.is_complete()
    os.truncate(stored.path, stored.n_bytes - 1)
    assert not stored.is_complete()
    np.testing.assert_array_equal(stored[:7], ROWS[:7])
    with pytest.raises(fedopl.StorageError, match=r"rows: .*shorter than it was"):
        stored[6:]


def test_a_file_that_is_gone_is_named(tmp_path):
    stored = written(tmp_path)
    stored.path.unlink()
    assert not stored.is_complete()
    with pytest.raises(fedopl.StorageError, match="No such file"):
        stored[:1]


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="says which files are open")
def test_no_file_stays_open(tmp_path):
    before = open_files()
    stored = written(tmp_path)
    for start in range(8):
        stored[start : start + 2]
    with pytest.raises(ValueError, match="shape"), DiskWriter(tmp_path / "a", (2,), float) as half:
        half.append(ROWS)
    assert open_files() == before


def test_nothing_is_appended_to_a_finished_array(tmp_path):
    with DiskWriter(tmp_path / "rows", (3,), float) as writer:
        writer.finished()
        with pytest.raises(ValueError, match="closed"):
            writer.append(ROWS)


NEED_ALL_ROWS = {
    "as an array": np.asarray,
    "a ufunc": np.sqrt,
    "a function": np.sum,
    "arithmetic": lambda array: 2 * array + 1,
    "arithmetic with an array": lambda array: ROWS - array,
    "comparison": lambda array: array == 0,
    "a method": lambda array: array.max(),
    "iteration": list,
    "a mask": lambda array: array[ROWS[:, 0] > 1],
    "one row": lambda array: array[0],
    "columns": lambda array: array[:, 0],
    "every other row": lambda array: array[::2],
    "backwards": lambda array: array[::-1],
    "taking": lambda array: np.take(array, [1, 0], axis=0),
    "as data": lambda array: fedopl.LoggedData(array, ["a", "b"] * 4, ROWS[:, 0]),
}


@pytest.mark.parametrize("use", NEED_ALL_ROWS.values(), ids=NEED_ALL_ROWS)
def test_what_needs_all_rows_is_refused_in_one_clear_way(tmp_path, use):
    stored = written(tmp_path)
    with pytest.raises(fedopl.DataError, match="on disk and can only be read a slice at a time"):
        use(stored)


@pytest.mark.parametrize("carry", [pickle.dumps, copy.copy, copy.deepcopy])
def test_an_array_on_disk_stays_where_it_is(tmp_path, carry):
    with pytest.raises(fedopl.PrivacyError):
        carry(written(tmp_path))


def test_a_disk_without_room_is_refused_with_both_numbers(tmp_path):
    check_space(tmp_path, 10, "this")
    with pytest.raises(fedopl.StorageError, match=r"this needs 1,\d{3},.* bytes of disk, .* free"):
        check_space(tmp_path, 10**18, "this")


def test_an_array_on_disk_shows_no_row(tmp_path):
    assert isinstance(written(tmp_path), DiskArray)
    assert str(ROWS[1, 0]) not in repr(written(tmp_path))
