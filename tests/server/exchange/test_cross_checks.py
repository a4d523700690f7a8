"""Answers checked together: what is found is what is found of each by itself."""

from dataclasses import replace

import numpy as np
import pytest

from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.learning.score_sums import ScoreSums, SumScores
from fedopl.messages.message import stack_of
from fedopl.server.exchange.cross_checks import CrossChecks
from fedopl.study.study import Study

STUDY = Study(actions=("a", "b"), features=("x", "y"), aggregators=("region",))
NAMES = ("east", "north", "region", "west")


def drawn(place):
    """(x, y, 1, outcome) of ten rows in each of five folds and two arms."""
    rows = np.random.default_rng(place).standard_normal((5, 2, 10, 4))
    rows[..., 2] = 1.0
    return rows


def outcome_sums(place):
    rows = drawn(place)
    sums = rows.swapaxes(-1, -2) @ rows
    return OutcomeSums(sums=sums, squared_weights=np.full((5, 2), 10.0))


def score_sums(place, n_grams=1):
    rows = drawn(place)[0]
    means = rows.swapaxes(-1, -2) @ rows / 10
    grams = np.broadcast_to(means[:n_grams, :-1, :-1], (n_grams, 3, 3))
    both = np.concatenate([rows[0, :, :-1], rows[0, :, -1:], rows[1, :, -1:]], axis=1)
    together = both.T @ both / 10
    return ScoreSums(
        grams=grams if n_grams == 2 else together[None, :3, :3],
        products=means[:, -1, :-1] if n_grams == 2 else together[3:, :3],
        squares=means[:, -1, -1] if n_grams == 2 else np.diagonal(together)[3:],
        shares=np.ones(2),
    )


ENROLLED = {name: Enrolment(n_rows=100, rows_per_action=np.full(2, 50.0)) for name in NAMES}
OUTCOMES = {name: outcome_sums(place) for place, name in enumerate(NAMES)}
SCORES = {name: score_sums(place) for place, name in enumerate(NAMES)}
SUM_SCORES = SumScores(models=np.zeros((6, 2, 3)), supported=np.ones((6, 2)))
ASKED = [(Enrol(), ENROLLED), (SumOutcomes(), OUTCOMES), (SUM_SCORES, SCORES)]


APART = 3 - 2 * np.eye(4)  # products three times as large, and squares as they are


def wrong(answer, **changes):
    return replace(answer, **changes)


LIES = {
    "a negative weight": ("north", wrong(OUTCOMES["north"], squared_weights=-np.ones((5, 2)))),
    "products too large": ("west", wrong(OUTCOMES["west"], sums=OUTCOMES["west"].sums * APART)),
    "an aggregator's": ("region", wrong(OUTCOMES["region"], sums=-OUTCOMES["region"].sums)),
    "a scaled gram": ("east", wrong(SCORES["east"], grams=2 * SCORES["east"].grams)),
    "a share of 2": ("east", wrong(SCORES["east"], shares=np.full(2, 2.0))),
    "other grams": ("north", wrong(SCORES["north"], grams=np.ones((3, 3, 3)))),
    "nobody": ("west", Enrolment(n_rows=0, rows_per_action=np.zeros(2))),
    "half a row": ("west", Enrolment(n_rows=9, rows_per_action=np.full(2, 4.5))),
    "more than all": ("west", Enrolment(n_rows=9, rows_per_action=np.full(2, 900.0))),
}


def found_one_by_one(lie=None):
    checks, found = CrossChecks(STUDY), {}
    for query, honest in ASKED:
        for name, answer in with_lie(honest, lie).items():
            if fault := checks.fault_in(name, query, answer):
                found[name] = fault
    return found, checks


def with_lie(honest, lie):
    if lie is None or type(LIES[lie][1]) is not type(next(iter(honest.values()))):
        return honest
    name, answer = LIES[lie]
    return {**honest, name: answer}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_what_is_found_of_all_together_is_what_is_found_of_each(lie):
    expected, alone = found_one_by_one(lie)
    together, found = CrossChecks(STUDY), {}
    for query, honest in ASKED:
        found |= together.faults_in(query, with_lie(honest, lie))
    assert found == expected
    assert list(found) == ([] if lie is None else [LIES[lie][0]])
    for kept in ("rows", "of_other_rows", "outcomes"):
        assert getattr(together, kept) == getattr(alone, kept)


def test_answers_of_different_shapes_are_not_stacked():
    answers = {"north": score_sums(1), "west": score_sums(3, n_grams=2)}
    assert stack_of(list(answers.values())) is None
    assert CrossChecks(STUDY).faults_in(SUM_SCORES, answers) == {}


def test_honest_answers_are_looked_at_once_and_not_one_by_one(monkeypatch):
    looked_at = []

    def noted(self, answer, _study, _n_rows):
        looked_at.append(answer.sums.shape)

    monkeypatch.setattr(SumOutcomes, "fault_in", noted)
    assert CrossChecks(STUDY).faults_in(SumOutcomes(), OUTCOMES) == {}
    assert looked_at == [(4, 5, 2, 4, 4)]
