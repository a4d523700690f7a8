"""A federation over HTTPS on 127.0.0.1, in threads of this process."""

import threading
from contextlib import contextmanager

import httpx

from fedopl.engines.https.https_node import HttpsNode, run_node
from fedopl.engines.https.https_protocol import client_context
from fedopl.engines.https.https_server import HttpsTransport
from fedopl.engines.network.certificates import make_certificates, make_client_certificate

HOST = "127.0.0.1"
SOON = 20.0  # seconds within which whatever should happen does, on a busy machine
LARGEST = 1 << 16


def make_keys(folder, names):
    make_certificates(folder, [HOST])
    for name in names:
        make_client_certificate(folder, name)
    return folder


def listening(keys, *, port=0, deadline=SOON, largest=LARGEST):
    return HttpsTransport(keys, (HOST, port), deadline=deadline, largest=largest)


@contextmanager
def caller(transport, keys, name):
    """A client that says whatever a test wants it to."""
    context = client_context(keys, name)
    with httpx.Client(base_url=transport.url, verify=context, timeout=SOON) as http:
        yield http


def node(url, keys, name, answer, *, patience=SOON, tell=lambda _text: None):
    context = client_context(keys, name)
    return HttpsNode(url, context, lambda asked, _within: answer(asked), LARGEST, patience, tell)


@contextmanager
def in_threads(*calls):
    """Calls in threads of their own, which must all end; what they raised is raised."""
    raised = []

    def kept(call):
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=kept, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


def nodes_of(tiny, keys, url, names, *, patience=SOON):
    """What runs a node for each of these clients of a study in folders."""

    def running(name):
        return lambda: run_node(
            url,
            tiny.clients / name,
            tiny.study,
            certificates=keys,
            patience=patience,
            tell=lambda _text: None,
        )

    return [running(name) for name in names]
