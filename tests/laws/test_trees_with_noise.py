"""The laws of trees with differential privacy: what one row can move, and what a server gets."""

from dataclasses import replace

import numpy as np
import pytest
from test_differential_privacy import ACTIONS, FEATURES, N_FEATURES, OVERLAP, drawn, space

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.door import Door
from fedopl.client.private.private_answers import look_privately, sum_cells_privately
from fedopl.client.private.private_workspace import Noise
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    NoisedCells,
    NoisedGains,
    NoisedValues,
    SumCellsPrivately,
    ValuePrivately,
)
from fedopl.messages.private.noised_sums import NoisedSums
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.vocabulary import is_private, queries_of
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.privacy.accountant import mu_for
from fedopl.privacy.exact_noise import FINE
from fedopl.solvers.private_regression import agreeing_cells
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

RANGES = {"x0": (-2.0, 2.0), "x1": (-2.0, 2.0), "x2": (0.0, 1.0)}  # the last is a flag
PLAN = fedopl.PrivacyPlan(epsilon=1.0, outcome=(-3, 3), ranges=RANGES)


def a_study(**tree):
    return Study(
        actions=ACTIONS,
        features=FEATURES,
        policy=fedopl.Tree(**tree),
        privacy=PLAN,
        declared=fedopl.Declared(overlap=OVERLAP),
    )


STUDIES = {
    "depth 1": a_study(depth=1),
    "depth 2": a_study(),
    "as agreed": a_study(cuts={"x0": (-1.0, 1.0)}, columns=("x0", "x2")),
}
TWICE = STUDIES["depth 2"]
ROOT = Branch(0, 0.0, Branch(1, 0.5, Leaf(0), Leaf(1)), Branch(1, -0.5, Leaf(1), Leaf(2)))
DEEPER = Branch(1, 0.0, ROOT, Leaf(0))


def values_of_trees(models, study, first=ROOT, second=ROOT):
    trees = [TreePolicy(root, ACTIONS, FEATURES) for root in (first, second)]
    return ValuePrivately(models=models, **packed(trees, study))


def exact(data, study, models, nobody=None):
    """Every release of trees without noise; a row that is nobody's adds nothing."""
    own = space(data, study)
    own.__dict__["local_policy"] = constant_policy("a", ACTIONS, FEATURES)
    if nobody is not None:
        own.rows.__dict__["_is_used"] = np.arange(data.n_rows) != nobody
    root = ROOT.yes if study.tree.depth == 1 else ROOT
    found = {
        (NoisedCells, "cells"): sum_cells_privately(own, SumCellsPrivately(models=models)).cells,
        (NoisedValues, "sums"): own.noised_values(values_of_trees(models, study), b"").sums,
    }
    if LookPrivately.needed(study):
        asked = LookPrivately(models=models, tree=as_array(root))
        found[NoisedGains, "gains"] = look_privately(own, asked).gains
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_no_row_moves_a_release_further_than_it_declares(monkeypatch, name):
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    study, rng, furthest = STUDIES[name], np.random.default_rng(1), {}
    row = 0  # held out in one of four trials
    for trial in range(120):
        reach = 10.0 ** rng.integers(-1, 5)
        data = drawn(
            seed=trial,
            # Often close to two thresholds at once.
            contexts=(row, rng.choice([0.2, 5.0]) * rng.normal(size=N_FEATURES) + [0, 0.5, 0]),
            rewards=(row, reach * rng.normal()),
            actions=(row, rng.integers(3)),
            propensities=(row, rng.choice([1e-9, OVERLAP, 1.0])),
        )
        models = rng.choice([0.1, 5.0]) * rng.normal(size=(3, N_FEATURES + 1))
        with_it, without = (exact(data, study, models, nobody) for nobody in (None, row))
        for (answer, field), sums in with_it.items():
            moved = np.linalg.norm(sums - without[answer, field])
            most = declared_moves(answer)[field].at_most(study)
            assert moved <= most * (1 + 1e-9)
            furthest[field] = max(furthest.get(field, 0), moved / most)
    # The bounds are no larger than they have to be.
    assert furthest["cells"] > 0.999
    if "gains" in furthest:
        assert furthest["gains"] > 0.999


@pytest.mark.parametrize("name", STUDIES)
def test_noise_is_large_enough_for_the_promise(name):
    study = STUDIES[name]
    setting = PrivateSetting(study)
    kinds = {"squares": NoisedSums, "products": NoisedSums, "cells": NoisedCells}
    if LookPrivately.needed(study):
        kinds["gains"] = NoisedGains
    assert {*kinds, "values", "value squares"} == {*setting.releases}
    spent = sum(
        (declared_moves(answer)[field].at_most(study) / setting.deviation(field)) ** 2
        for field, answer in kinds.items()
    )
    promised = mu_for(PLAN.epsilon, PLAN.delta) ** 2
    assert 0.999 * promised <= spent <= promised * (1 + 1e-9)


def test_noise_is_as_large_as_it_says(monkeypatch):
    queries = (
        SumCellsPrivately(models=np.zeros((3, 4))),
        LookPrivately(models=np.zeros((3, 4)), tree=as_array(ROOT)),
    )

    def answers():
        own = space(drawn(400), TWICE)
        cells = sum_cells_privately(own, queries[0]).cells
        return {"cells": cells, "gains": look_privately(own, queries[1]).gains}

    noisy, again = answers(), answers()
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    plain = answers()
    for name, found in noisy.items():
        np.testing.assert_array_equal(found, again[name])  # asked again, it averages nothing out
        noise = (found - plain[name]).std() / PrivateSetting(TWICE).deviation(name)
        assert 0.8 < noise < 1.25


# --- a server that lies ---------------------------------------------------------------------------


def asked(door, query, study=TWICE):
    content = door.handle(codec.encode(replace(query, study=study.digest)))
    return decoder_of(study).decode(content)


def a_door(study=TWICE):
    return Door("one", drawn(200), study, secret="s" * 32, ledger=MemoryLedger())


def test_a_private_tree_asks_for_these_and_for_nothing_that_no_noise_covers():
    names = {query.__name__ for query in queries_of(TWICE)}
    assert names == {
        "Enrol",
        "SumPrivately",
        "SumCellsPrivately",
        "LookPrivately",
        "ValuePrivately",
    }
    assert all(map(is_private, queries_of(TWICE)))
    assert "LookPrivately" not in {one.__name__ for one in queries_of(a_study(refine=False))}


def test_noise_is_for_one_set_of_cells_and_one_look_at_a_tree_of_the_study():
    door, models = a_door(), np.zeros((3, 4))
    # A row would have a say in three questions of a deeper tree, and noise is for two.
    deeper = asked(door, LookPrivately(models=models, tree=as_array(DEEPER)))
    assert isinstance(deeper, Refusal)
    assert deeper.reason is RefusalCode.MALFORMED
    for query in (
        SumCellsPrivately(models=models),
        LookPrivately(models=models, tree=as_array(ROOT)),
    ):
        assert not isinstance(asked(door, query), Refusal)
        other = asked(door, replace(query, models=models + 1))
        assert isinstance(other, Refusal)
        assert other.reason is RefusalCode.ASKED_ALREADY


def test_no_rule_of_a_clients_code_is_valued_as_it_may_look_at_all_rows():
    study = TWICE
    rules = packed([], study) | {"rules": np.zeros(2)}
    found = asked(a_door(), ValuePrivately(models=np.zeros((3, 4)), **rules))
    assert isinstance(found, Refusal)


@pytest.mark.parametrize("far", [(1.7e308, -1.7e308, 1.7e308), (1e40, 0, 0)])
def test_a_row_beyond_all_bounds_is_answered_like_any_other(far):
    """A refusal, or a number that is none, would tell of the one row that made it so."""
    models = 1e15 * np.sign(np.arange(-6, 6)).reshape(3, 4)
    for side in (True, False):
        data = next(
            data
            for row in range(200)
            for data in [drawn(200, contexts=(row, far), rewards=(row, (row - 1e3) * 1.7e305))]
            if space(data, TWICE).rows.is_held_out[row] == side
        )
        for query in (
            SumCellsPrivately(models=models),
            LookPrivately(models=models, tree=as_array(ROOT)),
            values_of_trees(models, TWICE),
        ):
            found = asked(Door("one", data, TWICE, secret="s" * 32), query)
            assert not isinstance(found, Refusal)
            numbers = [held for held in vars(found).values() if isinstance(held, np.ndarray)]
            assert all(np.isfinite(held).all() for held in numbers)


# --- tables that agree ----------------------------------------------------------------------------


def test_tables_that_agree_stay_as_they_are_and_others_lose_noise():
    tables = PrivateSetting(TWICE).tables
    contexts, scores = drawn(500).contexts, np.random.default_rng(0).normal(size=(500, 3))
    from fedopl.client.local.cell_tables import Binning, cell_sums
    from fedopl.client.rows.chunks import ScoredRows

    rows = ScoredRows(contexts=contexts, scores=scores, weights=None)
    whole = cell_sums([rows], Binning(columns=TWICE.columns, grid=tables.grid))[0][:, 2:]
    found = agreeing_cells(whole[tables.places], tables.grid, tables.released)
    np.testing.assert_allclose(found, whole, atol=1e-9)
    noise = np.random.default_rng(1).normal(size=(len(tables.places), 3))
    left = agreeing_cells(whole[tables.places] + noise, tables.grid, tables.released) - whole
    assert (left[tables.places] ** 2).sum() < 0.9 * (noise**2).sum()
