"""False answers that one client of a federation may give: each changes what it sends, or its rows.

`tests/laws/test_a_lying_client.py` holds the server to all of them, and `lying_client.py` prints
what each comes to.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.description import Description
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.enrolment import Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.policy_steps import ImprovedPolicy, ImprovePolicy, Slope
from fedopl.messages.learning.score_sums import PairSums, ScoreSums
from fedopl.messages.message import Message
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.trees.threshold_gains import ThresholdGains
from fedopl.policies.trees.search import FIRST_ACTION
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.study import Study

Edit = Callable[[Message, Message], Message]  # from a query and its true answer
Rows = Callable[[LoggedData], LoggedData]


@dataclass(frozen=True, kw_only=True)
class Lie:
    """What one client does: to its answers, to its rows before that, or to both."""

    edit: Edit = lambda _query, answer: answer
    rows: Rows = lambda data: data
    options: Mapping[str, Any] = field(default_factory=dict)  # of the study


class Lying(InProcess):
    """A transport on which one client edits whatever it answers."""

    def __init__(self, doors: dict[str, Door], study: Study, liar: str, edit: Edit) -> None:
        super().__init__(doors)
        self._sizes, self._liar, self._edit = axis_sizes(study), liar, edit

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """The true answers of all, but of one."""
        for name, content in super().exchange(dict(queries)):
            if name != self._liar:
                yield name, content
                continue
            pairs = zip(unbundled(queries[name]), unbundled(content), strict=True)
            yield name, bundled([self._changed(*pair) for pair in pairs])

    def _changed(self, query: bytes, answer: bytes) -> bytes:
        said = codec.decode(answer, self._sizes)
        return codec.encode(self._edit(codec.decode(query, self._sizes), said))


def run_with(lie: Lie, clients: Mapping[str, LoggedData], liar: str, **options: Any) -> Record:
    """The run of a study in which one client lies, with the limits that clients have by default."""
    first = next(iter(clients.values()))
    settings = {**options, **lie.options}
    study = Study(actions=first.action_names, features=first.feature_names, **settings)
    data = {name: lie.rows(rows) if name == liar else rows for name, rows in clients.items()}
    doors = {
        name: Door(name, rows, study, limits=Limits(), secret=SEED_ALONE)
        for name, rows in data.items()
    }
    return run_study(Conversation(study, Lying(doors, study, liar, lie.edit)))


def changed(kind: type[Message], **changes: Callable[[Any], Any]) -> Edit:
    """An edit of these fields of this kind of answer, each a function of the whole answer."""

    def edit(_query: Message, answer: Message) -> Message:
        if not isinstance(answer, kind):
            return answer
        return replace(answer, **{name: change(answer) for name, change in changes.items()})

    return edit


def scaled(kind: type[Message], factor: float, *names: str) -> Edit:
    """An edit that multiplies these fields."""

    def times(name: str) -> Callable[[Any], Any]:
        return lambda answer: type(getattr(answer, name))(factor * getattr(answer, name))

    def arrays(name: str) -> Callable[[Any], Any]:
        return lambda answer: factor * getattr(answer, name)

    is_whole = {name for name, content in codec.FIELDS[kind] if content is int}
    return changed(kind, **{n: times(n) if n in is_whole else arrays(n) for n in names})


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(query: Message, answer: Message) -> Message:
        for each in edits:
            answer = each(query, answer)
        return answer

    return edit


def with_rewards(change: Callable[[Any], Any]) -> Rows:
    """Rows with other rewards."""

    def rows(data: LoggedData) -> LoggedData:
        return LoggedData(
            data.contexts,
            data.actions,
            change(data.rewards),
            data.propensities,
            action_names=data.action_names,
            feature_names=data.feature_names,
        )

    return rows


def _step(factor: float) -> Edit:
    """A step of the local training that goes this many times as far."""

    def edit(query: Message, answer: Message) -> Message:
        if not isinstance(answer, ImprovedPolicy) or not isinstance(query, ImprovePolicy):
            return answer
        start = query.parameters
        return replace(answer, parameters=start + factor * (answer.parameters - start))

    return edit


def _with(array: Any, place: Any, value: float) -> Any:
    """The array with another number in one place."""
    array = np.array(array)
    array[place] = value
    return array


def _crossed(array: Any, value: float) -> Any:
    """Matrices whose first two columns have another product, so much of what it can be at most."""
    array = np.array(array)
    most = np.sqrt(array[..., 0, 0] * array[..., 1, 1])
    array[..., 0, 1] = array[..., 1, 0] = value * most
    return array


def _other_scores(answer: Any) -> Any:
    """Cells in which the first action is worth much more."""
    cells = np.array(answer.cells)
    cells[..., FIRST_ACTION] += 10 * cells[..., 1]
    return cells


SGD = {"policy": fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=5))}
WAP, DIRECT = ({"policy": fedopl.Linear(oracle=oracle)} for oracle in ("wap", "direct"))
TREE = {"policy": fedopl.Tree(depth=1, bins=4)}
DECLARED = {"declared": fedopl.Declared(reward=20)}
flipped = with_rewards(lambda rewards: -rewards)
_many = scaled(Enrolment, 1000, "n_rows")
_many_by_action = scaled(Enrolment, 1000, "n_rows", "rows_per_action")
_all_many = both(
    _many_by_action,
    scaled(OutcomeSums, 1000, "sums", "squared_weights"),
    scaled(ValuesByPart, 1000, "n_rows", "of_rows", "degrees_of_freedom"),
    scaled(ValuesByPart, 1 / 1000, "covariances"),
    scaled(Description, 1000, "decided", "taken", "chances", "effective_rows"),
)

LIES: dict[str, Lie] = {
    # Who takes part, and with how many rows.
    "1,000 times the rows": Lie(edit=_many),
    "10 times the rows": Lie(edit=scaled(Enrolment, 10, "n_rows")),
    "1,000 times the rows, rewards flipped": Lie(edit=_many, rows=flipped),
    "1,000 times the rows of each action, rewards flipped": Lie(edit=_many_by_action, rows=flipped),
    "1,000 times the rows in all it says, rewards flipped": Lie(edit=_all_many, rows=flipped),
    "more rows by action than rows": Lie(edit=scaled(Enrolment, 5, "rows_per_action")),
    "fewer rows by action than rows": Lie(edit=scaled(Enrolment, 0.1, "rows_per_action")),
    "negative rows of an action": Lie(
        edit=changed(Enrolment, rows_per_action=lambda a: _with(a.rows_per_action, 0, -50))
    ),
    # Sums for outcome models.
    "outcome sums, 1,000 times": Lie(edit=scaled(OutcomeSums, 1000, "sums", "squared_weights")),
    "outcome sums, 1,000 times, but not their weights": Lie(edit=scaled(OutcomeSums, 1000, "sums")),
    "outcome sums, products beyond squares": Lie(
        edit=changed(OutcomeSums, sums=lambda a: _crossed(a.sums, 3.0))
    ),
    "outcome sums, outcomes flipped": Lie(
        edit=changed(OutcomeSums, sums=lambda a: a.sums * _signs(a.sums.shape[-1]))
    ),
    "outcomes beyond the declared ones": Lie(
        rows=with_rewards(lambda y: y + 100), options=DECLARED
    ),
    # Sums of scores.
    "scores flipped in sums": Lie(edit=scaled(ScoreSums, -1, "products")),
    "scores 10 times in products": Lie(edit=scaled(ScoreSums, 10, "products")),
    "scores 10 times in all sums": Lie(
        edit=both(scaled(ScoreSums, 10, "products"), scaled(ScoreSums, 100, "squares"))
    ),
    "an action praised in sums": Lie(
        edit=changed(
            ScoreSums,
            products=lambda a: a.products + 20 * _first(a.products) * a.grams[0, -1],
            squares=lambda a: a.squares
            + _first(a.squares) * (400 + 40 * a.products[0, -1]),
        )
    ),
    "squares of scores negative": Lie(edit=scaled(ScoreSums, -1, "squares")),
    "squares of scores tiny": Lie(edit=scaled(ScoreSums, 1e-6, "squares")),
    "grams not positive semidefinite": Lie(
        edit=changed(ScoreSums, grams=lambda a: _crossed(a.grams, -2.0))
    ),
    "a share of rows above one": Lie(edit=scaled(ScoreSums, 5, "shares")),
    # Values on held-out rows.
    "values of 1,000 times the rows": Lie(edit=scaled(ValuesByPart, 1000, "n_rows")),
    "values with more freedom than rows": Lie(
        edit=scaled(ValuesByPart, 1000, "degrees_of_freedom")
    ),
    "all values raised": Lie(edit=changed(ValuesByPart, means=lambda a: a.means + 20)),
    "the learned policy praised": Lie(
        edit=changed(ValuesByPart, means=lambda a: a.means + 5 * _first(a.means[0, 0]))
    ),
    "tiny variances": Lie(edit=scaled(ValuesByPart, 1e-6, "covariances")),
    "huge variances": Lie(edit=scaled(ValuesByPart, 1e6, "covariances")),
    "covariances beyond variances": Lie(
        edit=changed(ValuesByPart, covariances=lambda a: _crossed(a.covariances, -3.0)),
        options={"evaluation": 0.25},
    ),
    "covariances beyond variances, fold by fold": Lie(
        edit=changed(ValuesByPart, covariances=lambda a: _crossed(a.covariances, -9.0))
    ),
    # Other ways to learn.
    "a step 5 times as long": Lie(edit=_step(5), options=SGD),
    "a step 100 times as long, backwards": Lie(edit=_step(-100), options=SGD),
    "pairs beyond their weight": Lie(edit=scaled(PairSums, -10, "products"), options=WAP),
    "pairs of 1,000 times the weight": Lie(
        edit=both(scaled(PairSums, 1000, "grams"), scaled(PairSums, -1000, "products")),
        options=WAP,
    ),
    "a slope 1,000 times as steep": Lie(edit=scaled(Slope, -1000, "gradient"), options=DIRECT),
    "an action praised in cells": Lie(
        edit=changed(CellSums, cells=_other_scores), options=TREE
    ),
    "a threshold pushed by 100 times the gains": Lie(
        edit=scaled(ThresholdGains, -100, "gains"), options=TREE
    ),
    "rows described that are not there": Lie(
        edit=scaled(Description, 10, "decided", "taken", "chances")
    ),
}  # fmt: skip


def _signs(width: int) -> Any:
    """What turns outcomes, the last column of z zᵀ, into their negatives."""
    signs = np.ones(width)
    signs[-1] = -1
    return np.outer(signs, signs)


def _first(array: Any) -> Any:
    """One for the first row or number, zero for all others."""
    ones = np.zeros(array.shape)
    ones[0] = 1
    return ones
