"""Law: without `[privacy]`, what leaves is exact: no noise, and no rounding."""

from dataclasses import fields

import numpy as np
import pytest
from test_door import ask, door_to, scored, study_of

import fedopl
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.learning.term_screening import ScreenJumps
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.bin_counts import N_FINE_BINS, CountBins
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.second_look import NEAR_BINS

# Bins of which the outer ones have all rows: with few rows in some, they would be merged.
OUTER = {
    CountBins: {"cuts": np.tile(np.linspace(-1e-9, 1e-9, N_FINE_BINS - 1), (5, 1))},
    SumNearThresholds: {"near": np.linspace(-1e-9, 1e-9, NEAR_BINS - 1)[None]},
}


# The places of jumps keep a cell's rows between them: there the rule binds.
EXACT = [kind for kind in HANDLERS if kind is not ScreenJumps]


@pytest.mark.parametrize("kind", EXACT, ids=lambda kind: kind.__name__)
def test_where_no_rule_binds_default_limits_tell_what_open_ones_tell(draw, kind):
    told = [
        ask(scored(door_to(draw(1500), study_of(kind), limits=own)), kind, **OUTER.get(kind, {}))
        for own in (Limits(), Limits.open())
    ]
    assert not any(isinstance(answer, Refusal) for answer in told)
    for field in fields(told[0]):
        every, some = (np.asarray(getattr(answer, field.name)) for answer in told)
        assert every.tobytes() == some.tobytes(), field.name


def test_a_client_that_adds_no_sums_is_scored_and_valued_by_what_others_learned(draw):
    """45 rows to learn from, and 25 terms."""
    shape = {"n_features": 24, "n_actions": 2}
    data = {name: draw(n, seed=n, **shape) for name, n in (("a", 400), ("b", 300), ("few", 60))}
    options = {"basis": "linear", "limits": "guarded"}
    run = fedopl.learn(
        data, mixture={"a": 0.5, "b": 0.3, "few": 0.2}, **{"evaluation": 0.25, **options}
    )
    others = {name: data[name] for name in ("a", "b")}
    alone = fedopl.learn(
        others, mixture={"a": 0.625, "b": 0.375}, **{"evaluation": 0.25, **options}
    )
    refused = {r.query: r.refused for r in run.rounds if r.refused}
    assert refused == {"SumContrasts": {"few": "TOO_MANY_PARAMETERS"}}
    np.testing.assert_allclose(run.policy.parameters, alone.policy.parameters, rtol=1e-9)
    assert run.values.of("learned", "few").n_rows == 15
    assert np.isfinite(run.values.of("learned", "few").value)
