"""Keys of clients whose answers are masked, their roster, and shares of what masks follow from.

If clients may be missing, every client shares two secrets for each sum before the first: that of
its own mask, and that which opens the seeds of its masks with others, which the server keeps under
seal. After each sum, the clients that answered send the server one share for every client: of the
own mask if that client answered as well, of the secret that opens its seeds if it did not.
"""

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fedopl.base.arrays import Words
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.secure.masked_sums import n_sums
from fedopl.messages.sensitivity import UNMOVED
from fedopl.secure.masks import as_bytes
from fedopl.study.private.added_up import begins_under_masks, most_lacking
from fedopl.study.study import Study


@message
class SessionKeys(Message, code=101):
    """A client's keys for this study, signed with the key that the study registers.

    They are derived from its secret, the study and all its rows; without the secret they cannot be
    distinguished from any others. The number of held-out rows is public.
    """

    held_out: Annotated[int, UNMOVED, PerClient]
    keys: Annotated[Words, (Axis.SESSION_KEYS, Axis.KEY_WORDS), UNMOVED, PerClient]
    signature: Annotated[Words, (Axis.SIGNATURE_WORDS,), UNMOVED, PerClient]


@message
class TellKeys(Query[SessionKeys], code=36, asked=Asked.EACH):
    """Ask for the keys with which masks are agreed."""

    title = "Keys for masks"
    content = "public keys for this study, signed, and how many rows are held out"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether answers are masked."""
        return begins_under_masks(study)


@message
class RosterTaken(Message, code=102):
    """The roster is that of the study, and every key is signed by its registered client."""

    n_clients: Annotated[int, UNMOVED, PerClient]


@message
class TakeRoster(Query[RosterTaken], code=37, asked=Asked.EACH):
    """Report which clients take part, with their rows and keys, in the order of names.

    There is one roster only: totals of two rosters would differ by the clients in only one of them.
    """

    title = "Who takes part, with their keys"
    content = "how many clients there are"
    rows: Annotated[Words, (Axis.PARTIES,)]
    held_out: Annotated[Words, (Axis.PARTIES,)]
    keys: Annotated[Words, (Axis.PARTIES, Axis.SESSION_KEYS, Axis.KEY_WORDS)]
    signatures: Annotated[Words, (Axis.PARTIES, Axis.SIGNATURE_WORDS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether answers are masked."""
        return begins_under_masks(study)

    @property
    def told(self) -> dict[str, Words]:
        """The parts of the roster from which shared keys are derived."""
        return {"rows": self.rows, "held_out": self.held_out, "keys": self.keys}

    def arrays(self) -> list[Array]:
        """Empty: keys are numbers of any size, and nothing is computed with them."""
        return []


def about_roster(study: Study, told: Mapping[str, Words]) -> bytes:
    """The context of shared keys: this study, and all clients' rows and keys, by field."""
    digest = hashlib.sha256()
    for name in sorted(told):
        digest.update(as_bytes(told[name]))
    return study.agreed_digest + digest.digest()


def about_two(about: bytes, one: int, other: int) -> bytes:
    """The context of a key of two clients, by their places, with the roster behind `about`.

    Both places must be part of it. Otherwise a client that sent another's key as its own would have
    the same masks with everybody as that client, and masks of a client between them would cancel.
    """
    return about + b" of %d and %d" % (min(one, other), max(one, other))


def share_label(number: int, kind: int, owner: int, holder: int) -> bytes:
    """The label of a sealed share: its sum, secret, owner and holder."""
    return b"%d %d %d %d" % (number, kind, owner, holder)


def seed_label(number: int, owner: int, other: int) -> bytes:
    """The label of a sealed seed: its sum, and the two clients."""
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


@message
class SealedShares(Message, code=123):
    """One share of each of a client's secrets per holder, which only the holder can read.

    It also has, by holder and sum, the seed of their masks, which one of these secrets opens.
    """

    shares: Annotated[
        Words, (Axis.HOLDERS, Axis.MASK_SECRETS, Axis.SEALED_WORDS), UNMOVED, PerClient
    ]
    seeds: Annotated[Words, (Axis.HOLDERS, Axis.SUMS, Axis.SEALED_WORDS), UNMOVED, PerClient]


@message
class ShareSecrets(Query[SealedShares], code=57, asked=Asked.EACH):
    """Ask for shares of the secrets behind masks, each under seal for its holder."""

    title = "Shares of masks, under seal"
    content = (
        "shares of what masks follow from, which one other client can read each, and seeds of "
        "masks, which enough shares together open"
    )

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients may be missing from sums."""
        return most_lacking(study) > 0 and begins_under_masks(study)


@message
class UnmaskingShares(Message, code=105):
    """For each client whose shares it holds, a share of one of two secrets: by who answered."""

    shares: Annotated[Words, (Axis.HOLDERS, Axis.KEY_WORDS), UNMOVED, PerClient]


@message
class Unmask(Query[UnmaskingShares], code=40, asked=Asked.EACH):
    """Report which answers a sum covers, and ask for the shares that remove its masks.

    Each client gets the shares that were sealed for it, of the secrets that it is asked for.
    """

    title = "Shares that take masks off a sum"
    content = "of who answered, a share of its own mask; of who did not, of its masks with others"
    number: int  # of the sum
    stayed: Annotated[Words, (Axis.PARTIES,)]  # 1 for who answered, 0 for who did not
    shares: Annotated[Words, (Axis.HOLDERS, Axis.SEALED_WORDS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients may be missing from sums."""
        return most_lacking(study) > 0

    @classmethod
    def most(cls, study: Study) -> int:
        """One query per sum: totals of two would differ by the clients in only one of them."""
        return n_sums(study)

    def is_plausible(self, study: Study) -> bool:
        """Check that the sum exists, and that there is a yes or no for every client."""
        return 0 <= self.number < n_sums(study) and bool((self.stayed <= 1).all())

    def arrays(self) -> list[Array]:
        """Empty: sealed shares are numbers of any size, and nothing is computed with them."""
        return []
