"""Figures: ticks that can be read, bins that people would choose, 0 and 1 as no and yes."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.base.estimates import Estimate
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.report.explain.explain_tree import tree_as_json, tree_as_text
from fedopl.report.explain.groups import bin_names
from fedopl.report.figures.drawing import in_lines, tick_texts, ticks_that_fit
from fedopl.report.parts import as_text
from fedopl.report.sections.joining import joining, joining_parts
from fedopl.report.sections.tree_leaves import tree_parts
from fedopl.report.words.numbers import plain
from fedopl.results.value_tables import LOCAL, GainTable
from fedopl.server.aggregate.group_decisions import public_cuts

# --- ticks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0, 0.25, 0.5], ["0", "0.25", "0.50"]),
        ([-2.0, 0.0, 2.0], ["−2", "0", "2"]),
        ([4200.0, 4350.0], ["4,200", "4,350"]),
        ([0.0, 200_000.0], ["0", "200k"]),
        ([1_360_000.0, 1_400_000.0], ["1.36M", "1.40M"]),
        ([2e9, 4.5e9], ["2.0bn", "4.5bn"]),
        ([0.0, 2e-5, 4e-5], ["0", "2·10⁻⁵", "4·10⁻⁵"]),
        ([], []),
    ],
)
def test_ticks_are_short_numbers_in_one_unit(values, texts):
    assert tick_texts(values) == texts


@pytest.mark.parametrize("largest", [1e-7, 3e-3, 0.2, 7, 130, 5e4, 1.2e6, 8e9])
@pytest.mark.parametrize("width", [0.6, 1.1, 3.5])
def test_ticks_lie_apart_and_inside_whatever_the_numbers(largest, width):
    limits = (-0.3 * largest, largest)
    found = ticks_that_fit(limits, width, 5, 0.1)
    assert found
    edge = -math.inf
    for place, text in found.items():
        middle = width * (place - limits[0]) / (limits[1] - limits[0])
        half = 0.073 * len(text) / 2
        assert middle - half > edge, (found, width)
        assert middle - half >= -0.101
        edge = middle + half
    assert edge <= width + 0.101


def test_a_long_word_in_a_title_is_cut_off_and_not_broken():
    assert in_lines("recommendation 12", 9) == "recommen…\n12"
    assert in_lines("recommendation 12", 14) == "recommendation\n12"


def test_a_large_number_has_no_power_of_ten():
    assert plain(1_000_000) == "1,000,000"
    assert plain(25_300_000.4) == "25,300,000"
    assert plain(0.25) == "0.25"


# --- bins -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counted():
    """Columns of ages, counts, yes or no, money and small numbers."""
    rng = np.random.default_rng(3)
    clients = {}
    for name in ("north", "south"):
        n_rows = 3000
        contexts = np.column_stack(
            [
                rng.integers(18, 90, n_rows),
                rng.poisson(3, n_rows),
                rng.poisson(1, n_rows),
                rng.integers(0, 2, n_rows),
                rng.normal(41_000, 9_000, n_rows),
                rng.normal(0, 1e-4, n_rows),
            ]
        )
        actions = rng.integers(0, 2, n_rows)
        rewards = actions * contexts[:, 3] + rng.normal(size=n_rows)
        clients[name] = fedopl.LoggedData(
            contexts,
            actions,
            rewards,
            np.full(n_rows, 0.5),
            feature_names=["age", "visits", "admissions", "smoker", "income", "x"],
        )
    return clients


@pytest.fixture(scope="module")
def counted_run(counted):
    return fedopl.learn(counted, basis="linear")


def test_columns_of_whole_numbers_are_cut_at_whole_numbers_or_between_two(counted_run):
    age, visits, admissions, smoker, income, _ = counted_run.described.cuts[:-1]
    assert (age == np.round(age)).all()
    assert (visits == np.round(visits)).all()
    assert (2 * admissions == np.round(2 * admissions)).all()
    assert bin_names(smoker) == {1: "no", 2: "yes"}
    assert (income % 100 == 0).all()
    for cuts in counted_run.described.cuts[:-1]:
        assert (np.diff(cuts) > 0).all()


def test_bins_are_about_equally_full(counted_run):
    taken = counted_run.described.taken().sum(axis=2)
    for place in (0, 4, 5):
        shares = taken[place] / taken[place].sum()
        assert (shares > 0.18).all(), shares
        assert (shares < 0.32).all(), shares


def test_cuts_follow_from_sums_that_clients_have_reported(counted_run):
    """No client is asked anything for them: they are those of the released means and squares."""

    class Known:
        study, statistics = counted_run.study, counted_run.statistics
        weights = counted_run.mixture

    np.testing.assert_array_equal(public_cuts(Known), counted_run.described.cuts)


# --- trees ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked(counted_run):
    """A tree that asks about a column of 0 and 1, and about counts that are cut at the same."""
    root = Branch(3, 0.5, Branch(2, 0.5, Leaf(0), Leaf(1)), Leaf(1))
    about = (counted_run.study.actions, counted_run.study.features)
    return replace(counted_run, policy=TreePolicy(root, *about))


def test_zero_and_one_are_no_and_yes_in_a_tree(asked):
    text = tree_as_text(asked.policy, asked)
    assert text.startswith("smoker\n├─ no: admissions ≤ 0.5\n│  ├─ yes: '0'")
    assert "└─ yes: '1'" in text
    sentences = tree_as_json(asked.policy, asked)["sentences"]
    assert sentences[0] == "Where smoker is no, admissions ≤ 0.5: '0'."
    assert sentences[-1] == "Where smoker is yes: '1'."


def test_the_figure_has_the_answers_at_its_branches(asked):
    (picture,) = (part for part in tree_parts(asked, asked.policy) if part.kind == "picture")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.drawing.svg)
    assert "smoker" in texts
    assert "admissions ≤ 0.5" in texts
    assert texts.count("yes") == texts.count("no") == 2
    assert "≤ 0.5" not in " ".join(text for text in texts if "smoker" in text)


def test_for_programs_a_question_is_one_that_yes_and_no_answer(asked):
    assert tree_as_json(asked.policy, asked)["tree"]["question"] == "smoker ≤ 0.5"
    assert str(asked.policy).startswith("smoker ≤ 0.5\n├─ yes:")


# --- joining --------------------------------------------------------------------------------------


def test_where_nothing_is_decided_the_section_is_a_paragraph(counted):
    run = fedopl.learn(counted, basis="linear", diagnose=True, personal="none")

    def surely(gain):
        rows = [
            replace(
                row,
                estimate=Estimate(value=gain, standard_error=0.01, n_rows=9, degrees_of_freedom=9),
            )
            if row.against == LOCAL
            else row
            for row in run.gains.rows
        ]
        return replace(run, gains=GainTable(tuple(rows)))

    first, folded = joining(surely(0.0)).parts
    assert first.text.startswith("For no client do the rows show whether joining pays.")
    assert folded.kind == "folded"
    assert as_text(folded.parts) == as_text(joining_parts(surely(0.0))[1:])
    kinds = [part.kind for part in joining(surely(1.0)).parts]
    assert len(kinds) > 3
    assert "points" in kinds
