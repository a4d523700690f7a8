"""GUSTO-I in 16 regions: whether a personal rule beats tPA for all, and who should get it first.

    python examples/gusto.py gusto.csv.gz --out gusto

A trial of 40,830 patients with an infarction: streptokinase (SK), tPA, or both, by lot in every
region; the outcome is death within 30 days. A tPA costs ten times as much as a streptokinase.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from case_study import (
    BLUE,
    GREEN,
    GREY,
    CaseError,
    Source,
    at_least_one,
    drawn,
    labels,
    markdown,
    numbered,
    numbers,
    parser,
    processor_time,
    run_case,
    write_case,
)
from matplotlib.figure import Figure

import fedopl

SOURCE = Source(
    title="table of the GUSTO-I trial",
    how_to_get=(
        "It comes with the R package predtools (CRAN): "
        "install.packages('predtools'); write.csv(predtools::gusto, 'gusto.csv', row.names=FALSE)"
    ),
    terms="the package is under GPL-2 or later and says of the data only that they are anonymised; "
    "cite the GUSTO investigators, N Engl J Med 1993;329:673-82.",
    columns=(
        *("regl", "tx", "day30", "age", "sysbp", "pulse", "weight", "sex", "Killip", "miloc"),
        *("pmi", "dia", "htn", "prevcvd"),
    ),
)
SK, TPA, BOTH = "SK", "tPA", "SK+tPA"
# Of four arms two had streptokinase, with heparin under the skin or into a vein.
CHANCES = {SK: 0.5, TPA: 0.25, BOTH: 0.25}
COSTS = {SK: 1.0, TPA: 10.0}  # of a streptokinase
BUDGETS = (2.0, 3.0, 5.5, 8.0)
YES_NO = ("no", "yes")
NUMERIC = ("age", "sysbp", "pulse", "weight")
FEATURES = {
    "sex": ("male", "female"),
    "killip": ("I", "II", "III or IV"),
    "infarct": ("Inferior", "Anterior", "Other"),
    "earlier_infarct": YES_NO,
    "diabetes": YES_NO,
    "hypertension": YES_NO,
    "earlier_stroke": YES_NO,
}
ALL_TPA, ALL_SK, LOCAL = f"everybody gets {TPA}", f"everybody gets {SK}", "local policy"
WAYS: dict[str, dict[str, Any]] = {
    "linear, on all rows, cross-fitted": {"basis": "linear", "evaluation": "cross-fitted"},
    "basis, on all rows, cross-fitted": {"evaluation": "cross-fitted"},
    "tree of two questions, median of five splits": {
        "policy": fedopl.Tree(depth=2),
        "evaluation": fedopl.EvaluationPlan(share=0.25, splits=5),
    },
}


class Found(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Found":
        """The mean of independent values."""
        mean, half = values.mean(), 1.96 * values.std(ddof=1) / len(values) ** 0.5
        return cls(float(mean), float(mean - half), float(mean + half))

    @classmethod
    def from_estimate(cls, estimate: fedopl.Estimate) -> "Found":
        """As the library tells it."""
        return cls(estimate.value, *estimate.interval())

    def __str__(self) -> str:
        """Of a thousand patients."""
        value, low, high = (f"{1000 * x:+.1f}".replace("-", "−") for x in self)
        return f"{value} ({low} to {high})".replace("+0.0", "0.0").replace("−0.0", "0.0")


@dataclass(frozen=True)
class Trial:
    """Everybody in the trial."""

    table: pa.Table  # the columns that a study reads, and the region

    @property
    def regions(self) -> list[str]:
        """Their names."""
        return sorted(set(self.table["region"].to_pylist()))

    def clients(self, arms: tuple[str, ...]) -> dict[str, fedopl.LoggedData]:
        """By region, everybody who was given one of these arms."""
        total = sum(CHANCES[arm] for arm in arms)
        schema = fedopl.Schema(
            action="tx",
            actions=arms,
            reward="day30",
            direction="lower",
            numeric=NUMERIC,
            categorical=FEATURES,
            propensity={arm: CHANCES[arm] / total for arm in arms},
        )
        given, region = (np.array(self.table[name].to_pylist()) for name in ("tx", "region"))
        return {
            name: fedopl.read_logged(
                self.table.filter((region == name) & np.isin(given, arms)), schema, name=name
            )
            for name in self.regions
        }


def read_trial(path: Path) -> Trial:
    """The trial's table, with labels that can be read."""
    table = SOURCE.read(path)
    others = set(labels(table, "tx")) - set(CHANCES)
    if others:
        raise CaseError(f"{path}: tx: expected {', '.join(CHANCES)}, came {', '.join(others)}")
    killip = labels(table, "Killip")
    columns = {
        "region": np.array([f"region {int(one):02d}" for one in numbers(table, "regl")]),
        "tx": labels(table, "tx"),
        "day30": numbers(table, "day30"),
        **{name: numbers(table, name) for name in NUMERIC},
        "sex": labels(table, "sex"),
        "killip": np.where(np.isin(killip, ("III", "IV")), "III or IV", killip),
        "infarct": labels(table, "miloc"),
        "earlier_infarct": labels(table, "pmi"),
        "diabetes": _yes(numbers(table, "dia") == 1),
        "hypertension": _yes(numbers(table, "htn") == 2),
        "earlier_stroke": _yes(numbers(table, "prevcvd") == 2),
    }
    return Trial(pa.table({name: pa.array(column) for name, column in columns.items()}))


def _yes(flags: np.ndarray) -> np.ndarray:
    return np.where(flags, "yes", "no")


# --- does a personal rule beat tPA for everybody? -------------------------------------------------


def rules_table(trial: Trial, *, quick: bool) -> list[str]:
    """What learned policies gain over the arms, and over each region's own policy."""
    rows = []
    ways = dict(list(WAYS.items())[:1]) if quick else WAYS
    for arms in ((SK, TPA, BOTH), (SK, TPA)):
        clients = trial.clients(arms)
        for way, how in ways.items():
            run = fedopl.learn(clients, **how)
            gains = [Found.from_estimate(run.gains.over(name)) for name in (ALL_TPA, ALL_SK, LOCAL)]
            rows.append([" / ".join(arms), way, *map(str, gains)])
    head = ("arms", "learned policy", f"over {TPA} for all", f"over {SK} for all")
    return markdown((*head, "over each region alone"), rows, n_texts=2)


# --- for whom? ------------------------------------------------------------------------------------


class Effects(NamedTuple):
    """Of everybody in the trial: doubly robust scores of tPA less those of streptokinase."""

    effect: np.ndarray  # (n,) deaths avoided
    table: pa.Table


def effects_of(trial: Trial) -> Effects:
    """Each region scores its own patients, with models of its own."""
    found, tables = [], []
    region = np.array(trial.table["region"].to_pylist())
    for name, data in trial.clients((SK, TPA, BOTH)).items():
        scores = fedopl.aipw_scores(data, fedopl.cross_fit(data))
        found.append(scores.values[:, 1] - scores.values[:, 0])
        tables.append(trial.table.filter(region == name))
    return Effects(np.concatenate(found), pa.concat_tables(tables))


def groups_of(table: pa.Table) -> dict[str, np.ndarray]:
    """Groups that a physician would name, which nobody chose by looking at effects."""
    age = table["age"].to_numpy()
    said = {name: np.array(table[name].to_pylist()) for name in FEATURES}
    return {
        "everybody": np.full(len(age), True),
        "below 60": age < 60,
        "60 to 74": (age >= 60) & (age < 75),
        "75 and older": age >= 75,
        "men": said["sex"] == "male",
        "women": said["sex"] == "female",
        "anterior infarct": said["infarct"] == "Anterior",
        "other infarct": said["infarct"] != "Anterior",
        "Killip I": said["killip"] == "I",
        "Killip II to IV": said["killip"] != "I",
        "diabetes": said["diabetes"] == "yes",
        "earlier stroke": said["earlier_stroke"] == "yes",
    }


def groups_found(effects: Effects) -> dict[str, tuple[int, Found]]:
    """Of every group, how many there are and what tPA brings them."""
    groups = groups_of(effects.table)
    return {
        name: (int(own.sum()), Found.of(effects.effect[own]))
        for name, own in groups.items()
        if own.sum() > 1
    }


# --- with a budget --------------------------------------------------------------------------------


class WithinBudget(NamedTuple):
    """What a mean cost of so much brings, over streptokinase for everybody."""

    budget: float
    lots: Found
    oldest: Found
    oldest_over_lots: Found
    learned: Found


def within_budgets(effects: Effects, trial: Trial, n_splits: int) -> list[WithinBudget]:
    """Lots, the oldest first, and what was learned, at every budget."""
    age, effect = effects.table["age"].to_numpy(), effects.effect
    learned = learned_at(trial, n_splits)
    lines = []
    for budget in BUDGETS:
        share = share_for(budget)
        first = age >= np.quantile(age, 1 - share)
        lots, oldest = share * effect, first * effect
        found = (Found.of(lots), Found.of(oldest), Found.of(oldest - lots))
        lines.append(WithinBudget(budget, *found, learned[budget]))
    return lines


def share_for(budget: float) -> float:
    """Of patients who can get tPA."""
    return (budget - COSTS[SK]) / (COSTS[TPA] - COSTS[SK])


def learned_at(trial: Trial, n_splits: int) -> dict[float, Found]:
    """Gains of the learned policy at each budget: medians over splits of the rows in halves."""
    clients = trial.clients((SK, TPA))
    costs = fedopl.Costs(by_action=COSTS, unit="streptokinases")
    found: dict[float, list[Found]] = {budget: [] for budget in BUDGETS}
    for seed in range(n_splits):
        run = fedopl.learn(
            clients, basis="linear", costs=costs, budget=BUDGETS[0], evaluation=0.5, seed=seed
        )
        for budget in BUDGETS:
            found[budget].append(Found.from_estimate(run.at_budget(budget).gain))
    return {budget: Found(*np.median(own, axis=0).tolist()) for budget, own in found.items()}


def budget_table(lines: list[WithinBudget]) -> list[str]:
    """One line for each budget."""
    rows = [
        [
            f"{line.budget:g}",
            f"{100 * share_for(line.budget):.0f} %",
            *map(str, (line.lots, line.oldest, line.oldest_over_lots, line.learned)),
        ]
        for line in lines
    ]
    head = ("mean cost", "can get tPA", "by lot", "the oldest first", "oldest less lots")
    return markdown((*head, "learned index"), rows, n_texts=0)


# --- figures and results --------------------------------------------------------------------------


def figures(
    groups: dict[str, tuple[int, Found]], lines: list[WithinBudget], everybody: Found
) -> dict[str, Figure]:
    """What tPA brings in groups, and what a budget buys."""
    made: dict[str, Figure] = {}
    with drawn(made, "gusto-groups", 7.2, 3.7) as axes:
        axes.axvline(0, color=GREY, linewidth=1)
        for place, (_, found) in enumerate(list(groups.values())[::-1]):
            axes.hlines(place, 1000 * found.low, 1000 * found.high, color=BLUE, linewidth=1.4)
            axes.plot(1000 * found.value, place, "o", color=BLUE)
        named = [f"{name}: {n:,}" for name, (n, _) in groups.items()]
        axes.set_yticks(range(len(named)), named[::-1])
        axes.set_xlabel("deaths that tPA avoids, of 1,000 patients, over streptokinase (95 %)")
        axes.grid(axis="y", visible=False)
    with drawn(made, "gusto-budget", 7.2, 3.9) as axes:
        ends = (COSTS[SK], COSTS[TPA])
        axes.plot(ends, (0, 1000 * everybody.value), "--", color=GREY, label="by lot")
        curves = (("the oldest first", GREEN, -0.06), ("learned index", BLUE, 0.06))
        for name, colour, shift in curves:
            own = "oldest" if name == "the oldest first" else "learned"
            bars = [getattr(line, own) for line in lines]
            at = [line.budget + shift for line in lines]
            value, low, high = 1000 * np.array(bars).T
            axes.vlines(at, low, high, color=colour, linewidth=1.2)
            axes.plot(at, value, "o-", color=colour, label=name)
        end = COSTS[TPA]
        axes.vlines(end, 1000 * everybody.low, 1000 * everybody.high, color=GREY, linewidth=1.2)
        axes.plot(end, 1000 * everybody.value, "s", color=GREY, label="tPA for all")
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.set_xlabel("mean cost of a decision, in streptokinases")
        axes.set_title("deaths avoided of 1,000, over streptokinase for all", loc="left", size=10)
        axes.legend(loc="upper left", frameon=False)
    return made


def study(options: argparse.Namespace) -> list[str]:
    """Run everything, write results and figures, and return what to print."""
    began = time.process_time()
    trial = read_trial(options.table)
    n_splits = 1 if options.quick else options.splits
    rules = rules_table(trial, quick=options.quick)
    effects = effects_of(trial)
    groups = groups_found(effects)
    lines = within_budgets(effects, trial, n_splits)
    everybody = groups["everybody"][1]
    rows = [[name, f"{n:,}", str(found)] for name, (n, found) in groups.items()]
    page = {
        "rules": rules,
        "groups": markdown(("group", "patients", "deaths avoided of 1,000"), rows),
        "budget": budget_table(lines),
    }
    seconds = time.process_time() - began
    page["made"] = [
        f"{len(effects.effect):,} patients in {len(trial.regions)} regions, "
        f"{numbered(n_splits, 'split')} for budgets; {processor_time(seconds)} of one processor."
    ]
    content = {
        "command": "python examples/gusto.py gusto.csv.gz --out gusto",
        "settings": [f"{budget:g}" for budget in BUDGETS],
    }
    made = figures(groups, lines, everybody)
    write_case(options.out, "gusto", {**content, "page": page}, made)
    return [line for part in page.values() for line in (*part, "")]


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    found = parser(__doc__, "the trial's table, gusto.csv or gusto.csv.gz", "gusto")
    found.add_argument("--splits", type=at_least_one, default=11, help="of the rows, for budgets")
    return run_case(study, found.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
