"""Personal policies in a study file: run, said, kept at home, decided by, and shared on demand."""

import csv

import numpy as np
import pytest

from tiny_study import everything_in, fedopl, rows, turned, write_csv, write_tiny


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Three clients of which west differs, and south shares; and what was said of their run."""
    tiny = write_tiny(tmp_path_factory.mktemp("personal") / "tiny")
    for turn, name in enumerate(("north", "south", "west")):
        table = rows(700, turn)
        write_csv(tiny.table(name), turned(table) if name == "west" else table)
    tiny.add('\n[personal]\nkind = "ridge"\n')
    settings = tiny.settings("south")
    settings.write_text("share_personal = true\n" + settings.read_text())
    said = tiny.run("--json")
    assert (said.code, said.err) == (0, "")
    return tiny, said.json()


def decided(tiny, name, *more):
    out = tiny.folder / "decided.csv"
    found = fedopl("decide", tiny.out, tiny.table("west"), "--client", name, "--out", out, *more)
    assert found.code == 0, found.text
    with out.open(newline="") as file:
        return [row["action"] for row in csv.DictReader(file)], found.err


def test_the_client_that_differs_is_told_to_use_its_own(done):
    tiny, said = done
    over = {(row["against"], row["client"]): row for row in said["personal"]}
    assert over["learned", "west"]["interval"][0] > 0
    page = (tiny.out / "report.html").read_text()
    assert "Shared, personal or alone: which, and how sure?" in page
    assert "Does joining pay?" not in page
    assert "Over personal policy" in page
    again = fedopl("diagnose", tiny.out, "--json").json()
    assert again["three_ways"]["west"]["best"] in ("personal", "alone")
    assert "shared" not in again["three_ways"]["west"]["as_good"]
    assert "Personal over shared" in fedopl("diagnose", tiny.out).out


def test_decisions_at_a_client_are_by_its_personal_policy(done):
    tiny, _ = done
    own, told = decided(tiny, tiny.clients / "west")
    assert told == "Decided by the personal policy of west; --shared uses the shared policy\n"
    shared, told = decided(tiny, tiny.clients / "west", "--shared")
    assert told == ""
    assert np.mean([a == b for a, b in zip(own, shared, strict=True)]) < 0.6
    out = tiny.folder / "own.sql"
    exported = fedopl("export", tiny.out, "--to", "sql", "--client", tiny.clients / "west",
                      "--out", out)  # fmt: skip
    assert exported.code == 0, exported.text
    assert "personal policy of west" in exported.err


def test_a_client_reads_its_personal_policy_in_words(done):
    tiny, _ = done
    west = tiny.clients / "west"
    shared, own = fedopl("explain", tiny.out), fedopl("explain", tiny.out, "--client", west)
    assert own.code == 0, own.text
    assert own.err == "Decided by the personal policy of west; --shared uses the shared policy\n"
    assert own.out != shared.out
    assert "standard deviation" in own.out
    assert fedopl("explain", tiny.out, "--client", west, "--shared").out == shared.out
    saved = fedopl("explain", tiny.out, "--client", "south", "--json")
    assert saved.json()["effects"] != fedopl("explain", tiny.out, "--json").json()["effects"]


def test_after_who_is_in_changed_a_name_says_why_there_is_no_personal_policy(done):
    tiny, _ = done
    left = fedopl("leave", tiny.out, "west", "--out", tiny.folder / "left")
    assert left.code == 0, left.text
    found = fedopl("decide", tiny.folder / "left", tiny.table("north"), "--client", "south")
    assert found.code == 1
    assert "joined or left after the personal policies were solved" in found.err


def test_only_who_shares_its_policy_has_it_in_the_folder_of_the_run(done):
    tiny, _ = done
    assert [path.name for path in (tiny.out / "personal").iterdir()] == ["south.json"]
    by_name, told = decided(tiny, "south")
    assert "personal policy of south" in told
    at_home, _ = decided(tiny, tiny.clients / "south")
    assert by_name == at_home
    unknown = fedopl("decide", tiny.out, tiny.table("west"), "--client", "west")
    assert unknown.code == 1
    assert "'west' is kept in its client's folder, unless share_personal = true" in unknown.err
    # Of west, the server's side has the value alone.
    kept = everything_in(tiny.out)
    assert b"personal policy" in kept["values.csv"]
    assert "personal.csv" in kept


def test_preview_shows_what_would_leave(done):
    tiny, _ = done
    preview = fedopl("preview", tiny.study, tiny.clients / "north")
    assert preview.code == 0, preview.text
    assert "Value → Values" in preview.out
    assert "SumContrasts → ContrastSquares" in preview.out


def test_a_study_that_cannot_have_them_says_why_and_where(tiny):
    tiny.add('\n[personal]\nkind = "ridge"\n\n[policy]\nkind = "neural"\n')
    found = tiny.check()
    assert found.code == 1
    assert "study.toml, line" in found.text
    assert "csoaa-exact on shared features" in found.text


def test_a_client_without_one_decides_by_the_shared_policy(done, tmp_path):
    tiny, _ = done
    other = tmp_path / "west"
    other.mkdir()
    (other / "client.toml").write_text(tiny.settings("west").read_text())
    shared, told = decided(tiny, other)
    assert told == "west has no personal policy in this run; the shared policy is used\n"
    assert shared == decided(tiny, tiny.clients / "west", "--shared")[0]


@pytest.mark.parametrize("kind", ["tree", "finite"])
def test_trees_and_choices_are_decided_by_at_home(kind, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    for turn, name in enumerate(("north", "south", "west")):
        table = rows(500, turn)
        write_csv(tiny.table(name), turned(table) if name == "west" else table)
    tiny.add(f'\n[personal]\nkind = "ridge"\n\n[policy]\nkind = "{kind}"\n')
    said = tiny.run("--json")
    assert (said.code, said.err) == (0, "")
    assert {row["client"] for row in said.json()["personal"]} == {
        "global",
        "north",
        "south",
        "west",
    }
    _, told = decided(tiny, tiny.clients / "west")
    assert "Decided by the personal policy of west" in told
    assert "Shared, personal or alone" in (tiny.out / "report.html").read_text()


def test_after_a_client_left_decisions_are_by_the_shared_policy_and_it_is_said(done, tmp_path):
    tiny, _ = done
    out = tmp_path / "fewer"
    left = fedopl("leave", tiny.out, "north", "--out", out)
    assert left.code == 0, left.text
    decided_by = fedopl("decide", out, tiny.table("west"), "--client", tiny.clients / "west",
                        "--out", tmp_path / "decided.csv")  # fmt: skip
    assert decided_by.code == 0, decided_by.text
    assert "joined or left after the personal policies were solved" in decided_by.err
