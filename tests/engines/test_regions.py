"""Regions in folders and over HTTPS: the same results, and every aggregator's own ledger."""

import re
import shutil
from types import SimpleNamespace

import pytest

import fedopl as package
from fedopl.base.errors import OptionError, StudyError
from fedopl.client.aggregator_file import read_parties
from fedopl.client.client_file import read_client, read_clients
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.engines.flower.local_federation import free_port
from fedopl.engines.https.https_aggregate import run_aggregator
from fedopl.engines.https.https_server import run_over_https
from https_federation import HOST, SOON, in_threads, make_keys, nodes_of
from tiny_study import STUDY, Tiny, fedopl, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

NAMES = ("a", "b", "c", "d")
AGGREGATORS = 'aggregators = ["inner", "outer"]\n'


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """outer speaks for inner and c; inner for a and b; d speaks for itself."""
    tiny = write_tiny(tmp_path_factory.mktemp("nested") / "tiny", NAMES)
    tiny.study.write_text(AGGREGATORS + STUDY)
    inner = tiny.clients / "outer" / "inner"
    inner.mkdir(parents=True)
    for name in "ab":
        shutil.move(tiny.clients / name, inner / name)
    shutil.move(tiny.clients / "c", tiny.clients / "outer" / "c")
    (inner / "aggregator.toml").write_text("minimum_members = 2\n")
    (inner.parent / "aggregator.toml").write_text('name = "outer"\nminimum_members = 2\n')
    return tiny


@pytest.fixture(scope="module")
def run(nested):
    return package.run(nested.study, nested.clients, out=nested.out)


def copied(tiny, folder):
    return Tiny(shutil.copytree(tiny.folder, folder))


def test_folders_of_aggregators_run_and_keep_their_ledgers(nested, run):
    assert set(run.mixture) == {"outer", "d"}
    assert set(run.ledger) == {"inner", "outer", *NAMES}
    inner = FileLedger(nested.clients / "outer" / "inner" / "ledger.jsonl").entries()
    assert [entry.query for entry in inner][:3] == ["Enrol", "SumOutcomes", "SumScores"]
    assert not any(entry.reason for entry in inner)
    shown = fedopl("ledger", nested.clients / "outer")
    assert shown.code == 0, shown.err
    assert "SumScores" in shown.out
    assert fedopl("ledger", nested.clients / "outer", "--lifetime").code == 1
    loaded = package.load_run(nested.out)
    assert loaded.study.aggregators == ("inner", "outer")
    assert fedopl("report", nested.out, "--out", nested.folder / "report.html").code == 0


def test_in_memory_small_regions_take_part_unless_there_are_limits(draw):
    two = {"north": {"a": draw(seed=1), "b": draw(seed=2)}, "c": draw(seed=3), "d": draw(seed=4)}
    assert set(package.learn(two, basis="linear").mixture) == {"north", "c", "d"}
    guarded = package.learn(two, basis="linear", limits="guarded")
    assert set(guarded.mixture) == {"c", "d"}
    assert "TOO_FEW_MEMBERS" in {why for _, _, why in guarded.refusals}


def test_check_knows_every_member(nested, run, tmp_path):
    own = copied(nested, tmp_path / "own")
    done = fedopl("check", own.study, "--clients", own.clients)
    assert done.code == 0, done.text
    assert all(name in done.out for name in NAMES)
    assert set(read_clients(own.clients)) == set(NAMES)
    assert set(read_parties(own.clients)) == {"outer", "d"}


def test_what_is_wrong_with_folders_is_said_before_anybody_is_asked(nested, tmp_path):
    own = copied(nested, tmp_path / "own")
    own.study.write_text('aggregators = ["inner"]\n' + STUDY)
    with pytest.raises(OptionError, match="'outer' adds up other clients' answers"):
        package.run(own.study, own.clients, out=tmp_path / "run")
    own.study.write_text('aggregators = ["inner", "outer", "far"]\n' + STUDY)
    with pytest.raises(OptionError, match="lists 'far'"):
        package.run(own.study, own.clients, out=tmp_path / "run")
    own.study.write_text('aggregators = ["d", "inner", "outer"]\n' + STUDY)
    with pytest.raises((OptionError, StudyError), match="d"):
        package.run(own.study, own.clients, out=tmp_path / "run")
    own.study.write_text(AGGREGATORS + STUDY + "\n[joining]\ndiagnose = true\n")
    done = fedopl("run", own.study, "--clients", own.clients, "--out", tmp_path / "run")
    assert (done.code, "diagnose = false" in done.err) == (1, True)
    (own.clients / "outer" / "client.toml").write_text('[data]\nfile = "x.csv"\n')
    with pytest.raises(OptionError, match=r"client\.toml is there, too"):
        read_parties(own.clients)


def test_an_aggregators_folder_is_not_taken_for_a_clients(nested, run):
    inner = nested.clients / "outer" / "inner"
    for arguments in (("preview", nested.study, inner), ("join", nested.out, inner)):
        done = fedopl(*arguments)
        assert done.code == 1
        assert f"{inner / 'aggregator.toml'}: this is an aggregator's folder" in done.err
    with pytest.raises(OptionError, match="this is an aggregator's folder"):
        read_client(inner / "aggregator.toml")


def test_check_refuses_what_a_run_refuses(nested, tmp_path):
    own = copied(nested, tmp_path / "own")
    file = own.clients / "outer" / "inner" / "aggregator.toml"

    def checked(study=AGGREGATORS + STUDY, clients=own.clients):
        own.study.write_text(study)
        return fedopl("check", own.study, "--clients", clients)

    done = checked('aggregators = ["inner"]\n' + STUDY)
    assert (done.code, "'outer' adds up other clients' answers" in done.err) == (1, True)
    done = checked('aggregators = ["far", "inner", "outer"]\n' + STUDY)
    assert (done.code, "lists 'far'" in done.err) == (1, True)
    file.write_text("minimum_member = 2\n")
    done = checked()
    assert (done.code, "unknown key 'minimum_member'" in done.err) == (1, True)
    file.write_text("minimum_members = 2\n")
    shares = '\n[mixture]\nkind = "given"\nshares = { outer = 0.5, d = 0.5 }\n'
    assert checked(AGGREGATORS + STUDY + shares).code == 0
    for path in (own.clients / "d").iterdir():  # what it released to all is no matter here
        if path.name in ("ledger.jsonl", "scores", "snapshots"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    alone = checked(clients=own.clients / "d")  # who checks itself has no aggregator's folder
    assert alone.code == 0, alone.text


def test_an_aggregator_with_too_few_members_is_refused_before_anybody_is_asked(nested, tmp_path):
    own = copied(nested, tmp_path / "own")
    file = own.clients / "outer" / "inner" / "aggregator.toml"
    file.write_text("")
    for verb in ("check", "run"):
        done = fedopl(verb, own.study, "--clients", own.clients)
        assert done.code == 1
        assert (
            f"{file}: expected at least 3 members (minimum_members), came 2: 'a', 'b'" in done.err
        )
    keys = make_keys(tmp_path / "keys", ["inner", "a", "b"])
    members = make_keys(tmp_path / "members", ["a", "b"])
    call = ("aggregate", file.parent, "--study", own.study, "--server", "https://127.0.0.1:1")
    done = fedopl(*call, "--certificates", keys, "--members", members)
    assert (done.code, "at least 3 members" in done.err) == (1, True)


def test_degrees_of_freedom_of_a_region_are_not_taken_for_groups(nested, run):
    """Rows have no groups here, and no table, file or page may count any."""
    assert "groups" not in str(run)
    for table in (run.values, run.gains, run.improvements):
        assert table.groups() == {}
    loaded = package.load_run(nested.out)
    assert (loaded.values, loaded.gains) == (run.values, run.gains)
    assert "groups" not in str(loaded)
    page = nested.folder / "groups.html"
    assert fedopl("report", nested.out, "--out", page).code == 0
    assert not re.search(r"in [\d,]+ groups|held-out groups", page.read_text(), re.IGNORECASE)


def test_the_verb_refuses_before_it_listens(nested, tmp_path):
    own = copied(nested, tmp_path / "own")
    call = ("aggregate", own.clients / "outer", "--study", own.study)
    done = fedopl(*call, "--server", "127.0.0.1:8443")
    assert (done.code, "expected an address" in done.err) == (1, True)
    own.study.write_text(STUDY)
    done = fedopl(*call, "--server", "https://127.0.0.1:1")
    assert (done.code, "the study does not list it" in done.err) == (1, True)
    done = fedopl(
        "flower", "up", nested.study, "--clients", nested.clients, "--out", tmp_path / "f"
    )
    assert (done.code, "over Flower there are none" in done.err) == (1, True)


def test_over_https_two_levels_end_with_the_bytes_of_one_process(nested, run, tmp_path):
    own = copied(nested, tmp_path / "own")
    shutil.rmtree(own.out, ignore_errors=True)
    for path in own.clients.rglob("*"):
        if path.name in ("ledger.jsonl", "scores", "snapshots"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    keys = {
        "top": make_keys(tmp_path / "top", ["outer", "d"]),
        "outer": make_keys(tmp_path / "outer", ["inner", "c"]),
        "inner": make_keys(tmp_path / "inner", ["a", "b"]),
    }
    ports = {level: free_port() for level in keys}
    urls = {level: f"https://{HOST}:{port}" for level, port in ports.items()}

    def aggregating(name, above, folder):
        return lambda: run_aggregator(
            urls[above],
            folder,
            own.study,
            certificates=keys[above],
            listen=f"{HOST}:{ports[name]}",
            members=keys[name],
            arrival=SOON,
            patience=SOON,
            tell=lambda _text: None,
        )

    outer = own.clients / "outer"
    inner = outer / "inner"
    in_outer = SimpleNamespace(study=own.study, clients=outer)
    in_inner = SimpleNamespace(study=own.study, clients=inner)
    nodes = [
        *nodes_of(own, keys["top"], urls["top"], ["d"]),
        *nodes_of(in_outer, keys["outer"], urls["outer"], ["c"]),
        *nodes_of(in_inner, keys["inner"], urls["inner"], ["a", "b"]),
        aggregating("outer", "top", outer),
        aggregating("inner", "outer", inner),
    ]
    with in_threads(*nodes):
        record = run_over_https(
            own.study,
            certificates=keys["top"],
            listen=f"{HOST}:{ports['top']}",
            out=tmp_path / "run",
            arrival=SOON,
            deadline=SOON,
        )
    assert record.policy.numbers().tolist() == run.policy.numbers().tolist()
    assert record.values.of(record.chosen) == run.values.of(run.chosen)
