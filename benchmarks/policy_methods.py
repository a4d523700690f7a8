"""From logs to decisions, by fedopl and by pooled peers: what `policies.py` runs.

    python benchmarks/policy_methods.py --measure METHOD FOLDER

FOLDER has a file for each draw. The method learns from each file separately, and stores decisions
for its fresh contexts beside it. The clock is the processor's, from arrays to the policy. fedopl
keeps clients separate; the others have all rows in one table. To add a way to learn, add a line in
`OURS`, or a function and a line in `METHODS`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from process import ABSENT

Decide = Callable[[np.ndarray], np.ndarray]
N_FOLDS = 5
LEAST = 0.05  # no propensity counts as less where a peer is given one
N_THRESHOLDS = 600  # of a column, about, that policytree tries: its time grows with their square


class Logs(NamedTuple):
    """All clients' rows, with whose each is, in one table."""

    contexts: np.ndarray  # (n_rows, n_features)
    actions: np.ndarray  # (n_rows,)
    rewards: np.ndarray  # (n_rows,)
    clients: np.ndarray  # (n_rows,)
    n_actions: int
    asked: np.ndarray  # (n_asked, n_features), contexts without rows, to decide for


# --- fedopl ---------------------------------------------------------------------------------------

# What `fedopl.learn` is told, given the package itself. "linear" is linear in all its models, with
# weights as they are, whatever the defaults are.
OURS: dict[str, Callable[[ModuleType], dict[str, Any]]] = {
    "fedopl": lambda _: {},
    "fedopl, linear": lambda f: {
        "basis": "linear",
        "policy": f.Linear(oracle="csoaa-exact", precision="rows"),
        "nuisances": f.NuisancePlan(
            kind="federated", outcome="ridge", propensity="logistic", clip=None, learning_clip=0
        ),
    },
    "fedopl, neural": lambda _: {"policy": "neural"},
    "fedopl, neural, linear": lambda _: {"policy": "neural", "basis": "linear"},
    "fedopl, tree of depth two": lambda f: {"policy": f.Tree(depth=2)},
    "fedopl, precision by client": lambda f: {"policy": f.Linear(precision="clients")},
    "fedopl, precision by rows": lambda f: {"policy": f.Linear(precision="rows")},
    "fedopl, clip .05": lambda f: {"nuisances": f.NuisancePlan(clip=0.05)},
}


def with_fedopl(told: Callable[[ModuleType], dict[str, Any]], share: float, logs: Logs) -> Decide:
    """Learn from clients that stay apart, with this share of their rows held out to value."""
    import fedopl

    names = [f"a{action}" for action in range(logs.n_actions)]
    clients = {}
    for code in np.unique(logs.clients):
        arrays = (part[logs.clients == code] for part in logs[:3])
        clients[f"client {code}"] = fedopl.LoggedData(*arrays, action_names=names)
    return fedopl.learn(clients, evaluation=share, **told(fedopl)).policy.decide


# --- pooled rows ----------------------------------------------------------------------------------


def boosted_t_learner(logs: Logs, **settings: int) -> Decide:
    """A boosted model of the outcome for each action, and the action of the largest."""
    everybody = slice(None)
    models = [_outcome_model(logs, a, everybody, **settings) for a in range(logs.n_actions)]
    return lambda contexts: np.column_stack([m.predict(contexts) for m in models]).argmax(axis=1)


def _outcome_model(logs: Logs, action: int, rows: np.ndarray | slice, **settings: int) -> Any:
    """Small steps and small trees, as many as rows kept back say, unless it is said otherwise."""
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor

    own = logs.actions[rows] == action
    if own.sum() < 20:  # too few to keep any back
        return DummyRegressor().fit(logs.contexts[rows], logs.rewards[rows])
    model = HistGradientBoostingRegressor(**_BOOSTED | settings)
    return model.fit(logs.contexts[rows][own], logs.rewards[rows][own])


def _propensity_model() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(**_BOOSTED)


_BOOSTED = {
    "learning_rate": 0.1,
    "max_leaf_nodes": 4,
    "max_iter": 300,
    "early_stopping": True,
    "random_state": 0,
}


class Nuisances(NamedTuple):
    """What boosted models say of rows that they were not fitted to."""

    means: np.ndarray  # (n_rows, n_actions)
    chances: np.ndarray  # (n_rows,), of what was done, and no less than LEAST

    def scores(self, logs: Logs) -> np.ndarray:  # (n_rows, n_actions)
        """Doubly robust ones."""
        scores, every = self.means.copy(), np.arange(len(logs.actions))
        missed = logs.rewards - scores[every, logs.actions]
        scores[every, logs.actions] += missed / self.chances
        return scores


def boosted_nuisances(logs: Logs) -> Nuisances:
    """Cross-fitted models of outcomes and of what was done."""
    means, chances = np.empty((len(logs.actions), logs.n_actions)), np.empty(len(logs.actions))
    for train, test in _folds(logs):
        for action in range(logs.n_actions):
            means[test, action] = _outcome_model(logs, action, train).predict(logs.contexts[test])
        model = _propensity_model().fit(logs.contexts[train], logs.actions[train])
        # An action that no row of training took has no column; the least chance stands for it.
        known = np.full((len(test), logs.n_actions), LEAST)
        known[:, model.classes_] = model.predict_proba(logs.contexts[test])
        chances[test] = known[np.arange(len(test)), logs.actions[test]]
    return Nuisances(means, np.maximum(chances, LEAST))


def _folds(logs: Logs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    dealt = np.random.default_rng(0).permutation(len(logs.actions)) % N_FOLDS
    for fold in range(N_FOLDS):
        yield np.flatnonzero(dealt != fold), np.flatnonzero(dealt == fold)


def policytree(logs: Logs) -> Decide:
    """The best tree of depth two on boosted scores, by policytree in R."""
    from tree_peers import policytree as best_tree

    scores = boosted_nuisances(logs).scores(logs)

    # The tree stays in R, so it is asked at once.
    step = max(1, len(scores) // N_THRESHOLDS)
    decisions = best_tree(logs.contexts, scores, step=step, asked=logs.asked).decisions
    return lambda _: decisions


def econml_forest(logs: Logs) -> Decide:
    """A forest of policy trees on doubly robust scores of its own, models boosted."""
    from econml.policy import DRPolicyForest
    from sklearn.ensemble import HistGradientBoostingRegressor

    forest = DRPolicyForest(
        model_regression=HistGradientBoostingRegressor(**_BOOSTED),
        model_propensity=_propensity_model(),
        min_propensity=LEAST,
        n_estimators=200,
        n_jobs=1,
        random_state=0,
    )
    forest.fit(logs.rewards, logs.actions, X=logs.contexts)
    return lambda contexts: np.asarray(forest.predict(contexts)).ravel()


def obp_network(logs: Logs) -> Decide:
    """A network trained by the doubly robust estimate of its value, from boosted models."""
    from obp.ope import DoublyRobust
    from obp.policy import NNPolicyLearner

    boosted = boosted_nuisances(logs)
    centre, scale = logs.contexts.mean(axis=0), logs.contexts.std(axis=0)
    network = NNPolicyLearner(
        n_actions=logs.n_actions,
        dim_context=logs.contexts.shape[1],
        off_policy_objective=DoublyRobust().estimate_policy_value_tensor,
        hidden_layer_size=(64, 64),
        learning_rate_init=0.001,
        max_iter=50,
        n_iter_no_change=10**9,  # else passes end after ten batches, since falling losses count
        random_state=0,
    )
    network.fit(
        context=(logs.contexts - centre) / scale,
        action=logs.actions,
        reward=logs.rewards,
        pscore=boosted.chances,
        estimated_rewards_by_reg_model=boosted.means[:, :, None],
    )
    return lambda contexts: network.predict_proba((contexts - centre) / scale)[:, :, 0].argmax(
        axis=1
    )


# Whose environment runs it (none for our own), and what runs.
METHODS: dict[str, tuple[str, Callable[[Logs], Decide]]] = {
    **{name: ("", partial(with_fedopl, told, 0.0)) for name, told in OURS.items()},
    "fedopl, a quarter held out": ("", partial(with_fedopl, OURS["fedopl"], 0.25)),
    "boosted T-learner": ("", boosted_t_learner),
    "boosted T-learner, 31 leaves": ("", partial(boosted_t_learner, max_leaf_nodes=31)),
    "policytree, depth two": ("", policytree),
    "econml, DRPolicyForest": ("econml", econml_forest),
    "obp, NNPolicyLearner": ("obp", obp_network),
}


def run(name: str, folder: Path) -> list[float]:
    """Learn from every draw in the folder, and leave decisions there; seconds of each."""
    seconds = []
    for path in sorted(folder.glob("*.npz")):
        given = dict(np.load(path))
        logs = Logs(**{**given, "n_actions": int(given["n_actions"])})
        start = _processor_time()
        decide = METHODS[name][1](logs)
        seconds.append(_processor_time() - start)
        decisions = np.asarray(decide(logs.asked)).astype(np.int64)
        np.save(path.with_suffix(".decisions.npy"), decisions)
    return seconds


def _processor_time() -> float:
    """Seconds of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


def main() -> None:
    """Run a peer in this process."""
    parser = argparse.ArgumentParser(description="Run one method.")
    parser.add_argument("--measure", nargs=2, required=True, metavar=("METHOD", "FOLDER"))
    name, folder = parser.parse_args().measure
    try:
        print(json.dumps(run(name, Path(folder))))
    except ModuleNotFoundError as error:
        print(f"absent: {error}", file=sys.stderr)
        sys.exit(ABSENT)


if __name__ == "__main__":
    main()
