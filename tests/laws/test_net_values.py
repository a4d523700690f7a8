"""Costs in the outcome's unit: what is learned and valued is what net outcomes would give."""

import numpy as np
import pyarrow as pa
import pytest

import fedopl
from fedopl import Costs, LoggedData, NuisancePlan, OptionError, Schema
from fedopl.engines.runs import compare_runs
from fedopl.report.page import render

pytestmark = pytest.mark.usefixtures("without_figures")

ACTIONS = ("usual", "new", "both")
COSTS = {"new": 0.7, "both": "price"}
PLAN = NuisancePlan(outcome="ols", propensity="known", learning_clip=0)


def _logged(seed, n_rows=400):
    """Effects that differ by x, more of the dearer; the third column is a price of its own."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n_rows, 2)), rng.uniform(0, 3, n_rows)])
    arm = rng.integers(0, 3, n_rows)
    effect = np.column_stack([np.zeros(n_rows), 0.5 + x[:, 0], 1.5 + x[:, 1] + 0.3 * x[:, 2]])
    y = x[:, 1] + effect[np.arange(n_rows), arm] + rng.normal(size=n_rows)
    return x, arm, y


def _data(x, arm, y):
    names = ("age", "severity", "price")
    return LoggedData(x, arm, y, 1 / 3, action_names=ACTIONS, feature_names=names)


def _cost(x, arm):
    return np.where(arm == 1, 0.7, np.where(arm == 2, x[:, 2], 0.0))


def _clients(net=False):
    found = {}
    for seed, name in enumerate(("north", "south")):
        x, arm, y = _logged(seed)
        found[name] = _data(x, arm, y - _cost(x, arm) if net else y)
    return found


def _numbers(run):
    return np.array([row.estimate.value for row in run.values.rows]), np.array(
        [row.estimate.standard_error for row in run.gains.rows]
    )


@pytest.mark.parametrize(
    ("policy", "evaluation"),
    [("linear", 0.25), ("linear", "cross-fitted"), ("tree", 0.25), ("finite", 0.25)],
)
def test_costs_give_what_outcomes_less_costs_give(policy, evaluation):
    plain = {"policy": policy, "basis": "linear", "nuisances": PLAN, "evaluation": evaluation}
    run = fedopl.learn(_clients(), costs=COSTS, **plain)
    expected = fedopl.learn(_clients(net=True), **plain)
    for ours, theirs in zip(_numbers(run), _numbers(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert run.policy.kind == expected.policy.kind
    x = _logged(9)[0]
    assert (run.policy.decide(x) == expected.policy.decide(x)).mean() > 0.99
    gross = fedopl.learn(_clients(), **plain)
    assert np.abs(_numbers(run)[0] - _numbers(gross)[0]).max() > 0.1


def test_columns_that_bend_and_other_models_are_net_too():
    """With a basis and shrunken models the same up to what models differ by."""
    run = fedopl.learn(_clients(), costs=COSTS)
    expected = fedopl.learn(_clients(net=True))
    assert run.values.of("learned").value == pytest.approx(
        expected.values.of("learned").value, abs=0.02
    )
    assert not [one for one in run.reliance.contradictions if "mean outcome" in one.about]


def test_where_less_is_better_costs_are_added():
    schema = Schema(
        action="arm", actions=ACTIONS, reward="days", direction="lower", numeric=("age", "price")
    )
    x, arm, y = _logged(3)
    columns = {"age": x[:, 0], "price": x[:, 2], "arm": np.array(ACTIONS)[arm]}
    gross = fedopl.read_logged(pa.table({**columns, "days": -y}), schema)
    net = fedopl.read_logged(pa.table({**columns, "days": -y + _cost(x, arm)}), schema)
    plain = {"basis": "linear", "nuisances": NuisancePlan(outcome="ols", propensity="marginal")}
    run = fedopl.learn({"only": gross}, costs=COSTS, **plain)
    expected = fedopl.learn({"only": net}, **plain)
    np.testing.assert_allclose(_numbers(run)[0], _numbers(expected)[0], atol=1e-9)
    assert "plus costs" in str(run)
    assert "days plus costs" in render(run)


def test_all_who_speak_of_values_say_that_they_are_net():
    run = fedopl.learn(_clients(), costs=COSTS, basis="linear")
    gross = fedopl.learn(_clients(), basis="linear")
    said = "net of costs per decision: 'new' costs 0.7, 'both' costs what 'price' says"
    assert said in str(run)
    assert "reward net of costs" in render(run)
    compared = compare_runs({"net": run, "gross": gross})
    assert "Values of 'net' are net of costs" in str(compared)
    assert compared.as_json()["runs"]["net"]["net_of_costs"] is True
    assert "net of costs" not in str(gross) + render(gross)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ({"old": 1.0}, "'old' is not an action"),
        ({"new": -1.0}, "expected 0 to 1e.12, came -1"),
        ({"new": 0.0}, "every action costs nothing"),
        ({"new": "weight"}, "'weight', which is not a feature with numbers"),
        ({"new": "severity"}, "north: column 'severity' .* below 0 in .* of 400 rows"),
        (Costs(by_action={"new": 1.0}, unit="euros"), "costs in 'euros' have no part in values"),
    ],
)
def test_costs_that_cannot_be_are_refused_in_words(costs, said):
    with pytest.raises(fedopl.FedoplError, match=said):
        fedopl.learn(_clients(), costs=costs)


def test_gaps_in_a_column_of_costs_are_an_error_with_their_number():
    schema = Schema(
        action="arm",
        actions=ACTIONS,
        reward="days",
        direction="higher",
        numeric=("age", "price"),
        missing="indicator",
    )
    x, arm, y = _logged(3)
    price = np.where(np.arange(400) < 7, np.nan, x[:, 2])
    columns = {"age": x[:, 0], "price": price, "arm": np.array(ACTIONS)[arm], "days": y}
    data = fedopl.read_logged(pa.table(columns), schema)
    with pytest.raises(fedopl.DataError, match=r"only: column 'price' .* in 7 of 400 rows"):
        fedopl.learn({"only": data}, costs=COSTS)


def test_private_studies_have_no_costs():
    from fedopl import Declared, PrivacyPlan

    plan = PrivacyPlan(
        epsilon=2, outcome=(-5, 5), ranges={"age": (-2, 2), "severity": (-2, 2), "price": (0, 3)}
    )
    with pytest.raises(OptionError, match="not subtracted from sums with noise"):
        fedopl.learn(_clients(), costs=COSTS, privacy=plan, declared=Declared(overlap=0.2))
