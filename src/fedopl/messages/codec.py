"""Messages to bytes and back. No pickle; nothing is allocated before its size has been checked.

    magic 4 · version u16 · code u16 · then the fields in the order of their names' declaration:
    int i64 · float f64 · member of a list i64 · digest 32 bytes · array u8 ndim, u32 sizes, f64 …
    or, of whole numbers such as masked ones, u64 …

An array of short numbers (f32 …) has 128 added to its ndim; it is read as one of f64.

Of symmetric matrices, whose last two axes are the same, only the lower triangle is sent. All
numbers are little-endian. A message ends where its last field ends.
"""

import enum
import math
import struct
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fedopl.base.arrays import Words, from_triangles, frozen, lower_triangles, triangle_size
from fedopl.base.errors import WireError
from fedopl.messages.message import VERSION, Axis, Message, are_symmetric
from fedopl.messages.vocabulary import MESSAGES

MAGIC = b"fopl"
DIGEST_BYTES = 32
LARGEST_MESSAGE = 1 << 30
_HEADER = struct.Struct("<4sHH")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_NUMBER, _WORD, _SHORT = np.dtype("<f8"), np.dtype("<u8"), np.dtype("<f4")
_IS_SHORT = 128  # added to the number of axes
# Larger arrays are copied when read, to memory where arithmetic is faster.
MOST_COPIED = 1 << 13
MOST_SHAPES = 64  # of one array, that are remembered as checked

Sizes = Mapping[Axis, range]
# The content of a field: a plain type, or the axes of an array.
Field = type | tuple[Axis, ...]
Sent = tuple[tuple[int, ...], int, np.dtype[Any]]  # an array's shape, numbers sent, their kind
# From a message and a position in it to the value there and its end.
Reader = Callable[[bytes, int], tuple[Any, int]]


class WordAxes(tuple[Axis, ...]):
    """The axes of an array of whole numbers from 0 to 2⁶⁴ − 1."""

    __slots__ = ()


class WrongVersionError(WireError):
    """The other side uses another version."""


def _content(hint: Any) -> Field:
    first, *_ = getattr(hint, "__metadata__", (None,))
    number: Any = getattr(hint, "__origin__", hint)  # whatever else is said about it
    if isinstance(first, tuple):
        return WordAxes(first) if number == Words else first  # the axes of an array
    kind: type = number
    return kind


def _fields_of(message: type[Message]) -> tuple[tuple[str, Field], ...]:
    hints = typing.get_type_hints(message, include_extras=True)
    return tuple((field.name, _content(hints[field.name])) for field in fields(message))


# Name and content of each field of each message; arrays by their axes.
FIELDS = {message: _fields_of(message) for message in MESSAGES.values()}
# The names of the fields that are arrays.
ARRAYS = {
    message: tuple(name for name, content in named if isinstance(content, tuple))
    for message, named in FIELDS.items()
}
_SHAPES = {
    n_axes: struct.Struct(f"<B{n_axes}I")
    for named in FIELDS.values()
    for n_axes in (len(content) for _, content in named if isinstance(content, tuple))
}


def encode(message: Message) -> bytes:
    """The message as bytes."""
    parts: list[bytes | memoryview] = [_HEADER.pack(MAGIC, VERSION, message.code)]
    for name, content in FIELDS[type(message)]:
        value = getattr(message, name)
        if isinstance(content, tuple):
            is_short = getattr(value, "dtype", None) == _SHORT and _may_be_short(content)
            kind = _SHORT if is_short else _kind_of_numbers(content)
            array = np.asarray(value, kind, order="C")
            if array.ndim != len(content):
                raise WireError(f"{name}: expected {len(content)} axes, came {array.ndim}")
            mark = array.ndim + _IS_SHORT * is_short
            parts.append(_SHAPES[array.ndim].pack(mark, *array.shape))
            if are_symmetric(content):
                _check_square(name, array.shape)
                array = lower_triangles(array)
            parts.append(array.data)  # joined below
        else:
            parts.append(_encoded_scalar(content, value))
    return b"".join(parts)


def _kind_of_numbers(axes: tuple[Axis, ...]) -> np.dtype[Any]:
    return _WORD if isinstance(axes, WordAxes) else _NUMBER


def _may_be_short(axes: tuple[Axis, ...]) -> bool:
    return not (isinstance(axes, WordAxes) or are_symmetric(axes))


def _encoded_scalar(content: type, value: Any) -> bytes:
    if content is bytes:
        if len(value) != DIGEST_BYTES:
            raise WireError(f"expected a digest of {DIGEST_BYTES} bytes, came {len(value)}")
        return bytes(value)
    if content is float:
        return _FLOAT.pack(value)
    return _INT.pack(value.value if isinstance(value, enum.Enum) else value)


def study_asked_about(content: bytes) -> bytes:
    """The digest of the study that a message is about, which comes first in it."""
    return content[_HEADER.size : _HEADER.size + DIGEST_BYTES]


def most_bytes(message: type[Message], sizes: Sizes) -> int:
    """The largest length in bytes of a message of this kind, if axes have these sizes."""
    scalars = {bytes: DIGEST_BYTES, float: _FLOAT.size}
    n_bytes = _HEADER.size
    for _, content in FIELDS[message]:
        if isinstance(content, tuple):
            count = n_sent(content, [max(sizes[axis]) for axis in content])
            n_bytes += _SHAPES[len(content)].size + _NUMBER.itemsize * count
        else:
            n_bytes += scalars.get(content, _INT.size)
    return n_bytes


def decode(content: bytes, sizes: Sizes, largest: int = LARGEST_MESSAGE) -> Message:
    """The message in these bytes; refused unless every array is finite and of an agreed size."""
    return Decoder(sizes).decode(content, largest)


class Decoder:
    """Reads messages of agreed sizes; the reader of each kind is built once."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._readers: dict[type[Message], tuple[tuple[str, Reader], ...]] = {}

    def decode(self, content: bytes, largest: int = LARGEST_MESSAGE) -> Message:
        """The message in these bytes; refused unless arrays are finite and of agreed sizes."""
        message = _kind_of(content, largest)
        values: dict[str, Any] = {}
        position = _HEADER.size
        for name, read in self._readers_of(message):
            values[name], position = read(content, position)
        if position != len(content):
            raise WireError("bytes left over after the last field")
        found = object.__new__(message)  # `message` itself takes several times as long
        vars(found).update(values)  # all its fields
        return found

    def _readers_of(self, message: type[Message]) -> tuple[tuple[str, Reader], ...]:
        if message not in self._readers:
            self._readers[message] = tuple(
                (name, _reader(name, field, self._sizes)) for name, field in FIELDS[message]
            )
        return self._readers[message]


def _kind_of(content: bytes, largest: int) -> type[Message]:
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
    return MESSAGES[code]


def _check_square(name: str, shape: Sequence[int]) -> None:
    *_, height, width = shape
    if height != width:
        raise WireError(f"{name}: {height} × {width} is no symmetric matrix")


def n_sent(axes: tuple[Axis, ...], shape: Sequence[int]) -> int:
    """How many numbers are sent for an array of these axes and this shape."""
    if are_symmetric(axes):
        return math.prod(shape[:-2]) * triangle_size(shape[-1])
    return math.prod(shape)


def _end(content: bytes, position: int, size: int) -> int:
    end = position + size
    if end > len(content):
        raise WireError("the message is cut off")
    return end


def _reader(name: str, field: Field, sizes: Sizes) -> Reader:
    if isinstance(field, tuple):
        return _array_reader(name, field, tuple(sizes[axis] for axis in field))
    if field is bytes:
        return _read_digest
    return _number_reader(name, field)


def _read_digest(content: bytes, position: int) -> tuple[bytes, int]:
    end = _end(content, position, DIGEST_BYTES)
    return content[position:end], end


def _number_reader(name: str, kind: type) -> Reader:
    """A reader of numbers, of whole numbers, or of members of closed lists."""
    form = _FLOAT if kind is float else _INT

    def read(content: bytes, position: int) -> tuple[Any, int]:
        end = _end(content, position, form.size)
        (number,) = form.unpack_from(content, position)
        if not math.isfinite(number):
            raise WireError(f"{name}: not a finite number")
        try:
            return kind(number), end
        except ValueError:
            raise WireError(f"{name}: not one of the values it can have") from None

    return read


def _array_reader(name: str, axes: tuple[Axis, ...], sizes: tuple[range, ...]) -> Reader:
    n_axes, header, numbers = len(axes), _SHAPES[len(axes)], _kind_of_numbers(axes)
    symmetric, may_be_short = are_symmetric(axes), _may_be_short(axes)
    # By the bytes that say a shape: the agreed shape, how many numbers are sent, and of which kind.
    agreed_shapes: dict[bytes, Sent] = {}

    def agreed_shape(content: bytes, position: int) -> Sent:
        said = content[position : position + header.size]
        if said not in agreed_shapes:
            found = checked_shape(content, position)
            if len(agreed_shapes) == MOST_SHAPES:
                return found
            agreed_shapes[said] = found
        return agreed_shapes[said]

    def checked_shape(content: bytes, position: int) -> Sent:
        _end(content, position, 1)
        is_short = may_be_short and content[position] == n_axes + _IS_SHORT
        if content[position] != n_axes and not is_short:
            raise WireError(f"{name}: expected {n_axes} axes, came {content[position]}")
        _end(content, position, header.size)
        _, *shape = header.unpack_from(content, position)
        for axis, size, agreed in zip(axes, shape, sizes, strict=True):
            if size not in agreed:
                raise WireError(f"{name}: {size} {axis.value} are not what the study has")
        if symmetric:
            _check_square(name, shape)
        return tuple(shape), n_sent(axes, shape), _SHORT if is_short else numbers

    def read(content: bytes, position: int) -> tuple[Any, int]:
        shape, count, kind = agreed_shape(content, position)
        start = position + header.size
        end = _end(content, start, kind.itemsize * count)
        if count <= MOST_COPIED:
            content, start = content[start:end], 0
        array = np.frombuffer(content, kind, count, start)
        if kind != _WORD and np.count_nonzero(np.isfinite(array)) < count:
            raise WireError(f"{name}: not all numbers are finite")
        if kind == _SHORT:
            array = frozen(array.astype(_NUMBER))
        if symmetric:
            stack = (*shape[:-2], triangle_size(shape[-1]))
            return frozen(from_triangles(array.reshape(stack), shape[-1])), end
        return array.reshape(shape), end

    return read
