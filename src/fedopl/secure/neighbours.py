"""Which clients share masks: all, or a few on a ring in a random order (Bell et al. 2020).

Honest clients hide in the sum over all clients that masks connect. On a ring, each client has masks
with the next h to either side. Honest clients are split only if h colluders or more sit side by
side at two places. With m colluders among n and a random order, this happens in at most
n²/2·(m/n)^2h of all orders.

A client and its neighbours also hold shares of its secrets. With n holders, of whom t can rebuild a
secret:

- The two secrets of one client are never both rebuilt. Honest holders give a share of one of them,
  colluders of both. So with c colluders among n holders it takes 2·(t − c) honest ones, and there
  are n − c of them: 2·t > n + c.
- A sum is not lost while at most n − t of any client's holders are missing.
- Honest clients stay connected, even if the server claims that clients of its choice are missing.
  Clients cooperate only if at most n − t of any n neighbouring clients are missing. So
  h − (n − t) colluders would have to sit among h neighbouring places, at two places.
"""

import hashlib
import math
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

# Up to this many clients, each has masks with all others.
MOST_WITH_ALL = 100
# The largest probability that honest clients are split, as a power of two, if a third collude.
LEAST_EXPONENT = 60
COLLUDING = 1 / 3
# The largest probability of losing a sum with as many missing as promised, as a power of two.
LOST_EXPONENT = 40


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


# --- holders of shares ----------------------------------------------------------------------------


class Holding(NamedTuple):
    """The number of others with masks and shares of a client, and how many rebuild a secret."""

    n_neighbours: int
    threshold: int

    @property
    def n_holders(self) -> int:
        """The holders of one secret: the neighbours, and the client itself."""
        return self.n_neighbours + 1


def is_sound(n_clients: int, n_colluders: int, n_lacking: int) -> bool:
    """Whether both conditions can hold: t = C − u if all hold shares, and 2·t > C + c."""
    return 2 * (n_clients - n_lacking) > n_clients + n_colluders


@lru_cache(64)
def holding_of(n_clients: int, n_colluders: int, n_lacking: int) -> Holding:
    """The fewest neighbours that lose a sum once in 2⁴⁰, and open an answer once in 2⁶⁰ rosters.

    On a ring this holds if a third of all clients collude; if all hold shares, for `n_colluders`.
    """
    colluding = max(n_colluders, math.ceil(COLLUDING * n_clients))

    def on_ring(half: int) -> Holding | None:
        spared = _most_lacking(n_clients, n_lacking, 2 * half + 1)
        if log2_open(n_clients, colluding, 2 * half, spared) > -LEAST_EXPONENT:
            return None
        return Holding(2 * half, 2 * half + 1 - spared)

    halves = range(1, (n_clients - 1) // 2) if n_clients > MOST_WITH_ALL else range(0)
    least = bisect_left(halves, True, key=lambda half: on_ring(half) is not None)
    found = on_ring(halves[least]) if least < len(halves) else None
    return found or Holding(n_clients - 1, n_clients - n_lacking)


def log2_lost(n_clients: int, n_lacking: int, n_holders: int, spared: int) -> float:
    """A bound on the probability that some client misses more than `spared` of its holders."""
    return math.log2(n_clients) + _log2_more(n_clients, n_lacking, n_holders, spared)


def _most_lacking(n_clients: int, n_lacking: int, n_holders: int) -> int:
    return bisect_left(
        range(n_holders),
        True,
        key=lambda spared: log2_lost(n_clients, n_lacking, n_holders, spared) <= -LOST_EXPONENT,
    )


def log2_open(n_clients: int, n_colluders: int, n_each: int, spared: int) -> float:
    """A bound on the probability that an answer is opened, if the server picks who is missing.

    Either both secrets are rebuilt, or honest clients are split into groups.
    """
    n_holders, half = n_each + 1, n_each // 2
    most = 2 * (n_holders - spared) - n_holders - 1  # colluders among a client's holders
    both = math.log2(n_clients) + _log2_more(n_clients, n_colluders, n_each, most)
    beside = _log2_more(n_clients, n_colluders, half, half - spared - 1)
    return max(both, 2 * math.log2(n_clients) - 1 + 2 * beside) + 1


def _log2_more(n_all: int, n_marked: int, n_drawn: int, more_than: int) -> float:
    """The probability that more than `more_than` of those drawn are marked, as log2."""
    least, most = max(more_than + 1, n_drawn + n_marked - n_all, 0), min(n_drawn, n_marked)
    if least > most:
        return -math.inf
    if more_than < 0:
        return 0.0
    logs = [
        _log_choose(n_marked, one) + _log_choose(n_all - n_marked, n_drawn - one)
        for one in range(least, most + 1)
    ]
    largest = max(logs)
    total = largest + math.log(sum(math.exp(one - largest) for one in logs))
    return min((total - _log_choose(n_all, n_drawn)) / math.log(2), 0.0)


def _log_choose(n_all: int, n_chosen: int) -> float:
    return math.lgamma(n_all + 1) - math.lgamma(n_chosen + 1) - math.lgamma(n_all - n_chosen + 1)


def holders_by_place(n_clients: int, n_each: int, seed: bytes) -> dict[int, tuple[int, ...]]:
    """The holders of each client's shares, in an order that is the same for all of them."""
    if n_each >= n_clients - 1:
        return dict.fromkeys(range(n_clients), tuple(range(n_clients)))
    ring, half = ring_order(n_clients, seed), n_each // 2
    return {
        place: tuple(ring[(at + step) % n_clients] for step in range(-half, half + 1))
        for at, place in enumerate(ring)
    }
