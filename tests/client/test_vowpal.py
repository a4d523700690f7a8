import numpy as np
import pytest

from fedopl.client.local.local_steps import examples
from fedopl.client.local.local_training import Vowpal
from fedopl.client.rows.chunks import ScoredRows


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((500, 3))
    truth = rng.standard_normal((5, 4))
    scores = contexts @ truth[:, :-1].T + truth[:, -1]
    return truth, examples(
        ScoredRows(contexts=contexts, scores=scores, weights=None), np.zeros(4), np.ones(4)
    )


NONE = np.empty((0, 0), np.int64)


def test_parameters_go_in_and_come_out_again(rows):
    _, made = rows
    parameters = np.random.default_rng(1).standard_normal((5, 4))
    found = Vowpal(made, 0.5).improve(parameters, NONE)
    np.testing.assert_allclose(found, parameters, rtol=1e-6)  # it keeps single precision


def test_passes_come_close_to_least_squares(rows):
    truth, made = rows
    vowpal = Vowpal(made, 0.5)
    picks = np.random.default_rng(2).integers(0, 500, (20, 500))
    found = vowpal.improve(np.zeros((5, 4)), picks)
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_an_action_without_a_score_is_not_learned_from(rows):
    _, made = rows
    scores = made.scores.copy()
    scores[:, 2] = np.nan
    masked = examples(
        ScoredRows(contexts=made.features[:, :-1], scores=scores, weights=None),
        np.zeros(4),
        np.ones(4),
    )
    found = Vowpal(masked, 0.5).improve(np.zeros((5, 4)), np.arange(500)[None])
    assert not found[2].any()
    assert found[[0, 1, 3, 4]].any(axis=1).all()


def test_the_workspace_is_kept_from_round_to_round(rows):
    """A second round goes on from the first, and its steps are smaller."""
    _, made = rows
    picks = np.arange(100)[None]
    kept = Vowpal(made, 0.5)
    first = kept.improve(np.zeros((5, 4)), picks)
    later = kept.improve(np.zeros((5, 4)), picks)
    assert np.linalg.norm(later) < np.linalg.norm(first)
