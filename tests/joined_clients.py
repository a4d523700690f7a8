"""Federations after a run, with all that the server has and, for tests, all that it has not."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import RowSplit
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study
from fedopl.server.mixtures.found_weights import minimax_weights
from fedopl.server.mixtures.value_queries import asking, asking_without
from fedopl.study.plans import EvaluationPlan
from fedopl.study.study import Study


@dataclass(eq=False)
class Joined:
    study: Study
    data: dict
    doors: dict
    record: Record

    @property
    def most(self):
        return most_in_query(self.study)

    @property
    def statistics(self):
        return self.record.tree or self.record.statistics

    @property
    def weights(self):
        return self.record.mixture

    def ask(self):
        return asking(self._conversation, sorted(self.doors))

    @property
    def ask_training(self):
        return asking_without(self._conversation, sorted(self.doors), RowSplit.TRAINING)

    @property
    def _conversation(self):
        return Conversation(self.study, InProcess(self.doors), Journal())

    def climbed(self, regrets, most_steps=200):
        """The ascent from the mixture of the run."""
        of_all = {None: self.statistics}
        return minimax_weights(of_all, self.weights, regrets, most_steps)[None]

    def rows(self, client, split=RowSplit.TRAINING):
        """Contexts, scores and shares of a client's rows."""
        space = self.doors[client]._space
        used = space.rows(split)
        n_used = space.n_rows(split)
        weights = np.ones(n_used) if space.data.weights is None else space.data.weights[used]
        return space.data.contexts[used], space.scores[used], weights / weights.sum()

    def value(self, client, policy, split=RowSplit.TRAINING):
        contexts, scores, shares = self.rows(client, split)
        return shares @ scores[np.arange(len(scores)), policy.decide(contexts)]


def run_federation(data, *, evaluation=0.25, **options):
    first = next(iter(data.values()))
    options["evaluation"] = EvaluationPlan(share=evaluation, describe=False)
    study = Study(actions=first.action_names, features=first.feature_names, **options)
    doors = {
        name: Door(name, rows, study, limits=Limits.open(), secret=SEED_ALONE)
        for name, rows in data.items()
    }
    return Joined(study, data, doors, run_study(Conversation(study, InProcess(doors))))


@pytest.fixture
def join(monkeypatch):
    """Run a study on a world's rows, or on rows as they are, and ask about any number of policies.

    A study that says that it compares clients, and may ask about many, would do so in its run.
    """
    monkeypatch.setattr(Value, "most", classmethod(lambda *_: math.inf))

    def _join(world, sizes=None, draw=0, **options):
        data = world
        if sizes is not None:
            # Known propensities: nothing has to be fitted, and tests take little time.
            world = replace(world, known_propensities=True)
            data = {
                name: world.logged(name, size, draw)
                for name, size in zip(world.clients, sizes, strict=True)
            }
        return run_federation(data, **options)

    return _join
