"""Reads what clients reply: as an answer to what they were asked, in the study they agreed to."""

from typing import Any, cast

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.errors import WireError
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.message import Message, Query
from fedopl.messages.refusal import Refusal
from fedopl.messages.secure.masked_sums import MaskedSums, is_masked
from fedopl.server.exchange.answers import Answer
from fedopl.study.study import Study

# Larger numbers than this cannot be squared and added up.
LARGEST_NUMBER = 1e100


class AnswerReader:
    """Reads the replies of one study's clients."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._decoder, self._digest = decoder_of(study), study.digest

    def read(self, query: Query[Answer], content: bytes) -> Answer | Refusal:
        """The answer, or the refusal; an error if it is neither of this question."""
        message = self._decoder.decode(content)
        if message.study != self._digest:
            raise WireError("answers for another study")
        if isinstance(message, Refusal):
            return message
        _check_size(message)
        if message.exchange != query.exchange:
            raise WireError(f"answers exchange {message.exchange}, this is {query.exchange}")
        if type(message) is not (MaskedSums if is_masked(query, self.study) else query.answer):
            raise WireError(f"answers with {type(message).__name__}")
        return cast(Answer, message)

    def again(self, content: bytes) -> Any:
        """An answer that was read before and not kept."""
        return self._decoder.decode(content)


def _check_size(message: Message) -> None:
    names, held = codec.ARRAYS[type(message)], vars(message)
    if not perhaps_beyond([held[name] for name in names], LARGEST_NUMBER):
        return
    for name in names:
        largest = largest_size(held[name])
        if largest > LARGEST_NUMBER:
            raise WireError(f"{name}: a number as large as {largest:.0e} cannot be added up")
