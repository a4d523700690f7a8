"""Keys of clients whose answers are masked, and the roster of those who take part."""

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fedopl.base.arrays import Words
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import UNMOVED
from fedopl.secure.masks import as_bytes
from fedopl.study.private.added_up import begins_under_masks
from fedopl.study.study import Study


@message
class SessionKeys(Message, code=101):
    """A client's keys for this study, signed with the key that the study registers.

    They follow from its secret, the study and the rows as a whole; without the secret they cannot
    be distinguished from any others. How many rows are held out is public.
    """

    held_out: Annotated[int, UNMOVED, PerClient]
    keys: Annotated[Words, (Axis.SESSION_KEYS, Axis.KEY_WORDS), UNMOVED, PerClient]
    signature: Annotated[Words, (Axis.SIGNATURE_WORDS,), UNMOVED, PerClient]


@message
class TellKeys(Query[SessionKeys], code=36, asked=Asked.EACH, fixed=True, once=True):
    """Ask for the keys that masks are agreed on with."""

    title = "Keys for masks"
    content = "public keys for this study, signed, and how many rows are held out"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where answers are masked."""
        return begins_under_masks(study)


@message
class RosterTaken(Message, code=102):
    """The roster is that of the study, and every key is signed by whom the study registers."""

    n_clients: Annotated[int, UNMOVED, PerClient]


@message
class TakeRoster(Query[RosterTaken], code=37, asked=Asked.EACH, once=True):
    """Say who takes part, with how many rows and with which keys, in the order of names.

    Of two rosters, totals would differ by those who are in one of them.
    """

    title = "Who takes part, with their keys"
    content = "how many clients there are"
    rows: Annotated[Words, (Axis.PARTIES,)]
    held_out: Annotated[Words, (Axis.PARTIES,)]
    keys: Annotated[Words, (Axis.PARTIES, Axis.SESSION_KEYS, Axis.KEY_WORDS)]
    signatures: Annotated[Words, (Axis.PARTIES, Axis.SIGNATURE_WORDS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where answers are masked."""
        return begins_under_masks(study)

    @property
    def told(self) -> dict[str, Words]:
        """What keys with others rest on."""
        return {"rows": self.rows, "held_out": self.held_out, "keys": self.keys}

    def arrays(self) -> list[Array]:
        """Keys are numbers of any size, with which nothing is computed."""
        return []


def about_roster(study: Study, told: Mapping[str, Words]) -> bytes:
    """What keys with others are for: this study, and everybody's rows and keys, by field."""
    digest = hashlib.sha256()
    for name in sorted(told):
        digest.update(as_bytes(told[name]))
    return study.agreed_digest + digest.digest()


def about_two(about: bytes, one: int, other: int) -> bytes:
    """What a key of two clients is for, by their places, with the roster that `about` is of.

    Who they are has to be in it: a client that told another's key for its own would have the same
    masks with everybody as that one, and of whoever stands between them both would cancel.
    """
    return about + b" of %d and %d" % (min(one, other), max(one, other))


def share_label(number: int, kind: int, owner: int, holder: int) -> bytes:
    """What a sealed share is: of which sum and secret, whose, and for whom."""
    return b"%d %d %d %d" % (number, kind, owner, holder)


def seed_label(number: int, owner: int, other: int) -> bytes:
    """What a sealed seed is: of which sum, whose, and with whom."""
    return b"%d %d %d" % (number, owner, other)


def signed_part(study: Study, name: str, counts: tuple[int, int], keys: Words) -> bytes:
    """What a client signs: its study, its name, its rows and held-out rows, and its keys."""
    parts = [
        b"fedopl keys 1",
        study.agreed_digest,
        name.encode(),
        b"%d %d" % counts,
        as_bytes(keys),
    ]
    return b"".join(b"%d:%s" % (len(part), part) for part in parts)
