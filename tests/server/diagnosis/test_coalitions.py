"""Every coalition's policy is the one its members would learn, and stability is as defined."""

import numpy as np
import pytest
from small_worlds import alike_world, many_clients, outcome_shift

import fedopl
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.messages.message import RowSplit as Rows
from fedopl.results.diagnosis import Coalition, Coalitions
from fedopl.results.sums.any_mixture import solve_for
from fedopl.results.value_tables import LOCAL
from fedopl.server.diagnosis.diagnose import compare_coalitions
from fedopl.server.mixtures.value_queries import ValueQueries
from fedopl.study.mixture import Empirical

SIZES = (300, 200, 120, 90)
LOCALLY = {"nuisances": {"kind": "local"}}
PLAN = {"cuts": {f"x{n}": (-0.6, 0.0, 0.7) for n in (1, 2, 3)}, "minimum_leaf": 60}
WORLD = outcome_shift(alike_world(4, n_features=3), 0.7)


def compared(joined, **options):
    ask = options.get("ask") or joined.ask()
    values = ValueQueries(ask, options.get("most", joined.most))
    return compare_coalitions(joined.statistics, joined.record.rows, values)


def learned_again(joined, members, **options):
    data = {name: joined.data[name] for name in members}
    return fedopl.learn(
        data,
        basis="linear",
        nuisances="local",
        evaluation=fedopl.EvaluationPlan(share=0.25, describe=False),
        **options,
    )


def test_linear_coalitions_are_retrained_from_scratch(join):
    joined = join(WORLD, SIZES, **LOCALLY)
    found = compared(joined)
    assert len(found.found) == 2**4 - 1 - 4
    for members, coalition in found.found.items():
        again = learned_again(joined, members)
        policy = solve_for(joined.statistics, coalition.weights)
        np.testing.assert_allclose(policy.parameters, again.policy.parameters, rtol=1e-9)
        assert coalition.weights == pytest.approx(again.mixture)
        for name in members:
            gain = again.gains.over(LOCAL, name)
            assert coalition.gains[name].value == pytest.approx(gain.value, abs=1e-9)
            assert coalition.gains[name].interval() == pytest.approx(gain.interval(), abs=1e-9)


def test_coalitions_of_trees_are_retrained_from_scratch_and_count_only_their_own_rows(join):
    joined = join(WORLD, SIZES, policy=fedopl.Tree(**PLAN), **LOCALLY)
    found = compared(joined)
    for members, coalition in found.found.items():
        again = learned_again(joined, members, policy=fedopl.Tree(**PLAN))
        assert solve_for(joined.statistics, coalition.weights).root == again.policy.root
        for name in members:
            gain = again.gains.over(LOCAL, name)
            assert coalition.gains[name].value == pytest.approx(gain.value, abs=1e-9)


def test_the_worth_of_data_is_what_is_lost_without_them(join):
    joined = join(WORLD, SIZES, **LOCALLY)
    found = compared(joined)
    weights = found.grand.weights
    for name, worth in found.worth_of_data.items():
        others = found.found[frozenset(joined.doors) - {name}]
        pair = [solve_for(joined.statistics, one.weights) for one in (found.grand, others)]
        value = variance = 0.0
        for other, weight in weights.items():
            x, scores, _ = joined.rows(other, Rows.EVALUATION)
            chosen = [scores[np.arange(len(x)), p.decide(x)] for p in pair]
            value += weight * (chosen[0] - chosen[1]).mean()
            variance += weight**2 * (chosen[0] - chosen[1]).var(ddof=1) / len(x)
        assert worth.value == pytest.approx(value, abs=1e-12)
        assert worth.standard_error == pytest.approx(np.sqrt(variance))
    assert set(found.worth_of_data) == set(joined.doors)


@pytest.mark.parametrize(("most", "n_queries"), [(2, 10), (3, 5), (5, 3)])
def test_queries_hold_no_more_than_they_may_and_nothing_depends_on_how_many(join, most, n_queries):
    joined = join(WORLD, SIZES, **LOCALLY)
    ask, asked = joined.ask(), []

    def counted(policies):
        asked.append(len(policies))
        return ask(policies)

    found = compared(joined, ask=counted, most=most)
    assert len(asked) == n_queries
    assert max(asked) <= most
    expected = compared(joined)
    for members, coalition in found.found.items():
        for name, gain in coalition.gains.items():
            assert gain.value == pytest.approx(expected.found[members].gains[name].value)


@pytest.mark.parametrize(("n_clients", "n_coalitions"), [(6, 57), (7, 8)])
def test_all_coalitions_of_few_clients_are_compared_and_of_more_all_but_one(
    join, n_clients, n_coalitions
):
    joined = join(many_clients(n_clients), (60,) * n_clients)
    assert len(compared(joined).found) == n_coalitions


# --- stability -----------------------------------------------------------------------------------


def made(gains):
    """Coalitions with these gains: "ab" → (gain of a, gain of b)."""
    compared = []
    for members, numbers in gains.items():
        estimates = {
            name: Estimate(value=number, standard_error=0.1, n_rows=50, degrees_of_freedom=49)
            for name, number in zip(members, numbers, strict=True)
        }
        compared.append(Coalition(members=tuple(members), weights={}, gains=estimates))
    return Coalitions(clients=("a", "b", "c"), compared=tuple(compared), worth_of_data={})


def test_a_coalition_is_stable_if_nobody_prefers_to_leave():
    found = made({"abc": (1, 0.0, -0.05), "ab": (0.5, 0.5), "ac": (0.1, -1), "bc": (0.0, 0.0)})
    assert ["".join(one.members) for one in found.stable] == ["ab"]
    assert {"".join(one.members): one.stability for one in found.compared} == {
        "abc": "cannot tell",
        "ab": "surely",
        "ac": "surely not",
        "bc": "cannot tell",
    }
    assert found.grand.leavers == ()
    assert found.found[frozenset("ac")].leavers == ("c",)


def test_alike_clients_stay_together_and_odd_ones_leave(join):
    alike = compared(join(alike_world(3), (720, 720, 720), evaluation=0.5, **LOCALLY))
    assert alike.grand.stability != "surely not"
    world = outcome_shift(alike_world(3), 2.0)
    odd = compared(join(world, (900, 900, 900), **LOCALLY))
    assert odd.grand.leavers == ("client 1", "client 2", "client 3")
    assert not odd.stable
    assert odd.grand.stability == "surely not"


def test_of_identical_clients_hardly_ever_is_a_leaver_named():
    named = 0
    for seed in range(20):
        world = alike_world(3, n_features=3, seed=seed)
        rows = {name: world.logged(name, 150) for name in world.clients}
        run = fedopl.learn(
            rows,
            basis="linear",
            diagnose=True,
            nuisances=fedopl.NuisancePlan(kind="local", propensity="marginal", folds=2),
            evaluation=fedopl.EvaluationPlan(share=0.3, describe=False),
            seed=seed,
        )
        named += any(one.leavers for one in run.diagnosis.coalitions.compared)
    assert named <= 1


@pytest.mark.parametrize("n_clients", [2, 12])
def test_data_have_a_worth_among_two_and_among_many(join, n_clients):
    world = outcome_shift(many_clients(n_clients), 0.5)
    joined = join(world, (150,) * n_clients, **LOCALLY)
    found = compared(joined)
    assert set(found.worth_of_data) == set(joined.doors)
    sizes = [len(one.members) for one in found.compared]
    assert sizes == ([2] if n_clients == 2 else [12] + 12 * [11])
    name, worth = next(iter(found.worth_of_data.items()))
    others = {other: n for other, n in joined.record.rows.items() if other != name}
    policy = solve_for(joined.statistics, Empirical().weights(others))
    lost = sum(
        weight
        * (
            joined.value(other, joined.record.policy, Rows.EVALUATION)
            - joined.value(other, policy, Rows.EVALUATION)
        )
        for other, weight in joined.weights.items()
    )
    assert worth.value == pytest.approx(lost, abs=1e-9)


def test_what_cannot_be_compared_is_refused(join):
    joined = join(WORLD, SIZES, **LOCALLY)
    with pytest.raises(OptionError, match="expected 2 to 30"):
        compare_coalitions(joined.statistics, {"client 1": 9}, ValueQueries(joined.ask(), 4))
    with pytest.raises(OptionError, match="client 9"):
        solve_for(joined.statistics, {"client 9": 1.0})

    def silent(policies):
        return {n: told for n, told in joined.ask()(policies).items() if n != "client 2"}

    with pytest.raises(FederationError, match="client 2"):
        compared(joined, ask=silent)
    deep = join(WORLD, SIZES, policy=fedopl.Tree(**PLAN, depth=3), **LOCALLY)
    with pytest.raises(OptionError, match="depth 1 and 2"):
        compared(deep)
