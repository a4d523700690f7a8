"""From arrays to decisions, by fedopl and by its peers: what `peers.py` runs in other processes.

    python benchmarks/peer_methods.py --measure METHOD FOLDER

Reads contexts, actions, rewards and test contexts from FOLDER. Learns once on few rows, so that
everything is imported and compiled, then learns on all rows, and stores its decisions there. The
clock runs from arrays to the policy. This file needs numpy and the peer; only fedopl's own methods
need fedopl.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from problem import N_ACTIONS, Rows
from process import ABSENT, cost

Decide = Callable[[np.ndarray], np.ndarray]
N_FOLDS = 5
WARM_UP = 1_000  # rows
ROWS_PER_BLOCK = 8192


class MissingError(Exception):
    """Something that a method needs is not here."""


# --- fedopl ---------------------------------------------------------------------------------------


def fedopl_learn(rows: Rows, **options: object) -> Decide:
    """Learn as one party, and decide by code."""
    import fedopl

    return fedopl.learn({"all": fedopl.LoggedData(*rows)}, **options).policy.decide


def _codes(parameters: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    return (contexts @ parameters[:, :-1].T + parameters[:, -1]).argmax(axis=1)


def fedopl_default(rows: Rows) -> Decide:
    """One call with its defaults: terms and propensities chosen, all rows valued fold by fold."""
    return fedopl_learn(rows)


def fedopl_lean(rows: Rows, **options: object) -> Decide:
    """The work that the others do: marginal propensities, all rows learned from, no value."""
    import fedopl

    plan = fedopl.NuisancePlan(kind="local", propensity="marginal")
    evaluation = fedopl.EvaluationPlan(share=0, describe=False)
    return fedopl_learn(rows, basis="linear", nuisances=plan, evaluation=evaluation, **options)


def fedopl_blocks(rows: Rows) -> Decide:
    """The same, where each action's own features are known."""
    import fedopl

    return fedopl_lean(rows, policy=fedopl.Linear(features="blocks"))


def fedopl_evaluated(rows: Rows) -> Decide:
    """End to end: cross-fit, solve, and evaluate on rows held out."""
    import fedopl

    plan = fedopl.NuisancePlan(kind="local", propensity="marginal")
    evaluation = fedopl.EvaluationPlan(share=0.25, describe=False)
    return fedopl_learn(rows, basis="linear", nuisances=plan, evaluation=evaluation)


# --- plain numpy ----------------------------------------------------------------------------------


def bare_product(rows: Rows) -> Decide:
    """One matrix product over all rows: nobody can fit anything linear for less."""
    _ = rows.contexts.T @ rows.contexts
    return lambda contexts: np.zeros(len(contexts), int)


def numpy_scores(rows: Rows) -> np.ndarray:
    """Doubly robust scores by per-action least squares from one Gram matrix for each fold."""
    contexts, actions, rewards = rows
    n_rows, width = len(contexts), contexts.shape[1] + 1
    folds = np.random.default_rng(0).permutation(n_rows) % N_FOLDS
    design = np.column_stack([contexts, np.ones(n_rows)])
    cells = [
        [np.flatnonzero((folds == fold) & (actions == action)) for action in range(N_ACTIONS)]
        for fold in range(N_FOLDS)
    ]
    grams = np.empty((N_FOLDS, N_ACTIONS, width, width))
    products = np.empty((N_FOLDS, N_ACTIONS, width))
    for fold, own in enumerate(cells):
        for action, where in enumerate(own):
            block = design[where]
            grams[fold, action] = block.T @ block
            products[fold, action] = block.T @ rewards[where]
    grams, products = grams.sum(axis=0) - grams, products.sum(axis=0) - products
    slopes = np.linalg.solve(grams, products[..., None])[..., 0]
    shares = np.bincount(actions, minlength=N_ACTIONS) / n_rows
    scores = np.empty((n_rows, N_ACTIONS))
    for fold in range(N_FOLDS):
        where = np.flatnonzero(folds == fold)
        scores[where] = design[where] @ slopes[fold].T
    every = np.arange(n_rows)
    scores[every, actions] += (rewards - scores[every, actions]) / shares[actions]
    return scores


def numpy_exact(rows: Rows) -> Decide:
    """Cross-fit from one Gram matrix for each fold and action, then least squares on the scores."""
    scores = numpy_scores(rows)
    design = np.column_stack([rows.contexts, np.ones(len(scores))])
    parameters = np.linalg.solve(design.T @ design, design.T @ scores).T
    return lambda contexts: _codes(parameters, contexts)


# --- scikit-learn ---------------------------------------------------------------------------------


def scikit_learn(rows: Rows) -> Decide:
    """As most people would: a fresh fit for every fold and action, then one on the scores."""
    from sklearn.linear_model import LinearRegression

    policy = LinearRegression().fit(rows.contexts, _refitted_scores(rows))
    return lambda contexts: policy.predict(contexts).argmax(axis=1)


def _refitted_means(rows: Rows) -> np.ndarray:
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import StratifiedKFold

    contexts, actions, rewards = rows
    predicted = np.empty((len(contexts), N_ACTIONS))
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(contexts, actions):
        for action in range(N_ACTIONS):
            own = train[actions[train] == action]
            model = LinearRegression().fit(contexts[own], rewards[own])
            predicted[test, action] = model.predict(contexts[test])
    return predicted


def _refitted_scores(rows: Rows) -> np.ndarray:
    scores, every = _refitted_means(rows), np.arange(len(rows.actions))
    shares = np.bincount(rows.actions, minlength=N_ACTIONS) / len(rows.actions)
    missed = rows.rewards - scores[every, rows.actions]
    scores[every, rows.actions] += missed / shares[rows.actions]
    return scores


# --- Vowpal Wabbit --------------------------------------------------------------------------------
# Costs are negative scores, which come from plain numpy, the quickest way. In one pass, plain steps
# of rate 1/√n are close to the best of the rates tried at 10,000 and 100,000 rows; the regret of
# its default, adaptive steps is two to six times as large.

VOWPAL_DEFAULT = f"--csoaa {N_ACTIONS} --quiet"


def vowpal_flags(n_rows: int) -> str:
    """Its best settings for so many rows."""
    return f"{VOWPAL_DEFAULT} --sgd --power_t 0.5 -l {n_rows**-0.5:.3g}"


def as_text(contexts: np.ndarray, scores: np.ndarray | None = None) -> Iterator[str]:
    """Rows in its text format, seven digits as its 32-bit floats have."""
    names = [f"{column}:%.7g" for column in range(contexts.shape[1])]
    costs = "" if scores is None else " ".join(f"{a + 1}:%.7g" for a in range(scores.shape[1]))
    line = f"{costs} | {' '.join(names)}"
    for start in range(0, len(contexts), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        table = contexts[block] if scores is None else np.hstack([-scores[block], contexts[block]])
        for row in table.tolist():
            yield line % tuple(row)


def write_text(path: Path, contexts: np.ndarray, scores: np.ndarray | None = None) -> None:
    """The same as a file."""
    with path.open("w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in as_text(contexts, scores))


def vowpal_python(rows: Rows) -> Decide:
    """CSOAA by Vowpal Wabbit's Python package, a line of text for each row."""
    from vowpalwabbit import Workspace

    workspace = Workspace(vowpal_flags(len(rows.actions)))
    for line in as_text(rows.contexts, numpy_scores(rows)):
        workspace.learn(line)
    return lambda contexts: vowpal_decisions(workspace, contexts)


def vowpal_decisions(workspace: object, contexts: np.ndarray) -> np.ndarray:
    """What a workspace decides, from zero on."""
    return np.array([workspace.predict(line) for line in as_text(contexts)]) - 1


def vowpal_file(rows: Rows) -> Decide:
    """The same through a text file, read by Vowpal Wabbit's own loop as its command line does."""
    from vowpalwabbit import Workspace

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.vw")
        write_text(path, rows.contexts, numpy_scores(rows))
        workspace = Workspace(f"{vowpal_flags(len(rows.actions))} -d {path}")
    return lambda contexts: vowpal_decisions(workspace, contexts)


def vowpal_command(rows: Rows) -> Decide:
    """The program vw, from a text file to a model."""
    program = shutil.which("vw")
    if program is None:
        raise MissingError("no program vw on the path")
    folder = Path(tempfile.mkdtemp())
    write_text(folder / "rows.vw", rows.contexts, numpy_scores(rows))
    command = [program, *vowpal_flags(len(rows.actions)).split(), "-d", "rows.vw", "-f", "model"]
    subprocess.run(command, cwd=folder, check=True)

    def decide(contexts: np.ndarray) -> np.ndarray:
        write_text(folder / "test.vw", contexts)
        command = [program, "--quiet", "-t", "-i", "model", "-d", "test.vw", "-p", "decided"]
        subprocess.run(command, cwd=folder, check=True)
        return np.loadtxt(folder / "decided").astype(int) - 1

    return decide


# --- others ---------------------------------------------------------------------------------------


def contextualbandits_dr(rows: Rows) -> Decide:
    """Its doubly robust learner by regression; reward estimates are ours, since its own are 0/1."""
    from contextualbandits.offpolicy import DoublyRobustEstimator
    from sklearn.linear_model import LinearRegression

    learner = DoublyRobustEstimator(
        LinearRegression(),
        -_refitted_means(rows),  # it takes costs
        nchoices=N_ACTIONS,
        method="rovr",
        handle_invalid=False,
        njobs=1,
    )
    shares = np.bincount(rows.actions, minlength=N_ACTIONS) / len(rows.actions)
    learner.fit(rows.contexts, rows.actions, rows.rewards, shares[rows.actions])
    return learner.predict


def obp_ipw(rows: Rows) -> Decide:
    """Its IPW learner with logistic regression: rewards are moved above zero, as it demands."""
    from obp.policy import IPWLearner

    shares = np.bincount(rows.actions, minlength=N_ACTIONS) / len(rows.actions)
    learner = IPWLearner(n_actions=N_ACTIONS)
    learner.fit(
        context=rows.contexts,
        action=rows.actions,
        reward=rows.rewards - rows.rewards.min(),
        pscore=shares[rows.actions],
    )
    return lambda contexts: learner.predict(contexts)[:, :, 0].argmax(axis=1)


def econml_linear(rows: Rows) -> Decide:
    """LinearDRLearner, whose outcome model has slopes per action (by default nothing interacts)."""
    from econml.dr import LinearDRLearner
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LinearRegression

    class PerAction(RegressorMixin, BaseEstimator):
        """Least squares for each action apart; the last columns say which action it was."""

        def fit(self, table: np.ndarray, rewards: np.ndarray) -> "PerAction":
            contexts, actions = self._parts(table)
            self.models_ = [
                LinearRegression().fit(contexts[actions == a], rewards[actions == a])
                for a in range(N_ACTIONS)
            ]
            return self

        def predict(self, table: np.ndarray) -> np.ndarray:
            contexts, actions = self._parts(table)
            found = np.empty(len(table))
            for action, model in enumerate(self.models_):
                if (actions == action).any():
                    found[actions == action] = model.predict(contexts[actions == action])
            return found

        def _parts(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            taken = table[:, 1 - N_ACTIONS :]  # all but the first action have a column
            actions = np.where(taken.any(axis=1), taken.argmax(axis=1) + 1, 0)
            return table[:, : 1 - N_ACTIONS], actions

    learner = LinearDRLearner(
        model_regression=PerAction(),
        model_propensity=DummyClassifier(strategy="prior"),
        cv=N_FOLDS,
        random_state=0,
    )
    learner.fit(rows.rewards, rows.actions, X=rows.contexts, inference=None)

    def decide(contexts: np.ndarray) -> np.ndarray:
        effects = [learner.effect(contexts, T0=0, T1=action) for action in range(1, N_ACTIONS)]
        return np.column_stack([np.zeros(len(contexts)), *effects]).argmax(axis=1)

    return decide


# Whose environment runs it (none for our own), and what runs.
METHODS: dict[str, tuple[str, Callable[[Rows], Decide]]] = {
    "fedopl": ("", fedopl_lean),
    "fedopl, blocks": ("", fedopl_blocks),
    "fedopl, evaluated": ("", fedopl_evaluated),
    "fedopl, defaults": ("", fedopl_default),
    "numpy, Gram per fold": ("", numpy_exact),
    "scikit-learn, refitted": ("", scikit_learn),
    "Vowpal Wabbit, Python": ("vowpalwabbit", vowpal_python),
    "Vowpal Wabbit, text file": ("vowpalwabbit", vowpal_file),
    "Vowpal Wabbit, command line": ("", vowpal_command),
    "contextualbandits, DR": ("contextualbandits", contextualbandits_dr),
    "obp, IPW": ("obp", obp_ipw),
    "econml, linear DR": ("econml", econml_linear),
    "X.T @ X": ("", bare_product),
}


def main() -> None:
    """Learn once in this process."""
    parser = argparse.ArgumentParser(description="Run one method.")
    parser.add_argument("--measure", nargs=2, required=True, metavar=("METHOD", "FOLDER"))
    name, folder = parser.parse_args().measure
    rows = Rows.load(folder)
    learn = METHODS[name][1]
    try:
        learn(Rows(*(values[:WARM_UP] for values in rows)))
    except (ImportError, MissingError) as error:
        sys.exit(_absent(error))
    decide, measured = cost(lambda: learn(rows))
    contexts = np.load(Path(folder, "test.npy"))
    np.save(Path(folder, "decisions.npy"), np.asarray(decide(contexts)).astype(np.int64))
    print(json.dumps(measured))


def _absent(error: Exception) -> int:
    print(f"absent: {error}", file=sys.stderr)
    return ABSENT


if __name__ == "__main__":
    main()
