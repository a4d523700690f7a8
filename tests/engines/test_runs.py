"""The run folder: what is saved comes back, and what was changed is noticed."""

import os
import stat

import numpy as np
import pandas as pd
import pytest

import fedopl
from fedopl.base.errors import StorageError
from fedopl.engines import run
from fedopl.policies.policy import policy_json
from tiny_study import everything_in, write_tiny

FILES = (
    "run.json",
    "study.json",
    "policy.json",
    "values.csv",
    "gains.csv",
    "rounds.jsonl",
    "sums.npz",
    "ledger.jsonl",
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small run as it was returned, and the folder it was saved in."""
    tiny = write_tiny(tmp_path_factory.mktemp("saved") / "tiny")
    return run.run(tiny.study, tiny.clients, out=tiny.out), tiny


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the run's folder, to be broken."""
    run, _ = saved
    run.save(tmp_path / "run")
    return tmp_path / "run"


def test_what_was_saved_is_loaded(saved, folder):
    run, _ = saved
    loaded = fedopl.load_run(folder)
    assert policy_json(loaded.policy) == policy_json(run.policy)
    assert loaded.policy.encoding == run.policy.encoding
    for name in ("study", "chosen", "best_arm", "mixture", "rows", "rounds", "refusals", "verdict"):
        assert getattr(loaded, name) == getattr(run, name), name
    assert (loaded.values, loaded.gains, loaded.ledger) == (run.values, run.gains, run.ledger)
    assert str(loaded) == str(run)


def test_sums_and_descriptions_are_loaded_to_the_last_bit(saved, folder):
    run, _ = saved
    loaded = fedopl.load_run(folder)
    for name, sums in run.statistics.sums.items():
        for field in ("grams", "products", "squares", "shares"):
            assert np.array_equal(
                getattr(loaded.statistics.sums[name], field), getattr(sums, field)
            )
    assert np.array_equal(loaded.described.cuts, run.described.cuts)
    assert loaded.described.by_client.keys() == run.described.by_client.keys()


@pytest.mark.parametrize(
    "mixture", ["uniform", {"north": 0.7, "south": 0.2, "west": 0.1}], ids=["uniform", "given"]
)
def test_a_loaded_run_solves_other_mixtures_as_before(saved, folder, mixture):
    run, _ = saved
    again = fedopl.load_run(folder).resolve(mixture)
    assert policy_json(again) == policy_json(run.resolve(mixture))


def test_what_learn_returned_is_loaded_too(draw, tmp_path):
    run = fedopl.learn(
        {"a": draw(150), "b": draw(150, seed=1)},
        basis="linear",
        evaluation=fedopl.EvaluationPlan(describe=False),
    )
    run.save(tmp_path)
    loaded = fedopl.load_run(tmp_path)
    assert str(loaded) == str(run)
    assert loaded.described is None
    assert loaded.ledger == run.ledger


def test_saving_again_writes_the_same_bytes_but_for_the_time(saved, folder, tmp_path):
    fedopl.load_run(folder).save(tmp_path / "again")
    first, second = everything_in(folder), everything_in(tmp_path / "again")
    assert {name for name in first if first[name] != second[name]} <= {"run.json"}


def test_tables_are_read_by_pandas_with_the_same_numbers(saved, folder):
    run, _ = saved
    values = pd.read_csv(folder / "values.csv")
    expected = [row.estimate.value for row in run.values.rows]
    assert values["value"].tolist() == pytest.approx(expected, rel=1e-14)
    assert values["policy"].tolist() == [row.policy for row in run.values.rows]
    gains = pd.read_csv(folder / "gains.csv")
    expected = [row.interval[0] for row in run.gains.rows]
    assert gains["low"].tolist() == pytest.approx(expected, rel=1e-14)


# --- files that are not what was written ----------------------------------------------------------


def one_digit_more(content):
    """Content with one digit changed, where a change is hard to see."""
    at = max(content.rfind(b"%d" % digit) for digit in range(10))
    return content[:at] + b"%d" % ((int(content[at : at + 1]) + 1) % 10) + content[at + 1 :]


DAMAGE = {
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "without its last line": lambda content: content[: content[:-1].rfind(b"\n") + 1],
    "with another digit": one_digit_more,
    "not text": lambda content: b"\xff\xfe" + content[2:],
    "other JSON": lambda content: b"[1, 2]\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_was_changed_is_noticed_and_named(folder, name, damage):
    if name == "run.json" and damage is one_digit_more:
        pytest.skip("it holds the hashes of the others, and nothing holds its own")
    path = folder / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageError) as caught:
        fedopl.load_run(folder)
    assert str(folder / name) in str(caught.value) or name == "run.json"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(StorageError, match=rf"{name}: cannot be read: No such file"):
        fedopl.load_run(folder)


def test_a_run_of_a_later_version_is_said_so(folder):
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(StorageError, match="load it with the fedopl that saved it"):
        fedopl.load_run(folder)


def test_a_folder_that_is_no_run_is_said_so(tmp_path):
    with pytest.raises(StorageError, match="expected the folder of a finished run"):
        fedopl.load_run(tmp_path)


# --- writing --------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_leaves_no_run_that_looks_finished(saved, tmp_path, monkeypatch):
    run, _ = saved
    whole = os.fsync
    written = []

    def fill_up(handle):
        written.append(handle)
        if len(written) > 4:
            raise OSError(28, "No space left on device")
        whole(handle)

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        run.save(tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_what_is_private_is_readable_by_its_owner_alone(saved):
    _, tiny = saved
    home = tiny.clients / "north"
    private = [
        home / "ledger.jsonl",
        tiny.out / "ledger.jsonl",
        tiny.out / "sums.npz",
        *(home / "scores").iterdir(),
        *(tiny.out / "exchanges").iterdir(),
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert stat.S_IMODE((home / "scores").stat().st_mode) == 0o700


def test_what_is_shared_follows_the_umask(saved, tmp_path):
    run, _ = saved
    before = os.umask(0o027)
    try:
        run.save(tmp_path / "run")
    finally:
        os.umask(before)
    for name in ("policy.json", "values.csv", "run.json"):
        assert stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) == 0o640
