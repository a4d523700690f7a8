"""What two features do around a corner is said as it is, and nothing that the corner reverses."""

import numpy as np
import pytest

from fedopl.policies.basis import Basis
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.terms import Terms
from fedopl.report.explain.curve_words import curve_sentences
from fedopl.report.explain.explain_curves import explain_curves

FEATURES = ("age", "dose")
FOUND = ((("age", 50.8), ("dose", 3.02)),)
BOTH, NEITHER = "age > 50.8 and dose > 3.02", "age ≤ 50.8 and dose ≤ 3.02"
ONLY_AGE, ONLY_DOSE = "age > 50.8 and dose ≤ 3.02", "age ≤ 50.8 and dose > 3.02"
TOGETHER = "age and dose act together: they favour 'yes' over 'no'"


def policy_with(found=FOUND, **weights):
    """'yes' over 'no', with these weights of terms, by their names."""
    basis = Basis(
        knots={"age": (40, 50, 60), "dose": (1, 3, 5)},
        products=FEATURES,
        screened_thresholds=4,
        found_thresholds=found,
    )
    terms = Terms(basis, FEATURES)
    parameters = np.zeros((2, terms.n_terms + 1))
    parameters[0, [terms.names.index(name) for name in weights]] = list(weights.values())
    return LinearPolicy(parameters, ("yes", "no"), FEATURES, terms=terms)


def said_of(beyond_age, beyond_dose, beyond_both, **more):
    jumps = {"age > 50.8": beyond_age, "dose > 3.02": beyond_dose, BOTH: beyond_both}
    return curve_sentences(explain_curves(policy_with(**jumps, **more)))[:-1]


@pytest.mark.parametrize(
    ("weights", "where"),
    [
        ((-1, -1, 2), f"where {BOTH}, and where {NEITHER}"),
        ((1, 1, -2), f"where {ONLY_AGE}, and where {ONLY_DOSE}"),
        ((0, 0, 1), f"where {BOTH}"),
        ((0, 0, -1), f"except where {BOTH}"),
        ((-1, -1, 1), f"where {NEITHER}"),
        ((1, 0, 1), "where age > 50.8, most where dose > 3.02"),
    ],
)
def test_it_is_said_on_which_sides_of_both_cuts_an_action_is_favoured(weights, where):
    assert f"{TOGETHER} {where}." in said_of(*weights)


def test_no_direction_is_said_that_a_corner_reverses():
    assert said_of(-1, -1, 2) == [f"{TOGETHER} where {BOTH}, and where {NEITHER}."]
    only_age = said_of(1, 0, -2)
    assert not any("favoured by" in one and "age" in one for one in only_age)


def test_a_direction_is_said_that_a_corner_leaves_as_it_is():
    assert "'yes' over 'no' is favoured by higher dose and higher age." in said_of(1, 1, 0.8)


def test_other_effects_of_both_features_count_on_each_side():
    # What rises with age outweighs what is lost in the corner.
    said = said_of(0, 0, -0.2, age=0.3)
    assert not any("act together" in one for one in said)
    assert "'yes' over 'no' is favoured by higher age." in said


def test_where_a_curve_jumps_the_cut_is_named_as_it_is():
    found = ((("age", 41.76),), (("age", 58.24), ("dose", 3.02)))
    policy = policy_with(found, **{"age > 41.76": 1.0, "age > 58.24": -1.5})
    explained = explain_curves(policy)
    assert "favoured by age from 41.76 to 58.24." in curve_sentences(explained)[0]
    (age,) = explained.curves
    before, beyond = (np.searchsorted(age.at, 58.24, side=side) for side in ("left", "right"))
    assert age.at[before] == 58.24
    assert age.adds[0][beyond] - age.adds[0][before] == pytest.approx(-1.5)


def test_every_side_has_what_the_policy_adds_there_on_average():
    weights = {"age": 0.02, "dose > 3.02": 0.5, "age > 50.8 and dose > 3.02": -2.0}
    policy = policy_with(**weights, **{"age × dose": 0.3, "age above 50": -0.4})
    (pair,) = explain_curves(policy).pairs
    rng = np.random.default_rng(5)
    contexts = rng.uniform((40, 1), (60, 5), (200_000, 2))
    scores = policy.scores(contexts) @ (1, -1)
    for side in np.ndindex(2, 2):
        there = ((contexts > (50.8, 3.02)) == np.array(side, bool)).all(axis=1)
        said = pair.corner.adds[0][side]
        assert said == pytest.approx(scores[there].mean() - scores.mean(), abs=0.05)


def test_an_action_is_not_said_to_depend_on_nothing_if_two_favour_it_together():
    assert not any("hardly depends" in one for one in said_of(-1, -1, 2))
    product = curve_sentences(explain_curves(policy_with((), **{"age × dose": 1.0})))
    assert not any("hardly depends" in one for one in product)
