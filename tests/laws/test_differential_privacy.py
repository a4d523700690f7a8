"""The laws of differential privacy: what one row can move, and that noise covers it."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.messages import codec
from fedopl.messages.private.noised_scores import NoisedValues, ValuePrivately
from fedopl.messages.private.noised_sums import NoisedSums, ResidualSums, SumPrivately, SumResiduals
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.vocabulary import QUERIES, is_private, queries_of
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.privacy.accountant import mu_for
from fedopl.privacy.exact_noise import FINE
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

ACTIONS, N_FEATURES, OVERLAP = ("a", "b", "c"), 3, 0.1
FEATURES = tuple(f"x{place}" for place in range(N_FEATURES))
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
PLAN = PrivacyPlan(epsilon=1.0, outcome=(-3, 3), ranges=RANGES, steps=2)
STUDY = Study(
    actions=ACTIONS, features=FEATURES, privacy=PLAN, declared=fedopl.Declared(overlap=OVERLAP)
)
BENDING = fedopl.Basis(
    kind="splines", knots=dict.fromkeys(FEATURES, (-1.0, 0.0, 1.0)), products=FEATURES
)
BENT = STUDY.model_copy(update={"basis": BENDING})


def drawn(n_rows=40, seed=0, **changed):
    rng = np.random.default_rng(seed)
    rows = {
        "contexts": rng.normal(size=(n_rows, N_FEATURES)),
        "actions": rng.integers(3, size=n_rows),
        "rewards": rng.normal(size=n_rows),
        "propensities": np.full(n_rows, 1 / 3),
    }
    for name, (place, value) in changed.items():
        rows[name][place] = value
    return fedopl.LoggedData(**rows, action_names=ACTIONS, feature_names=FEATURES)


def space(data, study=STUDY, secret="s" * 32):
    return PrivateWorkspace(data, study, Limits.open(), PrivateDraws(0, "one", secret))


@pytest.fixture
def without_noise(monkeypatch):
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)


def query_for(rng, study=STUDY):
    size = rng.choice([0.1, 1.0, 30.0])
    parameters = size * rng.normal(size=(3, study.n_terms + 1))
    # Few policies differ from constant arms, so that often all of them take what was done.
    policies = np.zeros((2, 3, study.n_terms + 1))
    policies[:, rng.integers(3), -1] = rng.choice([1.0, 9.0])
    step = SumResiduals(number=0, n_terms=study.n_terms, parameters=parameters)
    return step, ValuePrivately(
        models=-size * policies[0], **packed([], study) | {"linear": policies}
    )


def exact(data, rng_seed, nobody=None, study=STUDY):
    """Every release without noise; a row that is nobody's adds nothing and is still counted."""
    own = space(data, study)
    # The client's own policy follows from sums with noise, of which there is none here.
    own.__dict__["local_policy"] = constant_policy("a", ACTIONS, FEATURES)
    if nobody is not None:
        used = np.ones(data.n_rows, bool)
        used[nobody] = False
        own.rows.__dict__["_is_used"] = used
    # Propensities are known, so nothing but its own part depends on the row.
    step, query = query_for(np.random.default_rng(rng_seed), study)
    values = own.noised_values(query, b"")
    return {
        (NoisedSums, "squares"): own.first_sums.squares,
        (NoisedSums, "products"): own.first_sums.products,
        (ResidualSums, "residuals"): own.residual_sums(step, b""),
        (NoisedValues, "sums"): values.sums,
        (NoisedValues, "squares"): values.squares,
    }


@pytest.mark.parametrize("study", [STUDY, BENT], ids=["linear", "bent"])
def test_no_row_moves_a_release_further_than_it_declares(without_noise, study):
    rng = np.random.default_rng(2)
    furthest = {}
    row = 0  # held out in one of four trials
    for trial in range(500):
        reach = 10.0 ** rng.integers(-1, 7)
        data = drawn(
            seed=trial,
            contexts=(row, reach * rng.normal(size=N_FEATURES)),
            rewards=(row, reach * rng.normal()),
            actions=(row, rng.integers(3)),
            propensities=(row, rng.choice([1e-9, OVERLAP, 1.0])),
        )
        with_it, without = (exact(data, trial, nobody, study) for nobody in (None, row))
        for (answer, name), sums in with_it.items():
            moved = np.linalg.norm(sums - without[answer, name])
            most = declared_moves(answer)[name].at_most(study)
            assert moved <= most * (1 + 1e-9)
            furthest[name] = max(furthest.get(name, 0), moved / most)
    # The bounds are no larger than they have to be.
    assert furthest["residuals"] > 0.99
    assert furthest["products"] > 0.99
    assert furthest["squares"] > 0.99
    assert furthest["sums"] > 0.99


@pytest.mark.parametrize("study", [STUDY, BENT], ids=["linear", "bent"])
def test_noise_is_large_enough_for_the_promise(study):
    found = PrivateSetting(study)
    moves = {
        (answer, name): declared.at_most(study)
        for answer in (NoisedSums, ResidualSums, NoisedValues)
        for name, declared in declared_moves(answer).items()
    }
    squares = (moves[NoisedSums, "squares"] / found.deviation("squares")) ** 2
    products = (moves[NoisedSums, "products"] / found.deviation("products")) ** 2
    steps = PLAN.steps * (moves[ResidualSums, "residuals"] / found.deviation("step")) ** 2
    promised = mu_for(PLAN.epsilon, PLAN.delta) ** 2 * (1 + 1e-9)
    assert squares + products + steps <= promised
    values = (moves[NoisedValues, "sums"] / found.deviation("values")) ** 2
    values += (moves[NoisedValues, "squares"] / found.deviation("value squares")) ** 2
    assert values <= promised


@pytest.mark.parametrize("study", [STUDY, BENT], ids=["linear", "bent"])
@pytest.mark.parametrize("far", [(1.7e308, -1.7e308, 1.7e308), (1e300, 1e300, 1e300), (1e40, 0, 0)])
def test_a_row_beyond_all_bounds_is_answered_like_any_other(study, far):
    """A refusal, or a number that is none, would tell of the one row that made it so."""
    for side in (True, False):
        row, data = next(
            (row, data)
            for row in range(200)
            for data in [drawn(200, contexts=(row, far), rewards=(row, (row - 1e3) * 1.7e305))]
            if space(data, study).rows.is_held_out[row] == side
        )
        step, query = query_for(np.random.default_rng(row), study)
        query = replace(
            query,
            models=1e15 * np.sign(np.arange(-6, query.models.size - 6)).reshape(query.models.shape),
        )
        for asked_for in (SumPrivately(), step, query):
            found = asked(a_door(study=study, data=data), asked_for, study)
            assert not isinstance(found, Refusal)
            numbers = [held for held in vars(found).values() if isinstance(held, np.ndarray)]
            assert all(np.isfinite(held).all() for held in numbers)


def test_a_step_of_fewer_terms_has_less_noise_and_no_row_moves_it_further(without_noise):
    few, noise = BENT.n_features, PrivateSetting(BENT)
    assert noise.step_deviation(few) < noise.deviation("step")
    furthest, row = 0.0, 0
    for trial in range(60):
        rng = np.random.default_rng(trial)
        own = 10.0 * rng.normal(size=N_FEATURES)
        data = drawn(seed=trial, contexts=(row, own), rewards=(row, 9.0 * rng.normal()))
        asked_for = SumResiduals(number=0, n_terms=few, parameters=np.zeros((3, BENT.n_terms + 1)))
        with_it, without = space(data, BENT), space(data, BENT)
        without.rows.__dict__["_is_used"] = np.arange(data.n_rows) != row
        moved = with_it.residual_sums(asked_for, b"") - without.residual_sums(asked_for, b"")
        assert not moved[:, few:-1].any()
        furthest = max(furthest, float(np.linalg.norm(moved)))
    most = noise.plan.mu * np.sqrt(0.6 / PLAN.steps) * noise.step_deviation(few)
    assert 0.9 * most < furthest <= most * (1 + 1e-9)


def test_sums_of_rows_of_which_one_is_new_have_other_noise_as_large_as_it_says(monkeypatch):
    one, other = drawn(), drawn(rewards=(0, 2.0))
    noisy = [space(data).first_sums for data in (one, other)]
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    plain = [space(data).first_sums for data in (one, other)]
    noise = [a.squares - b.squares for a, b in zip(noisy, plain, strict=True)]
    # With the same noise the difference of two answers would be the new row, exactly.
    assert (noise[0] != noise[1]).all()
    diagonal = np.diagonal(noise[0], axis1=1, axis2=2)
    beside = noise[0][:, *np.triu_indices(N_FEATURES + 1, 1)]
    deviation = PrivateSetting(STUDY).deviation("squares")
    assert 0.5 < diagonal.std() / deviation < 1.7
    assert 0.5 < beside.std() / (deviation / np.sqrt(2)) < 1.7


def test_the_same_question_has_the_same_answer_and_another_secret_other_noise():
    data = drawn()
    first, again = space(data).first_sums, space(data).first_sums
    np.testing.assert_array_equal(first.squares, again.squares)
    assert (space(data, secret="t" * 32).first_sums.squares != first.squares).all()


def test_without_a_secret_there_is_no_answer():
    with pytest.raises(fedopl.FedoplError, match="cannot be drawn from the seed"):
        space(drawn(), secret="")


# --- the door -------------------------------------------------------------------------------------


def asked(door, query, study=STUDY):
    from fedopl.messages.derived_sizes import decoder_of

    content = door.handle(codec.encode(replace(query, study=study.digest)))
    return decoder_of(study).decode(content)


def a_door(ledger=None, limits=None, study=STUDY, data=None):
    return Door(
        "one",
        drawn(200) if data is None else data,
        study,
        secret="s" * 32,
        ledger=MemoryLedger() if ledger is None else ledger,
        limits=limits or Limits(),
    )


def test_only_what_declares_how_far_a_row_moves_it_can_be_asked():
    needed = queries_of(STUDY)
    assert {query.__name__ for query in needed} == {
        "Enrol",
        "SumPrivately",
        "SumResiduals",
        "ValuePrivately",
    }
    assert all(is_private(query) for query in needed)
    undeclared = [query for query in QUERIES if not is_private(query)]
    assert len(undeclared) > 15


def a_step(number, parameters, n_terms=N_FEATURES):
    return SumResiduals(number=number, n_terms=n_terms, parameters=parameters)


def test_a_step_of_terms_that_are_no_family_is_refused():
    """Fewer terms have less noise: a server must not choose them at will."""
    found = asked(a_door(), a_step(0, np.zeros((3, N_FEATURES + 1)), n_terms=1))
    assert isinstance(found, Refusal)


def test_a_server_gets_one_set_of_sums_its_steps_and_one_set_of_values():
    door = a_door()
    assert isinstance(asked(door, SumPrivately()), NoisedSums)
    for step in range(PLAN.steps):
        found = asked(door, a_step(step, np.full((3, N_FEATURES + 1), float(step))))
        assert isinstance(found, ResidualSums)
    another = asked(door, a_step(0, np.ones((3, N_FEATURES + 1)) / 7))
    assert isinstance(another, Refusal)
    assert another.reason is RefusalCode.ASKED_ALREADY
    _, query = query_for(np.random.default_rng(0))
    assert isinstance(asked(door, query), NoisedValues)
    _, query = query_for(np.random.default_rng(1))
    assert isinstance(asked(door, query), Refusal)


def test_enrolment_counts_rows_and_nothing_else():
    found = asked(a_door(), next(q for q in queries_of(STUDY) if q.__name__ == "Enrol")())
    assert found.n_rows > 0
    assert not found.rows_per_action.any()


def test_the_owner_limits_what_all_studies_tell_together():
    ledger = MemoryLedger()
    limits = Limits(epsilon=1.6)
    assert isinstance(asked(a_door(ledger, limits), SumPrivately()), NoisedSums)
    # Asked again, by a process that starts afresh, nothing is paid twice.
    assert isinstance(asked(a_door(ledger, limits), SumPrivately()), NoisedSums)
    second = STUDY.model_copy(update={"seed": 9})
    door = a_door(ledger, limits, second)
    content = door.handle(codec.encode(SumPrivately(study=second.digest)))
    from fedopl.messages.derived_sizes import decoder_of

    # Two studies of ε = 1 have ε = 1.43 together, three 1.78.
    assert isinstance(decoder_of(second).decode(content), NoisedSums)
    third = STUDY.model_copy(update={"seed": 10})
    door = a_door(ledger, limits, third)
    content = door.handle(codec.encode(SumPrivately(study=third.digest)))
    refused = decoder_of(third).decode(content)
    assert isinstance(refused, Refusal)
    assert refused.reason is RefusalCode.PRIVACY_SPENT
