"""What a server that lies gets of a client within default limits: what is promised, and what not.

Questions that no honest server asks are refused before a row is looked at. Questions of the study's
kinds are answered exactly, once each: aimed at a person, they tell of that person, and `verify`
finds the lie. Whoever wants more takes the private contract.
"""

import numpy as np
import pytest
from honest_questions import columns_of, heard, opened, read
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with, with_row

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.table_findings import alone_in_cells
from fedopl.messages import codec
from fedopl.messages.about_target import BalanceContexts, TellContexts, ValueAtTarget
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.policy_steps import ImprovePolicy, TrainNetwork
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.learning.term_screening import FoundTaken, TakeFound
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.basis import Basis
from fedopl.study.plans import TrainingPlan
from fedopl.study.screened_study import FoundTerms, after_screening

N_MODELS = 6  # one for each fold, and one from all


def scored(data, study=None, **options):
    """Sums of scores by models that say nothing, and the server that asked for them."""
    server = LyingServer(data, study, **options)
    own = server.study
    models = np.zeros((own.n_outcome_models, len(ACTIONS), own.n_terms + 1))
    return server, server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))


# --- questions that no honest server asks ---------------------------------------------------------

ALTERED = {
    "numbers beyond any": ("linear", SumScores, {"models": lambda models: 0 * models + 1e17}),
    "no numbers": ("linear", SumScores, {"models": lambda models: models * np.nan}),
    "an unknown round": ("steps", ImprovePolicy, {"round": lambda _: 99}),
    "no scale": ("network", TrainNetwork, {"scale": lambda scale: 0 * scale}),
    "no spread": ("network", TrainNetwork, {"spread": lambda _: 0.0}),
    "falling prices": ("budget", Value, {"prices": lambda prices: prices[::-1]}),
    "prices from above 0": ("budget", Value, {"prices": lambda prices: prices + 1}),
    "fewer prices": ("budget", Value, {"prices": lambda prices: prices[:0]}),
    "an unknown action": ("budget", Value, {"against": lambda _: len(ACTIONS)}),
    "a target of one": ("target", ValueAtTarget, {"squares": lambda squares: 0 * squares}),
    "a share of one's own weights": ("target", ValueAtTarget, {"share": lambda _: 0.0}),
    "weights of its own": ("target, jointly", ValueAtTarget, {"slopes": lambda own: own[:0]}),
    "a share above 1": ("target, jointly", ValueAtTarget, {"share": lambda _: 1.5}),
    "no units": ("target, jointly", ValueAtTarget, {"scales": lambda own: own[:0]}),
    "scales below 0": ("target, jointly", BalanceContexts, {"scales": lambda own: 0 * own - 1}),
    "falling cuts": ("tree", SumNearThresholds, {"near": lambda near: near[..., ::-1]}),
    "cuts off the grid": ("tree", SumNearThresholds, {"near": lambda near: near + 1e-6}),
}


@pytest.mark.parametrize(("study", "kind", "altered"), ALTERED.values(), ids=ALTERED)
def test_what_no_honest_server_asks_is_refused(study, kind, altered):
    door, told = heard(study)[0]
    again = opened(door, columns_of(door), study)
    for asked, own in told:
        query = read(door, asked)
        if isinstance(query, kind):
            changed = {name: change(getattr(query, name)) for name, change in altered.items()}
            wrong = codec.encode(type(query)(**{**vars(query), **changed}))
            if wrong != asked:  # values without prices have none to alter
                assert read(door, again.handle(wrong)).reason is RefusalCode.MALFORMED
        assert again.handle(asked) == own  # and nothing is spent


def test_refusals_of_numbers_too_large_do_not_depend_on_the_rows():
    """Models so large that rows beyond a bound overflow would tell where the largest number is."""
    server, reasons = LyingServer(rows()), set()
    for bound in np.linspace(1, 20, 40):
        models = np.zeros((N_MODELS, len(ACTIONS), N_FEATURES + 1))
        models[..., 0] = 1.7e308 / bound
        answer = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
        reasons.add(answer.reason)
    assert reasons == {RefusalCode.MALFORMED}


def test_a_query_is_about_as_many_policies_as_the_study_can_need_in_all_fields_together():
    server = LyingServer(rows()).score()
    fields = server.policies(*np.zeros((4, len(ACTIONS), N_FEATURES + 1)))
    fields["pairwise"] = np.zeros((4, 3, N_FEATURES + 1))
    answer = server.ask(Value, split=RowSplit.EVALUATION, **fields)
    assert answer.reason is RefusalCode.MALFORMED


def test_a_site_is_asked_nothing_about_outcomes_and_a_source_is_not_asked_as_one():
    source, site = (door for door, _ in heard("target"))
    for door, kind in ((site, Enrol), (source, TellContexts)):
        answer = door.handle(codec.encode(kind(study=door.study.digest, exchange=99)))
        assert read(door, answer).reason is RefusalCode.NOT_IN_STUDY


# --- questions that begin elsewhere ---------------------------------------------------------------


@pytest.fixture
def stepping():
    plan = TrainingPlan(rounds=5, local_steps=2, batch_size=64)
    study = study_with(policy=fedopl.Linear(oracle="csoaa-sgd", training=plan))
    return LyingServer(rows(), study).score()


def step(server, turn, start=0.0, centre=0.0, scale=1.0):
    width = N_FEATURES + 1
    answer = server.ask(
        ImprovePolicy,
        round=turn,
        parameters=np.full((len(ACTIONS), width), start),
        centre=np.full(width, centre),
        scale=np.full(width, scale),
    )
    return answer.reason.name if isinstance(answer, Refusal) else "answered"


def test_a_round_is_asked_once_in_the_units_of_the_first(stepping):
    assert step(stepping, 0) == "answered"
    others = {step(stepping, 0, start=start) for start in np.linspace(0.1, 1, 10)}
    assert others == {"ASKED_ALREADY"}
    assert step(stepping, 1, centre=1.0) == "ASKED_ALREADY"
    assert step(stepping, 1, scale=2.0) == "ASKED_ALREADY"
    assert step(stepping, 1, start=0.5) == "answered"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_client_goes_on_with_the_first_terms_and_no_others(tmp_path, restarted):
    agreed = study_with(basis=Basis(knots={"x0": (-1.0, 0.0, 1.0)}, screened_pairs=2))
    server = LyingServer(rows(), agreed, store=FolderStore(tmp_path))
    assert server.ask(SumOutcomes).reason is RefusalCode.NOT_IN_STUDY

    def going_on(*pairs):
        if restarted:
            server.door = LyingServer(rows(), agreed, store=FolderStore(tmp_path)).door
        server.study = after_screening(agreed, FoundTerms(pairs=pairs))
        return server.ask(TakeFound, **dict(TakeFound.of(server.study).named_arrays()))

    assert isinstance(going_on(("x1", "x2")), FoundTaken)
    for others in ((("x2", "x3"),), (), (("x1", "x2"), ("x2", "x3"))):
        assert going_on(*others).reason is RefusalCode.WRONG_STUDY
    server.n_asked = 1
    assert isinstance(going_on(("x1", "x2")), FoundTaken)  # the same bytes


# --- actions that a few took ----------------------------------------------------------------------


def with_takers(n_takers):
    """Rows of which only the first so many took the last action."""
    data = rows(400)
    actions = np.where(data.actions == 2, 0, data.actions)
    actions[:n_takers] = 2
    return fedopl.LoggedData(data.contexts, actions, data.rewards, action_names=ACTIONS)


@pytest.mark.parametrize("n_takers", [1, 4, 9, 10])
def test_the_few_who_took_an_action_do_not_come_out_of_its_scores(n_takers):
    """Ten are enough: two folds have five of them each."""
    _, answer = scored(with_takers(n_takers), study_with(evaluation=0))
    assert answer.products[2].any() == (n_takers >= 10)


def test_the_few_who_took_an_action_have_no_say_in_models_of_a_clients_own():
    """Where effects may bend, a client has models of its own beside those that came."""
    study = study_with(basis=Basis(knots={"x0": (-1.0, 0.0, 1.0)}), evaluation=0)
    for n_takers, is_told in ((3, False), (60, True)):
        data, told = with_takers(n_takers), []
        for outcome in (data.rewards[:n_takers], 1_000.0):
            rewards = data.rewards.copy()
            rewards[:n_takers] = outcome
            changed = fedopl.LoggedData(data.contexts, data.actions, rewards, action_names=ACTIONS)
            told.append(scored(changed, study, secret=SEED_ALONE)[1].products)
        assert np.array_equal(*told) != is_told


@pytest.mark.parametrize("n_takers", [10, 14, 23, 60])
def test_every_fold_that_is_used_has_enough_takers_of_an_action(n_takers):
    server = LyingServer(with_takers(n_takers), study_with(evaluation=0))
    counts = server.door._space.rows_by_fold_action
    is_used = counts.any(axis=1)
    assert is_used.sum() == min(5, n_takers // 5)
    assert (counts[is_used] >= 5).all()
    assert not server.ask(SumOutcomes).sums[~is_used].any()


# --- what the exact contract does not promise -----------------------------------------------------


def test_values_of_two_policies_that_differ_at_a_person_tell_the_persons_effect():
    server = LyingServer(rows()).score()
    whole = server.door._space.whole
    held_out = whole.rows(RowSplit.EVALUATION)
    direction = np.array([1.0, 0.3, -0.2, 0.1])
    places = whole.data.contexts[held_out] @ direction
    last, next_to_last = np.argsort(places)[[-1, -2]]
    between = (places[last] + places[next_to_last]) / 2
    asked = server.policies(
        server.half_space(direction, between, 1, 0), server.half_space(direction, 1e6, 1, 0)
    )
    answer = server.ask(Value, split=RowSplit.EVALUATION, **asked).together()
    scores = whole.scores[held_out][last]
    found = answer.n_rows * (answer.means[0] - answer.means[1])
    assert found == pytest.approx(scores[1] - scores[0])


def test_sums_of_two_states_of_the_rows_differ_by_the_row_that_is_more():
    data, person = rows(300), np.array([0.1, 0.2, 0.3, 0.4])
    both = data, with_row(data, person, 1, 7.0)
    study = study_with(evaluation=0)
    less, more = (LyingServer(own, study).ask(SumOutcomes).sums.sum(axis=(0, 1)) for own in both)
    found = more - less
    assert np.allclose(found, np.outer([*person, 1, 7], [*person, 1, 7]), atol=1e-9)


def test_a_sum_by_fold_and_action_can_rest_on_one_row_and_the_owner_is_told_how_often():
    data = rows(400)
    contexts = data.contexts.copy()
    contexts[:, 3] = np.arange(400) < 12
    server = LyingServer(data.with_contexts(contexts), study_with(evaluation=0))
    space = server.door._space
    sums, whole = server.ask(SumOutcomes).sums, space.study_rows.whole
    flags = sums[:, :, 3, -2].ravel()  # how many have the flag, by fold and action
    assert (flags == 1).any()
    cell = int(np.flatnonzero(flags == 1)[0])
    (person,) = np.flatnonzero((whole.fold_actions == cell) & (whole.data.contexts[:, 3] == 1))
    row = [*whole.data.contexts[person], 1.0, whole.data.rewards[person]]
    assert np.allclose(sums.reshape(-1, 6, 6)[cell, 3], row)
    assert alone_in_cells(space)[0] >= (flags == 1).sum()
