from dataclasses import replace

import numpy as np
import pytest

from fedopl.report.recommending import key_figures, recommend
from fedopl.report.words.numbers import Span, alike, decimal, listed, percent, size
from fedopl.results.value_tables import GainTable, ImprovementTable, ValueTable
from fedopl.study.plans import EvaluationPlan
from report_runs import with_gains

NO_TABLES = {
    "values": ValueTable(()),
    "gains": GainTable(()),
    "improvements": ImprovementTable(()),
}
CLEAR, LOSS, UNCLEAR = (0.41, 0.097), (-0.41, 0.097), (0.1, 0.1)


def test_a_clear_gain_over_past_and_arm_says_use_it(run):
    found = recommend(with_gains(run, arm=CLEAR, past=CLEAR, arms={run.best_arm: CLEAR}))
    assert found.sentence == (
        "Use the learned policy: compared with what was done so far, that is expected to gain "
        "0.41 reward per decision (97.5 % interval 0.19 to 0.63)."
    )
    assert (found.tone, found.policy) == ("change", "learned")
    assert found.detail.startswith(
        f"Compared with giving everybody '{run.best_arm}', it is better, expected to gain"
    )


def test_an_arm_that_beats_the_past_comes_before_a_policy_that_does_not_beat_the_arm(run):
    found = recommend(with_gains(run, arm=UNCLEAR, past=CLEAR, arms={run.best_arm: CLEAR}))
    assert found.sentence.startswith(
        f"Give everybody '{run.best_arm}': compared with what was done so far, that is expected to "
        "gain 0.41 reward"
    )
    assert found.detail == (
        "Compared with that, the learned policy is not demonstrably better, expected to gain 0.10 "
        "reward per decision (95 % interval −0.10 to 0.30)."
    )
    assert found.policy == f"everybody gets {run.best_arm}"


def test_an_arm_is_not_recommended_without_a_test_against_the_past(run):
    found = recommend(with_gains(run, arm=UNCLEAR, past=UNCLEAR))
    assert found.sentence.startswith(
        "Keep to what was done so far: the learned policy is not demonstrably better, expected to "
        "gain 0.10"
    )
    assert (found.tone, found.policy) == ("keep", "logging policy")
    assert f"giving everybody '{run.best_arm}', which was best on the rows" in found.detail


def test_a_policy_that_beats_the_past_is_used_where_no_arm_does(run):
    found = recommend(with_gains(run, arm=UNCLEAR, past=CLEAR))
    assert found.sentence.startswith("Use the learned policy")
    assert "it is not demonstrably better, expected to gain 0.10" in found.detail


@pytest.mark.parametrize("arm", [CLEAR, UNCLEAR, LOSS])
def test_a_policy_worse_than_the_past_is_never_recommended(run, arm):
    found = recommend(with_gains(run, arm=arm, past=LOSS))
    assert found.sentence.startswith("Keep to what was done so far: the learned policy is worse")
    assert found.tone == "keep"


def test_what_too_few_rows_speak_for_is_not_recommended(run):
    reported = {
        name: replace(own, effective_rows=np.array([100.0, 12.0, 100.0]))
        for name, own in run.described.by_client.items()
    }
    thin = replace(run, described=replace(run.described, by_client=reported))
    found = recommend(with_gains(thin, arm=CLEAR, past=CLEAR, arms={"new drug": CLEAR}))
    assert found.policy == "logging policy"
    assert "seems better, expected to gain 0.41" in found.sentence
    assert "but too few rows support 'new drug': fewer than 30 effective ones" in found.sentence


def test_tiles_say_whose_numbers_they_are_and_begin_with_what_is_recommended(run):
    arm = with_gains(run, arm=UNCLEAR, past=UNCLEAR, arms={run.best_arm: CLEAR})
    what = [figure[0] for figure in key_figures(arm)]
    assert what[0] == f"Everybody gets '{run.best_arm}': expected reward"
    assert what[1] == f"Everybody gets '{run.best_arm}': gain over what was done so far"
    assert what[2] == "The learned policy: gain over what was done so far"
    keep = key_figures(with_gains(run, arm=UNCLEAR, past=UNCLEAR))
    assert keep[0][0] == "What was done so far: expected reward"
    assert float(keep[0][1]) == pytest.approx(run.values.of("logging policy").value, abs=0.1)


def test_a_policy_that_never_differs_from_the_arm_says_so(run):
    found = recommend(with_gains(run, arm=(0.0, 0.0), past=CLEAR, arms={run.best_arm: CLEAR}))
    assert "decides the same on all rows" in found.detail


def test_where_less_is_better_a_gain_lowers_the_outcome(lower):
    sentence = recommend(with_gains(lower, arm=CLEAR, past=CLEAR)).sentence
    assert "expected to lower readmissions by 0.41 per decision (97.5 % interval 0.19" in sentence
    assert "to raise readmissions by 0.41" in (
        recommend(with_gains(lower, arm=CLEAR, past=LOSS)).sentence
    )


def test_where_less_is_better_values_read_as_they_were_logged(lower):
    figures = {what: number for what, number, _ in key_figures(lower)}
    assert float(figures["The learned policy: expected readmissions"]) == pytest.approx(
        lower.values.of("learned").value, abs=0.01
    )


def test_without_held_out_rows_nothing_is_claimed(run):
    study = run.study.model_copy(update={"evaluation": EvaluationPlan(share=0)})
    bare = replace(run, study=study, **NO_TABLES)
    found = recommend(bare)
    assert found.sentence.startswith("No recommendation: no rows were held out")
    assert found.tone == "nothing"
    assert "nothing can be claimed" in str(key_figures(bare))


def test_without_reported_values_nothing_is_claimed(run):
    bare = replace(run, **NO_TABLES)
    assert "no client reported values" in recommend(bare).sentence


def test_a_finite_policy_is_recommended_by_name(finite):
    assert finite.chosen == "severe"
    assert recommend(finite).sentence.startswith("Use the policy 'severe': compared with what was")


def test_an_arm_that_came_out_best_is_recommended_only_if_it_beats_the_past(run):
    keep = with_gains(run, arm=CLEAR, past=UNCLEAR, arms={"new drug": UNCLEAR})
    arm = replace(keep, chosen="everybody gets new drug", best_arm="new drug")
    assert recommend(arm).sentence.startswith(
        "Keep to what was done so far: giving everybody 'new drug' is not demonstrably better"
    )
    clear = with_gains(run, arm=CLEAR, past=UNCLEAR, arms={"new drug": CLEAR})
    past = replace(clear, chosen="everybody gets new drug", best_arm="new drug")
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
