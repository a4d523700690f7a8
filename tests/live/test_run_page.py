"""What the page of a run says after each exchange, without a browser."""

import json
from dataclasses import replace

import pytest

from fedopl.live.run_page import MOST_CLIENT_ROWS, RunPage
from fedopl.results.files.table_files import ProgressFile
from fedopl.results.round import Round
from fedopl.study.study_file import read_study

PRIVATE = """
name = "Private"
[outcome]
column = "y"
direction = "higher"
[action]
column = "a"
levels = ["p", "q"]
[features]
x = "number"
[declared]
overlap = 0.5
[privacy]
epsilon = 2
delta = 1e-6
outcome = [0, 1]
ranges = { x = [0, 10] }
"""
ENROLLED = Round(
    exchange=0,
    trip=0,
    query="Enrol",
    asked=("north", "south", "west"),
    answered=("north",),
    refused={"south": "TOO_FEW_ROWS"},
    rejected={},
    silent=("west",),
    bytes_sent=432,
    received={"north": 77, "south": 40},
)


@pytest.fixture
def private_page(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(PRIVATE)
    return RunPage(read_study(path)[0])


def shown(page):
    """Every element's text and every table's rows, as the page has them in the end."""
    texts, tables = {}, {}
    for event in map(json.loads, page.events.after(0, 0)[0]):
        if event["kind"] == "text":
            texts[event["id"]] = event["text"]
        elif event["kind"] == "row":
            tables.setdefault(event["id"], {})[event["key"]] = event["cells"]
    return texts, tables


def test_each_client_has_its_state_in_words(run_page):
    run_page.begin(ENROLLED.asked, 6)
    run_page.tell(ENROLLED)
    texts, tables = shown(run_page)
    clients = tables["clients"]
    assert clients["north"] == ["north", "answered", "1", "77 bytes"]
    assert clients["south"][1] == (
        "refused “Who takes part”: it has fewer rows than it takes part with"
    )
    assert clients["west"][1:] == ["no answer to “Who takes part”", "0", "0 bytes"]
    assert tables["exchanges"]["0"][:4] == [
        "1. Who takes part",
        "1 of 3; refused: south (TOO_FEW_ROWS); no answer: west",
        "432 bytes",
        "117 bytes",
    ]
    assert texts["done"] == "1 of 6 exchanges at most is done"
    assert "privacy" not in texts


def test_an_exchange_that_came_to_more_is_shown_in_its_place(run_page):
    run_page.begin(ENROLLED.asked, 6)
    run_page.tell(ENROLLED)
    run_page.tell(replace(ENROLLED, loss=0.25, value=1.5))
    texts, tables = shown(run_page)
    assert tables["exchanges"]["0"][4:] == ["0.25", "1.5"]
    assert (texts["loss"], texts["value"]) == ("0.25", "1.5")
    assert texts["done"] == "1 of 6 exchanges at most is done"


def test_privacy_is_spent_by_the_first_answer_and_by_one_that_failed(private_page):
    private_page.begin(ENROLLED.asked, 6)
    assert shown(private_page)[0]["privacy"] == "nothing yet"
    private_page.tell(ENROLLED)
    texts, tables = shown(private_page)
    assert texts["privacy"] == "ε = 2 at 1 client"
    spent = {name: cells[-1] for name, cells in tables["clients"].items()}
    assert spent == {"north": "ε = 2", "south": "nothing yet", "west": "nothing yet"}
    failed = {"west": "FAILED"}
    private_page.tell(replace(ENROLLED, exchange=1, refused=failed, silent=(), trip=1))
    texts, tables = shown(private_page)
    assert texts["privacy"] == "ε = 2 at 2 clients"
    assert tables["clients"]["west"][-1] == "ε = 2"
    assert "δ = 1e-06" in private_page.privacy_note
    assert "Privacy spent" in private_page.html()


def test_of_many_clients_some_have_no_row(run_page):
    names = tuple(f"c{k:04}" for k in range(MOST_CLIENT_ROWS + 5))
    run_page.begin(names, 6)
    run_page.tell(replace(ENROLLED, asked=names, answered=names, refused={}, silent=()))
    clients = shown(run_page)[1]["clients"]
    assert len(clients) == MOST_CLIENT_ROWS + 1
    assert clients[""][:2] == ["and 5 more", "in the report"]


def test_letters_that_make_a_name_read_as_another_are_not_shown(run_page):
    run_page.begin(("north\u202eevil",), 1)
    (cells,) = shown(run_page)[1]["clients"].values()
    assert cells[0] == "north�evil"


def test_a_run_in_another_process_is_followed_by_its_file(tmp_path):
    file = ProgressFile(tmp_path / "progress.jsonl")
    assert (list(file.since(0)[0]), file.since(0)[1]) == ([], 0)
    file.tell(ENROLLED)
    found, position = file.since(0)
    assert list(found) == [ENROLLED]
    with file.path.open("ab") as half:
        half.write(b'{"exchange": 1')
    assert (list(file.since(position)[0]), file.since(position)[1]) == ([], position)
    file.clear()
    ProgressFile(tmp_path / "nowhere" / "progress.jsonl").tell(ENROLLED)  # which stops no run
