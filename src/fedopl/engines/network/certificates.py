"""Keys and certificates for a federation: a CA, the server's certificate, a key for each client.

Only their owner can read private keys. Over Flower, a client's public key identifies it. Over
HTTPS, a self-signed certificate does; the server has a copy of it.
"""

import ipaddress
import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedopl.base.errors import FedoplWarning, OptionError, StorageError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_node_name

CURVE, PEM = ec.SECP384R1(), Encoding.PEM
VALID_FOR = timedelta(days=825)
NOT_OF_CLIENTS = ("ca", "server")  # files with these names do not belong to clients


def make_certificates(folder: Path, hosts: Iterable[str]) -> list[Path]:
    """Make a CA and a server certificate for these host names and addresses."""
    _refuse_to_replace(folder / "ca.key", folder / "server.key")
    ca_key, server_key = (ec.generate_private_key(CURVE) for _ in range(2))
    ca_name, server_name = _name("fedopl federation CA"), _name("fedopl SuperLink")
    authority = (
        _certificate(ca_name, ca_name, ca_key.public_key())
        # It may sign servers, but no further CA.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        _certificate(server_name, ca_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    return [
        _write_private(folder / "ca.key", ca_key, PrivateFormat.PKCS8),
        _write(folder / "ca.crt", authority.public_bytes(PEM)),
        _write_private(folder / "server.key", server_key, PrivateFormat.PKCS8),
        _write(folder / "server.crt", server.public_bytes(PEM)),
    ]


def make_client_key(folder: Path, name: str) -> list[Path]:
    """Make a client's key pair: the private key stays with it, the public key is registered."""
    check_node_name(name)
    path = folder / f"{name}.key"
    _refuse_to_replace(path)
    key = ec.generate_private_key(CURVE)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return [
        _write_private(path, key, PrivateFormat.OpenSSH),
        _write(folder / f"{name}.pub", public + b"\n"),
    ]


def make_client_certificate(folder: Path, name: str) -> list[Path]:
    """Make a client's key, which stays with it, and its certificate, which the server gets."""
    check_node_name(name)
    if name in NOT_OF_CLIENTS:
        raise OptionError(
            f"clients: '{name}' cannot be a client's name, as {name}.crt is another's certificate"
        )
    path = folder / f"{name}.key"
    _refuse_to_replace(path)
    key = ec.generate_private_key(CURVE)
    certificate = (
        _certificate(_name(name), _name(name), key.public_key())
        # It may sign no other certificate, and may not be used by a server.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
        .sign(key, hashes.SHA384())
    )
    return [
        _write_private(path, key, PrivateFormat.PKCS8),
        _write(folder / f"{name}.crt", certificate.public_bytes(PEM)),
    ]


def client_certificates(folder: Path) -> dict[bytes, str]:
    """The client of each certificate in this folder, by its DER bytes; files are named by client.

    A file may hold several certificates, such as the present one and its successor.
    """
    found: dict[bytes, str] = {}
    for path, certificate in _certificates_in(folder):
        content, name = certificate.public_bytes(Encoding.DER), path.stem
        if found.get(content, name) != name:
            raise StorageError(
                f"{path}: is the certificate of '{found[content]}', too; every client has its own"
            )
        if certificate.not_valid_after_utc < datetime.now(UTC):
            until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
            warnings.warn(
                f"{path}: was valid until {until}, so '{name}' cannot connect with it",
                FedoplWarning,
                stacklevel=2,
            )
        found[content] = name
    if not found:
        raise StorageError(
            f"{folder}: expected the certificate of each client, such as {folder / 'north.crt'}; "
            "there is none"
        )
    return found


def _certificates_in(folder: Path) -> Iterator[tuple[Path, x509.Certificate]]:
    for path in sorted(folder.glob("*.crt")):
        if path.stem in NOT_OF_CLIENTS:
            continue
        check_node_name(path.stem)
        try:
            certificates = x509.load_pem_x509_certificates(path.read_bytes())
        except ValueError:
            raise StorageError(f"{path}: expected a certificate in PEM") from None
        except OSError as error:
            raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
        yield from ((path, certificate) for certificate in certificates)


def _refuse_to_replace(*paths: Path) -> None:
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise StorageError(f"{', '.join(there)}: is there already; keys are never written over")


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clients' clocks may be slow
        .not_valid_after(now + VALID_FOR)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, kind: PrivateFormat) -> Path:
    return _write(path, key.private_bytes(PEM, kind, NoEncryption()), mode=0o600)


def _write(path: Path, content: bytes, mode: int = 0o666) -> Path:
    write_atomically(path, content, mode)
    return path
