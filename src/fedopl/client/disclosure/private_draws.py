"""Random draws that only the client can repeat, because its secret is their key.

The secret decides which rows are held out, which rows a batch takes, and, with `[privacy]`, the
noise on what is released. The study's seed may decide alone only if the caller holds all rows.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.base.files import owner_only, write_atomically
from fedopl.base.seeds import generator_for
from fedopl.secure.keys import Identity

# In place of a secret: then anyone who knows the study can repeat all draws.
SEED_ALONE = ""

SECRET_BYTES = 32
# Of 32 random bytes about 30 differ. Fewer than 16 differ with a probability below 10⁻¹⁸.
LEAST_DIFFERENT = 16


@dataclass(frozen=True)
class PrivateDraws:
    """One client's draws in one study."""

    seed: int
    client: str
    secret: str

    @property
    def key(self) -> bytes:
        """The key of keyed bits: from the secret and the client, not from the seed."""
        return hashlib.sha256(f"{self.secret}\x1f{self.client}".encode()).digest()

    def generator(self, purpose: str) -> np.random.Generator:
        """A generator for one purpose; its draws are always the same."""
        return generator_for(self.seed, client=self.client, purpose=f"{purpose} {self.secret}")

    def split_seed(self) -> int:
        """The seed by which rows are held out and assigned to folds; nobody else knows it."""
        if not self.secret:
            return self.seed
        digest = hashlib.sha256(f"{self.seed}\x1f{self.secret}".encode()).digest()
        return int.from_bytes(digest[:7], "little")


def public_key(client: str, secret: str) -> str:
    """The key by which others know a client with this secret, where answers are masked."""
    return Identity(PrivateDraws(0, client, secret).key).public


def is_strong(secret: str) -> bool:
    """Whether it stands for at least 32 bytes, in hex or base64, that may well be random."""
    try:
        found = bytes.fromhex(secret)
    except ValueError:
        text = secret.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            found = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            return False
    return len(found) >= SECRET_BYTES and len(set(found)) >= LEAST_DIFFERENT


def kept_secret(path: Path) -> str:
    """The secret in this file, which only its owner can read; made if there is none."""
    if not path.exists():
        write_atomically(path, f"{secrets.token_hex(SECRET_BYTES)}\n".encode(), mode=0o600)
    try:
        with open(path, opener=owner_only, encoding="utf-8") as file:
            found = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from None
    if not is_strong(found):
        raise StorageError(
            f"{path}: {'was changed' if found else 'is empty'}. It held the secret that determines "
            "held-out rows and noise, at least 32 random bytes in hexadecimal digits. "
            "Restore it, or delete it to have a new one made; with a new one no run can be "
            "resumed"
        )
    return found
