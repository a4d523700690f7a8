"""Put what things cost into docs/performance.md, from the formulas in costs.py.

python experiments/performance_page.py
"""

from collections.abc import Callable
from pathlib import Path

from costs import (
    ANSWERS,
    CONDITIONS,
    LETTERS,
    MEMORY,
    PASSES,
    QUERIES,
    WAYS,
    Around,
    Message,
    Way,
    cost,
    in_brackets,
    trips,
    value_of,
)
from costs import passes as passes_of
from marked_pages import write_between

from fedopl.policies.trees.tree_plan import MOST_CELLS
from fedopl.study.policy_plans import MOST_NUMBERS

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
UNITS = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))
# Seconds of a trip over Flower, and bytes a second of a slow line, to set sums against.
TRIP, LINE = 10, 10_000_000 / 8


def table(*lines: tuple[str, ...], right: int = 0) -> list[str]:
    """A table in Markdown; the last columns, as many as `right`, hold numbers."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in lines)
    n_text = len(lines[0]) - right
    return [head, f"|{'---|' * n_text}{'---:|' * right}", *body]


def largest(holds: Callable[[int], bool], start: int = 1) -> int:
    """The largest number, from `start` on, up to which something holds."""
    while holds(start + 1):
        start += 1
    return start


def size(n_bytes: float) -> str:
    """Bytes in words, to three digits."""
    unit, name = next(((u, n) for u, n in UNITS if n_bytes >= u), UNITS[-1])
    number = n_bytes / unit
    return f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2}f} {name}"


# --- formulas, as they are ------------------------------------------------------------------------


def letters() -> list[str]:
    """What each letter stands for."""
    return table(("", "stands for"), *((letter, text) for letter, text in LETTERS.items()))


def messages() -> list[str]:
    """The bytes of every query and its answer."""
    rows = [(f"`{query}`", _bytes(QUERIES[query]), _bytes(ANSWERS[query])) for query in QUERIES]
    return table(("asked", "bytes a client receives", "bytes it sends back"), *rows)


def _bytes(message: Message) -> str:
    if message.numbers == "0":
        return str(message.head)
    return f"{message.head} + 8·{in_brackets(message.numbers)}"


def ways() -> list[str]:
    """Exchanges and trips of every way to learn, and what it asks for."""
    rows = [
        (
            way.options,
            _asked(way),
            _sum(sum(map(len, _around(way))), way),
            _sum(len(_around(way)), way),
        )
        for way in WAYS.values()
    ]
    return table(("", "asks for", "exchanges", "trips"), *rows)


def _around(way: Way) -> list[list[str]]:
    """The trips that every study takes."""
    bare = Way(options="", asks=(), leaves=way.leaves)
    return trips(bare, {}, Around())


def _asked(way: Way) -> str:
    asks = [f"`{query}`" if times == "1" else f"{times} × `{query}`" for query, times in way.asks]
    return ", ".join([*asks, *["`Value` in leaves"] * way.leaves]) or "nothing more"


def _sum(base: int, way: Way) -> str:
    """So many, and those that the way adds."""
    times = [times for _, times in way.asks]
    whole = base + sum(int(one) for one in times if one.isdigit())
    return " + ".join([str(whole), *(one for one in times if not one.isdigit())])


def passes() -> list[str]:
    """Every way through the rows."""
    rows = [
        (f"`{one.query}`", one.what, CONDITIONS.get(one.when, "always"), one.times)
        for one in PASSES
    ]
    return table(("answering", "goes through the rows for", "", "passes"), *rows, right=1)


def kept() -> list[str]:
    """What is kept, and where."""
    rows = [(one.where, one.what, one.n_bytes) for one in MEMORY.values()]
    return table(("at the", "what", "bytes"), *rows)


# --- formulas, for some sizes ---------------------------------------------------------------------

SHAPES = ((10, 2), (40, 4), (200, 4), (40, 20))
LOCAL = Around(federated=False)
METHODS: dict[str, tuple[str, Around, dict[str, str]]] = {
    "`csoaa-exact`": ("csoaa-exact", Around(), {}),
    '`csoaa-exact`, `nuisances.kind = "local"`': ("csoaa-exact", LOCAL, {}),
    "the same with blocks": ("csoaa-exact", LOCAL, {"f": "p/d + 1", "g": "d"}),
    "`csoaa-sgd`, 40 rounds": ("csoaa-sgd", Around(), {}),
    "`wap`": ("wap", Around(), {}),
    "`direct`": ("direct", Around(), {}),
    "finite": ("finite", Around(), {}),
    "tree, all columns, 32 bins": ("tree", Around(), {}),
    "tree, all columns, 8 bins": ("tree", Around(), {"B": "8"}),
}


def totals() -> list[str]:
    """What a client sends in all."""
    head = ("a client sends", *(f"p = {p}, d = {d}" for p, d in SHAPES))
    rows = [(name, *(_sent(name, p, d) for p, d in SHAPES)) for name in METHODS]
    return table(head, *rows, right=len(SHAPES))


def _sent(method: str, p: int, d: int) -> str:
    way, around, more = METHODS[method]
    letters = _letters(way, p, d, more)
    if way == "tree" and not can_be_told(letters):
        return "refused"
    return size(cost(WAYS[way], letters, around).sends)


def _letters(way: str, p: int, d: int, more: dict[str, str]) -> dict[str, float]:
    given = {letter: value_of(formula, {"p": p, "d": d}) for letter, formula in more.items()}
    return WAYS[way].letters(p, d, **given)


def _answer(query: str, p: int, d: int, **more: float) -> int:
    return ANSWERS[query].n_bytes(WAYS["tree"].letters(p, d, **more))


def most_features(d: int) -> int:
    """How many features federated nuisances can have: their sums go into one message."""
    formula = ANSWERS["SumOutcomes"].numbers
    return largest(lambda p: value_of(formula, {"p": p, "d": d, "K": 5}) <= MOST_NUMBERS)


def most_columns(bins: int, d: int) -> int:
    """How many columns a tree of depth two can be asked about."""
    return largest(lambda c: can_be_told(WAYS["tree"].letters(c, d, B=bins)))


def can_be_told(letters: dict[str, float]) -> bool:
    """Whether a study may have a grid of so many cells."""
    n_numbers = value_of("o·G·(d + 2)", letters)
    return letters["G"] <= MOST_CELLS and n_numbers <= MOST_NUMBERS


def crossovers() -> list[str]:
    """Where one cost overtakes another, with 5 folds."""
    p, d = 40, 4
    outcomes, scores = _answer("SumOutcomes", p, d), _answer("SumScores", p, d)
    step = _answer("ImprovePolicy", p, d)
    rows = [
        (
            f"rounds of `csoaa-sgd` that send more than the sums of scores (p = {p}, d = {d})",
            f"{scores // step + 1}",
        ),
        (
            f"actions with which `wap` sends more than federated nuisances (p = {p})",
            f"{largest(lambda n: _answer('SumPairs', p, n) <= _answer('SumOutcomes', p, n)) + 1}",
        ),
        *(
            (
                f"columns of {bins} bins that send no more than federated nuisances "
                f"(p = {p}, d = {d})",
                f"{largest(lambda c, b=bins: _answer('SumCells', p, d, c=c, B=b) <= outcomes)}",
            )
            for bins in (8, 32)
        ),
        (
            f"features whose federated nuisances take longer to send than a trip of {TRIP} s, at "
            f"10 Mbit/s (d = {d})",
            f"{largest(lambda n: _answer('SumOutcomes', n, d) <= TRIP * LINE) + 1:,}",
        ),
        *(
            (
                f"features up to which federated nuisances are told (d = {n})",
                f"{most_features(n):,}",
            )
            for n in (4, 100)
        ),
        *(
            (
                f"columns of {bins} bins up to which a tree's cells are told (d = {n})",
                f"{most_columns(bins, n):,}",
            )
            for bins, n in ((8, 4), (32, 4), (32, 100))
        ),
    ]
    return table(("where it turns", "from, or up to"), *rows, right=1)


def large() -> list[str]:
    """What limits large studies."""
    rows = []
    for title, n_clients, p, d in (
        ("3 clients, 40 features, 4 actions", 3, 40, 4),
        ("1,000 clients, the same", 1000, 40, 4),
        ("1,000 clients, 200 features, 4 actions", 1000, 200, 4),
        ("3 clients, 40 features, 100 actions", 3, 40, 100),
        ("1,000 clients, 40 features, 100 actions", 1000, 40, 100),
    ):
        own = WAYS["csoaa-exact"].letters(p, d, C=n_clients)
        sums = value_of(MEMORY["sums"].n_bytes, own)
        outcomes = value_of(MEMORY["outcomes"].n_bytes, own)
        cells = value_of(MEMORY["cells"].n_bytes, WAYS["tree"].letters(p, d, C=n_clients, c=10))
        rows.append((title, size(outcomes), size(sums), size(cells)))
    head = ("the server keeps", "sums of outcomes", "sums of scores", "cells of 10 columns")
    return table(head, *rows, right=3)


USUALLY = frozenset({"dealt", "linear alone"})
PROPENSITIES = {
    "known or `marginal`": USUALLY,
    "`logistic` or `auto`": USUALLY | {"fitted"},
}


def all_passes() -> list[str]:
    """Passes over rows on disk in whole runs, by how propensities are had."""
    tree = {"linear alone", "tree alone"}
    rows = [
        (
            title,
            *(str(_passes(way, around, found ^ more)) for found in PROPENSITIES.values()),
        )
        for title, way, around, more in (
            ("`csoaa-exact`", "csoaa-exact", Around(), frozenset()),
            ("the same with limits", "csoaa-exact", Around(), frozenset({"guarded"})),
            ('`csoaa-exact`, `nuisances.kind = "local"`', "csoaa-exact", LOCAL, frozenset()),
            ("finite", "finite", Around(), frozenset()),
            ("tree of depth two", "tree", Around(), tree),
        )
    ]
    head = ("propensities", *PROPENSITIES)
    return table(head, *rows, right=len(PROPENSITIES))


def _passes(way: str, around: Around, conditions: frozenset[str]) -> int:
    letters = WAYS[way].letters(40, 4)
    queries = (query for trip in trips(WAYS[way], letters, around) for query in trip)
    return sum(passes_of(query, letters, conditions) for query in queries)


def many_rows() -> list[str]:
    """What rows take in memory and on disk."""
    n_passes, rows = _passes("csoaa-exact", Around(), PROPENSITIES["`logistic` or `auto`"]), []
    for n in (100_000, 1_000_000, 10_000_000):
        own = {"n": n, "p": 40, "d": 4}
        names = ("rows", "ordered", "folds", "propensities", "scores")
        memory = sum(value_of(MEMORY[name].n_bytes, own) for name in names)
        others = (value_of(MEMORY[name].n_bytes, own) for name in ("steps", "disk", "half"))
        read = n_passes * 8 * n * 40
        rows.append((f"{n:,}", *map(size, (memory, *others, read))))
    head = (
        "rows",
        "kept in memory",
        "more for `csoaa-sgd`",
        'or on disk: `data.rows = "disk"`',
        'with `data.numbers = "float32"`',
        f"read from there in {n_passes} passes",
    )
    return table(head, *rows, right=6)


def tables() -> dict[str, list[str]]:
    """What must stand between the marks of the page, by mark."""
    makers = (
        letters,
        messages,
        ways,
        totals,
        passes,
        all_passes,
        kept,
        many_rows,
        crossovers,
        large,
    )
    return {maker.__name__.replace("_", " "): maker() for maker in makers}


def main() -> None:
    """Write all tables."""
    for mark, lines in tables().items():
        write_between(PAGE, mark, lines)


if __name__ == "__main__":
    main()
