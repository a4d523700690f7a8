"""The secret of a client, and what follows from it."""

import base64
import secrets
import stat

import pytest

import fedopl
from fedopl.client.disclosure.private_draws import (
    SEED_ALONE,
    PrivateDraws,
    is_strong,
    kept_secret,
)

BYTES = bytes(range(100, 132))
WEAK = (
    *("hush", "correct horse battery staple", "a" * 32, "a" * 64, "ab" * 32),
    *("0123456789abcdef" * 4, BYTES[1:].hex(), base64.b64encode(BYTES[1:]).decode()),
)


@pytest.mark.parametrize("secret", WEAK)
def test_a_secret_of_fewer_than_32_bytes_or_of_few_that_differ_is_weak(secret, tmp_path):
    assert not is_strong(secret)
    (tmp_path / "secret").write_text(secret)
    with pytest.raises(fedopl.StorageError, match="secret: was changed"):
        kept_secret(tmp_path / "secret")


def test_a_secret_of_32_bytes_is_strong_in_hex_and_in_base64():
    made = secrets.token_hex(32), secrets.token_urlsafe(32), base64.b64encode(BYTES).decode()
    assert all(map(is_strong, (*made, BYTES.hex(), BYTES.hex().upper())))


def test_a_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "secret"
    made = kept_secret(path)
    assert len(made) == 64
    assert kept_secret(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_secret(tmp_path / "other") != made


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_secret_that_is_lost_is_an_error_in_words(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(fedopl.StorageError, match=r"secret: (is empty|cannot be read)"):
        kept_secret(path)


def test_a_link_in_the_place_of_a_secret_is_refused(tmp_path):
    (tmp_path / "elsewhere").write_text("known to others")
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(fedopl.StorageError, match="symbolic link"):
        kept_secret(tmp_path / "secret")


def test_splits_follow_from_the_seed_alone_without_a_secret():
    assert PrivateDraws(7, "north", SEED_ALONE).split_seed() == 7


def test_with_a_secret_splits_follow_from_it_and_the_seed():
    drawn = [(7, "secret"), (8, "secret"), (7, "another"), (7, "secret")]
    seeds = [PrivateDraws(seed, "north", secret).split_seed() for seed, secret in drawn]
    assert seeds[0] == seeds[3]
    assert len({*seeds, 7, 8}) == 5
