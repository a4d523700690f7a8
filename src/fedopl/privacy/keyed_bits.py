"""Uniform random bits derived from a key and a label: repeatable, but only with the key.

A repeated question has to get the same noise, or noise would average out. So noise is derived from
the client's secret (the key) and the question (the label), never from a study's seed, which others
know. HMAC-SHA256 makes a key for each label, SHAKE-256 in counter mode the bits.
"""

import hashlib
import hmac

import numpy as np

from fedopl.base.arrays import IntArray, check_whole
from fedopl.base.errors import OptionError

LEAST_KEY = 32  # bytes
LARGEST_BELOW = 2**62
# Separates these bits from all other uses of the same secret.
_PURPOSE = b"fedopl.privacy.keyed_bits 1\x1f"
_BLOCK = 4096  # bytes


class KeyedBits:
    """A stream of uniform bits, read from start to end; threads must not share one.

    The label must name all that an answer depends on, including the version of the rows. Otherwise
    the difference of two answers with the same noise could disclose a single row.
    """

    def __init__(self, key: bytes, label: bytes) -> None:
        if len(key) < LEAST_KEY:
            raise OptionError(f"key: expected at least {LEAST_KEY} bytes, came {len(key)}")
        self._key = hmac.digest(key, _PURPOSE + label, "sha256")
        self._blocks = 0
        self._buffer = b""
        self._at = 0

    def take(self, n_bytes: int) -> bytes:
        """The next bytes of the stream."""
        end = self._at + n_bytes
        if end > len(self._buffer):
            self._refill(n_bytes)
            end = n_bytes
        taken = self._buffer[self._at : end]
        self._at = end
        return taken

    def event(self, part: int, whole: int) -> bool:
        """An event of probability exactly part/whole, for numbers of any size.

        A uniform number is drawn in digits of 32 bits, until one differs from the fraction's.
        """
        drawn = digit = 0
        while drawn == digit:
            digit, part = divmod(part << 32, whole)
            drawn = int.from_bytes(self.take(4), "little")
        return drawn < digit

    def many_below(self, n: int, size: int) -> IntArray:  # (size,)
        """Independent uniform whole numbers from 0 to n − 1, for n up to 2⁶²."""
        check_whole(n, "below", 1, LARGEST_BELOW)
        # In the fewest bytes that hold n − 1, of 1, 2, 4 and 8, since drawing bits takes the time.
        kind = np.dtype(np.min_scalar_type(n - 1)).newbyteorder("<")
        spare = 8 * kind.itemsize - (n - 1).bit_length()
        found = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            words = np.frombuffer(self.take(kind.itemsize * (size - filled)), kind) >> spare
            fitting = words[words < n]
            found[filled : filled + len(fitting)] = fitting
            filled += len(fitting)
        return found

    def _refill(self, n_bytes: int) -> None:
        """Keep the rest of the buffer, and append enough new blocks for `n_bytes`."""
        left = self._buffer[self._at :]
        n_blocks = -(-(n_bytes - len(left)) // _BLOCK)
        numbers = range(self._blocks, self._blocks + n_blocks)
        self._buffer = left + b"".join(self._block(number) for number in numbers)
        self._blocks += n_blocks
        self._at = 0

    def _block(self, number: int) -> bytes:
        return hashlib.shake_256(self._key + number.to_bytes(16, "little")).digest(_BLOCK)
