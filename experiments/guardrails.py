"""How often a broken guardrail is called kept, and how often one that is kept is shown to be.

python experiments/guardrails.py [draws]

Three clients of 1,000 rows each, a quarter held out; the outcome gains from the new action where x
is large, so the learned policy gives it to about half. The guardrail is about a rare event (5 %),
at most .02 more than what was done. "just broken": the new action adds what puts that policy
just beyond the limit, the hardest case; "kept": it adds nothing. Beside the learned policy, both
arms and what was done are judged in the same run; "any" counts runs in which at least one policy
that breaks the guardrail is called to keep it.
"""

import sys

import numpy as np

import fedopl
from fedopl.results.value_tables import LEARNED, arm_name

LIMIT, BASE = 0.02, 0.05
ACTIONS = ("usual", "new")
GUARDRAIL = fedopl.Guardrail(column="death", at_most=LIMIT, more_than="what was done")


def rows(seed: int, added: float, n_rows: int) -> fedopl.LoggedData:
    """One client's rows: the new action adds this to the risk of those with x₁ > 0."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 2))
    actions = rng.integers(0, 2, n_rows)
    rewards = contexts[:, 0] * actions + rng.standard_normal(n_rows)
    risk = BASE + added * actions * (contexts[:, 0] > 0)
    return fedopl.LoggedData(
        contexts,
        actions,
        rewards,
        action_names=ACTIONS,
        outcomes={"death": (rng.random(n_rows) < risk).astype(float)},
    )


def changes(policy: fedopl.LinearPolicy, added: float) -> dict[str, float]:
    """What policies truly change, on many fresh contexts."""
    contexts = np.random.default_rng(0).standard_normal((20_000, 2))
    risky = added * (contexts[:, 0] > 0)
    done = risky.mean() / 2
    return {
        LEARNED: float((risky * policy.decide(contexts)).mean() - done),
        arm_name("usual"): float(-done),
        arm_name("new"): float(risky.mean() - done),
    }


def drawn(seed: int, added: float, limits: str, n_rows: int) -> tuple[bool, bool, bool]:
    """Whether a broken guardrail was called kept, for learned and for any policy; and kept ones."""
    clients = {name: rows(3 * seed + turn, added, n_rows) for turn, name in enumerate("abc")}
    run = fedopl.learn(
        clients,
        basis="linear",
        nuisances=fedopl.NuisancePlan(kind="local", propensity="marginal"),
        evaluation=fedopl.EvaluationPlan(describe=False),
        limits=limits,
        guardrails={"death": GUARDRAIL},
        seed=seed,
    )
    truth = changes(run.policy, added)
    wrong = {
        row.policy: row.verdict == "kept" and truth[row.policy] >= LIMIT
        for row in run.guardrails.rows
        if row.policy in truth
    }
    kept = run.guardrails.of(LEARNED)["death"].verdict == "kept" and truth[LEARNED] < LIMIT
    return wrong[LEARNED], any(wrong.values()), kept


def main(draws: int) -> None:
    """Print one line for each world and way to limit what clients release."""
    print(f"{draws} draws; confidence {GUARDRAIL.confidence:.0%}, limit {LIMIT}")
    for limits in ("open", "guarded"):
        for what, added, n_rows in (
            ("just broken", 0.09, 1000),
            ("just broken, few rows", 0.09, 300),
            ("kept", 0.0, 1000),
            ("kept, many rows", 0.0, 8000),
        ):
            found = np.array([drawn(seed, added, limits, n_rows) for seed in range(draws)])
            learned, anybody, kept = found.mean(axis=0)
            print(
                f"{limits:8} {what:22} called kept though broken: learned {learned:.3f}, "
                f"any {anybody:.3f}; shown to be kept: {kept:.2f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
