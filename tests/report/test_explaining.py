from dataclasses import replace

import numpy as np

import fedopl
from fedopl.base.schema import Encoding
from fedopl.policies.linear import NEVER, constant_policy
from fedopl.report.explain.explain_weights import (
    explain_weights,
    weight_sentences,
    weights_by_step,
)
from fedopl.report.explain.groups import bin_names, groups_of, overall


def policy(parameters, actions=("a", "b", "c"), features=("age", "alone"), encoding=None):
    return fedopl.LinearPolicy(np.array(parameters, float), actions, features, encoding)


def test_effects_are_held_against_the_mean_of_all_actions():
    found = weights_by_step(policy([[3, 0, 0], [0, 0, 0], [0, 0, 0]]))
    np.testing.assert_allclose(found.effects[:, 0], [2, -1, -1])
    assert found.step == "unit"
    assert weight_sentences(found)[0] == "'a' is favoured by higher age."


def test_what_is_added_to_every_score_alike_changes_no_word():
    weights = np.array([[3.0, 0, 0], [0, 1, 0], [0, 0, 2]])
    shifted = policy(weights + np.array([5, -7, 1]))
    assert weight_sentences(weights_by_step(shifted)) == weight_sentences(
        weights_by_step(policy(weights))
    )


def test_with_centre_and_scale_effects_are_per_standard_deviation():
    centre, scale = np.array([60, 0.3, 0]), np.array([10, np.sqrt(0.21), 1])
    found = weights_by_step(policy([[0.1, 0, -6.0], [0, 9, 0], [0, 0, 0.5]]), (centre, scale))
    assert found.step == "standard deviation"
    assert found.effects[0, 0] == 10 * (0.1 - 0.1 / 3)
    assert "'b' is favoured by alone (yes)." in weight_sentences(found)
    assert weight_sentences(found)[-1] == "Somebody average in every feature gets 'b'."


def test_two_actions_make_one_comparison():
    found = weights_by_step(policy([[1, 0, 1], [0, -1, 0]], actions=("a", "b")))
    assert found.names == ("a over b",)
    assert weight_sentences(found) == ["'a' over 'b' is favoured by higher age and higher alone."]


def test_pairs_are_explained_pair_by_pair():
    pairwise = fedopl.PairwisePolicy(
        np.array([[1.0, 0, 0], [0, -1, 0], [0, 0.01, 0]]), ("a", "b", "c"), ("age", "alone")
    )
    assert weight_sentences(weights_by_step(pairwise)) == [
        "'a' over 'b' is favoured by higher age.",
        "'a' over 'c' is favoured by lower alone.",
        "'b' over 'c' hardly depends on the features.",
    ]


def test_levels_of_a_column_are_named_as_levels():
    encoding = Encoding(numeric=("age",), categorical={"ward": ("general", "surgery")})
    found = weights_by_step(
        policy(
            [[0, 1, 0], [0, -1, 0], [0, 0, 0]], features=encoding.feature_names, encoding=encoding
        )
    )
    assert weight_sentences(found)[:2] == [
        "'a' is favoured by ward 'surgery'.",
        "'b' is favoured by ward other than 'surgery'.",
    ]


def test_an_action_nobody_could_speak_for_is_named_and_left_out_of_the_mean():
    found = weights_by_step(policy([[3, 0, 0], [1, 0, 0], [0, 0, NEVER]]))
    assert found.never == ("c",)
    assert weight_sentences(found)[-1] == "'c' is never chosen: no client has a score for it."
    np.testing.assert_allclose(found.effects[0, 0], 2)


def test_a_constant_policy_has_nothing_to_explain():
    found = weights_by_step(constant_policy("a", ("a", "b", "c"), ("age",)))
    assert weight_sentences(found) == ["No feature plays a part: everybody gets the same."]


def test_features_of_one_action_only_are_not_blurred_by_a_mean():
    found = weights_by_step(policy([[2, 0, 0], [0, 5, 0]], actions=("a", "b")))
    np.testing.assert_array_equal(found.effects, [[2, 0], [0, 5]])


def test_levels_add_up_to_everybody(lower):
    found = groups_of(lower.study, lower.described)
    assert list(found) == ["age", "severity", "ward"]
    assert [group.name for group in found["ward"]] == ["general", "surgery", "intensive"]
    total = sum(group.decided for group in found["ward"])
    np.testing.assert_allclose(total, overall(lower.described).decided)


def test_bins_are_named_by_their_cuts():
    assert list(bin_names(np.array([52.0, 63.0, 73.0])).values()) == [
        "up to 52",
        "above 52 to 63",
        "above 63 to 73",
        "above 73",
    ]
    assert bin_names(np.array([-0.5, 0.5, 1.5])) == {1: "no", 2: "yes"}
    assert bin_names(np.array([-1, -0.0, 1]))[1] == "above −1 to 0"


def test_nothing_is_said_to_favour_an_action_that_nobody_gets(run):
    reported = {
        name: replace(own, decided=own.decided * np.array([1, 1, 0]))
        for name, own in run.described.by_client.items()
    }
    record = replace(run, described=replace(run.described, by_client=reported))
    said = weight_sentences(explain_weights(run.policy, record))
    assert not any(line.startswith("'coaching' is favoured") for line in said)
    assert "'coaching' is given to nobody, or next to nobody: nothing favours it" in " ".join(said)
    assert any(line.startswith("'new drug' is favoured by") for line in said)
