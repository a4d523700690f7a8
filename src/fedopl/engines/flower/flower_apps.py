"""Flower as transport: a ClientApp that passes bytes to the door, and a transport over its Grid.

This is the only file that imports flwr. Flower only transports: payloads are our encoded messages,
and the server's loop is the same as for clients in one process.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedopl.base.errors import OptionError
from fedopl.client.client_file import read_client
from fedopl.engines.network.remote_doors import RemoteDoors, refused
from fedopl.results.round import Round
from fedopl.study.study_file import read_study

RECORD, PAYLOAD = "fedopl", "bytes"
REPLY_POLL_SECONDS = 0.3
MOST_TRIES = 3  # how often a node that answers with an error is asked
TTL_GRACE = 60.0  # how many seconds longer Flower keeps a message than we wait for its answer
log = logging.getLogger("flwr.fedopl")  # `flwr log` and a node's own log show this name


# --- a client ----------------------------------------------------------------------------------


def client_app() -> ClientApp:
    """The ClientApp of a node; node-config names `client` and `study`, the client's own files."""
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(_packed(_answer(message, context)), reply_to=message)

    return app


def _answer(message: Message, context: Context) -> bytes:
    """The door's answer; if anything fails before the door, a refusal code without text."""
    try:
        asker = f"Flower run {message.metadata.run_id}"
        # Flower drops an answer that comes after the message's time to live.
        return _doors(context, asker).handle(_unpacked(message), within=message.metadata.ttl)
    except (Exception, SystemExit):
        # Flower would send an exception's text to the server. It goes to this node's log instead.
        log.exception("fedopl: this node cannot answer")
        return refused(_unpacked(message))


def _doors(context: Context, asker: str) -> RemoteDoors:
    client = read_client(str(_setting(context.node_config, "client")))
    agreed, _ = read_study(str(_setting(context.node_config, "study")))
    return RemoteDoors(client, agreed, asker, log.warning)


def _setting(config: Mapping[str, Any], name: str) -> Any:
    if name not in config:
        raise OptionError(
            f"node-config: '{name}' is missing; start the SuperNode with --node-config 'client="
            '"/path/to/client/folder" study="/path/to/study.toml"\''
        )
    return config[name]


# --- the server --------------------------------------------------------------------------------


def server_app(study: Path) -> ServerApp:
    """The ServerApp that runs this study; its run-config says where to write and how to wait."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, study, context.run_config)

    return app


def serve(grid: Grid, study: Path, config: Mapping[str, Any]) -> None:
    """Wait for the clients, run the study, and write the run's folder."""
    # Here, as a client's process, which starts for every message, needs none of it.
    from fedopl.engines.network.coordinate import coordinate

    names = tuple(sorted(str(config["clients"]).split(",")))
    coordinate(
        study,
        FlowerTransport(grid, names, deadline=float(config["deadline"])),
        Path(str(config["out"])),
        arrival=float(config["arrival"]),
        join=Path(str(config["join"])) if config.get("join") else None,
        progress=_log_round,
    )


def _log_round(latest: Round) -> None:
    missing = {**latest.refused, **latest.rejected, **dict.fromkeys(latest.silent, "no answer")}
    text = f"{latest.query}: {len(latest.answered)} of {len(latest.asked)} answered"
    log.info("fedopl: %s%s", text, f"; {missing}" if missing else "")


@dataclass(frozen=True)
class _Node:
    """A running node. After a restart it counts as a new node, and is asked again."""

    name: str
    number: int
    since: str


@dataclass
class FlowerTransport:
    """A transport over Flower's Grid; clients have the names they are registered with.

    A node that fails or restarts is asked again until the deadline. This is safe: a door answers
    the same query with the same bytes each time, and the first answer of a node counts. The
    transport does not wait for a client that missed a deadline and is not connected. If two nodes
    have the same name, the server gets both answers.
    """

    grid: Grid
    clients: tuple[str, ...]  # all that are invited, connected or not
    deadline: float  # seconds that a round trip may take
    _missed: set[str] = field(default_factory=set, init=False)

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all clients are connected, or until the deadline."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and {node.name for node in self._online()} < set(self.clients):
            time.sleep(REPLY_POLL_SECONDS)

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Send each client its query; yield the answers as they come, until the deadline."""
        end = time.monotonic() + self.deadline
        there = {node.name for node in self._online()}
        open_ = {name for name in queries if name in there or name not in self._missed}
        waiting: dict[str, _Node] = {}
        tries: Counter[_Node] = Counter()
        while (open_ or waiting) and time.monotonic() < end:
            asked = set(waiting.values())
            fresh = [
                node
                for node in self._online()
                if node.name in open_ and node not in asked and tries[node] < MOST_TRIES
            ]
            tries.update(fresh)
            waiting |= self._pushed(fresh, queries)
            for node, reply in self._replies(waiting):
                open_.discard(node.name)
                yield node.name, _unpacked(reply)
            time.sleep(REPLY_POLL_SECONDS)
        self._missed = (self._missed - queries.keys()) | open_

    def _online(self) -> list[_Node]:
        return [
            _Node(node.name, node.node_id, node.last_activated_at)
            for node in self.grid.get_nodes()
            if node.name in self.clients
        ]

    def _pushed(self, nodes: list[_Node], queries: Mapping[str, bytes]) -> dict[str, _Node]:
        if not nodes:
            return {}
        messages = [
            Message(
                _packed(queries[node.name]),
                dst_node_id=node.number,
                message_type=MessageType.QUERY,
                ttl=self.deadline + TTL_GRACE,
            )
            for node in nodes
        ]
        numbers = list(self.grid.push_messages(messages))
        return {number: node for number, node in zip(numbers, nodes, strict=True) if number}

    def _replies(self, waiting: dict[str, _Node]) -> Iterator[tuple[_Node, Message]]:
        """The replies so far; a node that replied with an error is removed, and asked again."""
        if not waiting:
            return
        for reply in self.grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and reply.has_content():
                for number in [key for key, same in waiting.items() if same.number == node.number]:
                    del waiting[number]  # a query from before the node's restart
                yield node, reply


def _packed(content: bytes) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({PAYLOAD: content})})


def _unpacked(message: Message) -> bytes:
    """The answer's bytes; empty if the reply is not in our format."""
    record: Mapping[str, object] = message.content.config_records.get(RECORD, {})
    content = record.get(PAYLOAD)
    return content if isinstance(content, bytes) else b""
