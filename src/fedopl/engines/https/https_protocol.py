"""What both sides of the HTTPS transport agree on.

    GET  /next          200: the question that is open for whoever asks, and in headers what it is
                        known by and how long its answer will be waited for; 204: none for now, ask
                        again; 410: the run is over
    POST /answers/ID    204: the answer is had, however often it comes; 409: that is not asked (now)

Both sides show a certificate. The server has a copy of each client's, and which of them is shown
says who asks: no header and no path names a client. Clients trust the authority that signed the
server's. Questions are known by the hash of their bytes, so a run that was killed and goes on asks
the same ones.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

from fedopl.base.errors import StorageError

NEXT, ANSWERS = "/next", "/answers"
QUESTION = "question"  # the header that says what a question is known by
SECONDS = "seconds"  # another: how long its answer will be waited for
POLL_SECONDS = 20.0  # shorter than proxies and firewalls keep quiet connections


def server_context(folder: Path, clients: Iterable[bytes]) -> ssl.SSLContext:
    """TLS for the server: clients must show one of these certificates, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # A copy is enough, whoever signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(clients))
    _show(context, folder / "server.crt", folder / "server.key")
    return context


def client_context(folder: Path, name: str) -> ssl.SSLContext:
    """TLS for a client: the server's certificate must be for its host, and signed by ca.crt."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _require(folder / "ca.crt", "the server's operator sends it")
    try:
        context.load_verify_locations(folder / "ca.crt")
    except ssl.SSLError:
        raise StorageError(f"{folder / 'ca.crt'}: expected a certificate in PEM") from None
    _show(context, folder / f"{name}.crt", folder / f"{name}.key")
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _require(path, "`fedopl certificates` makes it")
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError:
        raise StorageError(
            f"{certificate}: expected a certificate in PEM, and its key in {key}; they do not fit"
        ) from None


def _require(path: Path, advice: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; {advice}") from None
