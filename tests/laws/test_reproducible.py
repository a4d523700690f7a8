"""Law: client order, threads and restarts change nothing, bit for bit."""

import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.policy import policy_json
from fedopl.results.files.table_files import diagnosis_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study

NAMES = ("north", "south", "west")
PLAN = fedopl.TrainingPlan(rounds=6, local_steps=4, batch_size=32, clients_per_round=2)
# What takes long to fit is tried once, with the defaults, and then with local models.
QUICK = {"basis": "linear", "nuisances": fedopl.NuisancePlan(propensity="marginal")}
OPTIONS: list[dict[str, object]] = [
    {"basis": "auto", "nuisances": fedopl.NuisancePlan()},
    {"policy": fedopl.Linear(oracle="csoaa-exact")},
    {"policy": fedopl.Linear(oracle="csoaa-sgd", training=PLAN)},
    {"policy": fedopl.Linear(oracle="wap")},
    {"policy": fedopl.Linear(oracle="direct")},
    {"nuisances": "local"},
    {"policy": fedopl.Linear(precision="clients")},
    {"policy": fedopl.Linear(precision="auto")},
    {"policy": fedopl.Tree(depth=2)},
    {"policy": fedopl.Tree(depth=3)},
    {"mixture": "minimax"},
    {"mixture": fedopl.mixture.path("west")},
    {"diagnose": True},
    {"policy": fedopl.Tree(depth=2), "mixture": "minimax", "diagnose": True},
]
IDS = [" ".join(str(value) for value in options.values())[:20] for options in OPTIONS]
QUICK_ONES = (1, 2, 5, 8, 12)  # exact, by steps, local models, a tree, diagnosed
some_slow = pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=() if at in QUICK_ONES else pytest.mark.slow_law)
        for at, (options, name) in enumerate(zip(OPTIONS, IDS, strict=True))
    ],
)


@pytest.fixture
def clients(draw):
    return {name: draw(150 + 40 * seed, seed=seed) for seed, name in enumerate(NAMES)}


def result(run):
    found = diagnosis_json(run.diagnosis) if run.diagnosis else ""
    return policy_json(run.policy), str(run.values), str(run.gains), run.mixture, found


@some_slow
def test_the_order_of_clients_and_threads_change_nothing(clients, options):
    options = QUICK | options
    once = result(fedopl.learn(clients, **options))
    turned = dict(reversed(clients.items()))
    assert result(fedopl.learn(turned, **options)) == once
    assert result(fedopl.learn(clients, running=fedopl.Running(threads=3), **options)) == once


@some_slow
def test_a_client_that_restarts_before_every_message_changes_nothing(clients, options, tmp_path):
    once = fedopl.learn(clients, evaluation=0.25, **QUICK | options)

    class Restarting(InProcess):
        def exchange(self, queries):
            for name, query in queries.items():
                store = FolderStore(tmp_path / name)
                door = Door(
                    name,
                    clients[name],
                    once.study,
                    limits=Limits.open(),
                    store=store,
                    secret=SEED_ALONE,
                )
                yield name, door.handle(query)

    again = run_study(Conversation(once.study, Restarting(dict.fromkeys(clients))))
    assert result(again) == result(once)


def test_another_seed_is_another_run(clients):
    assert result(fedopl.learn(clients, seed=1)) != result(fedopl.learn(clients, seed=2))
