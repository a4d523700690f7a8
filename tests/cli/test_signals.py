"""Signals that end a command let it clean up, whichever of them comes."""

import signal

import pytest

from fedopl.cli.printing import stop_when_told

ENDINGS = {"SIGTERM": 143, "SIGHUP": 129}


@pytest.fixture
def as_before():
    """The handlers of the process that runs the tests, which it needs later."""
    kept = {number: signal.getsignal(number) for number in map(signal.Signals.__getitem__, ENDINGS)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(("name", "code"), ENDINGS.items(), ids=ENDINGS)
def test_what_ends_a_command_is_an_exit_that_cleans_up(name, code):
    stop_when_told()
    with pytest.raises(SystemExit) as left:
        signal.raise_signal(signal.Signals[name])
    assert left.value.code == code
