"""A strong attacker tells no more than is promised, and would tell more if noise were too small."""

import pytest
from privacy_audit import a_study, audited

from fedopl.client.private import private_workspace
from fedopl.privacy.exact_noise import variance_on_grid

N_PAIRS = 80
WHAT = ["learning", pytest.param("values", marks=pytest.mark.slow_law)]
STUDY = a_study(epsilon=8.0)


@pytest.mark.parametrize("what", WHAT)
def test_an_attacker_who_knows_all_else_stays_within_the_promise_and_comes_near(what):
    found = audited(STUDY, N_PAIRS, what)
    assert found.is_kept
    assert found.mu > 0.3 * found.promised_mu
    # The row and the questions are the worst there are: hardly more could be shown of the noise.
    assert 0.99 < found.largest_mu / found.promised_mu <= 1


@pytest.mark.parametrize("what", WHAT)
def test_the_attack_shows_that_noise_of_half_the_size_breaks_the_promise(monkeypatch, what):
    monkeypatch.setattr(
        private_workspace, "variance_on_grid", lambda *asked: variance_on_grid(*asked) // 4
    )
    assert not audited(STUDY, N_PAIRS, what).is_kept
