"""Compares a client's answer with its earlier ones, and the length of its step with others'.

Each message checks itself (`Query.fault_in`). This file finds the faults that show only in
comparison. Answers about the same rows must agree with the sums of scores that the client sent
earlier in the run.

A step that is much longer than other clients' could undo all others. Lengths are compared on a
logarithmic scale. Clients with fewer rows have noisier steps, so theirs may be longer. Among three
clients, only an absurdly long step shows. Of two clients, nobody can say which one is wrong.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.about_masks import MaskedSums, n_masked
from fedopl.messages.evaluation.description import Description
from fedopl.messages.evaluation.policy_values import NO_FOLD, Value, ValuesByPart
from fedopl.messages.learning.enrolment import Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums, TotalWeight
from fedopl.messages.learning.policy_steps import Slope, SlopeOfValue
from fedopl.messages.learning.score_sums import (
    PairSums,
    ScoreSums,
    ScoreSumsByFold,
    SumByFold,
    SumPairs,
    SumScores,
)
from fedopl.messages.message import AnswerType, Message, Query, RowSplit, stack_of
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds, ThresholdGains
from fedopl.policies.pairwise import action_pairs
from fedopl.policies.trees.search import FIRST_ACTION
from fedopl.study.study import Study

# Rows that an aggregator may count.
ANY_NUMBER = 10**15
# A slope is of all training rows but one fold, which may weigh less than those it is held against.
MOST_BY_FOLDS = 4.0

# Of an answer by itself, in a study, of so many rows: why it cannot be true, if it cannot.
OwnCheck = Callable[[Any, Study, int], str | None]


class CrossChecks:
    """Each client's enrolment and sums, and a check of later answers against them."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self.rows: dict[str, int] = {}
        self._sums: Mapping[str, ScoreSums] = {}
        # By client, why its outcome sums cannot come from the rows that it enrolled with.
        self.of_other_rows: dict[str, str] = {}
        # Mean and variance of outcomes, for clients that left out none of their sums.
        self.outcomes: dict[str, tuple[float, float]] = {}

    def faults_in(self, query: Query[Any], answers: Mapping[str, Message]) -> dict[str, str]:
        """By name, why answers cannot be true, for those that cannot; remembers the others.

        Usually there is no fault, and that shows soonest in all of them together.
        """
        looked_at = _none_has_a_fault(query, list(answers.values()), self._study)
        own: OwnCheck = (lambda *_: None) if looked_at else query.fault_in
        found = {name: self._fault_in(name, query, answer, own) for name, answer in answers.items()}
        return {name: fault for name, fault in found.items() if fault}

    def fault_in(self, name: str, query: Query[Any], answer: Message) -> str | None:
        """Why this client's answer cannot be true; None if it can. Remembers possible answers."""
        return self._fault_in(name, query, answer, query.fault_in)

    def _fault_in(self, name: str, query: Query[Any], answer: Message, own: OwnCheck) -> str | None:
        """The same, with this check of the answer by itself."""
        if isinstance(answer, Enrolment):
            self.rows[name] = answer.n_rows
        if isinstance(answer, MaskedSums):  # only the number of masked numbers can be checked
            expected = n_masked(query, self._study)
            return None if len(answer.numbers) == expected else f"expected {expected} numbers"
        if name in self._study.aggregators:
            return self._fault_in_total(name, answer, own)
        fault = own(answer, self._study, self.rows.get(name, 0))
        check = _CHECKS.get(type(query))
        sums = self._sums.get(name)
        if not fault and check and sums and sums.has_sums:
            fault = check(query, answer, sums, self._study)
        if not fault and isinstance(answer, OutcomeSums):
            self._look_at(name, answer)
        return fault

    def _fault_in_total(self, name: str, answer: Message, own: OwnCheck) -> str | None:
        """The same of an aggregator's answer, in which what members may be off by adds up.

        Counts are compared with rows by the aggregator, for each of its members.
        """
        if isinstance(answer, Enrolment):
            return None if answer.n_rows > 0 else "enrolled without a row"
        if isinstance(answer, Description):
            return None
        fault = own(answer, self._study, ANY_NUMBER)
        if not fault and isinstance(answer, OutcomeSums) and answer.sums[..., -2, -2].all():
            self.outcomes[name] = answer.outcome_moments(self._study.net_costs)
        return fault

    def fault_in_enrolment(
        self,
        name: str,
        sums: Mapping[str, OutcomeSums] | None,
        told: Mapping[str, TotalWeight] | None,
    ) -> str | None:
        """Why an enrolment cannot be true beside what came with it, or not be counted without."""
        if told is not None and name not in told:
            return "did not report the sum of its row weights, by which clients count"
        of_other_rows = self.of_other_rows.get(name)
        if sums is None or name not in sums or of_other_rows or name in self._study.aggregators:
            return of_other_rows
        return told[name].contradiction(sums[name]) if told else None

    def _look_at(self, name: str, sums: OutcomeSums) -> None:
        """Keep what later checks need from outcome sums; the sums themselves are not kept."""
        if why := sums.contradiction(self._study, self.rows.get(name, 0)):
            self.of_other_rows[name] = why
        if sums.sums[..., -2, -2].all():
            self.outcomes[name] = sums.outcome_moments(self._study.net_costs)

    def remember(self, query: Query[Any], answers: Mapping[str, Any]) -> None:
        """Keep these answers for later comparisons, if they are sums of scores."""
        if isinstance(query, SumScores):
            self._sums = {**self._sums, **answers} if self._sums else answers


def _none_has_a_fault(query: Query[Any], answers: Sequence[Message], study: Study) -> bool:
    """Whether it is known of all of them at once that none has a fault by itself."""
    if not query.checks_stacks or len(answers) < 2:
        return False
    if any(type(answer) is not query.answer for answer in answers):
        return False
    together = stack_of(answers)
    return together is not None and query.fault_in(together, study, ANY_NUMBER) is None


def _pairs(_query: SumPairs, answer: PairSums, sums: ScoreSums, study: Study) -> str | None:
    """E|Γ̂(a) − Γ̂(b)| is at most √E Γ̂(a)² + √E Γ̂(b)²."""
    sizes = np.sqrt(sums.squares * sums.shares)
    most = np.array(
        [sizes[first] + sizes[second] for first, second in action_pairs(study.n_actions)]
    )
    if (answer.grams[:, -1, -1] > most * (1 + CELL_TOLERANCE) + CELL_TOLERANCE).any():
        return "a choice between two actions is worth more than its scores allow"
    return None


def _slope(query: SlopeOfValue, answer: Slope, sums: ScoreSums, study: Study) -> str | None:
    """|E p_a·(Γ̂(a) − v)·x_j| ≤ 2·√(Σ_a E Γ̂(a)² · E x_j²), and slopes add up to 0 over actions."""
    if not study.has_intercept:
        return None
    size = np.sqrt(np.sum(sums.squares * sums.shares))
    features = np.sqrt(np.diagonal(sums.grams, axis1=1, axis2=2).max(axis=0))
    most = MOST_BY_FOLDS * 2 * size * features / query.temperature
    if (np.abs(answer.gradient) > most).any():
        return "the value is steeper than its scores allow"
    balance = np.abs(answer.gradient.sum(axis=0))
    if (balance > CELL_TOLERANCE * (1 + np.abs(answer.gradient).sum(axis=0))).any():
        return "the slopes of all actions do not add up to zero"
    return None


def _folds(
    _query: SumByFold, answer: ScoreSumsByFold, sums: ScoreSums, _study: Study
) -> str | None:
    """The sums of all folds together must be those of all rows."""
    total = answer.of_folds(range(len(answer.weights)))
    sizes = np.sqrt(np.diagonal(sums.grams, axis1=1, axis2=2))  # (n_grams, n_terms)
    scores = np.sqrt(sums.squares)
    for own, other, scale in (
        (total.shares, sums.shares, 1.0),
        (total.squares, sums.squares, sums.squares),
        (total.products, sums.products, scores[:, None] * sizes),
        (total.grams, sums.grams, sizes[:, :, None] * sizes[:, None]),
    ):
        if (np.abs(own - other) > CELL_TOLERANCE * (scale + CELL_TOLERANCE)).any():
            return "the folds do not add up to the sums that it reported of all rows"
    return None


def _cells(query: SumCells, answer: CellSums, sums: ScoreSums, study: Study) -> str | None:
    """The cells of the whole grid must add up to the mean scores that were reported before."""
    if query.n_open[-1] != 1:  # of the version of all rows
        return None
    first = query.grid(study).whole
    scores = slice(FIRST_ACTION, FIRST_ACTION + study.n_actions)
    totals = answer.cells[-1, first, scores].sum(axis=0)
    expected = sums.shares * sums.products[:, -1]
    # For an action that some may not get, cells hold the action given in its place.
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    as_scored = np.array([action not in limited for action in study.actions])
    apart = np.abs(totals - expected) > CELL_TOLERANCE * (1 + np.sqrt(sums.squares))
    if (apart & as_scored).any():
        return "the cells do not add up to the mean scores that it reported before"
    return None


def _gains(
    _query: SumNearThresholds, answer: ThresholdGains, sums: ScoreSums, _study: Study
) -> str | None:
    """Every row counts for one threshold: Σ|E Γ̂(yes) − Γ̂(no)| is at most Σ_a √E Γ̂(a)²."""
    most = np.sqrt(sums.squares * sums.shares).sum()
    if np.abs(answer.gains).sum() > most * (1 + CELL_TOLERANCE) + CELL_TOLERANCE:
        return "other thresholds gain more than its scores allow"
    return None


def _values(query: Value, answer: ValuesByPart, sums: ScoreSums, _study: Study) -> str | None:
    """√E Γ̂(π)² ≤ √Σ_a E Γ̂(a)² on the rows of the sums."""
    if query.split is not RowSplit.TRAINING or query.outcome or query.without != NO_FOLD:
        return None
    valued = answer.means[0, 0, : query.n_policies]
    if (np.abs(valued) > (1 + CELL_TOLERANCE) * np.sqrt(sums.squares.sum())).any():
        return "a policy is worth more than its scores allow"
    return None


_CHECKS: dict[type[Query[Any]], Callable[..., str | None]] = {
    SumPairs: _pairs,
    SlopeOfValue: _slope,
    SumByFold: _folds,
    SumCells: _cells,
    SumNearThresholds: _gains,
    Value: _values,
}


# A step beyond this many robust standard deviations counts as an error.
MOST_DEVIATIONS = 3.0
# The standard deviation of a normal distribution over its median absolute deviation.
BY_MEDIAN_DEVIATION = 1.4826
# The smallest deviation to assume: honest clients' steps may be more alike by chance in one round.
LEAST_DEVIATION = float(np.log(1.5))
# Noise grows as 1/√rows. This limits how much longer the step of a client with few rows may be.
MOST_BY_ROWS = 3.0
ENOUGH_TO_COMPARE = 4
# If three steps are compared, a step is too long beyond this many times the middle one.
MOST_OF_THREE = 200.0


def outlying_steps(
    query: Query[AnswerType], answers: Mapping[str, AnswerType], rows: Mapping[str, int]
) -> dict[str, str]:
    """By client, why its answer would move the policy too far."""
    if type(query).step is Query.step:  # this query does not move a policy
        return {}
    lengths = {}
    for name, answer in sorted(answers.items()):
        step = query.step(answer)
        if step is not None:
            lengths[name] = float(np.linalg.norm(step))
    return {
        name: f"its step is {times:.1f} times as long as the others'"
        for name, times in outlying_lengths(lengths, rows).items()
    }


def outlying_lengths(lengths: Mapping[str, float], rows: Mapping[str, int]) -> dict[str, float]:
    """The lengths that are too large compared with the others, as multiples of the median."""
    lengths = {name: length for name, length in lengths.items() if length > 0}
    if len(lengths) < ENOUGH_TO_COMPARE - 1:
        return {}
    usual, most = _usual_and_most(np.log(list(lengths.values())))
    usual_rows = float(np.median([rows.get(name, 1) for name in lengths]))
    return {
        name: length / usual
        for name, length in lengths.items()
        if length > most * min(max(math.sqrt(usual_rows / rows.get(name, 1)), 1.0), MOST_BY_ROWS)
    }


def _usual_and_most(logarithms: FloatArray) -> tuple[float, float]:
    """The median length of a step, and the largest length that is accepted."""
    middle = float(np.median(logarithms))
    if len(logarithms) < ENOUGH_TO_COMPARE:
        return float(np.exp(middle)), MOST_OF_THREE * float(np.exp(middle))
    deviation = BY_MEDIAN_DEVIATION * float(np.median(np.abs(logarithms - middle)))
    reach = MOST_DEVIATIONS * max(deviation, LEAST_DEVIATION)
    return float(np.exp(middle)), float(np.exp(middle + reach))
