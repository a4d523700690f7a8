"""Seconds and memory to score logged data: fedopl, scikit-learn refitted per fold, bare X.T @ X.

`cross_fit` + `aipw_scores` with 40 features, 4 actions, 5 folds and marginal propensities, on one
BLAS thread. The baseline has the same models, `LinearRegression`, or `RidgeCV` on standardised
features with the same 41 penalties, fitted anew for every fold and action. `X.T @ X` is one bare
matrix product over all rows: no linear model can be fitted for less. Memory is the input plus what
the method added at its peak, over the input; it is measured in a fresh process for each method.
"""

import json
from collections.abc import Callable

from harness import Column, Options, Row, Table, in_child, in_turns, options, spread, write
from process import growth

READING = """
Where the time goes at a million rows: a third into the sums of squares themselves, sorted by fold
and action within cache-sized blocks; a third into folds (a hash of every context, one sort); a
fifth into predictions; the rest into scores. The solves do not show.
"""

SIZES, QUICK = (10_000, 100_000, 1_000_000), (500,)
N_FEATURES, N_ACTIONS, N_FOLDS = 40, 4, 5


def logged(n_rows: int):
    """The problem every peer is given: linear rewards, uniform logging."""
    import numpy as np

    import fedopl

    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    actions = rng.integers(0, N_ACTIONS, n_rows)
    rewards = rng.standard_normal(n_rows)
    width = N_FEATURES // N_ACTIONS
    for action in range(N_ACTIONS):
        taken = actions == action
        rewards[taken] += contexts[taken, action * width : (action + 1) * width].sum(axis=1)
    return fedopl.LoggedData(contexts, actions, rewards)


def with_fedopl(data, outcome: str):
    """Cross-fit and score by fedopl."""
    import fedopl

    nuisances = fedopl.cross_fit(data, outcome=outcome, propensity="marginal", folds=N_FOLDS)
    return fedopl.aipw_scores(data, nuisances).values


def with_scikit_learn(data, outcome: str):
    """Cross-fit and score as most people would: a fresh scikit-learn fit per fold and action."""
    import numpy as np
    from sklearn.linear_model import LinearRegression, RidgeCV
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from fedopl.solvers.least_squares import PENALTIES

    contexts, actions, rewards = data.contexts, data.actions, data.rewards
    scores = np.empty((data.n_rows, N_ACTIONS))
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(contexts, actions):
        for action in range(N_ACTIONS):
            rows = train[actions[train] == action]
            if outcome == "ols":
                model = LinearRegression()
            else:
                model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES * len(rows)))
            means = model.fit(contexts[rows], rewards[rows]).predict(contexts[test])
            taken = actions[test] == action
            share = len(rows) / len(train)
            scores[test, action] = means + taken * (rewards[test] - means) / share
    return scores


METHODS: dict[str, Callable] = {
    "fedopl, ridge": lambda data: with_fedopl(data, "ridge"),
    "fedopl, ols": lambda data: with_fedopl(data, "ols"),
    "scikit-learn, ridge": lambda data: with_scikit_learn(data, "ridge"),
    "scikit-learn, ols": lambda data: with_scikit_learn(data, "ols"),
    "X.T @ X": lambda data: data.contexts.T @ data.contexts,
}


def seconds_here(n_rows: str, turns: str) -> dict[str, list[float]]:
    """In a process of its own: seconds of each method, in turns over the same rows."""
    data = logged(int(n_rows))
    ways = {name: (lambda method=method: method(data)) for name, method in METHODS.items()}
    return {name: timed.seconds for name, timed in in_turns(ways, int(turns)).items()}


def memory_here(n_rows: str, name: str) -> Row:
    """In a process of its own: bytes of the input, and how far a method's peak lies above it."""
    METHODS[name](logged(100))  # imports are not the method's memory
    data = logged(int(n_rows))
    size = data.contexts.nbytes + data.actions.nbytes + data.rewards.nbytes
    return {"input": size, "growth": growth(lambda: METHODS[name](data))}


COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("seconds", "{median:.3f}"),
    Column("least – most", "{least:.3f} – {most:.3f}", text=True),
    Column("faster than scikit-learn", "{faster:.1f}×"),
    Column("times X.T @ X", "{bare:.1f}×"),
    Column("peak memory / input", "{memory:.2f}×"),
)


def measure(n_rows: int, turns: int) -> list[Row]:
    """The table's rows for one size."""
    seconds = in_child(__file__, "seconds", str(n_rows), str(turns))
    found: dict[str, Row] = {
        name: {"rows": n_rows, "method": name, **spread(seconds[name])} for name in METHODS
    }
    for name, row in found.items():
        used = in_child(__file__, "memory", str(n_rows), name)
        row["memory"] = (used["input"] + used["growth"]) / used["input"]
        row["bare"] = row["median"] / found["X.T @ X"]["median"]
        if name.startswith("fedopl"):
            baseline = found[name.replace("fedopl", "scikit-learn")]
            row["faster"] = baseline["median"] / row["median"]
    return list(found.values())


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps({"seconds": seconds_here, "memory": memory_here}[what](*arguments)))
        return
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    write(__file__, given, Table(COLUMNS, [r for size in sizes for r in measure(size, turns)]))


if __name__ == "__main__":
    main(options(__doc__))
