"""Refusals and accidents that whole studies hardly ever come to."""

import numpy as np
import pytest
from test_door import door_to, scored

import fedopl
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import ScoreCounts
from fedopl.client.disk.store import MemoryStore
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.rows.chunks import ScoredRows
from fedopl.client.rows.fold_sums import fold_sums
from fedopl.client.rows.folds import Folds
from fedopl.client.scoring.study_scores import ScoreArchive
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.tree_columns import tree_columns
from fedopl.policies.trees.grid import Grid


def test_an_action_that_only_a_few_rows_score_is_refused():
    counts = ScoreCounts(2)
    scores = np.zeros((100, 2))
    scores[4:, 1] = np.nan
    counts.add(scores)
    assert not counts.to_suppress(4).any()
    with pytest.raises(RefusedError) as refused:
        counts.to_suppress(5)
    assert refused.value.code is RefusalCode.SMALL_CELLS


def test_parts_with_and_without_all_scores_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    contexts, scores = rng.normal(size=(60, 1)), rng.normal(size=(60, 3))
    scores[::7, 1] = np.nan
    scores[20:40] = rng.normal(size=(20, 3))
    binning = Binning(columns=tree_columns(("x0",), None), grid=Grid(((0.0,),), (False,)))

    def rows(part):
        return ScoredRows(contexts=contexts[part], scores=scores[part], weights=None)

    whole = cell_sums([rows(slice(None))], binning)
    parts = [slice(20, 40), slice(0, 20), slice(40, 60)]
    for order in (parts, parts[::-1]):
        np.testing.assert_allclose(cell_sums(map(rows, order), binning), whole)


def test_rows_that_are_all_held_out_add_up_to_nothing(draw):
    data = draw(20)
    folds = Folds(of_row=np.full(20, 2, np.uint16), n_folds=2, reason="none to learn from")
    sums = fold_sums(data, folds)
    assert not sums.sums.any()
    assert not sums.origin.any()


@pytest.mark.parametrize("damage", ["a name is missing", "another shape"])
def test_stored_scores_that_are_damaged_count_as_none(draw, damage):
    data = draw(100)
    space = scored(door_to(data))._space
    kept = dict(space.store.get(space.key))
    assert ScoreArchive(MemoryStore(rows=kept), "rows", data).get() is not None
    if damage == "another shape":
        kept["values"] = kept["values"][1:]
    else:
        del kept["hidden"]
    assert ScoreArchive(MemoryStore(rows=kept), "rows", data).get() is None


def test_local_steps_stay_within_the_blocks_of_each_action(draw):
    data = draw(300, n_features=6, n_actions=3)
    plan = fedopl.TrainingPlan(rounds=3, local_steps=2, batch_size=64)
    policy = fedopl.Linear(oracle="csoaa-sgd", features="blocks", training=plan)
    learned = fedopl.learn(
        {"only": data}, basis="linear", policy=policy, evaluation=0
    ).policy.parameters
    outside = np.ones((3, 6), bool)
    for action in range(3):
        outside[action, 2 * action : 2 * action + 2] = False
    assert not learned[:, :-1][outside].any()
    assert learned[:, :-1][~outside].all()


def test_a_tree_of_observed_thresholds_needs_an_action_that_every_row_scores():
    pytest.importorskip("numba")
    scores = np.where(np.eye(8, 2, dtype=bool), np.nan, 1.0)
    with pytest.raises(fedopl.DataError, match="no action has a score in every row"):
        fedopl.search_tree(np.arange(8.0)[:, None], scores, fedopl.Tree(thresholds="observed"))


class Stubborn:
    """A model that cannot be copied, or does not predict."""

    def fit(self, _contexts, _targets):
        return self

    def predict(self, _contexts):
        raise RuntimeError("not today")


class Copied(Stubborn):
    def get_params(self, deep=True):
        return {}

    def set_params(self, **_):
        return self


def test_models_that_fail_are_named(draw):
    with pytest.raises(fedopl.OptionError, match="cannot be cloned as scikit-learn does"):
        fedopl.cross_fit(draw(60), outcome=Stubborn(), propensity="marginal")
    with pytest.raises(fedopl.ModelError, match=r"Copied\.predict failed: not today"):
        fedopl.cross_fit(draw(60), outcome=Copied(), propensity="marginal")
