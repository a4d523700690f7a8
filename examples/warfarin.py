"""Warfarin at 21 sites: what a dose policy learned together is worth, where the truth is known.

    python examples/warfarin.py iwpc.csv.gz --draws 20 --out warfarin

The International Warfarin Pharmacogenetics Consortium recorded the weekly dose at which each
patient was stable. A decision is a class of doses: low (below 21 mg), medium, or high (49 mg and
more). It is right if the patient's own dose is in that class, so what any rule would have gained is
known for every patient, and regret is exact. What physicians did is made up, by `Logging`.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from case_study import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    CaseError,
    Mean,
    Source,
    at_least_one,
    drawn,
    interval,
    labels,
    markdown,
    mean_over,
    numbered,
    numbers,
    parser,
    points,
    processor_time,
    run_case,
    write_case,
)
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

import fedopl

CLASSES = ("low", "medium", "high")
LIMITS = (21, 49)  # mg a week
MEDIUM = 1
YES_NO = ("no", "yes")
SCHEMA = fedopl.Schema(
    action="given",
    actions=CLASSES,
    reward="right",
    direction="higher",
    numeric=["age", "height", "weight"],
    categorical={
        "sex": ("male", "female"),
        "race": ("white", "asian", "black", "unknown"),
        "amiodarone": YES_NO,
        "enzyme_inducer": YES_NO,
        "cyp2c9": ("*1/*1", "*1/*2", "*1/*3", "two variants", "other or unknown"),
        "vkorc1": ("G/G", "A/G", "A/A", "unknown"),
    },
)
# Decades of age, cm and kg: where most patients are, said without looking at any site's rows.
RANGES = {"age": (2, 9), "height": (145, 192), "weight": (40, 125)}
TYPICAL = {"age": 6, "height": 168, "weight": 78}  # where one was not recorded
RACES = {"White": "white", "Asian": "asian", "Black or African American": "black"}
TWO_VARIANTS = ("*2/*2", "*2/*3", "*3/*3")
INDUCERS = ("carbamazepine", "phenytoin", "rifampin")

SOURCE = Source(
    title="table of the International Warfarin Pharmacogenetics Consortium",
    how_to_get=(
        "Get the consortium's data of 5,700 patients from PharmGKB (www.pharmgkb.org, Downloads: "
        "'Estimation of the warfarin dose with clinical and pharmacogenetic data', PMID 19228618) "
        "and save them as CSV with the columns that docs/warfarin.md lists."
    ),
    terms="PharmGKB's data usage policy; cite the consortium, do not pass the table on.",
    columns=(
        *("site", "gender", "race", "age_decade", "height_cm", "weight_kg", "amiodarone"),
        *INDUCERS,
        *("cyp2c9", "vkorc1", "dose_mg_week"),
    ),
)
# The consortium's equations for the root of the weekly dose (N Engl J Med 2009;360:753-64, doi
# 10.1056/NEJMoa0809329, Supplementary Appendix): intercept, decades of age, cm, kg; then labels.
CLINICAL = (4.0376, -0.2546, 0.0118, 0.0134)
CLINICAL_OF = {
    "race": {"asian": -0.6752, "black": 0.4060, "unknown": 0.0443},
    "enzyme_inducer": {"yes": 1.2799},
    "amiodarone": {"yes": -0.5695},
}
GENETIC = (5.6044, -0.2614, 0.0087, 0.0128)
GENETIC_OF = {
    "race": {"asian": -0.1092, "black": -0.2760, "unknown": -0.1032},
    "enzyme_inducer": {"yes": 1.1816},
    "amiodarone": {"yes": -0.5503},
    "vkorc1": {"A/G": -0.8677, "A/A": -1.6974, "unknown": -0.4854},
    "genotype": {
        "*1/*2": -0.5211,
        "*1/*3": -0.9357,
        "*2/*2": -1.0616,
        "*2/*3": -1.9206,
        "*3/*3": -2.3312,
        "unknown": -0.2188,
    },
}
FOLDS = 5  # a draw sets the patients of one fold aside
ALONE, TOGETHER, PERSONAL = "each site alone, linear", "federated, linear", "federated, personal"
POOLED, MINIMAX = "all rows in one place, linear", "federated, minimax mixture"
CLINICAL_RULE, GENETIC_RULE = "published equation, clinical", "published equation, with genotypes"
ESTIMATED = "federated, linear, propensities estimated"
KNOWING = "every right class known: logistic regression"
SITES_SHOWN = (TOGETHER, PERSONAL, MINIMAX)


@dataclass(frozen=True)
class Patients:
    """All patients whose dose is known."""

    sites: np.ndarray  # (n,) names
    contexts: np.ndarray  # (n, n_features)
    right: np.ndarray  # (n,) the class of the stable dose
    clinical: np.ndarray  # (n,) the root of the dose by the clinical equation
    genetic: np.ndarray  # (n,) and by the one with genotypes

    def names(self) -> list[str]:
        """Of the sites, the largest first."""
        names, sizes = np.unique(self.sites, return_counts=True)
        return [str(name) for name in names[np.argsort(-sizes, kind="stable")]]


def read_patients(path: Path) -> Patients:
    """Everybody with a dose; what was not recorded is typical or unknown."""
    table = SOURCE.read(path)
    dose = numbers(table, "dose_mg_week")
    there = np.isfinite(dose)
    if not there.any():
        raise CaseError(f"{path}: no patient has a dose in dose_mg_week")
    ages = labels(table, "age_decade")  # such as "60 - 69"
    decade = np.array([float(text[0]) if text[0].isdigit() else np.nan for text in ages])
    measured = {
        "age": decade,
        "height": numbers(table, "height_cm"),
        "weight": numbers(table, "weight_kg"),
    }
    measured = {name: np.where(np.isnan(x), TYPICAL[name], x) for name, x in measured.items()}
    inducer = np.any([numbers(table, name) == 1 for name in INDUCERS], axis=0)
    genotype = labels(table, "cyp2c9")
    said = {
        "sex": np.where(labels(table, "gender") == "female", "female", "male"),
        "race": np.array([RACES.get(race, "unknown") for race in labels(table, "race")]),
        "amiodarone": np.where(numbers(table, "amiodarone") == 1, "yes", "no"),
        "enzyme_inducer": np.where(inducer, "yes", "no"),
        "cyp2c9": np.array([_grouped(label) for label in genotype]),
        "vkorc1": labels(table, "vkorc1"),
    }
    known = GENETIC_OF["genotype"].keys() | {"*1/*1"}
    exact = {**said, "genotype": np.where(np.isin(genotype, list(known)), genotype, "unknown")}
    columns = list(measured.values())
    for name, levels in SCHEMA.categorical.items():
        columns += [said[name] == level for level in levels[1:]]
    kept = {
        "sites": np.array([f"site {int(site):02d}" for site in numbers(table, "site")]),
        "contexts": np.column_stack(columns).astype(float),
        "right": np.digitize(np.where(there, dose, 0), LIMITS),
        "clinical": _equation(CLINICAL, CLINICAL_OF, measured, exact),
        "genetic": _equation(GENETIC, GENETIC_OF, measured, exact),
    }
    return Patients(**{name: column[there] for name, column in kept.items()})


def _grouped(genotype: str) -> str:
    if genotype in TWO_VARIANTS:
        return "two variants"
    return genotype if genotype in SCHEMA.categorical["cyp2c9"] else "other or unknown"


def _equation(
    weights: tuple[float, ...],
    by_label: dict[str, dict[str, float]],
    measured: dict[str, np.ndarray],
    said: dict[str, np.ndarray],
) -> np.ndarray:
    first, *slopes = weights
    found = first + sum(w * x for w, x in zip(slopes, measured.values(), strict=True))
    for name, shifts in by_label.items():
        found = found + np.array([shifts.get(label, 0.0) for label in said[name]])
    return np.asarray(found)


class Logging(NamedTuple):
    """How the physicians of each site choose, at random.

    A site expects the root of the dose to be s = (clinical equation) + b, with a habit b ~ N(0,
    0.3²) of its own. A class with the middle m (14, 35 or 56 mg) is chosen with a probability
    proportional to exp(−(√m − s)² / 2τ²), where the site's noise τ is uniform between 0.8 and 2;
    three decisions in ten are made by lot instead. So no class is less likely than 0.1. Each
    decision is logged with its probability, except where the table says "estimated".
    """

    middles: tuple[float, ...] = (14, 35, 56)
    habit: float = 0.3
    noise: tuple[float, float] = (0.8, 2.0)
    by_lot: float = 0.3

    def chances(self, patients: Patients, rng: np.random.Generator) -> np.ndarray:
        """Of each class, for every patient: (n, 3)."""
        _, site = np.unique(patients.sites, return_inverse=True)
        habits = rng.normal(0, self.habit, site.max() + 1)
        noise = rng.uniform(*self.noise, site.max() + 1)
        expected = patients.clinical + habits[site]
        far = (np.sqrt(self.middles) - expected[:, None]) / noise[site, None]
        likely = np.exp(-(far**2) / 2)
        likely /= likely.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.by_lot) * likely + self.by_lot / len(CLASSES))


@dataclass(frozen=True)
class Draw:
    """One draw of what physicians did, and the patients set aside to value rules on."""

    patients: Patients
    given: np.ndarray  # (n,) the class that the physician gave
    chances: np.ndarray  # (n, 3) with which each class was
    aside: np.ndarray  # (n,) bool
    seed: int

    @classmethod
    def of(cls, patients: Patients, seed: int) -> "Draw":
        """The draw with this number; every five set every patient aside once."""
        by_folds = np.random.default_rng([seed // FOLDS, 1])
        place = np.empty(len(patients.right), dtype=int)
        for name in patients.names():
            own = np.flatnonzero(patients.sites == name)
            place[by_folds.permutation(own)] = np.arange(len(own)) % FOLDS
        rng = np.random.default_rng([seed, 2])
        chances = Logging().chances(patients, rng)
        below = chances.cumsum(axis=1)
        given = (rng.random(len(below))[:, None] > below[:, :-1]).sum(axis=1)
        return cls(patients, given, chances, place == seed % FOLDS, seed)

    def rows(
        self, own: np.ndarray, columns: list[int] | None = None, *, known: bool = True
    ) -> fedopl.LoggedData:
        """What was logged of these patients; reward 1 for the right class, else 0."""
        own = own & ~self.aside
        contexts = self.patients.contexts[own]
        features = {"feature_names": SCHEMA.feature_names, "schema": SCHEMA}
        if columns is not None:
            contexts = contexts[:, columns]
            features = {"feature_names": [SCHEMA.feature_names[place] for place in columns]}
        right = self.given[own] == self.patients.right[own]
        return fedopl.LoggedData(
            contexts,
            self.given[own],
            right.astype(float),
            self.chances[own] if known else None,
            action_names=CLASSES,
            **features,
        )

    def clients(
        self, columns: list[int] | None = None, *, known: bool = True
    ) -> dict[str, fedopl.LoggedData]:
        """By site."""
        sites = self.patients.sites
        names = self.patients.names()
        return {name: self.rows(sites == name, columns, known=known) for name in names}

    def at(self, policies: dict[str, Any]) -> np.ndarray:  # (n_aside,)
        """What each site's own policy decides for its patients that were set aside."""
        sites, contexts = self.patients.sites[self.aside], self.patients.contexts[self.aside]
        decided = np.empty(len(sites), dtype=int)
        for name in np.unique(sites):
            own = sites == name
            decided[own] = policies[str(name)].decide(contexts[own])
        return decided


def private(epsilon: float, aggregation: str) -> dict[str, Any]:
    """Differential privacy with public ranges."""
    plan = fedopl.PrivacyPlan(
        epsilon=epsilon, outcome=(0, 1), ranges=RANGES, aggregation=aggregation
    )
    return {"privacy": plan, "declared": fedopl.Declared(overlap=0.1)}


def fixed_rules(draw: Draw) -> dict[str, np.ndarray]:
    """What needs no learning."""
    patients, aside = draw.patients, draw.aside
    return {
        "everybody medium": np.full(aside.sum(), MEDIUM),
        "what physicians did": draw.given[aside],
        CLINICAL_RULE: np.digitize(patients.clinical[aside] ** 2, LIMITS),
        GENETIC_RULE: np.digitize(patients.genetic[aside] ** 2, LIMITS),
    }


def learned_rules(draw: Draw, *, quick: bool = False) -> dict[str, np.ndarray]:
    """What is learned, each from the same rows."""
    contexts = draw.patients.contexts[draw.aside]
    clients, seed = draw.clients(), draw.seed
    linear = {"basis": "linear", "seed": seed}
    together = fedopl.learn(clients, personal="ridge", **linear)
    alone = {name: fedopl.learn({name: own}, **linear).policy for name, own in clients.items()}
    found = {
        ALONE: draw.at(alone),
        TOGETHER: together.policy.decide(contexts),
        PERSONAL: draw.at(together.personal_policies),
    }
    if quick:
        return found
    everybody = draw.rows(np.full(len(draw.aside), True))
    plain = [p for p, name in enumerate(SCHEMA.feature_names) if name[:6] not in GENES]
    runs = {
        "federated, basis": fedopl.learn(clients, seed=seed),
        "federated, tree of two questions": fedopl.learn(
            clients, policy=fedopl.Tree(depth=2), seed=seed
        ),
        MINIMAX: fedopl.learn(clients, mixture="minimax", **linear),
        POOLED: fedopl.learn({"everybody": everybody}, **linear),
        ESTIMATED: fedopl.learn(draw.clients(known=False), **linear),
        **{
            f"{kind}, ε = {epsilon}": fedopl.learn(
                clients,
                running=fedopl.Running(secret=f"a draw of the case study {seed}"),
                **private(epsilon, kind),
                **linear,
            )
            for kind in ("secure", "plain")
            for epsilon in (4, 1)
        },
    }
    found |= {name: run.policy.decide(contexts) for name, run in runs.items()}
    without = fedopl.learn(draw.clients(plain), **linear)
    found["federated, linear, without genotypes"] = without.policy.decide(contexts[:, plain])
    seen = ~draw.aside
    scale = draw.patients.contexts[seen].std(axis=0) + 1e-9
    model = LogisticRegression(max_iter=1000)
    model.fit(draw.patients.contexts[seen] / scale, draw.patients.right[seen])
    found[KNOWING] = model.predict(contexts / scale)
    return found


GENES = ("cyp2c9", "vkorc1")


class Tested(NamedTuple):
    """Every decision for a patient who was set aside: whether it was right, by rule."""

    right: dict[str, np.ndarray]  # by rule, (n_decisions,) 0 or 1
    draws: np.ndarray  # (n_decisions,)
    patients: np.ndarray
    sites: np.ndarray

    def share(self, rule: str, own: np.ndarray | None = None) -> Mean:
        """Of right decisions, for these patients."""
        return self._mean(self.right[rule], own)

    def gain(self, rule: str, over: str, own: np.ndarray | None = None) -> Mean:
        """In the share of right decisions, paired."""
        return self._mean(self.right[rule] - self.right[over], own)

    def _mean(self, values: np.ndarray, own: np.ndarray | None) -> Mean:
        own = np.full(len(values), True) if own is None else own
        return mean_over(values[own], self.draws[own], self.patients[own])

    def by_site(self, rule: str) -> dict[str, float]:
        """The share of right decisions at every site."""
        names = np.unique(self.sites)
        return {str(name): float(self.right[rule][self.sites == name].mean()) for name in names}


def all_draws(patients: Patients, n_draws: int, *, quick: bool = False) -> Tested:
    """All draws."""
    parts: list[dict[str, np.ndarray]] = []
    for seed in range(n_draws):
        draw = Draw.of(patients, seed)
        decided = fixed_rules(draw) | learned_rules(draw, quick=quick)
        truth = patients.right[draw.aside]
        parts.append(
            {
                **{rule: (made == truth).astype(float) for rule, made in decided.items()},
                "of draw": np.full(len(truth), seed),
                "of patient": np.flatnonzero(draw.aside),
            }
        )
        print(f"draw {seed + 1} of {n_draws}", file=sys.stderr, flush=True)
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    draws, who = whole.pop("of draw"), whole.pop("of patient")
    return Tested(whole, draws, who, patients.sites[who])


ORDER = (
    "everybody medium",
    "what physicians did",
    CLINICAL_RULE,
    GENETIC_RULE,
    ALONE,
    TOGETHER,
    "federated, linear, without genotypes",
    ESTIMATED,
    "federated, basis",
    "federated, tree of two questions",
    PERSONAL,
    MINIMAX,
    POOLED,
    KNOWING,
)


def overall_table(found: Tested) -> list[str]:
    """One line for each rule."""
    rows = []
    for rule in [rule for rule in ORDER if rule in found.right]:
        by_site = found.by_site(rule)
        share = found.share(rule)
        over = "" if rule == ALONE else interval(found.gain(rule, ALONE))
        worst = f"{points(min(by_site.values()))}"
        mean = points(float(np.mean(list(by_site.values()))))
        rows.append([rule, points(share.value), points(1 - share.value), over, mean, worst])
    head = ("rule", "right, %", "regret, %", "gain over each site alone, points")
    return markdown((*head, "mean over sites, %", "worst site, %"), rows)


def private_table(found: Tested) -> list[str]:
    """What privacy costs."""
    rules = {TOGETHER: "exact sums, ε = ∞"}
    rules |= {rule: rule for rule in found.right if "ε" in rule}
    rows = []
    for rule, called in rules.items():
        cost = "" if rule == TOGETHER else interval(found.gain(rule, TOGETHER))
        medium = interval(found.gain(rule, "everybody medium"))
        rows.append([called, points(found.share(rule).value), cost, medium])
    head = ("sums", "right, %", "change from exact sums, points", "gain over everybody medium")
    return markdown(head, rows)


class AtSite(NamedTuple):
    """One line of the table of sites."""

    name: str
    n: int
    low_doses: float
    alone: float
    gains: dict[str, Mean]  # by rule, over the site alone


def at_sites(found: Tested, patients: Patients) -> list[AtSite]:
    """What joining pays for whom, the largest first."""
    lines = []
    for name in patients.names():
        own, here = found.sites == name, patients.sites == name
        shown = [rule for rule in SITES_SHOWN if rule in found.right]
        gains = {rule: found.gain(rule, ALONE, own) for rule in shown}
        low = float((patients.right[here] == 0).mean())
        alone = found.share(ALONE, own).value
        lines.append(AtSite(name, int(here.sum()), low, alone, gains))
    return lines


def sites_table(lines: list[AtSite]) -> list[str]:
    """Every site, the largest first."""
    rules = list(lines[0].gains)
    rows = [
        [
            *(line.name, f"{line.n}", f"{100 * line.low_doses:.0f}", points(line.alone)),
            *(interval(line.gains[rule]) for rule in rules),
        ]
        for line in lines
    ]
    called = [f"{rule.removeprefix('federated, ')}: gain" for rule in rules]
    return markdown(("site", "patients", "low doses, %", "alone: right, %", *called), rows)


# The columns of the table of all rules by site.
COLUMNS = {
    "everybody medium": "everybody medium",
    CLINICAL_RULE: "clinical equation",
    GENETIC_RULE: "with genotypes",
    ALONE: "alone",
    TOGETHER: "linear",
    "federated, basis": "basis",
    "federated, tree of two questions": "tree",
    PERSONAL: "personal",
    MINIMAX: "minimax",
    POOLED: "one place",
}


def rules_table(found: Tested, lines: list[AtSite]) -> list[str]:
    """How often each rule is right at each site, the largest site first."""
    rules = [rule for rule in COLUMNS if rule in found.right]
    by_site = {rule: found.by_site(rule) for rule in rules}
    rows = [[line.name, *(points(by_site[rule][line.name]) for rule in rules)] for line in lines]
    return markdown(("site", *(COLUMNS[rule] for rule in rules)), rows)


def counted(lines: list[AtSite]) -> list[str]:
    """For how many sites joining pays."""
    rows = []
    for rule in lines[0].gains:
        gains = [line.gains[rule] for line in lines]
        better = sum(gain.low > 0 for gain in gains)
        worse = sum(gain.high < 0 for gain in gains)
        above = sum(gain.value > 0 for gain in gains)
        counts = (better, worse, len(gains) - better - worse, above)
        rows.append([rule, *(f"{count}" for count in counts)])
    head = ("compared with alone", "clearly better", "clearly worse", "cannot tell")
    return markdown((*head, "estimate above zero"), rows)


def figures(found: Tested, lines: list[AtSite]) -> dict[str, Figure]:
    """Rules overall, and what joining pays at each site."""
    made: dict[str, Figure] = {}
    rules = [rule for rule in ORDER[::-1] if rule in found.right]
    rules.remove("what physicians did")  # far to the left of all others
    with drawn(made, "warfarin-rules", 7.6, 3.9) as axes:
        for place, rule in enumerate(rules):
            mean = found.share(rule)
            colour = BLUE if rule.startswith("federated") else GREY
            colour = ORANGE if rule == ALONE else colour
            axes.hlines(place, 100 * mean.low, 100 * mean.high, color=colour, linewidth=1.4)
            axes.plot(100 * mean.value, place, "o", color=colour)
        axes.set_yticks(range(len(rules)), rules)
        axes.set_xlabel("right class of doses, % of patients set aside (95 % interval)")
        axes.grid(axis="y", visible=False)
    with drawn(made, "warfarin-sites", 7.6, 5.6) as axes:
        axes.axvline(0, color=GREY, linewidth=1)
        for rule, colour, shift in ((TOGETHER, BLUE, 0.17), (PERSONAL, GREEN, -0.17)):
            for place, line in enumerate(lines[::-1]):
                mean, at = line.gains[rule], place + shift
                axes.hlines(at, 100 * mean.low, 100 * mean.high, color=colour, linewidth=1.1)
                label = {"label": rule} if not place else {}
                axes.plot(100 * mean.value, at, "o", color=colour, markersize=4, **label)
        named = [f"{line.name}: {line.n}, {100 * line.low_doses:.0f} % low" for line in lines]
        axes.set_yticks(range(len(lines)), named[::-1])
        axes.set_xlabel("gain over the site alone, percentage points (95 % interval)")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="best", frameon=False)
    return made


def study(options: argparse.Namespace) -> list[str]:
    """Run all draws, write results and figures, and return what to print."""
    began = time.process_time()
    patients = read_patients(options.table)
    n_draws = 1 if options.quick else options.draws
    found = all_draws(patients, n_draws, quick=options.quick)
    lines = at_sites(found, patients)
    page = {"overall": overall_table(found), "sites": sites_table(lines), "counts": counted(lines)}
    page["rules"] = rules_table(found, lines)
    if not options.quick:
        page["private"] = private_table(found)
    seconds = time.process_time() - began
    page["made"] = [
        f"{numbered(n_draws, 'draw')}, {len(patients.right):,} patients at {len(lines)} sites; "
        f"{processor_time(seconds)} of one processor."
    ]
    content = {
        "command": f"python examples/warfarin.py iwpc.csv.gz --draws {n_draws} --out warfarin",
        "settings": ["no propensity below 0.1"],
    }
    write_case(options.out, "warfarin", {**content, "page": page}, figures(found, lines))
    return [line for part in page.values() for line in (*part, "")]


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    found = parser(__doc__, "the consortium's table, iwpc.csv or iwpc.csv.gz", "warfarin")
    found.add_argument("--draws", type=at_least_one, default=20, help="of what physicians did")
    return run_case(study, found.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
