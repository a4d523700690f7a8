"""Law: what one client says falsely is rejected by name, or named in a caution.

The false answers are those of `experiments/lies.py`.
"""

from contextlib import suppress
from functools import cache

import lies
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_worlds import alike_world

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.policy import policy_json
from fedopl.report.cautions import cautions
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study

WORLD = alike_world(6, seed=3)
LIAR = "client 4"
QUICK = {"nuisances": fedopl.NuisancePlan(propensity="marginal")}


@cache
def clients():
    return {name: WORLD.logged(name, 1_000) for name in WORLD.clients}


def said_of(record):
    """What a reader of the report is told of the liar."""
    return [caution.what for caution in cautions(record) if LIAR in caution.what]


@pytest.mark.parametrize("name", lies.LIES)
def test_a_false_answer_is_rejected_or_named_in_a_caution(name):
    record = lies.run_with(lies.LIES[name], clients(), LIAR, **QUICK)
    assert said_of(record)
    others = [(who, why) for _, who, why in record.refusals if who != LIAR and "rejected" in why]
    assert others == []


BOUGHT = [
    "1,000 times the rows, rewards flipped",
    "1,000 times the rows of each action, rewards flipped",
    "outcome sums, 1,000 times",
]


@pytest.mark.parametrize("name", BOUGHT)
def test_rows_that_are_not_there_buy_no_weight(name):
    record = lies.run_with(lies.LIES[name], clients(), LIAR, **QUICK)
    others = {name: rows for name, rows in clients().items() if name != LIAR}
    alone = lies.run_with(lies.Lie(), others, LIAR, **QUICK)
    assert LIAR not in record.mixture
    assert policy_json(record.policy) == policy_json(alone.policy)


def test_a_largest_share_bounds_what_a_client_gains_by_lying_about_its_rows():
    everywhere = lies.LIES["1,000 times the rows in all it says, rewards flipped"]
    believed = lies.run_with(everywhere, clients(), LIAR, **QUICK)
    agreed = {"mixture": fedopl.mixture.empirical(largest_share=0.2)}
    capped = lies.run_with(everywhere, clients(), LIAR, **QUICK, **agreed)
    honest = lies.run_with(lies.Lie(), clients(), LIAR, **QUICK)
    assert believed.mixture[LIAR] > 0.99
    assert capped.mixture[LIAR] == pytest.approx(0.2)
    best = {name: world_value(record) for name, record in (("truth", honest), ("capped", capped))}
    assert best["capped"] > best["truth"] - 0.1
    assert world_value(believed) < best["truth"] - 1


def test_an_honest_run_of_clients_that_are_alike_has_no_cautions():
    record = lies.run_with(lies.Lie(), clients(), LIAR, **QUICK)
    assert cautions(record) == []
    assert record.reliance.contradictions == ()
    assert len(record.reliance.left_out) == 3


def world_value(record):
    return WORLD.value(record.policy, LIAR)


def test_the_truth_is_not_rejected():
    for options in ({}, lies.SGD, lies.WAP, lies.DIRECT, lies.TREE, lies.DECLARED):
        record = lies.run_with(lies.Lie(options=options), clients(), LIAR, **QUICK)
        assert rejections(record.rounds) == []


# --- no false alarm -------------------------------------------------------------------------------

POLICIES = (
    fedopl.Linear(),
    fedopl.Linear(precision="clients"),
    fedopl.Linear(precision="auto"),
    fedopl.Linear(oracle="wap"),
    fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=2)),
    fedopl.Linear(oracle="direct"),
    fedopl.Tree(depth=2, bins=4),
    fedopl.Finite(),
)
plans = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(POLICIES),
        "nuisances": st.builds(
            fedopl.NuisancePlan,
            kind=st.sampled_from(("federated", "local")),
            propensity=st.sampled_from(("marginal", "logistic")),
            folds=st.sampled_from((2, 5)),
        ),
        "evaluation": st.sampled_from((0.1, 0.25, 0.5)),
        "joining": st.sampled_from((False, False, True)),
    }
)


def honest_rows(rng, n_rows, *, weighted, grouped, far, n_arms):
    """Rows with a rare level, a constant feature and, perhaps, a rare action and a distant zero."""
    contexts = rng.normal(far, 1.0, (n_rows, 4))
    contexts[:, 1] = rng.random(n_rows) < 0.02
    contexts[:, 2] = 1.0
    chances = np.array([0.6, 0.37, 0.03])[:n_arms]
    actions = rng.choice(n_arms, n_rows, p=chances / chances.sum())
    rewards = actions + (contexts[:, 0] - far) * (1 - actions) + rng.standard_t(3, n_rows)
    return fedopl.LoggedData(
        contexts,
        actions,
        rewards,
        weights=rng.lognormal(0, 1.0, n_rows) if weighted else None,
        groups=rng.integers(0, max(n_rows // 4, 2), n_rows) if grouped else None,
        action_names=["a", "b", "c"],
    )


def rejections(rounds):
    return [(latest.query, latest.rejected) for latest in rounds if latest.rejected]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    options=plans,
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(60, 400), min_size=2, max_size=4),
    kind=st.fixed_dictionaries(
        {
            "weighted": st.booleans(),
            "grouped": st.booleans(),
            "far": st.sampled_from((0.0, 2020.0, -1e6)),
            "n_arms": st.sampled_from((2, 3)),
        }
    ),
    limits=st.sampled_from((Limits(), Limits(minimum_cell=10), Limits.open())),
)
def test_an_honest_client_is_never_rejected(options, seed, sizes, kind, limits):
    rng = np.random.default_rng(seed)
    rows = {f"c{i}": honest_rows(rng, size, **kind) for i, size in enumerate(sizes)}
    study = fedopl.Study(
        actions=("a", "b", "c"), features=rows["c0"].feature_names, quorum=0.01, **options
    )
    doors = {
        name: Door(name, data, study, limits=limits, secret=SEED_ALONE)
        for name, data in rows.items()
    }
    rounds = []
    with suppress(fedopl.FederationError):  # refusing is every client's own right
        run_study(Conversation(study, InProcess(doors), progress=rounds.append))
    assert rounds
    assert rejections(rounds) == []
