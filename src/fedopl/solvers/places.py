"""Assigns actions to rows so that the total gain is largest: of limited supply, or on a budget.

Every row gets one action. Giving row i action a is worth s_ia, and some actions have only K_a
places. The best assignment is a transport problem with prices p_a ≥ 0: every row takes the action
whose worth minus price is largest, and all places of an action with a price are taken. With one
limited action, sorting solves it. With several, approximate prices are found first. Then the rows
that lose least move along the cheapest paths from action to action (successive shortest paths)
until no move gains anything. Prices at which no row would rather have another action prove that the
assignment is optimal.
"""

from collections.abc import Collection, Mapping
from heapq import heappop, heappush
from itertools import pairwise, permutations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError

# Prices are found on this many rows first, then on all rows in this many rounds.
_SAMPLED, _ROUNDS_ON_SAMPLE, _ROUNDS = 20_000, 200, 4
# The number of rows that move at first, and the factor by which it grows if it was too small.
_FEWEST_MOVED, _MORE = 4_000, 8


def fill_places(
    scores: FloatArray, places: Mapping[int, int], *, fill: bool = False
) -> IntArray:  # (n_rows,)
    """The action of each row; scores (n_rows, n_actions) are −∞ where an action may not be given.

    `places` gives the number of places by action. No row gets a limited action if it is better off
    without, unless `fill` asks that all places be filled. Among equal rows, earlier rows come
    first.
    """
    n_rows, n_actions = scores.shape
    limits = np.array([min(places.get(a, n_rows), n_rows) for a in range(n_actions)])
    if limits.sum() < n_rows:
        raise OptionError(
            f"places: {limits.sum():,} in all for {n_rows:,} rows, and every action has a "
            "limit; leave out the places of one"
        )
    if len(places) == 1:
        ((action, n_places),) = places.items()
        return _one(scores, action, n_places, fill=fill)
    return _several(scores, limits, sorted(places), fill=fill)


def gain_over_others(scores: FloatArray, action: int) -> FloatArray:  # (n_rows,)
    """How much more an action is worth than the best other one, for each row."""
    others = np.delete(scores, action, axis=1)
    return np.asarray(scores[:, action] - others.max(axis=1))


def _one(scores: FloatArray, action: int, n_places: int, *, fill: bool) -> IntArray:
    """Assign the places of one action by its gain over the best other one; ties go by row."""
    others = scores.copy()
    others[:, action] = -np.inf
    codes: IntArray = others.argmax(axis=1)
    nothing_else = np.isneginf(others.max(axis=1))
    with np.errstate(invalid="ignore"):
        gain = np.where(nothing_else, np.inf, scores[:, action] - others.max(axis=1))
    if np.count_nonzero(nothing_else) > n_places:
        raise _too_few(int(np.count_nonzero(nothing_else)) - n_places)
    wanted = np.flatnonzero(~np.isneginf(gain) if fill else gain > 0)
    codes[wanted[_largest(gain[wanted], n_places)]] = action
    return codes


def _largest(numbers: FloatArray, most: int) -> IntArray:
    """Positions of the `most` largest numbers; among equal numbers, earlier ones come first."""
    if len(numbers) <= most:
        return np.arange(len(numbers))
    if not most:
        return np.empty(0, np.int64)
    least = np.partition(numbers, -most)[-most]
    above, alike = np.flatnonzero(numbers > least), np.flatnonzero(numbers == least)
    return np.concatenate([above, alike[: most - len(above)]])


def _too_few(n_rows: int) -> OptionError:
    return OptionError(
        f"places: too few for {n_rows:,} rows that may get nothing else; more places are needed"
    )


def _several(
    scores: FloatArray, limits: IntArray, limited: Collection[int], *, fill: bool
) -> IntArray:  # (n_rows,)
    """Assign the places of several actions, by prices."""
    n_rows, n_actions = scores.shape
    least = -np.inf if fill else 0.0
    step = -(-n_rows // _SAMPLED)
    prices = np.zeros(n_actions)
    for _ in range(_ROUNDS_ON_SAMPLE if step > 1 else 0):
        before = prices.copy()
        _reprice(prices, scores[::step], limits / step, limited, least)
        if (before == prices).all():
            break
    for _ in range(_ROUNDS):
        _reprice(prices, scores, limits, limited, least)
    net = scores - prices
    codes: IntArray = net.argmax(axis=1)
    best = np.partition(net, -2, axis=1)[:, -2:]
    care = best[:, 1] - best[:, 0]
    n_moved = _FEWEST_MOVED
    while True:
        moving = np.arange(n_rows)
        if n_moved < n_rows:  # with whoever cares as little
            moving = np.flatnonzero(care <= np.partition(care, n_moved)[n_moved])
        found = codes.copy()
        staying = np.bincount(np.delete(codes, moving), minlength=len(limits))
        market = _Market(scores[moving], codes[moving], limits - staying)
        is_cleared = market.clear(limited if fill else ())
        found[moving] = market.codes
        if is_cleared and _is_best(scores, found, market.prices(limited if fill else ())):
            return found
        if len(moving) == n_rows:
            if not is_cleared:
                raise _too_few(market.n_too_many)
            return found
        n_moved = max(_MORE * n_moved, _MORE * len(moving))


def _reprice(
    prices: FloatArray,
    scores: FloatArray,
    limits: FloatArray | IntArray,
    limited: Collection[int],
    least: float,
) -> None:
    """Update one price after the other, so that each action is wanted as often as it has places."""
    n_rows = len(scores)
    for action in limited:
        others = np.delete(scores - prices, action, axis=1).max(axis=1)
        with np.errstate(invalid="ignore"):
            bids = np.nan_to_num(scores[:, action] - others, nan=-np.inf, posinf=np.inf)
        kth = n_rows - int(limits[action]) - 1
        price = np.partition(bids, kth)[kth] if kth >= 0 else least
        if np.isfinite(price) or price < 0:
            prices[action] = max(price, least) if np.isfinite(max(price, least)) else 0.0


def _is_best(scores: FloatArray, codes: IntArray, prices: FloatArray) -> bool:
    """Whether every row has its best action at these prices, up to rounding."""
    net = scores - prices
    own = net[np.arange(len(codes)), codes]
    rounding = 1e-12 * float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0))
    return bool((own >= net.max(axis=1) - rounding).all())


class _Market:
    """An assignment that is optimal for its counts by action, with moves that keep it optimal.

    Moving a row from one action to another loses the difference of its scores. For every two
    actions, rows are sorted by that loss; rows that arrive later are kept in a separate heap.
    """

    def __init__(self, scores: FloatArray, codes: IntArray, limits: IntArray) -> None:
        self._scores, self.codes, self._limits = scores, codes.astype(np.int64), limits
        self._n_actions = scores.shape[1]
        self._counts = np.bincount(self.codes, minlength=self._n_actions)
        pairs = permutations(range(self._n_actions), 2)
        self._queues = {(a, b): self._queue(a, b) for a, b in pairs}
        # A smaller gain is rounding, and moves for it could go on forever.
        self._least = 1e-12 * float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0))

    @property
    def n_too_many(self) -> int:
        """The number of rows by which actions exceed their places."""
        return int(np.maximum(self._counts - self._limits, 0).sum())

    def clear(self, to_fill: Collection[int]) -> bool:
        """Move rows out of overfull actions, make all moves that gain, fill what must be full."""
        while (over := np.flatnonzero(self._counts > self._limits)).size:
            if not self._move(over.tolist(), self._free(), most=np.inf):
                return False
        while self._move(range(self._n_actions), self._free(), most=-self._least):
            pass
        sources = [a for a in range(self._n_actions) if a not in to_fill]
        while free := [a for a in self._free() if a in to_fill]:
            if not self._move(sources, free, most=np.inf):
                break
        return True

    def prices(self, to_fill: Collection[int]) -> FloatArray:  # (n_actions,)
        """The loss of moving one more row from each action, on a path to one that costs nothing."""
        free = [a for a in self._free() if a not in to_fill]
        found = np.full(self._n_actions, np.inf)
        found[free] = 0.0
        step = self._steps()
        for _ in range(self._n_actions):
            for a, b in permutations(range(self._n_actions), 2):
                found[a] = min(found[a], found[b] + step[a][b])
        return found

    def _free(self) -> list[int]:
        return np.flatnonzero(self._counts < self._limits).tolist()

    def _queue(self, a: int, b: int) -> tuple[IntArray, list[int], list[tuple[float, int]]]:
        own = np.flatnonzero(self.codes == a)
        loss = self._scores[own, a] - self._scores[own, b]
        order = own[np.argsort(loss, kind="stable")]
        return order, [0], []

    def _cheapest(self, a: int, b: int) -> tuple[float, int]:
        """The least loss of moving a row from action `a` to action `b`, and that row."""
        order, at, heap = self._queues[a, b]
        while at[0] < len(order) and self.codes[order[at[0]]] != a:
            at[0] += 1
        while heap and self.codes[heap[0][1]] != a:
            heappop(heap)
        first = (np.inf, -1)
        if at[0] < len(order):
            row = int(order[at[0]])
            first = (float(self._scores[row, a] - self._scores[row, b]), row)
        return min(first, heap[0]) if heap else first

    def _move(self, sources: "list[int] | range", targets: list[int], most: float) -> bool:
        """Move rows along the cheapest path from source to target, if it loses less than `most`."""
        way = self._shortest(sources, targets)
        if way is None or not way[0] < most:
            return False
        _, path = way
        if len(path) == 2:
            source, target = path
            room = self._limits[target] - self._counts[target]
            over = self._counts[source] - self._limits[source]
            self._moved(self._alike(source, target, min(room, over) if over > 0 else room), *path)
            return True
        rows = [self._cheapest(a, b)[1] for a, b in pairwise(path)]
        for row, (a, b) in zip(rows, pairwise(path), strict=True):
            self._moved([row], a, b)
        return True

    def _alike(self, a: int, b: int, most: int) -> list[int]:
        """The row that loses least by a move, and the next rows that lose exactly as little."""
        loss, row = self._cheapest(a, b)
        order, at, _ = self._queues[a, b]
        some = order[at[0] : at[0] + most]
        if not len(some) or some[0] != row:
            return [row]
        same = (self._scores[some, a] - self._scores[some, b] == loss) & (self.codes[some] == a)
        found: list[int] = some[: len(some) if same.all() else int(same.argmin())].tolist()
        return found

    def _moved(self, rows: list[int], a: int, b: int) -> None:
        self.codes[rows] = b
        self._counts[[a, b]] += (-len(rows), len(rows))
        for c in range(self._n_actions):
            if c != b:
                losses = (self._scores[rows, b] - self._scores[rows, c]).tolist()
                for one in zip(losses, rows, strict=True):
                    heappush(self._queues[b, c][2], one)

    def _steps(self) -> list[list[float]]:
        """The least loss of a move between every two actions."""
        n = range(self._n_actions)
        return [[np.inf if a == b else self._cheapest(a, b)[0] for b in n] for a in n]

    def _shortest(
        self, sources: "list[int] | range", targets: list[int]
    ) -> tuple[float, list[int]] | None:
        """Bellman–Ford: a move may gain, but no cycle does, since the assignment is optimal."""
        n, step = self._n_actions, self._steps()
        loss = [0.0 if a in sources else np.inf for a in range(n)]
        before = [-1] * n
        for _ in range(n - 1):
            for a in range(n):
                for b in range(n):
                    if loss[a] + step[a][b] < loss[b] and step[a][b] < np.inf:
                        loss[b], before[b] = loss[a] + step[a][b], a
        ends = [t for t in targets if loss[t] < np.inf and before[t] >= 0]
        if not ends:
            return None
        end = min(ends, key=lambda t: (loss[t], t))
        path = [end]
        while before[path[0]] >= 0 and len(path) <= len(loss):
            path.insert(0, before[path[0]])
        return (loss[end], path) if path[0] in sources else None


# --- a budget ------------------------------------------------------------------------------------


def decide_within(scores: FloatArray, costs: FloatArray, most: float) -> IntArray:  # (n_rows,)
    """The action of each row, if a decision may cost at most `most` on average.

    Every row begins with its cheapest action. Every dearer action is a step that gains some score
    at some cost. Steps are taken in the order of their gain per unit of cost, along each row's
    upper hull of costs and scores, until the next step is not affordable. The result is the best
    assignment for the amount spent (Sinha & Zoltners, 1979): less than one step of the budget is
    left.

    Scores and costs are (n_rows, n_actions); scores are −∞ where an action may not be given. Among
    equal rows, earlier rows come first. No row gets an action that costs more than another and is
    worth no more.
    """
    n_rows = len(scores)
    codes = _cheapest(scores, costs)
    least = costs[np.arange(n_rows), codes].sum()
    allowed = most * n_rows
    if least > allowed * (1 + 1e-12):
        raise OptionError(
            f"budget: even the cheapest actions cost {least / n_rows:.6g} per row, more than "
            f"{most:g}; allow more"
        )
    rows, then, rates, spent = _steps(scores, costs, codes)
    order = np.argsort(-rates, kind="stable")
    total = least + np.cumsum(spent[order])
    # A row's steps are taken in order, because later steps gain less per unit of cost.
    n_taken = int(np.searchsorted(total, allowed * (1 + 1e-12), side="right"))
    taken = order[:n_taken]
    codes[rows[taken]] = then[taken]
    return codes


def _cheapest(scores: FloatArray, costs: FloatArray) -> IntArray:  # (n_rows,)
    """The best-scoring action among the cheapest ones of each row."""
    possible = np.where(np.isneginf(scores), np.inf, costs)
    least = possible.min(axis=1, keepdims=True)
    return np.asarray(np.where(possible == least, scores, -np.inf).argmax(axis=1))


def _steps(
    scores: FloatArray, costs: FloatArray, codes: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """For each step: its row, its action, its gain per unit of cost, and its cost."""
    now, everybody = codes.copy(), np.arange(len(codes))
    found: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []
    while True:
        dearer = costs - costs[everybody, now][:, None]
        more = scores - scores[everybody, now][:, None]
        rates = np.where(dearer > 0, more / np.where(dearer > 0, dearer, 1.0), -np.inf)
        then = rates.argmax(axis=1)
        best = rates[everybody, then]
        rows = np.flatnonzero(best > 0)
        if not len(rows):
            break
        found.append((rows, then[rows], best[rows], dearer[rows, then[rows]]))
        now[rows] = then[rows]
    empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))
    parts = zip(*(found or [empty]), strict=True)
    rows, then, rates, spent = (np.concatenate(part) for part in parts)
    return rows, then, rates, spent
