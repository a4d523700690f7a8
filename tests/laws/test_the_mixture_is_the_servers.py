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
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.improved_policy import ImprovedPolicy
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.policies.policy import policy_json
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
        study = fedopl.Study(actions=first.action_names, features=first.feature_names, **options)
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
    return replace(message, n_rows=message.n_rows + 9) if isinstance(message, Values) else message


def test_rows_reported_with_values_move_no_estimate(run):
    honest, greedy = run(lambda message: message), run(more_rows)
    for policy in ("learned", "logging policy"):
        assert greedy.values.of(policy).value == honest.values.of(policy).value
        assert greedy.values.of(policy).standard_error == honest.values.of(policy).standard_error


def test_more_rows_with_values_than_there_are_are_rejected(run):
    record = run(
        lambda message: replace(message, n_rows=10**9) if isinstance(message, Values) else message
    )
    assert (3, "west", "rejected: values of 1,000,000,000 rows, of which it has fewer") in (
        record.refusals
    )


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


def test_the_empirical_mixture_counts_rows_and_not_their_weights():
    """Rows of weight 10 at one client, of weight 1 at another: as many rows, as much weight."""

    def client(seed, weight):
        rng = np.random.default_rng(seed)
        contexts, actions = rng.standard_normal((200, 2)), rng.integers(0, 2, 200)
        return fedopl.LoggedData(
            contexts,
            actions,
            rng.standard_normal(200),
            action_names=["a", "b"],
            weights=np.full(200, weight),
        )

    clients = {"north": client(1, 10.0), "south": client(2, 1.0)}
    run = fedopl.learn(clients)
    assert run.mixture == {"north": 0.5, "south": 0.5}
    said = mixture_weights(run).parts[0].text
    assert "by its number of rows" in said
    assert "they move no weight from one client to another" in said
    by_weight = fedopl.learn(clients, mixture={"north": 10 / 11, "south": 1 / 11})
    assert by_weight.mixture["north"] == pytest.approx(10 / 11)
