"""Law: no combination of waves tells of a few rows, wherever a study puts its knots."""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.client.disclosure.resting_on_few import largest_shares_of_few
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.basis import Basis

N_WAVES = 30


def cornered(data):
    """Knots so close that numbers are mere sides of them, and two people are past both."""
    for at in np.linspace(1, 2.2, 200):
        past = (data.contexts[:, :2] > at).all(axis=1)
        if past.sum() == 2:
            break
    knots = (at - 1e-5, at, at + 1e-5)
    basis = Basis(kind="waves", knots={"x0": knots, "x1": knots}, waves=N_WAVES)
    return basis, past


def singling_out(terms, contexts, people):
    """Weights of waves, and of one, that make these people 1 and everybody else 0."""
    waves = terms.of(contexts)[:, -N_WAVES:]
    columns = np.column_stack([waves, np.ones(len(waves))])
    return np.linalg.lstsq(columns, people.astype(float), rcond=1e-10)[0]


@pytest.mark.parametrize("limit", ["guarded", "open"])
def test_waves_at_a_corner_of_two_people_disclose_neither(limit):
    data = rows(2000)
    basis, people = cornered(data)
    study = study_with(basis=basis, evaluation=0)
    limits = fedopl.Limits() if limit == "guarded" else fedopl.Limits.open()
    server = LyingServer(data, study, limits=limits)
    answer = server.ask(SumOutcomes)
    models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
    scores = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    own = singling_out(study.terms, data.contexts, people)
    if limit == "guarded":
        assert isinstance(scores, Refusal)
        assert scores.reason == RefusalCode.DOMINATED
        if not isinstance(answer, Refusal):  # cells that either is in are left out
            assert np.abs(combined(answer.sums.sum(axis=(0, 1))[:-1, :-1], own)).max() < 1e-6
        return
    truth = data.contexts[people].sum(axis=0)
    for sums in (answer.sums.sum(axis=(0, 1))[:-1, :-1], scores.grams[0] * data.n_rows):
        assert np.abs(combined(sums, own) - truth).max() < 1e-3  # the attack works without limits


def combined(sums, weights):
    """Σ f(x)·x, f being a combination of waves and one, which come last."""
    return weights @ sums[-N_WAVES - 1 :, :N_FEATURES]


def test_usual_waves_of_usual_rows_are_summed():
    data = rows(9000)
    even = np.random.default_rng(1).uniform(-1.5, 1.5, data.contexts.shape)  # nobody is far out
    data = data.with_contexts(even)
    knots = {f"x{place}": (-1.0, 0.0, 1.0) for place in range(3)}
    study = study_with(basis=Basis(kind="waves", knots=knots, waves=10), evaluation=0)
    server = LyingServer(data, study, limits=fedopl.Limits())
    answer = server.ask(SumOutcomes)
    assert (answer.sums[:, :, -2, -2] > 0).all()
    models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
    scores = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    assert not isinstance(scores, Refusal)


@pytest.mark.parametrize("n_alike", [1, 2, 4, 5])
def test_a_combination_rests_on_rows_that_are_alike_and_unlike_others(n_alike):
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((400, 20))
    terms[:n_alike] = 30.0 * rng.standard_normal(20)

    def parts():
        yield terms, np.ones(len(terms)), np.zeros(len(terms), np.int64)

    (share,) = largest_shares_of_few(parts, 1, 4)
    assert (share > 0.9) == (n_alike < 5)


def test_no_study_has_waves_so_narrow_that_they_tell_neighbours_apart():
    for width in (0.01, 0.99, 21.0):
        with pytest.raises(fedopl.FedoplError, match="wave_width"):
            Basis(kind="waves", knots={"x0": (-1.0, 0.0, 1.0)}, waves=5, wave_width=width)
    with pytest.raises(fedopl.FedoplError, match="waves"):
        Basis(kind="waves", knots={"x0": (-1.0, 0.0, 1.0)}, waves=100_000)
