"""Two masks on every answer, so that clients may drop out (Bonawitz et al. 2017).

For each sum, a client has a seed with every neighbour, derived from the key that the two share, and
a mask of its own. Before any sum, it sends the server its seeds under seal. Other clients hold
shares of the key to the seal and of the client's own mask. For a client that answered, the server
removes the own mask. For a client that did not, it removes the masks that this client would have
shared with others. Both secrets of one client are never opened: together they would reveal its
answer.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.secure.keys import derived, expanded
from fedopl.secure.masks import masked, stream
from fedopl.secure.secret_shares import SECRET_BYTES, coefficients, rebuilt, shares_at

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
