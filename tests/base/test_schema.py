import pytest

import fedopl

GOOD = {
    "action": "arm",
    "actions": ["a", "b"],
    "reward": "y",
    "direction": "higher",
    "numeric": ["age"],
    "categorical": {"site": [1, 2, 3]},
}


def test_labels_are_text_and_columns_are_listed_once():
    schema = fedopl.Schema(**GOOD, propensity={"a": "pa", "b": "pb"}, weight="age", group="site")
    assert schema.categorical == {"site": ("1", "2", "3")}
    assert schema.columns == ("age", "site", "arm", "y", "pa", "pb")
    assert schema.feature_names == ("age", "site=2", "site=3")


def test_a_schema_is_frozen_and_compares_by_content():
    schema = fedopl.Schema(**GOOD)
    assert schema == fedopl.Schema(**GOOD)
    with pytest.raises(ValueError, match="frozen"):
        schema.reward = "z"


BAD = {
    "no direction": ({"direction": None}, "schema: direction: .*'higher' or 'lower'"),
    "another direction": ({"direction": "up"}, "'higher' or 'lower', came 'up'"),
    "one action": ({"actions": ["a"]}, "actions: a decision needs at least two"),
    "an action twice": ({"actions": ["a", "b", "a"]}, "actions: named more than once: 'a'"),
    "no features": ({"numeric": [], "categorical": {}}, "name at least one feature"),
    "a feature twice": ({"numeric": ["age", "site"]}, "named more than once: 'site'"),
    "one level": ({"categorical": {"site": ["1"]}}, "'site': name at least two levels"),
    "a level twice": ({"categorical": {"site": ["1", 1]}}, "'site': named more than once: '1'"),
    "the reward as a feature": ({"numeric": ["y"]}, "y is the action or an outcome"),
    "the action as a feature": ({"numeric": ["arm"]}, "arm is the action or an outcome"),
    "half the propensities": ({"propensity": {"a": "pa"}}, "a column or a number for each of a, b"),
    "another rule": ({"missing": "impute"}, "missing: .*'drop' or 'indicator', came 'impute'"),
    "an unknown field": ({"rewards": "y"}, "schema: rewards: Extra inputs are not permitted"),
    "a number for a column": ({"reward": 3}, "schema: reward: .* valid string, came 3"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_contradictions_are_named(change, message):
    with pytest.raises(fedopl.SchemaError, match=message):
        fedopl.Schema(**{**GOOD, **change})


def test_the_direction_has_no_default():
    with pytest.raises(fedopl.SchemaError, match="schema: direction: Field required"):
        fedopl.Schema(**{name: value for name, value in GOOD.items() if name != "direction"})
