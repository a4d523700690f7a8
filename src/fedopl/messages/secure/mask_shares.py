"""Shares of what masks follow from: told to others under seal, and by them once some are lacking.

Before the first sum every client shares two secrets for each: that of its own mask, and that which
opens the seeds of its masks with others, which the server keeps under seal. After each sum those
who answered tell the server, of everybody, a share of the one or of the other: of the own mask if
it answered, too, of what opens its seeds if it did not.
"""

from typing import Annotated

from fedopl.base.arrays import Words
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.secure.sum_numbers import n_sums
from fedopl.messages.sensitivity import UNMOVED
from fedopl.study.private.added_up import begins_under_masks, most_lacking
from fedopl.study.study import Study


@message
class SealedShares(Message, code=123):
    """A share of each of a client's secrets for each holder, which the holder alone can read.

    And by holder and sum the seed of their masks, which one of these secrets opens.
    """

    shares: Annotated[
        Words, (Axis.HOLDERS, Axis.MASK_SECRETS, Axis.SEALED_WORDS), UNMOVED, PerClient
    ]
    seeds: Annotated[Words, (Axis.HOLDERS, Axis.SUMS, Axis.SEALED_WORDS), UNMOVED, PerClient]


@message
class ShareSecrets(Query[SealedShares], code=57, asked=Asked.EACH, fixed=True, once=True):
    """Ask for shares of what masks follow from, each under seal for who is to hold it."""

    title = "Shares of masks, under seal"
    content = (
        "shares of what masks follow from, which one other client can read each, and seeds of "
        "masks, which enough shares together open"
    )

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where clients may be lacking."""
        return most_lacking(study) > 0 and begins_under_masks(study)


@message
class UnmaskingShares(Message, code=105):
    """For each client whose shares it holds, a share of one of two secrets, as who answered."""

    shares: Annotated[Words, (Axis.HOLDERS, Axis.KEY_WORDS), UNMOVED, PerClient]


@message
class Unmask(Query[UnmaskingShares], code=40, asked=Asked.EACH):
    """Say whose answers a sum is over, and ask for the shares that take the masks off it.

    Each client gets the shares that were sealed for it, of the secrets that it is asked for.
    """

    title = "Shares that take masks off a sum"
    content = "of who answered, a share of its own mask; of who did not, of its masks with others"
    number: int  # of the sum
    stayed: Annotated[Words, (Axis.PARTIES,)]  # 1 for who answered, 0 for who did not
    shares: Annotated[Words, (Axis.HOLDERS, Axis.SEALED_WORDS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where clients may be lacking."""
        return most_lacking(study) > 0

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each sum: of two, totals would differ by those who are in one of them."""
        return n_sums(study)

    def is_plausible(self, study: Study) -> bool:
        """A sum that there is, and a yes or no for everybody."""
        return 0 <= self.number < n_sums(study) and bool((self.stayed <= 1).all())

    def arrays(self) -> list[Array]:
        """Sealed shares are numbers of any size, with which nothing is computed."""
        return []
