"""Law: the same table in another order gives the same bytes, and so tells nothing new."""

import numpy as np
import pytest
from test_door import ACTIONS, FEATURES, decoded, door_to, encoded_query, scored, study_of

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.outcome_sums import SumOutcomes, TellWeight
from fedopl.messages.learning.score_sums import SumByFold, SumScores
from fedopl.messages.trees.cell_sums import SumCells

KINDS = (SumOutcomes, SumScores, Value, Describe, SumByFold, SumCells)


def table(weighted):
    """Rows of which many agree in contexts and action, with other rewards."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(40, len(FEATURES)))[rng.integers(0, 40, 240)]
    return {
        "contexts": contexts,
        "actions": rng.integers(0, 3, 240),
        "rewards": rng.normal(size=240),
        "weights": rng.uniform(0.5, 2, 240) if weighted else None,
    }


def answered(kind, given, order):
    own = {name: None if array is None else array[order] for name, array in given.items()}
    door = scored(
        door_to(fedopl.LoggedData(**own, action_names=ACTIONS), study_of(kind), limits=Limits())
    )
    content = door.handle(encoded_query(door, kind))
    assert isinstance(decoded(door, content), kind.answer)
    return content


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", [*KINDS, TellWeight], ids=lambda kind: kind.__name__)
def test_twenty_orders_of_one_table_give_the_same_bytes(kind, weighted):
    given, rng = table(weighted), np.random.default_rng(1)
    found = {answered(kind, given, rng.permutation(240)) for _ in range(20)}
    assert len(found) == 1
