"""Three made-up hospitals that differ in size, in patients, and in how they decided so far."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.demo.example import Example, ExampleClient, ExampleTable, own_names, renamed

THREE_TREATMENTS = ("usual care", "new drug", "new drug + coaching")
THREE_SIZES = {"north": 2_400, "south": 1_200, "west": 420}
SECRET = "48c8d4dbdbe0d84bff9b152be7c07548699957d5a6c56b4cd9a2a7808f3ebfa8"  # noqa: S105

THREE_STUDY = """\
# What the three hospitals agreed on before anything ran. `fedopl init` explains every setting.
name = "Three hospitals"
seed = 1

[outcome]
column = "days_at_home"        # of the 30 days after discharge
direction = "higher"           # more of them is better

[action]
column = "treatment"
levels = ["usual care", "new drug", "new drug + coaching"]

[features]
age = "number"
severity = "number"            # 0 is mild
kidney_function = "number"     # 100 is healthy
living = ["with others", "alone"]

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
    taken = _taken(hospital, severity, rng)
    means = _days(age, severity, kidneys, alone)
    days = means[np.arange(n_rows), taken] + rng.normal(0, 3, n_rows)
    return {
        "age": age.round(),
        "severity": severity.round(2),
        "kidney_function": kidneys.round(),
        "living": np.where(alone, "alone", "with others"),
        "treatment": np.array(THREE_TREATMENTS)[taken],
        "days_at_home": days.clip(0, 30).round(1),
    }


def _taken(hospital: str, severity: FloatArray, rng: np.random.Generator) -> IntArray:
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
