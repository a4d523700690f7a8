"""Outcome models that are weighed against each other: by whom, and what they are good for."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import fedopl
from fedopl.base.errors import DataError, ModelError, OptionError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.fold_sums import fold_sums, measured_from_zero
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.scoring.joined_models import BoostedTrees, JoinedRegressors, StackedOutcomes
from fedopl.client.table.logged_data import LoggedData
from fedopl.demo.writing import write_demo
from fedopl.solvers.nested_ridge import models_by_size

N_FOLDS, SIZES = 3, (1, 3)


def drawn(seed, slope=1.0, n_rows=400, rewards=None):
    """Outcomes that rise with the first term, and with a step in the second."""
    rng = np.random.default_rng(seed)
    terms = rng.normal(3.0, 1.0, (n_rows, 3))
    actions = rng.integers(0, 2, n_rows)
    means = 50 + slope * terms[:, 0] + 2 * (terms[:, 1] > 3.5) * (terms[:, 2] > 3)
    data = LoggedData(
        terms,
        actions,
        means + 0.5 * rng.standard_normal(n_rows) if rewards is None else rewards,
        action_names="ab",
    )
    return Chunk(data=data, folds=assign_folds_and_hold_out(data, N_FOLDS, 0.25, 0))


def everybodys(*chunks):
    """Models of these clients together, as the server solves them."""
    sums = [fold_sums(chunk.data, chunk.folds) for chunk in chunks]
    total = sum(measured_from_zero(one) for one in sums)
    models = models_by_size(total, sum(one.squared_weights for one in sums), SIZES)
    return models.reshape(-1, *models.shape[2:])


def stacked(chunk, shared, boosted=False):
    regressors = JoinedRegressors(chunk, BoostedTrees) if boosted else None
    stack = StackedOutcomes(SIZES, regressors=regressors)
    return stack, stack.stacked(fold_sums(chunk.data, chunk.folds), np.ones(2, bool), shared)


@pytest.mark.parametrize("boosted", [False, True])
def test_no_outcome_has_a_say_in_the_models_of_its_own_fold(boosted):
    own, other = drawn(0, slope=2.0, n_rows=240), drawn(1, n_rows=240)
    inside = own.folds.of_row == 1
    changed = np.where(inside, 1_000 * np.sin(np.arange(240)), own.data.rewards)
    moved = drawn(0, n_rows=240, rewards=changed)
    (before, first), (after, second) = (
        stacked(chunk, everybodys(chunk, other), boosted) for chunk in (own, moved)
    )
    np.testing.assert_allclose(first.parameters[1], second.parameters[1], rtol=1e-7)
    assert not np.allclose(first.parameters[0], second.parameters[0])
    np.testing.assert_allclose(first.joined[1:2], second.joined[1:2], atol=1e-7)
    if boosted:
        ones = np.ones_like(first.joined)
        found = [one._regressors.predicted(ones, own)[inside] for one in (before, after)]
        np.testing.assert_array_equal(*found)


def test_a_client_that_differs_has_its_own_models_and_one_that_does_not_has_everybodys():
    others = [drawn(seed) for seed in (1, 2, 3)]
    for slope in (-3.0, 1.0):
        own = drawn(0, slope)
        _, found = stacked(own, everybodys(own, *others))
        assert np.abs(found.parameters[..., 0] - slope).max() < 0.2
    _, alone = stacked(own, None)
    _, together = stacked(own, everybodys(own, *others))
    terms = np.column_stack([own.data.contexts, np.ones(own.data.n_rows)])
    errors = [
        np.mean((terms @ (one.parameters[-1] - everybodys(*others)[7]).T) ** 2)
        for one in (alone, together)
    ]
    assert errors[1] < errors[0]


def test_boosting_follows_what_no_line_does():
    bent = drawn(0, n_rows=600)
    truth = bent.data.contexts[:, :1] + 2 * (
        (bent.data.contexts[:, 1:2] > 3.5) & (bent.data.contexts[:, 2:] > 3)
    )
    errors = {
        outcome: np.mean(
            (
                fedopl.cross_fit(
                    bent.data, outcome=outcome, propensity="marginal", folds=3
                ).outcome_means
                - 50
                - truth
            )
            ** 2
        )
        for outcome in ("ridge", "boosting")
    }
    assert errors["boosting"] < 0.5 * errors["ridge"]


def test_a_regressor_that_is_right_gets_the_weight_whatever_the_order_of_clients():
    clients = {name: drawn(seed, n_rows=200).data for seed, name in enumerate("xyz")}
    options = {
        "propensity": "marginal",
        "folds": 3,
        "outcome": DecisionTreeRegressor(max_leaf_nodes=8, min_samples_leaf=5),
    }
    plan = fedopl.NuisancePlan(**options)
    run = fedopl.learn(clients, nuisances=plan)
    again = fedopl.learn(dict(reversed(clients.items())), nuisances=plan)
    np.testing.assert_array_equal(run.policy.parameters, again.policy.parameters)
    plain = fedopl.NuisancePlan(**options | {"outcome": "ridge"})
    without = fedopl.learn(clients, nuisances=plain)
    assert not np.array_equal(run.policy.parameters, without.policy.parameters)
    assert run.study.nuisances.outcome == "plugged-in"


def test_what_cannot_be_weighed_is_refused(tmp_path):
    data = drawn(0).data
    with pytest.raises(OptionError, match="3 folds"):
        fedopl.learn({"x": data}, nuisances=fedopl.NuisancePlan(outcome="boosting", folds=2))
    with pytest.raises(OptionError, match="are of all features"):
        fedopl.NuisancePlan(outcome="boosting", features="blocks")
    with pytest.raises(DataError, match="needs 3 folds"):
        fedopl.cross_fit(data, outcome="boosting", folds=2)
    kind = fedopl.NuisancePlan(outcome=DecisionTreeRegressor)
    with pytest.raises(OptionError, match="an object, not a class"):
        fedopl.learn({"x": data}, nuisances=kind)
    failing = fedopl.NuisancePlan(outcome=DecisionTreeRegressor(max_depth=-1))
    with pytest.raises(ModelError, match=r"outcome model: DecisionTreeRegressor\.fit failed"):
        fedopl.learn({"x": data}, nuisances=failing)
    with pytest.raises(OptionError, match="give the regressor itself"):
        fedopl.learn({"x": data}, nuisances=fedopl.NuisancePlan(outcome="plugged-in"))
    study = write_demo(tmp_path, "three-hospitals")
    text = study.read_text(encoding="utf-8")
    study.write_text(f'{text}\n[nuisances]\noutcome = "plugged-in"\n', encoding="utf-8")
    with pytest.raises(OptionError, match="a file cannot hold a regressor"):
        fedopl.read_study(study)
