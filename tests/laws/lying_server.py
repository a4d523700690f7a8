"""A server that lies: it speaks bytes to a client's door and asks whatever helps it.

It may know anything but the client's rows and secret: the study, the limits, the code, and the
contexts of the person it is after. Attacks return what they found out; tests hold that against the
rows, which they have.
"""

import numpy as np

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disk.store import MemoryStore
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed

ACTIONS = ("none", "pill", "surgery")
N_FEATURES = 4


def rows(n_rows=400, seed=0):
    """Made-up rows of one client."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    actions = rng.integers(0, len(ACTIONS), n_rows)
    rewards = contexts[:, 0] * (actions - 1) + rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS)


def with_row(data, context, action, reward):
    """The same rows and one more."""
    return fedopl.LoggedData(
        np.vstack([data.contexts, context]),
        np.append(data.actions, action),
        np.append(data.rewards, reward),
        action_names=ACTIONS,
    )


def study_with(**changes):
    features = tuple(f"x{place}" for place in range(N_FEATURES))
    nuisances = fedopl.NuisancePlan(propensity="marginal")
    return fedopl.Study(
        **{
            "actions": ACTIONS,
            "features": features,
            "nuisances": nuisances,
            "evaluation": 0.25,
            **changes,
        }
    )


class LyingServer:
    """Asks one door, within default limits, and counts what it asked."""

    def __init__(self, data, study=None, *, limits=None, **options):
        self.study = study or study_with()
        options.setdefault("secret", "known to the client alone")
        self.door = Door("north", data, self.study, limits=limits or Limits(), **options)
        self.n_asked = 0

    def ask(self, kind, **fields):
        """The answer as a message."""
        query = kind(study=self.study.digest, exchange=self.n_asked, **fields)
        self.n_asked += 1
        return codec.decode(self.door.handle(codec.encode(query)), axis_sizes(self.study))

    def score(self):
        """Have the rows scored with models that say nothing, as every study begins."""
        n_models = self.study.nuisances.folds + 1
        models = np.zeros((n_models, len(ACTIONS), N_FEATURES + 1))
        answer = self.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
        assert not isinstance(answer, Refusal)
        return self

    def half_space(self, direction, threshold, inside, outside):
        """A policy that gives one action where direction·x > threshold, and another elsewhere."""
        parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
        parameters[:, -1] = -1e6
        parameters[inside] = [*direction, -threshold]
        parameters[outside] = 0.0
        return parameters

    def policies(self, *parameters):
        """The fields of a query about these policies."""
        return {**packed([], self.study), "linear": np.array(parameters)}


def servers_of(data, study=None, **options):
    """A function that makes servers of one client, whose rows are scored once for all of them.

    Each has a door with budgets and a ledger of its own.
    """
    kept = MemoryStore()
    LyingServer(data, study, store=kept, **options).score()
    return lambda: LyingServer(data, study, store=MemoryStore(kept), **options).score()
