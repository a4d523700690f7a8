"""A client among those whose answers are added up under masks.

Its keys follow from its secret, the study and its rows. So it has the same keys after a restart. It
stores the roster that it took.
"""

from functools import cached_property
from typing import Any

from fedopl.base.arrays import IntArray, Words
from fedopl.base.errors import FedoplError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import Store
from fedopl.client.private.private_rows import PrivateRows
from fedopl.client.private.shared_masks import Among, SharedMasks
from fedopl.messages.message import Message, Query, RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.secure.mask_shares import SealedShares, Unmask, UnmaskingShares
from fedopl.messages.secure.masked_sums import MaskedSums, flattened, unflattened
from fedopl.messages.secure.session_keys import (
    RosterTaken,
    SessionKeys,
    TakeRoster,
    about_roster,
    about_two,
    signed_part,
)
from fedopl.messages.secure.sum_numbers import counting_of, holding_in, n_shared_sums
from fedopl.messages.sensitivity import beyond_rows
from fedopl.privacy.sum_grid import FINE
from fedopl.secure.double_masks import SumSecrets, sum_secrets
from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import as_bytes, as_words, masked
from fedopl.secure.neighbours import n_neighbours, neighbours_of
from fedopl.study.private.added_up import AddedUp, Counting, parties_of
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


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

        Another query has other masks, and the same query has the same answer. So no mask is used
        twice.
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
