"""Guardrails: policies are valued by further outcomes, which tell no more of anybody."""

from functools import lru_cache

import numpy as np
import pytest

import fedopl
from fedopl.base.labels import GLOBAL
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.outcome_workspace import size_of_events
from fedopl.report.recommending import recommend
from fedopl.results.value_tables import LEARNED, LOCAL, LOGGING, arm_name

ARMS = ("usual", "new")
LOCALLY = fedopl.NuisancePlan(kind="local", propensity="marginal")
NEW, USUAL = arm_name("new"), arm_name("usual")


def guardrail(**more):
    return fedopl.Guardrail(**{"column": "death", "more_than": "what was done", **more})


def client(seed, harm=0.0, n_rows=1200, **changes):
    """Rows where the new arm gains, more so where x₁ is large, and adds to deaths."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 2))
    actions = rng.integers(0, 2, n_rows)
    gain = (contexts[:, 0] + 1) * actions + rng.standard_normal(n_rows)
    death = (rng.random(n_rows) < 0.2 + harm * actions).astype(float)
    days = 10 - 2 * death + rng.standard_normal(n_rows)
    fields = {"rewards": gain, "outcomes": {"death": death, "days": days}, **changes}
    return fedopl.LoggedData(contexts, actions, action_names=ARMS, **fields)


def learned(clients, guardrails, **more):
    settings = {"nuisances": LOCALLY, "basis": "linear", "evaluation": 0.5, **more}
    return fedopl.learn(clients, guardrails=guardrails, **settings)


# --- federated equals pooled ----------------------------------------------------------------------


def test_values_of_a_guardrail_are_those_of_a_study_of_its_column(monkeypatch):
    """Bit for bit but for an event's doubt; so what is known of values is known of guardrails."""
    monkeypatch.setattr(PrivateDraws, "split_seed", lambda *_: 7)  # the same rows held out
    clients = {name: client(turn, 0.1) for turn, name in enumerate("abc")}
    rules = {"death": guardrail(at_most=0.1), "days": guardrail(column="days", at_most=1.0)}
    found = learned(clients, rules, policy=fedopl.Finite())
    for place, column in enumerate(("death", "days")):
        as_main = {
            name: client(turn, 0.1, rewards=data.outcomes[:, place], outcomes=None)
            for turn, (name, data) in enumerate(clients.items())
        }
        alone = learned(as_main, None, policy=fedopl.Finite())
        for policy in (NEW, USUAL, LOGGING):
            for where in (GLOBAL, *clients):
                ours = found.outcomes.of(column, policy, where)
                theirs = alone.values.of(policy, where)
                assert ours.value == pytest.approx(theirs.value, rel=1e-12)
                assert ours.n_rows == theirs.n_rows
                if where != GLOBAL:
                    size = 2 * size_of_events(clients[where], column) / ours.n_rows
                    expected = np.hypot(theirs.standard_error, size)
                    assert ours.standard_error == pytest.approx(expected, rel=1e-9)
    assert {row.policy for row in found.outcomes.rows} == {NEW, USUAL, LOGGING, LOCAL}


def test_rows_on_disk_give_the_same(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    from fedopl.client.rows.chunks import ROWS_PER_CHUNK

    schema = fedopl.Schema(
        action="arm",
        actions=["0", "1"],
        reward="gain",
        direction="lower",
        numeric=["x0", "x1"],
        outcomes=["death", "days"],
    )
    read = {}
    for where in ("memory", "disk"):
        read[where] = {}
        for turn, name in enumerate("ab"):
            data = client(turn)
            columns = {"x0": data.contexts[:, 0], "x1": data.contexts[:, 1], "gain": data.rewards}
            columns |= {"arm": data.actions, "death": data.outcomes[:, 0]}
            path = tmp_path / f"{name}.parquet"
            if not path.exists():
                parquet.write_table(pa.table({**columns, "days": data.outcomes[:, 1]}), path)
            on_disk = tmp_path / f"{name}-rows" if where == "disk" else None
            read[where][name] = fedopl.read_logged(path, schema, on_disk=on_disk)
    assert ROWS_PER_CHUNK > 1200  # one chunk each: sums are then in the same order
    rules = {"days": guardrail(column="days", at_most=1.0, more_than=None, less_than="1")}
    memory, disk = (learned(read[where], rules) for where in ("memory", "disk"))
    assert [row.verdict for row in memory.guardrails.rows] == [
        row.verdict for row in disk.guardrails.rows
    ]
    for ours, theirs in zip(disk.outcomes.rows, memory.outcomes.rows, strict=True):
        assert ours.estimate.value == pytest.approx(theirs.estimate.value, rel=1e-9)
        assert ours.estimate.standard_error == pytest.approx(
            theirs.estimate.standard_error, rel=1e-9
        )


def test_costs_are_of_the_first_outcome_alone():
    clients = {name: client(turn) for turn, name in enumerate("ab")}
    rules = {"death": guardrail(at_most=0.1)}
    costs = {"new": 3.0}
    free, dear = (learned(clients, rules, policy="finite", costs=c) for c in (None, costs))
    assert dear.values.of(NEW).value < free.values.of(NEW).value - 2
    size = max(row.estimate.standard_error for row in free.outcomes.rows)
    for policy in (NEW, USUAL, LOGGING):  # other rows are held out: it is another study
        pair = [run.outcomes.of("death", policy).value for run in (free, dear)]
        assert abs(pair[0] - pair[1]) < 6 * size


# --- what follows from it -------------------------------------------------------------------------


@lru_cache
def run_with(harm, direction):
    """The same study with outcomes to be raised, or to be lowered."""
    clients = {name: client(turn, harm, 2400) for turn, name in enumerate("abc")}
    if direction == "lower":  # as a table of which less is better is read
        schema = fedopl.Schema(
            action="arm",
            actions=ARMS,
            reward="gain",
            direction="lower",
            numeric=["x0", "x1"],
            outcomes=["death", "days"],
        )
        clients = {
            name: client(turn, harm, 2400, schema=schema, feature_names=["x0", "x1"])
            for turn, name in enumerate("abc")
        }
    rules = {
        "death": guardrail(at_most=0.06),
        "days": guardrail(column="days", at_most=0.3, more_than=None, less_than="usual"),
    }
    return learned(clients, rules)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_policy_that_keeps_guardrails_is_recommended_and_one_that_breaks_them_is_not(direction):
    safe, harmful = run_with(0.0, direction), run_with(0.3, direction)
    assert safe.guardrails.keeps_all(LEARNED)
    assert recommend(safe).policy == LEARNED
    assert "is shown to keep every guardrail: at most 0.06 more death" in recommend(safe).detail
    assert safe.verdict.startswith("The learned policy beats")
    rows = harmful.guardrails.of(LEARNED)
    assert {name: row.verdict for name, row in rows.items()} == {
        "death": "broken",
        "days": "broken",
    }
    assert harmful.guardrails.of(USUAL)["death"].verdict == "kept"
    assert harmful.guardrails.of(LOGGING)["death"].verdict == "kept"  # as it is itself
    first = "The learned policy does not keep every guardrail: 'death' (at most 0.06 more"
    assert harmful.verdict.startswith(first)
    assert recommend(harmful).sentence.startswith(first)
    assert recommend(harmful).policy != LEARNED
    # What was done is not shown to keep 'days', so nothing is.
    assert recommend(harmful).tone == "nothing"


def test_less_than_at_least_asks_for_a_gain_and_what_was_done_has_none():
    clients = {name: client(turn, -0.15, 2400) for turn, name in enumerate("abc")}
    asked = {"fewer deaths": guardrail(at_least=0.02, more_than=None, less_than="what was done")}
    found = learned(clients, asked)
    assert found.guardrails.of(NEW)["fewer deaths"].verdict == "kept"
    assert found.guardrails.of(USUAL)["fewer deaths"].verdict == "broken"
    assert found.guardrails.of(LOGGING)["fewer deaths"].verdict == "broken"


def test_bounds_hold_for_all_policies_and_guardrails_together():
    found = run_with(0.0, "higher")
    levels = {row.level for row in found.guardrails.rows}
    # Learned and two arms beside what was done; learned, an arm and what was done beside an arm.
    assert levels == {1 - 2 * 0.05 / 6}


def test_where_a_client_cannot_value_an_outcome_nothing_is_shown():
    one = client(1)
    death, days = one.outcomes.T
    clients = {"a": client(0), "b": client(1, outcomes={"death": 1e10 * death, "days": days})}
    found = learned(clients, {"death": guardrail(at_most=5.0)}, limits="guarded")
    assert {row.verdict for row in found.guardrails.rows} == {"not shown"}
    assert "as not every client could value it" in found.verdict
