"""Attacks on who is who over HTTPS: a certificate answers for its own client, or for nobody."""

import ssl
import threading
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fedopl.base.errors import FederationError
from fedopl.engines.network.certificates import make_certificates, make_client_certificate
from https_federation import HOST, SOON, caller, listening, make_keys, node

NAMES = ("north", "south")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"), NAMES)


@pytest.fixture
def road(keys):
    """A server that asks south alone, and what it has heard."""
    heard = []
    with listening(keys) as transport:
        trip = threading.Thread(
            target=lambda: heard.extend(transport.exchange({"south": b"how many?"})), daemon=True
        )
        trip.start()
        with caller(transport, keys, "south") as south:
            known_by = south.get("/next").headers["question"]
            yield transport, known_by, heard
            assert not heard
            assert south.post(f"/answers/{known_by}", content=b"mine").status_code == 204
        trip.join(SOON)
    assert heard == [("south", b"mine")]


def test_north_cannot_answer_what_south_is_asked(road, keys):
    transport, known_by, _ = road
    with caller(transport, keys, "north") as http:
        for headers in ({}, {"client": "south"}, {"x-client": "south"}, {"host": "south"}):
            sent = http.post(f"/answers/{known_by}", content=b"forged", headers=headers)
            assert sent.status_code == 409
        for path in (f"/answers/south/{known_by}", f"/south/answers/{known_by}", "/answers/"):
            assert http.post(path, content=b"forged").status_code in (404, 405, 307)
        sent = http.post(f"/answers/{known_by}?client=south", content=b"forged")
        assert sent.status_code == 409


def refused_to(transport, context):
    """Whether no request of this side gets as far as an answer to what it asks."""
    try:
        with httpx.Client(base_url=transport.url, verify=context, timeout=SOON) as http:
            return http.get("/next").status_code == 403
    except httpx.TransportError:
        return True


def context_with(keys, chain=None, key=None):
    context = ssl.create_default_context(cafile=keys / "ca.crt")
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if chain:
        context.load_cert_chain(chain, key)
    return context


def test_who_shows_no_certificate_gets_nothing(road, keys):
    assert refused_to(road[0], context_with(keys))


def test_a_certificate_in_souths_name_that_souths_key_did_not_make_gets_nothing(
    road, keys, tmp_path
):
    chain, key = make_client_certificate(tmp_path, "south")[::-1]
    assert refused_to(road[0], context_with(keys, chain, key))


def test_the_servers_own_certificate_is_no_clients(road, keys):
    assert refused_to(road[0], context_with(keys, keys / "server.crt", keys / "server.key"))


def signed_by(folder, signer, name, *, path):
    """A certificate in a name, signed by whoever has this key, with the key's own."""
    key = load_pem_private_key((folder / f"{signer}.key").read_bytes(), None)
    own = x509.load_pem_x509_certificate((folder / f"{signer}.crt").read_bytes())
    now, named = datetime.now(UTC), x509.NameAttribute(x509.NameOID.COMMON_NAME, name)
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([named]))
        .issuer_name(own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA384())
    )
    both = (forged, own)
    path.write_bytes(b"".join(one.public_bytes(Encoding.PEM) for one in both))
    return path, folder / f"{signer}.key"


@pytest.mark.parametrize("signer", ["north", "ca"])
def test_nobody_vouches_for_another_in_souths_name(road, keys, tmp_path, signer):
    chain, key = signed_by(keys, signer, "south", path=tmp_path / "forged.crt")
    assert refused_to(road[0], context_with(keys, chain, key))


def test_an_authority_among_the_clients_speaks_for_itself_alone(tmp_path):
    """A client may bring a certificate that can sign others: OpenSSL makes such by default."""
    make_keys(tmp_path, ["south"])
    make_certificates(tmp_path / "own", [HOST])
    for kind in ("crt", "key"):
        (tmp_path / f"north.{kind}").write_bytes((tmp_path / f"own/ca.{kind}").read_bytes())
    chain, key = signed_by(tmp_path, "north", "south", path=tmp_path / "forged.pem")
    with listening(tmp_path) as transport:
        assert transport.clients == ("north", "south")
        assert refused_to(transport, context_with(tmp_path, chain, key))
        assert not transport._present()


def test_a_clients_certificate_is_no_servers(keys, tmp_path):
    """A client that listens in the server's place is not believed by others."""
    for name, source in (("server.crt", "north.crt"), ("server.key", "north.key")):
        (tmp_path / name).write_bytes((keys / source).read_bytes())
    (tmp_path / "south.crt").write_bytes((keys / "south.crt").read_bytes())
    with (
        listening(tmp_path) as transport,
        pytest.raises(FederationError, match="its certificate is not accepted here"),
    ):
        node(transport.url, keys, "south", bytes).run()


def test_a_client_that_is_not_known_is_told_what_may_be_wrong(keys, tmp_path):
    make_client_certificate(tmp_path, "east")
    (tmp_path / "ca.crt").write_bytes((keys / "ca.crt").read_bytes())
    with (
        listening(keys) as transport,
        pytest.raises(FederationError, match="certificate"),
    ):
        node(transport.url, tmp_path, "east", bytes, patience=0.2).run()
