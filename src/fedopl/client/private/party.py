"""A client among those whose answers are added up under masks.

Its keys follow from its secret, the study and its rows, so that it goes on with them when it is
started anew; what it keeps is the roster that it took.
"""

import hashlib
from functools import cached_property
from typing import Any

from fedopl.base.errors import FedoplError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.store import Store
from fedopl.client.private.private_rows import PrivateRows
from fedopl.messages.message import Message, Query, RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.secure.masked_sums import MaskedSums, flattened
from fedopl.messages.secure.session_keys import RosterTaken, SessionKeys, TakeRoster, signed_part
from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import as_bytes, as_words, masked
from fedopl.secure.neighbours import n_neighbours, neighbours_of
from fedopl.study.added_up import AddedUp, parties_of
from fedopl.study.private_setting import PrivateSetting
from fedopl.study.study import Study


class Party:
    """What the client tells of itself, whom it adds up with, and its masks."""

    def __init__(self, rows: PrivateRows, study: Study, draws: PrivateDraws, store: Store) -> None:
        self._rows, self._study, self._draws, self._store = rows, study, draws, store
        self._names = parties_of(study)

    @cached_property
    def _session(self) -> SessionKey:
        # Of these rows: masks that two different answers shared would tell how they differ.
        about = self._study.digest + self._rows.fingerprint.encode()
        return SessionKey(self._draws.key, about)

    @cached_property
    def _counts(self) -> tuple[int, int]:
        rows = self._rows
        return rows.n_rows(RowSplit.TRAINING), rows.n_rows(RowSplit.EVALUATION)

    def told(self) -> SessionKeys:
        """Its keys, signed."""
        identity, registered = Identity(self._draws.key), PrivateSetting(self._study).plan.keys
        if registered.get(self._draws.client) != identity.public:
            raise RefusedError(RefusalCode.WRONG_KEY)
        keys = as_words(self._session.public)[None]
        content = signed_part(self._study, self._draws.client, self._counts, keys)
        signature = as_words(identity.signed(content))
        return SessionKeys(held_out=self._counts[1], keys=keys, signature=signature)

    # --- the roster -----------------------------------------------------------------------------

    def take(self, roster: TakeRoster) -> RosterTaken:
        """Remember who takes part, if each of them says so and nobody who should is missing."""
        registered = PrivateSetting(self._study).plan.keys
        for place, name in enumerate(self._names):
            counts = int(roster.rows[place]), int(roster.held_out[place])
            content = signed_part(self._study, name, counts, roster.keys[place])
            if not is_signed(registered[name], as_bytes(roster.signatures[place]), content):
                raise RefusedError(RefusalCode.WRONG_ROSTER)
        arrays = {"rows": roster.rows, "held_out": roster.held_out, "keys": roster.keys}
        self._check_own(arrays)
        self._as_added_up(arrays)  # sizes that no total can have are refused before any is told
        self._store.put(self._key, arrays)
        for derived in ("_roster", "together", "_pair_keys"):
            self.__dict__.pop(derived, None)
        return RosterTaken(n_clients=len(self._names))

    def _check_own(self, arrays: dict[str, Any]) -> None:
        place = self._names.index(self._draws.client)
        own = int(arrays["rows"][place]), int(arrays["held_out"][place])
        if own != self._counts or as_bytes(arrays["keys"][place][0]) != self._session.public:
            raise RefusedError(RefusalCode.WRONG_ROSTER)

    @property
    def _key(self) -> str:
        return f"{self._study.digest.hex()} {self._draws.client} roster"

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
        """Whose answers are added up, and what each one's rows count."""
        return self._as_added_up(self._roster)

    # --- masks ----------------------------------------------------------------------------------

    @cached_property
    def _pair_keys(self) -> dict[int, bytes]:
        """By place, the keys that this client has with its neighbours: of this roster alone."""
        arrays, n_clients = self._roster, len(self._names)
        digest = hashlib.sha256()
        for name in sorted(arrays):
            digest.update(as_bytes(arrays[name]))
        about = self._study.digest + digest.digest()
        n_each = n_neighbours(n_clients, PrivateSetting(self._study).plan.colluders)
        own = self._names.index(self._draws.client)
        # In an order that everybody's keys decide, so nobody can choose a place in it.
        return {
            place: self._session.shared_with(as_bytes(arrays["keys"][place][0]), about)
            for place in neighbours_of(own, n_clients, n_each, about)
        }

    def masked(self, query: Query[Any], answer: Message, asked: str) -> MaskedSums:
        """The answer under masks that are for this very question, which `asked` is the hash of.

        Another question has other masks, and the same one the same answer: no mask is used twice.
        """
        numbers = flattened(query, answer, self._study)
        place = self._names.index(self._draws.client)
        return MaskedSums(numbers=masked(numbers, place, self._pair_keys, bytes.fromhex(asked)))
