"""The HTTPS transport by itself: what is asked, answered, repeated, refused, and when it ends."""

import subprocess
import sys
import threading
import time

import pytest

from fedopl.base.errors import FederationError, OptionError, StorageError
from fedopl.engines.https import https_server
from fedopl.engines.https.https_protocol import client_context
from fedopl.engines.https.https_server import address
from fedopl.engines.network.certificates import client_certificates, make_client_certificate
from https_federation import LARGEST, SOON, caller, in_threads, listening, make_keys, node

NAMES = ("north", "south")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"), NAMES)


@pytest.fixture
def transport(keys):
    with listening(keys) as transport:
        yield transport


def asked(transport, queries, **options):
    """What comes back on a trip, and a thread in which it is under way."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(transport.exchange(queries)), daemon=True)
    thread.start()
    return found, thread


def question(http):
    response = http.get("/next")
    assert response.status_code == 200
    return response.headers["question"], response.content


def test_everybody_gets_its_own_question_and_all_answers_come_back(transport, keys):
    nodes = [node(transport.url, keys, name, lambda q: b"re: " + q) for name in NAMES]
    with in_threads(*(one.run for one in nodes)):
        transport.wait_for_all(SOON)
        for trip in (b"first", b"second"):
            answers = dict(transport.exchange({name: trip + name.encode() for name in NAMES}))
            assert answers == {name: b"re: " + trip + name.encode() for name in NAMES}
        transport.end()


def test_who_dies_before_answering_finds_the_same_question_again(transport, keys):
    found, trip = asked(transport, {"north": b"how many?"})
    with caller(transport, keys, "north") as http:
        first = question(http)
    with caller(transport, keys, "north") as http:
        assert question(http) == first
        assert http.post(f"/answers/{first[0]}", content=b"five").status_code == 204
    trip.join(SOON)
    assert found == [("north", b"five")]


def test_an_answer_that_is_posted_again_counts_once_even_when_the_trip_is_over(transport, keys):
    found, trip = asked(transport, {"north": b"how many?", "south": b"how many?"})
    with caller(transport, keys, "north") as http, caller(transport, keys, "south") as other:
        known_by, _ = question(http)
        for _ in range(3):
            assert http.post(f"/answers/{known_by}", content=b"five").status_code == 204
        other.post(f"/answers/{question(other)[0]}", content=b"six")
        trip.join(SOON)
        assert http.post(f"/answers/{known_by}", content=b"five").status_code == 204
    assert sorted(found) == [("north", b"five"), ("south", b"six")]


def test_two_answers_that_differ_are_both_seen_by_the_server(transport, keys):
    found, trip = asked(transport, {"north": b"how many?", "south": b"how many?"})
    with caller(transport, keys, "north") as http, caller(transport, keys, "south") as other:
        known_by, _ = question(http)
        for content in (b"five", b"six"):
            assert http.post(f"/answers/{known_by}", content=content).status_code == 204
        other.post(f"/answers/{question(other)[0]}", content=b"six")
    trip.join(SOON)
    assert sorted(found) == [("north", b"five"), ("north", b"six"), ("south", b"six")]


def test_what_is_not_asked_is_not_taken(transport, keys):
    with caller(transport, keys, "north") as http:
        assert http.post("/answers/0", content=b"unasked").status_code == 409
        found, trip = asked(transport, {"north": b"how many?"})
        known_by, _ = question(http)
        assert http.post("/answers/0", content=b"unasked").status_code == 409
        http.post(f"/answers/{known_by}", content=b"five")
        trip.join(SOON)
        assert found == [("north", b"five")]


def test_an_answer_that_is_too_large_is_cut_off(transport, keys):
    found, trip = asked(transport, {"north": b"how many?"})
    with caller(transport, keys, "north") as http:
        known_by, _ = question(http)
        too_large = http.post(f"/answers/{known_by}", content=bytes(LARGEST + 1))
        assert too_large.status_code == 413
        assert http.post(f"/answers/{known_by}", content=bytes(LARGEST)).status_code == 204
    trip.join(SOON)
    assert found == [("north", bytes(LARGEST))]


def test_a_question_that_is_too_large_is_not_read_to_its_end(transport, keys):
    told = []
    huge = node(transport.url, keys, "north", bytes, patience=0.3, tell=told.append)
    found, _ = asked(transport, {"north": bytes(LARGEST + 1)})
    with pytest.raises(FederationError, match="a question larger than any of the study"):
        huge.run()
    assert not found


def test_a_client_asks_so_many_things_at_once_and_no_more(transport, keys, monkeypatch):
    monkeypatch.setattr(https_server, "MOST_REQUESTS", 1)
    transport.wait_for_all(0)
    with caller(transport, keys, "north") as http, caller(transport, keys, "north") as again:
        waits = threading.Thread(target=lambda: http.get("/next"), daemon=True)
        waits.start()
        while not transport._present():
            time.sleep(0.01)
        assert again.get("/next").status_code == 429
        transport.end()
        waits.join(SOON)


def test_nobody_is_waited_for_longer_than_the_deadline_and_then_not_again(keys):
    with listening(keys, deadline=0.5) as transport, caller(transport, keys, "north") as http:
        for trip in (b"first", b"second"):
            found, under_way = asked(transport, dict.fromkeys(NAMES, trip))
            began = time.monotonic()
            http.post(f"/answers/{question(http)[0]}", content=b"here")
            under_way.join(SOON)
            assert found == [("north", b"here")]
            took = time.monotonic() - began
        assert took < 0.5  # south missed the first, and is not there


def test_who_comes_back_is_asked_again(keys):
    with listening(keys, deadline=0.3) as transport:
        assert not list(transport.exchange({"south": b"first"}))
        transport.deadline = SOON
        with caller(transport, keys, "south") as http:
            waits = threading.Thread(target=lambda: replies.append(http.get("/next")), daemon=True)
            replies = []
            waits.start()
            while not transport._present():
                time.sleep(0.01)
            found, trip = asked(transport, {"south": b"second"})
            waits.join(SOON)
            http.post(f"/answers/{replies[0].headers['question']}", content=b"back")
            trip.join(SOON)
        assert found == [("south", b"back")]


def test_clients_wait_for_a_server_that_is_not_there_yet_and_outlive_its_death(keys):
    answered = []

    def answer(content):
        answered.append(content)
        return b"re: " + content

    with listening(keys) as first:
        port = first._listen[1]
        one = node(first.url, keys, "north", answer)
        with in_threads(one.run):
            assert list(first.exchange({"north": b"a"})) == [("north", b"re: a")]
            first.__exit__()  # without a word to anybody
            with listening(keys, port=port) as second:
                # It goes on with the question that its journal does not have.
                assert list(second.exchange({"north": b"a"})) == [("north", b"re: a")]
                assert list(second.exchange({"north": b"b"})) == [("north", b"re: b")]
                second.end()
    assert answered == [b"a", b"b"]  # and the client was not made to work twice


def test_who_never_reaches_a_server_gives_up_in_words(keys):
    with listening(keys) as gone:
        url = gone.url
    told = []
    with pytest.raises(FederationError, match=rf"{url}: no answer for 0.2 s \(.*refused"):
        node(url, keys, "north", bytes, patience=0.2, tell=told.append).run()
    assert len(told) == 1
    assert "trying again" in told[0]


def test_a_page_that_is_no_question_is_not_taken_for_one(transport, keys, monkeypatch):
    monkeypatch.setattr(https_server, "QUESTION", "another-header")
    asked(transport, {"north": b"<html>"})
    with pytest.raises(FederationError, match="not a fedopl server"):
        node(transport.url, keys, "north", bytes, patience=0.1).run()


def test_certificates_are_one_for_each_client(keys, tmp_path):
    with pytest.raises(StorageError, match="expected the certificate of each client"):
        client_certificates(tmp_path)
    (tmp_path / "north.crt").write_bytes((keys / "north.crt").read_bytes())
    (tmp_path / "south.crt").write_bytes((keys / "north.crt").read_bytes())
    with pytest.raises(StorageError, match=r"south.crt: is the certificate of 'north', too"):
        client_certificates(tmp_path)
    (tmp_path / "south.crt").write_text("nothing")
    with pytest.raises(StorageError, match=r"south.crt: expected a certificate in PEM"):
        client_certificates(tmp_path)


def test_a_client_may_have_two_certificates_while_one_follows_the_other(keys, tmp_path):
    make_keys(tmp_path, ["north"])
    make_client_certificate(tmp_path / "next", "north")
    both = (tmp_path / "north.crt").read_bytes() + (tmp_path / "next/north.crt").read_bytes()
    for name in ("north.crt", "north.key", "ca.crt"):
        (tmp_path / "old" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "old" / name).write_bytes((tmp_path / name).read_bytes())
    (tmp_path / "next/ca.crt").write_bytes((tmp_path / "ca.crt").read_bytes())
    (tmp_path / "north.crt").write_bytes(both)
    with listening(tmp_path) as transport:
        assert transport.clients == ("north",)
        for folder in ("old", "next"):
            found, trip = asked(transport, {"north": folder.encode()})
            with caller(transport, tmp_path / folder, "north") as http:
                http.post(f"/answers/{question(http)[0]}", content=b"north")
            trip.join(SOON)
            assert found == [("north", b"north")]


@pytest.mark.parametrize("name", ["ca", "server", "north wing"])
def test_a_client_cannot_be_called_as_another_file(name, tmp_path):
    with pytest.raises(OptionError, match=name):
        make_client_certificate(tmp_path, name)


def test_files_that_are_not_there_or_do_not_fit_are_named(keys, tmp_path):
    with pytest.raises(StorageError, match=r"ca.crt: cannot be read.*operator"):
        client_context(tmp_path, "north")
    (tmp_path / "ca.crt").write_bytes((keys / "ca.crt").read_bytes())
    with pytest.raises(StorageError, match=r"north.crt: cannot be read.*fedopl certificates"):
        client_context(tmp_path, "north")
    (tmp_path / "north.crt").write_bytes((keys / "north.crt").read_bytes())
    (tmp_path / "north.key").write_bytes((keys / "south.key").read_bytes())
    with pytest.raises(StorageError, match="they do not fit"):
        client_context(tmp_path, "north")
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(StorageError, match=r"ca.crt: expected a certificate in PEM"):
        client_context(tmp_path, "north")


def test_a_port_that_is_taken_is_named(transport, keys):
    with pytest.raises(FederationError, match=r"127.0.0.1:\d+: cannot listen there"):
        listening(keys, port=transport._listen[1]).__enter__()


@pytest.mark.parametrize("listen", ["", "8443", ":8443", "localhost:", "localhost:x", "a:70000"])
def test_an_address_to_listen_on_has_a_host_and_a_port(listen):
    with pytest.raises(OptionError, match="--listen: expected HOST:PORT"):
        address(listen)


def test_addresses_may_be_of_both_kinds():
    assert address("0.0.0.0:8443") == ("0.0.0.0", 8443)
    assert address("[::1]:0") == ("::1", 0)


def test_what_answers_need_is_imported_before_a_client_connects():
    """And nothing else is: scikit-learn takes seconds."""
    code = (
        "import sys, fedopl\n"
        "from fedopl.engines.network.early_imports import import_for_answers\n"
        "for propensity in ('marginal', 'auto'):\n"
        "    plan = fedopl.NuisancePlan(propensity=propensity)\n"
        "    study = fedopl.Study(actions=('a', 'b'), features=('x',), nuisances=plan)\n"
        "    import_for_answers(study)\n"
        "    print('scipy.special' in sys.modules, 'sklearn.linear_model' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False", "True", "True"]
