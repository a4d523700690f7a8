"""Messages to bytes and back. No pickle; nothing is allocated before its size has been checked.

    magic 4 · version u16 · code u16 · then the fields in the order of their names' declaration:
    int i64 · float f64 · member of a list i64 · digest 32 bytes · array u8 ndim, u32 sizes, f64 …

All numbers are little-endian. A message ends where its last field ends.
"""

import enum
import math
import struct
import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fedopl.errors import WireError
from fedopl.wire.vocabulary import MESSAGES, VERSION, Axis, Message

MAGIC = b"fopl"
DIGEST_BYTES = 32
LARGEST_MESSAGE = 1 << 30
_HEADER = struct.Struct("<4sHH")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")

Sizes = Mapping[Axis, range]
# What a field holds: a plain type, or the axes of an array.
Field = type | tuple[Axis, ...]


class WrongVersionError(WireError):
    """The other side speaks another version."""


def _content(hint: Any) -> Field:
    metadata = getattr(hint, "__metadata__", None)
    return tuple(metadata[0]) if metadata else hint


def _fields_of(message: type[Message]) -> tuple[tuple[str, Field], ...]:
    hints = typing.get_type_hints(message, include_extras=True)
    return tuple((field.name, _content(hints[field.name])) for field in fields(message))


# Name and content of each field of each message; arrays by their axes.
FIELDS = {message: _fields_of(message) for message in MESSAGES.values()}


def encode(message: Message) -> bytes:
    """The message as bytes."""
    parts: list[bytes | memoryview] = [_HEADER.pack(MAGIC, VERSION, message.code)]
    for name, content in FIELDS[type(message)]:
        value = getattr(message, name)
        if isinstance(content, tuple):
            array = np.asarray(value, "<f8", order="C")
            if array.ndim != len(content):
                raise WireError(f"{name}: expected {len(content)} axes, came {array.ndim}")
            parts.append(struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape))
            parts.append(array.data)  # joined below, and copied only there
        else:
            parts.append(_encoded_scalar(content, value))
    return b"".join(parts)


def _encoded_scalar(content: type, value: Any) -> bytes:
    if content is bytes:
        if len(value) != DIGEST_BYTES:
            raise WireError(f"expected a digest of {DIGEST_BYTES} bytes, came {len(value)}")
        return bytes(value)
    if content is float:
        return _FLOAT.pack(value)
    return _INT.pack(value.value if isinstance(value, enum.Enum) else value)


def decode(content: bytes, sizes: Sizes, largest: int = LARGEST_MESSAGE) -> Message:
    """The message in these bytes; refused unless every array is finite and of an agreed size."""
    if len(content) > largest:
        raise WireError(f"expected at most {largest:,} bytes, came {len(content):,}")
    if len(content) < _HEADER.size:
        raise WireError("too short to be a message")
    magic, version, code = _HEADER.unpack_from(content)
    if magic != MAGIC:
        raise WireError("not a message of ours")
    if version != VERSION:
        raise WrongVersionError(f"expected version {VERSION}, came {version}")
    if code not in MESSAGES:
        raise WireError(f"unknown message {code}")
    reader = _Reader(content, _HEADER.size, sizes)
    message = MESSAGES[code]
    values = {name: reader.read(name, field) for name, field in FIELDS[message]}
    if reader.position != len(content):
        raise WireError("bytes left over after the last field")
    return message(**values)


class _Reader:
    def __init__(self, content: bytes, position: int, sizes: Sizes) -> None:
        self.content, self.position, self.sizes = content, position, sizes

    def read(self, name: str, field: Field) -> Any:
        try:
            if isinstance(field, tuple):
                return self._array(name, field)
            if field is bytes:
                return self._take(DIGEST_BYTES)
            if field is float:
                return self._float(name)
            (number,) = _INT.unpack(self._take(_INT.size))
            return field(number)
        except ValueError:
            raise WireError(f"{name}: not one of the values it can have") from None

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.content):
            raise WireError("the message is cut off")
        taken = self.content[self.position : end]
        self.position = end
        return taken

    def _float(self, name: str) -> float:
        (number,) = _FLOAT.unpack(self._take(_FLOAT.size))
        if number - number != 0:
            raise WireError(f"{name}: not a finite number")
        return float(number)

    def _array(self, name: str, axes: tuple[Axis, ...]) -> Any:
        (ndim,) = self._take(1)
        if ndim != len(axes):
            raise WireError(f"{name}: expected {len(axes)} axes, came {ndim}")
        shape = struct.unpack(f"<{ndim}I", self._take(4 * ndim))
        for axis, size in zip(axes, shape, strict=True):
            if size not in self.sizes[axis]:
                raise WireError(f"{name}: {size} {axis.value} are not what the study has")
        count = math.prod(shape)
        end = self.position + 8 * count
        if end > len(self.content):
            raise WireError("the message is cut off")
        array = np.frombuffer(self.content, "<f8", count, self.position).reshape(shape)
        self.position = end
        if count and not np.isfinite(array).all():
            raise WireError(f"{name}: not all numbers are finite")
        return array
