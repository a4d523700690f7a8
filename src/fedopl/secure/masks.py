"""Masks that cancel in a sum (Bonawitz et al. 2017), of numbers modulo 2⁶⁴.

Every two clients share a key. The first of them adds a stream derived from it, the second subtracts
the same stream. All masked numbers together give their sum; if one is missing, they give noise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.secure.keys import expanded

WORD = np.dtype("<u8")
# Limit of a sum over all clients, so that it is read as the number it is.
LARGEST_TOTAL = 2**62


def stream(key: bytes, about: bytes, size: int) -> Words:  # (size,)
    """Uniform numbers derived from a key and a label: AES-256 in counter mode.

    The key serves this purpose alone and is never used twice, so its counter may begin at zero.
    """
    encrypted = _cipher()
    return np.frombuffer(encrypted(expanded(key, b"fedopl mask 1" + about), bytes(8 * size)), WORD)


@cache
def _cipher() -> Callable[[bytes, bytes], bytes]:
    """The cipher as a function of key and text; imported late, as it is slow and rarely needed."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    from_zero = CTR(bytes(16))
    return lambda key, text: Cipher(AES256(key), from_zero).encryptor().update(text)


def masked(numbers: IntArray, place: int, keys: Mapping[int, bytes], about: bytes) -> Words:
    """Whole numbers with a mask for every other client, by its place; masks cancel in the total."""
    total = numbers.astype(np.int64).view(np.uint64).copy()
    for other in sorted(keys):
        mask = stream(keys[other], about, len(total))
        if place < other:
            total += mask
        else:
            total -= mask
    return total


def added_up(parts: Iterable[Words]) -> IntArray:  # (size,)
    """The sum of all parts modulo 2⁶⁴, read as signed numbers."""
    total: Words | None = None
    for part in parts:
        if total is None:
            total = part.astype(np.uint64)
        else:
            total += part
    if total is None:
        raise ValueError("there is nothing to add up")
    return total.view(np.int64)


def as_words(content: bytes) -> Words:
    """Bytes, in a multiple of 8, as whole numbers, for keys and signatures in messages."""
    return np.frombuffer(content, WORD).astype(np.uint64)


def as_bytes(words: Sequence[int] | Words) -> bytes:
    """Convert whole numbers back to bytes."""
    return np.asarray(words, WORD).tobytes()
