from dataclasses import replace

import pytest

from fedopl.report.recommending import key_figures, recommend
from fedopl.report.words.numbers import Span, alike, decimal, listed, percent, size
from fedopl.results.value_tables import GainTable, ValueTable
from fedopl.study.plans import EvaluationPlan
from report_runs import with_gains

CLEAR, LOSS, UNCLEAR = (0.41, 0.097), (-0.41, 0.097), (0.1, 0.1)


def test_a_clear_gain_over_arm_and_past_says_use_it(run):
    found = recommend(with_gains(run, arm=CLEAR, past=CLEAR))
    assert found.sentence == (
        f"Use the learned policy: compared with giving everybody '{run.best_arm}', it is expected "
        "to gain 0.41 reward per decision (95 % interval 0.22 to 0.60)."
    )
    assert found.tone == "change"
    assert found.detail.startswith("Compared with what was done so far, it is expected to gain")


def test_no_clear_gain_over_the_arm_says_give_everybody_the_same(run):
    found = recommend(with_gains(run, arm=UNCLEAR, past=CLEAR))
    assert found.sentence == (
        f"Give everybody '{run.best_arm}': the learned policy is not demonstrably better, expected "
        "to gain 0.10 reward per decision (95 % interval −0.10 to 0.30)."
    )


def test_no_clear_gain_over_anything_leaves_both_open(run):
    sentence = recommend(with_gains(run, arm=UNCLEAR, past=UNCLEAR)).sentence
    assert sentence.startswith(
        f"Give everybody '{run.best_arm}', or keep to what was done so far: the learned policy is "
        "not demonstrably better"
    )


def test_a_policy_worse_than_the_arm_is_called_worse(run):
    sentence = recommend(with_gains(run, arm=LOSS, past=CLEAR)).sentence
    assert sentence.startswith(
        f"Give everybody '{run.best_arm}': the learned policy is worse, expected to lose 0.41 "
    )


@pytest.mark.parametrize("arm", [CLEAR, UNCLEAR, LOSS])
def test_a_policy_worse_than_the_past_is_never_recommended(run, arm):
    found = recommend(with_gains(run, arm=arm, past=LOSS))
    assert found.sentence.startswith("Keep to what was done so far: the learned policy is worse")
    assert found.tone == "keep"


def test_a_policy_that_only_beats_the_arm_is_no_case_for_a_change(run):
    found = recommend(with_gains(run, arm=CLEAR, past=UNCLEAR))
    assert found.sentence.startswith("No case for a change yet: the learned policy is better than")
    assert "not demonstrably better than what was done so far" in found.sentence


def test_a_policy_that_never_differs_from_the_arm_says_so(run):
    sentence = recommend(with_gains(run, arm=(0.0, 0.0), past=CLEAR)).sentence
    assert "decides just the same on all held-out rows" in sentence


def test_where_less_is_better_a_gain_lowers_the_outcome(lower):
    sentence = recommend(with_gains(lower, arm=CLEAR, past=CLEAR)).sentence
    assert "expected to lower readmissions by 0.41 per decision (95 % interval 0.22" in sentence
    assert "to raise readmissions by 0.41" in (
        recommend(with_gains(lower, arm=LOSS, past=CLEAR)).sentence
    )


def test_where_less_is_better_values_read_as_they_were_logged(lower):
    figures = {what: number for what, number, _ in key_figures(lower)}
    assert float(figures["Expected readmissions"]) == pytest.approx(
        -lower.values.of("learned").value, abs=0.01
    )


def test_without_held_out_rows_nothing_is_claimed(run):
    study = run.study.model_copy(update={"evaluation": EvaluationPlan(share=0)})
    bare = replace(run, study=study, values=ValueTable(()), gains=GainTable(()))
    found = recommend(bare)
    assert found.sentence.startswith("No recommendation: no rows were held out")
    assert found.tone == "nothing"
    assert "nothing can be claimed" in str(key_figures(bare))


def test_without_reported_values_nothing_is_claimed(run):
    bare = replace(run, values=ValueTable(()), gains=GainTable(()))
    assert "no client reported values" in recommend(bare).sentence


def test_a_finite_policy_is_recommended_by_name(finite):
    assert finite.chosen == "severe"
    assert recommend(finite).sentence.startswith("Use the policy 'severe': compared with giving")


def test_an_arm_that_does_not_beat_the_past_is_not_recommended(run):
    gains = with_gains(run, arm=CLEAR, past=UNCLEAR)
    arm = replace(gains, chosen="everybody gets new drug")
    assert recommend(arm).sentence.startswith(
        "Keep to what was done so far: giving everybody 'new drug' came out best of the "
        "candidates, but is not demonstrably better"
    )
    past = replace(with_gains(run, arm=CLEAR, past=CLEAR), chosen="everybody gets new drug")
    assert recommend(past).sentence.startswith("Give everybody 'new drug': compared with what was")


def test_numbers_have_the_digits_their_uncertainty_leaves():
    assert str(Span(value=1.2034, low=0.8626, high=1.5432)) == ("1.20 (95 % interval 0.86 to 1.54)")
    assert Span(value=0.45, low=0.004, high=0.9).interval == "0.004 to 0.900"
    assert str(Span(value=123456, low=119956, high=126956)) == (
        "123,500 (95 % interval 120,000 to 127,000)"
    )
    assert Span(value=1.0, low=float("-inf"), high=float("inf")).interval == "too few rows to tell"
    assert [
        s.number
        for s in alike([Span(value=1.5, low=1, high=2), Span(value=1, low=0.99, high=1.01)])
    ] == ["1.500", "1.000"]
    assert [decimal(n) for n in (0, -0.0001234, 1234.5, -3.14159)] == [
        "0.00",
        "−0.000123",
        "1,234",
        "−3.14",
    ]
    assert [percent(s) for s in (0.95, 0.983, 0.0001, 0)] == [
        "95 %",
        "98.3 %",
        "under 0.1 %",
        "0 %",
    ]
    assert [size(n) for n in (85, 1_340, 2_800_000)] == ["85 bytes", "1.34 KB", "2.8 MB"]
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"
