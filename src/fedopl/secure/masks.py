"""Masks that cancel in a sum (Bonawitz et al. 2017), of numbers modulo 2⁶⁴.

Every two clients share a key. The first of them adds a stream derived from it, the second subtracts
the same stream. All masked numbers together give their sum; if one is missing, they give noise.

So that clients may drop out, there can be two masks on every answer. For each sum, a client has a
seed with every neighbour, derived from the key that the two share, and a mask of its own. Before
any sum, it sends the server its seeds under seal. Other clients hold shares of the key to the seal
and of the client's own mask. For a client that answered, the server removes the own mask. For a
client that did not, it removes the masks that this client would have shared with others. Both
secrets of one client are never opened: together they would reveal its answer.

Enough shares of a secret rebuild it, fewer disclose nothing (Shamir 1979). A share is the value of
a polynomial over a prime field at a holder's place; the secret is its value at zero. Fewer shares
than the polynomial has coefficients are consistent with any secret.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.secure.keys import derived, expanded

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


PRIME = 2**255 - 19
# Any secret of this many bytes is a number below the prime, and any share fits in this many.
SECRET_BYTES, SHARE_BYTES = 31, 32
# Bytes of a coefficient before it is reduced modulo the prime: the bias is at most 2⁻¹²⁸.
_DRAWN_WORDS = 6
_REDUCED_AFTER = 32  # coefficients


def coefficients(key: bytes, about: bytes, n_coefficients: int) -> list[int]:
    """Coefficients derived from a key; without it they cannot be distinguished from any others."""
    drawn = stream(key, b"shares" + about, _DRAWN_WORDS * n_coefficients).tobytes()
    size = 8 * _DRAWN_WORDS
    found = (drawn[size * place : size * (place + 1)] for place in range(n_coefficients))
    return [int.from_bytes(one, "little") % PRIME for one in found]


def shares_at(
    places: Iterable[int], secret: int, higher: Sequence[int], prime: int = PRIME
) -> list[int]:
    """The values of the polynomial at places from 1 on; its first coefficient is the secret."""
    falling = (*reversed(higher), secret)
    found = []
    for place in places:
        value = 0
        # Some at a time: places are small, so numbers grow little before they are reduced.
        for start in range(0, len(falling), _REDUCED_AFTER):
            for coefficient in falling[start : start + _REDUCED_AFTER]:
                value = value * place + coefficient
            value %= prime
        found.append(value)
    return found


def rebuilt(shares: Mapping[int, int], prime: int = PRIME) -> int:
    """The secret, rebuilt from shares by place: as many as the polynomial has coefficients."""
    factors = _factors_at_zero(tuple(sorted(shares)), prime)
    return sum(factor * shares[place] for place, factor in factors.items()) % prime


# Secrets of clients with the same holders are rebuilt one after the other.
@lru_cache(256)
def _factors_at_zero(places: tuple[int, ...], prime: int) -> dict[int, int]:
    """Lagrange's factors: Π x_j/(x_j − x_i) over all others, for each place x_i.

    Computed as if all places up to the last were there, times a correction for the missing ones.
    """
    last = max(places)
    whole, inverse = math.prod(places) % prime, _inverse_of_all(last, prime)
    absent = sorted(set(range(1, last + 1)) - set(places))
    return {
        own: whole * inverse[own - 1] * math.prod([other - own for other in absent]) % prime
        for own in places
    }


@lru_cache(8)
def _inverse_of_all(last: int, prime: int) -> list[int]:
    """1/(x_i·Π(x_j − x_i)) over all places up to the last, for each of them."""
    return [
        pow((-1) ** (own - 1) * math.factorial(own) * math.factorial(last - own), -1, prime)
        for own in range(1, last + 1)
    ]


# The two secrets of a sum, in the order in which their shares are sent.
OWN_MASK, SEED_KEY = range(2)
N_SECRETS = 2
SEAL_BYTES = 16


class SumSecrets(NamedTuple):
    """The secrets behind a client's masks in one sum, and behind the draw of its shares."""

    own_mask: bytes
    seed_key: bytes  # which opens the seeds of its masks with others
    draws: bytes  # which nobody else ever has a share of


def sum_secrets(secret: bytes, about: bytes) -> SumSecrets:
    """The secrets of one sum; none discloses another, nor those of other sums."""
    content = hashlib.sha256(about).digest()
    return SumSecrets(
        derived(secret, b"fedopl own mask 1" + content)[:SECRET_BYTES],
        derived(secret, b"fedopl seed key 1" + content)[:SECRET_BYTES],
        derived(secret, b"fedopl share draws 1" + content),
    )


def sum_seed(pair_key: bytes, number: int) -> bytes:
    """The seed of two clients' masks in one sum; it discloses no seed of another sum."""
    return expanded(pair_key, b"fedopl seed 1 of sum %d" % number)


class Circle(NamedTuple):
    """The holders of shares of a client's secrets, in the order of shares, and how many it takes.

    Each client holds one share of its own secrets, so that all holders count the same.
    """

    holders: dict[int, tuple[int, ...]]  # by place
    threshold: int

    def enough(self, there: set[int]) -> bool:
        """Whether the clients in `there` can rebuild every client's secrets."""
        return all(
            sum(place in there for place in own) >= self.threshold for own in self.holders.values()
        )


def doubly_masked(
    numbers: IntArray, place: int, own_mask: bytes, keys: Mapping[int, bytes], about: bytes
) -> Words:
    """Whole numbers under one mask per neighbour, by its place, and the client's own mask."""
    return masked(numbers, place, keys, about) + stream(own_mask, about, len(numbers))


def without_own_masks(total: Words, own_masks: Mapping[int, bytes], about: bytes) -> Words:
    """The sum of answers without the own masks of the clients that answered."""
    found = total.copy()
    for place in sorted(own_masks):
        found -= stream(own_masks[place], about, len(total))
    return found


def without_pair_masks(
    total: Words, lacking: int, keys: Mapping[int, bytes], about: bytes
) -> Words:
    """The sum without the masks that answering clients shared with one that did not, by place."""
    # The masks that the missing client would have added cancel those of the others.
    nothing = np.zeros(len(total), np.int64)
    return total + masked(nothing, lacking, keys, about)


def secret_shares(
    secrets: SumSecrets, about: bytes, places: Sequence[int], threshold: int
) -> tuple[list[int], list[int]]:  # by holder
    """The shares of a sum's two secrets for holders at these places; `threshold` rebuild one."""

    def shares(secret: bytes, kind: int) -> list[int]:
        higher = coefficients(secrets.draws, bytes([kind]) + about, threshold - 1)
        return shares_at(places, int.from_bytes(secret, "little"), higher)

    return shares(secrets.own_mask, OWN_MASK), shares(secrets.seed_key, SEED_KEY)


def secret_of(shares: Mapping[int, int]) -> bytes | None:
    """A secret of a sum, rebuilt from enough shares; None if the shares do not fit together."""
    found = rebuilt(shares)
    return found.to_bytes(SECRET_BYTES, "little") if found < 256**SECRET_BYTES else None


def sealed(key: bytes, about: bytes, content: bytes) -> bytes:
    """Content that only the two holders of this key can read or change unnoticed (AES-256-GCM).

    Each `about` has a key of its own, which seals nothing else, so the nonce may be zero.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(expanded(key, b"fedopl sealed 1" + about)).encrypt(bytes(12), content, None)


def unsealed(key: bytes, about: bytes, content: bytes) -> bytes | None:
    """The sealed content; None if the content, its sender or `about` is not the expected one."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(expanded(key, b"fedopl sealed 1" + about)).decrypt(bytes(12), content, None)
    except InvalidTag:
        return None
