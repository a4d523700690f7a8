"""Law: with a basis, what is learned is what all rows together would teach, and it bends."""

from dataclasses import replace

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.client.drafted_basis import drafted_basis
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.refusal import Refusal
from fedopl.policies.basis import Basis
from fedopl.results.sums.term_choice import choose_terms, plainest_as_good

FRESH = np.random.default_rng(99).standard_normal((20_000, 3))


def effect(contexts, bends):
    return np.sin(2 * contexts[:, 0]) + contexts[:, 1] ** 2 - 1 if bends else contexts[:, 0]


def drawn(seed, n_rows=900, *, bends=True):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.integers(0, 2, n_rows)
    rewards = np.where(actions == 1, effect(contexts, bends), 0) + rng.standard_normal(n_rows)
    return LoggedData(contexts, actions, rewards, 0.5, action_names=("no", "yes"))


def clients(seed, *, bends=True):
    return {name: drawn([seed, place], bends=bends) for place, name in enumerate("abc")}


def regret(policy, *, bends=True):
    gain = effect(FRESH, bends)
    return float(np.mean(np.maximum(gain, 0) - gain * policy.decide(FRESH)))


@pytest.fixture(scope="module")
def bent():
    return fedopl.learn(clients(0), basis="auto")


def test_what_bends_is_learned_and_what_does_not_stays_straight(bent):
    straight = fedopl.learn(clients(0), basis="linear")
    assert regret(bent.policy) < 0.15 * regret(straight.policy)
    assert bent.statistics.choice.family in ("splines", "steps", "hinges")
    linear = [
        fedopl.learn(clients(seed, bends=False), basis=basis)
        for seed in (1, 2, 3)
        for basis in ("auto", None)
    ]
    losses = [regret(run.policy, bends=False) for run in linear]
    assert [run.statistics.choice.family for run in linear[::2]] == ["linear"] * 3
    assert sum(losses[::2]) <= 1.2 * sum(losses[1::2])


def test_a_richer_family_has_to_be_better_by_a_standard_error():
    plain = np.array([1.0, 1.2, 0.9, 1.1, 1.0])
    apart = np.array([0.1, -0.1, 0.2, -0.2, 0.1])  # .02 less on average, with an error of .07
    assert plainest_as_good({"linear": plain, "hinges": plain - apart}) == "linear"
    surely = {"linear": plain, "hinges": plain - apart, "splines": plain - 0.1 - apart / 10}
    assert plainest_as_good(surely) == "splines"
    assert plainest_as_good(surely | {"steps": surely["splines"] - apart}) == "splines"


def test_outcome_models_that_bend_narrow_intervals():
    logging = [fedopl.learn(clients(0), basis=basis).gains for basis in ("auto", None)]
    bent, straight = (table.over("everybody gets no").standard_error for table in logging)
    assert bent < straight


def test_one_seed_gives_one_result_whatever_the_order(bent):
    again = fedopl.learn(dict(reversed(clients(0).items())), basis="auto")
    assert np.array_equal(again.policy.parameters, bent.policy.parameters)


def test_a_run_is_saved_and_solved_again(bent, tmp_path):
    bent.save(tmp_path)
    loaded = fedopl.load_run(tmp_path)
    assert loaded.statistics.choice.losses == bent.statistics.choice.losses
    again = loaded.statistics.solve(loaded.mixture)
    assert np.array_equal(again.parameters, bent.policy.parameters)


def test_what_actions_have_in_common_moves_no_decision(bent):
    """Penalties are for what tells actions apart."""
    common = np.random.default_rng(5).standard_normal(bent.study.n_terms + 1)
    sums = {
        name: replace(own, products=own.products + own.grams[0] @ common)
        for name, own in bent.statistics.sums.items()
    }
    choice = replace(bent.statistics.choice, penalties=np.array([0.01, 1.0]))
    plain = replace(bent.statistics, choice=choice)
    policy, moved = (one.solve(bent.mixture) for one in (plain, replace(plain, sums=sums)))
    assert not np.allclose(moved.parameters, policy.parameters)
    assert np.mean(moved.decide(FRESH) == policy.decide(FRESH)) > 0.9999


def test_values_across_folds_choose_terms_without_the_fold(monkeypatch):
    chosen = []

    def spy(study, by_fold, weights, folds, *more):
        chosen.append(folds)
        return choose_terms(study, by_fold, weights, folds, *more)

    monkeypatch.setattr("fedopl.server.aggregate.setting.choose_terms", spy)
    run = fedopl.learn(clients(0), basis="auto", evaluation="cross-fitted")
    assert chosen == [[other for other in range(5) if other != fold] for fold in range(5)]
    gain = run.gains.over("everybody gets no")
    best = float(np.mean(np.maximum(effect(FRESH, bends=True), 0)))
    assert abs(gain.value - best) < 4 * gain.standard_error


def test_alone_terms_are_chosen_as_if_nothing_were_shared_between_folds(monkeypatch):
    shared = []

    def spy(*given, paths, **more):
        found, again = (choose_terms(*given, paths=own, **more) for own in (paths, None))
        assert (found.family, found.losses) == (again.family, again.losses)
        assert np.array_equal(found.penalties, again.penalties)
        shared.append(paths)
        return found

    monkeypatch.setattr("fedopl.client.local.local_policy.choose_terms", spy)
    fedopl.learn(clients(0), basis="auto", evaluation="cross-fitted")
    assert {len({folds for folds, _ in own}) for own in shared[4::5]} == {10}  # pairs of folds


@pytest.mark.parametrize("policy", ["tree", "finite"])
def test_other_kinds_of_policies_have_scores_by_models_that_bend(policy):
    bent, straight = (
        fedopl.learn(clients(0), basis=basis, policy=policy) for basis in ("auto", None)
    )
    arm = "everybody gets yes"
    assert bent.values.of(arm).standard_error < straight.values.of(arm).standard_error


def test_a_path_of_mixtures_has_a_basis_too():
    run = fedopl.learn(clients(0), basis="auto", mixture=fedopl.mixture.path("a"))
    assert regret(run.policy) < 0.1


# --- how rich it may be ---------------------------------------------------------------------------


def test_few_rows_and_guarded_limits_leave_everything_straight():
    few = {name: drawn(place, 30) for place, name in enumerate("ab")}
    assert fedopl.learn(few, basis="auto", limits="guarded").study.basis is None
    some = {name: drawn(place, 500) for place, name in enumerate("ab")}
    run = fedopl.learn(some, basis="auto", limits="guarded")
    assert run.study.basis is not None
    assert all(name in run.rows for name in some)


def test_knots_are_round_and_numbers_with_a_few_values_have_none():
    rng = np.random.default_rng(0)
    columns = {
        "age": [rng.normal(62.3, 14.1, 500)],
        "grade": [rng.integers(0, 5, 500).astype(float)],
    }
    basis = drafted_basis(columns)
    assert list(basis.knots) == ["age"]
    assert all(knot == round(knot) for knot in basis.knots["age"])
    assert drafted_basis({"grade": columns["grade"]}) is None
    # Terms of a number that hardly differs from a large one would have the same name.
    assert drafted_basis({"time": [1.7e12 + rng.standard_normal(500)]}) is None
    many = {f"x{place}": [rng.standard_normal(100)] for place in range(40)}
    assert drafted_basis(many).products == ()
    with pytest.raises(fedopl.FedoplError, match="basis: expected auto, linear"):
        drafted_basis(columns, "cubic")


# --- a study that aims at a few -------------------------------------------------------------------


def aimed_at(data, person, apart):
    """Steps so steep that past two of them there is hardly anybody but the person."""
    places = np.argsort(-data.contexts[person])[:2]
    knots = {}
    for place in places:
        at = data.contexts[person, place] * 0.999
        knots[f"x{place}"] = (at - apart, at, at + apart)
    return Basis(kind="steps", knots=knots, products=tuple(knots)), places


@pytest.mark.parametrize("limit", ["guarded", "open"])
def test_a_step_that_only_a_few_are_past_discloses_none_of_them(limit):
    data = rows(2000)
    person = int(np.argmax(np.sort(data.contexts, axis=1)[:, -2:].sum(axis=1)))
    basis, _ = aimed_at(data, person, 1e-3)
    study = study_with(basis=basis, evaluation=0)
    limits = fedopl.Limits() if limit == "guarded" else fedopl.Limits.open()
    answer = LyingServer(data, study, limits=limits).ask(SumOutcomes)
    assert not isinstance(answer, Refusal)
    # Σ term·x over all folds and actions, for the product of both steps.
    column = answer.sums.sum(axis=(0, 1))[study.n_terms - 1]
    past = np.abs(column[:N_FEATURES]).sum() > 1e-6
    assert past == (limit == "open")
    if past:
        weight = column[-2]
        found = column[:N_FEATURES] / weight
        assert np.abs(found - data.contexts[person]).max() < 1.5  # the attack works without limits
    assert len(ACTIONS) == answer.sums.shape[1]


def asked(data, study):
    """All that sums of outcomes and of scores say of (terms, 1), over everybody."""
    server = LyingServer(data, study)
    outcomes = server.ask(SumOutcomes).sums.sum(axis=(0, 1))[:-1, :-1]
    models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
    scores = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    return outcomes, scores.grams[0] * data.n_rows


def combined(sums, study, weights):
    """Σ f(x)·(x, 1), f being a combination of terms and the constant."""
    named = {name: place for place, name in enumerate((*study.terms.names, ""))}
    return sum(weight * sums[named[name]] for name, weight in weights.items())[
        [*range(N_FEATURES), -1]
    ]


def window(data):
    """Knots so close that two people are between the outer ones, and what singles them out."""
    ordered = np.sort(data.contexts[:, 0])
    place = np.argmax(ordered > 0.5)
    low, high = ordered[place - 1 : place + 1].mean(), ordered[place + 1 : place + 3].mean()
    inside = (data.contexts[:, 0] > low) & (data.contexts[:, 0] < high)
    knots = tuple(np.linspace(low, high, 3))
    names = [f"x0 above {knot:g}" for knot in knots]
    basis = Basis(kind="hinges", knots={"x0": knots})
    return basis, dict(zip(names, (1, -2, 1), strict=True)), inside


def corner(data):
    """Knots so close that numbers are mere sides of them, and two people are past both."""
    for at in np.linspace(1, 2.2, 200):
        past = (data.contexts[:, :2] > at).all(axis=1)
        if past.sum() == 2:
            break
    knots = (at - 1e-5, at, at + 1e-5)
    basis = Basis(kind="splines", knots={"x0": knots, "x1": knots}, products=("x0", "x1"))
    # In units a number is −3 below and 3 above, so this is 1 past both and 0 elsewhere.
    weights = {"x0 × x1": 1 / 36, "": -0.25}
    return basis, weights | {f"x{n} above {knots[0]:g}": 1 / 8 for n in (0, 1)}, past


@pytest.mark.parametrize("aim", [window, corner])
def test_a_study_whose_knots_are_around_two_people_discloses_both(aim):
    """The exact contract does not promise otherwise: sums of terms that are agreed on are exact."""
    data = rows(2000)
    basis, weights, people = aim(data)
    assert people.sum() == 2
    study = study_with(basis=basis, evaluation=0)
    inside = study.terms.of(data.contexts)[people]
    places = [study.terms.names.index(name) for name in weights if name]
    own = inside[:, places] @ [weight for name, weight in weights.items() if name]
    own += weights.get("", 0)
    whole = np.column_stack([data.contexts[people], np.ones(2)])
    truth = (own[:, None] * whole).sum(axis=0)
    for sums in asked(data, study):
        found = combined(sums, study, weights)
        assert np.abs(found - truth).max() < 0.1 * np.abs(truth).max()
