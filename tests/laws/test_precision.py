"""Clients that count by noise: less error where they are alike, and the same target where not."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.policies.linear import NEVER
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.simulation.named_worlds import shaped_world

pytestmark = pytest.mark.usefixtures("without_figures")

N_FEATURES, N_ACTIONS = 3, 3
STUDY = fedopl.Study(actions=("a", "b", "c"), features=("x", "y", "z"))
NAMES = ("east", "north", "west")


def weighing(precision, study=STUDY):
    policy = study.linear.model_copy(update={"precision": precision})
    return study.model_copy(update={"policy": policy})


def sums_of(effects, n_rows, *, noise=1.0, seed=0, common=None, known=None):
    """One client's sums: scores are linear, with these effects (n_actions, n_features + 1)."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.normal(size=(n_rows, N_FEATURES)), np.ones(n_rows)])
    scores = rows @ np.asarray(effects).T + noise * rng.normal(size=(n_rows, N_ACTIONS))
    if common is not None:
        scores += (rows @ common)[:, None]
    has = np.ones(N_ACTIONS) if known is None else np.asarray(known, float)
    gram = rows.T @ rows / n_rows
    return ScoreSums(
        grams=gram[None] if has.all() else has[:, None, None] * gram,
        products=has[:, None] * (scores.T @ rows) / n_rows,
        squares=has * (scores**2).mean(axis=0),
        shares=has,
    )


def statistics(sums, n_rows, precision="auto", study=STUDY):
    rows = dict.fromkeys(sums, n_rows) if isinstance(n_rows, int) else n_rows
    return ScoreStatistics(study=weighing(precision, study), sums=sums, rows=rows)


def contrasts(policy):
    return policy.parameters - policy.parameters.mean(axis=0)


def mixed(by_client):
    """Σ λ_c·θ_c, the best coefficients for the mixture: contexts are alike everywhere."""
    found = np.mean(list(by_client.values()), axis=0)
    return found - found.mean(axis=0)


EQUAL = dict.fromkeys(NAMES, 1 / 3)
EFFECTS = np.random.default_rng(9).normal(size=(N_ACTIONS, N_FEATURES + 1))
ALIKE = dict.fromkeys(NAMES, EFFECTS)
DIFFERENT = ALIKE | {"north": 3 * np.random.default_rng(4).normal(size=EFFECTS.shape)}
NOISE = {"east": 1.0, "north": 10.0, "west": 1.0}


def drawn(effects, n_rows, seed=0, **more):
    places = enumerate(sorted(effects))
    return {
        name: sums_of(effects[name], n_rows, noise=NOISE[name], seed=10 * seed + place, **more)
        for place, name in places
    }


def mean_error(effects, n_rows, precision, draws=8):
    wanted = mixed(effects)
    solved = [
        statistics(drawn(effects, n_rows, seed), n_rows, precision).solve(EQUAL)
        for seed in range(draws)
    ]
    return float(np.mean([np.linalg.norm(contrasts(one) - wanted) for one in solved]))


def test_where_clients_are_alike_one_noisy_client_does_little_harm():
    assert mean_error(ALIKE, 300, "auto") < 0.35 * mean_error(ALIKE, 300, "rows")


def test_where_clients_differ_the_target_stays_that_of_the_mixture():
    errors = [mean_error(DIFFERENT, n_rows, "auto", draws=3) for n_rows in (300, 3_000, 100_000)]
    assert errors[2] < 0.1 * errors[0]
    assert errors[2] < 1.1 * mean_error(DIFFERENT, 100_000, "rows", draws=3)
    # The target of precision alone is another one, however many rows there are.
    assert mean_error(DIFFERENT, 100_000, "clients", draws=3) > 20 * errors[2]
    weights = statistics(drawn(DIFFERENT, 100_000), 100_000).noise_weights(EQUAL).weights
    assert weights == pytest.approx(EQUAL, abs=0.01)


def test_misfit_is_not_taken_for_noise():
    sums = {name: sums_of(DIFFERENT[name], 500, seed=place) for place, name in enumerate(NAMES)}
    by_noise = statistics(sums, 500).noise_weights(EQUAL)
    assert by_noise.weights == pytest.approx(EQUAL, abs=0.02)
    assert mean_error(DIFFERENT, 300, "auto") < 1.15 * mean_error(DIFFERENT, 300, "rows")


def test_what_all_actions_have_in_common_at_a_client_decides_nothing():
    levels = dict(
        zip(NAMES, np.random.default_rng(2).normal(0, 3, (3, N_FEATURES + 1)), strict=True)
    )
    plain, moved = drawn(ALIKE, 300), {}
    for place, name in enumerate(NAMES):
        moved[name] = sums_of(EFFECTS, 300, noise=NOISE[name], seed=place, common=levels[name])
    for precision, apart in (("auto", 0.01), ("rows", 1e-9)):
        before, after = (
            contrasts(statistics(sums, 300, precision).solve(EQUAL)) for sums in (plain, moved)
        )
        assert np.linalg.norm(after - before) < apart
    before, after = (
        contrasts(statistics(sums, 300, "clients").solve(EQUAL)) for sums in (plain, moved)
    )
    assert np.linalg.norm(after - before) > 0.1


def test_one_client_counts_by_rows_to_the_last_bit():
    sums = {"east": sums_of(EFFECTS, 300)}
    alone = [statistics(sums, 300, how).solve({"east": 1.0}).parameters for how in ("auto", "rows")]
    np.testing.assert_array_equal(*alone)


def test_clients_without_weight_are_not_learned_from():
    sums = drawn(ALIKE, 300)
    weights = {"east": 0.5, "north": 0.5, "west": 0.0}
    both = {name: sums[name] for name in ("east", "north")}
    alone, beside = statistics(both, 300), statistics(sums, 300)
    expected = alone.solve({"east": 0.5, "north": 0.5}).parameters
    np.testing.assert_allclose(beside.solve(weights).parameters, expected, rtol=1e-12)


def test_few_rows_say_little_of_noise():
    rng, sums = np.random.default_rng(0), {}
    for place, name in enumerate(NAMES):
        sums[name] = sums_of(EFFECTS, 8, noise=rng.uniform(0.5, 2), seed=place)
    found = statistics(sums, 8).noise_weights(EQUAL).weights
    assert max(found.values()) < 0.45


@pytest.mark.parametrize("lacking", [("north",), NAMES])
def test_an_action_without_scores_is_left_to_those_who_have_some(lacking):
    sums = {
        name: sums_of(
            EFFECTS, 300, noise=NOISE[name], seed=place, known=[1, 1, name not in lacking]
        )
        for place, name in enumerate(NAMES)
    }
    solved = statistics(sums, 300).solve(EQUAL).parameters
    assert np.isfinite(solved).all()
    assert (solved[2, -1] == NEVER) == (lacking == NAMES)
    by_rows = statistics(sums, 300, "rows").solve(EQUAL).parameters
    apart = [
        np.linalg.norm((one - one[0])[1] - (EFFECTS - EFFECTS[0])[1]) for one in (solved, by_rows)
    ]
    assert apart[0] < apart[1]


def test_blocks_of_features_have_no_score_in_common():
    study = fedopl.Study(
        actions=("a", "b"), features=("x", "y"), policy=fedopl.Linear(features="blocks")
    )
    sums = {}
    for place, name in enumerate(NAMES):
        rng = np.random.default_rng(place)
        blocks = [np.column_stack([rng.normal(size=400), np.ones(400)]) for _ in range(2)]
        noise = NOISE[name] * rng.normal(size=(2, 400))
        scores = np.stack([blocks[0][:, 0], -blocks[1][:, 0]]) + noise
        sums[name] = ScoreSums(
            grams=np.stack([own.T @ own for own in blocks]) / 400,
            products=np.stack([s @ own for s, own in zip(scores, blocks, strict=True)]) / 400,
            squares=(scores**2).mean(axis=1),
            shares=np.ones(2),
        )
    found = {
        how: statistics(sums, 400, how, study).solve(EQUAL).parameters for how in ("auto", "rows")
    }
    errors = {how: np.linalg.norm(one - [[1, 0, 0], [0, -1, 0]]) for how, one in found.items()}
    assert errors["auto"] < min(0.12, errors["rows"])


def test_no_client_gets_more_than_the_largest_share():
    study = STUDY.model_copy(update={"mixture": fedopl.mixture.empirical(largest_share=0.4)})
    sums = drawn(ALIKE, 300)
    weights = {"east": 0.4, "north": 0.4, "west": 0.2}
    free = statistics(sums, 300).noise_weights(weights).weights
    capped = statistics(sums, 300, study=study).noise_weights(weights).weights
    assert max(free.values()) > 0.45
    assert max(capped.values()) <= 0.4 + 1e-12
    assert sum(capped.values()) == pytest.approx(1)


def test_who_never_took_an_action_does_not_look_precise_by_scoring_it_with_the_others_model():
    sums = {name: sums_of(EFFECTS, 300, seed=place) for place, name in enumerate(NAMES)}
    model = EFFECTS[2] @ sums["north"].grams[0]
    products, squares = sums["north"].products.copy(), sums["north"].squares.copy()
    products[2], squares[2] = model, model @ EFFECTS[2]
    sums["north"] = replace(sums["north"], products=products, squares=squares)
    plain = statistics(sums, 300)
    assert plain.noise_weights(EQUAL).weights["north"] > 0.4
    known = replace(statistics(sums, 300), borrowed={"north": np.array([False, False, True])})
    assert known.noise_weights(EQUAL).weights["north"] == pytest.approx(1 / 3, abs=0.03)


def with_invented(lie, seed):
    """Three alike clients, one of which invents sums that have no noise at all."""
    sums = {name: sums_of(EFFECTS, 300, seed=10 * seed + place) for place, name in enumerate(NAMES)}
    products = lie @ sums["north"].grams[0]
    invented = replace(sums["north"], products=products, squares=(products * lie).sum(axis=1))
    return sums | {"north": invented}


@pytest.mark.parametrize("size", [0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0])
def test_invented_sums_without_noise_move_the_policy_hardly_further(size):
    lie = EFFECTS + size * np.random.default_rng(1).normal(size=EFFECTS.shape) / 3
    errors = {"auto": 0.0, "rows": 0.0}
    for seed in range(4):
        sums = with_invented(lie, seed)
        for precision in errors:
            solved = contrasts(statistics(sums, 300, precision).solve(EQUAL))
            errors[precision] += float(np.linalg.norm(solved - mixed(ALIKE)))
    assert errors["auto"] < 1.4 * errors["rows"]
    if size >= 1:
        by_noise = statistics(sums, 300).noise_weights(EQUAL)
        assert by_noise.weights["north"] < 0.4


def test_the_order_of_clients_changes_no_bit():
    sums = drawn(ALIKE, 300)
    turned = dict(reversed(sums.items()))
    both = [statistics(one, 300).solve(EQUAL).parameters for one in (sums, turned)]
    np.testing.assert_array_equal(*both)


@pytest.mark.parametrize("known", [[1, 1, 1], [1, 1, 0]])
def test_without_a_client_noise_is_that_of_the_others_to_the_last_bit(known):
    """Also where the client that is left out was the only one with scores of an action."""
    sums = drawn(ALIKE, 300)
    others = {"east": 0.5, "west": 0.5}
    sums |= {name: sums_of(EFFECTS, 300, noise=NOISE[name], seed=3, known=known) for name in others}
    everybody = statistics(sums, 300)
    everybody.noise_weights(EQUAL)
    left = everybody.restricted(others).noise_weights(others)
    alone = statistics({name: sums[name] for name in others}, 300).noise_weights(others)
    for name in others:
        np.testing.assert_array_equal(left.emphasis[name], alone.emphasis[name])


# --- whole runs -----------------------------------------------------------------------------------


def logged(name, n_rows, seed=0):
    """A world's rows, with the propensities that they were logged with."""
    world = shaped_world(name, seed)
    rows = {
        client: fedopl.LoggedData(
            data.contexts,
            data.actions,
            data.rewards,
            action_names=data.action_names,
            propensities=world.propensities(client, data.contexts),
        )
        for client, data in world.all_logged(n_rows).items()
    }
    return world, rows


def learned(rows, precision, **options):
    plan = {"basis": "linear", "evaluation": 0, "policy": fedopl.Linear(precision=precision)}
    return fedopl.learn(rows, **plan | options)


@pytest.mark.parametrize("basis", [None, "auto"])
def test_one_noisy_client_is_weighed_down_with_and_without_a_basis(basis):
    regrets = {"rows": 0.0, "auto": 0.0}
    for seed in (1, 2):
        world, rows = logged("noisy-client", 400, seed)
        for precision in regrets:
            policy = learned(rows, precision, basis=basis).policy
            regrets[precision] += world.regret(policy, 4_000)
    assert regrets["auto"] < 0.3 * regrets["rows"]


def test_a_client_with_other_and_larger_effects_is_not_harmed():
    regrets = dict.fromkeys(("rows", "auto", "clients"), 0.0)
    for seed in (0, 1, 2):
        world, rows = logged("larger-effects", 400, seed)
        for precision in regrets:
            regrets[precision] += world.regret(learned(rows, precision).policy, 4_000)
    assert regrets["auto"] < 1.05 * regrets["rows"]
    assert regrets["clients"] > 1.2 * regrets["auto"]


@pytest.mark.parametrize(
    "options",
    [
        {"mixture": "minimax", "basis": "auto"},
        {"mixture": fedopl.mixture.path("client 1"), "basis": "auto"},
        {"evaluation": fedopl.EvaluationPlan(kind="cross-fitted"), "basis": "auto"},
        {"policy": fedopl.Linear(precision="auto", oracle="direct")},
        {"policy": fedopl.Linear(precision="auto", features="blocks")},
        {"nuisances": fedopl.NuisancePlan(kind="local", unseen="mask")},
        {"diagnose": True},
    ],
    ids=["minimax", "path", "cross-fitted", "direct", "blocks", "local", "diagnose"],
)
def test_weights_by_noise_go_with_everything_else(options):
    _, rows = logged("noisy-client", 200)
    run = learned(rows, "auto", **{"evaluation": 0.25} | options)
    assert np.isfinite(run.policy.parameters).all()
    by_noise = run.statistics.noise_weights(run.mixture)
    if by_noise is not None and run.mixture["client 1"] > 0:
        assert by_noise.weights["client 1"] < run.mixture["client 1"]


def test_robust_weights_are_not_given_back_by_noise():
    _, rows = logged("few-rows", 60)
    liar = next(iter(rows))
    far = rows[liar]
    rows[liar] = fedopl.LoggedData(
        far.contexts, far.actions, 50 - 50 * far.actions, action_names=far.action_names
    )
    run = learned(rows, "auto", mixture=fedopl.mixture.empirical(robust="trimmed"))
    assert run.mixture[liar] == 0
    assert run.statistics.noise_weights(run.mixture) is None


def test_a_saved_run_solves_again_and_says_who_counted_for_what(tmp_path):
    _, rows = logged("noisy-client", 300)
    run = learned(rows, "auto", basis="auto", evaluation=0.25)
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    for mixture in ("empirical", {"client 1": 0.8, "client 2": 0.1, "client 3": 0.1}):
        both = [one.resolve(mixture).numbers() for one in (run, again)]
        np.testing.assert_array_equal(*both)
    np.testing.assert_array_equal(again.resolve("empirical").numbers(), run.policy.numbers())
    fedopl.write_report(again, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "In learning, clients with noisier scores count less" in page
    assert "Weight in learning" in page
    assert "pooled scores would have given" not in page


def test_a_client_with_one_row_says_nothing_of_noise_and_stops_nobody():
    """One row has no error about a model of other rows; the others' mean stands in."""
    few = {name: sums_of(EFFECTS, 200, seed=place) for place, name in enumerate(NAMES)}
    few["north"] = sums_of(EFFECTS, 1, seed=7)
    rows = {"east": 200, "north": 1, "west": 200}
    found = statistics(few, rows).solve({"east": 0.499, "north": 0.002, "west": 0.499})
    assert np.isfinite(found.parameters).all()
