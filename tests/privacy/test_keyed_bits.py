"""Keyed bits: uniform, repeatable with the key, and unrelated without it."""

import hashlib
import hmac

import numpy as np
import pytest
from scipy.stats import chisquare

import fedopl
from fedopl.privacy.exact_noise import KeyedBits

KEY = bytes(range(32))
PURPOSE = b"fedopl.privacy.keyed_bits 1\x1f"


def stream(label=b"question", key=KEY):
    return KeyedBits(key, label)


def test_the_stream_is_what_it_always_was():
    """A client's noise must not change with a version: these bytes are for ever."""
    assert stream().take(16).hex() == "7b0782222911fe9851451c142752ef45"


def test_the_stream_is_shake_256_in_counter_mode_under_a_key_for_each_label():
    own = hmac.new(KEY, PURPOSE + b"question", "sha256").digest()
    counters = [number.to_bytes(16, "little") for number in range(3)]
    expected = b"".join(hashlib.shake_256(own + counter).digest(4096) for counter in counters)
    assert stream().take(3 * 4096) == expected


@pytest.mark.parametrize("pieces", [[1] * 9000, [4095, 2, 4096, 1], [9000], [0, 5000, 0, 4000]])
def test_bytes_are_the_same_however_they_are_taken(pieces):
    taken = stream()
    whole = stream().take(sum(pieces))
    assert b"".join(taken.take(piece) for piece in pieces) == whole


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 10, 200, 257])
def test_numbers_below_n_are_equally_likely(n):
    drawn = stream().many_below(n, 20_000)
    assert drawn.min() >= 0
    assert drawn.max() == n - 1
    assert n == 1 or chisquare(np.bincount(drawn, minlength=n)).pvalue > 1e-3


def test_large_numbers_below_n_are_drawn_evenly():
    """A third of the way from a power of two to the next, where a remainder would be biased."""
    n = 2**61 + 2**59
    drawn = stream().many_below(n, 20_000)
    tenths = np.bincount((drawn / n * 10).astype(int), minlength=10)
    assert chisquare(tenths).pvalue > 1e-3


@pytest.mark.parametrize(("part", "whole"), [(1, 3), (2, 3), (10**40 + 1, 10**41), (1, 2**32)])
def test_events_are_as_likely_as_they_should_be(part, whole):
    bits = stream()
    times = sum(bits.event(part, whole) for _ in range(10_000))
    likely = part / whole
    assert abs(times - 10_000 * likely) <= 4 * np.sqrt(10_000 * likely * (1 - likely))


class FixedDigits(KeyedBits):
    """Bits that are given: 32 of them at a time."""

    def __init__(self, *digits):
        super().__init__(KEY, b"")
        self._digits = list(digits)

    def take(self, n_bytes):
        return self._digits.pop(0).to_bytes(n_bytes, "little")


def test_an_event_is_decided_by_as_many_digits_as_it_takes():
    """1/3 is 0x55555555 again and again; a draw with the same digits is not decided yet."""
    third = 0x55555555
    assert FixedDigits(third, third, third - 1).event(1, 3)
    assert not FixedDigits(third, third, third + 1).event(1, 3)
    assert FixedDigits(0xFFFFFFFF).event(3, 3)
    assert not FixedDigits(0, 0, 1).event(0, 3)


def test_other_labels_and_keys_have_unrelated_bits():
    streams = [stream(), stream(b"questioo"), stream(b""), stream(key=KEY[::-1])]
    bits = [np.unpackbits(np.frombuffer(each.take(5000), np.uint8)) for each in streams]
    for i, first in enumerate(bits):
        for second in bits[:i]:
            assert abs((first == second).mean() - 0.5) < 4 * 0.5 / np.sqrt(40_000)


def test_the_same_key_and_label_have_the_same_bits():
    assert stream().take(100) == stream().take(100)


def test_a_key_is_not_shown():
    bits = KeyedBits(b"this is the client's own secret.", b"")
    assert "secret" not in repr(bits) + str(bits)


@pytest.mark.parametrize(
    "call",
    [
        lambda: KeyedBits(b"short", b""),
        lambda: stream().many_below(0, 1),
        lambda: stream().many_below(2**62 + 1, 1),
    ],
)
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(fedopl.OptionError, match=r"^(key|below): expected"):
        call()
