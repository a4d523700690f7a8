"""Three hospitals, one question: who should get the new treatment.

Each hospital scores its own rows; only sums and parameters cross its door.
"""

import numpy as np

import fedopl
from fedopl.server.conversation import Round
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
    """Look at every hospital, then learn one policy for all of them."""
    hospitals = {name: patients(name, n_rows) for name, n_rows in HOSPITALS.items()}
    for name, data in hospitals.items():
        print(f"\n── {name}: {data!r}\n")
        print(fedopl.overlap(data, fedopl.cross_fit(data)))
    print("\n── learning one policy; only sums and parameters leave a hospital\n")
    run = fedopl.learn(hospitals, limits="guarded", progress=tell)
    print(f"\n{run}\n")
    print("── who gets what at north, by the learned policy\n")
    print(decisions_table(hospitals["north"], run.policy))
    run.policy.save("three_hospitals_policy.json")
    print("\nThe policy is in three_hospitals_policy.json.")


def tell(latest: Round) -> None:
    """One line for each exchange."""
    received = latest.bytes_received / 1024
    print(f"   {latest.query}: {len(latest.answered)} answers, {received:.1f} KB")


def decisions_table(data: fedopl.LoggedData, policy: fedopl.LinearPolicy) -> str:
    """How decisions split by what matters."""
    codes = policy.decide(data.contexts)
    severe = data.contexts[:, FEATURES.index("severity")] > 3
    alone = data.contexts[:, FEATURES.index("lives alone")] > 0
    groups = {
        "mild, with others": ~severe & ~alone,
        "mild, alone": ~severe & alone,
        "severe, with others": severe & ~alone,
        "severe, alone": severe & alone,
    }
    rows = [
        [name, *(f"{(codes[rows] == action).mean():.0%}" for action in range(len(ACTIONS)))]
        for name, rows in groups.items()
    ]
    return text_table(["patients", *ACTIONS], rows)


if __name__ == "__main__":
    main()
