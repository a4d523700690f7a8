"""Statistics of what features leave together in both models: groups, chunks, and a loop."""

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.door import Door
from fedopl.client.rows import study_rows
from fedopl.client.scoring.fit_numbers import FittedRows
from fedopl.client.scoring.interactions import INTERACTION_TESTS, interaction_tests
from fedopl.messages import codec
from fedopl.messages.learning.score_sums import SumScores
from parquet_rows import write_rows

ACTIONS, N_FEATURES = ("a", "b"), 3


def fitted(n_rows=120, *, repeat=1, groups=None):
    rng = np.random.default_rng(0)
    each = {
        "contexts": rng.standard_normal((n_rows, N_FEATURES)),
        "actions": rng.integers(0, 2, n_rows),
        "rewards": rng.standard_normal(n_rows),
        "weights": rng.uniform(0.5, 2.0, n_rows),
        "folds": np.arange(n_rows) % 5,
        "means": np.zeros((n_rows, 2)),
        "propensities": rng.uniform(0.3, 0.7, (n_rows, 2)),
    }
    copies = {name: np.repeat(array, repeat, axis=0) for name, array in each.items()}
    return FittedRows(groups=groups, **copies)


def found(rows):
    return dict(zip(INTERACTION_TESTS, np.moveaxis(interaction_tests(rows), -1, 0), strict=True))


def test_copies_of_a_row_in_one_group_count_as_one():
    once = found(fitted())
    together = found(fitted(repeat=4, groups=np.repeat(np.arange(120), 4)))
    for name in INTERACTION_TESTS:
        np.testing.assert_allclose(together[name], once[name], rtol=1e-9, err_msg=name)
    # Whoever took them for rows of their own would be twice as sure.
    apart = found(fitted(repeat=4))
    for name in ("weights", "residuals"):
        np.testing.assert_allclose(apart[name], 2 * once[name], rtol=1e-9)
    np.testing.assert_allclose(apart["unit"], once["unit"] / 4)


def test_statistics_of_groups_are_what_a_loop_finds():
    groups = np.random.default_rng(1).integers(0, 30, 120)
    rows, action = fitted(groups=groups), 1
    signs = np.where(rows.contexts > np.median(rows.contexts, axis=0), 1.0, -1.0)
    product, took = signs[:, 0] * signs[:, 1], rows.actions == action
    features = np.column_stack([np.ones(took.sum()), rows.contexts[took]])
    root = np.sqrt(rows.weights[took])
    slopes = np.linalg.lstsq(features * root[:, None], product[took] * root, rcond=None)[0]
    left = product[took] - features @ slopes
    own = [
        sum(
            rows.weights[took][i] * rows.rewards[took][i] * left[i]
            for i in np.flatnonzero(groups[took] == group)
        )
        for group in range(30)
    ]
    expected = np.sum(own) / np.sqrt(np.square(own).sum())
    assert found(rows)["residuals"][action, 0] == pytest.approx(expected)


@pytest.mark.parametrize("persons", [False, True], ids=["rows", "persons"])
def test_rows_on_disk_have_the_statistics_of_rows_in_memory(tmp_path, monkeypatch, persons):
    monkeypatch.setattr(study_rows, "ROWS_PER_CHUNK", 70)
    rng = np.random.default_rng(2)
    schema = write_rows(
        tmp_path / "rows.parquet",
        rng.standard_normal((300, N_FEATURES)).round(3),
        rng.choice(ACTIONS, 300),
        rng.standard_normal(300).round(3),
        actions=ACTIONS,
        columns={
            "person": np.repeat(np.arange(100), 3).astype(str),
            "chance": rng.uniform(0.4, 0.6, 300).round(2),
        },
        propensity="chance",
        group="person" if persons else None,
    )
    told = []
    for kept in ({}, {"on_disk": tmp_path / "rows"}):
        data = fedopl.read_logged(tmp_path / "rows.parquet", schema, **kept)
        assert data.is_on_disk == bool(kept)
        told.append(_statistics(data))
    assert told[0].any()
    np.testing.assert_allclose(told[1], told[0], rtol=1e-9, atol=1e-12)


def _statistics(data):
    """Of all rows, by propensities that are the same in whatever folds they are."""
    study = fedopl.Study(
        actions=ACTIONS,
        features=data.feature_names,
        nuisances=fedopl.NuisancePlan(propensity="known"),
        evaluation=fedopl.EvaluationPlan(share=0),
    )
    door = Door("north", data, study, limits=Limits.open(), secret="known to the client alone")
    models = np.zeros((study.nuisances.folds + 1, len(ACTIONS), N_FEATURES + 1))
    supported = np.ones(models.shape[:2])
    query = SumScores(study=study.digest, exchange=0, models=models, supported=supported)
    door.handle(codec.encode(query))
    return door._space.scored.interactions
