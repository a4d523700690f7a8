"""Identities and shared keys: Ed25519 signatures, X25519 agreement, HKDF-SHA256.

Every key is derived from a client's secret and a label, so that a restarted client has the same
keys. Public keys disclose nothing about the secret.
"""

import hashlib
import hmac

KEY_BYTES, SIGNATURE_BYTES = 32, 64


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A key for one purpose: HKDF-SHA256 (RFC 5869) without salt, 32 bytes long."""
    extracted = hmac.digest(bytes(KEY_BYTES), secret, "sha256")
    return expanded(extracted, purpose)


def expanded(key: bytes, purpose: bytes) -> bytes:
    """The second half of HKDF, for a key that is already uniform."""
    return hmac.digest(key, purpose + b"\x01", "sha256")


class Identity:
    """A client's signing key; its public half is registered in a study."""

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(derived(secret, b"fedopl identity 1"))

    @property
    def public(self) -> str:
        """The public half, as 64 hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def signed(self, content: bytes) -> bytes:
        """The signature of this content."""
        return self._key.sign(content)


def is_signed(public: str, signature: bytes, content: bytes) -> bool:
    """Whether this content was signed with the private half of this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


class SessionKey:
    """A key-agreement key for one study and one version of a client's rows."""

    def __init__(self, secret: bytes, about: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.private = derived(secret, b"fedopl session 1" + hashlib.sha256(about).digest())
        self._key = X25519PrivateKey.from_private_bytes(self.private)

    @property
    def public(self) -> bytes:
        """The public half, which others need."""
        return self._key.public_key().public_bytes_raw()

    def shared_with(self, public: bytes, about: bytes) -> bytes:
        """The key that only these two clients know; a ValueError if none can be agreed."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        agreed = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        return derived(agreed, b"fedopl pair 1" + hashlib.sha256(about).digest())
