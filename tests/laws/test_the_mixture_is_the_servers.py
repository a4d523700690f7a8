"""Law: once enrolled, a client cannot change its weight by what it reports.

How many rows it enrols with does decide its weight where the mixture goes by rows. What is noticed
of false numbers is in `test_a_lying_client.py`.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.outcome_sums import TotalWeight
from fedopl.messages.learning.policy_steps import ImprovedPolicy
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.policies.policy import policy_json
from fedopl.report.cautions import cautions
from fedopl.report.sections.mixture_weights import mixture_weights
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from trips import Edited


@pytest.fixture
def run(draw):
    """Run a study in which west edits its answers."""
    clients = {name: draw(200, seed=i) for i, name in enumerate(("north", "south", "west"))}
    first = clients["north"]

    def _run(edit, **options):
        study = fedopl.Study(
            actions=first.action_names,
            features=first.feature_names,
            **{"evaluation": 0.25, **options},
        )
        doors = {
            n: Door(n, d, study, limits=Limits.open(), secret=SEED_ALONE)
            for n, d in clients.items()
        }
        return run_study(Conversation(study, Edited(doors, study, "west", edit)))

    return _run


def scaled(message):
    """Sums a hundred times as large would count a hundred times as much, if they were believed."""
    if isinstance(message, ScoreSums):
        return replace(message, grams=100 * message.grams, products=100 * message.products)
    return message


def test_scaled_sums_are_rejected_and_not_weighed(run):
    record = run(scaled)
    assert (2, "west", "rejected: the mean of one is not one") in record.refusals
    assert set(record.mixture) == {"north", "south"}


def bought(message):
    """Cells a hundred times as heavy, or of a hundred times as many rows."""
    return replace(message, cells=100 * message.cells) if isinstance(message, CellSums) else message


def uneven(message):
    """Weight that only some columns' cells have would sway the search towards them."""
    if not isinstance(message, CellSums):
        return message
    cells = message.cells.copy()
    cells[:, -1] *= 100
    return replace(message, cells=cells)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [(bought, "counts more rows than there are"), (uneven, "two columns divide different rows")],
)
def test_heavy_cells_are_rejected_and_not_weighed(run, edit, reason):
    options = {"policy": fedopl.Tree(bins=4)}
    record = run(edit, **options)
    assert (4, "west", f"rejected: {reason}") in record.refusals
    assert set(record.tree.cells) == {"north", "south"}
    alone = fedopl.mixture.given({"north": 0.5, "south": 0.5, "west": 0.0})
    without = run(lambda message: message, mixture=alone, **options)
    assert policy_json(record.policy) == policy_json(without.policy)


def more_rows(message):
    """A count reported with values is for the table; it must not move a weight."""
    if not isinstance(message, ValuesByPart):
        return message
    return replace(message, n_rows=message.n_rows + 9, of_rows=message.of_rows + 9)


def test_rows_reported_with_values_move_no_estimate(run):
    honest, greedy = run(lambda message: message), run(more_rows)
    for policy in ("learned", "logging policy"):
        assert greedy.values.of(policy).value == honest.values.of(policy).value
        assert greedy.values.of(policy).standard_error == honest.values.of(policy).standard_error


def test_more_rows_with_values_than_there_are_are_rejected(run):
    def many(message):
        is_one = isinstance(message, ValuesByPart)
        most = {"n_rows": np.full((1, 1), 1e9), "of_rows": np.full(1, 1e9)}
        return replace(message, **most) if is_one else message

    record = run(many)
    many_of_many = "values of 1,000,000,000 of 1,000,000,000 rows, of which it has fewer"
    assert (3, "west", f"rejected: {many_of_many}") in record.refusals


def test_improved_parameters_are_weighed_by_the_mixture_alone(run):
    """No field of the answer could even hold a weight; only λ decides how far west pulls."""
    assert [name for name, _ in codec.FIELDS[ImprovedPolicy]] == ["study", "exchange", "parameters"]
    plan = fedopl.TrainingPlan(rounds=2)

    def pulled(message):
        if isinstance(message, ImprovedPolicy):
            return replace(message, parameters=message.parameters + 1000.0)
        return message

    none = fedopl.mixture.given({"north": 0.5, "south": 0.5, "west": 0.0})
    options = {"policy": fedopl.Linear(oracle="csoaa-sgd", training=plan), "mixture": none}
    assert policy_json(run(pulled, **options).policy) == policy_json(
        run(lambda message: message, **options).policy
    )


def test_a_given_mixture_ignores_how_many_rows_there_are(run):
    shares = {"north": 0.2, "south": 0.3, "west": 0.5}
    record = run(lambda message: message, mixture=fedopl.mixture.given(shares))
    assert record.mixture == shares
    np.testing.assert_allclose(sum(record.mixture.values()), 1)


HEAVY = {"north": 10.0, "south": 1.0}
QUICK = {"basis": "linear", "nuisances": fedopl.NuisancePlan(propensity="marginal")}
BY_WEIGHT = fedopl.mixture.empirical(count="weight")


def heavy_clients(n_rows=200, **weights):
    """As many rows each, which weigh 10 at one client and 1 at another; what is best differs."""
    weights = {name: np.full(n_rows, one) for name, one in HEAVY.items()} | weights

    def client(name, seed, better):
        rng = np.random.default_rng(seed)
        contexts, actions = rng.standard_normal((n_rows, 2)), rng.integers(0, 2, n_rows)
        return fedopl.LoggedData(
            contexts,
            actions,
            1.0 * (actions == better) + 0.1 * rng.standard_normal(n_rows),
            action_names=["a", "b"],
            weights=weights[name],
        )

    return {"north": client("north", 1, 0), "south": client("south", 2, 1)}


def test_the_empirical_mixture_counts_rows_and_not_their_weights():
    """Rows of weight 10 at one client, of weight 1 at another: as many rows, as much weight."""
    run = fedopl.learn(heavy_clients(), **QUICK)
    assert run.mixture == {"north": 0.5, "south": 0.5}
    assert "TellWeight" not in [one.query for one in run.rounds]  # nobody is asked what rows weigh
    said = mixture_weights(run).parts[0].text
    assert "by its number of rows" in said
    assert "They move no weight from one client to another" in said


@pytest.mark.parametrize("nuisances", ["federated", "local"])
def test_a_study_may_count_weight_instead_and_what_is_learned_follows(nuisances):
    options = {"nuisances": nuisances, "seed": 3}
    run = fedopl.learn(
        heavy_clients(), basis="linear", mixture=BY_WEIGHT, **{"evaluation": 0.25, **options}
    )
    assert run.mixture == {"north": pytest.approx(10 / 11), "south": pytest.approx(1 / 11)}
    given = fedopl.learn(
        heavy_clients(), basis="linear", mixture=run.mixture, **{"evaluation": 0.25, **options}
    )
    np.testing.assert_allclose(run.policy.parameters, given.policy.parameters)
    assert [row.estimate for row in run.values.rows] == [row.estimate for row in given.values.rows]
    assert run.best_arm == "a"  # north's, which has ten times the weight
    section = mixture_weights(run)
    assert "by the sum of its row weights" in section.parts[0].text
    table = next(part for part in section.parts if hasattr(part, "headers"))
    assert table.headers[3] == "Weight of its rows"
    assert [row[3:5] for row in table.rows] == [("1,500", "90.9 %"), ("150", "9.1 %")]


def test_rows_without_weights_weigh_one():
    clients = heavy_clients(north=None)
    assert fedopl.learn(clients, mixture=BY_WEIGHT, **QUICK).mixture == {
        "north": 0.5,
        "south": 0.5,
    }


def test_weights_that_differ_among_the_rows_of_a_client_are_added_up():
    weights = np.random.default_rng(5).uniform(0.5, 4, 200)
    run = fedopl.learn(heavy_clients(south=weights), mixture=BY_WEIGHT, evaluation=0, **QUICK)
    assert run.mixture["south"] == pytest.approx(weights.sum() / (weights.sum() + 2000))


def test_guarded_clients_count_by_their_weight():
    run = fedopl.learn(heavy_clients(2000), mixture=BY_WEIGHT, limits="guarded", **QUICK)
    assert run.mixture["north"] == pytest.approx(10 / 11, rel=1e-12)


def test_a_run_that_counted_weight_is_saved_and_solved_again(tmp_path):
    run = fedopl.learn(heavy_clients(), mixture=BY_WEIGHT, **QUICK)
    run.save(tmp_path)
    again = fedopl.load_run(tmp_path)
    assert again.row_weights == run.row_weights
    same = again.resolve(BY_WEIGHT)
    np.testing.assert_array_equal(same.numbers(), run.policy.numbers())
    by_rows = fedopl.learn(heavy_clients(), **QUICK)
    assert by_rows.row_weights is None
    with pytest.raises(fedopl.OptionError, match="were not asked what their rows weigh"):
        by_rows.resolve(BY_WEIGHT)


def test_a_study_of_tables_without_weights_cannot_count_them():
    names = {"action": "arm", "actions": ("a", "b"), "reward": "gain", "numeric": ("x",)}
    table = fedopl.Schema(**names, direction="higher")
    with pytest.raises(fedopl.OptionError, match=r"mixture\.count: 'weight', but no column"):
        fedopl.Study(actions=("a", "b"), features=("x",), table=table, mixture=BY_WEIGHT)


def telling(weight):
    """Rows that are said to weigh so many times what they do."""

    def edit(message):
        is_told = isinstance(message, TotalWeight)
        return replace(message, weight=weight * message.weight) if is_told else message

    return edit


@pytest.mark.parametrize("times", [100, 0.01])
def test_who_tells_another_weight_than_its_sums_have_does_not_enrol(run, times):
    record = run(telling(times), mixture=BY_WEIGHT)
    assert set(record.mixture) == {"north", "south"}
    assert "in its sums 150" in record.rounds[0].rejected["west"]


def test_who_tells_no_weight_is_not_counted(run):
    record = run(telling(0), mixture=BY_WEIGHT)
    assert set(record.mixture) == {"north", "south"}
    assert record.rounds[0].rejected["west"].startswith("did not report the sum of its row weights")
    assert record.rounds[1].rejected["west"] == "its rows weigh nothing together"


def test_without_sums_a_weight_is_taken_at_its_word_up_to_the_largest_share(run):
    """Nothing else that a client releases has the weight of its rows in it."""
    local = {"nuisances": "local"}
    believed = run(telling(100), mixture=BY_WEIGHT, **local)
    assert believed.mixture["west"] == pytest.approx(100 / 102, rel=1e-3)
    (caution,) = [one for one in cautions(believed) if one.title == "Most weight on one client"]
    assert "by the weight of 15,000 it says its rows have" in caution.what
    capped = fedopl.mixture.empirical(count="weight", largest_share=0.5)
    assert run(telling(100), mixture=capped, **local).mixture["west"] == pytest.approx(0.5)
