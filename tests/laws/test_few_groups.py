"""Where a client has few groups, no certainty comes from one of them."""

import csv
import math

import numpy as np
import pytest
from small_worlds import alike_world

import fedopl
from fedopl.analysis.advice import Advice
from fedopl.base.estimates import Estimate
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.report.page import render
from fedopl.report.words.numbers import Span
from fedopl.results.files.run_folder import load_record, save_record

pytestmark = pytest.mark.usefixtures("without_figures")


def client(n_groups, seed, n_rows=400, chance=0.5):
    """Rows of schools, whose outcomes have much in common within one."""
    rng = np.random.default_rng(seed)
    school = np.sort(np.arange(n_rows) % n_groups)
    contexts = rng.standard_normal((n_rows, 3))
    actions = (rng.random(n_rows) < chance).astype(int)
    rewards = contexts[:, 0] * actions + rng.standard_normal(n_groups)[school]
    rewards += rng.standard_normal(n_rows)
    names = ["usual", "new"]
    return fedopl.LoggedData(contexts, actions, rewards, action_names=names, groups=school)


@pytest.mark.parametrize("n_groups", range(4, 12))
@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_two_groups_at_least_are_held_out_and_two_stay(n_groups, share):
    data = client(n_groups, seed=n_groups)
    folds = assign_folds_and_hold_out(data, 2, share, seed=0)
    held_out = set(data.groups[folds.held_out].tolist())
    assert 2 <= len(held_out) <= n_groups - 2


@pytest.fixture(scope="module", params=[3, 4, 5, 6, 7])
def joined(request):
    return fedopl.learn(
        {"few": client(request.param, 1, chance=0.2), "many": client(40, 2), "more": client(40, 3)},
        basis="linear",
        nuisances=fedopl.NuisancePlan(propensity="marginal"),
        evaluation=0.25,
        diagnose=True,
    )


def test_one_held_out_group_gives_no_interval_and_no_advice(joined):
    valued = {row.client for row in joined.values.rows}
    if "few" not in valued:  # no group could be held out
        assert ("few", "FAILED") in {(name, code) for _, name, code in joined.refusals}
        return
    estimate = joined.gains.over("logging policy", "few")
    if estimate.degrees_of_freedom < 1:
        assert estimate.interval() == (-math.inf, math.inf)
    else:
        low, high = estimate.interval()
        # Two groups say next to nothing: Student's t with one degree of freedom is wide.
        assert high - low > 10 * estimate.standard_error
    page = render(joined)
    assert "6.74 to 6.74" not in page
    assert ("to value by, which shows no spread" in page) == (estimate.degrees_of_freedom < 1)


def test_the_value_over_all_clients_has_an_interval_that_is_not_from_one_group(joined):
    found = joined.gains.over("logging policy")
    low, high = found.interval()
    assert math.isfinite(low)
    assert high > low
    assert found.degrees_of_freedom < 1_000


def test_groups_stand_beside_rows_wherever_an_interval_is(joined, tmp_path):
    groups = joined.values.groups()
    by_client = {name: n for name, n in groups.items() if name != "global"}
    for name, n_groups in by_client.items():
        assert n_groups == joined.values.of("learned", name).degrees_of_freedom + 1
    assert groups["global"] == sum(n for n in by_client.values() if n > 1)
    head = next(line for line in str(joined).splitlines() if line.startswith("value"))
    assert "groups" in head.split()
    save_record(joined, tmp_path)
    with (tmp_path / "values.csv").open() as file:
        learned = [row for row in csv.DictReader(file) if row["policy"] == "learned"]
        assert {row["client"]: int(row["groups"]) for row in learned} == groups
    assert load_record(tmp_path).values == joined.values
    page = render(joined)
    assert "Held-out groups" in page
    assert f"rows in {groups['global']} groups" in page


def test_without_groups_none_are_shown():
    world = alike_world(2)
    run = fedopl.learn({name: world.logged(name, 200) for name in world.clients}, basis="linear")
    assert run.values.groups() == {}
    assert "groups" not in str(run)
    assert "Held-out groups" not in render(run)


def test_a_client_with_one_held_out_group_is_undecided_and_says_why():
    alone = Estimate(value=6.74, standard_error=0.0, n_rows=90, degrees_of_freedom=0)
    advice = Advice(client="few", gain=alone, modelled=None)
    assert advice.decision == "undecided"
    assert advice.reason == "Its held-out rows are of 1 group, which cannot decide it."
    assert Span.of(alone).interval == "1 group: cannot tell"
