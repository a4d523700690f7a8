"""Keys and certificates for a federation: a CA, the server's certificate, a key for each client.

Made with `cryptography`, which Flower brings along. Private keys are readable by their owner alone.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedopl.base.errors import StorageError
from fedopl.base.files import write_atomically
from fedopl.base.labels import check_node_name

PRIVATE = 0o600
PEM, OPENSSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH


def make_certificates(folder: Path, hosts: Iterable[str], days: int = 825) -> list[Path]:
    """A CA and a server certificate for these host names and addresses."""
    _refuse_to_replace(folder / "ca.key", folder / "server.key")
    ca_key, server_key = (
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP384R1()),
    )
    ca_name, server_name = _name("fedopl federation CA"), _name("fedopl SuperLink")
    authority = (
        _certificate(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        _certificate(server_name, ca_name, server_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    return [
        _write(folder / "ca.key", _private(ca_key, serialization.PrivateFormat.PKCS8), PRIVATE),
        _write(folder / "ca.crt", authority.public_bytes(PEM)),
        _write(
            folder / "server.key", _private(server_key, serialization.PrivateFormat.PKCS8), PRIVATE
        ),
        _write(folder / "server.crt", server.public_bytes(PEM)),
    ]


def make_client_key(folder: Path, name: str) -> list[Path]:
    """A client's key pair: the private half stays with it, the public one is registered."""
    check_node_name(name)
    path = folder / f"{name}.key"
    _refuse_to_replace(path)
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(OPENSSH, serialization.PublicFormat.OpenSSH)
    return [
        _write(path, _private(key, serialization.PrivateFormat.OpenSSH), PRIVATE),
        _write(folder / f"{name}.pub", public + b"\n"),
    ]


def _refuse_to_replace(*paths: Path) -> None:
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise StorageError(f"{', '.join(there)}: is there already; keys are never written over")


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, kind: serialization.PrivateFormat) -> bytes:
    content: bytes = key.private_bytes(PEM, kind, serialization.NoEncryption())
    return content


def _write(path: Path, content: bytes, mode: int = 0o666) -> Path:
    write_atomically(path, content, mode)
    return path
