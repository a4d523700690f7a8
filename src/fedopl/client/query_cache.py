"""Decoded queries and their hashes, cached: clients in one process are asked the same."""

import hashlib
from functools import lru_cache

from fedopl.messages.codec import Decoder
from fedopl.messages.message import Message

# A few queries travel together; large ones are decoded by each client rather than kept.
MOST_QUERIES, MOST_CACHED_BYTES = 8, 1 << 16


def read_query(content: bytes, decoder: Decoder) -> Message:
    """The message in these bytes; it is shared, and its arrays are read-only."""
    return (_cached_read if len(content) <= MOST_CACHED_BYTES else _read)(content, decoder)


def sha256_of(content: bytes) -> str:
    """The hash by which ledgers and budgets identify a query."""
    return _cached_hash(content) if len(content) <= MOST_CACHED_BYTES else _hashed(content)


def _read(content: bytes, decoder: Decoder) -> Message:
    return decoder.decode(content)


def _hashed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_cached_read = lru_cache(MOST_QUERIES)(_read)
_cached_hash = lru_cache(MOST_QUERIES)(_hashed)
