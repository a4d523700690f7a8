"""What it costs to add up under masks: CPU and bytes of a client, and CPU at the server.

"Keys" is what a client does once in a run: it agrees on a key with each neighbour and checks every
signature in the roster. "Mask" is what it does for each answer, "server" what the server does with
all answers to a query. Bytes are those of the roster, once, and of an answer, which is as long
as one without masks. Up to 100 clients each has masks with all others; with more, with as many as
make honest clients fall apart once in 2⁶⁰ rosters if a third of all collude.
"""

import time

import numpy as np
from harness import Column, Options, Row, Table, options, spread, write

from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import added_up, masked
from fedopl.secure.neighbours import n_neighbours, neighbours_of

N_BYTES = {"2.5 KB": 2_500, "23 KB": 23_000, "4 MB": 4_000_000}
CLIENTS, QUICK = (3, 100, 1000), (3, 10)
TURNS = 5
ROSTER_BYTES = 8 * 14  # of a client: rows, held-out rows, a key, a signature
COLUMNS = (
    Column("clients", "{clients:,}"),
    Column("neighbours", "{neighbours}"),
    Column("answer", "{answer}", text=True),
    Column("keys, ms", "{keys:~3}"),
    Column("mask, ms", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("server, ms a client", "{server:~3}"),
    Column("roster, bytes", "{roster:,}"),
)


def milliseconds(start: float) -> float:
    """Since then, of this process."""
    return 1000 * (time.process_time() - start)


def keys_of(n_clients: int) -> tuple[dict[int, bytes], float]:
    """The first client's keys with its neighbours, and what they cost."""
    sessions = [SessionKey(place.to_bytes(32, "little"), b"") for place in range(n_clients)]
    publics = [session.public for session in sessions]
    signers = [Identity(place.to_bytes(32, "little")) for place in range(n_clients)]
    told = [(own.public, own.signed(publics[place])) for place, own in enumerate(signers)]
    start = time.process_time()
    signed = [is_signed(*own, publics[place]) for place, own in enumerate(told)]
    if not all(signed):
        raise RuntimeError("a signature is wrong")
    others = neighbours_of(0, n_clients, n_neighbours(n_clients, 1), b"seed")
    found = {other: sessions[0].shared_with(publics[other], b"roster") for other in others}
    return found, milliseconds(start)


def row(n_clients: int, answer: str, turns: int) -> Row:
    """One size of answers for so many clients."""
    keys, of_keys = keys_of(n_clients)
    size = N_BYTES[answer] // 8
    numbers = np.arange(size, dtype=np.int64)
    spent = []
    for turn in range(turns + 1):
        start = time.process_time()
        part = masked(numbers, 0, keys, b"question %d" % turn)
        spent.append(milliseconds(start))
    # As many as are read in turn from what arrived; all cost the same.
    n_added = min(n_clients, max(3, 100_000_000 // N_BYTES[answer]))
    start = time.process_time()
    added_up(part for _ in range(n_added))
    return {
        "clients": n_clients,
        "neighbours": len(keys),
        "answer": answer,
        "keys": of_keys,
        **spread(spent[1:]),
        "server": milliseconds(start) / n_added,
        "roster": ROSTER_BYTES * n_clients,
    }


def main(given: Options) -> None:
    """Measure and write."""
    turns = given.turns(TURNS)
    sizes = ("2.5 KB", "23 KB") if given.quick else tuple(N_BYTES)
    rows = [row(n, answer, turns) for n in given.sizes(CLIENTS, QUICK) for answer in sizes]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
