"""Whether joining pays, as the report says it: from real runs on worlds whose truth is known."""

import re
from dataclasses import replace

import pytest
from small_worlds import alike_world, outcome_shift

import fedopl
from fedopl.analysis.advice import advise
from fedopl.analysis.attribution import shifts_of
from fedopl.analysis.modelled_gains import global_bound, modelled
from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate
from fedopl.report.joining import advising, shifts
from fedopl.report.joining.advising import joining_facts
from fedopl.report.joining.alternatives import path_parts, shift_at
from fedopl.report.page import render
from fedopl.report.parts import Folded, Picture, Points, Table, as_text
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.joining import joining, joining_parts, reason_in_words
from fedopl.report.sections.mixture_weights import mixture_weights
from fedopl.results.value_tables import LOCAL
from fedopl.study.plans import Declared


def flat(parts):
    """All parts, also those that are folded."""
    for part in parts:
        if isinstance(part, Folded):
            yield from flat(part.parts)
        else:
            yield part


def words(parts):
    return " ".join(as_text(parts).split())


def tables(parts):
    return [part for part in flat(parts) if isinstance(part, Table)]


def table(parts, caption):
    (one,) = (part for part in tables(parts) if part.caption.startswith(caption))
    return one


def pictures(parts):
    return {part.name: part for part in flat(parts) if isinstance(part, Picture)}


# --- advice --------------------------------------------------------------------------------------


def test_where_clients_are_alike_and_have_few_rows_joining_pays_for_all(joined):
    parts = joining(joined).parts
    assert parts[0].text.startswith("Joining pays for client 1, client 2 and client 3.")
    assert [item.split(". ")[0] for item in parts[1].items] == [
        f"client {place}: join" for place in (1, 2, 3)
    ]


def test_where_clients_differ_much_the_advice_is_to_stay_alone_and_why_is_said(apart):
    parts = joining(apart).parts
    assert "It is better to stay alone for" in parts[0].text
    assert "most in what comes of its decisions (outcomes)" in words(parts)


def test_numbers_are_those_of_the_advice_and_of_the_bounds(joined):
    known = modelled(joined, shifts_of(joined))
    rows = {row[0]: row for row in table(joining(joined).parts, "Gain by joining").rows}
    for advice in advise(joined.gains):
        client, decision, gain, interval, alone, together, shift, value, above = rows[advice.client]
        assert decision == advice.decision
        assert float(gain) == pytest.approx(advice.gain.value, abs=0.01)
        assert float(interval.split(" to ")[0]) == pytest.approx(
            advice.gain.interval()[0], abs=0.01
        )
        parts = known[client].information
        assert float(alone) == pytest.approx(parts.alone, rel=0.01)
        assert float(together) == pytest.approx(parts.together, rel=0.01)
        assert float(shift) == pytest.approx(parts.shift, rel=0.01, abs=0.01)
        assert float(value) == pytest.approx(parts.value, rel=0.01)
        assert float(above) == pytest.approx(known[client].break_even, rel=0.01, abs=1e-3)


def test_the_bound_with_the_constants_of_the_proofs_is_given_and_called_useless(joined):
    said = words(joining(joined).parts)
    proven = re.search(r"the bound on the shared policy's regret is ([\d,.]+)", said)[1]
    total = global_bound(joined).total
    assert float(proven.replace(",", "")) == pytest.approx(total, rel=0.01)
    assert "bounds that large decide nothing" in said


def test_another_constant_changes_bounds_and_nothing_measured(joined):
    plain, large = (
        table(joining_parts(joined, constant=constant), "Gain by joining").rows
        for constant in (1.0, 10.0)
    )
    assert [row[:4] for row in plain] == [row[:4] for row in large]
    assert [row[8] for row in plain] == [row[8] for row in large]
    assert float(large[0][4]) == pytest.approx(10 * float(plain[0][4]), rel=0.01)


@pytest.mark.parametrize("constant", [0.0, -1.0, float("nan"), float("inf")])
def test_a_constant_that_is_none_is_refused(joined, constant):
    with pytest.raises(OptionError, match="constant: expected a number above 0"):
        joining_facts(joined, constant)


def test_each_clients_advice_stands_in_one_place(joined):
    assert "oining pays" not in words(by_client(joined).parts)


def test_a_run_that_did_not_ask_says_what_it_can_and_how_to_know_more(run):
    parts = joining(run).parts
    said = words(parts)
    assert "diagnose = true under [joining]" in said
    assert "learn(diagnose=True)" in said
    assert "The other two were not asked about." in said
    assert "More weight for one client" not in said
    assert "Largest source" not in table(parts, "Shift from").headers
    assert set(pictures(parts)) == {"shifts"}


def test_a_client_that_reported_no_values_has_no_advice(lower):
    said = words(joining(lower).parts)
    assert "south reported no values of rows" in said
    assert "south: " not in said


def test_one_client_has_nobody_to_join(finite):
    (part,) = joining(finite).parts
    assert part.text == "There is only one client, so there are no others to join."


def test_without_held_out_rows_nothing_is_claimed():
    world = alike_world(2, n_features=2)
    clients = {name: world.logged(name, 80) for name in world.clients}
    (part,) = joining(fedopl.learn(clients, basis="linear", evaluation=0)).parts
    assert "nothing is claimed about joining" in part.text


def test_one_client_can_be_asked_about(joined):
    said = words(joining_parts(joined, client="client 2"))
    assert said.startswith("Joining pays for client 2.")
    assert "client 1: " not in said
    with pytest.raises(OptionError, match=r"'bob' is not one of 'client 1'"):
        joining_parts(joined, client="bob")


# --- shift ---------------------------------------------------------------------------------------


def test_the_figure_of_shifts_names_the_largest_source_of_each_client(apart):
    picture = pictures(joining(apart).parts)["shifts"]
    assert picture.label.count("most in what comes of its decisions") == 2
    assert [key.mark for key in picture.keys] == ["●", "■", "◆"]
    assert picture.drawing.svg.count("outcomes") == 2


def test_sources_that_nobody_reported_are_marked_so(apart):
    silent = replace(apart, diagnosis=replace(apart.diagnosis, models=None))
    parts = joining(silent).parts
    picture = pictures(parts)["shifts"]
    assert picture.drawing.svg.count("not reported") == 4
    assert "the rest is not reported" in picture.label
    for row in table(parts, "Shift from").rows:
        assert row[2:] == ("not reported", "not reported", "not all reported")


def test_declared_bounds_show_how_loose_total_variation_is(apart):
    declared = apart.study.model_copy(update={"declared": Declared(reward=10, overlap=0.1)})
    parts = joining(replace(apart, study=declared)).parts
    rows = {row[0]: row for row in table(parts, "How far apart").rows}
    shifts = shifts_of(apart)
    for client, row in rows.items():
        assert float(row[-1].replace(",", "")) == pytest.approx(
            300 * shifts[client].joint, rel=0.01
        )
        gap = apart.diagnosis.discrepancies[client].gap.value
        assert float(row[-2].split(" ")[0]) == pytest.approx(gap, rel=0.05)
    assert re.search(r"U·TV, which Theorem 2 uses in its place, is [\d.,to ]+ times", words(parts))


def test_too_many_clients_are_not_compared_two_by_two(joined, monkeypatch):
    monkeypatch.setattr(advising, "MOST_APART", 2)
    monkeypatch.setattr(shifts, "MOST_APART", 2)
    parts = joining(joined).parts
    assert "How 3 clients differ by source is not worked out" not in words(parts)  # more is known
    assert "Gain by joining" in words(parts)
    assert "Alone" in table(parts, "Gain by joining").headers
    bare = words(joining(replace(joined, diagnosis=None)).parts)
    assert "How 3 clients differ by source is not worked out" in bare


def test_forty_clients_give_a_short_section(many):
    parts = joining(many).parts
    assert all(len(part.items) <= 12 for part in parts if isinstance(part, Points))
    shown = [part for part in parts if isinstance(part, Table)]
    assert all(len(one.rows) <= 30 for one in shown)
    assert len(table(parts, "Gain by joining").rows) == 40
    assert "Drawn are the 12 of 40" in pictures(parts)["shifts"].caption


# --- paths ---------------------------------------------------------------------------------------


def test_the_path_drawn_first_leads_to_whom_the_mixture_names_or_who_differs_most(apart):
    gaps = {name: one.regret_gap for name, one in apart.diagnosis.from_rows.items()}
    for toward in (None, *gaps):
        mixture = fedopl.mixture.path(toward) if toward else apart.study.mixture
        record = replace(apart, study=apart.study.model_copy(update={"mixture": mixture}))
        parts = path_parts(joining_facts(record))
        named = toward or max(gaps, key=gaps.get)
        assert parts[2].text == apart.diagnosis.paths[named].verdict
        kinds = [part.kind for part in parts]
        assert kinds == ["heading", "text", "text", "picture", "table", "folded"]


def test_the_table_of_a_path_has_the_numbers_of_its_points(joined):
    client = max(
        joined.diagnosis.from_rows, key=lambda name: joined.diagnosis.from_rows[name].regret_gap
    )
    rows = table(joining(joined).parts, f"From all together to {client}").rows
    path, about = joined.diagnosis.paths[client], joining_facts(joined)
    assert [float(row[0]) for row in rows] == [point.alpha for point in path.points]
    for row, point in zip(rows, path.points, strict=True):
        assert float(row[1]) == pytest.approx(point.skewness, abs=0.005)
        assert float(row[2]) == pytest.approx(point.effective_rows, abs=0.5)
        assert float(row[3]) == pytest.approx(shift_at(about, client, point), rel=0.01, abs=0.001)
        assert float(row[5].replace("−", "-")) == pytest.approx(point.at_target.value, abs=0.02)
    assert rows[0][6] == "–"
    assert rows[-1][3] == "0.00"


def test_it_is_said_where_the_data_cannot_tell_mixtures_apart(joined):
    diagnosis = joined.diagnosis
    wide = {
        name: replace(
            path,
            points=tuple(
                replace(p, target_gain=_unsure(p.target_gain), base_gain=_unsure(p.base_gain))
                for p in path.points
            ),
        )
        for name, path in diagnosis.paths.items()
    }
    said = words(joining(replace(joined, diagnosis=replace(diagnosis, paths=wide))).parts)
    assert said.count("The data cannot show which mixture is best, from n̄ to client") == 3


def _unsure(estimate):
    return Estimate(**{**vars(estimate), "standard_error": 10.0})


# --- coalitions ----------------------------------------------------------------------------------


def test_coalitions_are_listed_with_what_each_member_gains(joined):
    coalitions = joined.diagnosis.coalitions
    parts = joining(joined).parts
    one = table(parts, "What learning together brings")
    assert [row[0] for row in one.rows] == [
        "everybody together",
        "client 1 + client 2",
        "client 1 + client 3",
        "client 2 + client 3",
    ]
    for row, coalition in zip(one.rows, coalitions.compared, strict=True):
        assert row[1] == coalition.stability
        for cell, name in zip(row[2:], coalitions.clients, strict=True):
            if name not in coalition.members:
                assert cell == "–"
            else:
                assert float(cell.split(" ± ")[0]) == pytest.approx(
                    coalition.gains[name].value, abs=0.006
                )
    said = words(parts)
    assert "These intervals hold for all 4 coalitions together" in said
    assert re.search(r"client 2 gains from learning with client 1 alone: 0\.\d+ per decision", said)
    assert len(table(parts, "Worth of each client's data").rows) == 3


def test_with_many_coalitions_the_most_telling_are_shown_when_asked_for():
    world = outcome_shift(alike_world(6, n_features=2), 0.5)
    clients = {name: world.logged(name, 120) for name in world.clients}
    quick = fedopl.NuisancePlan(propensity="marginal", folds=2)
    run = fedopl.learn(
        clients,
        basis="linear",
        diagnose=True,
        evaluation=fedopl.EvaluationPlan(describe=False),
        nuisances=quick,
    )
    parts = joining_parts(run)
    (folded,) = (p for p in parts if isinstance(p, Folded) and "member by member" in p.summary)
    assert len(folded.parts[0].rows) == 26
    assert folded.parts[0].rows[0][0] == "everybody together"
    assert "26 of 57 coalitions" in folded.parts[0].caption


# --- what is not known ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (
            "values: none reported by 'a', 'b', who count here",
            "not known, as 'a', 'b' did not report what some policies are worth.",
        ),
        (
            "values: 'a', 'b' reported none, and their weights are not 0",
            "not known, as 'a', 'b' did not report what some policies are worth.",
        ),
        (
            "coalitions: expected 2 to 100 clients, came 120",
            "not known, as they are compared for up to 100 clients.",
        ),
        (
            "coalitions: of 2 to 100 clients, came 120",
            "not known, as they are compared for up to 100 clients.",
        ),
        ("something else went wrong", "not known. something else went wrong."),
        (
            "tree: only trees of depth 1 and 2 can be solved again for other weights",
            "not known, as deeper trees were grown by asking again, and cannot be found for other "
            "weights.",
        ),
    ],
)
def test_what_is_not_known_is_said_in_plain_words(why, said, joined):
    assert reason_in_words(why) == said
    diagnosis = replace(joined.diagnosis, coalitions=None, unknown={"coalitions": why})
    text = words(joining(replace(joined, diagnosis=diagnosis)).parts)
    assert f"What is not known ───────────────── - Who would learn with whom: {said}" in text


# --- how weights were found ----------------------------------------------------------------------


def test_an_ascent_is_shown_with_regrets_before_and_after(apart):
    parts = mixture_weights(apart).parts
    search = apart.search
    assert "the client that loses most" in parts[0].text
    assert set(pictures(parts)) == {"ascent", "ascent-weights"}
    ended = f"after {len(search.trace)} steps"
    assert (f"converged {ended}." if search.converged else f"ended {ended} without") in words(parts)
    for row in table(parts, "Regret on training rows").rows:
        assert float(row[1].replace("−", "-")) == pytest.approx(
            search.trace[0].regrets[row[0]], rel=0.01, abs=0.01
        )
        assert float(row[2].replace("−", "-")) == pytest.approx(
            search.regrets[row[0]], rel=0.01, abs=0.01
        )


def test_the_floor_of_the_game_is_never_claimed_where_something_better_was_found(apart):
    search = apart.search
    for largest, said in (
        (search.at_least - 0.1, "does better"),
        (search.at_least + 0.1, "No pol"),
    ):
        regrets = dict.fromkeys(search.regrets, largest)
        record = replace(apart, search=replace(search, regrets=regrets))
        assert said in mixture_weights(record).parts[-1].text


@pytest.mark.parametrize("sure", [True, False])
def test_a_path_is_shown_with_what_was_tried_and_why_that_was_chosen(joined, sure):
    path = joined.diagnosis.paths["client 1"]
    gains = [(0.0, 0.0), *((0.1 * place, 0.01 if sure else 1.0) for place in range(1, 6))]
    points = tuple(
        replace(point, target_gain=replace(point.target_gain, value=value, standard_error=error))
        for point, (value, error) in zip(path.points, gains, strict=True)
    )
    study = joined.study.model_copy(update={"mixture": fedopl.mixture.path("client 1")})
    parts = mixture_weights(replace(joined, study=study, search=replace(path, points=points))).parts
    rows = table(parts, "Mixtures tried").rows
    chosen = [row[0] for row in rows if row[-1] == "chosen"]
    assert chosen == (["1"] if sure else ["0"])
    said = words(parts)
    assert ("more than chance would show" if sure else "Chance may show as much") in said
    assert "rows kept back" in said


# --- the page ------------------------------------------------------------------------------------


def test_names_are_shown_and_never_markup(apart, html_of):
    text = html_of("apart")
    assert "&lt;script&gt;alert(&#39;n&#39;)&lt;/script&gt; north: stay alone" in text
    assert "<script" not in text
    assert "南" in text
    assert render(apart) == text


def test_gains_stay_gains_where_less_is_better(joined):
    table_of = fedopl.Schema(
        action="arm",
        actions=joined.study.actions,
        reward="days",
        direction="lower",
        numeric=joined.study.features,
    )
    record = replace(joined, study=joined.study.model_copy(update={"table": table_of}))
    path = joined.diagnosis.paths["client 1"]
    row = table(joining(record).parts, "From all together to client 1").rows[0]
    assert float(row[5].replace("−", "-")) == pytest.approx(
        path.points[0].at_target.value, abs=0.02
    )
    gain = next(r for r in record.gains.rows if (r.against, r.client) == (LOCAL, "client 1"))
    shown = table(joining(record).parts, "Gain by joining in days").rows[0][2]
    assert float(shown) == pytest.approx(gain.estimate.value, abs=0.01)
