"""Moments as text, and back."""

from datetime import UTC, datetime

import pytest

from fedopl.base.timestamps import milliseconds_of, present_moment, timestamp


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1_000, 1_790_000_000_123, 4_102_444_799_999])
def test_a_moment_is_written_as_the_calendar_writes_it(milliseconds):
    seconds, rest = divmod(milliseconds, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=1000 * rest)
    assert timestamp(milliseconds) == moment.isoformat(timespec="milliseconds")
    assert milliseconds_of(timestamp(milliseconds)) == milliseconds


def test_now_is_between_before_and_after():
    before = datetime.now(UTC).isoformat(timespec="milliseconds")
    moment = present_moment()
    assert before <= moment <= datetime.now(UTC).isoformat(timespec="milliseconds")
