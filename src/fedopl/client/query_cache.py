"""Queries as they come. Clients in one process are asked the same, so it is read once for all."""

import hashlib
from functools import lru_cache

from fedopl.messages.codec import Decoder
from fedopl.messages.vocabulary import Message

# A few travel together; one that is large is read by each, and not kept in memory for others.
QUERIES_AT_HAND, MOST_BYTES = 8, 1 << 16


def read_query(content: bytes, decoder: Decoder) -> Message:
    """The message in these bytes, which nobody can write to."""
    return (_read_once if len(content) <= MOST_BYTES else _read)(content, decoder)


def sha256_of(content: bytes) -> str:
    """What ledgers and budgets know a query by."""
    return _hashed_once(content) if len(content) <= MOST_BYTES else _hashed(content)


def _read(content: bytes, decoder: Decoder) -> Message:
    return decoder.decode(content)


def _hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_read_once = lru_cache(QUERIES_AT_HAND)(_read)
_hashed_once = lru_cache(QUERIES_AT_HAND)(_hashed)
