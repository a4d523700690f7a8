import itertools
import math

import numpy as np
import pytest

from fedopl.base.errors import DataError, OptionError
from fedopl.theory.entropy import (
    covering_number,
    entropy_integral,
    entropy_integral_on_rows,
    finite_entropy_integral,
    greedy_covering_number,
    greedy_packing_number,
    linear_entropy_integral,
    natarajan_log_covering_number,
    tree_entropy_integral,
    tree_log_covering_number,
    vc_entropy_integral,
    vc_log_covering_number,
)
from fedopl.theory.policy_classes import (
    centred_scores,
    envelope_score_distances,
    exact_rademacher,
    hamming_distances,
    oracle_rademacher,
    sampled_rademacher,
    score_distances,
)
from fedopl.theory.skew import row_weights

RNG = np.random.default_rng(7)
SCORES = RNG.normal(size=(10, 3)) + np.array([0.0, 0.5, -0.5])
CLIENTS = np.array([0] * 4 + [1] * 6)
ROW_WEIGHTS = row_weights([0.7, 0.3], CLIENTS)
DECISIONS = RNG.integers(0, 3, size=(6, 10))


def _best_of(decisions):
    rows = np.arange(decisions.shape[1])
    return lambda scores: float(scores[rows, decisions].sum(axis=1).max())


def _stumps(contexts, n_actions):
    """Every stump over one context, as decisions."""
    cuts = [-np.inf, *sorted(contexts)]
    actions = itertools.product(range(n_actions), repeat=2)
    return np.unique(
        [np.where(contexts <= cut, a, b) for cut, (a, b) in itertools.product(cuts, actions)],
        axis=0,
    )


def test_distances_are_what_their_definitions_say():
    for i, j in itertools.product(range(6), repeat=2):
        differ = np.mean(DECISIONS[i] != DECISIONS[j])
        assert hamming_distances(DECISIONS)[i, j] == pytest.approx(differ)
    squares = np.zeros((6, 6))
    for i, j in itertools.product(range(6), repeat=2):
        gaps = [SCORES[r, DECISIONS[i, r]] - SCORES[r, DECISIONS[j, r]] for r in range(10)]
        squares[i, j] = sum((ROW_WEIGHTS[r] * gap) ** 2 for r, gap in enumerate(gaps))
    distances = score_distances(SCORES, DECISIONS, ROW_WEIGHTS)
    np.testing.assert_allclose(distances, np.sqrt(squares / squares.max()))
    assert distances.max() == 1


def test_distances_obey_the_triangle_inequality():
    for distances in (
        hamming_distances(DECISIONS),
        score_distances(SCORES, DECISIONS, ROW_WEIGHTS),
        envelope_score_distances(SCORES, DECISIONS, ROW_WEIGHTS),
    ):
        through = distances[:, :, None] + distances[None, :, :]
        assert (distances[:, None, :] <= through + 1e-12).all()


def test_covers_and_packings_bracket_the_covering_number():
    distances = hamming_distances(RNG.integers(0, 2, size=(9, 12)))
    for radius in (0.0, 0.2, 0.35, 0.5, 0.7, 1.0):
        exact = covering_number(distances, radius)
        assert exact <= greedy_covering_number(distances, radius) <= exact * (1 + math.log(9))
        assert greedy_packing_number(distances, 2 * radius) <= exact
        assert exact <= greedy_packing_number(distances, radius)
    assert covering_number(distances, 1.0) == 1


def test_the_papers_lemma_on_covering_numbers_needs_the_envelope_below_the_line():
    # Policy j acts at row j alone: any two differ in two rows, which is as far apart as any.
    decisions, scores, weights = np.eye(12, dtype=int), 3 * np.eye(2)[[1] * 12], np.full(12, 1 / 12)
    radius = 0.6
    hamming_at_most = 1 + math.floor(1 / (radius**2 / 2))
    assert covering_number(score_distances(scores, decisions, weights), radius) == 12
    assert hamming_at_most < 12
    envelope = envelope_score_distances(scores, decisions, weights)
    assert covering_number(envelope, radius) <= hamming_at_most
    assert (envelope**2 <= hamming_distances(decisions) + 1e-12).all()


def test_constant_policies_have_the_finite_class_bound_exactly():
    constants = np.repeat(np.arange(4)[:, None], 1, axis=1)
    assert entropy_integral_on_rows(constants) == pytest.approx(finite_entropy_integral(4))
    assert entropy_integral_on_rows(constants) == pytest.approx(math.sqrt(math.log(4)))
    assert finite_entropy_integral(1) == 0


def test_the_entropy_integral_on_rows_steps_where_distances_are():
    # H = 1/4 apart: two balls up to ε = 1/2, one from there on.
    two = np.array([[0, 0, 0, 0], [0, 0, 0, 1]])
    assert entropy_integral_on_rows(two) == pytest.approx(0.5 * math.sqrt(math.log(2)))


def test_the_entropy_integral_on_rows_is_the_area_under_the_covering_numbers():
    distances = hamming_distances(DECISIONS)
    grid = (np.arange(4000) + 0.5) / 4000
    area = np.mean([math.sqrt(math.log(covering_number(distances, e**2))) for e in grid])
    assert entropy_integral_on_rows(DECISIONS) == pytest.approx(area, abs=1e-3)


def test_the_entropy_integral_of_a_known_covering_number():
    # log N(ε) = log(1/ε): ∫√(2·log(1/ε)) dε = √(π/2).
    assert entropy_integral(lambda radius: -math.log(radius)) == pytest.approx(
        math.sqrt(math.pi / 2), rel=1e-6
    )
    assert entropy_integral(lambda _: 2.25) == pytest.approx(1.5)


def test_the_tree_bound_covers_all_stumps():
    decisions = _stumps(np.arange(9.0), 2)
    distances = hamming_distances(decisions)
    for radius in (0.05, 0.12, 0.25, 0.5, 1.0):
        at_most = tree_log_covering_number(radius, depth=1, n_features=1, n_actions=2)
        assert math.log(greedy_packing_number(distances, 2 * radius)) <= at_most
        assert math.log(covering_number(distances, radius)) <= at_most


def test_the_tree_bound_counts_splits_thresholds_and_leaves():
    expected = 3 * math.log(10 * (2 / 0.1 + 1)) + 4 * math.log(5)
    assert tree_log_covering_number(0.1, depth=2, n_features=10, n_actions=5) == pytest.approx(
        expected
    )


def test_the_vc_bound_covers_thresholds():
    decisions = np.tril(np.ones((16, 15), dtype=int), -1)
    distances = hamming_distances(decisions)
    for radius in (0.05, 0.1, 0.25, 0.5):
        found = math.log(covering_number(distances, radius))
        assert found <= vc_log_covering_number(radius, 1)
        assert found <= natarajan_log_covering_number(radius, 1, 2)


@pytest.mark.parametrize("radius", [1e-6, 0.01, 0.3, 1.0])
@pytest.mark.parametrize(("dimension", "n_actions"), [(1, 2), (5, 3), (40, 4)])
def test_the_natarajan_bound_is_the_largest_fixed_point(radius, dimension, n_actions):
    def right(length):
        return dimension * math.log(2 * length / radius + 1) + 2 * dimension * math.log(n_actions)

    length = natarajan_log_covering_number(radius, dimension, n_actions)
    assert length == pytest.approx(right(length), rel=1e-9)
    assert all(right(c * length) < c * length for c in (1.01, 2, 100))


def test_richer_classes_have_larger_entropy_integrals():
    trees = [tree_entropy_integral(depth, 10, 3) for depth in range(4)]
    assert trees == sorted(trees)
    assert trees[0] == pytest.approx(finite_entropy_integral(3))
    assert tree_entropy_integral(2, 10, 3) < tree_entropy_integral(2, 20, 3)
    assert tree_entropy_integral(2, 10, 3) < tree_entropy_integral(2, 10, 4)
    assert linear_entropy_integral(40, 4) < linear_entropy_integral(80, 4)
    assert linear_entropy_integral(40, 2) == vc_entropy_integral(40)


def test_the_vc_bound_grows_like_the_root_of_the_dimension():
    assert vc_entropy_integral(400) / vc_entropy_integral(100) == pytest.approx(2, rel=0.02)


def test_a_single_row_has_its_own_score_as_complexity():
    assert exact_rademacher([[3.0, -5.0]], [[0], [1]], [0.5]) == 2.5


def test_two_rows_by_hand():
    # |±1 ± 2| is 3 or 1, each half the time.
    assert exact_rademacher([[1.0], [2.0]], [[0, 0]], [1.0, 1.0]) == 2


def test_enumeration_sampling_and_oracle_agree():
    exact = exact_rademacher(SCORES, DECISIONS, ROW_WEIGHTS)
    sampled = sampled_rademacher(
        SCORES, DECISIONS, ROW_WEIGHTS, draws=4000, rng=np.random.default_rng(3)
    )
    oracle = oracle_rademacher(
        SCORES, ROW_WEIGHTS, _best_of(DECISIONS), draws=4000, rng=np.random.default_rng(3)
    )
    assert abs(sampled.value - exact) < 4 * sampled.standard_error
    assert sampled.standard_error < 0.02 * exact
    assert oracle.value == pytest.approx(sampled.value, rel=1e-12)
    assert oracle.standard_error == pytest.approx(sampled.standard_error, rel=1e-9)


def test_enumeration_is_the_mean_over_all_signs():
    total = 0.0
    for signs in itertools.product((-1, 1), repeat=10):
        values = [
            sum(
                w * s * SCORES[r, policy[r]]
                for r, (w, s) in enumerate(zip(ROW_WEIGHTS, signs, strict=True))
            )
            for policy in DECISIONS
        ]
        total += max(abs(value) for value in values)
    assert exact_rademacher(SCORES, DECISIONS, ROW_WEIGHTS) == pytest.approx(total / 2**10)


def test_a_larger_class_is_more_complex():
    fewer = exact_rademacher(SCORES, DECISIONS[:3], ROW_WEIGHTS)
    assert fewer < exact_rademacher(SCORES, DECISIONS, ROW_WEIGHTS)


def test_differences_are_at_most_twice_as_complex():
    pairs = [(a, b) for a in DECISIONS for b in DECISIONS]
    rows = np.arange(10)
    gaps = np.array([SCORES[rows, a] - SCORES[rows, b] for a, b in pairs])  # (n_pairs, n_rows)
    # One "action" per pair, chosen in every row.
    of_pairs = exact_rademacher(
        gaps.T, np.repeat(np.arange(len(pairs))[:, None], 10, axis=1), ROW_WEIGHTS
    )
    assert of_pairs <= 2 * exact_rademacher(SCORES, DECISIONS, ROW_WEIGHTS)
    centred = exact_rademacher(centred_scores(SCORES, DECISIONS[0]), DECISIONS, ROW_WEIGHTS)
    assert of_pairs <= 2 * centred


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda: exact_rademacher(np.ones((25, 2)), np.zeros((1, 25), int), np.ones(25)),
            OptionError,
        ),
        (lambda: exact_rademacher(SCORES, DECISIONS + 1, ROW_WEIGHTS), DataError),
        (lambda: exact_rademacher(SCORES, DECISIONS[:, 1:], ROW_WEIGHTS), DataError),
        (lambda: exact_rademacher(SCORES, DECISIONS, ROW_WEIGHTS[1:]), DataError),
        (lambda: exact_rademacher(SCORES * np.nan, DECISIONS, ROW_WEIGHTS), DataError),
        (lambda: covering_number(np.zeros((21, 21)), 0.5), OptionError),
        (lambda: covering_number(np.zeros((3, 2)), 0.5), DataError),
        (lambda: vc_log_covering_number(1.5, 2), OptionError),
        (lambda: tree_entropy_integral(-1, 3, 2), OptionError),
        (lambda: linear_entropy_integral(0, 2), OptionError),
        (lambda: finite_entropy_integral(0), OptionError),
    ],
)
def test_nonsense_is_refused(call, error):
    with pytest.raises(error):
        call()
