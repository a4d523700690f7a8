"""What is said of trees: as text, as JSON and on the page."""

from dataclasses import replace

import pytest

import fedopl
from fedopl.base.estimates import Estimate
from fedopl.base.schema import Encoding
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.report.explain.explain_tree import (
    how_good,
    moved_thresholds,
    tree_as_json,
    tree_as_text,
)
from fedopl.report.explain.leaf_words import leaves_in_words, second_thoughts
from fedopl.report.figures.tree_figure import Ending, tree_chart
from fedopl.report.page import render
from fedopl.report.sections.training import training
from fedopl.report.sections.tree_leaves import search_parts, tree_parts
from fedopl.report.words.numbers import with_error
from fedopl.results.value_tables import LeafRow, LeafTable

ENCODING = Encoding(
    numeric=("age",), categorical={"region": ("north", "south")}, missing="indicator"
)
AGE, AGE_MISSING, REGION = range(3)
SMALL = Branch(AGE, 40.5, Branch(REGION, 0.0, Leaf(1), Leaf(0)), Leaf(1))


def tree_policy(root=SMALL, encoding=ENCODING, actions=("none", "drug")):
    return TreePolicy(root, actions, encoding.feature_names, encoding)


def leaf_rows(*leaves, actions=("none", "drug")):
    """Rows of leaves, each a share of people and a (value, standard error) by action."""
    return tuple(
        LeafRow(
            leaf=leaf,
            share=share,
            action=action,
            estimate=value
            and Estimate(
                value=value[0], standard_error=value[1], n_rows=100, degrees_of_freedom=99
            ),
        )
        for leaf, (share, *values) in enumerate(leaves)
        for action, value in zip(actions, values, strict=True)
    )


def with_ends(run, *leaves, root=SMALL):
    """A run that learned the small tree, with these numbers on its leaves, of held-out rows."""
    study = run.study.model_copy(update={"evaluation": fedopl.EvaluationPlan(share=0.25)})
    leaves = leaf_rows(*leaves)
    return replace(run, study=study, policy=tree_policy(root), leaves=leaves, tree=None)


def points(record):
    return [item for part in search_parts(record) if part.kind == "points" for item in part.items]


# --- in words ------------------------------------------------------------------------------------


def test_a_policy_alone_is_drawn_with_questions_and_actions():
    assert str(tree_policy()) == (
        "age ≤ 40.5\n├─ yes: region is 'north'\n│  ├─ yes: 'drug'\n│  └─ no: 'none'\n└─ no: 'drug'"
    )
    assert repr(tree_policy()) == "TreePolicy(depth 2, 3 leaves)"


def test_with_a_run_each_leaf_tells_its_share_and_values(run):
    record = with_ends(
        run, (0.34, (0.9, 0.1), (1.2, 0.11)), (0.16, (1.0, 0.1), None), (0.5, None, None)
    )
    assert tree_as_text(record.policy, record) == (
        "age ≤ 40.5\n├─ yes: region is 'north'\n│  ├─ yes: 'drug'   34 % of people\n│  │        "
        "drug 1.20 ± 0.11, none 0.90 ± 0.10\n│  └─ no: 'none'   16 % of people\n│           none "
        "1.00 ± 0.10\n│           no client could value 'drug'\n└─ no: 'drug'   50 % of people\n "
        "        too few held-out rows to tell\n\nA number that is missing counts as 0 in these "
        "questions.\n\nValues are expected reward per decision ± standard error on held-out "
        "rows; higher is better.\n\nIn no leaf is another action better by more than two "
        "standard errors on held-out rows, which were not used to find the tree. 2 leaves have "
        "too few held-out rows to tell."
    )


def test_json_has_questions_within_questions_and_numbers_on_leaves(run):
    record = with_ends(run, (0.34, (0.9, 0.1), (1.2, 0.11)), (0.16, None, None), (0.5, None, None))
    found = tree_as_json(record.policy, record)
    assert found["tree"]["question"] == "age ≤ 40.5"
    leaf = found["tree"]["yes"]["yes"]
    assert leaf["values"]["drug"] == {"value": 1.2, "standard_error": 0.11, "n_rows": 100}
    assert (leaf["action"], leaf["share"]) == ("drug", 0.34)
    assert found["tree"]["no"]["values"] == {}
    assert found["sentences"][0] == "Where age ≤ 40.5, region is 'north': 'drug' (34 % of people)."
    alone = tree_as_json(tree_policy())
    assert alone["tree"]["no"] == {"action": "drug"}
    assert alone["sentences"][-2] == "Where age > 40.5: 'drug'."


def test_a_single_leaf_says_that_everybody_gets_the_same(run):
    record = with_ends(run, (1.0, (0.9, 0.1), (1.2, 0.11)), root=Leaf(0))
    lines = tree_as_text(record.policy, record).splitlines()
    assert lines[0] == "No question is asked: everybody gets 'none'."
    assert lines[2] == "'none'   100 % of people"
    assert lines[-1] == "Everybody: 'drug' 1.20 ± 0.11 rather than 'none' 0.90 ± 0.10."
    assert tree_as_json(tree_policy(Leaf(0)))["tree"] == {"action": "none"}


def test_where_less_is_better_values_are_as_logged_and_lower_wins(tree):
    whole = tree_as_text(tree.policy, tree)
    assert "expected readmissions per decision" in whole
    assert "lower is better" in whole
    for leaf in leaves_in_words(tree.policy, tree):
        values = [value.value for value in leaf.values.values()]
        assert all(value > 0 for value in values)
        assert values[1:] == sorted(values[1:])
        assert values[0] == min(values)


def test_paths_leave_out_what_follows_from_other_answers():
    root = Branch(
        AGE, 60.0, Branch(AGE, 40.0, Leaf(0), Branch(AGE, 50.0, Leaf(1), Leaf(0))), Leaf(1)
    )
    levels = Encoding(categorical={"region": ("north", "south", "west")})
    regions = Branch(0, 0.0, Leaf(0), Branch(0, 1.0, Leaf(1), Leaf(0)))
    assert [leaf.who for leaf in leaves_in_words(tree_policy(root))] == [
        "age ≤ 40",
        "age > 40 and ≤ 50",
        "age > 50 and ≤ 60",
        "age > 60",
    ]
    assert [leaf.who for leaf in leaves_in_words(tree_policy(regions, levels))] == [
        "region is 'north'",
        "region is 'south'",
        "region is not 'north' and is not 'south'",
    ]


@pytest.mark.parametrize(
    ("split", "question", "otherwise"),
    [
        (Branch(AGE, -2.25, Leaf(0), Leaf(1)), "age ≤ −2.25", "age > −2.25"),
        (Branch(AGE, 2_345_678.0, Leaf(0), Leaf(1)), "age ≤ 2345678", "age > 2345678"),
        (Branch(AGE_MISSING, 1.0, Leaf(0), Leaf(1)), "age is missing", "age is not missing"),
        (Branch(AGE_MISSING, 0.0, Leaf(0), Leaf(1)), "age is not missing", "age is missing"),
        (Branch(REGION, 1.0, Leaf(0), Leaf(1)), "region is 'south'", "region is not 'south'"),
        (Branch(REGION, 2.0, Leaf(0), Leaf(1)), "region is missing", "region is not missing"),
    ],
)
def test_questions_and_their_opposites_read_well(split, question, otherwise):
    policy = tree_policy(split)
    assert policy.question(split) == question
    assert " ".join(policy.asked(split, yes=False)) == otherwise


def test_another_action_that_is_clearly_better_is_named(run):
    record = with_ends(
        run,
        (0.4, (2.0, 0.1), (1.2, 0.1)),
        (0.4, (1.0, 0.1), (1.2, 0.1)),
        (0.2, (1.0, 0.0), (0.5, 0.0)),
    )
    first, where = second_thoughts(leaves_in_words(record.policy, record))
    assert first.startswith("In 1 leaf another action is better by more than two standard errors")
    assert "chosen on other rows" in first
    assert "here there are 2. 1 leaf has too few held-out rows to tell." in first
    assert where == (
        "Where age ≤ 40.5, region is 'north': 'none' 2.00 ± 0.10 rather than 'drug' 1.20 ± 0.10."
    )


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (1.2, 0.11, "1.20 ± 0.11"),
        (-3.0, 0.004, "−3.000 ± 0.004"),
        (1234.5, 45.0, "1,234.50 ± 45.00"),
        (20.0, 0.0, "20.00 ± ?"),
    ],
)
def test_a_value_has_decimals_as_its_error_needs(value, error, expected):
    estimate = Estimate(value=value, standard_error=error, n_rows=9, degrees_of_freedom=8)
    assert with_error(estimate, 2) == expected


# --- on the page ---------------------------------------------------------------------------------


def test_the_page_has_the_drawing_and_a_row_for_each_leaf(tree, html_of):
    picture, table = (
        next(part for part in tree_parts(tree, tree.policy) if part.kind == kind)
        for kind in ("picture", "table")
    )
    assert picture.label.startswith("A tree of questions. Where age ≤")
    assert picture.width is None
    assert table.headers[:4] == ("Who", "Share of people", "Held-out rows", "Gets")
    assert table.headers[4:] == tree.study.actions
    assert len(table.rows) == len(tree.policy.leaves())
    assert "(lower is better)" in table.caption
    assert 'id="figure-tree"' in html_of("tree")


def test_across_folds_a_leaf_says_what_the_other_trees_decide_there(draw):
    """And not what each action is worth in it, since all rows helped to find it."""
    run = fedopl.learn({"a": draw(300)}, policy="tree", evaluation="cross-fitted")
    (table,) = (part for part in tree_parts(run, run.policy) if part.kind == "table")
    told = ("Value, fold by fold", "Gain over what was done", "Decided alike")
    assert table.headers == ("Who", "Share of people", "Rows", "Gets", *told)
    text = tree_as_text(run.policy, run)
    assert "decided alike" in text
    for said in (text, render(run)):
        assert "so on them the action of a leaf looks better than it is" in said
        assert "held-out" not in said
        assert "held out" not in said


def test_with_many_actions_the_best_other_is_shown_and_the_rest_folded(deep):
    few = deep.study.model_copy(update={"actions": (*deep.study.actions, "d", "e")})
    table, folded = (
        next(part for part in tree_parts(replace(deep, study=few), deep.policy) if part.kind == k)
        for k in ("table", "folded")
    )
    assert table.headers[-2:] == ("Its value", "Best other")
    assert folded.summary == "Every action in every leaf"


def test_long_names_are_cut_in_the_drawing_but_thresholds_are_not(deep):
    drawing = tree_chart(
        "tree",
        deep.policy,
        [Ending(action="A" * 99, note="1 %", colour=0) for _ in deep.policy.leaves()],
    )
    assert "AAAA…" in drawing.svg
    assert "A" * 40 not in drawing.svg
    assert deep.policy.asked(deep.policy.root)[1] in drawing.svg
    assert 5 < drawing.width < 12


def test_a_tree_with_too_many_leaves_for_two_lines_has_one(deep):
    def grown(depth):
        return Branch(0, depth, grown(depth - 1), grown(depth - 1)) if depth else Leaf(0)

    policy = replace(deep.policy, root=grown(6))
    endings = [Ending(action="drug", note="1 %", colour=1) for _ in policy.leaves()]
    assert ">drug  1 %<" in tree_chart("tree", policy, endings).svg


@pytest.mark.parametrize(
    ("name", "exactly", "how"),
    [
        ("tree", "It was the best of all trees of depth ≤ 2 on the grid", "exactly"),
        ("deep", "Each question was found by searching two levels ahead", "level by level"),
    ],
)
def test_whether_the_tree_is_the_best_of_all_is_said(request, name, exactly, how):
    record = request.getfixturevalue(name)
    assert points(record)[0].startswith(exactly)
    assert how in training(record).parts[0].text


def test_thresholds_that_a_second_look_moved_are_named(tree):
    moved = moved_thresholds(tree)
    assert moved
    for before, now in moved:
        assert f"“{before}” became “{now}”" in points(tree)[2]
        assert now in str(tree.policy)
    stayed = replace(tree, tree=replace(tree.tree, closer=None))
    assert how_good(stayed).startswith("It is the best of all trees")
    assert not any("became" in point for point in points(stayed))


def test_a_tree_that_ended_early_says_why(deep):
    *before, last = [k for k, latest in enumerate(deep.rounds) if latest.query == "SumCells"]
    assert before
    rounds = list(deep.rounds)
    rounds[last] = replace(rounds[last], answered=())
    early = replace(deep, rounds=tuple(rounds))
    assert "Only 0 clients of" in points(early)[0]
    assert "so it ends with what was known from the level above" in points(early)[0]
    assert "so it ends with" not in points(deep)[0]


def test_one_party_alone_is_said_to_have_tried_its_own_values(deep):
    plan = fedopl.Tree(thresholds="observed")
    study = deep.study.model_copy(update={"policy": plan})
    alone = replace(deep, study=study, tree=None)
    assert "between any two values" in points(alone)[0]
    assert "its own rows" in training(alone).parts[0].text


def test_rules_and_grid_are_shown(tree):
    rules = " ".join(points(tree))
    assert "thresholds of 2 columns of numbers and 3 levels of 1 column of labels" in rules
    assert "A leaf holds at least 40 rows" in rules
    assert "worth more than 0.01 readmissions per decision" in rules
    assert "Where ward is 'surgery', only 'home' or 'clinic' may be chosen." in rules


def test_a_tree_nobody_reported_on_is_still_drawn(deep):
    text = render(replace(deep, leaves=LeafTable(), described=None))
    assert 'id="figure-tree"' in text
    assert "No client reported how people divide between the leaves" in text


def test_a_single_leaf_is_a_sentence_without_a_drawing(tree):
    single = replace(tree, policy=replace(tree.policy, root=Leaf(0)), leaves=tree.leaves[:3])
    text = render(single)
    assert "No question is asked: everybody gets &#39;home&#39;." in text
    assert 'id="figure-tree"' not in text
