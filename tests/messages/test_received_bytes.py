"""Sizes are looked at before anything that takes longer for longer messages."""

import hashlib

import pytest

import fedopl
from fedopl.base.errors import WireError
from fedopl.client import door as door_module
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.bundle import FIRST_BYTES, MOST_TOGETHER, bundled, received
from fedopl.messages.derived_sizes import axis_sizes, largest_query
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import queries_of

STUDY = fedopl.Study(actions=("a0", "a1", "a2"), features=tuple(f"x{k}" for k in range(5)))
LARGEST = largest_query(STUDY)
MIB = 1 << 20
HUGE = {
    "zeros": bytes(64 * MIB),
    "a message of ours": b"fopl\x01\x00\x08\x00" + bytes(64 * MIB),
    "a bundle of two": bundled([bytes(32 * MIB), bytes(32 * MIB)]),
    "a bundle of many": bundled([bytes(4 * MIB)] * MOST_TOGETHER),
}


@pytest.mark.parametrize("content", HUGE.values(), ids=HUGE)
def test_a_message_that_is_too_large_is_refused_before_it_is_hashed_or_read(
    draw, monkeypatch, content
):
    sizes = []

    def hashed(part):
        sizes.append(len(part))
        return "a hash"

    for name in ("_sha256", "_hash_once"):
        monkeypatch.setattr(door_module, name, hashed)
    door = Door("north", draw(), STUDY, secret=SEED_ALONE)
    refused = Refusal(study=STUDY.digest, exchange=0, reason=RefusalCode.MALFORMED)
    assert door.handle(content) == codec.encode(refused)
    assert max(sizes) < 2 * FIRST_BYTES


def test_the_ledger_has_the_hash_of_the_length_and_of_the_first_bytes(draw):
    door = Door("north", draw(), STUDY, secret=SEED_ALONE)
    content = b"fopl" * MIB
    door.handle(content)
    (entry,) = door.ledger.entries()
    text = f"{len(content)} bytes, of which the first are ".encode() + content[:FIRST_BYTES]
    assert entry.query_sha256 == hashlib.sha256(text).hexdigest()


def test_what_stands_for_a_large_message_is_never_a_message():
    for content in HUGE.values():
        for part in received(content, LARGEST):
            with pytest.raises(WireError):
                codec.decode(part, axis_sizes(STUDY))


def test_a_query_of_any_size_that_the_study_has_passes_as_it_is():
    sizes = [codec.most_bytes(query, axis_sizes(STUDY)) for query in queries_of(STUDY)]
    assert max(sizes) == LARGEST
    together = [bytes([n]) * LARGEST for n in range(1, MOST_TOGETHER + 1)]
    assert received(bundled(together), LARGEST) == together
    assert received(together[0], LARGEST) == together[:1]
