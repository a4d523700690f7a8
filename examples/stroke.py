"""The International Stroke Trial: what federating adds where clients are small, and under masks.

    python examples/stroke.py IST.csv.gz --out stroke

19,435 patients of 466 hospitals in 36 countries got aspirin, heparin, both or neither, by lot. The
outcome is to be alive and independent after six months.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from case_study import (
    BLUE,
    GREY,
    ORANGE,
    CaseError,
    Source,
    drawn,
    labels,
    markdown,
    numbers,
    parser,
    processor_time,
    run_case,
    write_case,
)
from matplotlib.figure import Figure

import fedopl

SOURCE = Source(
    title="table of the International Stroke Trial",
    how_to_get=(
        "Get the file IST (CSV) of Sandercock, Niewada and Czlonkowska (2011), University of "
        "Edinburgh, doi 10.7488/ds/104 (datashare.ed.ac.uk)."
    ),
    terms="Open Data Commons Attribution License (ODC-By).",
    columns=(
        *("HOSPNUM", "COUNTRY", "RXASP", "RXHEP", "OCCODE", "H14", "TRAN14", "AGE", "RDELAY"),
        *("RSBP", "SEX", "RCONSC", "STYPE", "RATRIAL"),
    ),
)
ARMS = ("neither", "aspirin", "heparin", "both")
CHANCE = 0.25  # aspirin for one half; heparin, in one of two doses, for one half
NUMERIC = ("AGE", "RDELAY", "RSBP")
RANGES = {"AGE": (45, 95), "RDELAY": (1, 48), "RSBP": (110, 220)}  # public: where most lie
SCHEMA = fedopl.Schema(
    action="arm",
    actions=ARMS,
    reward="independent",
    direction="higher",
    numeric=NUMERIC,
    categorical={
        "SEX": ("F", "M"),
        "RCONSC": ("F", "D", "U"),
        "STYPE": ("PACS", "TACS", "LACS", "POCS", "OTH"),
        "RATRIAL": ("N", "Y", "unknown"),
    },
    propensity=CHANCE,
    outcomes=["bleeding"],
)
LEAST_ROWS = 20  # of a country
SMALL = (15, 25)  # patients of a hospital under masks
LARGE = 500  # patients of a country in which enough bleed to judge a guardrail
MOST_BLEEDING = 0.01
ASPIRIN, NEITHER = "everybody gets aspirin", "everybody gets neither"
HALVES = 200  # in which hospitals' rows are split to choose an arm and to value it


class Found(NamedTuple):
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def from_estimate(cls, estimate: fedopl.Estimate) -> "Found":
        """As the library tells it."""
        return cls(estimate.value, *estimate.interval())

    def __str__(self) -> str:
        """Of a thousand patients."""
        value, low, high = (f"{1000 * x:+.1f}".replace("-", "−") for x in self)
        return f"{value} ({low} to {high})"


class Trial(NamedTuple):
    """Everybody whose outcome is known."""

    table: pa.Table

    def by(self, column: str) -> dict[str, pa.Table]:
        """The rows of each country, or hospital."""
        owners = np.array(self.table[column].to_pylist())
        return {str(name): self.table.filter(owners == name) for name in np.unique(owners)}

    def clients(self, column: str, least: int, most: float = np.inf) -> dict[str, Any]:
        """Those with so many patients."""
        return {
            name: fedopl.read_logged(own, SCHEMA, name=name)
            for name, own in self.by(column).items()
            if least <= own.num_rows <= most
        }


def read_trial(path: Path) -> Trial:
    """The trial's table with arms and outcomes; those whose outcome is unknown are left out."""
    table = SOURCE.read(path)
    aspirin, heparin = labels(table, "RXASP") == "Y", labels(table, "RXHEP") != "N"
    code = numbers(table, "OCCODE")
    columns = {
        "country": labels(table, "COUNTRY"),
        "hospital": np.array([f"hospital {int(one):03d}" for one in numbers(table, "HOSPNUM")]),
        "arm": np.array(ARMS)[aspirin + 2 * heparin],
        "independent": np.isin(code, (3, 4)).astype(float),
        "bleeding": ((numbers(table, "H14") == 1) | (numbers(table, "TRAN14") == 1)).astype(float),
        **{name: numbers(table, name) for name in NUMERIC},
        **{name: labels(table, name) for name in SCHEMA.categorical},
    }
    known = np.isin(code, (1, 2, 3, 4))
    if not known.any():
        raise CaseError(f"{path}: nobody has a known outcome in OCCODE")
    return Trial(pa.table({name: pa.array(column[known]) for name, column in columns.items()}))


# --- does a personal rule beat aspirin for all? ---------------------------------------------------


def rules_table(clients: dict[str, Any], *, quick: bool) -> list[str]:
    """What policies that countries learn together gain, valued by cross-fitting on all rows."""
    rows = []
    for basis in ("linear",) if quick else ("linear", "auto"):
        run = fedopl.learn(clients, basis=basis, evaluation="cross-fitted")
        called = {"linear": "linear", "auto": "basis"}[basis]
        over = (ASPIRIN, NEITHER, "local policy")
        rows.append([called, *(str(Found.from_estimate(run.gains.over(one))) for one in over)])
    head = ("learned policy", "over aspirin for all", "over neither for all")
    return markdown((*head, "over each country alone"), rows)


# --- choosing an arm: alone, or together? ---------------------------------------------------------


class Choice(NamedTuple):
    """What is gained by choosing one arm for all instead of one at each client, by split."""

    clients: int
    together: np.ndarray  # (n_splits,) independent of 1,000, by the arm that is chosen together
    alone: np.ndarray  # (n_splits,) and by each client's own
    aspirin: float  # share of splits in which aspirin is chosen together

    @property
    def gain(self) -> Found:
        """The mean, and the middle 95 % of splits."""
        gains = self.together - self.alone
        return Found(float(gains.mean()), *np.quantile(gains, (0.025, 0.975)).tolist())


def choice_of(trial: Trial, column: str, n_splits: int) -> Choice:
    """Each client's rows are halved: arms are chosen on one half and valued on the other.

    A row's score of an arm is m + 1{arm}·(Y − m)/0.25, with the trial's own probabilities and m the
    mean of all, so it is unbiased; clients of one row take part in what all choose.
    """
    arm = np.array([ARMS.index(one) for one in trial.table["arm"].to_pylist()])
    outcome = trial.table["independent"].to_numpy()
    _, owner = np.unique(np.array(trial.table[column].to_pylist()), return_inverse=True)
    mean, n_clients = outcome.mean(), int(owner.max()) + 1
    scores = np.full((len(arm), len(ARMS)), mean)
    scores[np.arange(len(arm)), arm] += (outcome - mean) / CHANCE
    rng = np.random.default_rng(0)
    found = []
    for _ in range(n_splits):
        learns = rng.random(len(arm)) < 0.5
        sums = np.zeros((n_clients, len(ARMS)))
        np.add.at(sums, owner[learns], scores[learns])
        own, best = sums.argmax(axis=1), int(sums.sum(axis=0).argmax())
        others, tested = owner[~learns], scores[~learns]
        alone = tested[np.arange(len(tested)), own[others]].mean()
        found.append((tested[:, best].mean(), alone, best == ARMS.index("aspirin")))
    together, alone, aspirin = np.array(found, dtype=float).T
    return Choice(n_clients, together, alone, float(aspirin.mean()))


def choices_table(choices: dict[str, Choice]) -> list[str]:
    """One line for countries, one for hospitals."""
    rows = [
        [
            f"{choice.clients} {name}",
            *(f"{100 * x.mean():.1f}" for x in (choice.together, choice.alone)),
            str(choice.gain),
            f"{100 * choice.aspirin:.0f} %",
        ]
        for name, choice in choices.items()
    ]
    head = ("clients", "together, %", "each alone, %", "gain of 1,000", "chose aspirin")
    return markdown(head, rows)


# --- under masks ----------------------------------------------------------------------------------


def masked_table(hospitals: dict[str, Any], *, quick: bool) -> list[str]:
    """Small hospitals choose an arm together; the server reads totals with noise alone."""
    rows = []
    for epsilon in (50,) if quick else (1, 4, 50):
        plan = fedopl.PrivacyPlan(
            epsilon=epsilon, outcome=(0, 1), ranges=RANGES, aggregation="secure"
        )
        run = fedopl.learn(
            hospitals,
            policy=fedopl.Finite(),
            privacy=plan,
            declared=fedopl.Declared(overlap=CHANCE),
            running=fedopl.Running(secret="hospitals of the case study"),  # noqa: S106  public rows
        )
        value = run.values.of(run.chosen)
        chosen = run.chosen.removeprefix("everybody gets ")
        low, high = (f"{100 * x:.0f}".replace("-", "−") for x in value.interval())
        rows.append([f"{epsilon}", chosen, f"{100 * value.value:.0f}", f"{low} to {high}"])
    head = ("ε", "arm chosen", "independent, %", "95 % interval")
    return markdown(head, rows, n_texts=2)


# --- a guardrail ----------------------------------------------------------------------------------


def guardrail_table(clients: dict[str, Any]) -> list[str]:
    """Whether arms keep from causing more bleeding than neither drug does."""
    rail = fedopl.Guardrail(column="bleeding", at_most=MOST_BLEEDING, more_than="neither")
    run = fedopl.learn(
        clients, policy=fedopl.Finite(), evaluation=0.5, guardrails={"bleeding": rail}
    )
    rows = []
    for arm in ARMS[1:]:
        row = run.guardrails.of(f"everybody gets {arm}")["bleeding"]
        if row.estimate is None or row.interval is None:
            rows.append([arm, "", "", row.verdict])
            continue
        numbered = (row.estimate.value, *row.interval)
        change, *bounds = (f"{100 * x:+.1f}".replace("-", "−") for x in numbered)
        rows.append([arm, change, " to ".join(bounds), row.verdict])
    return markdown(("arm for all", "more bleeding, points", "bounds", "guardrail"), rows)


# --- figures and results --------------------------------------------------------------------------


def figures(choices: dict[str, Choice]) -> dict[str, Figure]:
    """How the gain of choosing together varies over splits."""
    made: dict[str, Figure] = {}
    with drawn(made, "stroke-choices", 7.2, 3.2) as axes:
        axes.axvline(0, color=GREY, linewidth=1)
        for (name, choice), colour in zip(choices.items(), (BLUE, ORANGE), strict=True):
            gains = 1000 * (choice.together - choice.alone)
            called = f"{choice.clients} {name}"
            axes.hist(gains, bins=20, color=colour, alpha=0.6, label=called)
        axes.set_xlabel("more patients of 1,000 independent, if the arm is chosen together")
        axes.set_title("splits of the rows", loc="left", size=10)
        axes.legend(frameon=False)
    return made


def study(options: argparse.Namespace) -> list[str]:
    """Run everything, write results and figures, and return what to print."""
    began = time.process_time()
    trial = read_trial(options.table)
    countries = trial.clients("country", LEAST_ROWS)
    hospitals = trial.clients("hospital", *SMALL)
    n_splits = 20 if options.quick else HALVES
    names = {"countries": "country", "hospitals": "hospital"}
    choices = {name: choice_of(trial, column, n_splits) for name, column in names.items()}
    page = {
        "rules": rules_table(countries, quick=options.quick),
        "choices": choices_table(choices),
        "masked": masked_table(hospitals, quick=options.quick),
        "guardrail": guardrail_table(trial.clients("country", LARGE)),
    }
    patients = sum(own.n_rows for own in hospitals.values())
    page["made"] = [
        f"{trial.table.num_rows:,} patients with a known outcome; {len(countries)} countries of at "
        f"least {LEAST_ROWS}; {len(hospitals)} hospitals of {SMALL[0]} to {SMALL[1]}, {patients:,} "
        f"patients, under masks; {processor_time(time.process_time() - began)} of one processor."
    ]
    content = {
        "command": "python examples/stroke.py IST.csv.gz --out stroke",
        "settings": [f"{MOST_BLEEDING:g}", f"{CHANCE:g}"],
    }
    write_case(options.out, "stroke", {**content, "page": page}, figures(choices))
    return [line for part in page.values() for line in (*part, "")]


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    found = parser(__doc__, "the trial's table, IST.csv or IST.csv.gz", "stroke")
    return run_case(study, found.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
