import numpy as np
import pytest

import fedopl


@pytest.fixture
def data(draw):
    return draw(60)


MISTAKES = {
    "folds as text": (lambda d: fedopl.cross_fit(d, folds="five"), "folds: expected 2 to 1000"),
    "half a fold": (lambda d: fedopl.cross_fit(d, folds=2.5), "came 2.5"),
    "not data": (lambda d: fedopl.cross_fit(3), "expected fedopl.LoggedData, came int"),
    "a floor as text": (
        lambda d: fedopl.overlap(d, fedopl.cross_fit(d), floor="low"),
        "floor: expected a propensity",
    ),
    "a clip as text": (
        lambda d: fedopl.aipw_scores(d, fedopl.cross_fit(d), clip="low"),
        "clip: expected a propensity",
    ),
    "threads as text": (
        lambda d: fedopl.learn({"a": d}, basis="linear", running=fedopl.Running(threads="two")),
        "threads: expected 1 to",
    ),
    "no threads": (
        lambda d: fedopl.learn({"a": d}, basis="linear", running=fedopl.Running(threads=0)),
        "threads: expected 1 to",
    ),
    "a table's missing cell": (
        lambda d: fedopl.learn({"a": d}, basis="linear").values.of("best"),
        "no estimate of 'best' at 'global'; there are",
    ),
    "a missing gain": (
        lambda d: fedopl.learn({"a": d}, basis="linear").gains.over("logging policy", "b"),
        "no estimate of 'logging policy' at 'b'",
    ),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_setting_is_one_line_not_a_traceback(data, mistake, message):
    with pytest.raises(fedopl.OptionError, match=message):
        mistake(data)


def test_numpy_numbers_are_numbers(data):
    assert fedopl.cross_fit(data, folds=np.int64(3)).n_folds == 3


def test_one_row_alone_is_refused_without_a_warning():
    alone = fedopl.LoggedData([[1.0]], ["x"], [1], action_names="xy")
    with pytest.raises(fedopl.FederationError, match="NOTHING_TO_SAY"):
        fedopl.learn({"alone": alone}, basis="linear")
