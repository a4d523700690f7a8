"""Policies that decide alike for all but a few rows are valued as the first of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_door import ACTIONS, FEATURES, ask, door_to, scored, study_of

import fedopl
from fedopl.client.answers.asked_policies import deciders
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.near_identical import first_near_identical
from fedopl.client.disk.store import FolderStore
from fedopl.messages.diagnosis.client_models import TellModels
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal

LEAST = 5


def near_identical_of(decided, known, valued, least):
    """The search for policies that are what they decide in each row, which comes in two parts."""
    row = np.arange(len(valued), dtype=float)[:, None]
    half = len(valued) // 2
    parts = [(row[own], valued[own]) for own in (slice(half), slice(half, None))]

    def policies(codes):
        return [lambda x, own=own: own[x[:, 0].astype(int)] for own in codes]

    return first_near_identical(policies(known), policies(decided), parts, least).tolist()


def naive_search(decided, known, valued, least):
    """The same, two policies and one row at a time."""
    released, found_for = [(place, codes) for place, codes in enumerate(known)], []
    for place, codes in enumerate(decided, len(known)):
        found = place
        for other, earlier in released:
            differ = [a != b for a, b in zip(codes, earlier, strict=True)]
            inside = sum(d for d, v in zip(differ, valued, strict=True) if v)
            if sum(differ) < least or 0 < inside < least:
                found = other
                break
        if found == place:
            released.append((place, codes))
        found_for.append(found)
    return found_for


@given(
    seed=st.integers(0, 2**32 - 1),
    n_known=st.integers(0, 6),
    n_decided=st.integers(0, 8),
    least=st.integers(1, 6),
    spread=st.sampled_from([0, 2, 6, 12, 300]),
)
def test_near_identical_policies_are_those_of_a_naive_search(
    seed, n_known, n_decided, least, spread
):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 3, 300).astype(np.uint8)

    def policy():
        codes = base.copy()
        changed = rng.integers(0, 300, rng.integers(0, spread + 1))
        codes[changed] = rng.integers(0, 3, len(changed))
        return codes

    known, decided = ([policy() for _ in range(n)] for n in (n_known, n_decided))
    valued = rng.random(300) < rng.choice([0.2, 1.0])
    found = near_identical_of(decided, known, valued, least)
    assert found == naive_search(decided, known, valued, least)
    every = [*known, *decided]
    kept = [place for place, other in enumerate(found, n_known) if other == place]
    for place in kept:
        for other in {*range(n_known), *kept} - {place}:
            differ = every[place] != every[other]
            assert differ.sum() >= least
            assert not 0 < (differ & valued).sum() < least


def test_differences_that_lie_close_together_are_seen_among_many_rows():
    # Rows are compared by a sample first, which these differences are hardly in.
    base = np.zeros(60_000, np.uint8)
    decided = [base.copy() for _ in range(4)]
    for turn, n_rows in enumerate((0, 4, 5, 9)):
        decided[turn][40_000 : 40_000 + n_rows] = 1
    elsewhere = base + np.uint8(2)  # so that every row is decided differently by somebody
    found = near_identical_of([elsewhere, *decided], [base], np.ones(60_000, bool), 5)
    assert found == [1, 0, 0, 4, 4]


# --- at the door ---------------------------------------------------------------------------------


def beyond(door, split, *counts):
    """Policies: a1 in so many rows, those of the split that have the largest x0, else a0."""
    space = door._space
    x0 = np.sort(space.data.contexts[space.rows(split), 0])[::-1]
    policies = np.zeros((len(counts), 3, 6))
    policies[:, 2, -1] = -1e6
    policies[:, 1, 0] = 1.0
    for policy, n_rows in zip(policies, counts, strict=True):
        policy[1, -1] = -(x0[n_rows - 1] + x0[n_rows]) / 2 if n_rows else -1e6
    return policies


def guarded(draw, **options):
    return scored(door_to(draw(400), limits=Limits(minimum_cell=LEAST), **options))


def values(door, *counts, split=RowSplit.EVALUATION, **changes):
    told = ask(door, EstimateValues, split=split, linear=beyond(door, split, *counts), **changes)
    assert not isinstance(told, Refusal)
    return told


def exact(door, n_rows, split=RowSplit.EVALUATION):
    """The value without any guard."""
    space = door._space
    codes = fedopl.LinearPolicy(beyond(door, split, n_rows)[0], ACTIONS, FEATURES).decide(
        space.data.contexts
    )
    rows = space.rows(split)
    return space.scores[np.arange(len(codes)), codes][rows].mean()


@pytest.mark.parametrize("n_rows", [0, 1, 2, 4, 5, 6])
def test_policies_that_differ_in_a_few_rows_have_one_value(draw, n_rows):
    door = guarded(draw)
    told = values(door, 0, n_rows)
    assert told.means[0] == pytest.approx(exact(door, 0))
    if n_rows < LEAST:
        assert told.means[1] == told.means[0]
        np.testing.assert_array_equal(told.covariances[1], told.covariances[0])
        assert told.covariances[1, 1] == told.covariances[0, 1]
    else:
        assert told.means[1] == pytest.approx(exact(door, n_rows))
        assert told.means[1] != told.means[0]


def test_the_first_policy_is_valued_and_later_ones_as_the_first_they_are_near(draw):
    door = guarded(draw)
    told = values(door, 8, 4, 0, 12, 16).means
    expected = {8: 8, 4: 8, 0: 0, 12: 8, 16: 16}
    np.testing.assert_allclose(told[:5], [exact(door, n) for n in expected.values()])


def test_without_that_limit_two_values_would_tell_one_rows_score(draw):
    door = scored(door_to(draw(400)))
    told = values(door, 0, 1)
    apart = door._space.folds.held_out
    row = np.flatnonzero(apart)[door._space.data.contexts[apart, 0].argmax()]
    gain = door._space.scores[row, 1] - door._space.scores[row, 0]
    assert (told.means[1] - told.means[0]) * told.n_rows == pytest.approx(gain)


def test_a_policy_near_one_of_an_earlier_query_is_valued_as_that_one(draw, tmp_path):
    own = {"store": FolderStore(tmp_path)}
    door = guarded(draw, **own)
    first = values(door, 10).means[0]
    for again in (door, door_to(draw(400), limits=Limits(minimum_cell=LEAST), **own)):
        # 13 is near both: the earlier one counts. 17 is near 13 only, which was not told.
        told = values(again, 13, 17, exchange=2).means
        assert told[0] == first
        assert told[1] == pytest.approx(exact(door, 17))


def test_an_answer_does_not_depend_on_what_is_asked_later(draw):
    door = guarded(draw)
    values(door, 10)
    before = values(door, 13, 6, 30, exchange=2)
    values(door, 15, 16, 5, 26, exchange=3)
    after = values(door, 13, 6, 30, exchange=2)
    np.testing.assert_array_equal(after.means, before.means)
    np.testing.assert_array_equal(after.covariances, before.covariances)


def test_only_policies_that_were_valued_are_remembered(draw):
    door = guarded(draw)
    values(door, 0, 3, 9, 20)
    space = door._space
    held_out = space.data.contexts[space.folds.held_out]
    valued = deciders(space, space.history.released("held out"))
    assert [int((decide(held_out) == 1).sum()) for decide in valued] == [0, 9, 20]


@pytest.mark.parametrize("split", [RowSplit.TRAINING, RowSplit.FITTING, RowSplit.VALIDATION])
def test_one_row_of_the_split_is_too_few_however_many_others_differ(draw, split):
    # Ten training rows beyond differ, of which the first fold has a few.
    door = guarded(draw)
    space = door._space
    policies = beyond(door, RowSplit.TRAINING, 0, 10)
    codes = fedopl.LinearPolicy(policies[1], ACTIONS, FEATURES).decide(space.data.contexts)
    inside = int((codes[space.rows(split)] == 1).sum())
    told = ask(door, EstimateValues, split=split, linear=policies).means
    assert (split is RowSplit.VALIDATION) == (0 < inside < LEAST)
    assert (told[0] == told[1]) == (split is RowSplit.VALIDATION)


def test_splits_of_training_rows_share_what_is_remembered(draw):
    door = guarded(draw)
    values(door, 0, split=RowSplit.TRAINING)
    policies = beyond(door, RowSplit.TRAINING, 0, 3)
    told = ask(door, EstimateValues, split=RowSplit.FITTING, linear=policies, exchange=2).means
    assert told[0] == told[1]


def test_a_policy_near_one_that_was_described_is_valued_as_that_one(draw):
    door = guarded(draw)
    nobody, few = beyond(door, RowSplit.TRAINING, 0, 3)
    assert not isinstance(ask(door, Describe, linear=nobody[None]), Refusal)
    told = ask(door, EstimateValues, split=RowSplit.TRAINING, linear=few[None])
    assert told.means[0] == pytest.approx(exact(door, 0, RowSplit.TRAINING))


def test_rules_and_parameters_that_differ_in_one_row_have_one_value(draw):
    rules = {"rule": lambda contexts: (contexts[:, 0] == contexts[:, 0].max()).astype(int)}
    study = study_of(policy=fedopl.Finite(candidates=("rule",)))
    for limits, alike in ((Limits(), True), (Limits.open(), False)):
        door = scored(door_to(draw(400), study, limits=limits, rules=rules))
        always_a0 = beyond(door, RowSplit.EVALUATION, 0)
        told = ask(door, EstimateValues, linear=always_a0, rules=np.zeros(1))
        assert (told.means[0] == told.means[1]) == alike


def test_a_policy_near_the_clients_own_is_valued_as_its_own(draw):
    # With its own outcome models, sums of scores tell a server what a client would learn alone.
    for limits, alike in ((Limits(), True), (Limits.open(), False)):
        door = scored(door_to(draw(400), limits=limits))
        space = door._space
        own = space.local_policy
        contexts = space.data.contexts[space.folds.held_out]
        worth = np.column_stack([contexts, np.ones(len(contexts))]) @ own.parameters.T
        ranked = np.sort(worth, axis=1)
        row = (ranked[:, -1] - ranked[:, -2]).argmin()
        near = own.parameters.copy()
        near[worth[row].argsort()[-2], -1] += 1.001 * (ranked[row, -1] - ranked[row, -2])
        policy = fedopl.LinearPolicy(near, ACTIONS, FEATURES)
        assert 0 < (policy.decide(contexts) != own.decide(contexts)).sum() < LEAST
        told = ask(door, EstimateValues, linear=near[None])
        assert (told.means[0] == told.means[-1]) == alike


@pytest.mark.parametrize("more", [0, 1])
def test_studies_that_diagnose_ask_about_many_policies_at_once(draw, more):
    door = scored(door_to(draw(400), study_of(TellModels)))
    told = ask(door, EstimateValues, linear=np.zeros((128 + more, 3, 6)))
    if more:
        assert told.reason.name == "MALFORMED"
    else:
        assert len(told.means) == 130
