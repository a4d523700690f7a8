"""Costs of a run as formulas: bytes, exchanges, passes over the rows, memory.

A formula is text, as docs/performance.md shows it: `K·d·((p + 2)·(p + 3)/2 + 1)`. `value_of`
evaluates it, so the printed formulas are those that tests compare with real runs.
`performance_page.py` writes the tables.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Letters = Mapping[str, float]

# --- reading formulas -----------------------------------------------------------------------------

_SIGNS = {"·": "*", "−": "-", "²": "**2"}
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def value_of(formula: str, letters: Letters) -> float:
    """The value of a formula."""
    for sign, plain in _SIGNS.items():
        formula = formula.replace(sign, plain)
    return _value(ast.parse(formula, mode="eval").body, letters)


def in_brackets(formula: str) -> str:
    """The formula, in brackets if needed before it is multiplied."""
    depth = 0
    for sign in formula:
        depth += (sign == "(") - (sign == ")")
        if not depth and sign in "+−":
            return f"({formula})"
    return formula


def _value(node: ast.expr, letters: Letters) -> float:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=letter):
            return letters[letter]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, letters), _value(right, letters))
    raise ValueError(f"{ast.unparse(node)}: a formula has letters, whole numbers, + − · / and ²")


# --- letters --------------------------------------------------------------------------------------

LETTERS = {
    "n": "rows of a client, including held-out rows",
    "p": "features",
    "d": "actions",
    "K": "folds of cross-fitting (`nuisances.folds`)",
    "M": "outcome models that clients receive: K + 1, or 0 with local nuisances; with a basis "
    "3·K + 1 for each family of terms, and as many with boosting (fewer below five folds)",
    "C": "clients",
    "m": "masked sums in which clients may be missing; 0 if all clients must answer",
    "R": "rounds of `csoaa-sgd` and `csoaa-vw` (`plan.rounds`)",
    "t": "rounds of a network (`neural.rounds`), fewer if the loss on rows kept back stops falling",
    "N": "parameters of a network, by default with two layers of 64 units",
    "P": "pairs of actions, d·(d − 1)/2",
    "f": "features behind one action's score, and an intercept: p + 1, or p/d + 1 with blocks",
    "g": "matrices of squared features that scores need: 1, or d with blocks or if a row lacks a "
    "score",
    "D": "numbers of doubt that every action of a linear policy has in a cautious study: "
    "(p + 1)·(p + 2)/2; otherwise 0",
    "w": "numbers that make up the learned policy: d·(p + 1 + D), P·(p + 1) for `wap`, 508 for a "
    "tree, d·(p + 1) + N with a network",
    "e": "policies that the others would learn without one client, valued beside the learned one: "
    "at most 3; 0 for one client, and for oracles that take rounds or pairs",
    "b": "constant arms that are valued: d, or fewer if a client holds out few rows",
    "v": "policies valued: 1 + e + b, or d and all candidates if the policy is finite; 2 when "
    "`direct` tries its own; one more with personal policies",
    "W": "numbers that make up these policies: (1 + e)·w + b·d·(p + 1 + D), unless the kind is "
    "finite; with cross-fitted values w, of the learned policy, counts K times",
    "I": "with cross-fitted values, which policy values each fold, K numbers for each of v; "
    "otherwise 0",
    "z": "with personal policies, numbers of what all others learned: V·(d·(p + 1 + D) + 2·(p + 1) "
    "+ 47), for a tree V·(d·L + 4·(2·L − 1) + 47), among candidates V·(v + 46); otherwise 0",
    "i": "in the question about what is spent, prices at which a linear policy may meet a budget: "
    "64; otherwise 0",
    "U": "parts of an answer about values: 1; of what is spent, policies that may meet a budget "
    "(64 at prices, 16 trees, or all candidates), actions, and what was done, and v is 0; in "
    "leaves of a tree, d, or 1 with cross-fitted values, and v is 1",
    "E": "leaves in an answer about values: L where it is about leaves of a tree, otherwise 1",
    "H": "nodes of the tree in whose leaves values are asked for: 2·L − 1; otherwise 0",
    "c": "columns that a tree may ask about (`tree.columns`)",
    "j": "the other columns of the study, which have no cells",
    "s": "those of the c columns that are numbers without agreed thresholds",
    "B": "bins of a column (`tree.bins`)",
    "G": "cells of a tree's grid: c·(c − 1)/2·B² + c·B, if all c columns have B bins",
    "x": "numbers in a cell: d + 2, and d more if a row lacks a score, and d more if a tree is "
    "cautious",
    "T": "thresholds of the grid: c·(B − 1) if all c columns have B bins",
    "k": "how often rows are counted in bins: 1, or 2 if 256 bins were too coarse; 0 if s = 0",
    "l": "levels of a tree's search: 1 up to depth 2, then its depth − 1",
    "V": "versions of a tree, choices and screenings: 1, or with cross-fitted values K + 1",
    "o": "open nodes of a level, in each version: 1 on the first level, at most twice as many on "
    "each next level",
    "h": "nodes that lead to the open nodes: 1 on the first level, at most 2·o − 1 below",
    "r": "second searches for thresholds: 1 up to depth 2, unless none may move or `tree.refine` "
    "is false",
    "q": "questions of the learned tree: L − 1",
    "L": "leaves of the learned tree",
    "u": "pairs of features that screening found (each time at most `basis.screened_pairs`)",
    "y": "thresholds that screening found (each time at most `basis.screened_thresholds`)",
    "a": "clients that are compared with all others in one query, at most 10",
}

# Formulas of derived letters; the others are given.
DERIVED = {
    "M": "K + 1",
    "N": "64·(p + 1) + 64·65 + 65·d",
    "P": "d·(d − 1)/2",
    "T": "c·(B − 1)",
    "G": "c·(c − 1)/2·B² + c·B",
    "h": "2·o − 1",
    "x": "d + 2",
    "q": "L − 1",
}
USUAL = {
    "K": 5,
    "C": 3,
    "D": 0,
    "z": 0,
    "I": 0,
    "i": 0,
    "U": 1,
    "E": 1,
    "H": 0,
    "m": 0,
    "R": 40,
    "t": 30,
    "B": 32,
    "k": 1,
    "l": 1,
    "V": 1,
    "o": 1,
    "r": 1,
    "L": 4,
    "a": 3,
    "u": 4,
    "y": 3,
}


def letters_for(p: int, d: int, **more: float) -> dict[str, float]:
    """All letters of a study with shared features; `more` sets further ones."""
    letters = {**USUAL, "p": p, "d": d, "c": p, "f": p + 1, "g": 1, **more}
    letters.setdefault("s", letters["c"])
    letters.setdefault("b", d)
    letters.setdefault("j", p - letters["c"])
    for letter, formula in DERIVED.items():
        letters.setdefault(letter, value_of(formula, letters))
    return letters


# --- messages -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    """Bytes that a message always has, and how many numbers of 8 bytes follow."""

    head: int
    numbers: str

    def n_bytes(self, letters: Letters) -> int:
        """The size of the message in bytes."""
        return self.head + 8 * int(value_of(self.numbers, letters))


QUERIES = {
    "Enrol": Message(48, "0"),
    "SumOutcomes": Message(48, "0"),
    "SumScores": Message(70, "M·d·(p + 2)"),
    "SumPairs": Message(48, "0"),
    "ImprovePolicy": Message(67, "(d + 2)·(p + 1) + 1"),
    "SlopeOfValue": Message(57, "d·(p + 1) + 1"),
    "Value": Message(177, "W + z + I + i + 4·H + 4"),
    "Describe": Message(110, "w + 3·(p + 1)"),
    "CountBins": Message(57, "255·s"),
    "SumCells": Message(71, "V·4·h + c + j + T"),
    "TellModels": Message(48, "0"),
    "CompareModels": Message(104, "C·d·(12·p + 19)"),
    "ClassifyContexts": Message(57, "a·(p + 1) + 1"),
    "TellMoments": Message(48, "0"),
    "TellFit": Message(48, "0"),
    "SumByFold": Message(48, "0"),
    "TellWeight": Message(48, "0"),
    "SumNearThresholds": Message(80, "V·4·(2·q + 1) + c + j + T + 31·V·q"),
    "TrainNetwork": Message(72, "N + (d + 2)·(p + 1) + 2"),
    "ScreenProducts": Message(48, "0"),
    "TakeFound": Message(75, "(V + 2)·u + (V + 4)·y"),
    "SumPrivately": Message(48, "0"),
    "SumResiduals": Message(57, "d·(p + 1) + 2"),
    "ValuePrivately": Message(110, "3·d·(p + 1)"),
    "SumCellsPrivately": Message(57, "d·(p + 1)"),
    "LookPrivately": Message(66, "d·(p + 1) + 4·(2·q + 1)"),
    "SumCandidates": Message(110, "(v + 1)·d·(p + 1)"),
    "TellKeys": Message(48, "0"),
    "TakeRoster": Message(80, "14·C"),
    "ScreenJumps": Message(48, "0"),
    "ShareSecrets": Message(48, "0"),
    "Unmask": Message(62, "7·C + 1"),
    "MeasureNumbers": Message(48, "0"),
    "TakeRanges": Message(57, "2·p"),  # if all features are numbers
    "SumContrasts": Message(48, "0"),
    "TellContexts": Message(48, "0"),
    "ValueAtTarget": Message(157, "w + d·(p + 1) + 6·(p + 1) + 1"),
    "ValueApart": Message(110, "3·d·(p + 1)"),
    "TellInteractions": Message(48, "0"),
    "BalanceContexts": Message(63, "4·p + 2"),
}
ANSWERS = {
    "Enrol": Message(53, "d + 2"),
    "SumOutcomes": Message(74, "K·d·((p + 2)·(p + 3)/2 + 1)"),
    "SumScores": Message(80, "g·f·(f + 1)/2 + d·f + 2·d"),
    "SumPairs": Message(70, "P·(p + 1)·(p + 4)/2"),
    "ImprovePolicy": Message(57, "d·(p + 1)"),
    "SlopeOfValue": Message(57, "d·(p + 1)"),
    "Value": Message(106, "E·(2 + U·(2 + (v + 2)·(v + 5)/2))"),
    "Describe": Message(88, "d·(8·p + 17)"),
    "CountBins": Message(57, "256·s"),
    "SumCells": Message(61, "V·o·G·x"),
    "TellModels": Message(88, "d·(12·p + 19)"),
    "CompareModels": Message(88, "8·C"),
    "ClassifyContexts": Message(85, "a·((p + 1)·(p + 4)/2 + 3)"),
    "TellMoments": Message(68, "4·d + 4"),
    "TellFit": Message(75, "d·(2·p + 10)"),
    "SumByFold": Message(101, "K·(g·f·(f + 1)/2 + d·f + 2·d + 1)"),
    "TellWeight": Message(48, "1"),
    "SumNearThresholds": Message(57, "32·V·q"),
    "TrainNetwork": Message(53, "N + 2"),
    "ScreenProducts": Message(61, "V·d·p·(p − 1)/2"),
    "TakeFound": Message(48, "1"),
    "SumPrivately": Message(70, "d·(p + 1)·(p + 4)/2"),
    "SumResiduals": Message(57, "d·(p + 1)"),
    "ValuePrivately": Message(62, "15"),
    "SumCellsPrivately": Message(57, "8·c·(c − 1)·d"),
    "LookPrivately": Message(57, "32·q"),
    "SumCandidates": Message(53, "v"),
    "TellKeys": Message(62, "13"),
    "TakeRoster": Message(48, "1"),
    "ScreenJumps": Message(65, "192·V·d"),
    "ShareSecrets": Message(74, "18·m·C"),
    "Unmask": Message(57, "4·C"),
    "MeasureNumbers": Message(58, "2·p"),
    "TakeRanges": Message(48, "1"),
    "SumContrasts": Message(53, "V"),
    "TellContexts": Message(58, "2·(p + 1) + 1"),
    "ValueAtTarget": Message(77, "(d + 1)·(d + 8)/2 + 8"),
    "ValueApart": Message(62, "10"),
    "TellInteractions": Message(61, "48·d"),
    "BalanceContexts": Message(62, "p·(2·p + 3) + 4"),
}
REFUSAL = Message(48, "1")
# Bytes that a bundle of messages adds.
BUNDLE, EACH_IN_BUNDLE = 8, 4


# --- ways of learning -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of learning: queries between scores and values, their number, and valued policies."""

    options: str
    asks: tuple[tuple[str, str], ...]  # query, times
    w: str = "d·(p + 1 + D)"
    v: str = "1 + e + b"
    W: str = "(1 + e)·w + b·d·(p + 1 + D)"
    tried: str = "v"  # policies valued while it learns
    tried_numbers: str = "W"
    leaves: bool = False
    solved_again: bool = False  # from sums at hand, without single clients

    def values_leaves(self, around: "Around") -> bool:
        """Whether a run ends with values in the leaves of its tree."""
        return self.leaves and around.evaluated and around.described

    def letters(self, p: int, d: int, **more: float) -> dict[str, float]:
        """All letters of a study that learns this way."""
        letters = letters_for(p, d, **more)
        letters.setdefault("e", 3 if self.solved_again and letters["C"] > 1 else 0)
        for name in ("w", "v", "W"):
            letters.setdefault(name, value_of(getattr(self, name), letters))
        return letters

    def while_learning(self, letters: Letters) -> dict[str, float]:
        """The letters of values that are asked for before a policy is learned."""
        tried = {"v": value_of(self.tried, letters), "W": value_of(self.tried_numbers, letters)}
        return {**letters, **tried}

    def not_learned(self, letters: Letters) -> dict[str, float]:
        """The letters of values of all rows: of constant arms, or of all candidates."""
        arms = {"v": letters["b"], "W": value_of("b·d·(p + 1 + D)", letters)}
        return {**letters, "z": 0, **(arms if self.v != "d" else {})}

    def in_leaves(self, letters: Letters) -> dict[str, float]:
        """The letters of values of all actions in the leaves of the learned tree."""
        shape = {"v": 1, "U": letters["d"], "E": letters["L"], "H": 2 * letters["L"] - 1}
        return {**letters, "z": 0, **shape, "W": value_of("d·d·(p + 1 + D)", letters)}


WAYS = {
    "csoaa-exact": Way(
        options='`policy.oracle = "csoaa-exact"`, the default', asks=(), solved_again=True
    ),
    "csoaa-sgd": Way(
        options='`policy.oracle = "csoaa-sgd"` or `"csoaa-vw"`', asks=(("ImprovePolicy", "R"),)
    ),
    "wap": Way(options='`policy.oracle = "wap"`', asks=(("SumPairs", "1"),), w="P·(p + 1)"),
    "direct": Way(
        options='`policy.oracle = "direct"`',
        asks=(("SlopeOfValue", "15"), ("Value", "1")),
        tried="2",
        tried_numbers="2·d·(p + 1)",
    ),
    "finite": Way(
        options='`policy.kind = "finite"`, constant arms only',
        asks=(("Value", "1"),),
        v="d",
        W="d·d·(p + 1)",
    ),
    "tree": Way(
        options='`policy.kind = "tree"`',
        asks=(("CountBins", "k"), ("SumCells", "l"), ("SumNearThresholds", "r")),
        w="508",
        leaves=True,
        solved_again=True,
    ),
    "neural": Way(
        options='`policy.kind = "neural"`', asks=(("TrainNetwork", "t"),), w="d·(p + 1) + N"
    ),
    "observed": Way(
        options='the same, `tree.thresholds = "observed"`', asks=(), w="508", leaves=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a study asks for before and after it learns."""

    federated: bool = True  # nuisances
    evaluated: bool = True  # some rows are held out
    described: bool = True


def trips(way: Way, letters: Letters, around: Around) -> list[list[str]]:
    """The queries of a run, by round trip."""
    asked = [[query] for query, times in way.asks for _ in range(int(value_of(times, letters)))]
    scoring = ["SumScores"]
    if asked and asked[0] == ["SumCells"]:  # the grid is agreed: nothing has to be counted first
        scoring += asked.pop(0)
    last = [
        *["Value"] * (around.evaluated + 1),  # the last on all rows
        *["Describe", "TellFit"] * around.described,
        *["TellInteractions"] * (around.described and 2 <= letters.get("p", 2) <= 40),
        *["Value"] * way.values_leaves(around),
    ]
    return [
        ["Enrol", *["SumOutcomes"] * around.federated],
        scoring,
        *asked,
        last,
    ]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a whole run for one client."""

    exchanges: int
    trips: int
    receives: int  # bytes
    sends: int  # bytes


def cost(way: Way, letters: Letters, around: Around | None = None) -> Cost:
    """The cost of a run for each client, without framing; trees have one level."""
    around = around or Around()
    letters = {**letters, "M": letters["M"] * around.federated}
    travelled = trips(way, letters, around)
    asked = list(sized(way, letters, [query for trip in travelled for query in trip], around))
    return Cost(
        exchanges=len(asked),
        trips=len(travelled),
        receives=sum(QUERIES[query].n_bytes(own) for query, own in asked),
        sends=sum(ANSWERS[query].n_bytes(own) for query, own in asked),
    )


def sized(
    way: Way, letters: Letters, queries: list[str], around: Around
) -> Iterator[tuple[str, Letters]]:
    """Each query with the letters of its size: questions for values are about other policies."""
    last = [letters] * around.evaluated + [way.not_learned(letters)]
    last += [way.in_leaves(letters)] * way.values_leaves(around)
    turns = [way.while_learning(letters)] * (queries.count("Value") - len(last)) + last
    of_values = iter(turns)
    for query in queries:
        yield query, next(of_values) if query == "Value" else letters


def framing(travelled: list[list[str]]) -> int:
    """Bytes that bundles add, in each direction."""
    return sum(BUNDLE + EACH_IN_BUNDLE * len(trip) for trip in travelled if len(trip) > 1)


# --- passes over the rows -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A part of an answer that passes over the rows, how often, and when it is needed."""

    query: str
    what: str
    times: str = "1"
    when: str = ""  # one of CONDITIONS; always if empty


CONDITIONS = {
    "guarded": "with limits",
    "private": "with differential privacy",
    "own models": "with local nuisances",
    "dealt": "unless rows come in groups",
    "fitted": 'unless propensities are known, or `nuisances.propensity = "marginal"`',
    "linear alone": "if rows are held out, and the policy is not a tree",
    "tree alone": "if rows are held out, and the policy is a tree",
}
# Each line is one pass over all rows on disk; tests count what is read from the files.
PASSES = (
    Pass(query="Enrol", what="folds, by a hash of contexts", when="dealt"),
    Pass(query="Enrol", what="values that few rows have", when="guarded"),
    Pass(
        query="Enrol",
        what="a hash of each row, on which noise and held-out rows depend",
        when="private",
    ),
    Pass(query="SumOutcomes", what="sums of squares for each fold and action"),
    Pass(query="SumScores", what="the same sums, for the client's own models", when="own models"),
    Pass(query="SumScores", what="up to 200,000 rows to fit propensities to", when="fitted"),
    Pass(
        query="SumScores", what="the policy that the client would learn alone", when="linear alone"
    ),
    Pass(
        query="SumScores",
        what="the same policy: quantiles, each level, and a second search",
        times="l + 1 + r",
        when="tree alone",
    ),
    Pass(query="SumScores", what="scores"),
    Pass(query="SumScores", what="sums of scores"),
    Pass(query="CountBins", what="counts in bins"),
    Pass(query="SumCells", what="sums for every two columns"),
    Pass(query="SumNearThresholds", what="rows in every two columns, a second time"),
    Pass(query="SumNearThresholds", what="scores close to thresholds"),
    Pass(query="Value", what="scores of the policies' decisions"),
    Pass(query="Describe", what="counts of decisions"),
    Pass(query="MeasureNumbers", what="sums of numbers and their squares"),
    Pass(query="SumPrivately", what="sums of squares and products"),
    Pass(query="SumResiduals", what="residuals of outcome models"),
    Pass(query="SumCellsPrivately", what="scores for every two columns"),
    Pass(query="LookPrivately", what="scores close to thresholds"),
    Pass(query="SumCandidates", what="scores of the candidates' decisions"),
    Pass(query="ValuePrivately", what="scores of the policies' decisions"),
    Pass(query="ValueApart", what="the same scores, to be read for each client separately"),
)


def passes(query: str, letters: Letters, conditions: frozenset[str]) -> int:
    """How often an answer passes over all rows on disk."""
    own = (one for one in PASSES if one.query == query)
    return sum(
        int(value_of(one.times, letters)) for one in own if not one.when or one.when in conditions
    )


# --- what is kept ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Bytes that are kept for as long as a study runs, or on disk."""

    where: str
    what: str
    n_bytes: str


ROWS_PER_CHUNK = 32_768
MEMORY = {
    "rows": Kept(where="client", what="rows: contexts, actions, rewards", n_bytes="8·n·(p + 2)"),
    "ordered": Kept(
        where="client",
        what="the same rows sorted by fold and action, and the original position of each row",
        n_bytes="8·n·(p + 3)",
    ),
    "folds": Kept(where="client", what="the fold of each row, in both orders", n_bytes="4·n"),
    "propensities": Kept(where="client", what="propensities", n_bytes="8·n·d"),
    "scores": Kept(where="client", what="scores", n_bytes="8·n·d"),
    "steps": Kept(
        where="client", what="training rows of `csoaa-sgd`, standardised", n_bytes="8·n·(p + 1 + d)"
    ),
    "sums": Kept(
        where="server", what="all clients' sums of scores", n_bytes="8·C·(g·f² + d·f + 2·d)"
    ),
    "outcomes": Kept(
        where="server",
        what="all clients' sums of outcomes, until models are fitted",
        n_bytes="8·C·K·d·((p + 2)² + 1)",
    ),
    "cells": Kept(
        where="server", what="all clients' cells of a tree's first level", n_bytes="8·C·G·x"
    ),
    "disk": Kept(
        where="disk",
        what='rows, folds and scores with `data.rows = "disk"`, up to 256 actions',
        n_bytes="n·(8·p + 8·d + 19)",
    ),
    "half": Kept(
        where="disk", what='the same with `data.numbers = "float32"`', n_bytes="n·(4·p + 8·d + 19)"
    ),
}
