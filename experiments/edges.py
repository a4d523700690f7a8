"""Situations in which a study could say what is false: what it says, and what is true.

    python experiments/edges.py [SITUATION...]

Rows are made up, so the truth is known. Each line is the recommendation, the caution or the error
that a person would read; docs/when-not-to-believe-it.md explains them, and tests hold each.
"""

import sys
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

import fedopl
from fedopl.client.scoring.propensity import contradiction
from fedopl.report.cautions import cautions
from fedopl.report.recommending import recommend
from fedopl.study.plans import EvaluationPlan, NuisancePlan

N_COVERED = 40  # data sets whose intervals are counted
SEEDS = range(8)
# What runs that are repeated many times learn with: their actions are drawn evenly, effects linear.
QUICK = {"basis": "linear", "nuisances": NuisancePlan(propensity="marginal")}

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class Line(NamedTuple):
    """What a reader is told, beside what is so."""

    said: str
    true: str


def trial(seed: int, n_rows: int = 400, effect: float = 0.0, n_actions: int = 3) -> Arrays:
    """A uniform trial whose best action depends on the sign of the first feature."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 4))
    actions = rng.integers(0, n_actions, n_rows)
    rewards = effect * contexts[:, 0] * (actions - 1) + rng.standard_normal(n_rows)
    return contexts, actions, rewards


def logged(arrays: Arrays, **options: object) -> fedopl.LoggedData:
    """These rows as a client holds them."""
    n_actions = max(3, int(arrays[1].max()) + 1)
    names = [f"a{code}" for code in range(n_actions)]
    return fedopl.LoggedData(*arrays, action_names=names, **options)


def told(run: fedopl.Run, *about: str) -> str:
    """The recommendation, and the cautions whose titles have one of these words."""
    found = [one for one in cautions(run) if any(word in one.title.lower() for word in about)]
    return " ".join([recommend(run).sentence, *(f"[{one.title}] {one.what}" for one in found)])


def one_held_out_group() -> Line:
    """Three schools, of which one at most is held out."""
    contexts, actions, rewards = trial(0, 120, 1.0)
    rewards += np.repeat(np.random.default_rng(1).normal(0, 3, 3), 40)
    groups = np.repeat(np.arange(3), 40)
    schools = {"three schools": logged((contexts, actions, rewards), groups=groups)}
    run = fedopl.learn(schools, evaluation=0.25)
    return Line(told(run, "interval"), "one held-out group shows no spread: nothing is known")


def no_effect() -> Line:
    """Three clients in whose trial nothing works."""
    run = fedopl.learn({name: logged(trial(seed)) for seed, name in enumerate("xyz")})
    return Line(told(run), "no action is better than another")


def rare_arms() -> Line:
    """Four arms that one row in thirty took, all of them worse."""
    clients = {}
    for seed, name in enumerate("xyz"):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((600, 3))
        actions = rng.choice(6, 600, p=[0.7, 0.18, 0.03, 0.03, 0.03, 0.03])
        rewards = -0.3 * (actions > 1) + 2 * rng.standard_normal(600)
        clients[name] = logged((contexts, actions, rewards))
    run = fedopl.learn(clients, nuisances=NuisancePlan(propensity="marginal"))
    return Line(told(run), "the four rare arms are 0.3 worse than the two usual ones")


def a_well_personalised_past() -> Line:
    """A past that gave most people what is best for them."""
    clients = {}
    for seed, name in enumerate("xyz"):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((800, 3))
        best = (contexts[:, 0] > 0).astype(int)
        actions = np.where(rng.random(800) < 0.85, best, 1 - best)
        rewards = 0.5 * (actions == best) + rng.standard_normal(800)
        clients[name] = fedopl.LoggedData(contexts, actions, rewards, action_names=["a", "b"])
    run = fedopl.learn(clients)
    return Line(told(run), "what was done is worth 0.425, either arm 0.25, the best policy 0.5")


def wrong_propensities() -> Line:
    """The probability of treatment in place of that of the action taken."""
    arrays = trial(0, 600)
    said = contradiction(logged(arrays, propensities=np.full(600, 0.9)))
    return Line(str(said), "each of three arms was taken with chance 1/3")


def many_actions() -> Line:
    """More actions than a client has rows to fit models for."""
    clients = {name: logged(trial(seed, 2_000, 0.0, 34)) for seed, name in enumerate("xy")}
    run = fedopl.learn(clients, limits="guarded")
    used = run.values.of("learned").rows_used if run.values.rows else "none"
    return Line(
        f"{told(run, 'score', 'part')} Rows used: {used}.",
        "no action is better than another; all rows can be used",
    )


def clip_with_one_client() -> Line:
    """One client, so that the learned policy is its local one."""
    data = logged(trial(0, 600, 1.0))
    plan = NuisancePlan(kind="local", clip=0.2)
    run = fedopl.learn({"only": data}, nuisances=plan)
    gain = run.gains.over("local policy")
    return Line(f"gain over its own local policy: {gain.value:.3g}", "it is the same policy: 0")


def few_rows_and_seeds() -> Line:
    """The same rows, split in eight ways."""
    clients = {name: logged(trial(seed, 150, 0.5)) for seed, name in enumerate("vwxyz")}
    found = {}
    for kind in (0.25, "cross-fitted"):
        gains = [
            fedopl.learn(clients, evaluation=kind, seed=seed, **QUICK).gains.over("logging policy")
            for seed in SEEDS
        ]
        found[kind] = np.std([gain.value for gain in gains])
    return Line(
        "the gain over logging moves with the seed by "
        + " and ".join(f"{spread:.3f} ({kind})" for kind, spread in found.items()),
        "it is one data set: it should not move",
    )


def few_rows_and_splits() -> Line:
    """The same rows by eight seeds, under five splits each: the median, and each split alone."""
    clients = {name: logged(trial(seed, 150, 0.15)) for seed, name in enumerate("vwxyz")}
    plan = EvaluationPlan(kind="cross-fitted", splits=5, describe=False)
    runs = [fedopl.learn(clients, evaluation=plan, seed=seed, **QUICK) for seed in SEEDS]
    together = [run.gains.over("logging policy") for run in runs]
    alone = [split.gains.over("logging policy") for run in runs for split in run.splits]
    moved = [np.std([gain.value for gain in gains]) for gains in (alone, together)]
    better = [np.mean([gain.interval()[0] > 0 for gain in gains]) for gains in (alone, together)]
    return Line(
        f"the gain over logging moves by {moved[0]:.3f} with one split and by {moved[1]:.3f} with "
        f"the median of five; {better[0]:.0%} and {better[1]:.0%} say 'better'",
        "it is one data set: it should not move, and verdicts should agree",
    )


def coverage_under_splits() -> Line:
    """Other rows each time: how often the interval under five splits holds the policy's gain."""
    wide = np.random.default_rng(99).standard_normal((20_000, 4))
    covered = dict.fromkeys(("held-out", "cross-fitted"), 0)
    for kind, seed in product(covered, range(N_COVERED)):
        rows = {name: logged(trial(3 * seed + k, 120, 0.5)) for k, name in enumerate("xyz")}
        plan = EvaluationPlan(kind=kind, splits=5, describe=False)
        run = fedopl.learn(rows, evaluation=plan, seed=seed, **QUICK)
        assert run.policy is not None  # noqa: S101
        low, high = run.gains.over("logging policy").interval()
        # In a uniform trial around no effect, what was done is worth nothing.
        worth = (0.5 * wide[:, 0] * (run.policy.decide(wide) - 1)).mean()
        covered[kind] += bool(low <= worth <= high)
    return Line(
        f"95 % intervals of {N_COVERED} data sets under five splits cover: "
        + ", ".join(f"{kind} {count / N_COVERED:.0%}" for kind, count in covered.items()),
        "95 % or more",
    )


def identical_clients() -> Line:
    """Clients that differ by chance alone."""
    clients = {name: logged(trial(seed, 400, 1.0)) for seed, name in enumerate("xyz")}
    run = fedopl.learn(clients, diagnose=True)
    coalitions = run.diagnosis and run.diagnosis.coalitions
    if not coalitions:
        return Line("nothing about coalitions", "clients are draws of one world")
    said = f"everybody together is stable: {coalitions.grand.stability}; surely leave: "
    return Line(
        said + (", ".join(coalitions.grand.leavers) or "nobody"),
        "clients are draws of one world: nobody has reason to leave",
    )


def models_too_simple(basis: str = "linear") -> Line:
    """Outcomes and logging that both bend, for models that do not."""
    clients = {}
    for seed, name in enumerate("vwxyz"):
        rng = np.random.default_rng(seed)
        contexts = rng.uniform(-2, 2, (400, 3))
        bent = contexts[:, 0] ** 2 > 1.3
        actions = (rng.random(400) < np.where(bent, 0.85, 0.15)).astype(int)
        rewards = 2.0 * bent + 0.2 * actions + rng.standard_normal(400)
        clients[name] = fedopl.LoggedData(contexts, actions, rewards, action_names=["a", "b"])
    plan = NuisancePlan(propensity="logistic")
    run = fedopl.learn(clients, basis=basis, nuisances=plan)
    return Line(
        told(run, "too simple", "balance"),
        "b is 0.2 better for everybody, 0.1 than what was done; who got it was better off",
    )


def an_unlikely_action() -> Line:
    """An action that one row in fifty took, where few weights carry its value."""
    clients = {}
    for seed, name in enumerate("xyz"):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((500, 2))
        chance = np.clip(0.5 / (1 + np.exp(4 + 2.5 * contexts[:, 0])), 0.004, 0.5)
        actions = (rng.random(500) < chance).astype(int)
        rewards = contexts[:, 0] * actions + rng.standard_normal(500)
        known = np.where(actions == 1, chance, 1 - chance)
        clients[name] = fedopl.LoggedData(
            contexts, actions, rewards, known, action_names=["usual", "rare"]
        )
    run = fedopl.learn(clients)
    return Line(told(run, "weights", "unlikely", "one row"), "few rows say anything about 'rare'")


SITUATIONS: dict[str, Callable[[], Line]] = {
    "one held-out group": one_held_out_group,
    "no effect anywhere": no_effect,
    "rare arms": rare_arms,
    "a well personalised past": a_well_personalised_past,
    "impossible known propensities": wrong_propensities,
    "34 actions, default limits": many_actions,
    "one client, local models, clip": clip_with_one_client,
    "5 clients of 150 rows, 8 seeds": few_rows_and_seeds,
    "5 clients of 150 rows, 8 seeds, 5 splits": few_rows_and_splits,
    "3 clients of 120 rows, coverage under 5 splits": coverage_under_splits,
    "identical clients": identical_clients,
    "models too simple for outcomes and logging": models_too_simple,
    "outcome models that bend, logging that is not explained": lambda: models_too_simple("auto"),
    "an action that hardly anybody got": an_unlikely_action,
}


def main(wanted: list[str]) -> None:
    """Print what is said and what is true, situation by situation."""
    unknown = [name for name in wanted if name not in SITUATIONS]
    if unknown:
        sys.exit(f"edges: there is no situation {unknown[0]!r}; there are {', '.join(SITUATIONS)}")
    for name in wanted or SITUATIONS:
        line = SITUATIONS[name]()
        print(f"{name}\n  said: {line.said}\n  true: {line.true}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
