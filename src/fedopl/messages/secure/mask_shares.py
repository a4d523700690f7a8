"""Shares of the secrets behind masks: sent under seal, and opened after each sum.

Before the first sum every client shares two secrets for each sum: that of its own mask, and that
which opens the seeds of its masks with others, which the server keeps under seal. After each sum,
the clients that answered send the server one share for every client: of the own mask if that client
answered as well, of the secret that opens its seeds if it did not.
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
