"""An aggregator over HTTPS: members dial in as to a server, and it dials out as a client."""

from collections.abc import Callable
from pathlib import Path

from fedopl.base.errors import FedoplError, WireError
from fedopl.client.aggregator_file import AggregatorFolder, read_aggregator
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.client.disk.store import FolderStore
from fedopl.engines.aggregator import Aggregator, check_aggregators
from fedopl.engines.clients import check_members
from fedopl.engines.https.https_node import LARGEST_QUESTION, HttpsNode, check_address
from fedopl.engines.https.https_protocol import client_context
from fedopl.engines.https.https_server import HttpsTransport, address
from fedopl.engines.network.remote_doors import refused
from fedopl.messages import codec
from fedopl.messages.bundle import largest_bundle, unbundled
from fedopl.messages.derived_sizes import largest_answer, largest_query
from fedopl.study.splits import split_studies
from fedopl.study.study import Study
from fedopl.study.study_file import read_study

# Of the time that a server gives, the share that members have.
FOR_MEMBERS = 0.8
_Teller = Callable[[str], None]


def run_aggregator(
    server: str,
    folder: Path,
    study: Path,
    *,
    certificates: Path,
    listen: str,
    members: Path,
    arrival: float,
    patience: float,
    tell: _Teller,
) -> None:
    """Pass a server's questions on to members and answer with what they say together.

    Args:
        server: the address of the server above, or of the aggregator above, https://HOST:PORT.
        folder: the aggregator's folder, with aggregator.toml.
        study: its own copy of the study.
        certificates: the folder of ca.crt, and NAME.crt and NAME.key of the aggregator.
        listen: HOST:PORT where members call; port 0 takes one that is free.
        members: the folder of server.crt, server.key and NAME.crt of every member.
        arrival: seconds to wait for members to be there.
        patience: seconds without the server after which to give up.
        tell: what is called with each remark.

    """
    check_address(server)
    own, (agreed, _) = read_aggregator(folder), read_study(study)
    check_aggregators(agreed, [own.name])
    context = client_context(certificates, own.name)
    transport = HttpsTransport(
        members,
        address(listen),
        deadline=arrival,
        largest=largest_bundle(largest_answer(agreed)),
    )
    check_members(own, transport.clients)
    answering = _Splits(own, agreed, transport, server, tell)
    largest = max(LARGEST_QUESTION, largest_bundle(largest_query(agreed)))
    with transport:
        tell(f"{own.name}: {transport.url}: waiting for {', '.join(transport.clients)}")
        transport.wait_for_all(arrival)
        tell(f"{own.name}: ready; asking {server}")
        HttpsNode(server, context, answering.handle, largest, patience, tell).run()
        transport.end()


class _Splits:
    """An aggregator for each split of the study, all over one transport."""

    def __init__(
        self,
        own: AggregatorFolder,
        agreed: Study,
        transport: HttpsTransport,
        server: str,
        tell: _Teller,
    ) -> None:
        self._transport, self._tell = transport, tell
        self._by_digest = {
            one.digest: Aggregator(
                own.name,
                one,
                transport,
                minimum_members=own.settings.minimum_members,
                ledger=FileLedger(own.ledger_path, f"the server {server}"),
                store=FolderStore(own.store_path),
            )
            for one in split_studies(agreed)
        }

    def handle(self, content: bytes, within: float) -> bytes:
        """The answer; members have less time than the server gives, so that it still arrives."""
        self._transport.deadline = FOR_MEMBERS * within
        first = next(iter(self._by_digest.values()))
        try:
            about = codec.study_asked_about(unbundled(content)[0])
            return self._by_digest.get(about, first).handle(content)
        except WireError:
            return first.handle(content)
        except FedoplError as error:
            self._tell(f"cannot answer: {error}")
            return refused(content)
