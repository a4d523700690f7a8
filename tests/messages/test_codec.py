import enum
import struct
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopl.base.arrays import from_triangles, lower_triangles
from fedopl.base.errors import WireError
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.enrolment import Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.message import VERSION, Axis, Message, are_symmetric
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.vocabulary import MESSAGES
from fedopl.study.policy_plans import Finite, Neural
from fedopl.study.study import Study

STUDY = Study(actions=("a", "b", "c"), features=("x0", "x1"), policy=Finite(candidates=("rule",)))
NEURAL = Study(actions=STUDY.actions, features=STUDY.features, policy=Neural(hidden=(2,)))
OF_NETWORKS = (Axis.NEURAL_POLICIES, Axis.NEURAL_NUMBERS, Axis.NETWORK_NUMBERS)
SIZES = {**axis_sizes(STUDY), **{axis: axis_sizes(NEURAL)[axis] for axis in OF_NETWORKS}}
SIZES |= {Axis.FOUND_THRESHOLDS: range(4), Axis.FOUND_TERMS: range(7)}
SIZES[Axis.FOUND_PAIRS] = range(4)  # of a study that screens for three pairs at most
SIZES |= {Axis.PARTIES: range(3, 4), Axis.MASKED: range(9)}  # of one that adds up under masks
PERSONAL = Study(actions=STUDY.actions, features=STUDY.features, personal="ridge")
OF_OTHERS = (
    Axis.OTHERS_VERSIONS,
    Axis.OTHERS,
    Axis.OTHERS_NUMBERS,
    Axis.OTHERS_TERMS,
    Axis.STRENGTHS,
)
SIZES |= {axis: axis_sizes(PERSONAL)[axis] for axis in OF_OTHERS}
OF_VERSIONS = Study(actions=STUDY.actions, features=STUDY.features, evaluation="cross-fitted")
SIZES |= {axis: axis_sizes(OF_VERSIONS)[axis] for axis in (Axis.ASKED_BY_FOLD, Axis.OWN_FOLDS)}
BUDGET = Study(actions=STUDY.actions, features=STUDY.features, budget={"shares": {"a": 0.5}})
SIZES |= {axis: axis_sizes(BUDGET)[axis] for axis in (Axis.PRICES, Axis.PARTS)}
SIZES[Axis.OTHERS_NODES] = range(4)  # of one with personal trees
SIZES |= {Axis.LEAVES: range(1, 3), Axis.LEAVES_NODES: range(4)}  # of one with a tree
SIZES[Axis.NUMBERS] = range(2, 3)  # of one that measures ranges
SIZES |= {Axis.UNITS: range(4), Axis.SLOPES: range(5)}  # where weights are found together
ANYTHING = {axis: range(2**32) for axis in Axis}
HEADER = 8  # magic, version and code
AWKWARD = np.array([0.0, -0.0, 5e-324, -1.7976931348623157e308, 0.1, 1 / 3])


def message_of(kind, seed=0, pick=max):
    """A message with every field filled, arrays as long (or short) as the study allows."""
    rng = np.random.default_rng([kind.code, seed])
    values = {}
    for name, content in codec.FIELDS[kind]:
        if isinstance(content, tuple):
            shape = tuple(pick(SIZES[axis]) for axis in content)
            values[name] = rng.choice(AWKWARD, shape) + rng.choice([0.0, -0.0], shape)
            if are_symmetric(content):
                values[name] = from_triangles(lower_triangles(values[name]), shape[-1])
            if isinstance(content, codec.WordAxes):
                values[name] = rng.integers(2**64, size=shape, dtype=np.uint64)
        elif content is bytes:
            values[name] = rng.bytes(32)
        elif content is float:
            values[name] = float(rng.choice(AWKWARD))
        elif issubclass(content, enum.Enum):
            values[name] = list(content)[-1]
        else:
            values[name] = int(rng.integers(-(2**63), 2**63 - 1))
    return kind(**values)


def arrays_of(kind):
    return [name for name, content in codec.FIELDS[kind] if isinstance(content, tuple)]


def bits(value):
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


KINDS = {kind.__name__: kind for kind in MESSAGES.values()}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
WITH_ARRAYS = {name: kind for name, kind in KINDS.items() if arrays_of(kind)}
# Each tries all of its arrays: a case for every array would take longer to start than to run.
every_kind_with_arrays = pytest.mark.parametrize("kind", WITH_ARRAYS.values(), ids=WITH_ARRAYS)


def replaced(message, **changes):
    old = {field.name: getattr(message, field.name) for field in fields(message)}
    return type(message)(**{**old, **changes})


def where_arrays_start(kind):
    """Where the first array of a message begins; all before it have a fixed size."""
    start = HEADER
    for _, content in codec.FIELDS[kind]:
        if isinstance(content, tuple):
            return start
        start += 32 if content is bytes else 8
    raise AssertionError("no array")


@every_kind
@pytest.mark.parametrize("pick", [max, min], ids=["longest", "shortest"])
def test_every_message_comes_back_bit_for_bit(kind, pick):
    message = message_of(kind, pick=pick)
    encoded = codec.encode(message)
    back = codec.decode(encoded, SIZES)
    assert type(back) is kind
    for field in fields(kind):
        assert bits(getattr(back, field.name)) == bits(getattr(message, field.name))
    assert codec.encode(back) == encoded


@every_kind
def test_what_was_decoded_cannot_be_written_to(kind):
    back = codec.decode(codec.encode(message_of(kind)), SIZES)
    for name in arrays_of(kind):
        assert not getattr(back, name).flags.writeable


def derived_from(base):
    """Every class below this one, each once."""
    below = {kind for own in base.__subclasses__() for kind in (own, *derived_from(own))}
    return sorted(below, key=lambda kind: kind.__name__)


def test_codes_are_the_messages_own_and_each_is_used_once():
    assert all(code == kind.code for code, kind in MESSAGES.items())
    kinds = [
        kind
        for kind in derived_from(Message)
        if hasattr(kind, "code") and kind.__module__.startswith("fedopl.messages.")
    ]
    assert {kind.code for kind in kinds} == set(MESSAGES)
    assert len(kinds) == len(MESSAGES)


def test_of_symmetric_matrices_only_one_triangle_is_sent():
    sums = message_of(OutcomeSums)
    *stack, width, _ = sums.sums.shape
    fixed = len(codec.encode(replaced(sums, sums=np.zeros((*stack, 0, 0)))))
    sent = len(codec.encode(sums)) - fixed
    assert sent == 8 * np.prod(stack) * width * (width + 1) // 2
    assert len(codec.encode(sums)) == codec.most_bytes(OutcomeSums, SIZES)


def test_short_numbers_take_half_the_bytes_and_are_read_as_long_ones():
    cells = np.random.default_rng(0).normal(size=(1, 6, 4))
    own = {"study": bytes(32), "exchange": 0}
    sizes = {Axis.OPEN_NODES: range(2), Axis.CELLS: range(9), Axis.CELL_NUMBERS: range(9)}
    long = codec.encode(CellSums(cells=cells, **own))
    short = codec.encode(CellSums(cells=cells.astype(np.float32), **own))
    assert len(long) - len(short) == 4 * cells.size
    back = codec.decode(short, sizes)
    assert isinstance(back, CellSums)
    found = back.cells
    assert found.dtype == np.float64
    assert np.array_equal(found, cells.astype(np.float32))
    assert not found.flags.writeable


def test_what_is_above_the_diagonal_cannot_differ_from_what_is_below():
    sums = message_of(OutcomeSums)
    above = np.where(np.triu(np.ones(sums.sums.shape[-2:]), 1) > 0, 7.0, sums.sums)
    back = codec.decode(codec.encode(replaced(sums, sums=above)), SIZES)
    assert isinstance(back, OutcomeSums)
    assert bits(back.sums) == bits(sums.sums)


def test_a_matrix_that_is_not_square_is_not_sent():
    with pytest.raises(WireError, match="covariances: 3 × 2 is no symmetric matrix"):
        codec.encode(replaced(message_of(ValuesByPart), covariances=np.zeros((1, 1, 3, 2))))


def test_a_matrix_that_is_not_square_is_refused():
    values = message_of(ValuesByPart, pick=min)
    encoded = codec.encode(values)
    n_leaves, n_parts, n_columns = values.means.shape
    shape = struct.pack("<B4I", 4, n_leaves, n_parts, n_columns, n_columns)
    wider = struct.pack("<B4I", 4, n_leaves, n_parts, n_columns, n_columns + 1)
    longer = encoded.replace(shape, wider)
    with pytest.raises(WireError, match="no symmetric matrix"):
        codec.decode(longer, SIZES)


@every_kind
def test_a_message_cut_off_anywhere_is_refused(kind):
    encoded = codec.encode(message_of(kind, pick=min))
    for length in range(len(encoded)):
        with pytest.raises(WireError):
            codec.decode(encoded[:length], SIZES)


@pytest.mark.parametrize("n_remembered", [0, 1, 64])
def test_a_shape_that_was_read_before_makes_no_other_message_good(n_remembered, monkeypatch):
    monkeypatch.setattr(codec, "MOST_SHAPES", n_remembered)
    decoder, content = codec.Decoder(SIZES), codec.encode(message_of(OutcomeSums))
    assert [codec.encode(decoder.decode(content)) for _ in range(2)] == [content] * 2
    for length in range(len(content)):
        with pytest.raises(WireError):
            decoder.decode(content[:length])
    start = HEADER + 32 + 8  # where the first array says its shape
    for place in range(start, start + 1 + 4 * 4):
        other = bytearray(content)
        other[place] ^= 1
        with pytest.raises(WireError):
            decoder.decode(bytes(other))
    bad = bytearray(content)
    bad[-8:] = struct.pack("<d", np.nan)
    with pytest.raises(WireError, match="not all numbers are finite"):
        decoder.decode(bytes(bad))


@every_kind
def test_bytes_after_the_last_field_are_refused(kind):
    for more in (b"\0", b"fopl", bytes(8)):
        with pytest.raises(WireError, match="left over"):
            codec.decode(codec.encode(message_of(kind)) + more, SIZES)


@pytest.mark.parametrize("position", range(4))
def test_other_magic_is_refused(position):
    encoded = bytearray(codec.encode(message_of(Refusal)))
    encoded[position] ^= 0x20
    with pytest.raises(WireError, match="not a message of ours"):
        codec.decode(bytes(encoded), SIZES)


@pytest.mark.parametrize("version", [0, 1, 255, 65535])
def test_another_version_is_refused_by_name(version):
    encoded = codec.encode(message_of(Refusal))
    with pytest.raises(codec.WrongVersionError, match=f"version {VERSION}, came {version}"):
        codec.decode(encoded[:4] + struct.pack("<H", version) + encoded[6:], SIZES)


@pytest.mark.parametrize("code", sorted({0, 4, 63, 67, 73, 255, 65535} - set(MESSAGES)))
def test_an_unknown_message_is_refused(code):
    encoded = codec.encode(message_of(Refusal))
    with pytest.raises(WireError, match=f"unknown message {code}"):
        codec.decode(encoded[:6] + struct.pack("<H", code) + encoded[8:], SIZES)


@every_kind_with_arrays
def test_an_array_that_declares_other_axes_is_refused(kind):
    encoded = bytearray(codec.encode(message_of(kind)))
    start = where_arrays_start(kind)
    expected = encoded[start]
    for ndim in {0, 1, 2, 3, 4, 5, 255} - {expected}:
        encoded[start] = ndim
        with pytest.raises(WireError, match=f"expected {expected} axes, came {ndim}"):
            codec.decode(bytes(encoded), SIZES)


@every_kind_with_arrays
def test_an_array_of_other_axes_is_not_sent(kind):
    message = message_of(kind)
    for name in arrays_of(kind):
        for ndim in {1, 2, 3, 4, 5} - {getattr(message, name).ndim}:
            with pytest.raises(WireError, match=f"{name}: expected"):
                codec.encode(replaced(message, **{name: np.zeros((1,) * ndim)}))


def test_a_bare_number_is_not_sent_as_an_array():
    with pytest.raises(WireError, match="rows_per_action: expected 1 axes, came 0"):
        codec.encode(replaced(message_of(Enrolment), rows_per_action=np.float64(3)))


@pytest.mark.parametrize("by", [-1, 1, 1000], ids=["short", "long", "far too long"])
@every_kind_with_arrays
def test_an_axis_of_another_size_is_refused(kind, by):
    message = message_of(kind)
    for name in arrays_of(kind):
        shape = getattr(message, name).shape
        axes = dict(codec.FIELDS[kind])[name]
        for position, axis in enumerate(axes):
            size = (max(SIZES[axis]) if by > 0 else min(SIZES[axis])) + by
            if size < 0:
                continue
            changed_shape = [*shape]
            changed_shape[position] = size
            if are_symmetric(axes) and position >= len(axes) - 2:
                changed_shape[-2:] = size, size
            changed = np.zeros(changed_shape)
            encoded = codec.encode(replaced(message, **{name: changed}))
            with pytest.raises(WireError, match=f"{name}: {size} {axis.value}"):
                codec.decode(encoded, SIZES)


@pytest.mark.parametrize("sizes", [SIZES, ANYTHING], ids=["of the study", "any size"])
@every_kind_with_arrays
def test_a_huge_shape_is_refused_before_anything_is_allocated(kind, sizes):
    encoded = bytearray(codec.encode(message_of(kind)))
    start = where_arrays_start(kind) + 1
    n_axes = len(next(content for _, content in codec.FIELDS[kind] if isinstance(content, tuple)))
    encoded[start : start + 4 * n_axes] = b"\xff" * (4 * n_axes)
    content = bytes(encoded)
    tracemalloc.start()
    with pytest.raises(WireError):
        codec.decode(content, sizes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_shape_whose_product_overflows_to_something_small_is_refused():
    content = codec.encode(message_of(ValuesByPart))
    start = where_arrays_start(ValuesByPart)
    # A triangle of 2³¹ rows has 2⁶¹ + 2³⁰ numbers of 8 bytes: 2³³ bytes, to arithmetic of 64 bits.
    of_none = 2 * struct.pack("<BI", 1, 0) + 2 * struct.pack("<BII", 2, 0, 0)
    of_none += struct.pack("<BIII", 3, 0, 0, 0)
    forged = content[:start] + of_none + struct.pack("<BIIII", 4, 1, 1, 2**31, 2**31)
    with pytest.raises(WireError, match="cut off"):
        codec.decode(forged, ANYTHING)


def arrays_of_floats(kind):
    words = [name for name, content in codec.FIELDS[kind] if isinstance(content, codec.WordAxes)]
    return [name for name in arrays_of(kind) if name not in words]


@every_kind_with_arrays
def test_a_number_that_is_not_finite_is_refused(kind):
    message = message_of(kind)
    for name in arrays_of_floats(kind):
        array = np.array(getattr(message, name))
        for bad in (np.nan, np.inf, -np.inf):
            array.reshape(-1)[-1] = bad
            with pytest.raises(WireError, match=f"{name}: not all numbers are finite"):
                codec.decode(codec.encode(replaced(message, **{name: array})), SIZES)


def test_nearly_every_array_is_of_floats():
    of_words = [kind for kind in KINDS.values() if arrays_of_floats(kind) != arrays_of(kind)]
    assert len(of_words) < len(WITH_ARRAYS) / 8


FLOATS = [
    (kind, name)
    for kind in KINDS.values()
    for name, content in codec.FIELDS[kind]
    if content is float
]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("kind", "name"), FLOATS, ids=str)
def test_a_lone_number_that_is_not_finite_is_refused(kind, name, bad):
    with pytest.raises(WireError, match=f"{name}: not a finite number"):
        codec.decode(codec.encode(replaced(message_of(kind), **{name: bad})), SIZES)


ENUMS = [
    (kind, name)
    for kind in KINDS.values()
    for name, content in codec.FIELDS[kind]
    if isinstance(content, type) and issubclass(content, enum.Enum)
]


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 99, 2**63 - 1])
@pytest.mark.parametrize(("kind", "name"), ENUMS, ids=str)
def test_a_value_outside_its_list_is_refused(kind, name, value):
    with pytest.raises(WireError, match=f"{name}: not one of the values"):
        codec.decode(codec.encode(replaced(message_of(kind), **{name: value})), SIZES)


def test_a_message_longer_than_the_cap_is_refused_before_it_is_looked_at():
    encoded = codec.encode(message_of(Enrolment))
    assert codec.decode(encoded, SIZES, largest=len(encoded))
    with pytest.raises(WireError, match="at most"):
        codec.decode(encoded, SIZES, largest=len(encoded) - 1)
    with pytest.raises(WireError, match="at most 1,073,741,824 bytes"):
        codec.decode(bytes(codec.LARGEST_MESSAGE + 1), SIZES)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_digest_has_its_length(size):
    with pytest.raises(WireError, match="digest of 32 bytes"):
        codec.encode(replaced(message_of(Refusal), study=bytes(size)))


def message_or_wire_error(content):
    try:
        message = codec.decode(content, SIZES)
    except WireError:
        return
    assert type(message) in codec.FIELDS
    assert codec.encode(message) == content


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_random_bytes_are_never_anything_but_a_message_or_refused(content):
    message_or_wire_error(content)


@settings(max_examples=300)
@given(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=300))
def test_random_bytes_after_a_good_header_are_no_worse(code, content):
    message_or_wire_error(struct.pack("<4sHH", codec.MAGIC, 1, code) + content)


@st.composite
def mutated(draw):
    kind = draw(st.sampled_from(list(KINDS.values())))
    content = bytearray(codec.encode(message_of(kind, pick=draw(st.sampled_from([min, max])))))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 1, 1, 1, 4, 8]))
        content[start : start + length] = draw(st.binary(max_size=9))
    return bytes(content)


@settings(max_examples=300)
@given(mutated())
def test_a_message_that_was_tampered_with_is_a_message_or_refused(content):
    message_or_wire_error(content)
