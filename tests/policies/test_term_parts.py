"""Parts of a score that is linear in terms: they add up to it, and each is what it says."""

import numpy as np

from fedopl.policies.basis import Basis
from fedopl.policies.term_parts import parts_of
from fedopl.policies.terms import Terms

FEATURES = ("age", "female", "dose")
BASIS = Basis(
    knots={"age": (40, 50, 60), "dose": (1, 2, 3)},
    products=FEATURES,
    screened_thresholds=2,
    found_thresholds=((("age", 52.0), ("dose", 1.6)), (("dose", 2.4),)),
)
TERMS = Terms(BASIS, FEATURES)
WEIGHTS = np.random.default_rng(0).standard_normal((2, TERMS.n_terms))
AT = np.array([53.0, 0.4, 1.7])
RNG = np.random.default_rng(1)
ROWS = np.column_stack(
    [RNG.uniform(30, 70, 200), RNG.integers(0, 2, 200), RNG.uniform(0.5, 3.5, 200)]
)


def test_parts_add_up_to_the_whole():
    parts = parts_of(TERMS, WEIGHTS, AT)
    assert set(parts) == {(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)}
    assert np.allclose(sum(parts.values()), WEIGHTS)


def test_a_features_part_is_what_it_does_while_all_others_stay_where_they_are():
    parts = parts_of(TERMS, WEIGHTS, AT)
    for place in range(3):
        others_fixed = np.tile(AT, (len(ROWS), 1))
        others_fixed[:, place] = ROWS[:, place]
        whole = TERMS.of(others_fixed) @ WEIGHTS.T
        own = TERMS.of(ROWS) @ parts[place,].T
        assert np.allclose(whole - whole[0], own - own[0])


def test_what_two_add_together_is_nothing_where_one_of_them_stays():
    pairs = {key: part for key, part in parts_of(TERMS, WEIGHTS, AT).items() if len(key) == 2}
    for key, part in pairs.items():
        for stays in key:
            rows = ROWS.copy()
            rows[:, stays] = AT[stays]
            found = TERMS.of(rows) @ part.T
            assert np.allclose(found, found[0]), (key, stays)
        moved = TERMS.of(ROWS) @ part.T
        assert np.ptp(moved, axis=0).max() > 0.1


def test_terms_without_weight_have_no_part():
    plain = WEIGHTS.copy()
    plain[:, 1:] = 0.0
    assert list(parts_of(TERMS, plain, AT)) == [(0,)]
