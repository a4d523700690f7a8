"""A client's masks if others may drop out, and what it sends of its masks and of others'.

Everything is derived from its secret, so a client can continue after a restart. For each sum it
stores the question that it answered, and over which clients it helped to remove the masks. It helps
only once, for one set of clients, and stores that before anything leaves.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays, Store
from fedopl.messages.message import Query
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.secure.mask_shares import SealedShares, Unmask, UnmaskingShares
from fedopl.messages.secure.session_keys import seed_label, share_label
from fedopl.messages.secure.sum_numbers import circle_in, number_of
from fedopl.secure.double_masks import (
    N_SECRETS,
    OWN_MASK,
    SEAL_BYTES,
    SEED_KEY,
    Circle,
    SumSecrets,
    doubly_masked,
    sealed,
    secret_shares,
    sum_seed,
    unsealed,
)
from fedopl.secure.masks import as_bytes, as_words
from fedopl.secure.secret_shares import SHARE_BYTES
from fedopl.study.private.added_up import most_lacking
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False)
class Among:
    """A client among those of a roster."""

    place: int
    n_parties: int
    about: bytes  # identifies the study and the roster
    keys: dict[int, bytes]  # by place, the key that this client shares with each neighbour


@dataclass(frozen=True, eq=False)
class SharedMasks:
    """The masks of one client, and its shares of the masks of its neighbours."""

    study: Study
    secrets: tuple[SumSecrets, ...]  # by the number of the sum
    among: Among
    store: Store
    key: str  # of the stored arrays

    @cached_property
    def _circle(self) -> Circle:
        return circle_in(self.study, self.among.about)

    @property
    def _holders(self) -> tuple[int, ...]:
        """The clients that hold shares of this client's secrets; it holds shares of theirs."""
        return self._circle.holders[self.among.place]

    # --- what is kept ---------------------------------------------------------------------------

    def _kept(self) -> Arrays:
        found = self.store.get(self.key)
        if found is None and self.store.has(self.key):  # the stored file is damaged
            raise RefusedError(RefusalCode.NO_ROSTER)
        n_sums, n_parties = len(self.secrets), self.among.n_parties
        return found or {
            "asked": np.zeros((n_sums, hashlib.sha256().digest_size), np.uint8),
            "stayed": np.zeros((n_sums, n_parties), np.uint8),
        }

    def _keep(self, kept: Arrays, what: str, number: int, said: bytes, code: RefusalCode) -> None:
        """Store a statement about a sum; refused if another one was stored before."""
        now = np.frombuffer(said, np.uint8)
        before = kept[what][number]
        if before.any() and not np.array_equal(before, now):
            raise RefusedError(code)
        if not before.any():
            kept[what][number] = now
            self.store.put(self.key, kept)

    # --- masks ----------------------------------------------------------------------------------

    def masked(self, query: Query[Any], numbers: IntArray, asked: str) -> Words:
        """Whole numbers under both masks of their sum; a sum is for one question alone."""
        number, about = number_of(query, self.study), bytes.fromhex(asked)
        self._keep(self._kept(), "asked", number, about, RefusalCode.ASKED_ALREADY)
        seeds, own = self._seeds(number), self.secrets[number]
        return doubly_masked(numbers, self.among.place, own.own_mask, seeds, about)

    def _seeds(self, number: int) -> dict[int, bytes]:
        """By place, the seeds of the masks with neighbours for this sum."""
        return {other: sum_seed(key, number) for other, key in self.among.keys.items()}

    # --- shares ---------------------------------------------------------------------------------

    def _shares(self, number: int, places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Shares of the own mask and the key to seeds, for holders at these places, from 1 on."""
        own, about = self.secrets[number], self.among.about
        return secret_shares(own, about, places, self._circle.threshold)

    def sealed(self) -> SealedShares:
        """A share of each secret for every holder but itself, which can compute its own.

        Also the seeds of its masks, which the server can open once it has enough shares.
        """
        n_sums, own = len(self.secrets), self.among.place
        n_holders, n_words = len(self._holders), (SHARE_BYTES + SEAL_BYTES) // 8
        found = np.zeros((n_holders, N_SECRETS * n_sums, n_words), np.uint64)
        under_key = np.zeros((n_holders, n_sums, n_words), np.uint64)
        for number in range(n_sums):
            seeds, seed_key = self._seeds(number), self.secrets[number].seed_key
            for at, holder in enumerate(self._holders):
                if holder != own:
                    label = seed_label(number, own, holder)
                    under_key[at, number] = as_words(sealed(seed_key, label, seeds[holder]))
            shares = self._shares(number, range(1, len(self._holders) + 1))
            for kind in range(N_SECRETS):
                for at, holder in enumerate(self._holders):
                    if holder != own:
                        label = share_label(number, kind, own, holder)
                        share = shares[kind][at].to_bytes(SHARE_BYTES, "little")
                        under_seal = sealed(self.among.keys[holder], label, share)
                        found[at, N_SECRETS * number + kind] = as_words(under_seal)
        return SealedShares(shares=found, seeds=under_key)

    # --- unmasking ------------------------------------------------------------------------------

    def told(self, query: Unmask) -> UnmaskingShares:
        """A share of one secret of each: its own mask if it answered, else seeds; never both."""
        number, stayed = query.number, query.stayed.astype(np.uint8)
        kept = self._kept()
        there = {int(place) for place in np.flatnonzero(stayed)}
        if (
            self.among.place not in there
            or not kept["asked"][number].any()
            or self.among.n_parties - len(there) > most_lacking(self.study)
            or not self._circle.enough(there)
        ):
            raise RefusedError(RefusalCode.WRONG_SURVIVORS)
        found = [
            self._share_of(owner, number, OWN_MASK if owner in there else SEED_KEY, under_seal)
            for owner, under_seal in zip(self._holders, query.shares, strict=True)
        ]
        # Stored before anything leaves. With two sets of clients, a server could get shares of both
        # secrets of a client that is in only one of them.
        self._keep(kept, "stayed", number, stayed.tobytes(), RefusalCode.WRONG_SURVIVORS)
        return UnmaskingShares(shares=np.stack([as_words(share) for share in found]))

    def _share_of(self, owner: int, number: int, kind: int, under_seal: Words) -> bytes:
        own = self.among.place
        if owner == own:
            (share,) = self._shares(number, [1 + self._holders.index(own)])[kind]
            return share.to_bytes(SHARE_BYTES, "little")
        label = share_label(number, kind, owner, own)
        found = unsealed(self.among.keys[owner], label, as_bytes(under_seal))
        if found is None:
            raise RefusedError(RefusalCode.WRONG_SHARES)
        return found
