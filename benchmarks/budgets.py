"""What a budget buys: regret within budgets, and the curve beside that of pooled rows.

The smooth world, three clients of 2,000 rows, three actions that cost 0, 1 and 2 + x5; known
propensities, half of the rows for the curve. "Best" is what the true effects bring at the price
that spends the budget. Regret is the loss against the best policy with the same true spending, on
60,000 fresh contexts, so overspending gains nothing; its error is over draws of the world.
"Boosting, pooled" has all rows in one place: gradient boosting for each action, priced on the rows
it learned from. "Overspent" is what the run's policy spends on fresh contexts beyond the budget.
"From all rows" is the same index and the same scores in one place, sorted exactly by gain for cost,
without prices. The table shows how far its gain is from ours, and our standard error in multiples
of that of 200 bootstraps of half samples; then the same by the formula alone, without the variance
of scores that propensities imply and these rows do not show. "Held" is the number of 95 % intervals
of the gain at that budget that contain the truth of the index. `maq` is the package of Sverdrup,
Wu, Athey & Wager on the same arrays, if it is installed.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from harness import AbsentError, Column, Options, Row, Table, in_child, options, peer_python, write
from sklearn.ensemble import HistGradientBoostingRegressor

import fedopl
from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.simulation.named_worlds import shaped_world

BUDGETS = (0.1, 0.3, 0.6, 1.0)
N_ROWS, DRAWS, N_TEST = 2_000, 20, 20_000
N_BOOTSTRAPS = 200
COSTS = fedopl.Costs(by_action={"a2": 1.0, "a3": "x6"}, unit="euros")
COLUMNS = (
    Column("budget", "{budget}"),
    Column("best", "{best:~3}"),
    Column("regret, fedopl", "{ours:~2} ± {ours_error:~1}", text=True),
    Column("linear", "{linear:~2}"),
    Column("boosting, pooled", "{boosting:~2}"),
    Column("overspent", "{over:~1} ± {over_error:~1}", text=True),
    Column("from all rows, apart", "{pooled:~2}"),
    Column("standard error", "{ratio:~3}×"),
    Column("formula alone", "{formula:~3}×"),
    Column("held", "{held:.0%} of {draws}", text=True),
    Column("maq, apart", "{maq}", text=True),
)
Array = FloatArray
PEER = Path(__file__).with_name("budget_peers.py")


def with_costs(data: fedopl.LoggedData) -> fedopl.LoggedData:
    """The same rows with a feature more: what the third action costs."""
    contexts = np.asarray(data.contexts)
    return fedopl.LoggedData(
        np.column_stack([contexts, 2 + contexts[:, 5]]),
        data.actions,
        data.rewards,
        data.propensities,
        action_names=data.action_names,
    )


def costs_of(contexts: Array) -> Array:  # (n_rows, 3)
    """0, 1 and 2 + x5."""
    return np.column_stack([np.zeros(len(contexts)), np.ones(len(contexts)), 2 + contexts[:, 5]])


def decided(index: Array, costs: Array, price: float) -> IntArray:
    """What an index decides at a price."""
    return np.asarray((index - price * costs).argmax(axis=1))


def price_of(index: Array, costs: Array, budget: float) -> float:
    """The price at which just the budget is spent."""
    low, high = 0.0, 1e3
    for _ in range(60):
        price, row = (low + high) / 2, np.arange(len(costs))
        spends_more = costs[row, decided(index, costs, price)].mean() > budget
        low, high = (price, high) if spends_more else (low, price)
    return high


class Truth:
    """Fresh contexts of all clients, true effects, and the best with any spending."""

    def __init__(self, world: Any) -> None:
        asked = [world.test_contexts(name, N_TEST) for name in world.clients]
        self.contexts = np.concatenate(asked)
        means = [world.mean_rewards(name, x) for name, x in zip(world.clients, asked, strict=True)]
        effects = np.concatenate(means)
        self.effects, self.costs = effects - effects[:, :1], costs_of(self.contexts)
        self.row = np.arange(len(self.costs))

    def best(self, budget: float) -> float:
        """What the true effects bring."""
        own = decided(self.effects, self.costs, price_of(self.effects, self.costs, budget))
        return float(self.effects[self.row, own].mean())

    def judged(self, own: IntArray) -> tuple[float, float]:
        """What decisions lose to the best with what they spend, and that."""
        spent = float(self.costs[self.row, own].mean())
        return self.best(spent) - float(self.effects[self.row, own].mean()), spent


def learned(clients: dict[str, fedopl.LoggedData], basis: str) -> fedopl.Run:
    """One run; every budget is then had from it."""
    return fedopl.learn(
        clients,
        costs=COSTS,
        budget=BUDGETS[0],
        basis=basis,
        evaluation=fedopl.EvaluationPlan(share=0.5, describe=False),
    )


def boosted(clients: dict[str, fedopl.LoggedData], contexts: Array) -> tuple[Array, Array, Array]:
    """Effects by a T-learner of all rows, there and at these contexts, and those rows."""
    rows = np.concatenate([np.asarray(data.contexts) for data in clients.values()])
    actions = np.concatenate([np.asarray(data.actions) for data in clients.values()])
    rewards = np.concatenate([np.asarray(data.rewards) for data in clients.values()])
    models = [
        HistGradientBoostingRegressor(random_state=0).fit(rows[actions == a], rewards[actions == a])
        for a in range(3)
    ]
    there, here = (np.column_stack([m.predict(x) for m in models]) for x in (rows, contexts))
    return there - there[:, :1], here - here[:, :1], rows


def held_out(run: fedopl.Run, clients: dict[str, fedopl.LoggedData]) -> tuple[Array, Array]:
    """All held-out rows in one place: effects by scores, and contexts."""
    scores, contexts = [], []
    for name, data in clients.items():
        study = run.study
        space = Workspace(data, study, Limits.open(), PrivateDraws(study.seed, name, SEED_ALONE))
        # By models of its own, as in the run.
        space.keep(space.scored_with(GivenModels(np.empty(0))))
        rows = space.rows(RowSplit.EVALUATION)
        found = space.scored.for_evaluation(space.whole).scores[rows]
        scores.append(found - found[:, :1])
        contexts.append(space.data.contexts[rows])
    return np.concatenate(scores), np.concatenate(contexts)


def exact_gain(index: Array, costs: Array, scores: Array, budget: float) -> float:
    """Σ over rows and steps of their hulls, the most gain for cost first, until all is spent."""
    rates, gains, spent = [], [], []
    row = np.arange(len(index))
    now = np.zeros(len(index), int)
    while True:  # every row's next step on the upper hull of (cost, index)
        dearer = costs - costs[row, now][:, None]
        more = index - index[row, now][:, None]
        rate = np.where(dearer > 0, more / np.where(dearer > 0, dearer, 1.0), 0.0)
        then = rate.argmax(axis=1)
        moves = rate[row, then] > 0
        if not moves.any():
            break
        rates.append(rate[row, then][moves])
        gains.append((scores[row, then] - scores[row, now])[moves])
        spent.append((costs[row, then] - costs[row, now])[moves])
        now = np.where(moves, then, now)
    order = np.argsort(-np.concatenate(rates), kind="stable")
    gain, cost = np.concatenate(gains)[order], np.concatenate(spent)[order]
    total = np.cumsum(cost)
    left = np.clip((budget * len(index) - (total - cost)) / cost, 0, 1)
    return float(gain @ left) / len(index)


def bootstrapped(index: Array, costs: Array, scores: Array, budget: float) -> float:
    """The standard error by half samples, as `maq` has it."""
    rng, n = np.random.default_rng(0), len(index)
    found = []
    for _ in range(N_BOOTSTRAPS):
        half = rng.permutation(n)[: n // 2]
        found.append(exact_gain(index[half], costs[half], scores[half], budget))
    return float(np.std(found))


def by_maq(index: Array, costs: Array, scores: Array) -> list[float] | str:
    """The gains at all budgets by `maq`, in its own environment; or why not."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"index": index[:, 1:], "costs": costs[:, 1:], "scores": scores[:, 1:]}
        arrays["budgets"] = np.array(BUDGETS)
        np.savez(Path(folder) / "rows.npz", **arrays)
        try:
            found: list[float] = in_child(str(PEER), folder, python=peer_python("maq"))
        except AbsentError as error:
            return str(error)
    return found


def one_draw(draw: int, *, quick: bool) -> list[Row]:
    """All budgets in one draw of the world."""
    world = shaped_world("smooth", seed=draw)
    rows = world.all_known(N_ROWS // (4 if quick else 1))
    clients = {name: with_costs(data) for name, data in rows.items()}
    truth = Truth(world)
    fresh = np.column_stack([truth.contexts, 2 + truth.contexts[:, 5]])
    ours, plain = learned(clients, "auto"), learned(clients, "linear")
    there, here, learned_from = boosted(clients, fresh)
    pooled = _pooled(clients, truth)
    found = []
    for place, budget in enumerate(BUDGETS):
        point = ours.at_budget(budget)
        regret, spent = truth.judged(point.policy.decide(fresh))
        linear, _ = truth.judged(plain.at_budget(budget).policy.decide(fresh))
        price = price_of(there, costs_of(learned_from), budget)
        boosting, _ = truth.judged(decided(here, truth.costs, price))
        found.append(
            {
                "budget": budget,
                "best": truth.best(budget),
                "ours": regret,
                "linear": linear,
                "boosting": boosting,
                "over": spent - budget if point.is_binding else 0.0,
                **pooled[place],
            }
        )
    return found


def _pooled(clients: dict[str, fedopl.LoggedData], truth: Truth) -> list[Row]:
    """The curve from clients beside that of all rows in one place, at every budget."""
    run = fedopl.learn(
        clients,
        costs=COSTS,
        budget=BUDGETS[0],
        nuisances=fedopl.NuisancePlan(kind="local"),
        evaluation=fedopl.EvaluationPlan(share=0.5, describe=False),
    )
    scores, contexts = held_out(run, clients)
    policy = run.statistics.solve(run.mixture)
    index, costs = policy.linear(contexts), costs_of(contexts)
    index = index - index[:, :1]
    maq, found = by_maq(index, costs, scores), []
    fresh = policy.linear(np.column_stack([truth.contexts, 2 + truth.contexts[:, 5]]))
    for place, budget in enumerate(BUDGETS):
        point = run.curve.at(budget)
        told, spread = point.at_budget, bootstrapped(index, costs, scores, budget)
        own = decided(fresh, truth.costs, price_of(fresh, truth.costs, budget))
        low, high = told.interval()
        row, now = np.arange(len(index)), decided(index, costs, point.price)
        net = scores[row, now] - point.price * costs[row, now]
        found.append(
            {
                "pooled": exact_gain(index, costs, scores, budget) - told.value,
                "ratio": told.standard_error / spread,
                "formula": float(net.std() / np.sqrt(len(net))) / spread,
                "held": float(low <= truth.effects[truth.row, own].mean() <= high),
                "maq": maq if isinstance(maq, str) else maq[place] - told.value,
            }
        )
    return found


def summed(rows: list[Row]) -> Row:
    """Means over draws of one budget, with errors."""
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "maq"}
    found: Row = {name: float(values.mean()) for name, values in numbers.items()}
    n_draws = max(len(rows) - 1, 1)
    found |= {
        f"{name}_error": float(numbers[name].std() / np.sqrt(n_draws)) for name in ("ours", "over")
    }
    found["pooled"] = float(np.abs(numbers["pooled"]).mean())
    told = [row["maq"] for row in rows]
    known = [one for one in told if not isinstance(one, str)]
    found["maq"] = f"{np.abs(known).mean():.4f}" if known else told[0]
    return {**found, "budget": rows[0]["budget"], "draws": len(rows)}


def main(given: Options) -> None:
    """All budgets, over all draws."""
    draws = [one_draw(draw, quick=given.quick) for draw in range(1 if given.quick else DRAWS)]
    rows = [summed(list(same)) for same in zip(*draws, strict=True)]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
