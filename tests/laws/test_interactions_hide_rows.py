"""What is told of features that act together says next to nothing of any row's outcome.

The server knows everybody's features and actions, propensities and outcome models; it is after what
outcome models leave of each outcome. Statistics of products are as many equations for that.
"""

import numpy as np
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with, with_row

import fedopl
from fedopl.client.scoring.interactions import INTERACTION_TESTS
from fedopl.messages.evaluation.interactions_left import (
    NO_THIRD,
    TellInteractions,
    feature_products,
    product_in,
)
from fedopl.messages.learning.score_sums import SumScores

FLAGS = (0, 1)


def told_by(data, **options):
    """The lines of each action, and the workspace that they come from."""
    n_features = data.contexts.shape[1]
    study = study_with(
        features=tuple(f"x{place}" for place in range(n_features)),
        evaluation=fedopl.EvaluationPlan(share=0),
    )
    server = LyingServer(data, study, **options)
    models = np.zeros((study.nuisances.folds + 1, len(ACTIONS), n_features + 1))
    server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    return server.ask(TellInteractions).strongest, server.door._space


def statistics_in(lines, n_features=N_FEATURES):
    """The statistics of residuals (n_products,); 0 where none is told."""
    products = feature_products(n_features)
    found = np.zeros(len(products))
    for line in lines[lines[:, :2].any(axis=1)]:
        found[products.index(product_in(line))] = line[4]
    return found


def solved(space, statistics):
    """How much of residuals statistics (n_actions, n_products) give away, r²: least squares."""
    data, training = space.data, space.training
    contexts, found, truth = data.contexts[training], [], []
    signs = np.where(contexts > np.median(contexts, axis=0), 1.0, -1.0)
    for action, own in enumerate(statistics):
        took = data.actions[training] == action
        features = np.column_stack([np.ones(took.sum()), contexts[took]])
        products = [
            signs[took][:, list(places)].prod(axis=1)
            for places in feature_products(contexts.shape[1])
        ]
        left = np.eye(len(features)) - features @ np.linalg.pinv(features)
        products = left @ np.column_stack(products)
        products /= np.linalg.norm(products, axis=0)
        found.append(np.linalg.pinv(products.T, rcond=1e-6) @ own)
        truth.append(left @ data.rewards[training][took])
    return np.corrcoef(np.concatenate(found), np.concatenate(truth))[0, 1] ** 2


def test_statistics_cannot_be_solved_for_outcomes():
    rng, shares = np.random.default_rng(0), []
    for _ in range(4):
        contexts, actions = rng.standard_normal((180, 10)), rng.integers(0, len(ACTIONS), 180)
        data = fedopl.LoggedData(contexts, actions, rng.standard_normal(180), action_names=ACTIONS)
        lines, space = told_by(data)
        exact = space.scored.interactions[..., INTERACTION_TESTS.index("residuals")]
        told = np.array([statistics_in(own, 10) for own in lines])
        assert told.any(axis=1).all()
        shares.append([solved(space, exact), solved(space, told)])
    exact, guarded = np.mean(shares, axis=0)
    print(f"r² with outcomes: {exact:.2f} from all statistics, {guarded:.2f} from those told")
    assert exact > 0.8
    assert guarded < 0.25


def test_an_outcome_that_alone_makes_a_statistic_is_not_told_of():
    target = np.full((1, N_FEATURES), 0.5)
    limits = fedopl.Limits(dominance=1.0)  # which would refuse everything before
    for reward in (80.0, -80.0):
        lines, _ = told_by(with_row(rows(), target, 1, reward), limits=limits)
        assert not lines[1].any()
        assert lines[0].any()
    # Without limits, whether it lies above or below is in the statistics.
    above, below = (
        statistics_in(
            told_by(with_row(rows(), target, 1, reward), limits=fedopl.Limits.open())[0][1]
        )
        for reward in (80.0, -80.0)
    )
    assert above @ below < 0


def test_a_product_of_two_people_is_not_told_of():
    data = rows(600)
    contexts = np.array(data.contexts)
    first, second = np.arange(600) % 10 == 0, np.arange(600) % 10 == 1
    contexts[:, FLAGS] = np.column_stack([first, second])
    both = np.flatnonzero(first)[:2]
    contexts[both, 1] = 1.0
    actions, rewards = np.array(data.actions), np.array(data.rewards)
    actions[both], rewards[both] = 0, 100.0
    people = fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS)
    lines, _ = told_by(people)
    assert [*FLAGS, NO_THIRD] not in lines[0, :, :3].tolist()


def guesses(told, tests):
    """Which of two outcomes what is told is nearer to; the server knows all else."""
    are_told = told != 0
    return int(np.argmin([np.square(told - own)[are_told].sum() for own in tests]))


def test_one_outcome_is_not_surely_in_what_is_told():
    """Whether a known person's outcome is usual, or two deviations above, by all numbers told."""
    by_told, by_exact, place = [], [], INTERACTION_TESTS.index("residuals")
    for seed in range(20):
        base = rows(seed=seed)
        target = np.random.default_rng(seed).standard_normal((1, N_FEATURES))
        both = [told_by(with_row(base, target, 1, reward)) for reward in (0.0, 2.0)]
        tests = [space.scored.interactions[1, :, place] for _, space in both]
        truth = seed % 2
        by_told.append(guesses(statistics_in(both[truth][0][1]), tests) == truth)
        by_exact.append(guesses(tests[truth], tests) == truth)
    print(f"right by what is told {np.mean(by_told):.2f}, by exact numbers {np.mean(by_exact):.2f}")
    assert all(by_exact)
    assert np.mean(by_told) <= 0.85


def test_there_are_no_more_lines_than_rows_can_hide():
    lines, space = told_by(rows(90), limits=fedopl.Limits(minimum_cell=1, minimum_rows=10))
    told = (lines[..., :2].any(axis=-1)).sum(axis=1)
    assert (told <= np.maximum(space.rows_per_action / 2 - N_FEATURES - 1, 0)).all()
