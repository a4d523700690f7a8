"""A site without outcomes: what is said of it is what pooled rows say, whoever is asked when.

Nothing is claimed where the target has people nobody has seen, where few rows look like it, or
where sources disagree.
"""

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import OptionError, PrivacyError, StudyError
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.message import RowSplit
from fedopl.report.page import render
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_trips
from fedopl.server.federation import run_study
from fedopl.solvers.entropy_balance import balance
from fedopl.study.plans import TargetPlan
from fedopl.study.study import Study

pytestmark = pytest.mark.usefixtures("without_figures")

ACTIONS = ("usual", "new")


def means_of(x):
    return np.column_stack([x[:, 0], 0.5 * x[:, 1] + 0.3])


def logged(seed, n_rows=500, middle=0.0, odd=0.0, **more):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 3)) + middle
    actions = rng.integers(0, 2, n_rows)
    y = means_of(x)[np.arange(n_rows), actions] + odd * actions + rng.standard_normal(n_rows)
    return fedopl.LoggedData(x, actions, y, 0.5, action_names=ACTIONS, **more)


def contexts(n_rows=400, middle=0.4, seed=50, **more):
    rng = np.random.default_rng(seed)
    return fedopl.Contexts(rng.standard_normal((n_rows, 3)) + middle, **more)


CLIENTS = {name: logged(seed, middle=0.1 * seed) for seed, name in enumerate("abc")}
THERE = contexts()


def learned(clients=CLIENTS, target=THERE, **options):
    return fedopl.learn(
        clients, target=target, **{"evaluation": 0.25, "basis": "linear", **options}
    )


def opened(clients, plan):
    """The doors of these sources and of the target, after a run, and its record."""
    domain = {"actions": ACTIONS, "features": THERE.feature_names}
    study = Study(**domain, target=plan, evaluation=0.25)
    rows = {**clients, "new": THERE.as_rows(ACTIONS)}
    doors = {
        name: Door(name, data, study, limits=fedopl.Limits.open(), secret=SEED_ALONE)
        for name, data in rows.items()
    }
    return doors, run_study(Conversation(study, InProcess(doors)))


@pytest.fixture(scope="module")
def doors():
    return opened(CLIENTS, TargetPlan(client="new"))


@pytest.fixture(scope="module")
def run(doors):
    return doors[1]


def with_policy(record, by_action, rows):
    """The numbers of what the policy decides, then those of every action."""
    return np.column_stack([by_action[np.arange(len(rows)), record.policy.decide(rows)], by_action])


def modelled(record, rows):
    models = record.statistics.solve(record.mixture).parameters
    return with_policy(record, rows @ models[:, :-1].T + models[:, -1], rows)


def left_by_models(record, door):
    """A source's held-out contexts, and their scores minus what models say."""
    whole = door._space.whole
    held = whole.rows(RowSplit.EVALUATION)
    rows = whole.data.contexts[held]
    return rows, with_policy(record, whole.scores[held], rows) - modelled(record, rows)


def in_one_place(doors, record):
    """Values, their covariances and effective rows, from everybody's rows and scores."""
    there = THERE.contexts
    said, parts = modelled(record, there), []
    for name in CLIENTS:
        rows, rest = left_by_models(record, doors[name])
        weights = balance(rows, there.mean(axis=0), (there**2).mean(axis=0)).weights
        moved = weights[:, None] * (rest - weights @ rest) / (1 - weights[:, None])
        parts.append((1 / np.sum(weights**2), weights @ rest, moved.T @ moved))
    total = sum(rows for rows, _, _ in parts)
    about = (said - said.mean(axis=0)) / (len(there) - 1)
    values = said.mean(axis=0) + sum(n / total * rest for n, rest, _ in parts)
    return values, about.T @ about + sum((n / total) ** 2 * part for n, _, part in parts), total


def test_federated_equals_pooled(doors):
    (doors, record), found = doors, doors[1].target
    values, covariances, rows = in_one_place(doors, record)
    told = [(own.value, own.standard_error) for own in found.values.values()]
    assert [*found.values] == ["learned", "everybody gets usual", "everybody gets new"]
    assert (  # what is asked counts to eight digits
        pytest.approx(np.stack([values, np.sqrt(np.diagonal(covariances))]), rel=1e-7)
        == np.array(told).T
    )
    assert found.effective_rows == pytest.approx(rows)
    over = np.eye(3)[0] - np.eye(3)[1 + ACTIONS.index(record.best_arm)]
    assert found.gain.value == pytest.approx(over @ values, rel=1e-7)
    assert found.gain.standard_error == pytest.approx(np.sqrt(over @ covariances @ over), rel=1e-7)

    for place, action in enumerate(ACTIONS):
        over, gain = np.eye(3)[0] - np.eye(3)[1 + place], found.gains[f"everybody gets {action}"]
        error = np.sqrt(over @ covariances @ over)
        assert (gain.value, gain.standard_error) == pytest.approx((over @ values, error), rel=1e-7)


def test_the_gain_is_also_over_the_arm_that_is_best_there():
    """At the sources 'usual' is better for most, at the target 'new': gains are over both."""

    def better_far_out(seed, middle, n_rows=1500):
        rng = np.random.default_rng(seed)
        x, actions = rng.standard_normal((n_rows, 3)) + middle, rng.integers(0, 2, n_rows)
        y = actions * (x[:, 0] - 0.3) + rng.standard_normal(n_rows)
        return fedopl.LoggedData(x, actions, y, 0.5, action_names=ACTIONS)

    run = learned({name: better_far_out(seed, 0.0) for seed, name in enumerate("ab")}, contexts())
    found, usual, new = run.target, "everybody gets usual", "everybody gets new"
    assert run.best_arm == "usual"
    assert [*found.gains] == [usual, new]
    assert found.best_arm_there == new
    assert found.gains[new].value < found.gain.value == found.gains[usual].value
    assert f"over '{new}', which looks best there and was picked by these numbers" in str(run)
    page = render(run)
    assert "What looks best for everybody there is another single action" in page
    assert "That action was picked by these numbers" in page


def test_the_value_is_near_the_truth(run):
    x = np.random.default_rng(1).standard_normal((200_000, 3)) + 0.4
    truth = means_of(x)[np.arange(len(x)), run.policy.decide(x)].mean()
    low, high = run.target.values["learned"].interval()
    assert low < truth < high
    assert high - low < 0.6


def test_the_policy_and_all_else_are_those_of_the_study_without_a_target():
    plain = fedopl.learn(CLIENTS, basis="linear", evaluation=0.25)
    with_one = learned()
    assert np.array_equal(plain.policy.parameters, with_one.policy.parameters)
    assert plain.values == with_one.values
    assert plain.mixture == with_one.mixture
    assert plain.rounds == with_one.rounds[: len(plain.rounds)]
    assert plain.target is None


def test_the_order_of_clients_and_threads_change_nothing():
    first = learned()
    turned = dict(reversed(CLIENTS.items()))
    other = learned(turned, running=fedopl.Running(threads=3))
    assert first.target == other.target


def test_it_takes_two_trips_more_than_without():
    found = learned()
    assert [(one.query, one.trip) for one in found.rounds[-2:]] == [
        ("TellContexts", 3),
        ("ValueAtTarget", 4),
    ]
    assert found.rounds[-2].asked == ("target",)
    assert expected_trips(found.study, 3) == 5


def test_a_run_with_a_target_is_saved_and_loaded_as_it_was(tmp_path):
    found = learned()
    found.save(tmp_path)
    assert fedopl.load_run(tmp_path).target == found.target
    assert str(fedopl.load_run(tmp_path)) == str(found)


def test_a_study_without_a_target_says_nothing_of_one():
    study = Study(actions=ACTIONS, features=("x0",))
    assert "target" not in study.model_dump_json()
    with_one = Study(actions=ACTIONS, features=("x0",), target=TargetPlan(client="new"))
    assert Study.model_validate_json(with_one.model_dump_json()) == with_one


def test_weights_and_groups_count_at_sources_and_at_the_target():
    rng = np.random.default_rng(3)
    more = {"weights": rng.uniform(0.5, 2.0, 500), "groups": np.arange(500) // 2}
    clients = {name: logged(seed, **more) for seed, name in enumerate("ab")}
    there = contexts(weights=rng.uniform(0.5, 2.0, 400), groups=np.arange(400) // 4)
    found, plain = learned(clients, there).target, learned(clients, contexts()).target
    assert found.values["learned"].value != plain.values["learned"].value
    # Rows of a group count as one: four of the target's, two of a source's.
    assert found.effective_rows <= 2 * 125 / 2


KINDS = {
    "tree": {"policy": fedopl.Tree(depth=1, bins=4)},
    "candidates": {"policy": fedopl.Finite(candidates={})},
    "bent": {"basis": "auto"},
    "cautious": {"policy": fedopl.Linear(caution=1.0)},
    "pairs": {"policy": fedopl.Linear(oracle="wap")},
    "local models": {"nuisances": "local"},
    "costs": {"costs": {"new": 0.2}},
    "blocks": {"policy": fedopl.Linear(features="blocks")},
    "permissions": {"policy": fedopl.Linear(only={"target": ["usual"]})},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_kind_of_policy_is_valued(options):
    clients, there = CLIENTS, THERE
    if options is KINDS["blocks"]:
        clients = {
            name: fedopl.LoggedData(
                own.contexts[:, :2], own.actions, own.rewards, 0.5, action_names=ACTIONS
            )
            for name, own in CLIENTS.items()
        }
        there = fedopl.Contexts(THERE.contexts[:, :2])
    run = learned(clients, there, **options)
    assert run.target.why_not == ""
    low, high = run.target.values[run.chosen].interval()
    assert np.isfinite([low, high]).all()
    if options is KINDS["permissions"]:  # where everybody gets the same
        usual = run.target.values["everybody gets usual"]
        assert run.target.values[run.chosen].value == pytest.approx(usual.value)


# --- where nothing is claimed -------------------------------------------------------------------


def test_people_whom_nobody_has_seen_are_noticed_and_no_value_is_claimed():
    found = learned(target=contexts(middle=[5.0, 0.0, 0.0])).target
    assert found.values == {}
    assert "no source's rows" in found.why_not or "hardly any source has seen" in found.why_not
    assert found.unseen
    assert "nothing is claimed" in found.in_words("learned")


def test_a_target_in_a_region_of_its_own_is_not_covered_by_its_means():
    """Half of the target is like the sources, half far away, so that means alone look harmless."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 3))
    x[:200, 0] += 7.0
    found = learned(target=fedopl.Contexts(x)).target
    assert found.why_not


def test_too_few_effective_rows_claim_nothing():
    few = {name: logged(seed, n_rows=60) for seed, name in enumerate("abc")}
    found = learned(few).target
    assert "effective rows" in found.why_not or "no source's rows" in found.why_not
    assert found.values == {}


def test_a_source_whose_outcomes_are_others_is_left_out_of_the_value():
    odd = {**{n: logged(s, 1000) for s, n in enumerate("abc")}, "odd": logged(7, 1000, odd=2.5)}
    run = learned(odd)
    found = run.target
    assert [one.client for one in found.left_out] == ["odd"]
    assert "differ from the other sources" in found.left_out[0].why_not
    held_out = sum(one.n_rows for one in found.sources if one.used)
    assert held_out < sum(one.n_rows for one in found.sources)
    assert f"in effect, of {held_out:,} that were held out" in render(run)
    x = np.random.default_rng(1).standard_normal((100_000, 3)) + 0.4
    low, high = found.values["everybody gets new"].interval()
    assert low < means_of(x)[:, 1].mean() < high


def test_two_sources_that_disagree_claim_nothing():
    found = learned({"a": logged(0, 1000), "b": logged(1, 1000, odd=2.5)}).target
    assert "disagree" in found.why_not
    assert found.values == {}


def test_a_target_that_refuses_leaves_the_result_without_a_value_there():
    found = learned(target=contexts(20), limits="guarded").target
    assert "the target refused (TOO_FEW_ROWS)" in found.why_not
    assert found.n_rows == 0


def test_the_mixture_found_is_nearer_to_the_target_and_its_price_is_said():
    clients = {"low": logged(0, middle=-1.0), "high": logged(1, middle=1.0)}
    both = np.vstack([logged(2, 120, middle=-1.0).contexts, logged(3, 280, middle=1.0).contexts])
    found = learned(clients, fedopl.Contexts(both)).target
    assert found.mixture["high"] == pytest.approx(0.7, abs=0.06)
    assert found.skewness == pytest.approx(2 * (0.7**2 + 0.3**2), abs=0.1)
    assert found.gap < found.gap_as_agreed


# --- input that is none -------------------------------------------------------------------------


def test_a_target_that_is_none_is_refused_in_words():
    with pytest.raises(OptionError, match="target: expected fedopl"):
        learned(target=THERE.contexts)
    with pytest.raises(OptionError, match="target: expected fedopl"):
        learned(target=CLIENTS["a"])
    with pytest.raises(StudyError, match="target: feature_names differ from those of a"):
        learned(target=fedopl.Contexts(THERE.contexts[:, :2]))
    with pytest.raises(OptionError, match="'target' is what the target is called"):
        learned({**CLIENTS, "target": CLIENTS["a"]})


def test_a_candidate_that_is_code_cannot_be_taken_to_the_target():
    rule = {"mine": lambda x: (x[:, 0] > 0).astype(int)}
    with pytest.raises(OptionError, match="'mine' is a function, which the target does not have"):
        learned(policy=fedopl.Finite(candidates=rule))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluation": 0}, "valued there on held-out rows"),
        ({"evaluation": fedopl.EvaluationPlan(splits=3)}, "under one split"),
        (
            {"basis": fedopl.Basis(knots={"x0": (-1.0, 0.0, 1.0)}, screened_pairs=1)},
            "leave screened ones out",
        ),
        (
            {
                "privacy": fedopl.PrivacyPlan(
                    epsilon=8, outcome=(-9, 9), ranges={f"x{k}": (-6, 6) for k in range(3)}
                ),
                "declared": fedopl.Declared(overlap=0.1),
            },
            "differential privacy or secure aggregation",
        ),
    ],
    ids=["nothing held out", "splits", "screening", "privacy"],
)
def test_a_study_that_cannot_say_it_refuses_a_target(options, said):
    with pytest.raises(OptionError, match=said):
        learned(**options)


def test_contexts_cannot_be_pickled():
    import pickle

    with pytest.raises(PrivacyError):
        pickle.dumps(THERE)
