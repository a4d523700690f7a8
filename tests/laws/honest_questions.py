"""What an honest server asks in studies of all kinds, and what one client answers, in bytes.

A client with other rows, or a server that lies, is then held against what was heard.
"""

from functools import cache

import numpy as np
import pytest

import fedopl
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of

ACTIONS, N_FEATURES, FLAG = ("none", "pill", "surgery"), 4, 3
NAMES = ("east", "north", "south")
ALWAYS = ("contexts", "actions", "rewards")
MARGINAL = fedopl.NuisancePlan(propensity="marginal")
BY_FIRST = {"by x0": lambda contexts: (contexts[:, 0] > 0).astype(int)}
KNOTS = dict.fromkeys(("x0", "x1"), (-1.0, 0.0, 1.0))
CAPPED = {"budget": fedopl.Budget(shares={"pill": 0.3}), "evaluation": 0.5}
TREE = fedopl.Tree(depth=2, bins=8)
FINITE = fedopl.Finite(candidates=BY_FIRST)
STEPS = fedopl.TrainingPlan(rounds=2, local_steps=3, batch_size=32)
HARM = {"harm": fedopl.Guardrail(column="harm", at_most=0.1, more_than="what was done")}
SCREENED = fedopl.Basis(knots=KNOTS, products=("x0", "x1"), screened_pairs=2, screened_thresholds=2)
# By name, options of the call.
STUDIES = {
    "linear": {"evaluation": 0.25},
    "usual models": {"nuisances": fedopl.NuisancePlan()},
    "logistic": {"nuisances": fedopl.NuisancePlan(propensity="logistic")},
    "local models": {"nuisances": fedopl.NuisancePlan(kind="local", propensity="marginal")},
    "groups": {"groups": True},
    "weights": {"weights": True, "mixture": fedopl.mixture.empirical(count="weight")},
    "hinges": {"basis": fedopl.Basis(kind="hinges", knots=KNOTS)},
    "screened": {"basis": SCREENED, "evaluation": 0.25},
    "screened by fold": {"basis": SCREENED, "evaluation": "cross-fitted"},
    "pairs": {"policy": fedopl.Linear(oracle="wap"), "evaluation": 0.25},
    "steps": {"policy": fedopl.Linear(oracle="csoaa-sgd", training=STEPS), "evaluation": 0.25},
    "slopes": {"policy": fedopl.Linear(oracle="direct"), "evaluation": 0.25},
    "network": {"policy": fedopl.Neural(hidden=(3,), rounds=2, local_steps=2), "evaluation": 0.25},
    "tree": {"policy": TREE, "evaluation": 0.25},
    "cross-fitted": {"evaluation": "cross-fitted"},
    "cross-fitted tree": {"policy": TREE, "evaluation": "cross-fitted"},
    "path": {"mixture": fedopl.mixture.path("north")},
    "joining": {"diagnose": True},
    "guardrail": {"guardrails": HARM},
    "budget": CAPPED,
    "tree in a budget": {"policy": TREE, **CAPPED},
    "candidates in a budget": {"policy": FINITE, **CAPPED},
    "personal": {"personal": "ridge", "evaluation": 0.5},
    "personal tree": {"personal": "ridge", "evaluation": 0.5, "policy": TREE},
    "personal choice": {"personal": "ridge", "evaluation": 0.5, "policy": FINITE},
    "target": {"target": True},
    "target, jointly": {"target": True, "balance": "joint"},
}


def fields(seed, n_rows=240):
    """Columns of rows of which three have the flag, and some are there twice."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    contexts[:, 2] = rng.integers(0, 3, n_rows)
    actions = rng.integers(0, len(ACTIONS), n_rows)
    rewards = contexts[:, 0] * (actions - 1) + rng.standard_normal(n_rows)
    groups, weights = rng.permutation(n_rows) // 3, rng.integers(1, 4, n_rows) / 2
    for column in (contexts, actions, rewards, weights):
        column[120:150] = column[150:180]
    contexts[:, FLAG] = np.arange(n_rows) < 3
    return {"contexts": contexts, "actions": actions, "rewards": rewards} | {
        "groups": groups,
        "weights": weights,
    }


def rows(study, columns):
    """A client's rows in this study, of such columns; those of a site if the study is None."""
    if study is None:
        return fedopl.Contexts(columns["contexts"])
    own = {
        name: column for name, column in columns.items() if name in ALWAYS or name in STUDIES[study]
    }
    if "guardrails" in STUDIES[study]:
        own["outcomes"] = {"harm": (own["rewards"] < -1).astype(float)}
    return fedopl.LoggedData(**own, action_names=ACTIONS)


@cache
def heard(study):
    """Doors, of the first client and the site, with what they were asked and answered."""
    options = {"basis": "linear", "nuisances": MARGINAL, **STUDIES[study]}
    options = {name: own for name, own in options.items() if name not in ("groups", "weights")}
    if "target" in options:
        options["target"] = rows(None, fields(len(NAMES)))
    told, honest = {}, Door._handle

    def handle(door, content, decision):
        answer = honest(door, content, decision)
        told.setdefault(door.name, (door, []))[1].append((content, answer))
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Door, "_handle", handle)
        clients = {name: rows(study, fields(seed)) for seed, name in enumerate(NAMES)}
        run = fedopl.learn(clients, limits="guarded", **options)
    assert not run.refusals
    return [own for name, own in told.items() if name == NAMES[0] or name not in NAMES]


def opened(door, columns, study, **options):
    """Another door of the same client, or site, to these rows."""
    is_site = door.name not in NAMES
    data = rows(None, columns).as_rows(ACTIONS) if is_site else rows(study, columns)
    own = {"limits": door.limits, "secret": door._space.draws.secret, **options}
    return Door(door.name, data, door.study, rules=getattr(door._space, "rules", None), **own)


def columns_of(door):
    """The columns that the rows behind this door were made of."""
    return fields(NAMES.index(door.name) if door.name in NAMES else len(NAMES))


def asked_about(door, content):
    """The study that a message is of: the door's, or the one that it continued as."""
    is_own = codec.study_asked_about(content) == door.study.digest
    return door.study if is_own else door._after.study


def read(door, content):
    """A query or an answer as a message."""
    return decoder_of(asked_about(door, content)).decode(content)
