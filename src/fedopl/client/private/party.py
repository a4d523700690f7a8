"""A client among those whose answers are added up under masks.

Its keys follow from its secret, the study and its rows. So it has the same keys after a restart. It
stores the roster that it took. If clients may drop out, it also stores for each sum the question
that it answered, and over which clients it helped to remove the masks. It helps only once, for one
set of clients, and stores that before anything leaves.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.base.errors import FedoplError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import Arrays, Store
from fedopl.client.private.private_rows import PrivateRows
from fedopl.messages import about_masks
from fedopl.messages.about_masks import (
    MaskedSums,
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
from fedopl.messages.message import Message, Query, RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.sensitivity import beyond_rows
from fedopl.privacy.exact_noise import FINE
from fedopl.secure import masks
from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import OWN_MASK, SEED_KEY, as_bytes, as_words
from fedopl.secure.neighbours import n_neighbours, neighbours_of
from fedopl.study.private.added_up import AddedUp, Counting, most_lacking, parties_of
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


class Party:
    """What the client reports about itself, the clients it adds up with, its masks, and shares."""

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
    def _secrets(self) -> tuple[masks.SumSecrets, ...]:
        """The masks of each sum, if clients may drop out; empty if none may."""
        return tuple(
            masks.sum_secrets(self._draws.key, self._about_rows + b" sum %d" % number)
            for number in range(about_masks.n_shared_sums(self._study))
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
        self._store.put(self._key("roster"), arrays)
        for derived in ("_roster", "_about", "together", "_pair_keys", "_circle"):
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

    def _key(self, what: str) -> str:
        """The name under which it stores this."""
        return f"{self._study.agreed_digest.hex()} {self._draws.client} {what}"

    @cached_property
    def _roster(self) -> dict[str, Any]:
        found = self._store.get(self._key("roster"))
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

    @cached_property
    def _circle(self) -> masks.Circle:
        return about_masks.circle_in(self._study, self._about)

    @property
    def _holders(self) -> tuple[int, ...]:
        """The clients that hold shares of this client's secrets; it holds shares of theirs."""
        return self._circle.holders[self._place]

    # --- masks ----------------------------------------------------------------------------------

    @cached_property
    def _pair_keys(self) -> dict[int, bytes]:
        """By place, the keys that this client shares with its neighbours, for this roster alone."""
        arrays, n_clients, about = self._roster, len(self._names), self._about
        n_each = n_neighbours(n_clients, PrivateSetting(self._study).plan.colluders)
        if self._secrets:
            n_each = about_masks.holding_in(self._study).n_neighbours
        # Everybody's keys decide the order, so nobody can choose a place in it.
        return {
            place: self._session.shared_with(
                as_bytes(arrays["keys"][place][0]), about_two(about, self._place, place)
            )
            for place in neighbours_of(self._place, n_clients, n_each, about)
        }

    def _seeds(self, number: int) -> dict[int, bytes]:
        """By place, the seeds of the masks with neighbours for this sum."""
        return {other: masks.sum_seed(key, number) for other, key in self._pair_keys.items()}

    def masked(self, query: Query[Any], answer: Message, asked: str) -> MaskedSums:
        """The answer under masks for this very query, whose hash is `asked`.

        Another query has other masks, and the same query the same answer: no mask is used twice.
        """
        numbers, about = about_masks.flattened(query, answer, self._study), bytes.fromhex(asked)
        self._check_sums(query, numbers)
        if not self._secrets:
            return MaskedSums(numbers=masks.masked(numbers, self._place, self._pair_keys, about))
        number = about_masks.number_of(query, self._study)
        self._keep(self._kept(), "asked", number, about, RefusalCode.ASKED_ALREADY)
        seeds, own = self._seeds(number), self._secrets[number].own_mask
        return MaskedSums(numbers=masks.doubly_masked(numbers, self._place, own, seeds, about))

    def _check_sums(self, query: Query[Any], numbers: IntArray) -> None:
        """Refuse sums that cannot be true, because the server cannot check masked answers."""
        counting, plan = about_masks.counting_of(query), PrivateSetting(self._study).plan
        step = FINE * self.together.weights_of(counting).scale
        own = about_masks.unflattened(query, numbers, self._study, step)
        # The scores of a person are added up before they are squared.
        n_rows = self._counts[counting is Counting.HELD_OUT] * plan.most_rows_per_person
        if beyond_rows(own, self._study, n_rows, plan.noise_of(1)):
            raise RefusedError(RefusalCode.IMPOSSIBLE_SUMS)

    # --- what is kept ---------------------------------------------------------------------------

    def _kept(self) -> Arrays:
        found = self._store.get(self._key("unmasking"))
        if found is None and self._store.has(self._key("unmasking")):  # the stored file is damaged
            raise RefusedError(RefusalCode.NO_ROSTER)
        sizes = {"asked": hashlib.sha256().digest_size, "stayed": len(self._names)}
        n_sums = len(self._secrets)
        return found or {name: np.zeros((n_sums, size), np.uint8) for name, size in sizes.items()}

    def _keep(self, kept: Arrays, what: str, number: int, said: bytes, code: RefusalCode) -> None:
        """Store a statement about a sum; refused if another one was stored before."""
        now = np.frombuffer(said, np.uint8)
        before = kept[what][number]
        if before.any() and not np.array_equal(before, now):
            raise RefusedError(code)
        if not before.any():
            kept[what][number] = now
            self._store.put(self._key("unmasking"), kept)

    # --- shares ---------------------------------------------------------------------------------

    def _shares(self, number: int, places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Shares of the own mask and the key to seeds, for holders at these places, from 1 on."""
        own, about = self._secrets[number], self._about
        return masks.secret_shares(own, about, places, self._circle.threshold)

    def sealed(self) -> SealedShares:
        """A share of each secret for every holder but itself, which can compute its own.

        Also the seeds of its masks, which the server can open once it has enough shares.
        """
        n_sums, own, holders = len(self._secrets), self._place, self._holders
        n_words = (masks.SHARE_BYTES + masks.SEAL_BYTES) // 8
        found = np.zeros((len(holders), masks.N_SECRETS * n_sums, n_words), np.uint64)
        under_key = np.zeros((len(holders), n_sums, n_words), np.uint64)
        for number in range(n_sums):
            seeds, seed_key = self._seeds(number), self._secrets[number].seed_key
            shares = self._shares(number, range(1, len(holders) + 1))
            for at, holder in enumerate(holders):
                if holder == own:
                    continue
                label = seed_label(number, own, holder)
                under_key[at, number] = as_words(masks.sealed(seed_key, label, seeds[holder]))
                for kind, of_kind in enumerate(shares):
                    label = share_label(number, kind, own, holder)
                    share = of_kind[at].to_bytes(masks.SHARE_BYTES, "little")
                    under_seal = masks.sealed(self._pair_keys[holder], label, share)
                    found[at, masks.N_SECRETS * number + kind] = as_words(under_seal)
        return SealedShares(shares=found, seeds=under_key)

    # --- unmasking ------------------------------------------------------------------------------

    def unmask(self, query: Unmask) -> UnmaskingShares:
        """A share of one secret of each: its own mask if it answered, else seeds; never both."""
        number, stayed = query.number, query.stayed.astype(np.uint8)
        circle, kept = self._circle, self._kept()
        there = {int(place) for place in np.flatnonzero(stayed)}
        if (
            self._place not in there
            or not kept["asked"][number].any()
            or len(self._names) - len(there) > most_lacking(self._study)
            or not circle.enough(there)
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
        own = self._place
        if owner == own:
            (share,) = self._shares(number, [1 + self._holders.index(own)])[kind]
            return share.to_bytes(masks.SHARE_BYTES, "little")
        label = share_label(number, kind, owner, own)
        found = masks.unsealed(self._pair_keys[owner], label, as_bytes(under_seal))
        if found is None:
            raise RefusedError(RefusalCode.WRONG_SHARES)
        return found
