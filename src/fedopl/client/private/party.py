"""A client among those whose answers are added up under masks.

Its keys follow from its secret, the study and its rows. So it has the same keys after a restart. It
stores the roster that it took. If clients may drop out, it also stores for each sum the question
that it answered, and over which clients it helped to remove the masks. It helps only once, for one
set of clients, and stores that before anything leaves.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.base.errors import FedoplError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import Arrays, Store
from fedopl.client.private.private_rows import PrivateRows
from fedopl.messages.message import Message, Query, RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.secure.keys_and_shares import (
    RosterTaken,
    SealedShares,
    SessionKeys,
    TakeRoster,
    Unmask,
    UnmaskingShares,
    about_roster,
    about_two,
    seed_label,
    share_label,
    signed_part,
)
from fedopl.messages.secure.masked_sums import (
    MaskedSums,
    circle_in,
    counting_of,
    flattened,
    holding_in,
    n_shared_sums,
    number_of,
    unflattened,
)
from fedopl.messages.sensitivity import beyond_rows
from fedopl.privacy.sum_grid import FINE
from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import (
    N_SECRETS,
    OWN_MASK,
    SEAL_BYTES,
    SEED_KEY,
    SHARE_BYTES,
    Circle,
    SumSecrets,
    as_bytes,
    as_words,
    doubly_masked,
    masked,
    sealed,
    secret_shares,
    sum_secrets,
    sum_seed,
    unsealed,
)
from fedopl.secure.neighbours import n_neighbours, neighbours_of
from fedopl.study.private.added_up import AddedUp, Counting, most_lacking, parties_of
from fedopl.study.private.private_setting import PrivateSetting
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


class Party:
    """What the client reports about itself, the clients it adds up with, and its masks."""

    def __init__(self, rows: PrivateRows, study: Study, draws: PrivateDraws, store: Store) -> None:
        self._rows, self._study, self._draws, self._store = rows, study, draws, store
        self._names = parties_of(study)

    @property
    def _about_rows(self) -> bytes:
        # Includes the rows: if two different answers shared masks, their difference could be read.
        return self._study.agreed_digest + self._rows.fingerprint.encode()

    @cached_property
    def _session(self) -> SessionKey:
        return SessionKey(self._draws.key, self._about_rows)

    @cached_property
    def _secrets(self) -> tuple[SumSecrets, ...]:
        """The masks of each sum, if clients may drop out; empty if none may."""
        return tuple(
            sum_secrets(self._draws.key, self._about_rows + b" sum %d" % number)
            for number in range(n_shared_sums(self._study))
        )

    @cached_property
    def _public(self) -> Words:  # (1, key words)
        return as_words(self._session.public)[None]

    @cached_property
    def _counts(self) -> tuple[int, int]:
        rows = self._rows
        return rows.n_rows(RowSplit.TRAINING), rows.n_rows(RowSplit.EVALUATION)

    def told(self) -> SessionKeys:
        """Its keys, with a signature."""
        identity, registered = Identity(self._draws.key), PrivateSetting(self._study).plan.keys
        if registered.get(self._draws.client) != identity.public:
            raise RefusedError(RefusalCode.WRONG_KEY)
        content = signed_part(self._study, self._draws.client, self._counts, self._public)
        signature = as_words(identity.signed(content))
        return SessionKeys(held_out=self._counts[1], keys=self._public, signature=signature)

    # --- the roster -----------------------------------------------------------------------------

    def take(self, roster: TakeRoster) -> RosterTaken:
        """Store who takes part, if each of them signed it and none is missing."""
        registered = PrivateSetting(self._study).plan.keys
        for place, name in enumerate(self._names):
            counts = int(roster.rows[place]), int(roster.held_out[place])
            content = signed_part(self._study, name, counts, roster.keys[place])
            if not is_signed(registered[name], as_bytes(roster.signatures[place]), content):
                raise RefusedError(RefusalCode.WRONG_ROSTER)
        arrays: dict[str, Any] = roster.told
        self._check_own(arrays)
        self._as_added_up(arrays)  # sizes that no total can have are refused before any is sent
        self._store.put(self._key, arrays)
        for derived in ("_roster", "_about", "together", "_pair_keys", "_shared"):
            self.__dict__.pop(derived, None)
        return RosterTaken(n_clients=len(self._names))

    @property
    def _place(self) -> int:
        return self._names.index(self._draws.client)

    def _check_own(self, arrays: dict[str, Any]) -> None:
        place = self._place
        own = int(arrays["rows"][place]), int(arrays["held_out"][place])
        if own != self._counts or as_bytes(arrays["keys"][place]) != as_bytes(self._public):
            raise RefusedError(RefusalCode.WRONG_ROSTER)

    @property
    def _key(self) -> str:
        return f"{self._study.agreed_digest.hex()} {self._draws.client} roster"

    @cached_property
    def _roster(self) -> dict[str, Any]:
        found = self._store.get(self._key)
        if found is None:
            raise RefusedError(RefusalCode.NO_ROSTER)
        self._check_own(found)
        return found

    def _as_added_up(self, arrays: dict[str, Any]) -> AddedUp:
        rows, held_out = (
            dict(zip(self._names, map(int, arrays[name]), strict=True))
            for name in ("rows", "held_out")
        )
        try:
            return AddedUp(study=self._study, rows=rows, held_out=held_out)
        except FedoplError:
            raise RefusedError(RefusalCode.WRONG_ROSTER) from None

    @cached_property
    def together(self) -> AddedUp:
        """Whose answers are added up, and how much each one's rows count."""
        return self._as_added_up(self._roster)

    @cached_property
    def _about(self) -> bytes:
        return about_roster(self._study, self._roster)

    # --- masks ----------------------------------------------------------------------------------

    @cached_property
    def _pair_keys(self) -> dict[int, bytes]:
        """By place, the keys that this client shares with its neighbours, for this roster alone."""
        arrays, n_clients, about = self._roster, len(self._names), self._about
        n_each = n_neighbours(n_clients, PrivateSetting(self._study).plan.colluders)
        if self._secrets:
            n_each = holding_in(self._study).n_neighbours
        # Everybody's keys decide the order, so nobody can choose a place in it.
        return {
            place: self._session.shared_with(
                as_bytes(arrays["keys"][place][0]), about_two(about, self._place, place)
            )
            for place in neighbours_of(self._place, n_clients, n_each, about)
        }

    @cached_property
    def _shared(self) -> SharedMasks:
        among = Among(self._place, len(self._names), self._about, self._pair_keys)
        key = f"{self._study.agreed_digest.hex()} {self._draws.client} unmasking"
        return SharedMasks(self._study, self._secrets, among, self._store, key)

    def sealed(self) -> SealedShares:
        """Shares of the secrets behind its masks, for others to hold."""
        return self._shared.sealed()

    def unmask(self, query: Unmask) -> UnmaskingShares:
        """Shares that remove the masks from the sum of those who answered."""
        return self._shared.told(query)

    def masked(self, query: Query[Any], answer: Message, asked: str) -> MaskedSums:
        """The answer under masks for this very query, whose hash is `asked`.

        Another query has other masks, and the same query the same answer: no mask is used twice.
        """
        numbers = flattened(query, answer, self._study)
        self._check_sums(query, numbers)
        if self._secrets:
            return MaskedSums(numbers=self._shared.masked(query, numbers, asked))
        about = bytes.fromhex(asked)
        return MaskedSums(numbers=masked(numbers, self._place, self._pair_keys, about))

    def _check_sums(self, query: Query[Any], numbers: IntArray) -> None:
        """Refuse sums that cannot be true, because the server cannot check masked answers."""
        counting, plan = counting_of(query), PrivateSetting(self._study).plan
        step = FINE * self.together.weights_of(counting).scale
        own = unflattened(query, numbers, self._study, step)
        # The scores of a person are added up before they are squared.
        n_rows = self._counts[counting is Counting.HELD_OUT] * plan.most_rows_per_person
        if beyond_rows(own, self._study, n_rows, plan.noise_of(1)):
            raise RefusedError(RefusalCode.IMPOSSIBLE_SUMS)
