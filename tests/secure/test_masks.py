import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopl.secure.keys import Identity, SessionKey, derived, is_signed
from fedopl.secure.masks import added_up, as_bytes, as_words, masked, stream
from fedopl.secure.neighbours import log2_apart, n_neighbours, neighbours_of
from fedopl.study.private.added_up import WEIGHT_STEPS, whole_weights


def sessions(n_clients):
    return [SessionKey(bytes([place]) * 32, b"study") for place in range(n_clients)]


def keys_of(own, place, others):
    return {
        other: own.shared_with(key.public, b"") for other, key in others.items() if other != place
    }


@pytest.mark.parametrize(("n_clients", "n_each"), [(3, 2), (9, 8), (12, 4)])
def test_masks_cancel_in_the_sum_of_all_and_in_no_other(n_clients, n_each):
    rng = np.random.default_rng(n_clients)
    numbers = rng.integers(-(2**50), 2**50, size=(n_clients, 7))
    own, parts = sessions(n_clients), []
    for place in range(n_clients):
        others = neighbours_of(place, n_clients, n_each, b"seed")
        assert len(others) == n_each
        keys = keys_of(own[place], place, {other: own[other] for other in others})
        parts.append(masked(numbers[place], place, keys, b"question"))
    np.testing.assert_array_equal(added_up(parts), numbers.sum(axis=0))
    for left_out in range(n_clients):
        rest = [part for place, part in enumerate(parts) if place != left_out]
        expected = np.delete(numbers, left_out, axis=0).sum(axis=0)
        assert not (added_up(rest) == expected).any()


def test_two_agree_on_a_key_that_a_third_does_not_have_and_streams_differ_by_purpose():
    one, two, three = sessions(3)
    shared = one.shared_with(two.public, b"x")
    assert shared == two.shared_with(one.public, b"x")
    assert shared not in (two.shared_with(one.public, b"y"), three.shared_with(one.public, b"x"))
    assert (stream(shared, b"a", 50) != stream(shared, b"b", 50)).all()
    # The first words are the same however many are taken.
    np.testing.assert_array_equal(stream(shared, b"a", 50)[:9], stream(shared, b"a", 9))
    # RFC 5869, appendix A.3: no salt, no label.
    extracted = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derived(b"\x0b" * 22, b"").hex() == extracted


def test_a_signature_is_of_one_content_and_one_signer():
    one, two = (Identity(bytes([place]) * 32) for place in (1, 2))
    signature = one.signed(b"content")
    assert is_signed(one.public, signature, b"content")
    assert not is_signed(one.public, signature, b"other content")
    assert not is_signed(two.public, signature, b"content")
    assert not is_signed(one.public, b"no signature", b"content")
    assert as_bytes(as_words(signature)) == signature


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=6))
@settings(max_examples=50, deadline=None)
def test_whole_weights_are_in_proportion_and_squares_are_no_smaller(weights):
    named = {f"c{place}": weight for place, weight in enumerate(weights)}
    found = whole_weights(named)
    largest = max(weights)
    for name, weight in named.items():
        assert (
            abs(found.by_client[name] / found.scale - weight / largest) <= 0.5 / WEIGHT_STEPS + 1e-9
        )
        square = found.squared().by_client[name] / found.scale
        assert square >= (found.by_client[name] / found.scale) ** 2


def test_neighbours_find_each_other_and_are_as_many_as_colluders_demand():
    n_clients = 300
    n_each = n_neighbours(n_clients, 1)
    assert log2_apart(n_clients, 100, n_each) <= -60 < log2_apart(n_clients, 100, n_each - 2)
    assert n_neighbours(n_clients, 200) > n_each
    assert n_neighbours(100, 1) == 99
    seed = hashlib.sha256(b"roster").digest()
    found = [neighbours_of(place, n_clients, n_each, seed) for place in range(n_clients)]
    for place, others in enumerate(found):
        assert len(others) == n_each
        assert all(place in found[other] for other in others)


def test_the_chance_to_fall_apart_is_no_larger_than_the_bound():
    n_clients, n_colluders, n_each = 12, 5, 4
    apart, rng, n_draws = 0, np.random.default_rng(0), 4000
    for _ in range(n_draws):
        seed = rng.bytes(8)
        honest = set(range(n_colluders, n_clients))
        reached, waiting = set(), [min(honest)]
        while waiting:
            place = waiting.pop()
            if place in honest and place not in reached:
                reached.add(place)
                waiting += neighbours_of(place, n_clients, n_each, seed)
        apart += reached != honest
    assert 0 < apart / n_draws <= 2 ** log2_apart(n_clients, n_colluders, n_each)
