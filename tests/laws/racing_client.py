"""A client that one of many processes answers for: `racing_client.py FOLDER EXCHANGE`.

The process opens the door, says that it is ready, waits for the start and prints what it answers.
"""

import sys
import time
from pathlib import Path

import numpy as np

import fedopl
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed

STUDY = fedopl.Study(
    actions=("a0", "a1"),
    features=("x0", "x1"),
    nuisances=fedopl.NuisancePlan(propensity="marginal", kind="local"),
    evaluation=0.25,
)


NONE = np.empty((0, 2, 3))  # models, where clients have their own


def door_in(folder, **limits):
    """The door of a client whose files are in this folder."""
    rng = np.random.default_rng(0)
    data = fedopl.LoggedData(
        rng.standard_normal((200, 2)),
        rng.integers(0, 2, 200),
        rng.standard_normal(200),
        action_names=STUDY.actions,
    )
    return Door(
        "north",
        data,
        STUDY,
        limits=fedopl.Limits(**limits),
        store=FolderStore(folder / "scores"),
        ledger=FileLedger(folder / "ledger.jsonl"),
        secret=SEED_ALONE,
    )


def asked(door, query):
    """The name of the answer, or the reason why there is none."""
    answer = codec.decode(door.handle(codec.encode(query)), axis_sizes(STUDY))
    return answer.reason.name if isinstance(answer, Refusal) else type(answer).__name__


def score_rows(door, exchange=0):
    """Let the door score its rows, before which it cannot value anything; a study asks it once."""
    query = SumScores(study=STUDY.digest, exchange=exchange, models=NONE, supported=NONE[..., 0])
    return asked(door, query)


def ask_for_values(door, exchange):
    """A query that differs from all others in its number."""
    fields = packed([], STUDY)
    query = Value(study=STUDY.digest, exchange=exchange, split=RowSplit.EVALUATION, **fields)
    return asked(door, query)


def main():
    folder, exchange = Path(sys.argv[1]), int(sys.argv[2])
    door = door_in(folder)
    (folder / f"ready-{exchange}").touch()
    while not (folder / "start").exists():
        time.sleep(0.001)
    sys.stdout.write(score_rows(door, exchange))


if __name__ == "__main__":
    main()
