"""Results in notebooks: frames, figures, and HTML that holds no surprises."""

import math
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import fedopl
from fedopl.base import tables
from fedopl.engines.runs import compare_runs
from fedopl.report.figures.colours import CSS_OF, PAPER
from fedopl.report.page import render

PLOTS = ("values", "gains", "clients", "policy", "decisions", "overlap")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    found = {}
    for name in ("north <b>", "south"):
        contexts = rng.standard_normal((400, 2))
        actions = rng.integers(0, 2, 400)
        rewards = contexts[:, 0] * actions + rng.standard_normal(400)
        found[name] = fedopl.LoggedData(contexts, actions, rewards, np.full(400, 0.5))
    return found


@pytest.fixture(scope="module")
def run(data):
    return fedopl.learn(data, basis="linear", diagnose=True)


@pytest.fixture(scope="module")
def tree_run(data):
    return fedopl.learn(data, basis="linear", policy="tree", evaluation=0.25)


# --- frames ---------------------------------------------------------------------------------------


def test_a_table_is_a_frame_of_the_same_numbers(run):
    frame = run.values.to_frame()
    assert type(frame).__module__.startswith("pandas")
    assert list(frame)[:3] == ["policy", "client", "value"]
    for (_, line), row in zip(frame.iterrows(), run.values.rows, strict=True):
        assert (line["policy"], line["client"]) == (row.policy, row.client)
        assert (line["value"], line["n_rows"]) == (row.estimate.value, row.estimate.n_rows)
        assert (line["low"], line["high"]) == row.interval
    gains, improvements = run.gains.to_frame(), run.improvements.to_frame()
    assert list(gains["against"]) == [row.against for row in run.gains.rows]
    assert list(improvements["level"]) == [row.level for row in run.improvements.rows]


def test_the_backend_is_the_first_that_is_installed_or_as_said(run, monkeypatch):
    assert isinstance(run.values.to_frame("polars"), pl.DataFrame)
    assert isinstance(run.rounds.to_frame("pyarrow"), pa.Table)
    absent = {"pandas"}
    monkeypatch.setattr(tables, "find_spec", lambda name: name not in absent)
    assert isinstance(run.values.to_frame(), pl.DataFrame)
    absent.add("polars")
    assert isinstance(run.values.to_frame(), pa.Table)
    with pytest.raises(
        fedopl.OptionError, match="pandas is not installed; run: pip install pandas"
    ):
        run.values.to_frame("pandas")
    with pytest.raises(fedopl.OptionError, match="one of pandas, polars, pyarrow, came 'spark'"):
        run.values.to_frame("spark")


def test_leaves_rounds_and_overlap_are_frames_too(tree_run, data):
    leaves = tree_run.leaves.to_frame()
    assert len(leaves) == len(tree_run.leaves) == 2 * len(tree_run.policy.leaves())
    first = tree_run.leaves[0]
    assert leaves["value"][0] == first.estimate.value
    rounds = tree_run.rounds.to_frame("polars")
    assert rounds["bytes_received"].sum() == sum(one.bytes_received for one in tree_run.rounds)
    assert rounds["answered"].to_list() == [len(one.answered) for one in tree_run.rounds]
    overlap = fedopl.overlap(data["south"], fedopl.cross_fit(data["south"]))
    assert overlap.to_frame()["rows"].tolist() == overlap.rows.tolist()
    assert (overlap.to_frame()["propensity_50"] == 0.5).all()


def test_a_saved_run_has_the_same_tables(tree_run, tmp_path):
    tree_run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    for name in ("values", "gains", "leaves", "rounds"):
        before, after = (getattr(one, name).to_frame("pyarrow") for one in (tree_run, again))
        assert before.equals(after), name
        assert str(getattr(again, name)) == str(getattr(tree_run, name))


# --- figures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", PLOTS)
def test_every_figure_of_the_report_is_one_of_matplotlib(run, tree_run, what):
    for found in (run, tree_run):
        figure = getattr(found, f"plot_{what}")()
        assert isinstance(figure, Figure)
        assert getattr(figure, "_repr_png_")().startswith(b"\x89PNG")  # noqa: B009
        # The report draws with colours that only stand for others: none of them may be left.
        for artist in figure.findobj():
            for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
                colour = getattr(artist, f"get_{part}", lambda: "none")()
                if isinstance(colour, str | tuple) and colour != "none" and len(colour) in (4, 7):
                    assert to_hex(colour) not in PAPER, (artist, part)


def test_a_figure_shows_the_numbers_of_the_table(run):
    (axes,) = run.plot_values().axes
    drawn = {
        round(float(line.get_xdata()[0]), 9) for line in axes.lines if len(line.get_xdata()) == 1
    }
    assert drawn == {
        round(row.estimate.value, 9) for row in run.values.rows if row.client == "global"
    }


def test_where_there_is_nothing_to_draw_the_report_says_why(data):
    run = fedopl.learn(data, basis="linear", evaluation=0)
    with pytest.raises(fedopl.OptionError, match=r"plot_gains: .* No rows were held out"):
        run.plot_gains()


def test_colours_on_paper_are_those_of_the_light_page(run):
    css = render(run)
    for colour, name in CSS_OF.items():
        if name.startswith("var(") and colour in PAPER:
            assert f"{name[4:-1]}: {PAPER[colour]};" in css, name


# --- HTML -----------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.opened, self.seen = [], set()
        self.feed(text)
        assert not self.opened

    def handle_starttag(self, tag, _attributes):
        self.opened.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag


def test_every_result_shows_itself_in_a_notebook(run, tree_run, data):
    results = [
        *(run, run.values, run.gains, run.rounds, run.policy, run.diagnosis, run.reliance),
        *(tree_run, tree_run.leaves, tree_run.policy, run.values.rows[0].estimate),
        compare_runs({"a": run, "b": tree_run}),
        fedopl.overlap(data["south"], fedopl.cross_fit(data["south"])),
        fedopl.learn(data, basis="linear", mixture="minimax").search,
        fedopl.learn(data, basis="linear", mixture=fedopl.mixture.path("south")).search,
    ]
    for result in results:
        seen = Tags(result._repr_html_()).seen
        assert seen <= {*"table thead tbody tr th td p pre strong".split()}, type(result)


def test_what_a_client_is_called_is_never_markup(run):
    for result in (run, run.values, run.reliance, compare_runs({"<b>": run, "b": run})):
        assert "<b>" not in result._repr_html_()


# --- PolicyLearner --------------------------------------------------------------------------------


def test_score_is_the_value_that_the_parts_give(data):
    rows, others = data.values()
    learner = fedopl.PolicyLearner(seed=2).fit(
        rows.contexts, rows.actions, rows.rewards, propensity=rows.propensities
    )
    found = learner.score(
        others.contexts, others.actions, others.rewards, propensity=others.propensities
    )
    nuisances = fedopl.cross_fit(others, seed=2)
    decided = learner.policy_.decide(others.contexts)
    value = fedopl.estimate_value(fedopl.aipw_scores(others, nuisances), decided).value
    assert found == pytest.approx(value, abs=1e-12)
    assert isinstance(found, float)
    # E max(x, 0) of a standard normal is about 0.4, and everybody's best action is worth 0.
    assert found == pytest.approx(math.sqrt(1 / (2 * math.pi)), abs=0.2)


def test_score_refuses_to_value_a_part_of_the_rows(data):
    rows = data["south"]
    learner = fedopl.PolicyLearner().fit(rows.contexts, rows.actions, rows.rewards)
    none_took_1 = np.zeros(len(rows.actions), int)
    with pytest.raises(fedopl.DataError, match="of 400 rows have no score for the action"):
        learner.score(rows.contexts, none_took_1, rows.rewards)


def test_feature_names_are_kept_where_there_are_any(data):
    rows = data["south"]
    frame = pl.DataFrame(rows.contexts, schema=["age", "dose"])
    learner = fedopl.PolicyLearner().fit(frame, rows.actions, rows.rewards)
    assert learner.feature_names_in_.tolist() == ["age", "dose"]
    assert learner.n_features_in_ == 2
    # By name, whatever the order.
    turned = frame.select("dose", "age")
    np.testing.assert_array_equal(learner.predict(turned), learner.predict(frame))
    assert learner.score(turned, rows.actions, rows.rewards) == pytest.approx(
        learner.score(frame, rows.actions, rows.rewards)
    )
    learner.fit(rows.contexts, rows.actions, rows.rewards)
    assert not hasattr(learner, "feature_names_in_")
