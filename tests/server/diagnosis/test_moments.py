import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from test_shifts import TRIO, edited, of, talk

from fedopl.messages.about_differences import ScoreMoments
from fedopl.messages.learning.score_sums import SumScores
from fedopl.server.diagnosis.diagnose import ask_for_moments


def scored(conversation):
    """The conversation, once everybody has scored its rows."""
    study = conversation.study
    shape = (study.nuisances.folds + 1, study.n_actions, study.n_features + 1)
    models = {"models": np.zeros(shape), "supported": np.ones(shape[:2])}
    conversation.each(SumScores(**models), TRIO.clients)
    return conversation


def test_moments_are_estimates_that_bounds_can_take():
    conversation = scored(talk(TRIO, 400))
    found = ask_for_moments(conversation, TRIO.clients)
    assert sorted(found) == sorted(TRIO.clients)
    for name, moments in found.items():
        space = conversation.transport.doors[name]._space
        squares = space.scores[space.training] ** 2
        assert moments.envelope.value == pytest.approx(squares.max(axis=1).mean())
        assert moments.envelope.n_rows == len(squares) == moments.envelope.degrees_of_freedom + 1
        error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares))
        for action, one in enumerate(moments.by_action):
            assert one.value == pytest.approx(squares[:, action].mean())
            assert one.standard_error == pytest.approx(error[action])
        assert json.loads(json.dumps(asdict(moments)))["envelope"]["value"] > 0


def test_what_is_not_told_is_none():
    change = of(ScoreMoments, rows=lambda a: 0 * a, means=lambda a: 0 * a)
    moments = ask_for_moments(scored(edited(TRIO, change)), TRIO.clients)[TRIO.clients[1]]
    assert moments.envelope is None
    assert moments.by_action == (None,) * 3


BAD = {
    "a part of a row": (of(ScoreMoments, rows=lambda a: a + 0.5), "not a whole number"),
    "a negative mean": (of(ScoreMoments, means=lambda a: -a), "is negative"),
    "a negative variance": (of(ScoreMoments, variances=lambda a: -a), "is negative"),
    "too small an envelope": (
        of(ScoreMoments, means=lambda a: a * [0.1, 1, 1, 1]),
        "larger than the largest",
    ),
}


@pytest.mark.parametrize(("change", "why"), BAD.values(), ids=BAD)
def test_moments_that_cannot_be_are_rejected_by_name(change, why):
    conversation = scored(edited(TRIO, change))
    found = ask_for_moments(conversation, TRIO.clients)
    assert sorted(found) == [TRIO.clients[0], TRIO.clients[2]]
    assert why in conversation.rounds[-1].rejected[TRIO.clients[1]]
