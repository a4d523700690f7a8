"""Weights that a server chooses for sources' rows tell of no single row.

To find weights for all sources together, a server asks for sums under exp(ηᵀb(x)) at an η of its
choice. A large η is nearly one row's; answers at several small ones, subtracted from each other,
are those of the row that lies furthest out.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with, with_row
from test_a_target_singles_out_nobody import of_second_action

from fedopl.client.disclosure.limits import Limits
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.target.balance_sums import MOST_BALANCING_STEPS, BalanceContexts
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.study.target_plan import TargetPlan

STUDY = study_with(target=TargetPlan(client="new", balance="joint"), evaluation=0.5)
KNOWN = np.array([0.9, -0.6, 0.7])  # the features of a person that the server knows
SECRETS = np.random.default_rng(0).choice([-2.0, 2.0], 40)  # the last, or the outcome
ORIGIN = {"centres": np.zeros(N_FEATURES + 1), "scales": np.ones(N_FEATURES + 1)}
SLOPES = np.zeros(2 * N_FEATURES)


def aimed(known, width):
    """Weights that fall off with the distance from somebody, in these features."""
    centres = np.zeros(N_FEATURES + 1)
    centres[: len(known)] = known
    slopes = np.zeros(2 * N_FEATURES)
    slopes[N_FEATURES : N_FEATURES + len(known)] = -0.5 / width**2
    return {"centres": centres, "scales": np.ones(N_FEATURES + 1), "slopes": slopes}


def valued(share=0.3, **changes):
    return {**of_second_action(), **ORIGIN, "slopes": SLOPES, "share": share, **changes}


def servers(person, reward=0.0, secrets=SECRETS, **options):
    """A server for each secret, where the person with it is among the held-out rows."""
    for place, secret in enumerate(secrets):
        context, outcome = person(secret), reward(secret) if callable(reward) else reward
        data = with_row(rows(seed=place), context, 1, outcome)
        server = LyingServer(data, STUDY, secret=f"secret {place}", **options)
        space = server.door._space
        held = space.data.contexts[space.folds.held_out]
        if (held == context).all(axis=1).any():
            yield secret, server.score()


def explained(told):
    """The share of the secrets' variance that what was told explains."""
    return np.corrcoef(np.array(told).T)[0, 1] ** 2


# --- a large η ----------------------------------------------------------------------------------


def person_near(secret):
    return np.append(KNOWN, secret)


def test_without_limits_a_large_slope_tells_what_the_server_does_not_know_of_a_person():
    found = servers(person_near, secrets=SECRETS[:12], limits=Limits.open())
    told = [(s, server.ask(BalanceContexts, **aimed(KNOWN, 0.02)).means[-5]) for s, server in found]
    assert len(told) >= 3
    assert explained(told) > 0.99


@pytest.mark.parametrize("width", [0.02, 0.2, 0.35])
def test_sums_that_rest_on_a_few_rows_are_not_released(width):
    for _, server in servers(person_near, secrets=SECRETS[:6]):
        answer = server.ask(BalanceContexts, **aimed(KNOWN, width))
        assert not answer.released
        assert answer.log_weight == 0
        assert not answer.means.any()
        assert not answer.products.any()


def test_the_limit_on_rows_alone_holds_sums_of_a_few_back():
    """Also where the owner lets one row have most of a sum."""
    for _, server in servers(person_near, secrets=SECRETS[:6], limits=Limits(dominance=1)):
        assert server.ask(BalanceContexts, **aimed(KNOWN, 0.9)).released
        assert not server.ask(BalanceContexts, **aimed(KNOWN, 0.3)).released


def test_a_row_that_has_most_of_a_sum_of_squares_is_not_told_of():
    """All rows have the same weight, so that enough of them are behind the sums."""
    far = [100.0, 200.0]
    found = list(servers(person_near, secrets=far * 6))
    assert {secret for secret, _ in found} == set(far)
    for _, server in found:
        assert not server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES).released
    told = [
        (secret, server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES).products[-5, -5])
        for secret, server in servers(person_near, secrets=far * 6, limits=Limits(dominance=1))
    ]
    assert explained(told) > 0.99


@pytest.mark.parametrize("width", [0.8, 0.9])
def test_as_near_as_limits_allow_a_usual_number_stays_hidden(width):
    """Though all steps are spent on one person, so that noise is averaged."""
    told = []
    for secret, server in servers(person_near, secrets=SECRETS / 2):
        widths = width + 1e-4 * np.arange(MOST_BALANCING_STEPS)
        answers = [server.ask(BalanceContexts, **aimed(KNOWN, own)) for own in widths]
        if all(answer.released for answer in answers):
            told.append((secret, np.mean([own.means[N_FEATURES - 1] for own in answers])))
    assert len(told) >= 10
    assert explained(told) < 0.3


# --- small ones, subtracted from each other -----------------------------------------------------

FURTHEST = 4.0  # where the person is in the first feature, beyond everybody
STEPS = np.linspace(-0.8, 0.3, MOST_BALANCING_STEPS)


def person_far(secret):
    return np.array([FURTHEST, 0.0, 0.0, secret])


def combination():
    """Of exp(t·s), s·exp(t·s) and s²·exp(t·s), one that is 1 at the person and small elsewhere."""
    grid = np.linspace(-3.2, 3.2, 400)
    density = np.exp(-(grid**2) / 2)

    def columns(s):
        return np.hstack([np.exp(np.outer(s, STEPS)) * s[:, None] ** power for power in range(3)])

    bulk, there = columns(grid) * np.sqrt(density)[:, None], columns(np.array([FURTHEST]))[0]
    inner = bulk.T @ bulk
    solved = np.linalg.solve(inner + 1e-9 * np.trace(inner) * np.eye(len(there)), there)
    return solved / (there @ solved)


def differenced(server):
    """What the combination of all answers says of the last feature of the row furthest out."""
    first, last = 0, N_FEATURES - 1
    sums = []
    for step in STEPS:
        slopes = SLOPES.copy()
        slopes[first] = step
        answer = server.ask(BalanceContexts, **ORIGIN, slopes=slopes)
        if isinstance(answer, Refusal) or not answer.released:
            return None
        total = answer.n_rows * np.exp(answer.log_weight)
        products = answer.products[[first, N_FEATURES + first], last]
        sums.append(total * np.array([answer.means[last], *products]))
    return float(combination() @ np.array(sums).T.ravel())


def test_without_noise_several_small_slopes_tell_of_the_row_furthest_out():
    """Each of the answers rests on enough rows: the limit on these does not help."""
    found = servers(person_far, secrets=SECRETS[:16], limits=Limits(value_noise=0))
    told = [(secret, differenced(server)) for secret, server in found]
    told = [(secret, own) for secret, own in told if own is not None]
    assert len(told) >= 4
    assert explained(told) > 0.99


def test_noise_on_sums_hides_the_row_furthest_out():
    told = [(secret, differenced(server)) for secret, server in servers(person_far)]
    told = [(secret, own) for secret, own in told if own is not None]
    assert len(told) >= 10
    assert explained(told) < 0.3


def test_the_same_question_has_the_same_noise_and_another_has_other_noise():
    (_, server), *_ = servers(person_near, secrets=SECRETS[:6])
    ask = {**ORIGIN, "slopes": SLOPES}
    first, again = server.ask(BalanceContexts, **ask), server.ask(BalanceContexts, **ask)
    other = server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES + 1e-6)
    assert first.means.tobytes() == again.means.tobytes()
    assert np.abs(first.means - other.means).min() > 1e-5


# --- how often, and what else -------------------------------------------------------------------


def test_only_so_many_steps_are_answered():
    (_, server), *_ = servers(person_near, secrets=SECRETS[:6])
    told = [
        server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES + 0.01 * step)
        for step in range(MOST_BALANCING_STEPS + 1)
    ]
    assert not any(isinstance(answer, Refusal) for answer in told[:-1])
    assert told[-1].reason is RefusalCode.BUDGET_SPENT


def test_a_client_may_allow_fewer_steps():
    (_, server), *_ = servers(person_near, secrets=SECRETS[:6], limits=Limits(classifier_queries=1))
    assert server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES).released
    refused = server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES + 0.01)
    assert refused.reason is RefusalCode.BUDGET_SPENT


def test_a_flag_that_few_held_out_rows_have_is_masked():
    data = rows()
    contexts = data.contexts.copy()
    contexts[:, 1] = 0.0
    contexts[:6, 1] = 1.0
    flagged = type(data)(contexts, data.actions, data.rewards, action_names=ACTIONS)
    bare = LyingServer(flagged, STUDY, limits=Limits.open()).score()
    told = LyingServer(flagged, STUDY, limits=Limits(value_noise=0)).score()
    ask = {**ORIGIN, "slopes": SLOPES}
    assert bare.ask(BalanceContexts, **ask).means[1] > 0
    assert told.ask(BalanceContexts, **ask).means[1] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"slopes": np.full(2 * N_FEATURES, np.nan)},
        {"slopes": np.full(2 * N_FEATURES, 1e20)},
        {"scales": np.zeros(N_FEATURES + 1)},
        {"scales": np.full(N_FEATURES + 1, -1.0)},
    ],
    ids=["no number", "too large", "scale zero", "scale below zero"],
)
def test_what_no_honest_server_asks_is_refused_before_a_row_is_touched(changes):
    server = LyingServer(rows(), STUDY).score()
    for answer in (
        server.ask(BalanceContexts, **{**ORIGIN, "slopes": SLOPES, **changes}),
        server.ask(ValueJointly, **valued(**changes)),
    ):
        assert isinstance(answer, Refusal)
        assert answer.reason is RefusalCode.MALFORMED


@pytest.mark.parametrize("size", [1e3, 1e15], ids=["large", "largest"])
def test_no_slope_overflows(size):
    server = LyingServer(rows(), STUDY, limits=Limits.open()).score()
    answer = server.ask(BalanceContexts, **ORIGIN, slopes=SLOPES - size)
    assert np.isfinite(answer.log_weight)
    assert np.isfinite(answer.products).all()


# --- outcomes -----------------------------------------------------------------------------------


def outcomes_told(width, told="means", **options):
    """What comes of weights aimed at a person, by their outcome."""
    found = servers(lambda _: np.append(KNOWN, 0.3), reward=lambda secret: secret, **options)
    for secret, server in found:
        answer = server.ask(ValueJointly, **valued(**aimed([*KNOWN, 0.3], width)))
        if answer.released:
            yield secret, getattr(answer, told)[2]


def test_without_limits_weights_aimed_at_a_person_tell_their_outcome():
    told = [*outcomes_told(0.05, secrets=SECRETS[:12], limits=Limits.open())]
    assert len(told) >= 3
    assert explained(told) > 0.9


@pytest.mark.parametrize("width", [0.05, 0.3, 0.5])
def test_values_under_weights_that_rest_on_a_few_rows_are_not_released(width):
    assert not [*outcomes_told(width, secrets=SECRETS[:8])]


@pytest.mark.parametrize("field", ["means", "crossed"])
def test_as_near_as_limits_allow_a_usual_outcome_stays_hidden(field):
    told = [*outcomes_told(0.8, field, secrets=0.6 * SECRETS)]
    assert len(told) >= 10
    assert explained(told) < 0.3


def test_weighted_by_squares_a_usual_outcome_is_hidden_by_noise_alone():
    """The row at which weights are aimed has more of Σ W²·u than of a mean."""
    quiet = [*outcomes_told(0.8, "crossed", secrets=0.6 * SECRETS, limits=Limits(value_noise=0))]
    told = [*outcomes_told(0.8, "crossed", secrets=0.6 * SECRETS)]
    assert explained(quiet) > 2 * explained(told)


def test_a_row_with_most_of_all_sources_weight_is_not_told_of():
    """Not even where the owner sets no limits: one row is no sample of the target."""
    nearest = aimed(rows().contexts[0], 0.01)
    for share in (0.9, 0.4):
        server = LyingServer(rows(), STUDY, limits=Limits.open()).score()
        answer = server.ask(ValueJointly, **valued(share, **nearest))
        assert bool(answer.released) == (share < 0.5)


def test_values_are_told_once_in_a_study():
    server = LyingServer(rows(), STUDY).score()
    assert server.ask(ValueJointly, **valued()).released
    assert isinstance(server.ask(ValueJointly, **valued(slopes=SLOPES + 1e-3)), Refusal)
    assert isinstance(server.ask(ValueJointly, **valued(share=0.5)), Refusal)
