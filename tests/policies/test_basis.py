"""A basis: what its terms are, what they are called, and policies that are linear in them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.base.errors import OptionError, PolicyError
from fedopl.policies.basis import FAMILIES, FIRST_ONE_IN, Basis, candidate_cuts, first_looked_at
from fedopl.policies.kinds import load_policy, packed
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.terms import Terms

FEATURES = ("age", "female", "dose")
BASIS = Basis(knots={"age": (40, 50, 60), "dose": (1, 2, 3)}, products=("age", "dose", "female"))
TERMS = Terms(BASIS, FEATURES)
CONTEXTS = np.array([[45.0, 1, 2.5], [95, 0, 0.1], [50, 1, 2], [-400, 0, 2]])


def test_terms_are_named_and_begin_with_the_features():
    assert TERMS.names == (
        *FEATURES,
        *("age above 40", "age above 50", "age above 60"),
        *("dose above 1", "dose above 2", "dose above 3"),
        *("age × dose", "age × female", "dose × female"),
        *("age past 50", "dose past 2", "age past 50 × dose past 2"),
    )
    sizes = {"linear": 3, "thresholds": 3, "hinges": 9, "splines": 12, "steps": 15}
    assert TERMS.sizes == sizes
    assert [TERMS.sources[place] for place in (0, 3, 9, 14)] == [(0,), (0,), (0, 2), (0, 2)]


def test_terms_are_what_their_names_say():
    terms = dict(zip(TERMS.names, TERMS.of(CONTEXTS).T, strict=True))
    assert np.array_equal(terms["age"], CONTEXTS[:, 0])
    clamped = np.clip(CONTEXTS[:, 0], 20, 80)  # by as much as the outer knots lie apart
    assert np.allclose(terms["age above 50"], np.maximum(clamped - 50, 0) / 10)
    in_units = (clamped - 50) / 10, np.clip(CONTEXTS[:, 2], -1, 5) - 2
    assert np.allclose(terms["age × dose"], in_units[0] * in_units[1])
    assert np.allclose(terms["age × female"], in_units[0] * CONTEXTS[:, 1])
    shares = [np.clip(one + 0.5, 0, 1) for one in in_units]
    risen = [share**2 * (3 - 2 * share) for share in shares]
    assert np.allclose(terms["age past 50 × dose past 2"], risen[0] * risen[1])


def test_what_was_found_to_jump_comes_next_to_the_features_and_is_sharp():
    found = ((("age", 44.0), ("dose", 2.0)), (("age", 52.0),))
    told = {**dict(BASIS), "screened_thresholds": 3, "found_thresholds": found}
    terms = Terms(Basis.model_validate(told), FEATURES)
    assert terms.names[3:7] == ("age > 44", "dose > 2", "age > 52", "age > 44 and dose > 2")
    assert terms.families == FAMILIES[:-1]
    assert terms.sizes["thresholds"] == 7
    expected = [[1, 1, 0, 1], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert terms.of(CONTEXTS)[:, 3:7].tolist() == expected
    assert np.array_equal(terms.of(CONTEXTS, 7), terms.of(CONTEXTS)[:, :7])
    assert np.array_equal(terms.of(CONTEXTS)[:, 7:], TERMS.of(CONTEXTS)[:, 3:])


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ((("age", 45.123),), "divided at 45.123; the nearest value of its grid is 45"),
        ((("female", 0.0),), "has no knots"),
        ((("age", 44.0), ("age", 52.0)), "is one number; expected two"),
        ((("age", 44.0), ("dose", 2.0), ("age", 52.0)), "are 3 numbers; expected one, or two"),
    ],
)
def test_thresholds_are_those_of_a_public_grid(found, complaint):
    told = {**dict(BASIS), "screened_thresholds": 3, "found_thresholds": (found,)}
    with pytest.raises(OptionError, match=complaint):
        Basis(**told)


def test_two_numbers_have_one_corner():
    corners = ((("age", 44.0), ("dose", 2.0)), (("dose", 1.6), ("age", 52.0)))
    told = {**dict(BASIS), "screened_thresholds": 3, "found_thresholds": corners}
    with pytest.raises(OptionError, match="named twice"):
        Basis(**told)


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-4, 1e6).filter(lambda apart: apart > 0),
)
def test_candidate_cuts_are_round_rising_and_around_the_knots(low, apart):
    cuts = candidate_cuts((low, low + apart))
    assert 200 <= len(cuts) <= 481
    first = first_looked_at((low, low + apart))
    assert set(np.diff(first)) == {FIRST_ONE_IN}
    assert low - 0.26 * apart <= cuts[0] < cuts[-1] <= low + 1.26 * apart
    assert all(one < two for one, two in pairwise(cuts))


@pytest.mark.parametrize("family", FAMILIES[:-1])
def test_the_terms_of_a_family_are_the_first_of_all(family):
    n_terms = TERMS.sizes[family]
    assert np.array_equal(TERMS.of(CONTEXTS, n_terms), TERMS.of(CONTEXTS)[:, :n_terms])


def test_a_family_without_terms_of_its_own_is_none():
    assert Terms(Basis(knots={"age": (1, 2)}), FEATURES).families == ("linear", "hinges", "steps")
    fixed = Terms(Basis(kind="splines", knots={"age": (1, 2)}), FEATURES)
    assert fixed.families == ("splines",)
    assert fixed.n_terms == 5


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"knots": {"age": (2, 1)}}, "'age': expected two or more, rising"),
        ({"knots": {"age": (2,)}}, "'age': expected two or more, rising"),
        ({"knots": {"age": (2, 2 + 1e-9)}}, "differ in their first six digits"),
        ({"knots": {"age": tuple(range(21))}}, "'age': expected at most 20, came 21"),
        ({"knots": {"age": (-1e300, 1e300)}}, "'age': expected numbers of at most 1e"),
        ({"knots": {}}, "at least 1 item"),
        ({"knots": {"age": (1, 2)}, "products": ("age", "age")}, "named twice"),
        ({"knots": {"age": (1, 2)}, "kind": "cubic"}, "'splines', 'steps' or 'waves'"),
        ({"knots": {"age": (1, 2)}, "kind": "waves"}, "waves: expected how many there are"),
        ({"knots": {"age": (1, 2)}, "kind": "steps", "waves": 3}, 'kind = "steps" has none'),
    ],
)
def test_a_basis_that_cannot_be_is_refused(settings, complaint):
    with pytest.raises(OptionError, match=complaint):
        Basis(**settings)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"features": ("age", "female")}, "'dose' is no feature"),
        ({"policy": fedopl.Linear(oracle="wap")}, "only csoaa-exact"),
        ({"policy": fedopl.Linear(features="blocks"), "actions": ("a", "b", "c")}, "only csoaa"),
    ],
)
def test_a_study_refuses_a_basis_that_it_cannot_use(changes, complaint):
    with pytest.raises(OptionError, match=complaint):
        fedopl.Study(**{"actions": ("a", "b"), "features": FEATURES, "basis": BASIS, **changes})


def test_a_basis_is_part_of_what_is_agreed_and_leaves_other_studies_as_they_were():
    plain = fedopl.Study(actions=("a", "b"), features=FEATURES)
    bent = fedopl.Study(actions=("a", "b"), features=FEATURES, basis=BASIS)
    assert "basis" not in plain.model_dump_json()
    assert plain.digest != bent.digest
    assert fedopl.Study.model_validate_json(bent.model_dump_json()) == bent
    assert bent.model_copy(update={"basis": None}).n_terms == 3


# --- policies -------------------------------------------------------------------------------------


def bent_policy(n_used=15):
    parameters = np.random.default_rng(0).standard_normal((2, 16))
    parameters[:, n_used:-1] = 0.0
    return LinearPolicy(parameters, ("a", "b"), FEATURES, terms=TERMS)


@pytest.mark.parametrize("n_used", [0, 2, 3, 9, 15])
def test_a_policy_is_linear_in_its_terms(n_used):
    policy, contexts = bent_policy(n_used), np.random.default_rng(1).normal(50, 20, (20_000, 3))
    expected = TERMS.of(contexts) @ policy.coefficients.T + policy.intercepts
    assert policy.n_used == n_used
    assert np.allclose(policy.scores(contexts), expected)


def test_a_policy_and_its_basis_are_saved_and_loaded(tmp_path):
    policy = bent_policy()
    policy.save(tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json")
    assert isinstance(loaded, LinearPolicy)
    assert np.array_equal(loaded.scores(CONTEXTS), policy.scores(CONTEXTS))
    text = (tmp_path / "policy.json").read_text().replace('"dose"', '"does"', 1)
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(PolicyError, match="a field is missing or of the wrong kind"):
        load_policy(tmp_path / "policy.json")


def test_plain_policies_go_beside_bent_ones():
    study = fedopl.Study(actions=("a", "b"), features=FEATURES, basis=BASIS)
    arm = constant_policy("b", study.actions, FEATURES)
    carried = packed([bent_policy(), arm], study)["linear"]
    both = [LinearPolicy.from_numbers(one, study).decide(CONTEXTS) for one in carried]
    assert np.array_equal(both[0], bent_policy().decide(CONTEXTS))
    assert np.array_equal(both[1], [1, 1, 1, 1])


def test_waves_are_the_same_for_one_seed_clamped_and_named():
    knots = {"age": (40.0, 60.0, 80.0), "dose": (1.0, 2.0), "weight": (50.0, 90.0)}
    basis = Basis(kind="waves", knots=knots, waves=6, wave_seed=7)
    features = ("dose", "age", "male", "weight")
    terms, again = Terms(basis, features), Terms(Basis(**basis.model_dump()), features)
    assert terms.names[-6:] == tuple(f"wave {n} of dose, age and weight" for n in range(1, 7))
    contexts = np.array([[1.5, 120.0, 0.0, 70.0], [1.5, 1e9, 1.0, 70.0], [1.0, 60.0, 0.0, 70.0]])
    waves = terms.of(contexts)[:, -6:]
    assert np.array_equal(waves, again.of(contexts)[:, -6:])
    assert np.array_equal(waves[0], waves[1])  # beyond 120 nothing changes, and no wave has a flag
    assert not np.array_equal(waves[0], waves[2])
    assert np.abs(waves).max() <= 1
    other = Terms(basis.model_copy(update={"wave_seed": 8}), features)
    assert not np.array_equal(other.of(contexts)[:, -6:], waves)
    assert "waves" not in Basis(knots=knots).model_dump()  # studies without waves keep their hash


def test_a_linear_basis_is_answered_with_how_a_study_is_linear():
    with pytest.raises(fedopl.FedoplError, match=r"a study without \[basis\] is linear") as caught:
        fedopl.Basis(**{**dict(BASIS), "kind": "linear"})
    assert "splines" not in str(caught.value)
