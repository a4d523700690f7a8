"""Where values are cross-fitted, no row was held out, and nothing that is said speaks of such."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest

import fedopl
from fedopl.cli.run_summary import say_run
from fedopl.report.page import render
from fedopl.results.reliance import Reliance
from fedopl.results.value_tables import GainTable, ImprovementTable, ValueTable
from report_runs import patients, with_gains

pytestmark = pytest.mark.usefixtures("without_figures")

UNTRUE = re.compile(r"h(?:eld|old)s?\b.{0,30}\bout\b|held-out", re.IGNORECASE)


@pytest.fixture(scope="module", params=["linear", "tree"])
def crossed(request):
    clients = {"north": patients(1), "south": patients(2), "west": patients(3, 100)}
    options = {"evaluation": "cross-fitted", "diagnose": True, "basis": "linear"}
    return fedopl.learn(clients, policy=request.param, **options)


def without_values(run):
    empty = {"values": ValueTable(), "gains": GainTable(), "improvements": ImprovementTable()}
    return replace(run, **empty, reliance=Reliance())


def runs(crossed):
    """The run as it is, and as it might have come out."""
    return {
        "as it is": crossed,
        "unclear": with_gains(crossed, arm=(0.1, 0.1), past=(0.1, 0.1)),
        "alike": with_gains(crossed, arm=(0.0, 0.0), past=(0.0, 0.0)),
        "no values": without_values(crossed),
    }


def words(page):
    shown = re.sub(r"<(style|head)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def untrue(text):
    return [text[max(0, m.start() - 60) : m.end() + 40] for m in UNTRUE.finditer(text)]


def test_the_words_looked_for_are_on_a_page_where_rows_were_held_out():
    run = fedopl.learn({"north": patients(1), "south": patients(2)}, evaluation=0.25)
    assert len(untrue(words(render(run)))) > 5


@pytest.mark.parametrize("how", ["as it is", "unclear", "alike", "no values"])
def test_no_page_and_no_summary_speaks_of_rows_held_out(crossed, how, capsys):
    run = runs(crossed)[how]
    assert untrue(words(render(run))) == []
    say_run(run, None, as_json=False)
    say_run(run, None, as_json=True)
    assert untrue(capsys.readouterr().out) == []


def test_the_page_says_which_rows_are_valued(crossed):
    page = words(render(crossed))
    assert "Rows valued, fold by fold Every row" in page
    assert "valued together with the learned policy, on the others' rows, fold by fold." in page
    assert "holds only a few policies" not in page
    assert "A member's own rows decide this only if" in page
    assert (
        "It is measured on all rows, at two policies learned to show it without each fold." in page
    )


def test_the_terminal_and_programs_are_told_what_is_valued(crossed, capsys):
    say_run(crossed, None, as_json=False)
    assert "Values are those of the way of learning" in capsys.readouterr().out
    say_run(crossed, None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["evaluation"], told["estimand"]) == ("cross-fitted", "way of learning")
