"""How much the split moves the result: page, terminal and JSON say the same."""

import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape

import pytest

import fedopl
from fedopl.base.labels import GLOBAL
from fedopl.cli.run_summary import say_run
from fedopl.report.page import render
from fedopl.report.sections.held_out_values import moved_in_words, movements
from fedopl.results.value_tables import GainTable, ImprovementTable
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.study.plans import EvaluationPlan
from report_runs import patients

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(scope="module")
def several():
    clients = {"north": patients(1, 150), "south": patients(2, 150)}
    several = EvaluationPlan(share=0.25, splits=4)
    return fedopl.learn(clients, basis="linear", evaluation=several, personal="none")


@pytest.fixture(scope="module")
def crossed():
    clients = {"north": patients(1, 150), "south": patients(2, 150)}
    return fedopl.learn(
        clients, basis="linear", evaluation=EvaluationPlan(kind="cross-fitted", splits=2)
    )


def words(page):
    shown = re.sub(r"<(style|head)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]+>", " ", shown)).replace("\u00a0", " ")
    return " ".join(text.split())


def told(run, capsys, *, as_json):
    say_run(run, None, as_json=as_json)
    return capsys.readouterr().out


def test_page_terminal_and_programs_say_the_same(several, capsys):
    page, text = words(render(several)), told(several, capsys, as_json=False)
    found = json.loads(told(several, capsys, as_json=True))["splits"]
    sentences = moved_in_words(several)
    assert len(sentences) == 2
    assert "How much the split moves the result" in page
    for sentence in sentences:
        assert sentence in page
        assert sentence in text
    assert found["number"] == 4
    for in_json, movement in zip(found["gains"], movements(several), strict=True):
        assert in_json["against"] == movement.against
        assert in_json["verdicts"] == dict(movement.verdicts)
        assert [one["value"] for one in in_json["alone"]] == list(movement.gains)
        assert in_json["together"]["value"] == movement.together.estimate.value
        says = Counter(one["says"] for one in in_json["alone"])
        assert says == movement.verdicts


def test_verdict_recommendation_and_tables_go_by_what_all_splits_say_together(several):
    over_past, over_arm = movements(several)
    assert over_past.together == several.improvements.by_cell()["learned", GLOBAL]
    gain = several.gains.over(over_arm.against)
    assert f"{gain.value:+.4g}" in several.verdict
    assert several.recommendation.policy in ("learned", "logging policy", over_arm.against)
    low, high = over_past.together.interval
    assert (several.recommendation.policy == "logging policy") == (low <= 0 or high <= 0)
    values = sorted(one.gains.over(over_arm.against).value for one in several.splits)
    assert gain.value == pytest.approx((values[1] + values[2]) / 2)


def test_they_say_what_the_numbers_are_of_and_whose_policy_is_handed_out(several, capsys):
    page = words(render(several))
    assert "medians over them. They are values of the way of learning" in page
    assert "those of the first split" in page
    assert "in each of 4 splits" in page
    text = told(several, capsys, as_json=False)
    assert "medians over 4 splits of the same rows" in text
    assert "that of the first split" in text


def test_all_exchanges_are_counted_and_the_first_splits_are_shown(several):
    page = words(render(several))
    assert len(several.own_rounds) == 8
    assert "23 exchanges with the clients" in page  # descriptions are of the first split alone
    assert "the first split's; 3 others had the like without descriptions" in page
    assert "4 answers" in page  # of each kind, from each client
    assert [latest.exchange for latest in several.rounds] == list(range(23))
    assert len(several.rounds) == expected_exchanges(several.study, 2)
    assert several.rounds[-1].trip + 1 == expected_trips(several.study, 2) == 12


def test_one_split_claims_nothing_about_others(run, capsys):
    page, text = words(render(run)), told(run, capsys, as_json=False)
    assert "The rows were split once" in page
    assert "splits = 5 under [evaluation]" in page
    for said in (page, text):
        assert "How much the split moves" not in said
        assert "medians over" not in said
    assert json.loads(told(run, capsys, as_json=True))["splits"] == {"number": 1, "gains": []}


def test_cross_fitted_pages_still_speak_of_no_rows_held_out(crossed):
    page = words(render(crossed))
    assert "How much the split moves the result" in page
    assert not re.search("held-out|held out", page)


def test_a_split_without_values_is_a_dash_and_counts_for_nothing(several):
    first, *others = several.splits
    silent = replace(others[-1], gains=GainTable(), improvements=ImprovementTable())
    found = replace(several, splits=(first, *others[:-1], silent))
    assert all(sum(one.verdicts.values()) == 3 for one in movements(found))
    assert "nothing" in words(render(found))
    assert "of 3 splits would have said" in " ".join(moved_in_words(found))


def test_where_models_are_doubted_no_split_gives_a_verdict(several, monkeypatch, capsys):
    monkeypatch.setattr(type(several), "in_doubt", "in doubt")
    page, text = words(render(several)), told(several, capsys, as_json=False)
    for said in (page, text):
        assert "from split to split" in said
        assert "would have said" not in said
    found = json.loads(told(several, capsys, as_json=True))["splits"]["gains"]
    assert all(one["verdicts"] == {} and one["together"]["says"] is None for one in found)


def test_what_rests_on_one_client_is_judged_by_medians_too(several):
    for one in several.reliance.left_out:
        assert one.gain.degrees_of_freedom > 0
    assert several.reliance.left_out
