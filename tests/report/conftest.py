"""Small finished runs to report on."""

from functools import cache

import pytest
from small_worlds import alike_world, outcome_shift

import fedopl
from fedopl.client.disclosure.limits import as_limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.trees.tree_plan import Restriction
from fedopl.report.page import render
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from report_runs import (
    SCHEMA,
    TREE_ACTIONS,
    TREE_FEATURES,
    TREE_SCHEMA,
    admissions,
    discharges,
    patients,
    severe,
    shoppers,
)


@pytest.fixture(scope="session")
def run():
    """Two hospitals, three actions."""
    return fedopl.learn({"north": patients(1), "south": patients(2)}, basis="linear")


@pytest.fixture(scope="session")
def lower():
    """Two hospitals whose tables say that less is better; one of them tells no values."""
    study = fedopl.Study(
        name="Discharge", actions=SCHEMA.actions, features=SCHEMA.feature_names, table=SCHEMA
    )
    limits = {"north": fedopl.Limits(), "south": fedopl.Limits(values=False)}
    doors = {
        name: Door(
            name,
            fedopl.read_logged(discharges(seed), SCHEMA),
            study,
            limits=limits[name],
            secret=SEED_ALONE,
        )
        for seed, name in enumerate(limits)
    }
    return run_study(Conversation(study, InProcess(doors)))


@pytest.fixture(scope="session")
def finite():
    """The best of two arms, by name."""
    return fedopl.learn(
        {"north": patients(1)}, basis="linear", policy=fedopl.Finite(candidates={"severe": severe})
    )


@pytest.fixture(scope="session")
def tree():
    """A tree of depth two; less is better, and some may get less."""
    study = fedopl.Study(
        name="Wards",
        actions=TREE_SCHEMA.actions,
        features=TREE_SCHEMA.feature_names,
        table=TREE_SCHEMA,
        evaluation=0.25,
        policy=fedopl.Tree(
            bins=6,  # so few that a second look moves thresholds
            minimum_leaf=40,
            split_cost=0.01,
            allowed=(Restriction(column="ward", level="surgery", actions=("home", "clinic")),),
        ),
    )
    doors = {
        name: Door(
            name,
            fedopl.read_logged(admissions(seed), TREE_SCHEMA),
            study,
            limits=as_limits("guarded"),
            secret=SEED_ALONE,
        )
        for seed, name in enumerate(("north", "south"))
    }
    return run_study(Conversation(study, InProcess(doors)))


@pytest.fixture(scope="session")
def deep():
    """A tree of depth four, with names too long to be drawn."""
    names = ("north", "south")
    clients = {
        name: patients(seed, 900, TREE_ACTIONS, TREE_FEATURES) for seed, name in enumerate(names)
    }
    return fedopl.learn(
        clients, basis="linear", policy=fedopl.Tree(depth=4), evaluation=0.25, personal="none"
    )


@pytest.fixture(scope="session")
def hostile():
    """Forty features, ten actions and names that would like to be more than names."""
    actions = tuple(f"<b>a{place}</b> & \"q\" '$x_{place}$'" for place in range(10))
    features = tuple(f"<script>alert({place})</script>{'long' * 15}" for place in range(40))
    names = ("<script>alert('c')</script>", "live http://x.example " + "W" * 90, "東京")
    return fedopl.learn(
        {name: patients(seed, 500, actions, features) for seed, name in enumerate(names)},
        basis="linear",
        nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
    )


@pytest.fixture(scope="session")
def many():
    """Forty clients."""
    return fedopl.learn(
        {f"clinic {place}": patients(place, 80) for place in range(40)},
        basis="linear",
        mixture="uniform",
        nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
    )


@pytest.fixture(scope="session")
def joined():
    """Three clients that are alike and have few rows to learn from: joining pays for each."""
    world = alike_world(3, n_features=30)
    clients = {name: world.logged(name, 300) for name in world.clients}
    return fedopl.learn(clients, basis="linear", diagnose=True, evaluation=0.5, personal="none")


@pytest.fixture(scope="session")
def apart():
    """Two clients for whom other things are best; weights for the one that loses most."""
    world = outcome_shift(alike_world(2, n_features=3, seed=1), 1.5)
    names = ("<script>alert('n')</script> north", "南 " + "W" * 60)
    rows = zip(world.clients, names, (900, 500), strict=True)
    clients = {name: world.logged(of, n_rows) for of, name, n_rows in rows}
    agreed = {"diagnose": True, "mixture": "minimax", "personal": "none"}
    return fedopl.learn(clients, basis="linear", **agreed)


@pytest.fixture(scope="session")
def large():
    """Fourteen actions with long names, an outcome in millions, large and tiny features."""
    return fedopl.learn(
        {"Saint Bartholomew's Hospital": shoppers(1), "south": shoppers(2)}, basis="linear"
    )


@pytest.fixture(scope="session")
def html_of(request):
    """A function from the name of a run above to its page, which is made once."""
    return cache(lambda name: render(request.getfixturevalue(name)))
