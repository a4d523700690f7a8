"""Whole numbers without end are an error in words, wherever they come in."""

import numpy as np
import pytest

import fedopl
from fedopl.base.whole_numbers import LEAST, MOST, shown
from tiny_study import CLIENT, write_tiny
from tiny_study import fedopl as command

DIGITS = "9" * 5000
HUGE = 10**5000


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 100)
    return fedopl.LoggedData(rng.standard_normal((100, 2)), actions, rng.standard_normal(100))


CALLS = {
    "learn: seed": lambda data: fedopl.learn({"a": data}, basis="linear", seed=HUGE),
    "learn: a seed below zero": lambda data: fedopl.learn({"a": data}, basis="linear", seed=-HUGE),
    "learn: a seed just too large": lambda data: fedopl.learn(
        {"a": data}, basis="linear", seed=MOST + 1
    ),
    "learn: evaluation": lambda data: fedopl.learn({"a": data}, basis="linear", evaluation=HUGE),
    "learn: quorum": lambda data: fedopl.learn({"a": data}, basis="linear", quorum=HUGE),
    "learn: threads": lambda data: fedopl.learn(
        {"a": data}, basis="linear", running=fedopl.Running(threads=HUGE)
    ),
    "cross_fit: seed": lambda data: fedopl.cross_fit(data, seed=HUGE),
    "cross_fit: folds": lambda data: fedopl.cross_fit(data, folds=HUGE),
    "a tree's depth": lambda _: fedopl.Tree(depth=HUGE),
    "rounds": lambda _: fedopl.TrainingPlan(rounds=HUGE),
    "a batch": lambda _: fedopl.TrainingPlan(batch_size=HUGE),
    "limits": lambda _: fedopl.Limits(studies=HUGE),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_with_a_number_without_end_is_refused_in_words(data, call):
    with pytest.raises(fedopl.OptionError, match=r"expected .*, came one of about [\d,]+ digits"):
        call(data)


@pytest.mark.parametrize("seed", [LEAST, MOST])
def test_the_largest_seeds_are_seeds(seed):
    assert fedopl.Study(actions=("a", "b"), features=("x",), seed=seed).seed == seed


STUDY_LINES = {
    "seed": "seed = {}",
    "quorum": "quorum = {}",
    "an unknown key": "nonsense = {}",
    "rounds": "plan.rounds = {}",
    "depth": "tree.depth = {}",
    "a list": "list = [1, {}]",
}
NUMBERS = {"5,000 digits": DIGITS, "400 digits": "9" * 400, "hexadecimal": "0x" + "f" * 5000}


@pytest.mark.parametrize("line", STUDY_LINES.values(), ids=STUDY_LINES)
@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_a_study_file_with_a_number_without_end_is_refused_with_its_line(tmp_path, line, number):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.study.write_text(f"# a study\n{line.format(number)}\n{tiny.study.read_text()}")
    done = tiny.check()
    assert done.code == 1
    assert f"{tiny.study}, line 2:" in done.err
    assert "expected a whole number of 64 bits" in done.err
    assert len(done.err) < 500


def test_a_client_file_with_a_number_without_end_is_refused_with_its_line(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.settings().write_text(f"{CLIENT}[limits]\nstudies = {DIGITS}\n")
    done = tiny.check()
    assert done.code == 1
    assert f"{tiny.settings()}, line 4:" in done.err


@pytest.mark.parametrize("option", ["--threads", "--seeds"])
def test_an_option_of_the_command_line_without_end_is_refused_in_words(option):
    verb = "run" if option == "--threads" else "reproduce"
    done = command(verb, option, DIGITS)
    assert done.code != 0
    assert "Traceback" not in done.text


def test_long_values_are_shown_in_short():
    assert shown("a" * 5000).endswith("…")
    assert len(shown("a" * 5000)) < 250
    assert shown(MOST) == str(MOST)
