"""Policies that bend: their curves are drawn from the policy, and what is said of them is true."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import fedopl
from fedopl.cli.app import app
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.basis import Basis
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.terms import Terms
from fedopl.report.explain.curve_words import curve_sentences, policy_as_json, policy_as_text
from fedopl.report.explain.explain_curves import explain_curves
from fedopl.report.explain.learning_words import choice_parts
from fedopl.report.page import render
from fedopl.report.parts import as_text

FEATURES = ("age", "marker", "dose", "noise", "female")
ACTIONS = ("wait", "drug", "surgery")


def effects(contexts):
    """Of wait, drug and surgery: waves of age, marker with dose, and extreme markers."""
    age, marker, dose = (contexts[:, 0] - 62) / 12, contexts[:, 1], contexts[:, 2]
    return np.stack([0 * age, np.sin(2 * age) + 0.6 * marker * dose, marker**2 - 1], axis=1)


def contexts_of(rng, n_rows):
    contexts = rng.standard_normal((n_rows, 5))
    contexts[:, 0] = 62 + 12 * contexts[:, 0]
    contexts[:, 4] = contexts[:, 4] > 0.4
    return contexts


def drawn(place, n_rows=800, of=effects):
    rng = np.random.default_rng([7, place])
    contexts, actions = contexts_of(rng, n_rows), rng.integers(0, 3, n_rows)
    rewards = of(contexts)[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    return LoggedData(
        contexts, actions, rewards, 1 / 3, action_names=ACTIONS, feature_names=FEATURES
    )


@pytest.fixture(scope="module")
def run():
    return fedopl.learn(
        {name: drawn(n) for n, name in enumerate("abc")}, basis="auto", evaluation=0.25
    )


@pytest.fixture(scope="module")
def straight():
    def of(contexts):
        return np.stack([0 * contexts[:, 1], contexts[:, 1], -contexts[:, 1]], axis=1)

    return fedopl.learn({name: drawn(n, of=of) for n, name in enumerate("abc")}, basis="auto")


# --- curves ---------------------------------------------------------------------------------------


def test_curves_are_those_of_the_policy_and_average_to_nothing(run):
    found = explain_curves(run.policy, run)
    contexts = np.concatenate([drawn(n).contexts for n in range(3)])
    for curve in found.curves:
        varied = np.tile(found.average, (len(curve.at), 1))
        varied[:, curve.place] = curve.at
        scores = run.policy.scores(varied)
        contrasts = (scores - scores.mean(axis=1, keepdims=True)).T
        lifted = curve.adds - contrasts  # by a constant, whatever the value
        assert np.allclose(lifted, lifted[:, :1])
        own = np.array([np.interp(contexts[:, curve.place], curve.at, a) for a in curve.adds])
        assert np.abs(own.mean(axis=1)).max() < 0.1
        assert np.allclose(own.std(axis=1), curve.strength, atol=0.1)


def test_the_strongest_come_first_and_products_are_named(run):
    found = explain_curves(run.policy, run)
    assert [curve.feature for curve in found.curves][:2] == ["marker", "age"]
    strengths = [curve.strength.max() for curve in found.curves]
    assert strengths == sorted(strengths, reverse=True)
    pair = found.pairs[0]
    assert pair.features == ("marker", "dose")
    assert pair.leaning[ACTIONS.index("drug")] == 1.0
    assert pair.strength[ACTIONS.index("drug")] == pytest.approx(0.4, abs=0.15)  # 0.6 less a third


def test_a_curve_goes_as_far_as_the_knots_and_their_distance(run):
    knots = run.study.basis.knots["age"]
    (age,) = (c for c in explain_curves(run.policy, run).curves if c.feature == "age")
    apart = knots[-1] - knots[0]
    assert (age.at[0], age.at[-1]) == (knots[0] - apart, knots[-1] + apart)
    (flag,) = (c for c in explain_curves(run.policy, run).curves if c.feature == "female")
    assert flag.at.tolist() == [0, 1]


# --- words ----------------------------------------------------------------------------------------


def bent(weights, knots=(40, 50, 60), **products):
    """'yes' over 'no' by age, with these weights of age, its hinges and so on."""
    features = ("age", *products.get("products", ("age",))[1:])
    terms = Terms(Basis(knots={"age": knots}, **products), features)
    parameters = np.zeros((2, terms.n_terms + 1))
    parameters[0, : len(weights)] = weights
    return LinearPolicy(parameters, ("yes", "no"), features, terms=terms)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([0.1, 0.5], "higher age"),
        ([-0.1, -0.5], "lower age"),
        ([0.1, 0, -2], r"age from 4\d\.?\d* to 5\d\.?\d*"),
        ([-0.1, 0, 2], r"age up to 4\d\.?\d* or from 5\d\.?\d* on"),
    ],
)
def test_where_a_curve_turns_no_slope_is_spoken_of(weights, said):
    first = curve_sentences(explain_curves(bent(weights)))[0]
    assert re.fullmatch(rf"'yes' over 'no' is favoured by {said}\.", first), first


def test_regions_are_those_where_the_feature_adds_more_than_on_average(run):
    found = explain_curves(run.policy, run)
    said = next(s for s in curve_sentences(found) if s.startswith("'drug' is favoured by"))
    low, high = map(float, re.search(r"from ([\d.]+) to ([\d.]*\d)", said).groups())
    (age,) = (c for c in found.curves if c.feature == "age")
    inside = (age.at >= low) & (age.at <= high)
    assert (age.adds[1][inside] > 0).all()
    # The truth is a wave: sin(2z) is above zero from 62 to 62 + 12·π/2.
    assert low == pytest.approx(62, abs=4)
    assert high == pytest.approx(62 + 6 * np.pi, abs=5)


@pytest.mark.parametrize(("sign", "sides"), [(1, "above"), (-1, "below")])
def test_what_two_do_together_is_said_as_it_is(sign, sides):
    policy = bent([0, 0, 0, 0, 0, sign], products=("age", "dose"), kind="splines")
    said = curve_sentences(explain_curves(policy))
    assert (
        "'yes' over 'no' is favoured, too, by age above average with "
        f"dose {sides} average, and by age below average with dose "
        f"{'below' if sign > 0 else 'above'} average." in said
    )


def test_nothing_is_said_to_favour_an_action_that_nobody_gets(run):
    reported = {
        name: replace(own, decided=own.decided * np.array([1, 0, 1]))
        for name, own in run.described.by_client.items()
    }
    record = replace(run, described=replace(run.described, by_client=reported))
    said = curve_sentences(explain_curves(run.policy, record))
    assert not any(line.startswith("'drug' is favoured") for line in said)


# --- text, JSON and the page ----------------------------------------------------------------------


def test_the_command_line_says_the_same_as_the_page(run, tmp_path):
    run.save(tmp_path / "run")
    done = CliRunner().invoke(app, ["explain", str(tmp_path / "run"), "--top", "2"])
    assert done.exit_code == 0, done.output
    page = render(run)
    for sentence in curve_sentences(explain_curves(run.policy, run)):
        assert sentence in done.output
        assert sentence.replace("'", "&#39;") in page
    assert "adds for drug" in done.output
    assert "marker × dose" in done.output
    assert "noise" not in done.output.split("together")[0].split("adds for")[-1]
    asked = CliRunner().invoke(app, ["explain", str(tmp_path / "run"), "--json"])
    told = json.loads(asked.output)
    assert list(told["curves"])[:2] == ["marker", "age"]
    assert told["together"][0]["features"] == ["marker", "dose"]
    assert told["terms"]["taken"] == run.statistics.choice.family
    alone = CliRunner().invoke(app, ["explain", str(tmp_path / "run" / "policy.json")])
    assert alone.exit_code == 0, alone.output


def test_many_actions_are_shown_in_tables_that_cut_nothing_off():
    names = tuple(f"a rather long plan {place}" for place in range(12))
    terms = Terms(Basis(kind="hinges", knots={"age": (40, 60)}), ("age",))
    parameters = np.random.default_rng(0).standard_normal((12, terms.n_terms + 1))
    said = policy_as_text(LinearPolicy(parameters, names, ("age",), terms=terms), None, 5)
    assert "…" not in said
    assert all(f"adds for {name}" in said for name in names)


def test_a_policy_on_its_own_is_explained_between_its_knots(run):
    said = policy_as_text(run.policy, None, 5)
    assert "How the terms were chosen" not in said
    assert "Somebody average" not in said
    assert "terms" not in policy_as_json(run.policy, None)


def test_the_page_shows_curves_and_the_map_of_two_that_act_together(run):
    page = render(run)
    assert "What somebody average in everything else gets, by marker and dose" in page
    assert "Features that act together, the strongest first" in page
    assert page.index("How the terms were chosen") < page.index("How decisions split")


def test_the_policy_is_plotted(run, straight):
    assert len(run.plot_policy().axes) == 3 * 5
    assert len(straight.plot_policy().axes) == 3


# --- how it was chosen ----------------------------------------------------------------------------


def test_losses_stand_beside_each_other_and_it_is_said_which_was_taken(run):
    text = as_text(choice_parts(run))
    lines = [line for line in text.splitlines() if line.startswith("features ")]
    assert len(lines) == 4
    assert [float(line.split("  ")[-1].split()[0].replace("−", "-")) for line in lines[:1]] == [0.0]
    (taken,) = (line for line in lines if line.endswith("taken"))
    choice = run.statistics.choice
    assert lines.index(taken) == list(choice.losses).index(choice.family)


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e6])
def test_losses_are_told_apart_whatever_the_unit_of_outcomes(run, unit):
    choice = run.statistics.choice
    apart = (unit * loss for loss in (-3.0, -3.00004, -3.2, -3.2))
    choice = replace(choice, losses=dict(zip(choice.losses, apart, strict=True)))
    record = replace(run, statistics=replace(run.statistics, choice=choice))
    shown = [row[2].replace(",", "").replace("−", "-") for row in choice_parts(record)[-1].rows]
    assert len(set(shown)) == 3  # two are the same
    np.testing.assert_allclose([float(text) / unit for text in shown], [0, -4e-5, -0.2, -0.2], 1e-3)


def test_where_nothing_bends_the_page_is_that_of_a_linear_policy(straight):
    assert straight.statistics.choice.family == "linear"
    said = policy_as_text(straight.policy, straight, 5)
    assert "'drug' is favoured by higher marker." in said
    assert "and took features as they are." in said.replace("\n", " ")
    assert " above " not in said.split("How the terms")[0]
    assert set(policy_as_json(straight.policy, straight)["effects"]["drug"]) == set(FEATURES)


def test_a_set_family_and_no_sums_by_fold_are_said(run):
    choice = run.statistics.choice
    only = replace(choice, losses={"splines": -1.0})
    record = replace(run, statistics=replace(run.statistics, choice=only))
    assert "The study set the policy's terms" in as_text(choice_parts(record))
    none = replace(choice, losses={}, family=None)
    nothing = replace(run, statistics=replace(run.statistics, choice=none))
    assert "No client reported sums by fold" in as_text(choice_parts(nothing))
    assert choice_parts(None) == ()


def with_basis(run, **changes):
    basis = run.study.basis.model_copy(update=changes)
    return replace(run, study=run.study.model_copy(update={"basis": basis}))


def said_of_terms(record):
    return " ".join(as_text(choice_parts(record)).split())


def test_corners_are_told_apart_and_one_alone_is_not_called_the_strongest(run):
    corners = ((("age", 52.0), ("dose", 1.6)), (("dose", 2.4),), (("marker", -1.0), ("age", 70.0)))
    said = said_of_terms(with_basis(run, found_thresholds=corners))
    assert (
        "found, the strongest first: both age > 52 and dose > 1.6; dose > 2.4; "
        "both marker > -1 and age > 70. Policies" in said
    )
    said = said_of_terms(with_basis(run, found_thresholds=corners[:1]))
    assert "and found both age > 52 and dose > 1.6. Policies" in said
    assert "strongest" not in said


@pytest.mark.parametrize("n_found", [1, 12, 13, 14])
def test_of_many_thresholds_or_pairs_the_first_are_named_and_the_others_counted(run, n_found):
    cuts = tuple((("age", float(cut)),) for cut in range(n_found))
    pairs = (("age", "dose"),) * n_found
    said = said_of_terms(with_basis(run, found_thresholds=cuts, found_pairs=pairs))
    products, jumps = said.split("Clients looked for")
    for found, mark in ((products, "age × dose"), (jumps, "age > ")):
        others = re.search(r"(\d+) more", found)
        assert found.count(mark) + (int(others[1]) if others else 0) == n_found
        assert (found.count(mark) < n_found) == (n_found > 12)
        assert ("strongest first" in found) == (n_found > 1)
