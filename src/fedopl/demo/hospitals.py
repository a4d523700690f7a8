"""Made-up hospitals: three that differ in all, or eight, most of them small and one of them odd."""

import json

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.disclosure.private_draws import public_key
from fedopl.demo.example import Example, ExampleClient, ExampleTable, own_names, renamed

THREE_TREATMENTS = ("usual care", "new drug", "new drug + coaching")
THREE_SIZES = {"north": 2_400, "south": 1_200, "west": 420}
SECRET = "48c8d4dbdbe0d84bff9b152be7c07548699957d5a6c56b4cd9a2a7808f3ebfa8"  # noqa: S105

_COLUMNS = """\
seed = 1

[outcome]
column = "days_at_home"        # of the 30 days after discharge
direction = "higher"           # more of them is better

[action]
column = "treatment"
levels = LEVELS

[features]
age = "number"
severity = "number"            # 0 is mild
kidney_function = "number"     # 100 is healthy
living = ["with others", "alone"]
"""

THREE_STUDY = f"""\
# What the three hospitals agreed on before anything ran. `fedopl init` explains every setting.
name = "Three hospitals"
{_COLUMNS.replace("LEVELS", json.dumps(THREE_TREATMENTS))}
[evaluation]
share = 0.3                    # of the rows are held out, and never learned from

[requires]
values = true                  # everybody tells what policies are worth on its held-out rows
"""

SOUTH_LIMITS = """
[limits]
minimum_cell = 10              # more careful than the default
"""
WEST_COLUMNS = {
    "age": "age_years",
    "severity": "score",
    "kidney_function": "egfr",
    "living": "household",
    "treatment": "arm",
    "days_at_home": "home30",
}
WEST_LABELS = {
    "treatment": {"usual care": "A", "new drug": "B", "new drug + coaching": "C"},
    "living": {"with others": "shared", "alone": "single"},
}


def three_hospitals() -> Example:
    """The study, and each hospital's rows."""
    north, south, west = (_discharges(name) for name in THREE_SIZES)
    usual = (
        "North: a large hospital that tossed coins. Its table is named as the study names things."
    )
    leaning = "South: gave the new drug mostly to the severely ill, so its raw averages mislead."
    own = "West: small, with older patients, and with names of its own for everything."
    return Example(
        study=THREE_STUDY,
        clients={
            "north": client_of(usual, "discharges.csv", north),
            "south": client_of(leaning, "discharges.parquet", south, more=SOUTH_LIMITS),
            "west": client_with_own_names(own, "export.csv", west, WEST_LABELS),
        },
    )


def client_of(about: str, file_name: str, rows: ExampleTable, *, more: str = "") -> ExampleClient:
    """A hospital's folder: its rows, and settings that end with `more`."""
    settings = f"""\
# {about}
# Made-up rows need no secret: so everybody who tries this gets the same results.
secret = "{SECRET}"

[data]
file = "{file_name}"
"""
    return ExampleClient(settings=settings + more, file_name=file_name, rows=rows)


def client_with_own_names(
    about: str, file_name: str, rows: ExampleTable, labels: dict[str, dict[str, str]]
) -> ExampleClient:
    """The same of a hospital with names of its own for columns and labels."""
    own = renamed(rows, WEST_COLUMNS, labels)
    return client_of(about, file_name, own, more=own_names(WEST_COLUMNS, labels))


def _discharges(hospital: str) -> ExampleTable:
    rng, n_rows = generator_for(0, client=hospital, purpose="discharges"), THREE_SIZES[hospital]
    age = rng.normal(74 if hospital == "west" else 62, 9, n_rows).clip(30, 98)
    severity = rng.gamma(2.0 if hospital == "north" else 3.0, 1, n_rows)
    kidneys = (rng.normal(85, 12, n_rows) - 0.9 * (age - 60).clip(0)).clip(8, 120)
    alone = rng.random(n_rows) < (0.45 if hospital == "west" else 0.3)
    taken = _taken_of_three(hospital, severity, rng)
    means = _days(age, severity, kidneys, alone)
    days = means[np.arange(n_rows), taken] + rng.normal(0, 3, n_rows)
    return _rows(age, severity, kidneys, alone, np.array(THREE_TREATMENTS)[taken], days)


def _rows(
    age: FloatArray,
    severity: FloatArray,
    kidneys: FloatArray,
    alone: BoolArray,
    treatments: NDArray[np.str_],
    days: FloatArray,
) -> ExampleTable:
    """The table of a hospital."""
    return {
        "age": age.round(),
        "severity": severity.round(2),
        "kidney_function": kidneys.round(),
        "living": np.where(alone, "alone", "with others"),
        "treatment": treatments,
        "days_at_home": days.clip(0, 30).round(1),
    }


def _taken_of_three(hospital: str, severity: FloatArray, rng: np.random.Generator) -> IntArray:
    """The treatments given: north and west tossed coins; south decided by severity."""
    leaning = 0.8 * (severity - 3) * (hospital == "south")
    chances = np.exp(np.column_stack([np.zeros_like(leaning), leaning, leaning - 0.4]))
    chances /= chances.sum(axis=1, keepdims=True)
    draws = rng.random((len(severity), 1))
    taken: IntArray = (chances.cumsum(axis=1)[:, :-1] < draws).sum(axis=1)
    return taken


def _days(
    age: FloatArray, severity: FloatArray, kidneys: FloatArray, alone: BoolArray
) -> FloatArray:  # (n_rows, n_actions)
    """Expected days at home for each patient and action.

    The drug helps the severely ill whose kidneys tolerate it. Coaching helps those who live alone.
    """
    usual = 24 - 1.6 * severity - 0.05 * (age - 60) - 1.0 * alone
    drug = usual + 1.3 * (severity - 2.2) - 0.08 * (70 - kidneys).clip(0)
    coached = drug - 1.2 + 3.0 * alone
    return np.column_stack([usual, drug, coached])


TREATMENTS = ("usual care", "new drug")
SIZES = {
    "north": 3_000,
    "south": 1_200,
    "west": 400,
    "east": 380,
    "hill": 360,
    "lake": 340,
    "coast": 320,
    "island": 400,
}
SMALL = tuple(name for name, n_rows in SIZES.items() if n_rows <= 400)
ODD = "island"
DRAW = 295  # of the patients; shows a gain at every hospital: see `experiments/demo_draws.py`

_LABELS = {
    **WEST_LABELS,
    "treatment": {name: WEST_LABELS["treatment"][name] for name in TREATMENTS},
}

_AGREED = f"""\
{_COLUMNS.replace("LEVELS", json.dumps(TREATMENTS))}
[basis]                        # the drug's effect may bend at these values
kind = "KIND"
knots = {{ severity = [2, 3, 5, 6], kidney_function = [50, 70, 90] }}
products = []
"""

HOSPITALS_STUDY = f"""\
# What the eight hospitals agreed on before anything ran. `fedopl init` explains every setting.
name = "Eight hospitals"
{_AGREED.replace("KIND", "auto")}
[nuisances]
folds = 2                      # small hospitals have too few patients for more

[evaluation]
share = 0.5                    # of the rows are held out, and never learned from

[personal]
kind = "ridge"                 # every hospital gets a policy of its own as well

[requires]
values = true                  # everybody tells what policies are worth on its held-out rows
"""

PRIVATE_STUDY = f"""\
# What the eight hospitals agreed on before anything ran. `fedopl init` explains every setting.
name = "Eight hospitals, in private"
{_AGREED.replace("KIND", "hinges")}
[evaluation]
share = 0.5                    # of the rows are held out, and never learned from

[personal]
kind = "ridge"                 # every hospital may have a policy of its own, solved at home

[declared]
overlap = 0.2                  # every treatment had at least this probability

[privacy]
epsilon = 2                    # a patient changes any chance by a factor of e^2 at most
aggregation = "secure"         # answers are masked, and the server reads totals alone
noise = "total"                # every hospital adds its share
outcome = [8, 26]              # where nearly all lie; those beyond count as at its ends
ranges = {{ age = [40, 90], severity = [0, 8], kidney_function = [20, 120] }}

[privacy.keys]                 # by which hospitals know each other
"""

_ABOUT = {
    "north": "North: a large hospital that tossed coins.",
    "south": "South: its doctors gave the drug mostly to the severely ill.",
    "west": "West: small, with older patients, and with names of its own for everything.",
    "island": "Island: its tablets are of another make, and work on other patients.",
}


def hospitals(draw: int = DRAW) -> Example:
    """The study and each hospital's rows; each value of `draw` gives other patients."""
    return Example(study=HOSPITALS_STUDY, clients={name: _hospital(name, draw) for name in SIZES})


def private_hospitals() -> Example:
    """The same hospitals in a study with differential privacy and secure aggregation."""
    keys = (f'{name} = "{public_key(name, SECRET)}"\n' for name in sorted(SIZES))
    clients = {name: _hospital(name, DRAW) for name in SIZES}
    return Example(study=PRIVATE_STUDY + "".join(keys), clients=clients)


def _hospital(name: str, draw: int) -> ExampleClient:
    file_name = "discharges.parquet" if name == "south" else "discharges.csv"
    about = _ABOUT.get(name, f"{name.capitalize()}: a small hospital that tossed coins.")
    rows = patients(name, draw)
    if name == "west":
        return client_with_own_names(about, file_name, rows, _LABELS)
    return client_of(about, file_name, rows)


def patients(hospital: str, draw: int) -> ExampleTable:
    """The patients that a hospital discharged."""
    rng, n_rows = generator_for(draw, client=hospital, purpose="discharges"), SIZES[hospital]
    age = rng.normal(72 if hospital == "west" else 64, 9, n_rows).clip(30, 98)
    severity = rng.normal(4, 1.7, n_rows).clip(0, 9)
    kidneys = rng.normal(70, 17, n_rows).clip(8, 120)
    alone = rng.random(n_rows) < 0.35
    taken = _taken(hospital, severity, rng)
    usual = 17 - (severity - 4) - 0.05 * (age - 60) - alone
    effect = drug_effect(hospital, severity, kidneys)
    days = usual + effect * taken + rng.normal(0, 2, n_rows)
    return _rows(age, severity, kidneys, alone, np.array(TREATMENTS)[taken], days)


def drug_effect(hospital: str, severity: FloatArray, kidneys: FloatArray) -> FloatArray:
    """The days at home that the drug adds for each patient.

    It helps the moderately ill with middling kidney function. Island's tablets come from another
    maker. They help the patients whom the other hospitals' tablets do not help, and more so.
    """
    moderate = np.where(abs(severity - 4) < 1.15, 1.3, -1.3)
    borne = np.where(abs(kidneys - 70) < 12, 0.7, -0.7)
    effect: FloatArray = (moderate + borne) * (-1.5 if hospital == ODD else 1)
    return effect


def _taken(hospital: str, severity: FloatArray, rng: np.random.Generator) -> IntArray:
    """The treatments given: South's doctors decided by severity; all others tossed coins."""
    leaning = (0.4 * (severity - 4)).clip(-1.2, 1.2) * (hospital == "south")
    taken: IntArray = (rng.random(len(severity)) < 1 / (1 + np.exp(-leaning))).astype(np.int64)
    return taken
