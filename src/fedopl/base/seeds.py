"""Named randomness: one run seed, and one generator per client and purpose."""

import hashlib

import numpy as np

from fedopl.base.whole_numbers import check_64_bits


def generator_for(seed: int, *, client: str = "", purpose: str) -> np.random.Generator:
    """A generator that depends only on the run's seed, the client and the purpose.

    Two purposes never share a stream, so another draw for one purpose cannot change another. No
    client's draws depend on the clients before it.
    """
    check_64_bits(seed, "seed")
    name = f"{seed}\x1f{client}\x1f{purpose}".encode()
    # 32-bit words from last to first, as numpy would split an integer seed, but faster.
    words = np.frombuffer(hashlib.sha256(name).digest()[15::-1], "<u4")
    return np.random.default_rng(words.astype(np.uint32, copy=False))
