"""`fedopl join` and `fedopl leave`: what they print, write and refuse."""

import pytest

from tiny_study import everything_in, fedopl, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A finished run of two clients; the third is in a folder of its own."""
    made = write_tiny(tmp_path_factory.mktemp("verbs") / "tiny")
    later = made.folder / "west"
    (made.clients / "west").rename(later)
    assert made.run().code == 0
    return made, later


def test_a_client_joins_and_leaves_again(tiny):
    made, later = tiny
    before = everything_in(made.out)
    joined = fedopl("join", made.out, later)
    assert joined.code == 0, joined.err
    assert joined.out.startswith("No recommendation: the policy was solved again after 'west' join")
    assert "'north', 'south' were not asked about it, so nothing is claimed there" in joined.out
    assert f"The report is {made.out}+west" in joined.out
    left = fedopl("leave", f"{made.out}+west", "west", "--json")
    assert left.code == 0, left.err
    found = left.json()
    assert found["values"]
    assert [change["kind"] for change in found["membership"]["changes"]] == ["joined", "left"]
    assert everything_in(made.out) == before
    again = fedopl("report", f"{made.out}+west-west")
    assert again.code == 0


def test_json_says_who_valued_what(tiny):
    made, later = tiny
    found = fedopl("join", made.out, later, "--out", made.folder / "json", "--json").json()
    assert found["values"] == []
    assert {row["client"] for row in found["membership"]["values"]} == {"west"}
    assert found["membership"]["before"].startswith("The learned policy")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("join", "{run}", "{clients}/north"), "'north' is in this run already"),
        (("join", "{clients}", "{west}"), "expected the folder of a finished run"),
        (("join", "{run}", "{folder}/nobody"), "nobody"),
        (("join", "{run}", "{west}", "--share", "0.2"), "leave the share out"),
        (("leave", "{run}", "east"), "'east' is not in this run; clients in it: 'north', 'south'"),
        (("leave", "{run}", "north"), "2 clients must stay"),
    ],
)
def test_mistakes_end_in_one_line(tiny, arguments, found):
    made, later = tiny
    places = {"run": made.out, "clients": made.clients, "west": later, "folder": made.folder}
    done = fedopl(*(argument.format(**places) for argument in arguments))
    assert done.code == 1
    assert found in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1
