"""What is asked for the sake of a site without outcomes tells of no single row.

A server may lie about what the target is like, and a target may lie, too: sources then make their
rows look like whoever it is after.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with, with_row

import fedopl
from fedopl.client.answers.transporting import transported_rows
from fedopl.client.disclosure.limits import Limits
from fedopl.client.door import Door
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.target.context_moments import TellContexts
from fedopl.messages.target.transported_values import N_REGIONS, ValueAtTarget
from fedopl.policies.kinds import packed
from fedopl.study.target_plan import TargetPlan

PERSON = np.array([0.9, -0.6, 0.7, 0.3])  # whose contexts the server knows
STUDY = study_with(target=TargetPlan(client="new"), evaluation=0.5)


def like(person, width):
    """The moments of a target whose people are all like this one, but for so much."""
    means, squares = np.append(person, 1.0), np.append(person**2 + width**2, 1.0)
    return {"means": means, "squares": squares}


def of_second_action():
    """A query about the policy that gives everybody the second action, by models that say 0."""
    shape = (len(ACTIONS), N_FEATURES + 1)
    policy = np.zeros((1, *shape))
    policy[0, 1, -1] = 1.0
    return {
        **packed([], STUDY),
        "linear": policy,
        "models": np.zeros(shape),
        "regions": np.zeros((N_REGIONS, N_FEATURES + 1)),
    }


def fields(**changes):
    return {**of_second_action(), **like(np.zeros(N_FEATURES), 1.0), **changes}


def server_with(reward, **options):
    """The server of a client among whose rows the person is, who took the second action."""
    return LyingServer(with_row(rows(), PERSON, 1, reward), STUDY, **options).score()


def held_out(server):
    """Whether the person is among the rows that values are of."""
    space = server.door._space
    kept = space.data.contexts[space.folds.held_out]
    return bool((kept == PERSON).all(axis=1).any())


def told_of(rewards, width, **options):
    """What comes of looking like the person, by their reward; only where they are held out."""
    found = []
    for secret, reward in enumerate(rewards):
        server = server_with(reward, secret=f"secret {secret}", **options)
        if held_out(server):
            found.append((reward, server.ask(ValueAtTarget, **fields(**like(PERSON, width)))))
    return found


REWARDS = np.random.default_rng(0).choice([-3.0, 3.0], 60)


def test_without_limits_weights_aimed_at_a_person_tell_their_outcome(monkeypatch):
    monkeypatch.setattr(transported_rows, "FEWEST_EFFECTIVE", 0)
    found = told_of(REWARDS[:12], 1e-3, limits=Limits.open())
    told = [(reward, answer.means[2]) for reward, answer in found if answer.released]
    assert len(told) >= 3
    assert np.corrcoef(np.array(told).T)[0, 1] ** 2 > 0.9


@pytest.mark.parametrize("width", [1e-3, 0.1, 0.3])
def test_weights_that_rest_on_a_few_rows_are_not_used(width):
    found = told_of(REWARDS[:6], width)
    assert found
    assert not any(answer.released for _, answer in found)
    assert not any(answer.means.any() or answer.effective_rows for _, answer in found)


@pytest.mark.parametrize("width", [0.6, 0.7, 0.9])
def test_as_near_as_limits_allow_a_usual_outcome_stays_hidden(width):
    """A narrower target around the person is not answered; noise is for a row of their weight."""
    found = told_of(REWARDS / 2.5, width)  # one standard deviation of outcomes, to either side
    told = [(reward, answer.means[2]) for reward, answer in found if answer.released]
    assert len(told) >= 20
    assert np.corrcoef(np.array(told).T)[0, 1] ** 2 < 0.3


def test_weights_are_found_once_in_a_study():
    server = server_with(0.0)
    assert server.ask(ValueAtTarget, **fields()).released
    other = server.ask(ValueAtTarget, **fields(**like(np.full(N_FEATURES, 1e-3), 1.0)))
    assert isinstance(other, Refusal)


@pytest.mark.parametrize(
    "changes",
    [
        like(PERSON, 0.0) | {"squares": np.zeros(N_FEATURES + 1)},
        {"means": np.full(N_FEATURES + 1, np.inf)},
        {"linear": np.zeros((2, len(ACTIONS), N_FEATURES + 1))},
        {"linear": np.zeros((0, len(ACTIONS), N_FEATURES + 1))},
    ],
    ids=["impossible squares", "infinite means", "two policies", "none"],
)
def test_what_no_honest_server_asks_is_refused_before_a_row_is_touched(changes):
    answer = server_with(0.0).ask(ValueAtTarget, **fields(**changes))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalCode.MALFORMED


# --- the target itself --------------------------------------------------------------------------


class TargetServer(LyingServer):
    """Asks the door of a target."""

    def __init__(self, contexts, *, limits=None, secret="known to the target alone"):
        self.study, self.n_asked = STUDY, 0
        data = fedopl.Contexts(contexts, feature_names=STUDY.features).as_rows(ACTIONS)
        self.door = Door("new", data, STUDY, limits=limits or Limits(), secret=secret)


def contexts_of(n_rows, seed=3):
    return np.random.default_rng(seed).standard_normal((n_rows, N_FEATURES))


def test_a_target_of_few_rows_tells_nothing():
    for n_rows in (5, 49):
        assert isinstance(TargetServer(contexts_of(n_rows)).ask(TellContexts), Refusal)
    assert not isinstance(TargetServer(contexts_of(50)).ask(TellContexts), Refusal)


def test_more_numbers_than_half_the_rows_are_not_told():
    limits = Limits(minimum_rows=1)
    needed = 2 * (2 * N_FEATURES + 1)
    assert isinstance(
        TargetServer(contexts_of(needed - 1), limits=limits).ask(TellContexts), Refusal
    )
    assert TargetServer(contexts_of(needed), limits=limits).ask(TellContexts).n_rows == needed


@pytest.mark.parametrize(("n_ones", "is_told"), [(1, False), (4, False), (5, True)])
def test_a_flag_that_few_have_is_masked(n_ones, is_told):
    contexts = contexts_of(100)
    contexts[:, 1] = 0.0
    contexts[:n_ones, 1] = 1.0
    bare = TargetServer(contexts, limits=Limits.open()).ask(TellContexts)
    assert bare.means[1] == pytest.approx(n_ones / 100)
    told = TargetServer(contexts).ask(TellContexts)
    assert told.means[1] == pytest.approx(n_ones / 100 if is_told else 0.0)


def test_a_row_with_a_typo_keeps_the_moments_at_home():
    contexts = contexts_of(100)
    contexts[7, 2] = 9999.0
    answer = TargetServer(contexts).ask(TellContexts)
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalCode.DOMINATED


def test_a_policy_aimed_at_one_of_the_targets_people_tells_next_to_nothing_of_them():
    """The server sends a policy that treats one person alone, and a model of their number."""
    models = np.zeros((len(ACTIONS), N_FEATURES + 1))
    models[1, 3] = 1.0  # the second action is worth what the server wants to know
    told, bare = [], []
    for seed in range(60):
        contexts = contexts_of(120, seed)
        contexts[0] = [9.0, 0.0, 0.0, 3.0 * (-1) ** seed]
        policy = LyingServer.half_space(None, [1.0, 0.0, 0.0, 0.0], 8.0, 1, 0)
        asked = fields(linear=policy[None], models=models)
        for found, limits in ((told, None), (bare, Limits.open())):
            server = TargetServer(contexts, limits=limits, secret=f"{seed}")
            found.append((contexts[0, 3], server.ask(ValueAtTarget, **asked).means[0]))
    assert np.corrcoef(np.array(bare).T)[0, 1] ** 2 > 0.99
    assert np.corrcoef(np.array(told).T)[0, 1] ** 2 < 0.25


def test_a_target_answers_nothing_that_is_about_outcomes_and_a_source_is_not_asked_as_one():
    target, source = TargetServer(contexts_of(100)), server_with(0.0)
    assert target.ask(Enrol).reason is RefusalCode.NOT_IN_STUDY
    assert source.ask(TellContexts).reason is RefusalCode.NOT_IN_STUDY


def test_regions_are_counted_with_noise():
    contexts = contexts_of(200)
    regions = np.zeros((N_REGIONS, N_FEATURES + 1))
    regions[:, 0], regions[:, -1] = 1.0, -np.sort(contexts[:, 0])[-3]  # two rows are beyond
    counts = {
        round(
            200
            * TargetServer(contexts, secret=f"{s}")
            .ask(ValueAtTarget, **fields(regions=regions))
            .shares[0]
        )
        for s in range(20)
    }
    assert len(counts) > 3
