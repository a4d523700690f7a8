"""What single rows carry: judged for all clients together, and for those with values of their own.

Of very many small clients, a row has much of its own client's value, and next to nothing of all.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS
from fedopl.report.cautions import cautions
from fedopl.report.parts import as_text
from fedopl.report.sections.resting_on_clients import resting_on_clients
from fedopl.results.model_doubts import single_rows
from fedopl.server.aggregate import evaluation

KNOWN = fedopl.NuisancePlan(propensity="known")
BY_ROWS = {
    "A few weights carry a value",
    "A few weights carry values of some clients",
    "One row moves the result",
    "One row moves results of some clients",
}


def site(name, n_rows=20, outlier=0.0):
    rng = np.random.default_rng(int(name))
    x = rng.standard_normal((n_rows, 2))
    actions = rng.integers(0, 2, n_rows)
    rewards = x[:, 0] * (2 * actions - 1) + rng.standard_normal(n_rows)
    rewards[actions.argmax()] += outlier
    known = np.full((n_rows, 2), 0.5)
    return fedopl.LoggedData(x, actions, rewards, known, action_names=("a", "b"))


def learned(clients):
    return fedopl.learn(clients, basis="linear", nuisances=KNOWN, personal="none", evaluation=0.25)


@pytest.fixture(scope="module")
def small():
    return {f"{place:02d}": site(place) for place in range(40)}


def titles(run):
    return BY_ROWS & {caution.title for caution in cautions(run)}


def test_of_many_small_clients_no_row_is_said_to_move_the_result(small, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_VALUED_ALONE", 10)
    assert not titles(learned(small))


def test_with_values_of_their_own_small_clients_are_named(small):
    run = learned(small)
    assert titles(run) == {
        "A few weights carry values of some clients",
        "One row moves results of some clients",
    }
    said = next(one for one in cautions(run) if one.title.startswith("One row moves"))
    assert "at 00 (" in said.what


def test_a_row_that_is_an_error_moves_the_result_of_all(small, monkeypatch):
    """It makes its client's noise as much larger, so a small weight does not hide it."""
    monkeypatch.setattr(evaluation, "MOST_VALUED_ALONE", 10)
    run = learned(small | {"07": site("07", 60, outlier=9_999.0)})
    assert "One row moves the result" in titles(run)


def test_of_one_client_all_is_its_own(small):
    run = learned({"00": small["00"]})
    assert single_rows(run) == single_rows(run, "00")


def test_a_row_counts_by_the_weight_and_the_noise_of_its_client():
    run = learned({"1": site(1, 400), "2": site(2, 100)})
    fitted = {}
    for name, (weight, influence) in {"1": (0.25, 0.5), "2": (0.5, 1.0)}.items():
        numbers = np.array(run.fitted[name].numbers)
        numbers[:, FIT_NUMBERS.index("largest_weights")] = weight
        numbers[:, FIT_NUMBERS.index("largest_influences")] = influence
        fitted[name] = replace(run.fitted[name], numbers=numbers)
    found = single_rows(replace(run, fitted=fitted))
    errors = {}
    for name, own in run.statistics.sums.items():
        variances = (own.squares - own.products[:, -1] ** 2) / run.rows[name]
        errors[name] = run.mixture[name] * np.sqrt(variances)
    total = np.hypot(errors["1"], errors["2"])
    for place, action in enumerate(("a", "b")):
        assert found[action].weight == pytest.approx(max(0.8 * 0.25, 0.2 * 0.5))
        moved = max(0.5 * errors["1"][place], errors["2"][place]) / total[place]
        assert found[action].influence == pytest.approx(moved)


def test_nothing_is_said_of_what_was_not_valued():
    run = learned({name: site(name, 400) for name in "123"})
    bare = [replace(one, gain_without=None, difference=None) for one in run.reliance.left_out]
    unknown = replace(run, reliance=replace(run.reliance, left_out=tuple(bare)))
    page = as_text(resting_on_clients(unknown).parts)
    assert "alone decides" not in page
    assert "learned another one is not known" in " ".join(page.split())
    nothing = [replace(one, gain=None) for one in bare]
    silent = replace(run, reliance=replace(run.reliance, left_out=tuple(nothing)))
    assert "Without the rows" not in as_text(resting_on_clients(silent).parts)
