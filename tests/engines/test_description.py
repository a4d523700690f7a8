from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.evaluation.description import Description
from fedopl.policies.policy import policy_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.study import Study
from trips import Edited

QUICK = fedopl.NuisancePlan(propensity="marginal")
NAMES = ("north", "south", "west")


@pytest.fixture
def clients(draw):
    return {name: draw(300, seed=turn) for turn, name in enumerate(NAMES)}


def learn(clients, **options):
    plain = {"basis": "linear", "nuisances": QUICK, "evaluation": 0}
    return fedopl.learn(clients, **plain | options)


def split_of(clients, cuts, decide):
    """Everybody's rows by feature, bin and action; all of them are training rows."""
    counts = np.zeros((len(cuts), cuts.shape[1] + 1, 3))
    for data in clients.values():
        columns = np.column_stack([data.contexts, np.ones(data.n_rows)]).T
        for feature, column in enumerate(columns):
            bins = (column[:, None] > cuts[feature]).sum(axis=1)
            np.add.at(counts[feature], (bins, decide(data)), 1)
    return counts


# --- what is asked and told ---------------------------------------------------------------------


@pytest.mark.parametrize("oracle", ["csoaa-exact", "csoaa-sgd", "wap", "direct"])
def test_decisions_of_the_learned_policy_are_counted_over_all_clients(clients, oracle):
    run = learn(clients, policy=fedopl.Linear(oracle=oracle))
    told = run.described
    assert set(told.by_client) == set(NAMES)
    expected = split_of(clients, told.cuts, lambda data: run.policy.decide(data.contexts))
    np.testing.assert_array_equal(told.decided(), expected)
    taken = split_of(clients, told.cuts, lambda data: data.actions)
    np.testing.assert_array_equal(told.taken(), taken)


def test_a_pairwise_policy_is_described(clients):
    run = learn(clients, policy=fedopl.Linear(oracle="wap"))
    assert isinstance(run.policy, fedopl.PairwisePolicy)
    assert run.described.decided().sum(axis=(1, 2)).tolist() == [900] * 6


def best_rule(contexts):
    slopes = np.random.default_rng(7).standard_normal((3, 5))
    return (np.arange(3) + contexts @ slopes.T).argmax(axis=1)


@pytest.mark.parametrize("limits", ["open", "guarded"])
def test_a_rule_in_code_is_described_where_it_wins(clients, limits):
    run = learn(clients, policy=fedopl.Finite(candidates={"best": best_rule}), limits=limits)
    assert (run.chosen, run.policy) == ("best", None)
    expected = split_of(clients, run.described.cuts, lambda data: best_rule(data.contexts))
    np.testing.assert_array_equal(run.described.decided(), expected)


def test_the_best_of_finite_policies_is_described_alone(clients):
    slopes = np.random.default_rng(7).standard_normal((3, 5))
    first = clients["north"]
    right = fedopl.LinearPolicy(
        np.column_stack([slopes, np.arange(3)]), first.action_names, first.feature_names
    )
    run = learn(clients, policy=fedopl.Finite(candidates={"right": right, "rule": best_rule}))
    assert run.chosen == "right"
    expected = split_of(clients, run.described.cuts, lambda data: right.decide(data.contexts))
    np.testing.assert_array_equal(run.described.decided(), expected)


def test_nobody_is_asked_where_the_study_wants_no_description(clients):
    told, silent = (
        learn(clients, evaluation=fedopl.EvaluationPlan(share=0.25, describe=describe))
        for describe in (True, False)
    )
    assert silent.described is None
    assert "Describe" not in {latest.query for latest in silent.rounds}
    assert policy_json(silent.policy) == policy_json(told.policy)


@pytest.fixture
def doors(clients):
    """The study of the three clients, and a function that opens their doors to it."""
    first = clients["north"]
    study = Study(
        actions=first.action_names, features=first.feature_names, nuisances=QUICK, evaluation=0.25
    )

    def _doors():
        own = {"limits": fedopl.Limits.open(), "secret": SEED_ALONE}
        return {name: Door(name, data, study, **own) for name, data in clients.items()}

    return study, _doors


def assert_described_without_south(run, honest):
    assert set(run.described.by_client) == {"north", "west"}
    others = [honest.described.by_client[name].decided for name in ("north", "west")]
    np.testing.assert_array_equal(run.described.decided(), sum(others))
    assert str(run.values) == str(honest.values)


# --- answers that cannot be true ----------------------------------------------------------------


@pytest.mark.parametrize("field", ["decided", "taken", "chances", "effective_rows"])
def test_a_description_with_a_negative_count_is_rejected_by_name(doors, field):
    study, doors = doors

    def negative(message):
        if isinstance(message, Description):
            return replace(message, **{field: getattr(message, field) - 1e4})
        return message

    run = run_study(Conversation(study, Edited(doors(), study, "south", negative)))
    ((exchange, name, why),) = run.refusals
    assert (exchange, name) == (5, "south")
    assert why.startswith("rejected: a count is")
    assert_described_without_south(run, run_study(Conversation(study, InProcess(doors()))))


# --- where features are cut ---------------------------------------------------------------------


def with_feature(clients, column):
    """The clients with the first feature replaced, as a function of their generator and size."""
    changed = {}
    for turn, (name, data) in enumerate(clients.items()):
        contexts = np.array(data.contexts)
        contexts[:, 0] = column(np.random.default_rng(turn), data.n_rows)
        changed[name] = fedopl.LoggedData(
            contexts, data.actions, data.rewards, action_names=data.action_names
        )
    return changed


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.97])
def test_a_yes_or_no_is_cut_in_between_and_every_yes_is_above(clients, share):
    yes = with_feature(clients, lambda rng, n_rows: rng.random(n_rows) < share)
    told = learn(yes).described
    assert told.cuts[0].tolist() == [-0.5, 0.5, 1.5]
    n_yes = sum(int(data.contexts[:, 0].sum()) for data in yes.values())
    assert told.taken()[0].sum(axis=1).tolist() == [0, 900 - n_yes, n_yes, 0]


@pytest.mark.parametrize("mixture", ["empirical", {"north": 0.8, "south": 0.1, "west": 0.1}])
def test_other_features_are_cut_at_round_numbers_near_the_quarters_of_a_normal(clients, mixture):
    ages = with_feature(clients, lambda rng, n_rows: rng.normal(62, 15, n_rows))
    run = learn(ages, mixture=mixture)
    weights = np.repeat([run.mixture[name] for name in NAMES], 300)
    column = np.concatenate([ages[name].contexts[:, 0] for name in NAMES])
    mean = np.average(column, weights=weights)
    deviation = np.sqrt(np.average((column - mean) ** 2, weights=weights))
    cuts = run.described.cuts[0]
    np.testing.assert_allclose(cuts, mean + deviation * np.array([-0.6745, 0, 0.6745]), atol=0.5)
    assert cuts.tolist() == cuts.round().tolist()


COLUMNS = {
    "always the same": lambda rng, n_rows: np.full(n_rows, 7.0),
    "always yes": lambda rng, n_rows: np.ones(n_rows),
    "always no": lambda rng, n_rows: np.zeros(n_rows),
    "tiny": lambda rng, n_rows: 1e-9 * rng.standard_normal(n_rows),
    "huge": lambda rng, n_rows: 1e9 * rng.standard_normal(n_rows),
    "far from zero": lambda rng, n_rows: 1e6 + rng.standard_normal(n_rows),
    "hardly ever yes": lambda rng, n_rows: np.arange(n_rows) == 0,
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_cuts_rise_and_every_client_describes_whatever_a_feature_is_like(clients, column):
    run = learn(with_feature(clients, column))
    assert (np.diff(run.described.cuts) > 0).all()
    assert run.refusals == ()
    assert set(run.described.by_client) == set(NAMES)


@pytest.mark.parametrize("limits", ["open", "guarded"])
def test_blocks_of_features_are_described_too(draw, limits):
    clients = {name: draw(300, seed=turn, n_features=6) for turn, name in enumerate(NAMES)}
    run = learn(clients, policy=fedopl.Linear(features="blocks"), limits=limits)
    assert (np.diff(run.described.cuts) > 0).all()
    assert run.described.decided().shape == (7, 4, 3)


# --- a run that is called again -----------------------------------------------------------------


def test_a_description_is_replayed_from_the_journal(clients, tmp_path):
    first, again = (learn(clients, running=fedopl.Running(journal=tmp_path)) for _ in range(2))
    np.testing.assert_array_equal(first.described.decided(), again.described.decided())
    assert not any(again.ledger.values())
