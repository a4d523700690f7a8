"""Messages of a study with masked answers, in which the server reads only their total.

Answers under masks are whole numbers that look random one by one, and add up to the total. Clients
first send their keys, and take the roster of all. A study numbers its masked sums: if clients may
be missing, each sum has its own seeds, and every client shares two secrets for each sum before the
first: that of its own mask, and that which opens the seeds of its masks with others, which the
server keeps under seal. After each sum, the clients that answered send the server one share for
every client: of the own mask if that client answered as well, of the secret that opens its seeds if
it did not.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Annotated, Any, cast

import numpy as np

from fedopl.base.arrays import IntArray, Words, from_triangles, lower_triangles, triangle_size
from fedopl.messages.combining import PerClient, Sum, combinations_of
from fedopl.messages.message import (
    AnswerType,
    Array,
    Asked,
    Axis,
    Message,
    Query,
    are_symmetric,
    array_axes,
    message,
)
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    SumCandidates,
    SumCellsPrivately,
    ValuePrivately,
)
from fedopl.messages.private.noised_sums import MeasureNumbers, SumPrivately, SumResiduals
from fedopl.messages.sensitivity import UNMOVED, tells_of_rows
from fedopl.secure.masks import Circle, as_bytes
from fedopl.secure.neighbours import Holding, holders_by_place, holding_of
from fedopl.study.private.added_up import (
    Counting,
    adds_under_masks,
    begins_under_masks,
    most_lacking,
    parties_of,
)
from fedopl.study.study import Study


@message
class MaskedSums(Message, code=100):
    """All sums of an answer in one array, in whole steps, with masks, modulo 2⁶⁴."""

    numbers: Annotated[Words, (Axis.MASKED,), Sum]


def is_masked(query: Query[Any], study: Study) -> bool:
    """Whether answers to this query are masked in this study."""
    return adds_under_masks(study) and bool(query.shapes(study))


def is_read_alone(query: Query[Any], study: Study) -> bool:
    """Whether the server or others read the sums of one client's rows in its answer."""
    if not adds_under_masks(study):
        return True
    return not is_masked(query, study) and tells_of_rows(query.answer)


def flattened(query: Query[Any], answer: Message, study: Study) -> IntArray:  # (n_masked,)
    """All sums of an answer in one array, as whole numbers."""
    parts: list[IntArray] = []
    for name in query.shapes(study):
        part = np.asarray(getattr(answer, name), np.int64)
        parts.append((lower_triangles(part) if _is_symmetric(query, name) else part).ravel())
    return np.concatenate(parts)


def n_masked(query: Query[Any], study: Study) -> int:
    """How many numbers a masked answer has."""
    return sum(math.prod(_sent(query, name, shape)) for name, shape in query.shapes(study).items())


def unflattened(
    query: Query[AnswerType], numbers: IntArray, study: Study, step: float
) -> AnswerType:
    """The answer whose sums are these whole numbers of steps."""
    found: dict[str, Any] = {}
    start = 0
    for name, shape in query.shapes(study).items():
        sent = _sent(query, name, shape)
        end = start + math.prod(sent)
        part = numbers[start:end].reshape(sent) / step
        found[name] = from_triangles(part, shape[-1]) if _is_symmetric(query, name) else part
        start = end
    kind: Any = query.answer
    # Counts beside the sums are public, and known from the roster.
    beside = set(combinations_of(kind)) - set(found)
    return cast(AnswerType, kind(**found, **dict.fromkeys(beside, 0)))


def _sent(query: Query[Any], name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a sum is sent: for symmetric matrices, only triangles."""
    return (*shape[:-2], triangle_size(shape[-1])) if _is_symmetric(query, name) else shape


def _is_symmetric(query: Query[Any], name: str) -> bool:
    return are_symmetric(array_axes(query.answer)[name])


# In the order in which their secrets are numbered.
SUMMED: tuple[type[Query[Any]], ...] = (
    MeasureNumbers,
    SumPrivately,
    SumResiduals,
    SumCellsPrivately,
    LookPrivately,
    SumCandidates,
    ValuePrivately,
)


def n_sums(study: Study) -> int:
    """How many sums this study can ask for."""
    return sum(_times(query, study) for query in SUMMED)


def _times(query: type[Query[Any]], study: Study) -> int:
    # As agreed: measured ranges do not change the number of sums.
    agreed = study.before_screening
    return (query.most(agreed) or 0) if query.needed(agreed) else 0


def number_of(query: Query[Any], study: Study) -> int:
    """The number of the sum that this query asks for."""
    before = SUMMED[: SUMMED.index(type(query))]
    own = query.number if isinstance(query, SumResiduals) else 0
    return sum(_times(one, study) for one in before) + own


def counting_of(query: Query[Any]) -> Counting:
    """How much rows of different clients count in the sum that this query asks for."""
    if isinstance(query, SumPrivately | MeasureNumbers):
        return Counting.ALIKE
    return Counting.HELD_OUT if isinstance(query, ValuePrivately) else Counting.TRAINING


def n_shared_sums(study: Study) -> int:
    """The number of sums with shared secrets: all, if clients may be missing."""
    return n_sums(study) if most_lacking(study) else 0


def holding_in(study: Study) -> Holding:
    """The number of others that a client has masks and shares with in this study."""
    lacking = most_lacking(study)
    colluders = study.privacy.colluders if study.privacy else 0
    return holding_of(len(parties_of(study)), colluders, lacking)


def circle_in(study: Study, about: bytes) -> Circle:
    """The holders of all shares in this study, with the roster behind `about`."""
    holding = holding_in(study)
    holders = holders_by_place(len(parties_of(study)), holding.n_neighbours, about)
    return Circle(holders, holding.threshold)


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
