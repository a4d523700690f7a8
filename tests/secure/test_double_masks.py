"""Shamir's shares against known numbers, and masks of which those of who is lacking come off."""

import itertools

import numpy as np
import pytest

from fedopl.secure.keys import SessionKey
from fedopl.secure.masks import (
    PRIME,
    Circle,
    added_up,
    coefficients,
    doubly_masked,
    rebuilt,
    sealed,
    secret_of,
    secret_shares,
    shares_at,
    sum_secrets,
    sum_seed,
    unsealed,
    without_own_masks,
    without_pair_masks,
)
from fedopl.secure.neighbours import (
    holders_by_place,
    holding_of,
    is_sound,
    log2_lost,
    log2_open,
)


def test_shares_are_those_of_a_published_example_and_any_three_rebuild_the_secret():
    # en.wikipedia.org/wiki/Shamir's_secret_sharing: 1234 + 166x + 94x² modulo 1613.
    shares = shares_at(range(1, 7), 1234, [166, 94], prime=1613)
    assert shares == [1494, 329, 965, 176, 1188, 775]
    held = dict(enumerate(shares, start=1))
    for three in itertools.combinations(held, 3):
        assert rebuilt({place: held[place] for place in three}, prime=1613) == 1234


def test_two_shares_of_three_go_with_every_secret_alike():
    # Over a small field, count: each pair of shares is had from each secret equally often.
    prime, found = 7, {}
    for secret, one, two in itertools.product(range(prime), repeat=3):
        pair = tuple(shares_at((2, 5), secret, [one, two], prime=prime))
        found.setdefault(pair, []).append(secret)
    assert len(found) == prime**2
    assert {tuple(sorted(secrets)) for secrets in found.values()} == {tuple(range(prime))}


def test_shares_of_both_secrets_are_drawn_apart_and_do_not_tell_of_each_other():
    own = sum_secrets(b"s" * 32, b"sum 0")
    masks, keys = secret_shares(own, b"roster", range(1, 6), 3)
    for shares, secret in ((masks, own.own_mask), (keys, own.seed_key)):
        held = dict(enumerate(shares, start=1))
        assert secret_of({place: held[place] for place in (1, 3, 5)}) == secret
        # Fewer, or some of the other secret, are of another number.
        assert secret_of({place: held[place] for place in (1, 3)}) != secret
    mixed = {1: masks[0], 2: masks[1], 3: keys[2]}
    assert secret_of(mixed) not in own
    assert coefficients(own.draws, b"a", 4) != coefficients(own.draws, b"b", 4)
    assert all(0 <= one < PRIME for one in coefficients(own.draws, b"a", 4))
    others = sum_secrets(b"s" * 32, b"sum 1")
    assert not set(own) & set(others)


def test_seeds_of_two_clients_are_of_one_sum_each():
    seeds = {sum_seed(b"k" * 32, number) for number in range(20)}
    assert len(seeds) == 20
    assert b"k" * 32 not in seeds
    assert sum_seed(b"l" * 32, 0) not in seeds


def test_a_seal_is_of_one_key_and_of_what_it_is_about():
    content = b"x" * 32
    under = sealed(b"k" * 32, b"0 1 2 3", content)
    assert unsealed(b"k" * 32, b"0 1 2 3", under) == content
    assert unsealed(b"k" * 32, b"1 1 2 3", under) is None
    assert unsealed(b"l" * 32, b"0 1 2 3", under) is None
    assert unsealed(b"k" * 32, b"0 1 2 3", bytes([under[0] ^ 1]) + under[1:]) is None


@pytest.mark.parametrize(("n_clients", "n_each"), [(5, 4), (12, 6)])
def test_what_is_left_is_the_sum_of_those_who_answered(n_clients, n_each):
    rng = np.random.default_rng(n_clients)
    numbers = rng.integers(-(2**50), 2**50, size=(n_clients, 9))
    own = [sum_secrets(bytes([place]) * 32, b"sum") for place in range(n_clients)]
    circle = Circle(holders_by_place(n_clients, n_each, b"seed"), n_each - 1)
    sessions = [SessionKey(bytes([place]) * 32, b"study") for place in range(n_clients)]
    keys = [
        {
            other: sum_seed(sessions[place].shared_with(sessions[other].public, b"roster"), 3)
            for other in circle.holders[place]
            if other != place
        }
        for place in range(n_clients)
    ]
    masked = [
        doubly_masked(numbers[place], place, own[place].own_mask, keys[place], b"question")
        for place in range(n_clients)
    ]
    lacking = {1, circle.holders[1][0]} - {0}
    stayed = sorted(set(range(n_clients)) - lacking)
    total = added_up(masked[place] for place in stayed).view(np.uint64)
    assert not (total.view(np.int64) == numbers[stayed].sum(axis=0)).any()
    total = without_own_masks(total, {place: own[place].own_mask for place in stayed}, b"question")
    for gone in sorted(lacking):
        with_them = {place: key for place, key in keys[gone].items() if place in stayed}
        total = without_pair_masks(total, gone, with_them, b"question")
    np.testing.assert_array_equal(total.view(np.int64), numbers[stayed].sum(axis=0))


def test_two_sets_of_shares_can_be_had_only_where_it_is_not_sound():
    """Count: honest holders give a share of one secret, colluders of both."""
    for n_clients, n_colluders, n_lacking in itertools.product(range(3, 12), range(4), range(1, 5)):
        threshold = n_clients - n_lacking
        honest = n_clients - n_colluders
        both = any(min(one, honest - one) + n_colluders >= threshold for one in range(honest + 1))
        assert is_sound(n_clients, n_colluders, n_lacking) == (not both)


def test_on_a_ring_holders_are_as_many_as_drop_outs_and_colluders_demand():
    assert holding_of(100, 1, 10) == (99, 90)
    n_clients, n_lacking = 1000, 50
    found = holding_of(n_clients, 1, n_lacking)
    spared = found.n_holders - found.threshold
    assert found.n_neighbours < 250
    assert log2_lost(n_clients, n_lacking, found.n_holders, spared) <= -40
    assert log2_open(n_clients, 334, found.n_neighbours, spared) <= -60
    # More lacking need more holders, and one fewer at each side would not do.
    assert holding_of(n_clients, 1, 100).n_neighbours > found.n_neighbours
    n_each, fewer = found.n_neighbours - 2, []
    for other in range(n_each):
        lost = log2_lost(n_clients, n_lacking, n_each + 1, other) > -40
        fewer.append(lost or log2_open(n_clients, 334, n_each, other) > -60)
    assert all(fewer)
    holders = holders_by_place(n_clients, found.n_neighbours, b"seed")
    assert all(place in holders[other] for place, own in holders.items() for other in own)


def test_the_chance_to_lose_a_sum_is_no_larger_than_the_bound():
    n_clients, n_lacking, n_each, spared = 30, 6, 8, 3
    rng, lost, n_draws = np.random.default_rng(0), 0, 2000
    for _ in range(n_draws):
        holders = holders_by_place(n_clients, n_each, rng.bytes(8))
        there = set(range(n_lacking, n_clients))
        lost += not Circle(holders, n_each + 1 - spared).enough(there)
    assert 0 < lost / n_draws <= 2 ** log2_lost(n_clients, n_lacking, n_each + 1, spared)
