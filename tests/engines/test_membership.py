"""Joining and leaving: shares, words, mistakes, and runs in which clients are fixed."""

import json

import pytest

import fedopl
from fedopl.base.errors import FederationError, FedoplError, OptionError, StorageError, StudyError
from fedopl.engines.network.coordinate import study_to_agree_to
from fedopl.engines.run import join_folder, leave_folder
from fedopl.engines.run import run as run_folders
from fedopl.policies.trees.nodes import branches_of
from fedopl.report.page import render
from fedopl.study.joining_later import why_fixed, why_no_newcomer
from later_clients import linear_rows
from tiny_study import everything_in, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(scope="module")
def rows():
    """Five clients' rows."""
    return {name: linear_rows(seed, 100, 2, 2) for seed, name in enumerate("abcde")}


def some(rows, names):
    return {name: rows[name] for name in names}


def learned(clients, **plan):
    return fedopl.learn(
        clients, **{"evaluation": 0.25, "nuisances": "local", "basis": "linear", **plan}
    )


@pytest.fixture(scope="module")
def run(rows):
    """A run of three of them."""
    return learned(some(rows, "abc"))


# --- mixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def given(rows):
    """A run whose mixture gives every client a share."""
    return learned(some(rows, "abc"), mixture={"a": 0.5, "b": 0.3, "c": 0.2})


def test_a_newcomer_gets_its_share_and_the_others_shrink_in_proportion(given, rows):
    joined = given.join({"d": rows["d"]}, shares={"d": 0.2})
    assert joined.mixture == pytest.approx({"a": 0.4, "b": 0.24, "c": 0.16, "d": 0.2})
    assert joined.study.digest != given.study.digest
    assert joined.membership.changes[0].share == 0.2
    known = joined.membership.of_policy(joined.policy)
    assert {row.client for row in known.values} == {"d"}


def test_shares_come_back_to_the_last_bit_whoever_leaves_first(given, rows):
    both = given.join({"d": rows["d"]}, shares={"d": 0.2}).join({"e": rows["e"]}, shares={"e": 0.1})
    assert both.mixture["d"] == pytest.approx(0.18)
    for first, second in (("d", "e"), ("e", "d")):
        back = both.leave(first).leave(second)
        assert back.study == given.study
        assert back.mixture == given.mixture
        assert back.values == given.values
    assert both.leave("d").mixture["e"] == pytest.approx(0.1)


def test_a_share_is_of_those_who_are_in(given, rows):
    joined = given.leave("b").join({"d": rows["d"]}, shares={"d": 0.2})
    assert joined.mixture["d"] == pytest.approx(0.2)
    assert joined.mixture["a"] == pytest.approx(0.8 * 5 / 7)


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ({}, "one by one, each with its own, as in --share 0.2"),
        ({"x": 0.2}, "shares for 'x'"),
        ({"d": 1.0}, "more than 0 and less than 1, came 1"),
        ({"d": 0.0}, "more than 0 and less than 1, came 0"),
    ],
)
def test_a_given_mixture_needs_a_share(given, rows, shares, found):
    with pytest.raises(OptionError, match=found):
        given.join({"d": rows["d"]}, shares=shares)


def test_any_other_mixture_has_none(run, rows):
    with pytest.raises(OptionError, match="leave the share out"):
        run.join({"d": rows["d"]}, shares={"d": 0.2})


def test_weights_by_agreement_are_found_again_among_all_who_are_in(rows):
    mixture = fedopl.mixture.empirical(robust="trimmed")
    everybody = learned(rows, mixture=mixture, policy=fedopl.Linear(precision="rows"))
    with pytest.raises(FederationError, match="needs 5 clients with weight"):
        everybody.leave("a")


def test_clients_that_count_by_weight_tell_it_when_they_join(rows):
    mixture = fedopl.mixture.empirical(count="weight")
    joined = learned(some(rows, "abc"), mixture=mixture).join({"d": rows["d"]})
    assert sorted(joined.row_weights) == ["a", "b", "c", "d"]
    assert sum(joined.mixture.values()) == pytest.approx(1)


def test_whom_a_mixture_leans_toward_cannot_leave(rows):
    skewed = learned(some(rows, "abc"), mixture=fedopl.mixture.skewed("a", 0.5))
    with pytest.raises(FederationError, match="skewed toward 'a', which does not take part"):
        skewed.leave("a")


# --- mistakes -------------------------------------------------------------------------------------


def other_actions(data):
    return fedopl.LoggedData(data.contexts, data.actions, data.rewards, action_names=["a", "new"])


@pytest.mark.parametrize(
    ("clients", "found"),
    [
        (lambda rows: {"a": rows["a"]}, "'a' is in this run already"),
        (lambda rows: {}, "came none"),
        (lambda rows: [rows["d"]], "as in {'west': data}; came list in its place"),
        (lambda rows: {4: rows["d"]}, "as in {'west': data}; came int as a name"),
        (lambda rows: {"global": rows["d"]}, "means all clients together"),
        (lambda rows: {"d": "a table"}, "expected LoggedData by name, came str for 'd'"),
        (lambda rows: {"d": other_actions(rows["d"])}, "the run's actions 'a', 'b', came"),
    ],
)
def test_who_cannot_join_is_told_why(run, rows, clients, found):
    with pytest.raises((OptionError, StudyError), match=found):
        run.join(clients(rows))


def test_a_newcomer_of_one_row_is_no_division_by_nothing(rows):
    run = learned(some(rows, "ab"), evaluation="cross-fitted", nuisances="federated")
    joined = run.join({"w": linear_rows(5, 1, 2, 2)})
    assert [why for *_, why in joined.refusals] == ["TOO_FEW_ROWS"]
    assert "no client has valued it since" in joined.verdict


def test_a_gain_from_few_held_out_rows_says_so(run):
    joined = run.join({"w": linear_rows(5, 8, 2, 2)})
    assert "by only 2 held-out rows, which say little" in joined.verdict
    assert "+0 (95 % interval 0 to 0)" not in joined.verdict
    assert "Held-out rows" in render(joined)


def test_two_must_stay(run):
    with pytest.raises(OptionError, match="2 clients must stay"):
        run.leave("a").leave("b")
    with pytest.raises(OptionError, match="'x' is not in this run; clients in it: 'a', 'b', 'c'"):
        run.leave("x")


def test_a_newcomer_that_refuses_changes_nothing(run, rows):
    with pytest.raises(FederationError, match=r"d refused \(TOO_FEW_ROWS"):
        run.join({"d": rows["d"]}, limits=fedopl.Limits(minimum_rows=1000))
    assert run.membership is None


def test_a_run_of_an_earlier_version_says_so(run, rows, tmp_path):
    run.save(tmp_path)
    summary = json.loads((tmp_path / "run.json").read_text())
    del summary["files"]["newcomers.npz"]
    (tmp_path / "run.json").write_text(json.dumps(summary))
    (tmp_path / "newcomers.npz").unlink()
    loaded = fedopl.load_run(tmp_path)
    for change in (lambda: loaded.join({"d": rows["d"]}), lambda: loaded.leave("a")):
        with pytest.raises(
            OptionError, match="does not store the sums from which a policy is solved again"
        ):
            change()


def test_what_was_only_valued_cannot_be_joined(rows, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    ran = run_folders(tiny.study, tiny.clients, out=tiny.out)
    valued = fedopl.evaluate({"mine": ran.policy}, tiny.study, tiny.clients)
    with pytest.raises(OptionError, match="only values policies"):
        valued.leave("north")


# --- runs in which the clients are fixed ----------------------------------------------------------

FIXED = {
    "sgd": ({"policy": fedopl.Linear(oracle="csoaa-sgd")}, r"asking all clients \(csoaa-sgd\)"),
    "finite": ({"policy": "finite"}, r"asking all clients \(kind = 'finite'\)"),
    "neural": ({"policy": "neural"}, r"asking all clients \(kind = 'neural'\)"),
    "deep": ({"policy": fedopl.Tree(depth=3)}, "a tree of depth 3 is grown by asking"),
    "observed": ({"policy": fedopl.Tree(thresholds="observed")}, "observed values of one client"),
    "minimax": ({"mixture": fedopl.mixture.minimax()}, "'minimax', was found by asking"),
    "path": ({"mixture": fedopl.mixture.path("a")}, "'path', was found by asking"),
    "splits": ({"evaluation": fedopl.EvaluationPlan(splits=3)}, "medians over several splits"),
    "budget": (
        {
            "costs": fedopl.Costs(by_action={"a1": 1.0}, unit="euro"),
            "budget": fedopl.Budget(most=1),
        },
        "what another policy spends",
    ),
}


@pytest.mark.parametrize("kind", FIXED)
def test_a_study_says_why_its_clients_are_fixed(kind):
    plan, found = FIXED[kind]
    study = fedopl.Study(actions=("a0", "a1"), features=("x0", "x1"), **plan)
    with pytest.raises(AssertionError, match=found):
        raise AssertionError(why_fixed(study))


def test_a_newcomer_values_the_trees_without_each_fold(rows):
    run = learned(some(rows, "abc"), policy="tree", evaluation="cross-fitted")
    joined = run.join({"d": rows["d"]})
    assert sorted(joined.for_newcomers.cells) == ["a", "b", "c", "d"]
    assert "learned" in {row.policy for row in joined.membership.valuations[-1].values}
    assert sorted(run.leave("c").tree.cells) == ["a", "b"]


def test_code_that_was_plugged_in_keeps_newcomers_out_alone():
    plan = fedopl.NuisancePlan(outcome="plugged-in")
    study = fedopl.Study(actions=("a0", "a1"), features=("x0",), nuisances=plan)
    assert "plugged-in code" in why_no_newcomer(study)
    assert why_fixed(study) is None


def test_a_run_whose_clients_are_fixed_says_so(rows):
    finite = learned(some(rows, "abc"), policy="finite")
    assert finite.for_newcomers is None
    with pytest.raises(OptionError, match="no client can join or leave this run: its policy was"):
        finite.join({"d": rows["d"]})
    with pytest.raises(OptionError, match="no client can join or leave this run: its policy was"):
        finite.leave("a")


@pytest.mark.parametrize(
    ("aggregation", "found"),
    [
        ("plain", "costs each client its epsilon again"),
        ("secure", "would be the newcomer's own sums, which the masks are to hide"),
    ],
)
def test_private_runs_say_what_is_not_possible_and_why(rows, aggregation, found):
    privacy = fedopl.PrivacyPlan(
        epsilon=20.0,
        outcome=(-8.0, 8.0),
        ranges={"x0": (-4.0, 4.0), "x1": (-4.0, 4.0)},
        aggregation=aggregation,
    )
    nuisances = fedopl.NuisancePlan(propensity="known")
    private = fedopl.learn(
        some(rows, "abc"),
        privacy=privacy,
        nuisances=nuisances,
        basis="linear",
        declared=fedopl.Declared(overlap=0.2),
    )
    for change in (lambda: private.join({"d": rows["d"]}), lambda: private.leave("a")):
        with pytest.raises(OptionError, match=found):
            change()


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A finished run of two clients in folders, and one of three that came of it."""
    made = write_tiny(tmp_path_factory.mktemp("joined") / "tiny")
    later = made.folder / "later" / "west"
    later.parent.mkdir()
    (made.clients / "west").rename(later)
    run_folders(made.study, made.clients, out=made.out)
    _, folder = join_folder(made.out, later)
    return made, later, folder


def test_a_joined_run_is_read_as_it_was_written(tiny, tmp_path):
    *_, folder = tiny
    loaded = fedopl.load_run(folder)
    loaded.save(tmp_path)
    first, second = everything_in(folder), everything_in(tmp_path)
    missing = {name for name in first if name not in second}
    assert missing == {"report.html", "study.toml", "before/study.toml"} & first.keys()
    assert {name for name in second if first[name] != second[name]} <= {"run.json"}
    assert loaded.membership.joined == ["west"]
    assert loaded.membership.before.values.rows


@pytest.mark.parametrize(
    "name", ["newcomers.npz", "membership.json", "before/run.json", "before/values.csv", "sums.npz"]
)
def test_a_file_that_was_changed_is_noticed_and_nothing_is_written(tiny, tmp_path, name):
    *_, folder = tiny
    content = everything_in(folder)
    for path, held in content.items():
        (tmp_path / "run" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / path).write_bytes(held)
    changed = tmp_path / "run" / name
    changed.write_bytes(changed.read_bytes()[:-3] + b"0}\n")
    with pytest.raises(StorageError, match=f"{name}: was changed or cut off"):
        leave_folder(tmp_path / "run", "west")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_is_there_is_not_written_over(tiny):
    made, later, _ = tiny
    with pytest.raises(StorageError, match="is there already; name another folder with --out"):
        join_folder(made.out, later)
    with pytest.raises(StorageError, match="is the run itself"):
        join_folder(made.out, later, out=made.out)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("severity", "gravity", "severity"),
        ("usual", "other", "other"),
    ],
    ids=["another column", "an unknown action"],
)
def test_a_table_with_other_columns_or_actions_is_named(tiny, tmp_path, old, new, found):
    made, later, _ = tiny
    east = tmp_path / "east"
    east.mkdir()
    (east / "client.toml").write_text((later / "client.toml").read_text())
    (east / "data.csv").write_text((later / "data.csv").read_text().replace(old, new))
    with pytest.raises(FedoplError, match=f"data.csv.*{found}"):
        join_folder(made.out, east, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- the report -----------------------------------------------------------------------------------


def test_the_report_says_who_is_in_and_claims_nothing_for_others(tiny):
    *_, folder = tiny
    page = render(fedopl.load_run(folder))
    assert "Who is in" in page
    assert "&#39;west&#39; joined" in page
    assert "were not asked about it" in page
    assert "only a run with everybody makes them anew" in page
    for title in ("What it is worth", "Who gains and who loses", "Does joining pay?"):
        assert f">{title}</h2>" not in page


def test_the_report_of_a_run_that_is_as_before_says_so(run, rows):
    again = run.join({"d": rows["d"]}).leave("d")
    page = render(again)
    assert "their sums give the same policy" in page
    assert ">What it is worth</h2>" in page
    assert again.verdict == run.verdict
    left = render(run.leave("a"))
    assert "no client has valued it since" in left


def test_a_tree_with_other_questions_stays_on_the_grid_and_says_so(rows):
    plan = fedopl.Tree(depth=1, bins=8)
    run = learned(some(rows, "abc"), policy=plan)
    joined = run.join({"d": rows["d"]})
    assert run.second_look
    assert joined.second_look is None  # another threshold of the grid than clients were asked of
    (branch,) = branches_of(joined.policy.root)
    assert branch.cut in joined.tree.grid.cuts[branch.column]
    page = render(joined)
    assert "and this tree has other questions" in page
    assert "became" not in page
    assert "This does not hold for d, who joined later" in page
    assert joined.leave("d").second_look


# --- over a network -------------------------------------------------------------------------------


def test_shares_in_a_file_may_be_written_as_people_write_them(given):
    shares = {"a": 0.4, "b": 0.24, "c": 0.16, "d": 0.2}
    file = given.study.model_copy(update={"mixture": fedopl.mixture.given(shares)})
    study, own = study_to_agree_to(given, file, ["d"])
    assert (study, own) == (file, {"d": 0.2})
    for wrong in ({"a": 0.4, "b": 0.2, "c": 0.2, "d": 0.2}, {"a": 0.8, "d": 0.2}):
        file = given.study.model_copy(update={"mixture": fedopl.mixture.given(wrong)})
        with pytest.raises(StudyError, match="shrink the others' in proportion"):
            study_to_agree_to(given, file, ["d"])
