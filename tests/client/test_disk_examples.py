"""Local steps on disk take the rows that they would take in memory."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.base.errors import StorageError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.local import local_steps
from fedopl.client.local.local_steps import DiskExamples, examples
from fedopl.client.rows import study_rows
from fedopl.client.rows.chunks import sorted_order
from fedopl.client.rows.study_rows import StudyRows

N_ROWS, ACTIONS = 500, ("a", "b", "c")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(study_rows, "ROWS_PER_CHUNK", 110)
    monkeypatch.setattr(local_steps, "ROWS_STEPPED_AT_ONCE", 64)


def scored(rows, missing):
    """Chunks with scores that follow from contexts, so that chunks of any size have the same."""
    factors = np.random.default_rng(1).standard_normal((3, len(ACTIONS)))

    def chunks():
        for chunk in rows.chunks():
            x = chunk.data.contexts
            scores = x @ factors
            if missing:
                scores[x[:, 0] > 0.5, 1] = np.nan
                scores[x[:, 1] > 0.8] = np.nan  # in no action: not to be learned from
            yield chunk.with_scores(scores)

    return chunks


@pytest.fixture
def both(tmp_path):
    def _both(weight=None, missing=False):
        rng = np.random.default_rng(0)
        table = {f"x{k}": rng.normal(size=N_ROWS) for k in range(3)}
        table |= {"done": rng.choice(ACTIONS, N_ROWS), "gained": rng.normal(size=N_ROWS)}
        table |= {"weight": rng.uniform(0.5, 2, N_ROWS)}
        path = tmp_path / "rows.parquet"
        parquet.write_table(pa.table(table), path)
        schema = fedopl.Schema(
            action="done",
            actions=ACTIONS,
            reward="gained",
            direction="higher",
            numeric=("x0", "x1", "x2"),
            weight=weight,
        )
        study = fedopl.Study(actions=ACTIONS, features=schema.feature_names)
        found = []
        for folder in (None, tmp_path / "kept"):
            data = fedopl.read_logged(path, schema, on_disk=folder)
            rows = StudyRows(data, study, 0, PrivateDraws(0, "north", ""))
            if folder is None:  # in memory, rows are in the order of what they hold
                folds = rows.folds_as_given
                rows.order = sorted_order(folds.of_row, data.actions, folds.n_folds, len(ACTIONS))
            found.append((data, scored(rows, missing)))
        return found

    return _both


CENTRE, SCALE = np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.5, 2.0, 0.5, 1.0])


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("missing", [False, True])
def test_rows_have_the_same_numbers_in_memory_and_on_disk(both, weight, missing):
    (_, in_memory), (data, on_disk) = both(weight, missing)
    (whole,) = in_memory()
    expected = examples(whole.scored_rows(), CENTRE, SCALE)
    found = DiskExamples(on_disk, data, CENTRE, SCALE)
    assert (found.n_rows, found.width) == (expected.n_rows, expected.width)
    assert (found.n_rows < whole.training.stop) == missing
    assert found.curvature == pytest.approx(expected.curvature)
    assert found.trace == pytest.approx(expected.trace)
    every = np.arange(found.n_rows)
    for picks in (every, np.random.default_rng(2).integers(0, found.n_rows, (4, 16))):
        for own, other in zip(found.gathered(picks), expected.gathered(picks), strict=True):
            if other is None:
                assert own is None
            else:
                np.testing.assert_allclose(own, np.broadcast_to(other, own.shape), rtol=1e-12)
    (at_once,) = expected.blocks()
    for _ in range(2):  # gone through again and again
        blocks = list(found.blocks())
        assert len(blocks) > 1
        assert sum(features.sum() for features, _, _ in blocks) == pytest.approx(at_once[0].sum())


def test_the_copy_is_private_and_gone_with_its_user(both, tmp_path):
    _, (data, on_disk) = both()
    found = DiskExamples(on_disk, data, CENTRE, SCALE)
    (folder,) = tmp_path.glob(f"kept/*/{local_steps.ABANDONED}*")
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "rows").stat().st_mode & 0o077 == 0
    del found
    gc.collect()
    assert not folder.exists()


def test_a_copy_that_somebody_cut_short_is_named(both, tmp_path):
    _, (data, on_disk) = both()
    found = DiskExamples(on_disk, data, CENTRE, SCALE)
    (path,) = tmp_path.glob(f"kept/*/{local_steps.ABANDONED}*/rows")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(StorageError, match="cannot be read; start again"):
        found.gathered(np.arange(found.n_rows))
    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        found.gathered(np.arange(3))


def test_a_folder_that_cannot_be_written_to_is_named(both, monkeypatch):
    _, (data, on_disk) = both()

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(StorageError, match="cannot be written: Permission denied"):
        DiskExamples(on_disk, data, CENTRE, SCALE)


def test_a_copy_that_fails_half_way_leaves_nothing(both, tmp_path):
    _, (data, on_disk) = both()

    def failing():
        yield next(on_disk())
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        DiskExamples(failing, data, CENTRE, SCALE)
    assert not list(tmp_path.glob(f"kept/*/{local_steps.ABANDONED}*"))
