"""`fedopl certificates`, `server` and `node`: a federation over HTTPS by its commands."""

import json
import shutil
from importlib.util import find_spec

import pytest

import fedopl as library
from fedopl.cli import federation_verbs
from fedopl.engines.flower.local_federation import free_port
from fedopl.engines.https.https_server import run_over_https
from fedopl.engines.run import join_folder
from fedopl.report.figures.drawing import Drawing
from https_federation import HOST, in_threads, nodes_of
from tiny_study import NAMES, fedopl, write_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("https") / "tiny")


@pytest.fixture(scope="module")
def keys(tiny):
    names = [argument for name in NAMES for argument in ("--client", name)]
    done = fedopl("certificates", tiny.folder / "keys", "--host", HOST, *names, "--json")
    assert done.code == 0
    made = {"ca", "server", *NAMES}
    written = {
        str(tiny.folder / "keys" / f"{name}.{end}") for name in made for end in ("crt", "key")
    }
    assert set(done.json()) == written
    return tiny.folder / "keys"


def test_a_server_prints_what_a_run_prints(tiny, keys, monkeypatch):
    monkeypatch.setattr(Drawing, "svg", "<svg></svg>")  # to draw takes longer than all else
    port = free_port()
    with in_threads(*nodes_of(tiny, keys, f"https://{HOST}:{port}", NAMES)):
        done = fedopl(
            *("server", tiny.study, "--listen", f"{HOST}:{port}", "--certificates", keys),
            *("--out", tiny.out),
        )
    assert done.code == 0
    assert done.err == f"fedopl: https://{HOST}:{port}: waiting for north, south, west\n"
    assert str(tiny.out / "report.html") in done.out.replace("\n", "")
    again = fedopl("server", tiny.study, "--certificates", keys, "--out", tiny.out)
    assert again.code == 1
    assert "--resume continues the run in it" in again.err


def test_a_node_says_what_it_does_and_ends_when_the_run_is_over(tiny, keys, tmp_path):
    port = free_port()
    others = nodes_of(tiny, keys, f"https://{HOST}:{port}", NAMES[1:])

    def serve():
        listen = f"{HOST}:{port}"
        run_over_https(tiny.study, certificates=keys, listen=listen, out=tmp_path / "run")

    with in_threads(serve, *others):
        done = fedopl(
            *("node", tiny.clients / "north", "--server", f"https://{HOST}:{port}"),
            *("--study", tiny.study, "--certificates", keys),
        )
    assert (done.code, done.out) == (0, "")
    lines = [line for line in done.err.splitlines() if "trying again" not in line]
    assert lines[0] == f"fedopl: north: ready; asking https://{HOST}:{port}"
    assert all(line.startswith("fedopl: answered, ") for line in lines[1:-1])
    assert (
        lines[-1] == f"fedopl: the run is over; what left: fedopl ledger {tiny.clients / 'north'}"
    )
    asker = json.loads((tiny.clients / "north" / "ledger.jsonl").read_text().splitlines()[-1])
    assert f"the server https://{HOST}:{port}" in asker.values()


def test_a_client_joins_over_https_as_it_does_without(tiny, keys, tmp_path, monkeypatch):
    monkeypatch.setattr(Drawing, "svg", "<svg></svg>")
    own = type(tiny)(tmp_path / "tiny")
    shutil.copytree(tiny.folder, own.folder, ignore=shutil.ignore_patterns("run", "ledger*", "sc*"))
    (own.clients / "west").rename(tmp_path / "west")
    library.run(own.study, own.clients, out=own.out)
    shutil.copytree(tmp_path / "west", tmp_path / "plain west" / "west")
    (tmp_path / "west").rename(own.clients / "west")
    alone, port = tmp_path / "keys", free_port()
    alone.mkdir()
    for name in ("server.crt", "server.key", "west.crt"):
        shutil.copy(keys / name, alone)
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", ["west"])):
        done = fedopl(
            *("server", own.study, "--listen", f"{HOST}:{port}", "--certificates", alone),
            *("--join", own.out, "--out", tmp_path / "joined"),
        )
    assert done.code == 0, done.err
    join_folder(own.out, tmp_path / "plain west" / "west", out=tmp_path / "plain")
    for name in ("policy.json", "sums.npz", "newcomers.npz", "study.json", "before/values.csv"):
        assert (tmp_path / "joined" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8443", "http://127.0.0.1:8443", "https://", "https://a:b", "https://a/next"]
)
def test_a_server_is_called_by_an_address_of_https(tiny, keys, url):
    done = fedopl("node", tiny.clients / "north", "--server", url)
    assert done.code == 1
    assert done.err == (
        f"fedopl: --server: expected an address such as https://HOST:8443, came {url}\n"
    )


def node_of(tiny, keys, name="north"):
    return fedopl(
        *("node", tiny.clients / name, "--server", "https://127.0.0.1:1"),
        *("--study", tiny.study, "--certificates", keys, "--patience", "1"),
    )


def test_what_keeps_a_client_from_answering_is_said_before_it_calls(keys, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit("gain", "gained", tiny.table())
    assert "'gain'" in node_of(tiny, keys).err
    done = node_of(tiny, tmp_path / "nowhere")
    assert done.err.startswith(f"fedopl: {tmp_path / 'nowhere' / 'ca.crt'}: cannot be read")


def test_the_mixture_of_a_study_names_those_who_have_certificates(tiny, keys, tmp_path):
    named = tmp_path / "study.toml"
    shares = "north = 0.5\neast = 0.5\n"
    named.write_text(
        f'{tiny.study.read_text()}\n[mixture]\nkind = "given"\n[mixture.shares]\n{shares}'
    )
    done = fedopl("server", named, "--certificates", keys, "--out", tmp_path / "run")
    assert done.code == 1
    assert "east" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["server", "node"])
def test_packages_that_are_not_installed_are_named(tiny, keys, verb, monkeypatch):
    monkeypatch.setattr(
        federation_verbs, "find_spec", lambda name: None if name == "uvicorn" else find_spec(name)
    )
    arguments = [tiny.study] if verb == "server" else ["--server", "https://a:1"]
    done = fedopl(verb, *arguments)
    assert done.err == "fedopl: uvicorn: not installed; pip install 'fedopl[https]'\n"


def test_certs_need_a_name(tmp_path):
    done = fedopl("certificates", tmp_path)
    assert done.code == 1
    assert "say --host of the server, or --client, or both" in done.err


def test_keys_for_flower_are_a_pair_whose_public_half_is_registered(tmp_path):
    made = fedopl("certificates", tmp_path, "--client", "north", "--flower")
    assert made.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"north.key", "north.pub"}
