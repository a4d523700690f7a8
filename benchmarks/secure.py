"""The cost of masked sums: CPU and bytes of a client, and CPU at the server.

"Keys" is what a client does once in a run: it agrees on a key with each neighbour and checks every
signature in the roster. "Mask" is what it does for each answer, "server" what the server does with
all answers to a query. Bytes are those of the roster, once, and of an answer, which is as long as
one without masks. Up to 100 clients, each has masks with all others. With more clients, each has
masks with as many others as needed: honest clients are then split once in 2⁶⁰ rosters if a third of
all collude.

If clients may be missing ("dropouts"), a client shares the secrets behind the masks of six sums
once, has fresh seeds for each answer, and opens the shares that remove masks from a sum. Here as
many clients are missing as allowed. "Shares" is the time to make and seal shares and seeds, with
their bytes. "Told" is what a client does and sends to remove masks. "Unmask" is what the server
does for a sum, for all clients together.
"""

import time

import numpy as np
from harness import Column, Options, Row, Table, options, spread, write

from fedopl.secure.keys import Identity, SessionKey, is_signed
from fedopl.secure.masks import (
    added_up,
    doubly_masked,
    masked,
    sealed,
    secret_of,
    secret_shares,
    sum_secrets,
    sum_seed,
    unsealed,
    without_own_masks,
    without_pair_masks,
)
from fedopl.secure.neighbours import holders_by_place, holding_of, n_neighbours, neighbours_of

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


DROPOUTS, QUICK_DROPOUTS = ((3, 1), (100, 10), (1000, 50)), ((3, 1), (10, 2))
N_SUMS = 6  # of a linear policy by default
SEALED_BYTES, SHARE_BYTES = 48, 32
OF_DROPOUTS = (
    Column("clients", "{clients:,}"),
    Column("dropouts", "{lacking}"),
    Column("holders", "{holders}"),
    Column("answer", "{answer}", text=True),
    Column("shares, ms", "{shares:~3}"),
    Column("mask, ms", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("told, ms", "{told:~3}"),
    Column("unmask, ms", "{server:~3}"),
    Column("shares, bytes", "{shared:,}"),
    Column("told, bytes", "{answered:,}"),
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


class Masking:
    """Clients with fresh secrets for one sum, of whom some are lacking."""

    def __init__(self, n_clients: int, n_lacking: int) -> None:
        self.holding = holding_of(n_clients, 1 if n_clients > 3 else 0, n_lacking)
        self.holders = holders_by_place(n_clients, self.holding.n_neighbours, b"roster")
        self.own = [sum_secrets(place.to_bytes(32, "little"), b"sum") for place in range(n_clients)]
        self.places = range(1, 1 + self.holding.n_holders)
        self.lacking = set(range(1, 1 + n_lacking))

    def shared(self) -> float:
        """Make and seal the first client's shares of all sums; what that costs."""
        start, n_sums = time.process_time(), N_SUMS
        for number in range(n_sums):
            about = b"%d" % number
            for shares in secret_shares(self.own[0], about, self.places, self.holding.threshold):
                for share in shares[1:]:
                    sealed(b"k" * 32, about, share.to_bytes(SHARE_BYTES, "little"))
            for seed in self.seeds(0, number).values():
                sealed(self.own[0].seed_key, about, seed)
        return milliseconds(start)

    def seeds(self, place: int, number: int = 0) -> dict[int, bytes]:
        """Those of one client with everybody it has masks with; keys with them are made once."""
        others = (other for other in self.holders[place] if other != place)
        return {other: sum_seed(other.to_bytes(32, "little"), number) for other in others}

    def told(self) -> float:
        """Open what was sealed for the first client, and find its own share."""
        under_seal = sealed(b"k" * 32, b"share", bytes(SHARE_BYTES))
        start = time.process_time()
        for _ in self.holders[0][1:]:
            unsealed(b"k" * 32, b"share", under_seal)
        secret_shares(self.own[0], b"", self.places[:1], self.holding.threshold)
        return milliseconds(start)

    def unmasked(self, size: int) -> float:
        """Rebuild everybody's secret, and take masks off a sum of so many numbers."""
        n_clients, threshold = len(self.own), self.holding.threshold
        held = []  # which shares are there depends on who is lacking among the holders
        for place in range(n_clients):
            masks, pairs = secret_shares(self.own[place], b"", self.places, threshold)
            shares = pairs if place in self.lacking else masks
            there = [at for at, one in enumerate(self.holders[place]) if one not in self.lacking]
            held.append({at + 1: shares[at] for at in there[:threshold]})
        label = b"seed"
        told = {
            place: {
                at: sealed(self.own[place].seed_key, label, seed)
                for at, seed in self.seeds(place).items()
            }
            for place in self.lacking
        }
        total = np.zeros(size, np.uint64)
        start = time.process_time()
        secrets = [secret_of(shares) or b"" for shares in held]
        stayed = {at: own for at, own in enumerate(secrets) if at not in self.lacking}
        total = without_own_masks(total, stayed, b"question")
        for place in self.lacking:
            seeds = {
                at: unsealed(secrets[place], label, own) or b""
                for at, own in told[place].items()
                if at in stayed
            }
            total = without_pair_masks(total, place, seeds, b"question")
        return milliseconds(start)


def row_of_dropouts(n_clients: int, n_lacking: int, answer: str, turns: int) -> Row:
    """The same where some are lacking."""
    masking, size, spent = Masking(n_clients, n_lacking), N_BYTES[answer] // 8, []
    numbers = np.arange(size, dtype=np.int64)
    for turn in range(turns + 1):
        start = time.process_time()
        seeds = masking.seeds(0, turn)
        doubly_masked(numbers, 0, masking.own[0].own_mask, seeds, b"question %d" % turn)
        spent.append(milliseconds(start))
    return {
        "clients": n_clients,
        "lacking": n_lacking,
        "holders": masking.holding.n_holders,
        "answer": answer,
        "shares": masking.shared(),
        **spread(spent[1:]),
        "told": masking.told(),
        "server": masking.unmasked(size),
        "shared": 3 * N_SUMS * SEALED_BYTES * masking.holding.n_holders,
        "answered": SHARE_BYTES * masking.holding.n_holders,
    }


def main(given: Options) -> None:
    """Measure and write."""
    turns = given.turns(TURNS)
    sizes = ("2.5 KB", "23 KB") if given.quick else tuple(N_BYTES)
    rows = [row(n, answer, turns) for n in given.sizes(CLIENTS, QUICK) for answer in sizes]
    most = max(given.sizes(CLIENTS, QUICK))
    lacking = [
        row_of_dropouts(n_clients, n_lacking, "23 KB", turns)
        for n_clients, n_lacking in (QUICK_DROPOUTS if given.quick else DROPOUTS)
        if n_clients <= most
    ]
    write(__file__, given, Table(COLUMNS, rows), Table(OF_DROPOUTS, lacking))


if __name__ == "__main__":
    main(options(__doc__))
