"""A secret in shares (Shamir 1979): enough of them rebuild it, fewer disclose nothing.

A share is the value of a polynomial over a prime field at a holder's place; the secret is its value
at zero. Fewer shares than the polynomial has coefficients are consistent with any secret.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from fedopl.secure.masks import stream

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
