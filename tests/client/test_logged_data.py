import copy
import pickle

import numpy as np
import pytest

import fedopl

X = np.arange(12.0).reshape(6, 2)
A = np.array(["b", "a", "b", "a", "c", "b"])
Y = np.arange(6.0)
EVEN = np.full((6, 3), 1 / 3)


def test_labels_become_codes_in_sorted_order():
    data = fedopl.LoggedData(X, A, Y)
    assert data.action_names == ("a", "b", "c")
    assert data.actions.tolist() == [1, 0, 1, 0, 2, 1]
    assert data.rows_per_action.tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    "actions", [[0, 25, 95], [0.0, 25.0, 95.0], ["0", "25", "95"], np.array([0, 25, 95], object)]
)
def test_one_label_has_one_spelling_however_it_is_stored(actions):
    data = fedopl.LoggedData(np.eye(3), actions, [1, 2, 3], action_names=[0, 25, 95, 100])
    assert data.action_names == ("0", "25", "95", "100")
    assert data.actions.tolist() == [0, 1, 2]


def test_numeric_labels_are_sorted_by_size():
    assert fedopl.LoggedData(np.eye(3), [100, 25, 9], [1, 2, 3]).action_names == ("9", "25", "100")


def test_codes_go_with_names():
    data = fedopl.LoggedData(np.eye(2), [2, 0], [1, 2], action_names=["x", "y", "z"])
    assert data.actions.tolist() == [2, 0]


def test_codes_go_with_a_propensity_for_every_action():
    data = fedopl.LoggedData(np.eye(2), [0, 2], [1, 2], np.full((2, 4), 0.25))
    assert data.n_actions == 4
    assert data.actions.tolist() == [0, 2]


def test_a_frame_names_its_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, 2], "bmi": [3.0, 4]})
    assert fedopl.LoggedData(frame, ["a", "b"], [1, 2]).feature_names == ("age", "bmi")


def test_it_is_frozen_and_does_not_copy():
    data = fedopl.LoggedData(X, A, Y)
    with pytest.raises(AttributeError):
        data.rewards = Y
    with pytest.raises(ValueError, match="read-only"):
        data.rewards[0] = 1
    assert np.shares_memory(data.contexts, X)
    assert X.flags.writeable


def test_its_repr_shows_counts_only():
    data = fedopl.LoggedData(X + 987654, A, Y, EVEN, weights=Y + 1, groups=A)
    assert repr(data) == (
        "LoggedData(6 rows, 2 features, 3 actions, 3 groups, weighted, "
        "propensities of every action)"
    )


def test_rows_cannot_be_pickled_or_copied(draw):
    data = draw()
    nuisances = fedopl.cross_fit(data, propensity="marginal")
    for holder in (data, nuisances, fedopl.aipw_scores(data, nuisances)):
        for carry_away in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(fedopl.PrivacyError, match="holds rows"):
                carry_away(holder)


def test_group_labels_are_not_kept():
    data = fedopl.LoggedData(X, A, Y, groups=["Ann", "Bob", "Ann", "Cleo", "Bob", "Ann"])
    assert data.groups.tolist() == [0, 1, 0, 2, 1, 0]
    assert "Ann" not in str(vars(data))


BAD = {
    "no rows": (dict(contexts=np.empty((0, 2)), actions=[], rewards=[]), "at least one row"),
    "no features": (dict(contexts=np.empty((6, 0))), "at least one row and one feature"),
    "one-dimensional contexts": (dict(contexts=Y), r"expected shape \(n_rows, n_columns\)"),
    "ragged contexts": (dict(contexts=[[1, 2], [3]]), "ragged"),
    "text contexts": (dict(contexts=[["1", "2"]] * 6), "contexts: expected numbers"),
    "object contexts": (dict(contexts=[[object(), 2]] * 6), "not numbers"),
    "a missing context": (
        dict(contexts=np.where(X == 3, np.nan, X), feature_names=["age", "bmi"]),
        r"1 of 6 rows \(by column: 'bmi' 1\)",
    ),
    "an infinite context": (dict(contexts=np.where(X == 3, np.inf, X)), "infinite"),
    "short rewards": (dict(rewards=Y[:5]), "rewards: expected 6 rows as in contexts, came 5"),
    "a missing reward": (dict(rewards=[1, 2, 3, 4, 5, None]), "rewards: missing or infinite"),
    "text rewards": (dict(rewards=list("abcdef")), "rewards: expected numbers"),
    "a column of rewards": (dict(rewards=Y[:, None]), "rewards: expected shape"),
    "short actions": (dict(actions=A[:5]), "actions: expected 6 rows"),
    "a missing action": (dict(actions=[*A[:5], None]), "actions: missing in 1 of 6"),
    "a NaN action": (dict(actions=[1, 2, 1, 2, 1, np.nan]), "actions: missing in 1 of 6"),
    "an unknown action": (
        dict(action_names=["a", "b"]),
        r"1 of 6 rows .* the 2 named \('a', 'b'\); unknown: 'c'",
    ),
    "a code too large": (
        dict(actions=[0, 1, 2, 0, 1, 3], action_names=["a", "b", "c"]),
        "unknown: '3'",
    ),
    "one action": (dict(actions=["a"] * 6), "at least two actions"),
    "an action named twice": (dict(action_names=["a", "b", "a", "c"]), "more than once: 'a'"),
    "feature names too few": (dict(feature_names=["age"]), "feature_names: expected 2"),
    "a feature named twice": (dict(feature_names=["age", "age"]), "more than once: 'age'"),
    "propensity 0": (dict(propensities=[0.5, 0.5, 0.5, 0.5, 0.5, 0]), "0 for the action"),
    "propensity above 1": (dict(propensities=[0.5] * 5 + [1.5]), "outside 0 to 1 .* 1.5"),
    "negative propensity": (dict(propensities=[0.5] * 5 + [-1]), "outside 0 to 1"),
    "missing propensity": (dict(propensities=[0.5] * 5 + [np.nan]), "propensities: missing"),
    "short propensities": (dict(propensities=[0.5] * 5), "propensities: expected 6 rows"),
    "propensities of two actions": (dict(propensities=EVEN[:, :2]), "expected 3 columns"),
    "propensities off one": (dict(propensities=EVEN * 0.9), "6 of 6 rows do not add up to 1"),
    "a cube of propensities": (dict(propensities=EVEN[None]), r"came \(1, 6, 3\)"),
    "zero weight": (dict(weights=[1, 1, 1, 1, 1, 0]), "weights: 1 of 6 are zero or less"),
    "infinite weight": (dict(weights=[1, 1, 1, 1, 1, np.inf]), "weights: missing or infinite"),
    "missing group": (dict(groups=[1, 1, 2, 2, None, 3]), "groups: missing in 1 of 6"),
    "short groups": (dict(groups=[1, 2]), "groups: expected 6 rows"),
    "a table of groups": (dict(groups=X), "groups: expected shape"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_in_words(change, message):
    fields = {"contexts": X, "actions": A, "rewards": Y, **change}
    with pytest.raises(fedopl.DataError, match=message) as caught:
        fedopl.LoggedData(**fields)
    assert isinstance(caught.value, fedopl.FedoplError)


def test_an_action_known_to_be_impossible_is_allowed():
    chances = np.array([[0.5, 0.5, 0.0]] * 6)
    data = fedopl.LoggedData(X, ["a", "b"] * 3, Y, chances, action_names="abc")
    assert data.propensities.shape == (6, 3)


def test_one_row_is_data_and_duplicates_are_rows():
    assert fedopl.LoggedData([[1.0]], ["a"], [1], action_names="ab").n_rows == 1
    assert fedopl.LoggedData(np.ones((4, 2)), list("abab"), np.ones(4)).n_rows == 4


# --- parts -----------------------------------------------------------------------------------


def test_a_part_is_a_view_of_its_rows(draw):
    data = draw(50, known=True, weights=np.arange(1.0, 51), groups=np.arange(50) // 5)
    part = data.part(slice(20, 30))
    for name in ("contexts", "actions", "rewards", "propensities", "weights", "groups"):
        array = getattr(part, name)
        np.testing.assert_array_equal(array, getattr(data, name)[20:30])
        assert np.shares_memory(array, getattr(data, name))
        assert not array.flags.writeable
    assert (part.action_names, part.feature_names) == (data.action_names, data.feature_names)
    assert part.groups.tolist() == [4] * 5 + [5] * 5  # the codes of the whole
    assert not part.is_on_disk


def test_a_part_of_plain_data_is_plain(draw):
    part = draw(10).part(slice(0, 0))
    assert part.n_rows == 0
    assert part.propensities is part.weights is part.groups is None


def test_groups_are_counted(draw):
    assert draw(50, groups=np.arange(50) // 5).n_groups == 10
    assert draw(50).n_groups == 0


def test_a_schema_of_other_features_is_refused(draw):
    data = draw(20, n_features=2)
    schema = fedopl.Schema(
        numeric=["age"], action="arm", actions=data.action_names, reward="cost", direction="higher"
    )
    with pytest.raises(fedopl.DataError, match="of other actions or features than these"):
        fedopl.LoggedData(data.contexts, data.actions, data.rewards, schema=schema)
