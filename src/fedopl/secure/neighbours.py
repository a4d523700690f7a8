"""Which clients share masks: all, or a few on a ring in a random order (Bell et al. 2020).

Honest clients hide in the sum over all clients that masks connect. On a ring, each client has masks
with the next h to either side. Honest clients are split only if h colluders or more sit side by
side at two places. With m colluders among n and a random order, this happens in at most
n²/2·(m/n)^2h of all orders.
"""

import hashlib
import math

# Up to this many clients, each has masks with all others.
MOST_WITH_ALL = 100
# The largest probability that honest clients are split, as a power of two, if a third collude.
LEAST_EXPONENT = 60
COLLUDING = 1 / 3


def log2_apart(n_clients: int, n_colluders: int, n_neighbours: int) -> float:
    """A bound on the probability that honest clients are split, as a logarithm to base 2."""
    if n_neighbours >= n_clients - 1 or not n_colluders:
        return -math.inf
    share = n_colluders / n_clients
    return 2 * math.log2(n_clients) - 1 + 2 * (n_neighbours // 2) * math.log2(share)


def n_neighbours(n_clients: int, n_colluders: int) -> int:
    """The number of others that each client has masks with: an even number, or all of them."""
    if n_clients <= MOST_WITH_ALL:
        return n_clients - 1
    colluding = max(n_colluders, math.ceil(COLLUDING * n_clients))
    found = 2
    while found < n_clients - 1 and log2_apart(n_clients, colluding, found) > -LEAST_EXPONENT:
        found += 2
    return min(found, n_clients - 1)


def neighbours_of(place: int, n_clients: int, n_each: int, seed: bytes) -> list[int]:
    """The places of the clients that share masks with the client at `place`; it is mutual."""
    if n_each >= n_clients - 1:
        return [other for other in range(n_clients) if other != place]
    ring = ring_order(n_clients, seed)
    at = ring.index(place)
    steps = [step for step in range(-(n_each // 2), n_each // 2 + 1) if step]
    return sorted({ring[(at + step) % n_clients] for step in steps})


def ring_order(n_clients: int, seed: bytes) -> list[int]:
    """All places in a random order that is derived from the seed."""
    drawn = {
        other: hashlib.sha256(seed + other.to_bytes(8, "little")).digest()
        for other in range(n_clients)
    }
    return sorted(drawn, key=lambda other: drawn[other])
