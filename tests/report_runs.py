"""What small runs to report on are made of."""

from dataclasses import replace

import numpy as np
import pandas as pd

import fedopl
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.results.value_tables import (
    LEARNED,
    LOCAL,
    LOGGING,
    GainTable,
    ImprovementTable,
    Row,
    arm_name,
)

ACTIONS = ("usual care", "new drug", "coaching")
FEATURES = ("age", "severity", "lives alone")
SCHEMA = fedopl.Schema(
    numeric=("age", "severity"),
    categorical={"ward": ("general", "surgery", "intensive")},
    action="arm",
    actions=("home", "clinic"),
    reward="readmissions",
    direction="lower",
)
TREE_SCHEMA = fedopl.Schema(
    numeric=("age", "severity"),
    categorical={"ward": ("general", "surgery", "intensive")},
    action="arm",
    actions=("home", "clinic", "phone"),
    reward="readmissions",
    direction="lower",
)
TREE_ACTIONS = ("pulmonary rehabilitation with visits", "new drug", "*" + "WAITING " * 12)
TREE_FEATURES = ("forced expiratory volume in one second", "severity", "lives alone")


def patients(seed, n_rows=300, actions=ACTIONS, features=FEATURES):
    """Patients of whom the severe should get the drug."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(0, 1, (n_rows, len(features)))
    contexts[:, 0] = 60 + 10 * contexts[:, 0]
    contexts[:, 2] = contexts[:, 2] > 0.5
    taken = rng.integers(0, len(actions), n_rows)
    rewards = 20 + 2 * contexts[:, 1] * (taken == 1) + rng.normal(0, 1, n_rows)
    return fedopl.LoggedData(contexts, taken, rewards, action_names=actions, feature_names=features)


def discharges(seed, n_rows=400):
    """A table in which fewer readmissions are better, and the clinic helps the severe."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(0, 1, n_rows)
    arm = rng.integers(0, 2, n_rows)
    return pd.DataFrame(
        {
            "age": rng.normal(60, 10, n_rows),
            "severity": severity,
            "ward": rng.choice(["general", "surgery", "intensive"], n_rows, p=[0.6, 0.3, 0.1]),
            "arm": np.array(SCHEMA.actions)[arm],
            "readmissions": 3 - severity * arm + rng.normal(0, 0.5, n_rows),
        }
    )


def admissions(seed, n_rows=900):
    """A table in which fewer readmissions are better: at home up to 50, then by ward."""
    rng = np.random.default_rng(seed)
    age, ward = rng.normal(52, 14, n_rows).round(), rng.choice(["general", "surgery"], n_rows)
    arm = rng.integers(0, 3, n_rows)
    best = np.where(age <= 50, 0, np.where(ward == "surgery", 1, 2))
    return pd.DataFrame(
        {
            "age": age,
            "severity": rng.normal(0, 1, n_rows),
            "ward": ward,
            "arm": np.array(TREE_SCHEMA.actions)[arm],
            "readmissions": 4 - 1.5 * (arm == best) + rng.normal(0, 0.5, n_rows),
        }
    )


def severe(contexts):
    """The drug for the severe, the usual for the others."""
    return (contexts[:, 1] > 0).astype(np.int64)


def with_gains(record, *, arm, past, own=(0.0, 0.1), arms=None, client=GLOBAL):
    """The record with these gains (value, standard error) instead of its own.

    `arm` and `past` are what the learned policy gains over the best arm and over the past; `arms`
    is what each constant arm gains over the past, which is nothing clear where it is not said.
    """
    against = {arm_name(record.best_arm): arm, LOGGING: past, LOCAL: own}
    over_past = {LEARNED: past, arm_name(record.best_arm): (0.0, 0.1)}
    over_past |= {arm_name(action): gain for action, gain in (arms or {}).items()}
    gains = [Row(against=n, client=client, estimate=_gain(*g)) for n, g in against.items()]
    level = 1 - 0.05 / len(over_past)
    improvements = [
        Row(policy=name, client=client, estimate=_gain(*gain), level=level)
        for name, gain in over_past.items()
    ]
    return replace(
        record,
        gains=GainTable(tuple(gains)),
        improvements=ImprovementTable(tuple(improvements)),
        chosen=LEARNED,
    )


def _gain(value, error):
    return Estimate(value=value, standard_error=error, n_rows=100, degrees_of_freedom=10_000)


def shoppers(seed, n_rows=2000, n_actions=14):
    """Customers who were shown one of many things at random."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack(
        [
            rng.integers(0, 30, n_rows),
            rng.gamma(2, 20_000, n_rows),
            rng.normal(0, 1e-4, n_rows),
            rng.integers(0, 2, n_rows),
        ]
    )
    taken = rng.integers(0, n_actions, n_rows)
    rewards = 1.4e6 + 3e5 * rng.normal(size=n_rows) + 2e5 * (taken % 3 == 0) * contexts[:, 3]
    return fedopl.LoggedData(
        contexts,
        taken,
        rewards,
        np.full(n_rows, 1 / n_actions),
        action_names=[f"recommendation of item {place}" for place in range(n_actions)],
        feature_names=["items in basket", "spent so far in the last twelve months", "x", "member"],
    )
