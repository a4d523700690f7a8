"""The laws of gradients with noise: who takes part in a step stays secret, and noise is enough."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger, left_for, promised_in_all, summaries
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_sums import NoisedSums, ResidualSums, SumPrivately, SumResiduals
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.sensitivity import declared_moves
from fedopl.privacy.exact_noise import FINE
from fedopl.privacy.subsampled import SLIP, PrivacyLosses, SampledSteps
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

FEATURES, RATE, ROUNDS = ("x0", "x1"), 0.25, 12
PLAN = fedopl.PrivacyPlan(
    epsilon=1.0, outcome=(-3, 3), ranges=dict.fromkeys(FEATURES, (-2.0, 2.0)), sampled=RATE
)
STUDY = Study(
    actions=("a", "b"),
    features=FEATURES,
    policy=fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=ROUNDS)),
    privacy=PLAN,
    declared=fedopl.Declared(overlap=0.1),
)


def drawn(n_rows=60, seed=0, groups=None, **changed):
    rng = np.random.default_rng(seed)
    rows = {
        "contexts": rng.normal(size=(n_rows, 2)),
        "actions": rng.integers(2, size=n_rows),
        "rewards": rng.normal(size=n_rows),
        "propensities": np.full(n_rows, 0.5),
    }
    for name, (place, value) in changed.items():
        rows[name][place] = value
    return fedopl.LoggedData(**rows, action_names=("a", "b"), feature_names=FEATURES, groups=groups)


def space(data, study=STUDY, secret="s" * 32, seed=0):
    return PrivateWorkspace(data, study, Limits.open(), PrivateDraws(seed, "one", secret))


def a_step(number, parameters):
    return SumResiduals(number=number, n_terms=2, parameters=np.full((2, 3), float(parameters)))


def test_no_row_moves_a_step_further_than_declared_and_only_one_that_takes_part(monkeypatch):
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    most = declared_moves(ResidualSums)["residuals"].at_most(STUDY)
    row, moved = 0, []
    for trial in range(160):
        rng = np.random.default_rng(trial)
        reach = 10.0 ** rng.integers(-1, 5)
        data = drawn(
            seed=trial,
            contexts=(row, reach * rng.normal(size=2)),
            rewards=(row, reach * rng.normal()),
            propensities=(row, rng.choice([1e-9, 0.1, 1.0])),
        )
        with_it, without = space(data), space(data)
        if with_it.rows.is_held_out[row]:
            continue
        without.rows.__dict__["_is_used"] = np.arange(data.n_rows) != row
        asked = b"%d" % trial
        step = a_step(0, rng.choice([0.1, 1.0, 30.0]))
        apart = with_it.residual_sums(step, asked) - without.residual_sums(step, asked)
        moved.append(float(np.linalg.norm(apart)))
    assert max(moved) <= most * (1 + 1e-9)
    assert max(moved) > 0.99 * most
    # In three of four steps the row takes no part, and others take part as if it were there.
    assert 0.6 < np.mean(np.array(moved) == 0) < 0.9


def test_noise_is_enough_for_the_promise_whether_rows_are_sampled_or_not():
    for sampled in (RATE, 1.0):
        study = STUDY.model_copy(update={"privacy": PLAN.model_copy(update={"sampled": sampled})})
        found = PrivateSetting(study)
        moves = {
            name: declared.at_most(study)
            for answer in (NoisedSums, ResidualSums)
            for name, declared in declared_moves(answer).items()
        }
        told = [
            SampledSteps(1.0, found.deviation("squares") / moves["squares"]),
            SampledSteps(1.0, found.deviation("products") / moves["products"]),
            SampledSteps(sampled, found.deviation("step") / moves["residuals"], ROUNDS),
        ]
        assert SumResiduals.most(study) == ROUNDS
        delta = float(PrivacyLosses(told).delta(np.array([PLAN.epsilon]))[0])
        assert 0.9 * PLAN.delta < delta < PLAN.delta * 1.002
        assert sampled == 1 or delta <= PLAN.delta
    # And less than noise on all rows would have to be, for as much of what is learned.
    assert told[-1].noise * RATE < PrivateSetting(STUDY).deviation("step") / moves["residuals"]


def test_who_takes_part_follows_from_the_secret_and_the_question_and_not_from_the_seed():
    data = drawn(4000)
    own = space(data).rows.sampled(b"a question")
    assert own.mean() == pytest.approx(RATE, abs=0.05)
    for other_secret in ("t" * 32, "s" * 31 + "t"):
        other = space(data, secret=other_secret).rows.sampled(b"a question")
        assert (own & other).mean() == pytest.approx(RATE**2, abs=0.02)
    another = space(data).rows.sampled(b"another question")
    assert (own & another).mean() == pytest.approx(RATE**2, abs=0.02)
    np.testing.assert_array_equal(space(data, seed=5).rows.sampled(b"a question"), own)


def test_a_server_that_asks_twice_for_a_step_asks_of_other_rows_and_pays_for_both():
    """With the same rows both times, two answers would tell as much as if all had taken part."""
    seen = []
    own = space(drawn(4000))
    honest = own.rows.sampled

    def watched(asked):
        seen.append(honest(asked))
        return seen[-1]

    own.rows.sampled = watched
    from fedopl.client.private.private_answers import sum_residuals

    for parameters in (0.0, 1.0):
        sum_residuals(own, a_step(0, parameters))
    assert (seen[0] & seen[1]).mean() == pytest.approx(RATE**2, abs=0.02)
    door = a_door()
    answers = [asked(door, a_step(0, number)) for number in range(ROUNDS + 1)]
    assert all(isinstance(answer, ResidualSums) for answer in answers[:-1])
    assert answers[-1].reason is RefusalCode.ASKED_ALREADY


def test_a_person_takes_part_with_all_rows_or_with_none():
    plan = PLAN.model_copy(update={"unit": "person", "most_rows_per_person": 3})
    study = STUDY.model_copy(update={"privacy": plan})
    whose = np.repeat(np.arange(200), 3)
    own = space(drawn(600, groups=whose), study)
    taken = own.rows.sampled(b"of persons")
    assert len(taken) == 200
    (chunk,) = own.rows.chunks(RowSplit.TRAINING)
    np.testing.assert_array_equal(chunk.whose, whose[np.isin(whose, chunk.whose)])
    assert 0.1 < taken.mean() < 0.4


# --- the ledger -----------------------------------------------------------------------------------


def a_door(ledger=None, limits=None, study=STUDY):
    ledger = MemoryLedger() if ledger is None else ledger
    return Door("one", drawn(300), study, secret="s" * 32, ledger=ledger, limits=limits or Limits())


def asked(door, query):
    content = door.handle(codec.encode(replace(query, study=door.study.digest)))
    return decoder_of(door.study).decode(content)


def test_the_ledger_counts_a_bound_that_composes_and_not_the_promise_alone():
    mu, slip = PrivateSetting(STUDY).lifetime
    step = PrivateSetting(STUDY).releases["step"]
    # More than a Gaussian with the same (ε, δ), far less than if all rows had taken part.
    assert PLAN.mu < mu < 1.1 * PLAN.mu < math.hypot(PLAN.mu, step.mu)
    assert slip == SLIP
    ledger = MemoryLedger()
    assert isinstance(asked(a_door(ledger), SumPrivately()), NoisedSums)
    assert (ledger[-1].privacy, ledger[-1].slip) == (mu, slip)
    tight, roomy = Limits(epsilon=PLAN.epsilon), Limits(epsilon=1.05)
    refused = asked(a_door(limits=tight), SumPrivately())
    assert isinstance(refused, Refusal)
    assert "so it would be refused" in left_for(STUDY, [], tight)
    assert isinstance(asked(a_door(limits=roomy), SumPrivately()), NoisedSums)
    assert "epsilon: 1.0" in promised_in_all(summaries(ledger), roomy)
    # δ has to cover what the bound leaves out, once for each study.
    assert isinstance(
        asked(a_door(limits=Limits(epsilon=9, delta=SLIP / 2)), SumPrivately()), Refusal
    )
    assert "epsilon: inf" in promised_in_all(summaries(ledger), Limits(delta=SLIP / 2))
