"""Workers that cannot be meant are refused at once, alike for every kind."""

import pytest

import fedopl
from fedopl.base.errors import OptionError

ENGINES = [fedopl.DaskEngine, fedopl.SparkEngine]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", 10**400 * -1])
def test_workers_are_counted_from_one(engine, workers):
    with pytest.raises(OptionError, match="workers: expected a whole number from 1, came"):
        engine(workers=workers)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("wait", [-1, 0, float("nan"), float("inf"), "30", None])
def test_to_wait_takes_some_time(engine, wait):
    with pytest.raises(OptionError, match="wait: expected a number above 0, came"):
        engine(wait=wait)


@pytest.mark.parametrize("engine", ENGINES)
def test_workers_are_not_given_beside_an_address(engine):
    with pytest.raises(OptionError, match="leave out the address"):
        engine("tcp://127.0.0.1:9", workers=2)
