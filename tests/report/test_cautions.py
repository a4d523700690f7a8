from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.messages.answer_words import arrays_in_words
from fedopl.messages.refusal import REFUSALS, RefusalCode, in_words
from fedopl.messages.vocabulary import QUERIES
from fedopl.report.cautions import cautions
from fedopl.report.sections.action_overlap import action_overlap
from fedopl.report.sections.resting_on_clients import reliance_cautions
from report_runs import with_gains


def titles(record):
    return [caution.title for caution in cautions(record)]


def with_round(record, **changes):
    first = replace(record.rounds[0], **changes)
    return replace(record, rounds=(first, *record.rounds[1:]))


def test_a_run_without_trouble_has_no_cautions(run):
    assert cautions(run) == []


def test_an_interval_that_touches_zero_is_cautioned_of(run):
    found = cautions(with_gains(run, arm=(0.1, 0.1), past=(1, 0.1)))
    assert found[0].title == "No clear gain over a single action"
    assert "has the 95 % interval −0.10 to 0.30: it may be better, and it may be" in found[0].what


def test_who_reported_no_values_is_named_with_weight_and_reason(lower):
    missing, unheard = cautions(lower)
    assert missing.what == "south reported no values; 50 % of the weight is theirs."
    assert "“What policies are worth”: it does not report" in unheard.what


def test_rejected_and_silent_clients_are_named(run):
    trouble = with_round(run, rejected={"east": "the mean of one is not one"}, silent=("west",))
    said = " ".join(caution.what for caution in cautions(trouble))
    assert "east gave no answer to “Who takes part”: its answer was rejected" in said
    assert "west gave no answer" in said
    assert "it did not answer" in said


def test_thin_and_unlikely_actions_are_cautioned_of(run):
    reported = dict(run.described.by_client)
    chances = reported["north"].chances.copy()
    chances[1, :2] = 50
    reported["north"] = replace(
        reported["north"], chances=chances, effective_rows=np.array([100.0, 12.0, 100.0])
    )
    found = cautions(replace(run, described=replace(run.described, by_client=reported)))
    titles = [caution.title for caution in found]
    assert titles == ["Not identified for some rows", "Thin support", "Unlikely actions"]
    assert "at north ('new drug')" in found[1].what


def test_an_action_nobody_took_is_cautioned_of(run):
    sums = {
        name: replace(reported, shares=np.array([1.0, 1.0, 0.0]))
        for name, reported in run.statistics.sums.items()
    }
    lost = replace(run, statistics=replace(run.statistics, sums=sums))
    first = cautions(lost)[0]
    assert first.title == "An action without a score"
    assert "No client has a score for 'coaching': a model needs minimum_cell rows" in first.what
    assert "at clients with 4 / parameter_share rows to learn from" in first.what
    bare = cautions(replace(lost, described=None))[0]
    assert "for 'coaching': no row took it, or too few rows did" in bare.what
    taken = {
        n: replace(own, taken=own.taken * [1, 1, 0]) for n, own in run.described.by_client.items()
    }
    never = cautions(replace(lost, described=replace(run.described, by_client=taken)))[0]
    assert never.what == "No row, or next to none, took 'coaching'."


def test_an_action_that_too_few_took_to_score_is_not_called_untaken():
    """The named remedy is one that works."""

    def client(seed, names, n_rows=400, n_taken=16):
        rng = np.random.default_rng(seed)
        contexts, actions = rng.standard_normal((n_rows, 4)), rng.integers(0, 2, n_rows)
        actions[:n_taken] = len(names) - 1
        rewards = rng.standard_normal(n_rows)
        return fedopl.LoggedData(contexts, actions, rewards, action_names=names)

    def learned(*names):
        rows = {"north": client(1, names), "south": client(2, names)}
        quick = fedopl.NuisancePlan(propensity="marginal")
        return fedopl.learn(
            rows, basis="linear", limits="guarded", nuisances=quick, evaluation=0.25
        )

    (found,) = [one for one in cautions(learned("a", "b", "c")) if "without" in one.title]
    assert found.title == "An action without a score"
    assert "for 'c': a model needs minimum_cell rows of an action in every fold" in found.what
    assert "taken in 24 rows or more" in found.what
    assert "Nobody" not in found.what
    assert "joining it with another action" in found.advice
    joined = learned("a", "b or c")
    assert not joined.statistics.unknown(joined.mixture).any()
    assert not any("without" in caution.title for caution in cautions(joined))


@pytest.mark.parametrize("code", RefusalCode)
def test_every_refusal_has_words_and_a_way_out(code):
    found = in_words(code.name)
    assert found is REFUSALS[code]
    assert not found.why.endswith(".")
    assert found.remedy.endswith(".")


def test_every_query_has_words(run):
    assert all(query.title and query.content for query in QUERIES)
    assert all(arrays_in_words(query, run.study) for query in QUERIES)


def test_an_action_that_one_client_never_took_is_judged_by_others_and_said_so(run):
    reported = dict(run.described.by_client)
    taken = reported["north"].taken.copy()
    taken[..., 1] = 0
    reported["north"] = replace(reported["north"], taken=taken)
    changed = replace(run, described=replace(run.described, by_client=reported))
    found = {caution.title: caution for caution in cautions(changed)}
    assert "'new drug' at north" in found["Judged by others"].what
    assert "outcome model" in found["Judged by others"].advice
    masking = run.study.nuisances.model_copy(update={"unseen": "mask"})
    study = run.study.model_copy(update={"nuisances": masking})
    assert "Judged by others" not in titles(replace(changed, study=study))


def test_a_client_with_most_of_the_weight_is_named_with_the_rows_it_says_it_has(run):
    heavy = replace(run, mixture={"north": 0.8, "south": 0.2})
    found = cautions(heavy)[0]
    assert found.title == "Most weight on one client"
    assert "north has 80 % of the weight" in found.what
    assert titles(replace(run, mixture={"north": 0.6, "south": 0.4})) == []
    given = run.study.model_copy(update={"mixture": fedopl.mixture.given(heavy.mixture)})
    assert titles(replace(heavy, study=given)) == []


def test_nothing_rests_on_one_client_where_there_is_only_one(run):
    assert list(reliance_cautions(replace(run, mixture={"north": 1.0}))) == []


def uniform_trial(seed, n_actions, n_rows=3000):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.standard_normal((n_rows, 3)), rng.integers(0, n_actions, n_rows)
    names = [f"item {code}" for code in range(n_actions)]
    return fedopl.LoggedData(contexts, actions, rng.standard_normal(n_rows), action_names=names)


@pytest.mark.parametrize(("n_actions", "below"), [(3, "5 %"), (34, "1 %"), (60, None)])
def test_no_action_of_a_uniform_trial_is_called_unlikely(n_actions, below):
    clients = {name: uniform_trial(seed, n_actions) for seed, name in enumerate(["one", "two"])}
    plan = fedopl.NuisancePlan(propensity="marginal", folds=2)
    record = fedopl.learn(clients, basis="linear", nuisances=plan)
    assert "Unlikely actions" not in titles(record)
    (table,) = as_tables(action_overlap(record).parts)
    named = [header for header in table.headers if header.startswith("Chance below")]
    assert named == ([f"Chance below {below}"] if below else [])
    assert len({len(row) for row in (*table.rows, table.headers)}) == 1


def as_tables(parts):
    """The table of support, folded or not."""
    inner = [part for one in parts for part in getattr(one, "parts", (one,))]
    return [part for part in inner if getattr(part, "caption", "").startswith("Support of each")]


def test_an_action_that_some_hardly_ever_get_is_called_unlikely():
    def client(seed, n_rows=2000):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((n_rows, 2))
        chance = np.where(contexts[:, 0] > 1, 0.03, 0.4)
        drawn = rng.random(n_rows)
        actions = np.where(drawn < chance, 2, (drawn > 0.7).astype(int))
        known = np.where(actions == 2, chance, np.where(actions == 1, 0.3, 0.7 - chance))
        rewards = rng.standard_normal(n_rows)
        return fedopl.LoggedData(contexts, actions, rewards, known, action_names=["a", "b", "c"])

    record = fedopl.learn({"north": client(1), "south": client(2)}, basis="linear")
    (found,) = [one for one in cautions(record) if one.title == "Unlikely actions"]
    assert found.what.startswith("Some actions had a chance below 5 %: at north 'c' (for 1")
