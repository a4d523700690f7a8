"""Two masks on every answer, so that others may drop out (Bonawitz et al. 2017).

For each sum a client has a seed with every neighbour, which follows from the key that the two
share, and a mask of its own. It tells the server its seeds under seal, before any sum, and shares
of what opens them and of its own mask are with others. Of who answered, the own mask is taken off;
of who did not, the masks it would have had with others. Never both of one client: whoever has both
has its answer.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.secure.keys import derived, expanded
from fedopl.secure.masks import masked, stream
from fedopl.secure.secret_shares import SECRET_BYTES, coefficients, rebuilt, shares_at

# The two secrets of a sum, in the order in which shares of them are told.
OWN_MASK, SEED_KEY = range(2)
N_SECRETS = 2
SEAL_BYTES = 16


class SumSecrets(NamedTuple):
    """What a client's masks of one sum follow from, and how its shares are drawn."""

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
    """What the masks of two clients in one sum follow from; it discloses no other sum's."""
    return expanded(pair_key, b"fedopl seed 1 of sum %d" % number)


class Circle(NamedTuple):
    """Who holds shares of a client's secrets, in the order of their shares, and how many it takes.

    Each holds one of its own, so that all count the same.
    """

    holders: dict[int, tuple[int, ...]]  # by place
    threshold: int

    def enough(self, there: set[int]) -> bool:
        """Whether every client's secrets can be rebuilt by those who are there."""
        return all(
            sum(place in there for place in own) >= self.threshold for own in self.holders.values()
        )


def doubly_masked(
    numbers: IntArray, place: int, own_mask: bytes, keys: Mapping[int, bytes], about: bytes
) -> Words:
    """Whole numbers under a mask for every neighbour, by its place, and one of the client's own."""
    return masked(numbers, place, keys, about) + stream(own_mask, about, len(numbers))


def without_own_masks(total: Words, own_masks: Mapping[int, bytes], about: bytes) -> Words:
    """The sum of answers less the own masks of those who answered."""
    found = total.copy()
    for place in sorted(own_masks):
        found -= stream(own_masks[place], about, len(total))
    return found


def without_pair_masks(
    total: Words, lacking: int, keys: Mapping[int, bytes], about: bytes
) -> Words:
    """The same less the masks that those who answered had with one who did not, by their places."""
    # What it would have added up to itself cancels theirs.
    nothing = np.zeros(len(total), np.int64)
    return total + masked(nothing, lacking, keys, about)


def secret_shares(
    secrets: SumSecrets, about: bytes, places: Sequence[int], threshold: int
) -> tuple[list[int], list[int]]:  # by holder
    """The shares of a sum's two secrets for holders at these places, of which so many rebuild."""

    def shares(secret: bytes, kind: int) -> list[int]:
        higher = coefficients(secrets.draws, bytes([kind]) + about, threshold - 1)
        return shares_at(places, int.from_bytes(secret, "little"), higher)

    return shares(secrets.own_mask, OWN_MASK), shares(secrets.seed_key, SEED_KEY)


def secret_of(shares: Mapping[int, int]) -> bytes | None:
    """A secret of a sum, from enough of its shares; None if they are not of one."""
    found = rebuilt(shares)
    return found.to_bytes(SECRET_BYTES, "little") if found < 256**SECRET_BYTES else None


def sealed(key: bytes, about: bytes, content: bytes) -> bytes:
    """Content that only the two who share this key can read, or change unnoticed (AES-256-GCM).

    What it is about has a key of its own, which seals nothing else, so its nonce may be zero.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(expanded(key, b"fedopl sealed 1" + about)).encrypt(bytes(12), content, None)


def unsealed(key: bytes, about: bytes, content: bytes) -> bytes | None:
    """What was sealed; None if it was something else, by somebody else, or about something else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(expanded(key, b"fedopl sealed 1" + about)).decrypt(bytes(12), content, None)
    except InvalidTag:
        return None
