"""Regions on the page: a sum over members is not said of each of them."""

import numpy as np
import pytest

import fedopl
from fedopl.report.cautions import cautions
from fedopl.report.joining.advising import nothing_to_say
from fedopl.report.parts import as_text
from fedopl.report.sections.action_overlap import action_overlap
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.disclosed import disclosed
from fedopl.report.sections.joining import joining


def site(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((200, 2))
    actions = rng.integers(0, 2, 200)
    rewards = x[:, 0] * (2 * actions - 1) + rng.standard_normal(200)
    known = np.full((200, 2), 0.5)
    return fedopl.LoggedData(x, actions, rewards, known, action_names=("a", "b"))


def region():
    return {name: site(seed) for seed, name in enumerate(("north", "south", "west"))}


@pytest.fixture(scope="module")
def alone():
    return fedopl.learn({"coast": region()}, basis="linear")


@pytest.fixture(scope="module")
def beside():
    return fedopl.learn({"coast": region(), "inland": site(9)}, basis="linear")


def words(section):
    return " ".join(as_text(section.parts).split())


def test_support_of_a_region_is_not_said_of_each_member(beside):
    said = words(action_overlap(beside))
    assert "Every action is supported at every client that reported" in said
    assert "Of coast, this is the support in all members together" in said


def test_what_left_members_is_not_said_to_be_what_left_the_region(beside):
    said = words(disclosed(beside))
    assert "Of coast, the numbers below are those of what it sent on" in said
    assert "inland," not in said


def test_own_policies_of_a_region_are_those_of_its_members(beside):
    for section in (by_client, joining):
        assert "For coast, this is what each member would learn alone" in words(section(beside))


def test_readers_are_told_first_who_speaks_for_several(beside):
    (last,) = [one for one in cautions(beside) if one.title == "Not all clients are single ones"]
    assert last.what.startswith("coast is an aggregator")


def test_of_a_single_region_it_is_not_said_that_nobody_joined(alone):
    said = nothing_to_say(alone)
    assert "others to join" not in said
    assert "only one client, coast, and it adds up its members' answers" in said


def test_without_regions_nothing_is_said_of_any():
    run = fedopl.learn(region(), basis="linear")
    for section in (action_overlap, by_client, disclosed, joining):
        assert "member" not in words(section(run))
    assert "Not all clients are single ones" not in [one.title for one in cautions(run)]
    assert "no others to join" in nothing_to_say(fedopl.learn({"a": site(1)}, basis="linear"))
