"""Policies go into the fields of a message and come out again, whatever their kind."""

import numpy as np
import pytest

from fedopl.policies.kinds import KINDS, POLICY_FIELDS, RULES, in_message_order, packed, unpacked
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.neural import NeuralPolicy, first_network
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.study.policy_plans import Neural
from fedopl.study.study import Study

STUDY = Study(actions=("stay", "go", "wait"), features=("x", "y"), policy=Neural(hidden=(4,)))
ABOUT = (STUDY.actions, STUDY.features)
POLICIES: dict[str, Policy] = {
    "network": NeuralPolicy(
        np.arange(9.0).reshape(3, 3) - 2, first_network((2, 4, 3), np.random.default_rng(1)), *ABOUT
    ),
    "tree": TreePolicy(Branch(0, 0.25, Leaf(2), Leaf(0)), *ABOUT),
    "pairs": PairwisePolicy(np.arange(9.0).reshape(3, 3) - 4, *ABOUT),
    "arm": constant_policy("go", *ABOUT),
    "line": LinearPolicy(np.arange(9.0).reshape(3, 3)[::-1], *ABOUT),
}
CONTEXTS = np.random.default_rng(0).normal(size=(50, 2))


def test_policies_come_back_from_the_field_that_their_kind_names():
    fields = packed(POLICIES.values(), STUDY, rules=[1])
    back = [unpacked(f, one, STUDY) for f in POLICY_FIELDS if f != RULES for one in fields[f]]
    names = in_message_order(POLICIES)
    assert names == ["arm", "line", "pairs", "tree", "network"]
    for name, policy in zip(names, back, strict=True):
        assert policy.kind == POLICIES[name].kind
        assert policy.numbers().tobytes() == POLICIES[name].numbers().tobytes()
        np.testing.assert_array_equal(policy.decide(CONTEXTS), POLICIES[name].decide(CONTEXTS))
    assert fields[RULES].tolist() == [1.0]


def test_a_field_is_of_the_same_shape_with_and_without_policies():
    empty, full = packed([], STUDY), packed(POLICIES.values(), STUDY)
    assert list(empty) == list(full) == list(POLICY_FIELDS)
    for field in POLICY_FIELDS:
        assert len(empty[field]) == 0
        assert empty[field].shape[1:] == full[field].shape[1:]


def test_numbers_that_are_no_tree_are_no_policy():
    with pytest.raises(ValueError, match="not one of those"):
        unpacked("trees", np.full((3, 4), 7.0), STUDY)


def test_every_kind_has_a_field_of_its_own():
    assert POLICY_FIELDS == ("linear", "pairwise", "trees", "neural", "rules")
    assert len({kind.message_field for kind in KINDS.values()}) == len(KINDS)
