"""Small finished runs to report on."""

from functools import cache

import pytest
from report_runs import SCHEMA, discharges, patients, severe

import fedopl
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.report.page import render
from fedopl.server.federation import run_study


@pytest.fixture(scope="session")
def run():
    """Two hospitals, three actions."""
    return fedopl.learn({"north": patients(1), "south": patients(2)})


@pytest.fixture(scope="session")
def lower():
    """Two hospitals whose tables say that less is better; one of them tells no values."""
    study = fedopl.Study(
        name="Discharge", actions=SCHEMA.actions, features=SCHEMA.feature_names, table=SCHEMA
    )
    limits = {"north": fedopl.Limits(), "south": fedopl.Limits(values=False)}
    doors = {
        name: Door(name, fedopl.read_logged(discharges(seed), SCHEMA), study, limits=limits[name])
        for seed, name in enumerate(limits)
    }
    return run_study(study, InProcess(doors))


@pytest.fixture(scope="session")
def finite():
    """The best of two arms, by name."""
    return fedopl.learn({"north": patients(1)}, policy="finite", candidates={"severe": severe})


@pytest.fixture(scope="session")
def hostile():
    """Forty features, ten actions and names that would like to be more than names."""
    actions = tuple(f"<b>a{place}</b> & \"q\" '$x_{place}$'" for place in range(10))
    features = tuple(f"<script>alert({place})</script>{'long' * 15}" for place in range(40))
    names = ("<script>alert('c')</script>", "live http://x.example " + "W" * 90, "東京")
    return fedopl.learn(
        {name: patients(seed, 500, actions, features) for seed, name in enumerate(names)},
        nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
    )


@pytest.fixture(scope="session")
def many():
    """Forty clients."""
    return fedopl.learn(
        {f"clinic {place}": patients(place, 80) for place in range(40)},
        mixture="uniform",
        nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
    )


@pytest.fixture(scope="session")
def html_of(request):
    """A function from the name of a run above to its page, which is made once."""
    return cache(lambda name: render(request.getfixturevalue(name)))
