"""Runs a study as the server of clients that connect over HTTPS."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from fedopl.base.errors import OptionError
from fedopl.engines.https.https_server import HttpsTransport
from fedopl.engines.network.coordinate import coordinate
from fedopl.engines.network.early_imports import import_for_solving
from fedopl.engines.run import Watch, check_folder
from fedopl.messages.bundle import largest_bundle
from fedopl.messages.derived_sizes import largest_answer
from fedopl.results.record import Record
from fedopl.server.exchange_counts import expected_exchanges
from fedopl.study.study_file import check_named, read_study

LARGEST_PORT = (1 << 16) - 1
_Teller = Callable[[str], None]


def run_over_https(
    study: Path,
    *,
    certificates: Path,
    listen: str,
    out: Path,
    resume: bool = False,
    join: Path | None = None,
    arrival: float = 120.0,
    deadline: float = 120.0,
    watch: Watch = lambda *_run: nullcontext(),
    tell: _Teller = lambda _text: None,
) -> Record:
    """Run the study with all clients that have a certificate here, and tell them when it is over.

    Args:
        study: the study file.
        certificates: the folder of server.crt, server.key and NAME.crt of every client.
        listen: HOST:PORT; port 0 takes a free port.
        out: the run's folder; if it is not empty, `resume` is needed.
        resume: continue the run in the folder, if it is one of this study.
        join: the folder of a finished run, which these clients join.
        arrival: seconds to wait for clients to connect.
        deadline: seconds to wait for answers in each round trip.
        watch: a context manager that gives a function to be called after every exchange, or None.
        tell: called with each message for the operator.

    """
    agreed, _ = read_study(study)
    check_folder(out, agreed, resume=resume)
    transport = HttpsTransport(
        certificates,
        address(listen),
        deadline=deadline,
        largest=largest_bundle(largest_answer(agreed)),
    )
    if join is None:
        check_named(study, agreed, transport.clients)
    n_expected = expected_exchanges(agreed, len(transport.clients))
    with transport, watch(agreed, transport.clients, n_expected) as progress:
        tell(f"{transport.url}: waiting for {', '.join(transport.clients)}")
        import_for_solving()
        record = coordinate(study, transport, out, arrival=arrival, join=join, progress=progress)
        transport.end()
    return record


def address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > LARGEST_PORT:
        raise OptionError(f"--listen: expected HOST:PORT, such as 127.0.0.1:8443, came {listen}")
    return host.strip("[]"), int(port)
