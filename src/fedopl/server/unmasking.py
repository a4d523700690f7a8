"""Removes masks from a sum of answers when some clients may have dropped out.

For a client that answered, the others' shares rebuild its own mask. For a client that did not
answer, they rebuild the key that decrypts seeds. These seeds give the masks between that client and
those that answered. All secrets are for this one sum.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.base.errors import FederationError
from fedopl.messages.about_masks import (
    SealedShares,
    TakeRoster,
    Unmask,
    UnmaskingShares,
    about_roster,
    circle_in,
    number_of,
    seed_label,
)
from fedopl.messages.message import Query
from fedopl.secure import masks
from fedopl.secure.masks import N_SECRETS, OWN_MASK, SEED_KEY, as_bytes
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.private.added_up import most_lacking, parties_of

GO_ON = (
    "Answers are under masks. Shares from all but {} of {} clients are needed to remove "
    "them; with fewer nothing can be read from any client. Resume the run when enough "
    "clients answer again. A run that begins anew needs the same clients in every sum"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Unmasking:
    """What the server needs to remove masks: all clients' keys, and encrypted shares."""

    conversation: Conversation
    roster: TakeRoster
    shares: Mapping[str, SealedShares]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return parties_of(self.conversation.study)

    @cached_property
    def _circle(self) -> masks.Circle:
        study = self.conversation.study
        return circle_in(study, about_roster(study, self.roster.told))

    def total(self, query: Query[Any], answers: Answers[Any]) -> tuple[IntArray, tuple[str, ...]]:
        """The sum over the clients that answered, and their names."""
        stayed = tuple(sorted(self.enough(answers)))
        places = [self._names.index(name) for name in stayed]
        number = number_of(query, self.conversation.study)
        about = hashlib.sha256(self.conversation.encoded(query, answers.exchange)).digest()
        told = self._told(number, stayed)
        total = masks.added_up(answers[name].numbers for name in stayed).view(np.uint64)
        own = {place: self._secret(place, OWN_MASK, told) for place in places}
        total = masks.without_own_masks(total, own, about)
        for lacking in sorted(set(range(len(self._names))) - set(places)):
            seed_key = self._secret(lacking, SEED_KEY, told)
            seeds = {
                place: self._seed(lacking, at, number, seed_key)
                for at, place in enumerate(self._circle.holders[lacking])
                if place in own
            }
            total = masks.without_pair_masks(total, lacking, seeds, about)
        return total.view(np.int64), stayed

    def enough(self, answers: Answers[Any]) -> Answers[Any]:
        """The answers, if no more clients are missing than the study allows; otherwise an error."""
        lacking, n_clients = most_lacking(self.conversation.study), len(self._names)
        there = {self._names.index(name) for name in answers}
        try:
            self.conversation.require_quorum(
                answers, of=n_clients, share=(n_clients - lacking) / n_clients
            )
            if not self._circle.enough(there):
                self.conversation.require_quorum(answers, of=n_clients, share=1.0)
        except FederationError as error:
            words = GO_ON.format(lacking, n_clients)
            raise FederationError(f"{error}\n{words}") from None
        return answers

    def _told(self, number: int, stayed: tuple[str, ...]) -> Answers[UnmaskingShares]:
        """The shares that present clients decrypt; each is sent the shares encrypted for it."""
        flags = np.array([name in stayed for name in self._names], np.uint64)
        queries = {
            name: Unmask(number=number, stayed=flags, shares=self._sealed_for(name, number, flags))
            for name in stayed
        }
        return self.enough(self.conversation.apart(queries))

    def _sealed_for(self, name: str, number: int, stayed: Words) -> Words:
        own = self._names.index(name)
        found = []
        for owner in self._circle.holders[own]:
            at = self._circle.holders[owner].index(own)
            kind = OWN_MASK if stayed[owner] else SEED_KEY
            found.append(self.shares[self._names[owner]].shares[at, N_SECRETS * number + kind])
        return np.stack(found)

    def _secret(self, place: int, kind: int, told: Answers[UnmaskingShares]) -> bytes:
        shares: dict[int, int] = {}
        for at, holder in enumerate(self._circle.holders[place]):
            name = self._names[holder]
            if name in told and len(shares) < self._circle.threshold:
                own = told[name].shares[self._circle.holders[holder].index(place)]
                shares[at + 1] = int.from_bytes(as_bytes(own), "little")
        found = masks.secret_of(shares)
        if found is None:
            raise self._wrong(place, "mask" if kind == OWN_MASK else "seeds")
        return found

    def _seed(self, lacking: int, at: int, number: int, seed_key: bytes) -> bytes:
        """The seed of the masks between an absent client and its share holder at this position."""
        label = seed_label(number, lacking, self._circle.holders[lacking][at])
        under_seal = as_bytes(self.shares[self._names[lacking]].seeds[at, number])
        found = masks.unsealed(seed_key, label, under_seal)
        if found is None:
            raise self._wrong(lacking, "seeds")
        return found

    def _wrong(self, place: int, what: str) -> FederationError:
        self.conversation.journal.forget(self.conversation.rounds[-1].trip)
        return FederationError(
            f"shares of the {what} of {self._names[place]} do not fit together: it sent wrong "
            "shares to the others, or they send wrong ones now. The masks cannot be removed "
            "from the sum. Agree on a new study without the client at fault"
        )
