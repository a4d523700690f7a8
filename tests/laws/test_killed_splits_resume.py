"""Law: a run under several splits that is killed anywhere goes on from there to the same end."""

import pytest

import fedopl
from fedopl.base.errors import StorageError
from fedopl.policies.policy import policy_json
from fedopl.study.plans import EvaluationPlan
from tiny_study import everything_in, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

THREE = EvaluationPlan(splits=3)
LEARN = {
    "basis": "linear",
    "evaluation": THREE,
    "nuisances": fedopl.NuisancePlan(propensity="marginal"),
}


class Killed(BaseException):
    """As a signal would come, in the middle of a run."""


def stops_after(count):
    """A watcher that ends the run at its exchange number `count`, whatever the split."""
    seen = []

    def told(latest):
        seen.append(latest.exchange)
        if latest.exchange >= count:
            raise Killed

    return told, seen


def everything(run):
    return policy_json(run.policy), str(run), run.rounds, run.mixture, run.rows


def test_learn_goes_on_in_any_split(draw, tmp_path):
    clients = {"a": draw(90), "b": draw(110, seed=1)}
    whole = fedopl.learn(clients, **LEARN)
    for stop in (1, 6, 8, 12):
        journal = tmp_path / f"{stop}"
        told, seen = stops_after(stop)
        running = fedopl.Running(journal=journal, progress=told)
        with pytest.raises(Killed):
            fedopl.learn(clients, running=running, **LEARN)
        assert sorted(set(seen)) == list(range(stop + 1))  # counted on from split to split
        trips = list(journal.rglob("*.bin"))
        again = fedopl.learn(clients, running=fedopl.Running(journal=journal), **LEARN)
        assert everything(again) == everything(whole)
        assert set(trips) < set(journal.rglob("*.bin"))
        assert (journal / "split-3" / "trip-00000.bin").is_file()


def test_a_killed_command_goes_on_and_asks_nobody_twice(tmp_path):
    plain, killed = write_tiny(tmp_path / "plain"), write_tiny(tmp_path / "killed")
    for tiny in (plain, killed):
        tiny.add("\n[evaluation]\nsplits = 3\n")
    assert plain.run().code == 0
    told, _ = stops_after(8)

    class Watching:
        def __enter__(self):
            return told

        def __exit__(self, *_error):
            return False

    with pytest.raises(Killed):
        fedopl.run(killed.study, killed.clients, out=killed.out, watch=lambda *_: Watching())
    assert (killed.out / "exchanges" / "split-2").is_dir()
    assert not (killed.out / "run.json").exists()
    assert killed.run("--resume").code == 0
    for name in ("policy.json", "values.csv", "gains.csv", "improvements.csv", "splits.csv"):
        assert (killed.out / name).read_bytes() == (plain.out / name).read_bytes()
    lines = [(t.clients / "north/ledger.jsonl").read_text().splitlines() for t in (killed, plain)]
    assert len(lines[0]) == len(lines[1])


def test_a_run_of_fewer_splits_is_another_study(tmp_path):
    tiny = write_tiny(tmp_path)
    tiny.add("\n[evaluation]\nsplits = 2\n")
    tiny.run()
    tiny.edit("splits = 2", "splits = 3")
    with pytest.raises(StorageError, match="another study"):
        fedopl.run(tiny.study, tiny.clients, out=tiny.out, resume=True)


def test_more_splits_ask_again_only_what_was_not_asked(tmp_path):
    tiny = write_tiny(tmp_path)
    tiny.run()
    ledger = tiny.clients / "north" / "ledger.jsonl"
    before = ledger.read_text().splitlines()
    tiny.add("\n[evaluation]\nsplits = 2\n")
    run = fedopl.run(tiny.study, tiny.clients, out=tiny.folder / "twice")
    entries = run.ledger["north"]
    first, second = dict.fromkeys(entry.study for entry in entries)
    # The first split is the study as it was: its budgets pay for nothing anew.
    assert len({e.query_sha256 for e in entries if e.study == first}) == len(before)
    assert {e.study for e in entries} == {first, second}


def test_a_saved_run_is_read_as_it_was(tmp_path, draw):
    run = fedopl.learn({"a": draw(90), "b": draw(110, seed=1)}, **LEARN)
    run.save(tmp_path)
    found = fedopl.load_run(tmp_path)
    assert everything(found) == everything(run)
    for read, was in zip(found.splits, run.splits, strict=True):
        assert (read.values, read.gains, read.improvements) == (
            was.values,
            was.gains,
            was.improvements,
        )
    assert found.own_rounds == run.own_rounds
    assert "splits.csv" in everything_in(tmp_path)
