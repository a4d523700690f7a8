"""Several messages in one bundle, so that a slow connection needs fewer round trips.

    magic 4 · count u32 · then for each message: length u32, bytes

A single message is sent unchanged. An answer may have an envelope, which is taken off before
anything else looks at the message:

    magic 4 · entries u64, in the ledger of whoever answers · the message, or the bundle
"""

import struct

from fedopl.base.errors import WireError

BUNDLE_MAGIC = b"fopb"
MOST_TOGETHER = 24  # such as one without each of 20 folds, and one in all rows
# The stand-in for a message that is too large; the ledger hashes these bytes with its length.
FIRST_BYTES = 1024
_HEADER = struct.Struct("<4sI")
_LENGTH = struct.Struct("<I")
HEAD_MAGIC = b"foph"
_HEAD = struct.Struct("<4sQ")


def bundled(messages: list[bytes]) -> bytes:
    """The messages as one bundle; a single message stays unchanged."""
    if len(messages) == 1:
        return messages[0]
    parts = [_HEADER.pack(BUNDLE_MAGIC, len(messages))]
    for message in messages:
        parts += [_LENGTH.pack(len(message)), message]
    return b"".join(parts)


def unbundled(content: bytes) -> list[bytes]:
    """The messages in it; what is no bundle is one message."""
    return [content[own] for own in slices_of(content)]


def slices_of(content: bytes) -> list[slice]:
    """Where in it each message is; nothing is copied yet."""
    if content[: len(BUNDLE_MAGIC)] != BUNDLE_MAGIC:
        return [slice(None)]
    try:
        _, count = _HEADER.unpack_from(content)
        if not 1 < count <= MOST_TOGETHER:
            raise WireError(f"expected 2 to {MOST_TOGETHER} messages together, came {count}")
        found, position = [], _HEADER.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(content, position)
            start = position + _LENGTH.size
            position = start + length
            found.append(slice(start, position))
    except struct.error:
        raise WireError("the bundle is cut off") from None
    if position > len(content):  # slicing never fails
        raise WireError("the bundle is cut off")
    if position < len(content):
        raise WireError("bytes left over after the last message")
    return found


def headed(content: bytes, n_entries: int) -> bytes:
    """The answer in an envelope that says how many entries its ledger has."""
    return _HEAD.pack(HEAD_MAGIC, n_entries) + content


def unheaded(content: bytes) -> tuple[bytes, int | None]:
    """The answer without its envelope, and the number of entries on that, if it has one."""
    if not content.startswith(HEAD_MAGIC) or len(content) < _HEAD.size:
        return content, None
    return content[_HEAD.size :], _HEAD.unpack_from(content)[1]


def largest_bundle(largest: int) -> int:
    """How many bytes messages have together, where none has more than `largest`."""
    return _HEAD.size + _HEADER.size + MOST_TOGETHER * (_LENGTH.size + largest)


def received(content: bytes, largest: int) -> list[bytes]:
    """The queries; a query of more than `largest` bytes is replaced by a stand-in.

    A message can have gigabytes. It is neither copied nor hashed before its size is known to be
    allowed for a query.
    """
    if len(content) <= largest and not content.startswith(BUNDLE_MAGIC):
        return [content]  # the usual case, a million times a run
    if len(content) > largest_bundle(largest):
        return [_stand_in(content)]
    try:
        queries = unbundled(content)
    except WireError:
        queries = [content]  # which is no message either, and is refused as such
    return [query if len(query) <= largest else _stand_in(query) for query in queries]


def _stand_in(content: bytes) -> bytes:
    """A short text that is not a message, so that it is refused."""
    return b"%d bytes, of which the first are " % len(content) + content[:FIRST_BYTES]
