"""Clients that join a finished run or leave it: nobody else is asked, and nothing is made up."""

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import FederationError, StudyError
from fedopl.engines.run import join_folder, leave_folder
from fedopl.engines.run import run as run_folders
from fedopl.policies.policy import policy_json
from later_clients import linear_rows, true_value
from tiny_study import everything_in, write_tiny

NAMES = ("x0", "x1", "x2")
KNOTS = dict.fromkeys(NAMES, (-1.0, 0.0, 1.0))
CUTS = dict.fromkeys(NAMES, (-1.0, -0.5, 0.0, 0.5, 1.0))
KINDS = {
    "linear": {"basis": "linear"},
    "basis": {"basis": fedopl.Basis(kind="auto", knots=KNOTS)},
    "blocks": {"basis": "linear", "policy": fedopl.Linear(features="blocks")},
    "tree": {"basis": "linear", "policy": fedopl.Tree(depth=2, cuts=CUTS, refine=False)},
    "cross-fitted": {"basis": "linear", "evaluation": "cross-fitted"},
    "cross-fitted tree": {
        "basis": "linear",
        "policy": fedopl.Tree(depth=2, cuts=CUTS, refine=False),
        "evaluation": "cross-fitted",
    },
    "uniform": {"basis": "linear", "mixture": "uniform"},
}
# What says when something happened, or who is in.
OF_TIME = {"run.json", "membership.json"}


def saved(run, folder):
    """All files of a run as they would be written."""
    run.save(folder)
    return everything_in(folder)


@pytest.fixture(scope="module")
def rows():
    """Four clients' rows, of which the first comes late."""
    return {name: linear_rows(place, 120 + 30 * place) for place, name in enumerate("wxyz")}


def without(rows, *names):
    return {name: data for name, data in rows.items() if name not in names}


@pytest.fixture(scope="module", params=KINDS)
def local(request, rows):
    """A run without the late client, in which every client has models of its own; with it, too."""
    plan = {"nuisances": "local", **KINDS[request.param]}
    return fedopl.learn(without(rows, "w"), **{"evaluation": 0.25, **plan}), fedopl.learn(
        rows, **{"evaluation": 0.25, **plan}
    )


@pytest.fixture(scope="module")
def federated(rows):
    """The same with everybody's outcome models."""
    return fedopl.learn(without(rows, "w"), basis="linear"), fedopl.learn(rows, basis="linear")


def test_joining_and_leaving_again_gives_the_same_bytes(local, rows, tmp_path):
    run, _ = local
    before = saved(run, tmp_path / "before")
    again = saved(run.join({"w": rows["w"]}).leave("w"), tmp_path / "again")
    assert {name for name in before if before[name] != again[name]} <= OF_TIME


def test_so_it_does_where_runs_are_read_from_files_in_between(local, rows, tmp_path):
    run, _ = local
    before = saved(run, tmp_path / "before")
    joined = fedopl.load_run(tmp_path / "before").join({"w": rows["w"]})
    assert policy_json(joined.policy) == policy_json(run.join({"w": rows["w"]}).policy)
    joined.save(tmp_path / "joined")
    again = saved(fedopl.load_run(tmp_path / "joined").leave("w"), tmp_path / "again")
    assert {name for name in before if before[name] != again[name]} <= OF_TIME


def test_with_models_of_its_own_a_newcomer_is_as_if_it_had_been_there(local, rows):
    run, with_all = local
    joined = run.join({"w": rows["w"]})
    assert policy_json(joined.policy) == policy_json(with_all.policy)
    assert joined.mixture == with_all.mixture
    assert joined.best_arm == with_all.best_arm
    known = {row.policy: row.estimate for row in joined.membership.of_policy(joined.policy).values}
    assert known["learned"] == with_all.values.of("learned", "w")


def test_and_who_leaves_is_as_if_it_had_never_been_there(local):
    run, with_all = local
    left = with_all.leave("w")
    assert policy_json(left.policy) == policy_json(run.policy)
    assert not left.values.rows
    known = {row.client for row in left.membership.of_policy(left.policy).values}
    # A tree may stay the same, and then it is as valued as it was.
    same = policy_json(left.policy) == policy_json(with_all.policy)
    assert known == (set("xyz") if same else set())


def test_the_order_of_joining_and_leaving_changes_no_bit(rows):
    plan = {"nuisances": "local", "basis": "linear"}
    run = fedopl.learn(without(rows, "w", "x"), **plan)
    one = run.join({"w": rows["w"]}).join({"x": rows["x"]})
    other = run.join({"x": rows["x"]}).join({"w": rows["w"]})
    together = run.join({"w": rows["w"], "x": rows["x"]})
    assert policy_json(one.policy) == policy_json(other.policy) == policy_json(together.policy)
    for joined in (one, other, together):
        assert policy_json(joined.leave("x").leave("w").policy) == policy_json(run.policy)
        assert joined.leave("w").leave("x").values == run.values


def test_with_everybodys_models_the_newcomers_sums_are_those_of_a_run_with_all(federated, rows):
    run, with_all = federated
    joined = run.join({"w": rows["w"]})
    new, expected = joined.statistics.sums["w"], with_all.statistics.sums["w"]
    np.testing.assert_allclose(new.products, expected.products, rtol=1e-9, atol=1e-12)
    for name in "xyz":  # and the others' are as they were
        assert joined.statistics.sums[name] is run.statistics.sums[name]
    apart = np.abs(joined.policy.parameters - with_all.policy.parameters).max()
    assert 0 < apart < 0.05 * np.abs(with_all.policy.parameters).max()
    assert "only a run with everybody makes them anew" in str(joined)


def test_careful_policies_are_joined_and_left_too(rows, tmp_path):
    plan = fedopl.Linear(caution=1.0)
    run = fedopl.learn(without(rows, "w"), policy=plan, basis="linear", evaluation=0.25)
    before = saved(run, tmp_path / "before")
    joined = fedopl.load_run(tmp_path / "before").join({"w": rows["w"]})
    assert policy_json(joined.policy) != policy_json(run.policy)
    again = saved(joined.leave("w"), tmp_path / "again")
    assert {name for name in before if before[name] != again[name]} <= OF_TIME


@pytest.mark.parametrize("evaluation", [0.25, "cross-fitted"])
def test_a_tree_moves_its_thresholds_if_it_is_the_one_that_was_looked_at(evaluation, rows):
    plan = fedopl.Tree(depth=1, bins=4, columns=("x0",))
    run = fedopl.learn(without(rows, "w"), policy=plan, basis="linear", evaluation=evaluation)
    joined = run.join({"w": rows["w"]})
    assert joined.tree.is_looked_at_twice(joined.mixture)
    assert sorted(joined.tree.closer.gains) == ["w", "x", "y", "z"]
    assert joined.leave("w").values == run.values
    assert run.tree.grid == joined.tree.grid


def test_leaving_and_coming_back_gives_the_same_policy(federated, rows):
    run, _ = federated
    again = run.leave("x").join({"x": rows["x"]})
    assert policy_json(again.policy) == policy_json(run.policy)
    assert again.for_newcomers.joined == {}  # its rows are in the total of the run already


def test_the_sums_of_who_left_do_not_follow_from_what_is_kept(federated, rows, tmp_path):
    """The attack: all that sums by fold and action come to, less the sums of those who stayed."""
    run, _ = federated
    own = run.rows["x"] * run.statistics.sums["x"].grams[0]
    others = sum(run.rows[name] * run.statistics.sums[name].grams[0] for name in "yz")

    def attacked(kept):
        total = sum(one.sums.sum(axis=(0, 1)) for one in kept.outcome_sums().values())
        return total[:-1, :-1] - others

    np.testing.assert_allclose(attacked(run.for_newcomers), own, rtol=1e-9)  # while x is in
    run.leave("x").save(tmp_path)
    kept = fedopl.load_run(tmp_path).for_newcomers
    assert kept.outcome_sums() == {}
    assert not {"x"} & kept.by_fold.keys()
    with np.load(tmp_path / "newcomers.npz") as arrays:
        assert {name.partition(".")[0] for name in arrays} == {
            *("counted", "joined", "by_fold", "searched", "models")
        }
    again = fedopl.load_run(tmp_path).join({"x": rows["x"]})
    assert policy_json(again.policy) == policy_json(run.policy)


def test_who_left_says_nothing_any_more_of_the_earlier_run(federated, rows, tmp_path):
    run, _ = federated
    assert "x" in run.described.by_client
    assert "x" in run.fitted
    run.leave("x").save(tmp_path)
    left = fedopl.load_run(tmp_path)
    before = left.membership.before
    for answers in (before.described.by_client, before.fitted, before.interactions):
        assert "x" not in answers
    assert before.verdict == run.verdict
    again = left.join({"x": rows["x"]})
    assert again.described.by_client.keys() == run.described.by_client.keys()
    assert again.fitted.keys() == run.fitted.keys()
    for name in ("moved", "explained", "trimmed"):
        np.testing.assert_array_equal(again.fitted["x"].of(name), run.fitted["x"].of(name))
    assert str(again) == str(run)


def test_what_who_left_put_in_doubt_stays_in_doubt(federated, tmp_path):
    run, _ = federated
    left = replace(run, doubt_then="the models are too simple for these data").leave("x")
    left.save(tmp_path)
    assert "nothing is claimed" in fedopl.load_run(tmp_path).membership.before.verdict


# --- what is known, and what is not ---------------------------------------------------------------


def test_nobody_but_the_newcomer_is_asked(federated, rows):
    run, _ = federated
    joined = run.join({"w": rows["w"]})
    new = joined.rounds[len(run.rounds) :]
    assert new
    assert {one.asked for one in new} == {("w",)}
    assert {name: joined.ledger[name] for name in "xyz"} == run.ledger


def test_no_value_is_said_of_clients_that_did_not_value_the_policy(federated, rows):
    joined = federated[0].join({"w": rows["w"]})
    assert (joined.values.rows, joined.gains.rows, joined.improvements.rows) == ((), (), ())
    assert (joined.described, joined.reliance, joined.fitted) == (None, None, {})
    known = joined.membership.of_policy(joined.policy)
    assert {row.client for row in (*known.values, *known.gains)} == {"w"}
    assert joined.recommendation.policy is None
    assert "'x', 'y', 'z' were not asked about it" in joined.verdict
    # Whoever comes next values another policy, which the first has not valued.
    left = joined.leave("x")
    assert not left.membership.of_policy(left.policy).values
    next_one = left.join({"v": linear_rows(9, 120)})
    known = next_one.membership.of_policy(next_one.policy)
    assert {row.client for row in known.values} == {"v"}
    # Who comes back is scored as it was, so the policy is the one that newcomers have valued.
    back = left.join({"x": rows["x"]})
    assert policy_json(back.policy) == policy_json(joined.policy)
    known = back.membership.of_policy(back.policy)
    assert {row.client for row in known.values} == {"w", "x"}


def test_a_policy_that_stays_the_same_stays_as_valued_as_it_was(rows):
    plan = fedopl.Tree(depth=1, cuts={"x0": (0.0,)}, columns=("x0",), refine=False)
    run = fedopl.learn(without(rows, "w"), policy=plan, basis="linear", evaluation=0.25)
    joined = run.join({"w": rows["w"]})
    assert policy_json(joined.policy) == policy_json(run.policy)
    known = joined.membership.of_policy(joined.policy)
    assert {row.client for row in known.values} == {"w", "x", "y", "z"}
    kept = {row.client: row.estimate for row in known.values if row.policy == "learned"}
    assert kept["x"] == run.values.of("learned", "x")
    assert not joined.values.rows  # of all together nothing was told


def test_intervals_at_newcomers_cover_what_is_true(rows):
    run = fedopl.learn(without(rows, "w"), basis="linear")
    covered = []
    for seed in range(20):
        joined = run.join({"new": linear_rows(1000 + seed, 120)})
        known = joined.membership.of_policy(joined.policy)
        (row,) = (one for one in known.values if one.policy == "learned")
        covered.append(row.interval[0] < true_value(joined.policy) < row.interval[1])
    assert sum(covered) >= 16  # of 20 at 95 %: fewer in three of a thousand tries


# --- in folders: what is there stays, and a client says one thing about a study -------------------


@pytest.fixture
def tiny(tmp_path):
    """A finished run of two clients, and a third that was not there."""
    made = write_tiny(tmp_path / "tiny")
    later = tmp_path / "later"
    (made.clients / "west").rename(later)
    (later / "client.toml").write_text('name = "west"\n[data]\nfile = "data.csv"\n')
    run_folders(made.study, made.clients, out=made.out)
    return made, later


def test_the_run_and_the_other_clients_stay_as_they_are(tiny):
    made, later = tiny
    before = everything_in(made.folder)
    joined, folder = join_folder(made.out, later)
    assert folder == made.out.with_name(f"{made.out.name}+west")
    assert sorted(joined.rows) == ["north", "south", "west"]
    leave_folder(folder, "west", out=made.folder / "left")
    after = everything_in(made.folder)
    assert {name: after[name] for name in before} == before
    kept = everything_in(made.out)
    again = everything_in(made.folder / "left")
    files = {name for name in kept if not name.startswith("exchanges")}
    assert {name for name in files if kept[name] != again[name]} <= OF_TIME


def test_a_client_that_joins_again_says_the_same(tiny):
    made, later = tiny
    joined, folder = join_folder(made.out, later)
    _, left = leave_folder(folder, "west")
    again, _ = join_folder(left, later)
    assert policy_json(again.policy) == policy_json(joined.policy)
    assert [change.kind for change in again.membership.changes] == ["joined", "left", "joined"]


def test_a_row_more_is_not_told_by_joining_again(tiny):
    """The sums with a row less the sums without it are that row."""
    made, later = tiny
    _, folder = join_folder(made.out, later)
    _, left = leave_folder(folder, "west")
    with (later / "data.csv").open() as file:
        lines = list(csv.reader(file))
    with (later / "data.csv").open("a", newline="") as file:
        csv.writer(file).writerow(lines[1])
    with pytest.raises(StudyError, match="its rows are not those it has answered"):
        join_folder(left, later)


def test_nor_do_other_models_make_a_client_score_its_rows_again(tiny):
    """Sums of scores by two sets of models, for the same rows, would tell of single outcomes."""
    made, later = tiny
    join_folder(made.out, later)
    other = write_tiny(made.folder / "other")
    shutil.rmtree(other.clients / "west")
    shutil.rmtree(other.clients / "south")
    run_folders(other.study, other.clients, out=other.out)
    with pytest.raises(FederationError, match="ASKED_ALREADY"):
        join_folder(other.out, later)
