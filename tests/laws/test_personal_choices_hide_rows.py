"""A server that lies about leaves and candidates, to learn of one person from a client's choices.

Values of personal trees and choices could tell of a held-out person, as any value could; and which
action or candidate a client chose, which shows in its value, of a person it learns from.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, LyingServer, rows, study_with

import fedopl
from fedopl.client.answers.valuing import value_personal
from fedopl.client.answers.valuing.estimate_values import estimate_candidates, values_on_split
from fedopl.client.disclosure.limits import Limits
from fedopl.client.local.leaf_noise import LeafNoise
from fedopl.messages.evaluation.personal_values import ValuePersonalChoice, ValuePersonalTree
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS

N_PEOPLE = 40
OPEN = Limits(value_noise=0.0, minimum_cell=0)
NONE, SOME = 0, 30  # places of strengths: none at all, and one by which own rows count
FAR = -1e3  # what the third action is worth to others, so that nobody chooses it


def only(place):
    """Likelihoods by which no other strength counts."""
    likely = np.full(len(RIDGE_STRENGTHS), -1e12)
    likely[place] = 0.0
    return likely


def server_at(seed, policy, limits):
    """Before a client whose outcomes follow from nothing."""
    data = rows(600, seed)
    noise = np.random.default_rng(seed + 1_000).standard_normal(data.n_rows)
    alike = fedopl.LoggedData(data.contexts, data.actions, noise, action_names=ACTIONS)
    study = study_with(personal="ridge", evaluation=0.5, policy=policy)
    return LyingServer(alike, study, limits=limits).score()


def farthest(server, split):
    """Scores of a split's rows by how far out they are in x0, the farthest last; and their x0."""
    chunk = server.door._space.whole
    own = chunk.rows(split)
    order = np.argsort(chunk.data.contexts[own][:, 0])
    return chunk.scores[own][order], chunk.data.contexts[own][order, 0]


def beyond(numbers):
    """A threshold that the last of these numbers alone lies beyond."""
    return float(numbers[-2:].mean())


def tree(cut, within, outside, study):
    return TreePolicy.of(Branch(0, cut, Leaf(outside), Leaf(within)), study)


def ask_tree(server, cut, others, strength, asked):
    told = server.ask(
        ValuePersonalTree,
        **packed(asked, server.study),
        tree=as_array(Branch(0, cut, Leaf(0), Leaf(1))),
        others=others,
        likelihoods=only(strength),
    )
    assert not isinstance(told, Refusal)
    return told


TREE = fedopl.Tree(depth=1, refine=False)


def by_values_of_trees(seed, limits):
    """Γ(pill) − Γ(none) of the held-out person farthest out, and the truth."""
    server = server_at(seed, TREE, limits)
    scores, numbers = farthest(server, RowSplit.EVALUATION)
    others = np.array([[1e9, -1e9], [-1e9, 1e9], [-2e9, -2e9]])
    arm = constant_policy(ACTIONS[0], ACTIONS, server.study.features)
    told = ask_tree(server, beyond(numbers), others, NONE, [arm])
    return told.n_rows * (told.means[1] - told.means[0]), scores[-1, 1] - scores[-1, 0]


def by_values_of_choices(seed, limits):
    """The same of candidates, of which the second gives one person the pill."""
    server = server_at(seed, "finite", limits)
    scores, numbers = farthest(server, RowSplit.EVALUATION)
    first, second = two_candidates(server, beyond(numbers))
    others = np.array([0.0, 1e9])
    fields = {**packed([first, second], server.study), "others": others, "likelihoods": only(NONE)}
    told = server.ask(ValuePersonalChoice, **fields)
    return told.n_rows * (told.means[2] - told.means[0]), scores[-1, 1] - scores[-1, 0]


def two_candidates(server, cut):
    """Nothing for everybody, and the same but the pill for whoever lies beyond."""
    parameters = np.zeros((2, len(ACTIONS), 5))
    parameters[:, 2, -1] = FAR
    parameters[0, 1, -1] = FAR
    parameters[1, 1] = [1.0, 0.0, 0.0, 0.0, -cut]
    return [LinearPolicy.from_numbers(own, server.study) for own in parameters]


BY_VALUES = {"tree": by_values_of_trees, "choice": by_values_of_choices}


@pytest.mark.parametrize("kind", BY_VALUES)
def test_without_limits_a_held_out_person_comes_out_to_many_digits(kind):
    """So the attack is one."""
    found, true = np.array([BY_VALUES[kind](seed, OPEN) for seed in range(3)]).T
    np.testing.assert_allclose(found, true, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", BY_VALUES)
def test_with_default_limits_values_hide_a_held_out_person(kind):
    found, true = np.array([BY_VALUES[kind](seed, None) for seed in range(N_PEOPLE)]).T
    assert np.corrcoef(found, true)[0, 1] ** 2 < 0.3


# --- what was chosen tells of rows that are learned from ------------------------------------------


def by_action_in_a_leaf(seed):
    """Whether the pill is better than nothing for one training person, alone in a leaf."""
    server = server_at(seed, TREE, None)
    scores, numbers = farthest(server, RowSplit.TRAINING)
    return chosen_in_leaf(server, beyond(numbers), 0.0), is_better(scores[-1])


def by_action_beside_known_rows(seed):
    """The same of the last of fifty, where the sum over all others is known, such as from cells."""
    server = server_at(seed, TREE, None)
    scores, numbers = farthest(server, RowSplit.TRAINING)
    rest = (scores[-50:-1, 1] - scores[-50:-1, 0]).sum()
    return chosen_in_leaf(server, float(numbers[-51:-49].mean()), rest), is_better(scores[-1])


def is_better(scores):
    return scores[1] > scores[0]


def chosen_in_leaf(server, cut, rest):
    """What the client chose beyond the threshold, if (others + r·sum) compares as it does.

    It is told: the value of the personal tree is exactly that of one of two trees, or of neither.
    """
    others = np.array([[30.0, 0.0], [-30.0, -RIDGE_STRENGTHS[SOME] * (rest + 1e-6)], [FAR, FAR]])
    asked = [tree(cut, action, 0, server.study) for action in (0, 1)]
    told = ask_tree(server, cut, others, SOME, asked)
    return as_told(told.means[2], told.means[:2])


def as_told(own, means):
    """Which of two values this is, or a guess."""
    return own == means[1] if own in means else bool(hash(own) % 2)


def by_choice_among_candidates(seed):
    """Whether the pill is better for one training person, by whom alone two candidates differ."""
    server = server_at(seed, "finite", None)
    scores, numbers = farthest(server, RowSplit.TRAINING)
    two = two_candidates(server, beyond(numbers))
    fields = {**packed(two, server.study), "others": np.zeros(2), "likelihoods": only(SOME)}
    told = server.ask(ValuePersonalChoice, **fields)
    assert not isinstance(told, Refusal)
    return as_told(told.means[2], told.means[:2]), is_better(scores[-1])


BY_CHOICE = {
    "alone in a leaf": by_action_in_a_leaf,
    "beside known rows": by_action_beside_known_rows,
    "candidates": by_choice_among_candidates,
}


def exact_on_training_rows(space, query, split, **more):
    """Values by which candidates are chosen as they are, and values that leave with noise."""
    if split is RowSplit.TRAINING:
        return estimate_candidates(space, query, split)[0]
    return values_on_split(space, query, split, **more)


@pytest.mark.parametrize("how", BY_CHOICE)
def test_if_values_alone_had_noise_choices_would_say_what_is_better_for_one_person(
    how, monkeypatch
):
    """So the attack is one: noise on values hides no choice that was made by exact sums."""
    monkeypatch.setattr(value_personal, "_noise_in", lambda *_: LeafNoise.none())
    monkeypatch.setattr(value_personal, "values_on_split", exact_on_training_rows)
    found, true = np.array([BY_CHOICE[how](seed) for seed in range(8)]).T
    assert (found == true).mean() > 0.9


@pytest.mark.parametrize("how", BY_CHOICE)
def test_with_default_limits_choices_are_hardly_better_than_a_guess(how):
    found, true = np.array([BY_CHOICE[how](seed) for seed in range(N_PEOPLE)]).T
    assert (found == true).mean() < 0.75
