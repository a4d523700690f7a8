"""Three hospitals, one question: who should get the new treatment.

Each hospital scores its own rows; what is printed is all that a later step would need to see.
"""

import numpy as np

import fedopl
from fedopl.tables import text_table

ACTIONS = ("usual care", "new drug", "new drug + coaching")
FEATURES = ("age", "severity", "kidney function", "lives alone")
HOSPITALS = {"north": 2_000, "south": 900, "west": 250}


def patients(hospital: str, n_rows: int) -> fedopl.LoggedData:
    """Patients of one hospital; the drug helps the severe, coaching those who live alone."""
    rng = np.random.default_rng(sum(map(ord, hospital)))
    age = rng.normal(70 if hospital == "west" else 62, 10, n_rows)
    severity = rng.gamma(2 if hospital == "south" else 3, 1, n_rows)
    kidneys = rng.normal(80 - 0.5 * (age - 60), 12)
    alone = rng.random(n_rows) < 0.3
    # South gave the drug mostly to the severe; the others tossed coins.
    leaning = (severity - 2) * (hospital == "south")
    chances = np.exp(np.column_stack([np.zeros(n_rows), leaning, leaning - 0.5]))
    chances /= chances.sum(axis=1, keepdims=True)
    actions = (chances.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    drug = 1.5 * (severity - 3) - 0.03 * np.maximum(60 - kidneys, 0)
    benefit = np.column_stack([np.zeros(n_rows), drug, drug + 2 * alone - 1])
    days_at_home = 20 - severity + benefit[np.arange(n_rows), actions] + rng.normal(0, 3, n_rows)
    return fedopl.LoggedData(
        np.column_stack([age, severity, kidneys, alone]),
        actions,
        days_at_home,
        action_names=ACTIONS,
        feature_names=FEATURES,
    )


def main() -> None:
    """Score every hospital and print what can be said about each."""
    for hospital, n_rows in HOSPITALS.items():
        data = patients(hospital, n_rows)
        nuisances = fedopl.cross_fit(data)
        scores = fedopl.aipw_scores(data, nuisances)
        print(f"\n── {hospital}: {data!r}")
        for note in nuisances.notes:
            print(f"   {note}")
        print(f"\n{fedopl.overlap(data, nuisances)}\n")
        print(values_table(data, scores))


def values_table(data: fedopl.LoggedData, scores: fedopl.Scores) -> str:
    """What each constant arm is worth, and one rule that an expert might propose."""
    severe = data.contexts[:, FEATURES.index("severity")] > 3
    alone = data.contexts[:, FEATURES.index("lives alone")] > 0
    rule = np.where(severe, np.where(alone, 2, 1), 0)
    policies = {f"everybody gets {name}": name for name in ACTIONS}
    policies["the drug for the severe, coaching if alone"] = rule
    rows = []
    for policy, decisions in policies.items():
        estimate = fedopl.estimate_value(scores, decisions)
        low, high = estimate.interval()
        rows.append([policy, f"{estimate.value:.2f}", f"{low:.2f} to {high:.2f}"])
    return text_table(["policy", "days at home", "95 % interval"], rows)


if __name__ == "__main__":
    main()
