"""Personal policies of a private study: solved and valued by each client, in its own folder."""

import pytest

from tiny_study import everything_in, fedopl, rows, turned, write_csv, write_tiny

PRIVATE = """
[personal]
kind = "ridge"

[declared]
overlap = 0.3

[privacy]
epsilon = 8
outcome = [-5, 15]
ranges = { age = [20, 90], severity = [0, 4] }
"""


def _agree(tiny):
    agreed = tiny.study.read_text().replace('propensity = "marginal"', 'propensity = "auto"')
    tiny.study.write_text(agreed + PRIVATE)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Three clients of which west differs, after their run with differential privacy."""
    tiny = write_tiny(tmp_path_factory.mktemp("at home") / "tiny")
    for turn, name in enumerate(("north", "south", "west")):
        table = rows(1500, turn)
        write_csv(tiny.table(name), turned(table) if name == "west" else table)
    _agree(tiny)
    said = tiny.run("--json")
    assert (said.code, said.err) == (0, "")
    assert "personal" not in said.json()
    return tiny


def test_the_client_reads_at_home_what_its_policy_is_worth(done):
    before = everything_in(done.out)
    ledger = fedopl("ledger", done.clients / "west").out
    said = fedopl("personal", done.out, done.clients / "west", "--json")
    assert (said.code, said.err) == (0, "")
    gains = {row["against"]: row for row in said.json()["gains"]}
    assert gains["learned"]["interval"][0] > 0
    text = fedopl("personal", done.out, done.clients / "west").out
    assert "without noise: for west alone" in text
    assert everything_in(done.out) == before  # nothing of it is where the run is
    assert fedopl("ledger", done.clients / "west").out == ledger  # and nothing left


def test_decisions_at_a_client_are_by_its_personal_policy(done, tmp_path):
    table = done.table("west")
    own = fedopl("decide", done.out, table, "--client", done.clients / "west",
                 "--out", tmp_path / "own.csv")  # fmt: skip
    assert own.code == 0, own.text
    assert "by the personal policy of west" in own.err
    again = fedopl("decide", done.out, table, "--client", done.clients / "west",
                   "--out", tmp_path / "again.csv")  # fmt: skip
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "own.csv").read_bytes(), again.text
    shared = fedopl("decide", done.out, table, "--client", done.clients / "west", "--shared",
                    "--out", tmp_path / "shared.csv")  # fmt: skip
    assert shared.code == 0, shared.text
    assert (tmp_path / "shared.csv").read_bytes() != (tmp_path / "own.csv").read_bytes()
    assert not (done.out / "personal").exists()


def test_a_client_that_wants_to_share_it_is_stopped_before_anything_is_asked(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    _agree(tiny)
    settings = tiny.settings("north")
    settings.write_text("share_personal = true\n" + settings.read_text())
    found = tiny.run()
    assert found.code == 1
    assert "share_personal: with [privacy]" in found.text
    assert not (tiny.out / "study.json").exists()


def test_of_other_runs_it_says_where_to_look(done, finished, tmp_path):
    found = fedopl("personal", finished.out, finished.clients / "north")
    assert found.code == 1
    assert "this one has no [privacy]" in found.text
    stranger = tmp_path / "elsewhere"
    stranger.mkdir()
    (stranger / "client.toml").write_text(done.settings("west").read_text())
    found = fedopl("personal", done.out, stranger)
    assert found.code == 1
    assert "elsewhere: took no part in this run" in found.text
