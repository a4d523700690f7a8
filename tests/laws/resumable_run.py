"""A run in a process of its own, for tests that kill it: `resumable_run.py HOW ORACLE FOLDER`.

HOW is `learn`, or `stores` for clients that keep their scores on the disk; after `command` come
the arguments of the command line instead. With KILL_AFTER=n in
the environment the process kills itself in the middle of handling its query number n; with
LARGEST_FILE=n the disk is full for files above n bytes. The result goes to FOLDER/result.
"""

import os
import resource
import signal
import sys
from pathlib import Path

import numpy as np

import fedopl
from fedopl.cli.app import main as command_line
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.policy import policy_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study

NAMES = ("east", "north", "south")
NUISANCES = fedopl.NuisancePlan(propensity="marginal", folds=2)
PLAN = fedopl.TrainingPlan(rounds=3, local_steps=4, batch_size=16)


def client_data(turn):
    rng = np.random.default_rng(turn)
    contexts = rng.standard_normal((90 + 10 * turn, 3))
    actions = rng.integers(0, 3, len(contexts))
    rewards = actions * contexts[:, 0] + rng.standard_normal(len(contexts))
    return fedopl.LoggedData(contexts, actions, rewards, action_names=["a0", "a1", "a2"])


def die_in_the_middle(after):
    handled = 0
    whole = Door.handle

    def handle(self, content):
        nonlocal handled
        handled += 1
        if handled > after:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(self, content)

    Door.handle = handle


def finished(how, oracle, folder):
    clients = {name: client_data(turn) for turn, name in enumerate(NAMES)}
    journal = folder / "journal"
    if how == "learn":
        return fedopl.learn(
            clients,
            basis="linear",
            policy=fedopl.Linear(oracle=oracle, training=PLAN),
            nuisances=NUISANCES,
            running=fedopl.Running(journal=journal),
        )
    study = fedopl.Study(
        actions=("a0", "a1", "a2"),
        features=("x0", "x1", "x2"),
        policy=fedopl.Linear(oracle=oracle, training=PLAN),
        nuisances=NUISANCES,
    )
    doors = {
        name: Door(
            name, data, study, store=FolderStore(folder / "stores" / name), secret=SEED_ALONE
        )
        for name, data in clients.items()
    }
    return run_study(Conversation(study, InProcess(doors), Journal(journal)))


def text_of(run):
    return f"{policy_json(run.policy)}{run}\n{run.refusals}\n"


def main():
    if "KILL_AFTER" in os.environ:
        die_in_the_middle(int(os.environ["KILL_AFTER"]))
    if "LARGEST_FILE" in os.environ:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = int(os.environ["LARGEST_FILE"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    if sys.argv[1] == "command":
        sys.argv[:2] = ["fedopl"]
        command_line()
        return
    how, oracle, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    try:
        run = finished(how, oracle, folder)
    except fedopl.FedoplError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    (folder / "result").write_text(text_of(run), encoding="utf-8")


if __name__ == "__main__":
    main()
