"""The cost of nonlinear effects, in multiples of one bare X.T @ X.

The problem of the peers, p = 40 and d = 4, one client, marginal propensities, valued on a quarter
of the rows. "Linear" has no basis. "A basis" is the default: three knots for every number, pairs of
features found by screening, terms chosen out of fold. "ψ.T @ ψ" is one product of all its terms,
made a few thousand rows at a time: the least that sums of squares can cost, once. Such sums are
taken for outcome models, for scores, and for the client's own policy. "Default" is `fedopl.learn`
as it comes: it also fits propensities, describes decisions, and checks how well models fit. Each
method runs in a process of its own, in turns, on one thread; the clock is the processor's.
"""

import json
from collections.abc import Callable
from functools import cache

import numpy as np
from harness import Column, Options, Row, Table, in_child, options, spread, write
from problem import Rows, draw
from process import cost

import fedopl
from fedopl.policies.linear import ROWS_OF_TERMS
from fedopl.policies.terms import Terms

SIZES, QUICK = (10_000, 100_000, 1_000_000), (4_000,)
BARE = "X.T @ X"
READING = """
With few rows, most of a basis's time goes into eigenvalues of sums over its terms, for the
penalties of models that leave out folds. On this x86-64 processor (AVX-512) X.T @ X is as fast as
memory can be read, and anything that reads or writes all rows once more costs another 1×. An ARM
processor (Neoverse-N1), with an earlier version, took 10× for "linear" in 1.7 seconds, and 204× for
"a basis" in 35, since that X.T @ X took longer.
"""
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("what", "{what}", text=True),
    Column("terms", "{terms}"),
    Column("CPU seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("times X.T @ X", "{bare:~3}×"),
)


def learned(rows: Rows, basis: str) -> fedopl.Run:
    """A run with its defaults, but for propensities, which are the shares of actions."""
    return fedopl.learn(
        {"all": fedopl.LoggedData(*rows)},
        basis=basis,
        nuisances=fedopl.NuisancePlan(propensity="marginal"),
        evaluation=fedopl.EvaluationPlan(share=0.25, describe=False),
    )


def product(rows: Rows) -> int:
    """X.T @ X."""
    _ = rows.contexts.T @ rows.contexts
    return rows.contexts.shape[1]


@cache
def usual_terms() -> Terms:
    """Those of a basis as it is drafted for a few rows."""
    terms = learned(draw(4_000), "auto").study.terms
    if terms is None:
        raise TypeError("the default has a basis")
    return terms


def product_of_terms(rows: Rows) -> int:
    """ψ.T @ ψ."""
    terms = usual_terms()
    total = np.zeros((terms.n_terms, terms.n_terms))
    for start in range(0, len(rows.contexts), ROWS_OF_TERMS):
        own = terms.of(rows.contexts[start : start + ROWS_OF_TERMS])
        total += own.T @ own
    return terms.n_terms


def with_all_defaults(rows: Rows, **chosen: str) -> int:
    """A run that also fits propensities, describes decisions and checks how well models fit."""
    return fedopl.learn({"all": fedopl.LoggedData(*rows)}, **chosen).study.n_terms


WHAT: dict[str, Callable[[Rows], int]] = {
    BARE: product,
    "ψ.T @ ψ": product_of_terms,
    "fedopl, linear": lambda rows: learned(rows, "linear").study.n_terms,
    "fedopl, a basis": lambda rows: learned(rows, "auto").study.n_terms,
    "fedopl, linear, all else default": lambda rows: with_all_defaults(rows, basis="linear"),
    "fedopl, all defaults": with_all_defaults,
}


def measure_here(what: str, n_rows: str) -> Row:
    """In a process of its own: seconds, after everything was imported and done once."""
    WHAT[what](draw(4_000))
    rows = draw(int(n_rows))
    n_terms, measured = cost(lambda: WHAT[what](rows))
    return {"cpu": measured["cpu"], "terms": n_terms}


def measure(n_rows: int, turns: int) -> list[Row]:
    """All of it, in turns."""
    runs: dict[str, list[Row]] = {what: [] for what in WHAT}
    for _ in range(turns):
        for what, done in runs.items():
            done.append(in_child(__file__, what, str(n_rows)))
    rows = [
        {"rows": n_rows, "what": what, "terms": done[0]["terms"]}
        | spread(run["cpu"] for run in done)
        for what, done in runs.items()
    ]
    return [row | {"bare": row["median"] / rows[0]["median"]} for row in rows]


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    rows = [row for n in given.sizes(SIZES, QUICK) for row in measure(n, given.turns())]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
