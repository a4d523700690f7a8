import errno
import hashlib
import json
import resource
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedopl
from fedopl.client.answers.handlers import HANDLERS, PRIVATE_HANDLERS, TARGET_HANDLERS
from fedopl.client.disclosure.ledger import FileLedger, MemoryLedger, unlocking
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disclosure.small_cells import releasable_cells
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.scoring import scoring_pass
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.diagnosis.classifier_sums import ClassifyContexts
from fedopl.messages.diagnosis.client_models import N_PARTS, TellModels
from fedopl.messages.diagnosis.model_shifts import CompareModels
from fedopl.messages.diagnosis.score_moments import TellMoments
from fedopl.messages.evaluation.candidate_spending import ValueSpending
from fedopl.messages.evaluation.cross_fitted_values import ValueAcrossFolds
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.outcome_values import ValueOutcome
from fedopl.messages.evaluation.personal_values import (
    ValuePersonal,
    ValuePersonalChoice,
    ValuePersonalTree,
)
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.evaluation.price_curve import N_PRICES, N_TREES, ValuePrices
from fedopl.messages.learning.contrast_squares import SumContrasts
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.found_terms import TakeFound
from fedopl.messages.learning.improved_policy import ImprovePolicy
from fedopl.messages.learning.jump_screening import ScreenJumps
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.pair_sums import SumPairs
from fedopl.messages.learning.product_screening import ScreenProducts
from fedopl.messages.learning.score_sums import SumFitting, SumScores
from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.messages.learning.total_weight import TellWeight
from fedopl.messages.learning.trained_network import TrainNetwork
from fedopl.messages.learning.value_slope import SlopeOfValue
from fedopl.messages.message import LARGEST_ASKED, Axis, RowSplit
from fedopl.messages.refusal import PRIVATE_REASONS, Refusal, RefusalCode
from fedopl.messages.secure.masked_sums import MaskedSums
from fedopl.messages.target.balance_sums import BalanceContexts
from fedopl.messages.target.context_moments import TellContexts
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.messages.target.transported_values import N_REGIONS, ValueAtTarget
from fedopl.messages.trees.bin_counts import N_FINE_BINS, CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.leaf_values import ValueLeaves
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.messages.trees.tree_path import ValueTrees
from fedopl.messages.vocabulary import MESSAGES, QUERIES, is_private, queries_of
from fedopl.policies.basis import Basis
from fedopl.policies.kinds import packed
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.policies.trees.second_look import NEAR_BINS
from fedopl.server.aggregate.federated_outcomes import solve_outcomes
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study
from fedopl.study.target_plan import TargetPlan
from fedopl.study.training_plans import TrainingPlan

ACTIONS, FEATURES = ("a0", "a1", "a2"), ("x0", "x1", "x2", "x3", "x4")
MARGINAL = NuisancePlan(propensity="marginal")
LOCAL = NuisancePlan(propensity="marginal", kind="local")


# The last two are of studies that set none apart.
ON_ROWS_SET_APART = (
    *(EstimateValues, ValueOutcome, ValuePrices, ValueTrees, ValueLeaves, ValuePersonal, TellFit),
    *(ValuePersonalTree, ValuePersonalChoice),
    *(ValueAtTarget, ValueSpending, TellInteractions, BalanceContexts, ValueJointly),
    *(SumByFold, ValueAcrossFolds),
)
ABOUT_A_TARGET = (TellContexts, ValueAtTarget)
JOINTLY = (BalanceContexts, ValueJointly)
ON_MODELS = (TellModels, CompareModels, ClassifyContexts, TellMoments)
# Whose answers depend on nothing that a server chooses.
FIXED = (Enrol, SumOutcomes, TellModels, TellWeight, ScreenProducts, ScreenJumps)
# Of studies that look for terms, before some are found and after.
LOOKING = {
    ScreenProducts: {"screened_pairs": 2},
    ScreenJumps: {"screened_thresholds": 2},
    TakeFound: {
        "screened_pairs": 2,
        "found_pairs": [("x0", "x1")],
        "screened_thresholds": 2,
        "found_thresholds": [(("x0", 0.0),)],
    },
}
ORACLE_OF = {SumPairs: "wap", ImprovePolicy: "csoaa-sgd", SlopeOfValue: "direct"}


HARM = fedopl.Guardrail(column="harm", at_most=0.1, more_than="what was done")
FEW_STEPS = TrainingPlan(rounds=2, local_steps=3, batch_size=16)


def study_of(kind=None, *, oracle=None, plan=FEW_STEPS, **changes):
    """A study; one that needs this kind of query, if it is one that not every study needs."""
    oracle = oracle or ORACLE_OF.get(kind, "csoaa-exact")
    policy = fedopl.Linear(oracle=oracle, training=plan)
    options = {"actions": ACTIONS, "features": FEATURES, "policy": policy, "nuisances": MARGINAL}
    if kind in (CountBins, SumCells, SumNearThresholds, ValueLeaves, ValueTrees, ValuePersonalTree):
        options["policy"] = "tree"
    if kind is ValueSpending:
        options["policy"] = "finite"
    if kind is TrainNetwork:
        options["policy"] = fedopl.Neural(hidden=(2,), rounds=2)
    options["joining"] = kind in ON_MODELS
    if kind in LOOKING:
        knots = {"x0": (-1.0, 0.0, 1.0)}
        options["basis"] = Basis(knots=knots, **LOOKING[kind])
    if kind is SumFitting:
        options["mixture"] = fedopl.mixture.path("north")
    if kind is TellWeight:
        options["mixture"] = fedopl.mixture.empirical(count="weight")
    if kind in (SumByFold, ValueAcrossFolds):
        options["evaluation"] = "cross-fitted"
    if kind is ValueOutcome:
        options["guardrails"] = {"harm": HARM}
    if kind in (SumContrasts, ValuePersonal, ValuePersonalTree, ValuePersonalChoice):
        options["personal"] = "ridge"
    if kind is ValuePersonalChoice:
        options["policy"] = "finite"
    if kind in (ValuePrices, ValueTrees, ValueSpending):
        options["budget"] = fedopl.Budget(shares={ACTIONS[1]: 0.2})
    if kind in ABOUT_A_TARGET:
        options["target"] = TargetPlan(client="new")
    if kind in JOINTLY:
        options["target"] = TargetPlan(client="new", balance="joint")
    return Study(**{**options, **changes})


def finite_study_with(oracle):
    """A study as a file may say it: of a finite policy, which has no use for the oracle."""
    flat = study_of(policy="finite").model_dump(mode="json")
    return Study.model_validate_json(json.dumps({**flat, "oracle": oracle}))


def door_to(data, study=None, *, limits=None, secret=SEED_ALONE, **options):
    options |= {"limits": limits or Limits.open(), "secret": secret}
    if study and study.guardrails and not data.outcome_names:
        data = with_harm(data)
    return Door("north", data, study or study_of(), **options)


def with_harm(data):
    """The same rows, with a further outcome that follows from the first."""
    names = ("contexts", "actions", "rewards", "propensities", "action_names", "weights", "groups")
    fields = {name: getattr(data, name) for name in (*names, "feature_names")}
    return fedopl.LoggedData(**fields, outcomes={"harm": np.abs(data.rewards)})


def query_of(kind, agreed, exchange=1, **changes):
    """A query of this kind that a client of the study has no reason to refuse."""
    shape = (agreed.n_actions, agreed.n_features + 1)
    n_trees = N_TREES + agreed.n_actions
    jointly = {
        "centres": np.zeros(shape[1]),
        "scales": np.ones(shape[1]),
        "slopes": np.zeros(2 * agreed.n_features),
    }
    made = {
        SumScores: models_for(agreed),
        ImprovePolicy: {
            "round": 0,
            "parameters": np.zeros(shape),
            "centre": np.zeros(shape[1]),
            "scale": np.ones(shape[1]),
        },
        SlopeOfValue: {"temperature": 1.0, "parameters": np.zeros(shape)},
        TrainNetwork: {
            "round": 0,
            "network": np.zeros(max(axis_sizes(agreed)[Axis.NETWORK_NUMBERS])),
            "linear": np.zeros(shape),
            "centre": np.zeros(shape[1]),
            "scale": np.ones(shape[1]),
            "spread": 1.0,
        },
        EstimateValues: {**packed([], agreed), "split": RowSplit.EVALUATION},
        ValueOutcome: {**packed([], agreed), "outcome": 0},
        ValuePrices: {
            "prices": np.linspace(0, 1, N_PRICES),
            "against": 0,
            "parameters": np.zeros(shape),
        },
        ValueSpending: {**packed([], agreed), "against": 0},
        ValueTrees: {"against": 0, "trees": np.array([as_array(Leaf(0))] * n_trees)},
        ValuePersonal: {
            **packed([], agreed),
            "others": np.zeros(shape),
            "centre": np.zeros(shape[1]),
            "scale": np.ones(shape[1]),
            "likelihoods": np.zeros(len(RIDGE_STRENGTHS)),
        },
        ValuePersonalTree: {
            **packed([], agreed),
            "tree": as_array(Branch(0, 0.0, Leaf(0), Leaf(1))),
            "others": np.zeros((agreed.n_actions, 2)),
            "likelihoods": np.zeros(len(RIDGE_STRENGTHS)),
        },
        ValuePersonalChoice: {
            **packed([], agreed),
            "linear": np.zeros((2, *shape)),
            "others": np.zeros(2),
            "likelihoods": np.zeros(len(RIDGE_STRENGTHS)),
        },
        ValueAtTarget: {
            **packed([], agreed),
            "linear": np.zeros((1, *shape)),
            "models": np.zeros(shape),
            "means": np.append(np.zeros(shape[1] - 1), 1.0),
            "squares": np.ones(shape[1]),
            "regions": np.zeros((N_REGIONS, shape[1])),
        },
        BalanceContexts: jointly,
        ValueJointly: {
            **packed([], agreed),
            "linear": np.zeros((1, *shape)),
            "models": np.zeros(shape),
            "share": 0.5,
            **jointly,
            "regions": np.zeros((N_REGIONS, shape[1])),
        },
        ValueAcrossFolds: {
            **packed([], agreed),
            "linear": np.zeros((5 * agreed.evaluation.is_cross_fitted, *shape)),
        },
        Describe: {
            **packed([], agreed),
            "linear": np.zeros((1, *shape)),
            "cuts": np.tile([-1.0, 0.0, 1.0], (shape[1], 1)),
        },
        CountBins: {"cuts": np.tile(np.linspace(-3, 3, N_FINE_BINS - 1), (agreed.n_features, 1))},
        SumCells: {
            "partition": as_array(Leaf(0)),
            "n_cuts": np.full(agreed.n_features, 3.0),
            "cuts": np.tile([-1.0, 0.0, 1.0], agreed.n_features),
        },
        SumNearThresholds: {
            "tree": as_array(Branch(0, 0.0, Leaf(0), Leaf(1))),
            "n_cuts": np.full(agreed.n_features, 3.0),
            "cuts": np.tile([-1.0, 0.0, 1.0], agreed.n_features),
            "near": np.linspace(-0.75, 0.75, NEAR_BINS - 1)[None],
        },
        TakeFound: {name: getattr(TakeFound.of(agreed), name) for name in ("pairs", "thresholds")},
        ValueLeaves: {"tree": as_array(Branch(0, 0.0, Leaf(0), Leaf(1)))},
        CompareModels: others_models(agreed),
        ClassifyContexts: {"split": RowSplit.TRAINING, "parameters": np.zeros((1, shape[1]))},
    }.get(kind, {})
    common = {"study": agreed.digest, "exchange": exchange}
    return kind(**{**common, **made, **changes})


def ask(door, kind, exchange=1, **changes):
    """What the door answers, as a message; why it withholds one is what its ledger says."""
    return explained(door, door.handle(encoded_query(door, kind, exchange, **changes)))


def explained(door, content):
    """The last answer of the door, as a message; why it was withheld is what its ledger says."""
    answer = decoded(door, content)
    if isinstance(answer, Refusal) and answer.reason is RefusalCode.WITHHELD:
        return replace(answer, reason=RefusalCode[door.ledger.entries()[-1].why])
    return answer


def encoded_query(door, kind, exchange=1, **changes):
    return codec.encode(query_of(kind, door.study, exchange, **changes))


def decoded(door, answer):
    return codec.decode(answer, axis_sizes(door.study))


def scored(door):
    """The door, once it has scored its rows, where its study is one that comes to that."""
    assert not door.study.is_screened or not isinstance(ask(door, SumScores, exchange=0), Refusal)
    return door


def changed(data, rewards):
    return fedopl.LoggedData(
        data.contexts, data.actions, rewards, data.propensities, action_names=data.action_names
    )


def without_action(data, code):
    kept = data.actions != code
    return fedopl.LoggedData(
        data.contexts[kept],
        data.actions[kept],
        data.rewards[kept],
        action_names=data.action_names,
    )


def thinned(data, code, n_rows):
    """The data with only so many rows of one action."""
    kept = np.setdiff1d(np.arange(data.n_rows), np.flatnonzero(data.actions == code)[n_rows:])
    return fedopl.LoggedData(
        data.contexts[kept], data.actions[kept], data.rewards[kept], action_names=ACTIONS
    )


def models_for(study, value=0.5):
    """As many outcome models as the study's server sends: for each fold and from all, or none."""
    shape = (study.n_outcome_models, study.n_actions, study.n_terms + 1)
    return {"models": np.full(shape, value), "supported": np.ones(shape[:2])}


def others_models(study, n_clients=1, variance=1.0):
    """Models of so many clients, all of which take every action alike, whatever comes of it."""
    shape = (n_clients, N_PARTS + 1, study.n_actions, study.n_features + 1)
    return {
        "propensities": np.zeros(shape),
        "outcomes": np.zeros(shape),
        "variances": np.full(shape[:-1], variance),
        "supported": np.ones((n_clients, study.n_actions)),
    }


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_every_query_has_its_answer_for_this_study_and_this_exchange(draw, kind):
    answer = ask(scored(door_to(draw(), study_of(kind))), kind, exchange=7)
    assert type(answer) is kind.answer
    assert (answer.study, answer.exchange) == (study_of(kind).digest, 7)


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_query_asked_twice_has_the_same_answer_to_the_byte(draw, kind):
    doors = [scored(door_to(draw(), study_of(kind))) for _ in range(2)]
    query = encoded_query(doors[0], kind)
    assert len({door.handle(query) for door in [*doors, *doors]}) == 1


def test_enrolment_tells_training_rows_and_leaves_small_counts_out(draw):
    data, study = thinned(draw(), 2, 6), study_of(evaluation=0.5)
    all_counts = ask(door_to(data, study), Enrol).rows_per_action
    assert all_counts[2] == 3
    told = ask(door_to(data, study, limits=Limits(minimum_cell=5)), Enrol)
    # With the third, the smaller of the others is hidden: the total would give the third away.
    assert told.rows_per_action.tolist() == [max(all_counts), 0, 0]
    told = ask(door_to(data, study, limits=Limits(minimum_cell=3)), Enrol)
    assert told.rows_per_action.tolist() == all_counts.tolist()


def test_a_count_that_is_left_out_cannot_be_had_by_subtraction(draw):
    data = thinned(draw(), 2, 6)
    hidden = ask(door_to(data), Enrol).rows_per_action[2]
    told = ask(door_to(data, limits=Limits(minimum_cell=6)), Enrol)
    assert 0 < hidden < 6
    assert told.n_rows - told.rows_per_action.sum() != hidden


@pytest.mark.parametrize(
    ("limits", "threshold"),
    [
        (Limits(minimum_cell=10, parameter_share=1), 10),  # too few rows
        (Limits(minimum_cell=0, parameter_share=0.5), 12),  # too few for 6 columns
    ],
    ids=["rows", "columns"],
)
def test_small_cells_are_left_out_of_outcome_sums(draw, limits, threshold):
    data = thinned(draw(300), 2, 50)
    every = ask(door_to(data), SumOutcomes)
    some = ask(door_to(data, limits=limits), SumOutcomes)
    small = every.sums[..., -2, -2] < threshold
    told = some.squared_weights > 0
    assert small.any()
    assert told.any()
    assert not told[small].any()
    assert not some.sums[~told].any()
    assert some.sums[told].tobytes() == every.sums[told].tobytes()
    assert some.squared_weights[told].tolist() == every.squared_weights[told].tolist()


# --- refusals -----------------------------------------------------------------------------------


def test_another_study_is_refused(draw):
    door = door_to(draw())
    other = study_of(seed=1)
    assert reason(ask(door, Enrol, study=other.digest)) == "WRONG_STUDY"


def test_a_study_that_differs_in_anything_is_another_study():
    changes = [
        {"name": "other"},
        {"oracle": "wap"},
        {"quorum": 0.75},
        {"evaluation": 0.3},
        {"evaluation": fedopl.EvaluationPlan(describe=False)},
        {"joining": True},
        {"requires": {"descriptions": 1}},
        {"nuisances": LOCAL},
        {"policy": fedopl.Finite(candidates=("rule",))},
        {"plan": TrainingPlan(rounds=3)},
        {"mixture": {"kind": "uniform"}},
    ]
    assert len({study_of().digest, *(study_of(**change).digest for change in changes)}) == 12


def test_another_version_is_refused(draw):
    door = door_to(draw())
    query = bytearray(encoded_query(door, Enrol))
    query[4] += 1
    assert reason(decoded(door, door.handle(bytes(query)))) == "WRONG_VERSION"


@pytest.mark.parametrize("content", [b"", b"fopl", b"\x80\x04.", b"GET / HTTP/1.1", bytes(100)])
def test_what_is_no_message_is_refused(draw, content):
    door = door_to(draw())
    assert reason(decoded(door, door.handle(content))) == "MALFORMED"
    assert door.ledger.entries()[0].query == "unreadable"


def test_an_answer_is_not_a_query(draw):
    door = scored(door_to(draw()))
    for kind in (Enrol, SumOutcomes, SumScores, EstimateValues, Describe):
        answer = door.handle(encoded_query(door, kind))
        assert reason(decoded(door, door.handle(answer))) == "MALFORMED"


REFUSED = {
    "too few rows": ({"minimum_rows": 152}, Enrol, "TOO_FEW_ROWS"),
    "too few rows for sums": ({"minimum_rows": 152}, SumScores, "TOO_FEW_ROWS"),
    "too few rows for values": ({"minimum_cell": 50}, EstimateValues, "TOO_FEW_ROWS"),
    "every cell is small": ({"minimum_cell": 30}, SumOutcomes, "SMALL_CELLS"),
    "more columns than rows": ({"parameter_share": 0.039}, SumScores, "TOO_MANY_PARAMETERS"),
    "the same for pairs": ({"parameter_share": 0.039}, SumPairs, "TOO_MANY_PARAMETERS"),
    "the same for slopes": ({"parameter_share": 0.039}, SlopeOfValue, "TOO_MANY_PARAMETERS"),
    "the same for descriptions": ({"parameter_share": 0.039}, Describe, "TOO_MANY_PARAMETERS"),
    "more parameters than rows": ({"parameter_share": 0.1}, ImprovePolicy, "TOO_MANY_PARAMETERS"),
    "more values than rows": ({"parameter_share": 0.039}, EstimateValues, "TOO_MANY_PARAMETERS"),
    "values are forbidden": ({"values": False}, EstimateValues, "VALUES_FORBIDDEN"),
    "no value query is free": ({"value_queries": 0}, EstimateValues, "BUDGET_SPENT"),
    "no score query is free": ({"score_queries": 0}, SumScores, "BUDGET_SPENT"),
    "no slope is free": ({"slope_queries": 0}, SlopeOfValue, "BUDGET_SPENT"),
    "no description is free": ({"descriptions": 0}, Describe, "BUDGET_SPENT"),
    "few rows for models": ({"parameter_share": 0.039}, TellModels, "TOO_MANY_PARAMETERS"),
    "every action is rare": ({"minimum_cell": 30}, TellModels, "SMALL_CELLS"),
    "the same to compare": ({"minimum_cell": 30}, CompareModels, "SMALL_CELLS"),
    "few rows to fit": ({"parameter_share": 0.039}, SumFitting, "TOO_MANY_PARAMETERS"),
    "a small fold": ({"minimum_cell": 32}, SumFitting, "SMALL_CELLS"),
    "no fit is free": ({"score_queries": 0}, SumFitting, "BUDGET_SPENT"),
    "large sums to fit": ({"norm_cap": 1e-6}, SumFitting, "NORM_TOO_LARGE"),
    "few rows for moments": ({"parameter_share": 0.039}, TellMoments, "TOO_MANY_PARAMETERS"),
    "no moment is free": ({"model_queries": 0}, TellMoments, "BUDGET_SPENT"),
    "large moments": ({"norm_cap": 1e-6}, TellMoments, "NORM_TOO_LARGE"),
    "few rows to classify": ({"parameter_share": 0.039}, ClassifyContexts, "TOO_MANY_PARAMETERS"),
    "no model is free": ({"model_queries": 0}, TellModels, "BUDGET_SPENT"),
    "no comparison is free": ({"model_queries": 0}, CompareModels, "BUDGET_SPENT"),
    "no classifier is free": ({"classifier_queries": 0}, ClassifyContexts, "BUDGET_SPENT"),
    "large models": ({"norm_cap": 1e-6}, TellModels, "NORM_TOO_LARGE"),
    "large shifts": ({"norm_cap": 1e-6}, CompareModels, "NORM_TOO_LARGE"),
    "a large loss": ({"norm_cap": 1e-6}, ClassifyContexts, "NORM_TOO_LARGE"),
    "a slope of few rows": ({"minimum_cell": 150}, SlopeOfValue, "SMALL_CELLS"),
    "a large number": ({"norm_cap": 1.0}, SumOutcomes, "NORM_TOO_LARGE"),
    "a large count": ({"norm_cap": 10.0}, Enrol, "NORM_TOO_LARGE"),
    "large counts": ({"norm_cap": 10.0}, Describe, "NORM_TOO_LARGE"),
    "large parameters": ({"norm_cap": 1e-6}, ImprovePolicy, "NORM_TOO_LARGE"),
    "large values": ({"norm_cap": 1e-6}, EstimateValues, "NORM_TOO_LARGE"),
}


def reason(answer):
    assert isinstance(answer, Refusal), f"answered with {type(answer).__name__}"
    return answer.reason.name


@pytest.mark.parametrize(("limit", "kind", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_client_refuses_what_its_limits_forbid(draw, limit, kind, expected):
    data = draw(200)  # 151 rows to learn from, 49 set apart
    study = study_of(kind)
    ready = scored(door_to(data, study))
    loose = {"minimum_rows": 1, "minimum_cell": 0, "parameter_share": 10}
    door = door_to(data, study, limits=Limits(**{**loose, **limit}))
    door._space.keep(ready._space.scored)
    assert reason(ask(door, kind)) == expected
    entry = door.ledger.entries()[0]
    if RefusalCode[expected] in PRIVATE_REASONS and not kind.is_fixed:
        assert (entry.reason, entry.why) == ("WITHHELD", expected)
    else:
        assert (entry.reason, entry.why) == (expected, "")


def test_the_value_budget_counts_different_queries_and_a_repeated_one_is_free(draw):
    study = study_of()
    door = scored(door_to(draw(), study, limits=Limits(value_queries=2)))
    policies = np.zeros((3, 1, study.n_actions, study.n_features + 1))
    policies[:, 0, :, -1] = np.eye(3)
    first, second, third = (encoded_query(door, EstimateValues, linear=p) for p in policies)
    paid = [door.handle(first), door.handle(second)]
    assert not [a for a in paid if isinstance(decoded(door, a), Refusal)]
    assert [door.handle(first), door.handle(second), door.handle(first)] == [*paid, paid[0]]
    assert reason(decoded(door, door.handle(third))) == "BUDGET_SPENT"


def test_what_was_paid_for_stays_free_after_the_budget_is_spent(draw):
    door = scored(door_to(draw(), limits=Limits(value_queries=1)))
    first, second = (encoded_query(door, EstimateValues, exchange) for exchange in (1, 2))
    paid = door.handle(first)
    assert reason(decoded(door, door.handle(second))) == "BUDGET_SPENT"
    assert door.handle(first) == paid


def test_a_new_process_does_not_get_a_new_value_budget(draw, tmp_path):
    own = {
        "store": FolderStore(tmp_path / "store"),
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
    }
    limits = Limits(value_queries=1)
    door = scored(door_to(draw(), limits=limits, **own))
    assert not isinstance(ask(door, EstimateValues, exchange=1), Refusal)
    again = door_to(draw(), limits=limits, **own)
    assert reason(ask(again, EstimateValues, exchange=2)) == "BUDGET_SPENT"


@pytest.mark.parametrize("kind", ["federated", "local"])
def test_an_action_never_taken_is_refused_where_the_study_says_so(draw, kind):
    nuisances = NuisancePlan(propensity="marginal", unseen="refuse", kind=kind)
    study = study_of(nuisances=nuisances)
    door = door_to(without_action(draw(), 1), study)
    assert reason(ask(door, SumScores)) == "UNSEEN_ACTION"
    assert not isinstance(ask(door_to(draw(), study), SumScores), Refusal)


def test_known_propensities_are_refused_where_there_are_none(draw):
    study = study_of(nuisances=NuisancePlan(propensity="known"))
    assert reason(ask(door_to(draw(), study), SumScores)) == "NO_PROPENSITIES"
    assert not isinstance(ask(door_to(draw(known=True), study), SumScores), Refusal)


@pytest.mark.parametrize(
    "kind",
    [SumPairs, SumFitting, ImprovePolicy, SlopeOfValue, EstimateValues, Describe, TellMoments],
)
def test_there_is_nothing_to_say_before_rows_are_scored(draw, kind):
    assert reason(ask(door_to(draw(), study_of(kind)), kind)) == "NOTHING_TO_SAY"


def test_there_is_nothing_to_say_of_rows_that_are_not_there(draw):
    door = scored(door_to(draw(), study_of(evaluation=0.0)))
    assert reason(ask(door, EstimateValues)) == "NOTHING_TO_SAY"


def test_there_is_nothing_to_say_with_models_that_support_nothing(draw):
    """Nor can own ones be had, of actions that fewer rows took than a sum has to rest on."""
    limits = Limits.open().model_copy(update={"parameter_share": 6 / 140})
    door = door_to(draw(), limits=limits)
    models = models_for(door.study)
    models["supported"][:] = 0
    assert reason(ask(door, SumScores, **models)) == "NOTHING_TO_SAY"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sizes", [(1e200, 1.0), (1.0, 1e200)], ids=["contexts", "rewards"])
def test_what_is_not_finite_does_not_leave(draw, sizes):
    data = draw()
    huge = fedopl.LoggedData(
        data.contexts * sizes[0], data.actions, data.rewards * sizes[1], action_names=ACTIONS
    )
    assert reason(ask(door_to(huge), SumOutcomes)) == "NOT_FINITE"


# The arrays and numbers of queries; those of policies come to actions, however large they are.
BOUNDED = {
    "models": (SumScores, "models"),
    "support": (SumScores, "supported"),
    "parameters to improve": (ImprovePolicy, "parameters"),
    "a centre": (ImprovePolicy, "centre"),
    "a scale": (ImprovePolicy, "scale"),
    "parameters of a slope": (SlopeOfValue, "parameters"),
    "a temperature": (SlopeOfValue, "temperature"),
    "cuts of a description": (Describe, "cuts"),
    "cuts of bins": (CountBins, "cuts"),
    "cuts of cells": (SumCells, "cuts"),
    "cuts near a threshold": (SumNearThresholds, "near"),
    "propensities": (CompareModels, "propensities"),
    "outcomes": (CompareModels, "outcomes"),
    "variances": (CompareModels, "variances"),
    "classifiers": (ClassifyContexts, "parameters"),
}


def no_rows(*_args, **_options):
    raise AssertionError("rows were touched")


@pytest.mark.parametrize("size", [1.01 * LARGEST_ASKED, 1e200, 1.7e308])
@pytest.mark.parametrize(("kind", "field"), BOUNDED.values(), ids=BOUNDED)
def test_numbers_larger_than_any_honest_one_are_refused_before_rows_are_touched(
    draw, monkeypatch, kind, field, size
):
    door = scored(door_to(draw(), study_of(kind)))
    held = getattr(query_of(kind, door.study), field)
    monkeypatch.setitem(HANDLERS, kind, no_rows)
    assert reason(ask(door, kind, **{field: np.zeros_like(held) + size})) == "MALFORMED"
    negative = np.array(held, float)
    negative.flat[-1] = -size
    negative = negative if negative.ndim else float(negative)
    assert reason(ask(door, kind, **{field: negative})) == "MALFORMED"


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-16, 1e-320])
def test_a_slope_so_steep_that_it_overflows_is_refused_before_rows_are_touched(
    draw, monkeypatch, temperature
):
    door = scored(door_to(draw(), study_of(SlopeOfValue)))
    monkeypatch.setitem(HANDLERS, SlopeOfValue, no_rows)
    assert reason(ask(door, SlopeOfValue, temperature=temperature)) == "MALFORMED"


def test_policies_decide_the_same_however_large_their_numbers_are(draw):
    door = scored(door_to(draw()))
    policy = np.arange(18.0).reshape(1, 3, 6) % 5 - 2
    told = [ask(door, EstimateValues, linear=size * policy).means for size in (1.0, 1e300)]
    np.testing.assert_array_equal(*told)


@pytest.mark.parametrize("outside", [-1, 40])
def test_a_round_outside_the_plan_is_malformed(draw, outside):
    door = scored(door_to(draw(), study_of(ImprovePolicy)))
    assert reason(ask(door, ImprovePolicy, round=outside)) == "MALFORMED"


def test_there_are_no_more_different_rounds_than_the_plan_has(draw):
    plan = TrainingPlan(rounds=2)
    door = scored(door_to(draw(), study_of(ImprovePolicy, plan=plan)))
    for value in (0.1, 0.2):
        told = ask(door, ImprovePolicy, parameters=np.full((3, 6), value))
        assert not isinstance(told, Refusal)
    assert reason(ask(door, ImprovePolicy, parameters=np.full((3, 6), 0.3))) == "BUDGET_SPENT"


def test_a_secret_decides_which_rows_a_batch_holds(draw):
    study = study_of(ImprovePolicy, plan=TrainingPlan(batch_size=20, local_steps=2))
    told = [
        ask(scored(door_to(draw(), study, secret=secret)), ImprovePolicy).parameters
        for secret in ("", "", "ours")
    ]
    np.testing.assert_array_equal(told[0], told[1])
    assert (told[0] != told[2]).any()


def with_one_row_scored(door):
    """Models that support one action in one fold of one row: what a curious server would send."""
    space = door._space
    fold = space.folds.of_row[space.training][0]
    models = models_for(door.study)
    models["supported"][:] = 0
    models["supported"][fold] = 1
    return models


MANY_FOLDS = NuisancePlan(propensity="marginal", folds=200)


def test_sums_over_few_scored_rows_are_refused_however_many_rows_there_are(draw):
    door = door_to(draw(), study_of(nuisances=MANY_FOLDS), limits=Limits())
    told = ask(door, SumScores, **with_one_row_scored(door))
    contexts = door._space.data.contexts
    assert isinstance(told, Refusal), (
        f"a row crossed: {np.isclose(contexts, told.grams[0, -1, :-1]).all(axis=1).any()}"
    )


@pytest.mark.parametrize("kind", [SumPairs, SlopeOfValue])
def test_pairs_and_slopes_of_few_scored_rows_are_refused(draw, tmp_path, kind):
    study, store = study_of(kind, nuisances=MANY_FOLDS), FolderStore(tmp_path)
    door = door_to(draw(), study, store=store)
    assert not isinstance(ask(door, SumScores, **with_one_row_scored(door)), Refusal)
    told = ask(door_to(draw(), study, limits=Limits(), store=store), kind)
    assert reason(told) == "NOTHING_TO_SAY"  # what was scored under other limits is not ours


def test_values_over_few_known_rows_are_refused_however_many_rows_there_are(draw):
    # A policy that takes the unscored action almost everywhere would single out a row's reward.
    data = without_action(draw(300), 1)
    study = study_of(nuisances=LOCAL)
    door = scored(door_to(data, study, limits=Limits(minimum_rows=10)))
    held_out = door._space.folds.held_out
    largest = np.sort(data.contexts[held_out, 0])[-2:]
    policy = np.zeros((1, 3, 6))
    policy[0, 0, 0] = 1.0  # a0 only where x0 exceeds the second largest of the rows set apart
    policy[0, 1, -1] = largest.mean()
    told = ask(door, EstimateValues, linear=policy)
    rewards = data.rewards[held_out].tolist()
    assert isinstance(told, Refusal), (
        f"{told.n_rows} row was valued; its reward crossed: {told.means[-2] in rewards}"
    )


@pytest.mark.parametrize("code", RefusalCode, ids=lambda code: code.name)
def test_every_refusal_is_a_code_and_nothing_else(code):
    refusal = Refusal(study=study_of().digest, exchange=3, reason=code)
    assert len(codec.encode(refusal)) == 8 + 32 + 8 + 8


# --- what no server may ask ---------------------------------------------------------------------

# What every study asks that describes what it learned.
DESCRIBING = (Describe, TellFit, TellInteractions)
STUDIES = {
    "exact": (study_of(), {SumOutcomes, *DESCRIBING}),
    "pairs": (study_of(SumPairs), {SumOutcomes, SumPairs, *DESCRIBING}),
    "steps": (study_of(ImprovePolicy), {SumOutcomes, ImprovePolicy, *DESCRIBING}),
    "slopes": (study_of(SlopeOfValue), {SumOutcomes, SlopeOfValue, *DESCRIBING}),
    "local": (study_of(nuisances=LOCAL), {*DESCRIBING}),
    "local pairs": (study_of(SumPairs, nuisances=LOCAL), {SumPairs, *DESCRIBING}),
    "finite": (study_of(policy="finite"), {SumOutcomes, *DESCRIBING}),
    "finite, whatever the oracle": (finite_study_with("wap"), {SumOutcomes, *DESCRIBING}),
    "diagnosed": (study_of(TellModels), {SumOutcomes, *DESCRIBING, *ON_MODELS}),
    "on a path": (study_of(SumFitting), {SumOutcomes, *DESCRIBING, SumFitting}),
    "by weight": (study_of(TellWeight), {SumOutcomes, *DESCRIBING, TellWeight}),
    "cross-fitted": (
        study_of(SumByFold),
        {SumOutcomes, *DESCRIBING, SumByFold, ValueAcrossFolds},
    ),
    "personal": (
        study_of(ValuePersonal),
        {SumOutcomes, *DESCRIBING, SumContrasts, ValuePersonal},
    ),
    "personal trees": (
        study_of(ValuePersonalTree),
        {
            SumOutcomes,
            *DESCRIBING,
            CountBins,
            SumCells,
            SumNearThresholds,
            ValueLeaves,
            SumContrasts,
            ValuePersonalTree,
        },
    ),
    "personal choices": (
        study_of(ValuePersonalChoice),
        {SumOutcomes, *DESCRIBING, ValuePersonalChoice},
    ),
    "for a target": (study_of(ValueAtTarget), {SumOutcomes, *DESCRIBING, *ABOUT_A_TARGET}),
    "for a target, jointly": (
        study_of(ValueJointly),
        {SumOutcomes, *DESCRIBING, TellContexts, *JOINTLY},
    ),
    "guarded": (study_of(ValueOutcome), {SumOutcomes, *DESCRIBING, ValueOutcome}),
    "not described": (study_of(evaluation=fedopl.EvaluationPlan(describe=False)), {SumOutcomes}),
    "local, not described": (
        study_of(nuisances=LOCAL, evaluation=fedopl.EvaluationPlan(describe=False)),
        set(),
    ),
}


@pytest.mark.parametrize(("study", "own"), STUDIES.values(), ids=STUDIES)
def test_a_client_answers_what_its_study_needs_and_nothing_else(draw, study, own):
    needed = {Enrol, SumScores, *own}
    if ValueAcrossFolds not in own:
        needed.add(EstimateValues)
    assert queries_of(study) == needed
    door = scored(door_to(draw(), study))
    for kind in HANDLERS:  # the target alone is asked what its contexts are like
        answer = ask(door, kind)
        if kind in needed:
            assert type(answer) is kind.answer
        else:
            assert reason(answer) == "NOT_IN_STUDY"


@pytest.mark.parametrize("n_models", range(8))
@pytest.mark.parametrize("nuisances", [MARGINAL, LOCAL], ids=["federated", "local"])
def test_a_client_scores_with_just_as_many_models_as_were_agreed(draw, nuisances, n_models):
    study = study_of(nuisances=nuisances)
    agreed = 6 if nuisances is MARGINAL else 0
    models = {"models": np.zeros((n_models, 3, 6)), "supported": np.ones((n_models, 3))}
    answer = ask(door_to(draw(), study), SumScores, **models)
    if n_models == agreed:
        assert not isinstance(answer, Refusal)
    else:
        assert reason(answer) == "MALFORMED"


@pytest.mark.parametrize("n_supported", [0, 1, 5])
def test_every_model_says_what_it_supports(draw, n_supported):
    door = door_to(draw())
    models = {**models_for(door.study), "supported": np.ones((n_supported, 3))}
    assert reason(ask(door, SumScores, **models)) == "MALFORMED"


BUDGETED = {
    SumScores: ("models", (6, 3, 6)),
    SlopeOfValue: ("parameters", (3, 6)),
    Describe: ("cuts", (6, 3)),
    ClassifyContexts: ("parameters", (2, 6)),
    BalanceContexts: ("slopes", (10,)),
}


@pytest.mark.parametrize("kind", BUDGETED, ids=lambda kind: kind.__name__)
def test_the_sum_budget_counts_different_queries_and_a_repeated_one_is_free(draw, kind):
    name, shape = BUDGETED[kind]
    n_free = 1 if kind is SumScores else 0  # scoring was a query, too
    limits = Limits(score_queries=2 + n_free, slope_queries=2, descriptions=2, classifier_queries=2)
    door = scored(door_to(draw(), study_of(kind), limits=limits))
    queries = [encoded_query(door, kind, **{name: np.full(shape, v)}) for v in (0.1, 0.2, 0.3)]
    paid = [door.handle(query) for query in queries[:2]]
    assert not [answer for answer in paid if isinstance(decoded(door, answer), Refusal)]
    assert reason(decoded(door, door.handle(queries[2]))) == "BUDGET_SPENT"
    assert [door.handle(query) for query in queries[:2]] == paid


@pytest.mark.parametrize("kind", BUDGETED, ids=lambda kind: kind.__name__)
def test_a_new_process_does_not_get_a_new_sum_budget(draw, tmp_path, kind):
    own = {
        "store": FolderStore(tmp_path / "store"),
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(score_queries=1, slope_queries=1, descriptions=1, classifier_queries=1),
    }
    study, exchange = study_of(kind), 0 if kind is SumScores else 1
    door = scored(door_to(draw(), study, **own))
    first = encoded_query(door, kind, exchange)
    paid = door.handle(first)
    assert not isinstance(decoded(door, paid), Refusal)
    again = door_to(draw(), study, **own)
    assert reason(ask(again, kind, exchange=2)) == "BUDGET_SPENT"
    assert again.handle(first) == paid


def test_studies_that_share_a_ledger_have_budgets_of_their_own(draw, tmp_path):
    ledger, limits = FileLedger(tmp_path / "ledger.jsonl"), Limits(value_queries=1)
    for seed in range(2):
        door = scored(door_to(draw(), study_of(seed=seed), limits=limits, ledger=ledger))
        assert not isinstance(ask(door, EstimateValues, exchange=1), Refusal)
        assert reason(ask(door, EstimateValues, exchange=2)) == "BUDGET_SPENT"


def test_sums_slopes_values_and_descriptions_have_budgets_of_their_own(draw):
    limits = Limits(score_queries=1, slope_queries=1, value_queries=1, descriptions=1)
    door = scored(door_to(draw(), study_of(SlopeOfValue), limits=limits))
    for kind in (SlopeOfValue, EstimateValues, Describe):
        assert not isinstance(ask(door, kind, exchange=1), Refusal)
        assert reason(ask(door, kind, exchange=2)) == "BUDGET_SPENT"
    assert reason(ask(door, SumScores, exchange=1)) == "BUDGET_SPENT"


# --- answers that are withheld, and what they cost ----------------------------------------------


def never(action):
    """The fields of a query for slopes in which an action is never taken, which is withheld."""
    parameters = np.zeros((3, 6))
    parameters[action, -1] = -1e3
    return {"parameters": parameters}


def slope_door(draw, **changes):
    limits = changes.pop("limits", Limits())
    return scored(door_to(draw(), study_of(SlopeOfValue), limits=limits, **changes))


def test_private_reasons_cross_as_one_and_only_the_ledger_tells_them_apart(draw):
    few, large = (slope_door(draw, limits=limits) for limits in (Limits(), Limits.open()))
    large.limits = large._space.limits = Limits(norm_cap=1e-9)
    unscored = door_to(draw(), study_of(SlopeOfValue))
    withheld = Refusal(study=few.study.digest, exchange=1, reason=RefusalCode.WITHHELD)
    reasons = {}
    for door, fields in ((few, never(2)), (large, {}), (unscored, {})):
        answer = door.handle(encoded_query(door, SlopeOfValue, **fields))
        reasons[door.ledger.entries()[-1].why] = answer
    assert set(reasons) == {"SMALL_CELLS", "NORM_TOO_LARGE", "NOTHING_TO_SAY"}
    assert set(reasons.values()) == {codec.encode(withheld)}


def refusing(code):
    def refuse(_space, _query):
        raise RefusedError(code)

    return refuse


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_no_private_reason_crosses_where_the_server_chose_a_number(draw, monkeypatch, kind):
    data, study = draw(), study_of(kind)
    for code in RefusalCode:
        door = door_to(data, study)
        monkeypatch.setitem(HANDLERS, kind, refusing(code))
        crossed = reason(decoded(door, door.handle(encoded_query(door, kind))))
        withheld = code in PRIVATE_REASONS and kind not in FIXED
        assert crossed == ("WITHHELD" if withheld else code.name)
        assert door.ledger.entries()[-1].why == (code.name if withheld else ""), code.name


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_query_whose_refusals_say_why_has_nothing_that_a_server_could_choose(draw, kind):
    assert kind.is_fixed == (kind in FIXED)
    if kind.is_fixed:
        assert [name for name, _ in codec.FIELDS[kind]] == ["study", "exchange"]
        before, after = door_to(draw(), study_of(kind)), scored(door_to(draw(), study_of(kind)))
        query = encoded_query(before, kind)
        assert before.handle(query) == after.handle(query)  # whatever models rows are scored with


def test_an_answer_that_is_withheld_costs_what_an_answer_costs(draw, tmp_path):
    own = {
        "store": FolderStore(tmp_path / "store"),
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(slope_queries=2),
    }
    door = slope_door(draw, **own)
    assert reason(ask(door, SlopeOfValue, **never(0))) == "SMALL_CELLS"
    assert not isinstance(ask(door, SlopeOfValue), Refusal)
    again = door_to(draw(), study_of(SlopeOfValue), **own)
    for one in (door, again):
        assert reason(ask(one, SlopeOfValue, **never(1))) == "BUDGET_SPENT"
        assert reason(ask(one, SlopeOfValue, **never(0))) == "SMALL_CELLS"  # repeated, so free


def test_a_door_that_withheld_too_much_is_locked_until_its_owner_unlocks_it(draw, tmp_path):
    own: dict[str, Any] = {
        "store": FolderStore(tmp_path / "store"),
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(withheld_answers=2, minimum_cell=5),
    }
    door = slope_door(draw, **own)
    first = encoded_query(door, SlopeOfValue)
    paid = door.handle(first)
    for action in (0, 1):
        assert reason(ask(door, SlopeOfValue, **never(action))) == "SMALL_CELLS"
    again = door_to(draw(), study_of(SlopeOfValue), **own)
    for one in (door, again):
        for kind in (Enrol, SumOutcomes, EstimateValues, SlopeOfValue):
            assert reason(ask(one, kind, exchange=5)) == "LOCKED"
        assert one.handle(first) == paid
    own["ledger"].append(unlocking(study_of().digest.hex()))  # of another study
    assert reason(ask(again, Enrol)) == "LOCKED"
    own["ledger"].append(unlocking(door.study.digest.hex()))
    for one in (door, again):
        assert not isinstance(ask(one, Enrol, exchange=6), Refusal)
    for action in (1, 2):
        assert reason(ask(door, SlopeOfValue, exchange=7, **never(action))) == "SMALL_CELLS"
    assert reason(ask(door, Enrol, exchange=8)) == "LOCKED"


def test_a_study_that_is_locked_locks_no_other(draw):
    ledger, limits = MemoryLedger(), Limits(withheld_answers=1)
    door = slope_door(draw, ledger=ledger, limits=limits)
    assert reason(ask(door, SlopeOfValue, **never(2))) == "SMALL_CELLS"
    assert reason(ask(door, Enrol)) == "LOCKED"
    assert not isinstance(ask(door_to(draw(), limits=limits, ledger=ledger), Enrol), Refusal)


def test_refusals_that_say_nothing_about_rows_lock_no_door(draw):
    door = slope_door(draw, limits=Limits(withheld_answers=1, value_queries=0))
    for exchange in range(5):
        assert reason(ask(door, SlopeOfValue, exchange, temperature=-1.0)) == "MALFORMED"
        assert reason(ask(door, EstimateValues, exchange)) == "BUDGET_SPENT"
    assert not isinstance(ask(door, SlopeOfValue), Refusal)


# --- budgets of policies and of studies ---------------------------------------------------------


def arms(n_policies, turn=0):
    """The fields of a query about so many policies, other ones in every turn."""
    policies = np.random.default_rng([n_policies, turn]).standard_normal((n_policies, 3, 6))
    return {"linear": policies}


def test_a_study_values_so_many_policies_in_however_many_queries(draw):
    door = scored(door_to(draw(400), limits=Limits()))
    assert EstimateValues.most_amount(door.study) == 15
    for turn, n_policies in enumerate((5, 5, 4)):
        assert not isinstance(ask(door, EstimateValues, turn, **arms(n_policies, turn)), Refusal)
    assert reason(ask(door, EstimateValues, 6, **arms(2, 6))) == "BUDGET_SPENT"
    assert not isinstance(ask(door, EstimateValues, 7, **arms(1, 7)), Refusal)
    assert reason(ask(door, EstimateValues, 8, **arms(1, 8))) == "BUDGET_SPENT"
    assert not isinstance(ask(door, EstimateValues, 0, **arms(5, 0)), Refusal)  # as before


def test_studies_that_try_mixtures_or_compare_clients_value_more_policies():
    needed = {
        "usual": (study_of(), 15),
        "a mixture that is found": (study_of(mixture=fedopl.mixture.minimax()), 256),
        "clients that are compared": (study_of(joining=True), 160),
    }
    for study, most in needed.values():
        assert EstimateValues.most_amount(study) == most


def test_the_budget_of_policies_lasts_as_long_as_the_rows_whatever_the_study(draw, tmp_path):
    own: dict[str, Any] = {
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(value_policies=7),
    }
    first, second = (scored(door_to(draw(400), study_of(seed=seed), **own)) for seed in (0, 1))
    assert not isinstance(ask(first, EstimateValues, **arms(4)), Refusal)
    assert reason(ask(second, EstimateValues, **arms(4))) == "BUDGET_SPENT"
    assert not isinstance(ask(second, EstimateValues, **arms(3)), Refusal)
    assert reason(ask(first, EstimateValues, 2, **arms(1))) == "BUDGET_SPENT"
    assert [entry.amount for entry in own["ledger"].entries() if not entry.reason] == [1, 1, 4, 3]


def test_a_ledger_answers_so_many_studies_and_goes_on_with_those(draw, tmp_path):
    own: dict[str, Any] = {
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(studies=2),
    }
    first, second, third = (door_to(draw(400), study_of(seed=seed), **own) for seed in range(3))
    for door in (first, second):
        assert not isinstance(ask(door, Enrol), Refusal)
    assert reason(ask(third, Enrol)) == "BUDGET_SPENT"
    for door in (first, second):
        assert not isinstance(ask(door, SumOutcomes), Refusal)


# --- slopes that rest on a few rows -------------------------------------------------------------


def is_a_row(door, direction):
    """Whether (x, 1) of one of the client's rows points this way."""
    if not direction[-1]:
        return False
    contexts = direction[:-1] / direction[-1]
    return bool(np.isclose(door._space.data.contexts, contexts, rtol=1e-4).all(axis=1).any())


def undecided_for_one_row(door, third):
    """Parameters of a policy that is undecided between a0 and a1 near one training row only."""
    space = door._space
    fitting = space.data.part(space.rows(RowSplit.FITTING))
    row = np.flatnonzero(fitting.actions == 0)[0]
    parameters = np.zeros((3, 6))
    parameters[2, -1] = third
    parameters[1, 0] = 1.0
    parameters[1, -1] = -fitting.contexts[row, 0]
    return parameters


@pytest.mark.parametrize("third", [-1e3, 0.0], ids=["a2 never", "a2 as often as a0"])
def test_the_slope_of_a_hard_policy_is_refused(draw, third):
    study = study_of(SlopeOfValue)
    hard = {"temperature": 1e-6}
    careless = scored(door_to(draw(), study))
    hard["parameters"] = undecided_for_one_row(careless, third)
    told = ask(careless, SlopeOfValue, **hard)
    assert is_a_row(careless, told.gradient[1])
    careful = scored(door_to(draw(), study, limits=Limits()))
    assert reason(ask(careful, SlopeOfValue, **hard)) == "SMALL_CELLS"
    soft = {**hard, "temperature": 1e3}
    assert not isinstance(ask(careful, SlopeOfValue, **soft), Refusal)


def test_the_slope_of_an_action_that_is_never_taken_is_refused(draw):
    """Its zeros would say that no row at all is undecided."""
    careful = scored(door_to(draw(), study_of(SlopeOfValue), limits=Limits()))
    parameters = np.zeros((3, 6))
    parameters[2, -1] = -1e3
    assert reason(ask(careful, SlopeOfValue, parameters=parameters)) == "SMALL_CELLS"


def test_an_action_without_scores_has_no_slope_and_is_no_reason_to_refuse(draw):
    study = study_of(SlopeOfValue, nuisances=LOCAL)
    door = scored(door_to(without_action(draw(), 2), study, limits=Limits()))
    told = ask(door, SlopeOfValue)
    assert not told.gradient[2].any()
    assert told.gradient[:2].all()


def no_row_in_slope(door, **query):
    told = ask(door, SlopeOfValue, **query)
    return isinstance(told, Refusal) or not any(is_a_row(door, g) for g in told.gradient)


def rare_action(steep):
    """a0 and a1 are a toss-up everywhere; a2 is ever rarer away from the largest x0."""
    parameters = np.zeros((3, 6))
    parameters[2, 0], parameters[2, -1] = steep, -5 * steep
    return parameters


def test_the_slope_of_one_action_rests_on_many_rows_too(draw):
    attack = {"parameters": rare_action(100.0)}
    study = study_of(SlopeOfValue)
    assert not no_row_in_slope(scored(door_to(draw(), study)), **attack)
    assert no_row_in_slope(scored(door_to(draw(), study, limits=Limits())), **attack)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_slope_too_small_to_be_squared_rests_on_many_rows_too(draw):
    parameters = rare_action(100.0)
    parameters[1, -1] = -1e4  # never
    parameters[2, -1] = -700
    attack = {"parameters": parameters}
    study = study_of(SlopeOfValue)
    assert not no_row_in_slope(scored(door_to(draw(), study)), **attack)
    assert no_row_in_slope(scored(door_to(draw(), study, limits=Limits())), **attack)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_slope_too_large_to_be_squared_rests_on_many_rows_too(draw):
    # Scores made with enormous models are not kept, as their sums are refused.
    parameters = rare_action(100.0)
    parameters[1, -1] = -1e4
    attack = {"parameters": parameters * 1e200, "temperature": 1e200}
    study = study_of(SlopeOfValue)
    for limits in (Limits.open(), Limits()):
        door = door_to(draw(), study, limits=limits)
        models = models_for(study, 0.0)
        models["models"][:, 2, -1] = 1e307
        ask(door, SumScores, **models)
        assert no_row_in_slope(door, **attack)


# --- steps on a few rows ------------------------------------------------------------------------


def stepping(batch_size, local_steps):
    plan = TrainingPlan(rounds=2, local_steps=local_steps, batch_size=batch_size)
    return study_of(ImprovePolicy, plan=plan)


def test_a_step_on_one_row_is_refused_for_it_would_tell_the_row(draw):
    study = stepping(batch_size=1, local_steps=1)
    careless = scored(door_to(draw(), study))
    told = ask(careless, ImprovePolicy)
    assert is_a_row(careless, told.parameters[0])  # from zero: the difference
    careful = scored(door_to(draw(), study, limits=Limits()))
    assert reason(ask(careful, ImprovePolicy)) == "TOO_MANY_PARAMETERS"


@pytest.mark.parametrize(
    ("batch_size", "local_steps", "fine"),
    [(35, 1, False), (36, 1, True), (1, 35, False), (1, 36, True), (10**6, 1, True)],
)
def test_parameters_are_compared_with_the_rows_that_steps_use(draw, batch_size, local_steps, fine):
    # 18 parameters, at most half as many as rows.
    door = scored(door_to(draw(), stepping(batch_size, local_steps), limits=Limits()))
    answer = ask(door, ImprovePolicy)
    assert isinstance(answer, Refusal) != fine
    if not fine:
        assert reason(answer) == "TOO_MANY_PARAMETERS"


def test_however_many_steps_there_are_no_more_rows_are_there(draw):
    study = stepping(batch_size=128, local_steps=1000)
    limits = Limits(parameter_share=0.1, minimum_cell=0)  # 18 parameters, 151 rows
    door = scored(door_to(draw(), study, limits=limits))
    assert reason(ask(door, ImprovePolicy)) == "TOO_MANY_PARAMETERS"


# --- what was left out cannot be had by subtraction ---------------------------------------------

NEEDED = Limits().rows_needed(len(FEATURES) + 1)


def left_after_subtraction(door, models):
    """Sums of φφᵀ over all training rows less those that were told by cells."""
    outcomes = ask(door, SumOutcomes)
    scores = ask(door, SumScores, **models)
    n_rows = ask(door, Enrol).n_rows
    assert scores.shares[0] == 1
    return scores.grams[0] * n_rows - outcomes.sums[..., :-1, :-1].sum(axis=(0, 1))


@pytest.mark.parametrize("n_rare", [0, 1, 4, 8, 12, 20, 40, 80])
def test_sums_less_sums_are_over_many_rows_or_none(draw, n_rare):
    data = thinned(draw(400), 2, n_rare)
    door = door_to(data, limits=Limits())
    solved = solve_outcomes(door.study, ask(door, SumOutcomes))
    models = {"models": solved.models, "supported": np.ones_like(solved.supported, float)}
    left = left_after_subtraction(door, models)
    n_left = left[-1, -1]
    assert n_left == pytest.approx(0, abs=1e-6) or n_left > NEEDED - 1e-6
    if n_left < 1:
        np.testing.assert_allclose(left, 0, atol=1e-6)
    small = door._space.rows_by_fold_action
    small = small[(small > 0) & (small < NEEDED)].sum()
    assert n_left > small - 1e-6


def test_the_next_smallest_cells_are_left_out_with_too_few(draw):
    data = thinned(draw(400), 2, 8)  # six of them to learn from, in five cells
    every = ask(door_to(data), SumOutcomes)
    some = ask(door_to(data, limits=Limits()), SumOutcomes)
    counts = every.squared_weights
    told = some.squared_weights > 0
    assert 0 < counts[counts < NEEDED].sum() < NEEDED
    for fold in range(5):  # one more in each fold that has a small one
        extra = bool(0 < counts[fold, 2] < NEEDED)
        assert (~told[fold, :2]).sum() == extra
    assert some.sums[told].tobytes() == every.sums[told].tobytes()
    assert not some.sums[~told].any()


def test_outcome_sums_are_refused_if_nothing_is_left_of_them(draw):
    taken = thinned(thinned(thinned(draw(600), 0, 139), 1, 0), 2, 0)
    study = study_of(nuisances=NuisancePlan(propensity="marginal", folds=2), evaluation=0.0)
    limits = {"minimum_rows": 1, "parameter_share": 10}
    door = door_to(taken, study, limits=Limits(minimum_cell=69, **limits))
    assert sorted(ask(door, SumOutcomes).squared_weights[:, 0]) == [69, 70]
    door = door_to(taken, study, limits=Limits(minimum_cell=70, **limits))
    assert reason(ask(door, SumOutcomes)) == "SMALL_CELLS"


@given(
    counts=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=2, max_size=5),
    needed=st.integers(0, 60),
)
def test_cells_that_leave_are_large_and_so_is_the_rest(counts, needed):
    counts = np.array(counts)
    told = releasable_cells(counts, needed)
    assert (counts[told] >= needed).all()
    left = counts[~told].sum()
    assert left == 0 or left >= needed or not told.any()
    for fold, shown in zip(counts, told, strict=True):
        left = fold[~shown].sum()
        assert left == 0 or left >= needed or not shown.any()
    if (counts >= needed).all():
        assert told.all()


def test_sums_of_one_fold_less_its_sums_are_over_many_rows_or_none(draw):
    """A server may say of a model that it supports nothing, and so have the sums of one fold."""
    data = thinned(draw(800), 2, 30)  # in each fold, about four to learn from
    door = door_to(data, limits=Limits())
    told = ask(door, SumOutcomes).sums[..., :-1, :-1]
    assert (
        door._space.rows_by_fold_action[:, 2].max()
        < NEEDED
        <= door._space.rows_by_fold_action[:, 2].sum()
    )
    for fold in range(5):
        models = models_for(door.study)
        models["supported"][np.arange(6) != fold] = 0
        scores = ask(door, SumScores, exchange=fold, **models)
        if isinstance(scores, Refusal):
            continue
        n_scored = (door._space.folds.of_row == fold).sum()  # folds differ by one row at most
        left = scores.grams[0] * n_scored - told[fold].sum(axis=0)
        assert np.isclose(left[-1, -1], 0, atol=1e-6) or left[-1, -1] > NEEDED - 1e-6


@pytest.mark.parametrize("n_rare", [1, 2, 4, 8])
@pytest.mark.parametrize("nuisances", [MARGINAL, LOCAL], ids=["federated", "local"])
def test_sums_of_two_actions_differ_in_many_rows_or_none(draw, nuisances, n_rare):
    """Who alone took an action has no score for it, and is what another action has more."""
    data = thinned(draw(400), 2, n_rare)
    door = door_to(data, study_of(nuisances=nuisances), limits=Limits())
    told = ask(door, SumScores)
    if isinstance(told, Refusal):
        return
    shares = told.shares[:, None, None] * ask(door, Enrol).n_rows
    sums = told.grams * shares[: len(told.grams)]
    for left in sums[0] - sums:
        n_left = left[-1, -1]
        shown = f"a row crossed: {is_a_row(door, left[-1])}"
        # An action without any score has no sums, and tells nothing.
        assert np.isclose(n_left, 0, atol=1e-6) or n_left > NEEDED - 1e-6, shown


def test_sums_of_two_actions_do_not_differ_in_one_fold_of_many(draw):
    """With many folds, a model that supports all but one would tell that fold's row."""
    door = door_to(draw(), study_of(nuisances=MANY_FOLDS), limits=Limits())
    space = door._space
    models = models_for(door.study)
    models["supported"][space.folds.of_row[space.training][0], 1] = 0
    told = ask(door, SumScores, **models)
    if isinstance(told, Refusal):
        return
    n_rows = space.n_training
    left = told.grams[0] * n_rows - told.grams[1] * (n_rows - 1)
    assert not is_a_row(door, left[-1])


# --- it never raises ----------------------------------------------------------------------------

BAD_RULES: dict[str, Callable] = {
    "raises": lambda contexts: 1 / 0,
    "raises a warning": lambda contexts: np.log(np.zeros(len(contexts))),
    "recurses": lambda contexts: BAD_RULES["recurses"](contexts),
    "takes no contexts": lambda: 0,
    "returns nothing": lambda contexts: None,
    "returns text": lambda contexts: ["a0"] * len(contexts),
    "returns floats": lambda contexts: np.zeros(len(contexts)),
    "returns objects": lambda contexts: np.array([object()] * len(contexts)),
    "returns one code": lambda contexts: 0,
    "returns too few": lambda contexts: np.zeros(len(contexts) - 1, int),
    "returns too many": lambda contexts: np.zeros(len(contexts) + 1, int),
    "returns a column": lambda contexts: np.zeros((len(contexts), 1), int),
    "returns ragged lists": lambda contexts: [[0], [0, 1]],
    "returns an unknown code": lambda contexts: np.full(len(contexts), 3),
    "returns a negative code": lambda contexts: np.full(len(contexts), -1),
    "returns a huge code": lambda contexts: np.full(len(contexts), 2**64 - 1, np.uint64),
}


asks_about_policies = pytest.mark.parametrize(
    "kind", [EstimateValues, Describe], ids=lambda kind: kind.__name__
)


def only_rule(position=0.0):
    """The fields of a query about one rule."""
    return {**packed([], study_of()), "rules": np.array([position])}


@asks_about_policies
@pytest.mark.parametrize("rule", BAD_RULES.values(), ids=BAD_RULES)
def test_a_rule_that_misbehaves_is_a_failure_with_no_more_than_a_code(draw, rule, kind):
    door = scored(
        door_to(draw(), study_of(policy=fedopl.Finite(candidates=("rule",))), rules={"rule": rule})
    )
    assert reason(ask(door, kind, **only_rule())) == "FAILED"


@asks_about_policies
@pytest.mark.parametrize("position", [-1, 0.5, 1, 2**53, 1e300])
def test_a_rule_that_does_not_exist_is_refused(draw, position, kind):
    rules = {"rule": lambda contexts: np.zeros(len(contexts), int)}
    door = scored(
        door_to(draw(), study_of(policy=fedopl.Finite(candidates=("rule",))), rules=rules)
    )
    assert reason(ask(door, kind, **only_rule(position))) == "MALFORMED"


@asks_about_policies
def test_a_rule_the_client_does_not_have_is_refused(draw, kind):
    door = scored(door_to(draw(), study_of(policy=fedopl.Finite(candidates=("rule",)))))
    assert reason(ask(door, kind, **only_rule())) == "FAILED"


@asks_about_policies
def test_a_rule_that_ends_its_process_is_a_failure_too(draw, kind):
    def leave(_contexts):
        raise SystemExit(1)

    door = scored(
        door_to(draw(), study_of(policy=fedopl.Finite(candidates=("rule",))), rules={"rule": leave})
    )
    assert reason(ask(door, kind, **only_rule())) == "FAILED"


def is_an_answer(door, content):
    answer = decoded(door, door.handle(content))
    assert type(answer) in {Refusal, *(query.answer for query in QUERIES)}
    assert answer.study == door.study.digest


shared_door = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared_door
@given(content=st.binary(max_size=300))
def test_random_bytes_get_an_answer(draw, content):
    is_an_answer(door_to(draw(60)), content)


extreme = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-320, 1e-200, 1e200, -1.7e308])


@settings(shared_door, max_examples=100)
@given(
    kind=st.sampled_from(list(HANDLERS)),
    values=st.lists(extreme, min_size=1, max_size=5),
    number=st.sampled_from([-(2**63), -1, 0, 3, 2**63 - 1]),
    split=st.sampled_from(list(RowSplit)),
)
def test_a_query_of_extreme_numbers_gets_an_answer(draw, kind, values, number, split):
    door = scored(door_to(draw(60), study_of(kind)))
    sizes = axis_sizes(door.study)
    fields = {"study": door.study.digest}
    for name, content in codec.FIELDS[kind][1:]:
        if isinstance(content, tuple):
            shape = [max(sizes[axis]) for axis in content]
            fields[name] = np.resize(values, shape)
        elif content is float:
            fields[name] = values[0]
        else:
            fields[name] = split if content is RowSplit else number
    is_an_answer(door, codec.encode(kind(**fields)))


@shared_door
@given(
    kind=st.sampled_from(list(HANDLERS)),
    start=st.integers(0, 400),
    piece=st.binary(min_size=1, max_size=8),
)
def test_a_query_that_was_tampered_with_gets_an_answer(draw, kind, start, piece):
    door = scored(door_to(draw(60), study_of(kind)))
    query = bytearray(encoded_query(door, kind))
    query[start : start + len(piece)] = piece
    is_an_answer(door, bytes(query))


def test_one_row_is_enough_for_an_answer_and_mostly_too_little_for_a_yes():
    data = fedopl.LoggedData([[1.0] * 5], [0], [1.0], action_names=ACTIONS)
    for kind in HANDLERS:
        for limits in (Limits(), Limits.open()):
            door = door_to(data, study_of(kind), limits=limits)
            is_an_answer(door, encoded_query(door, kind))
        guarded = door_to(data, study_of(kind), limits=Limits())
        assert reason(ask(guarded, kind)) == "TOO_FEW_ROWS"


# --- the ledger ---------------------------------------------------------------------------------


def exercise(door):
    """Queries of every kind and some that are refused; what left, in order."""
    queries = [encoded_query(door, kind, number) for number, kind in enumerate(HANDLERS)]
    queries += [b"nonsense", encoded_query(door, Enrol, study=bytes(32))]
    return [door.handle(query) for query in queries]


@pytest.mark.parametrize("oracle", ["csoaa-exact", *ORACLE_OF.values()])
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_whatever_left_is_in_the_ledger(draw, tmp_path, on_disk, oracle):
    ledger = FileLedger(tmp_path / "deep" / "ledger.jsonl") if on_disk else MemoryLedger()
    door = door_to(draw(), study_of(oracle=oracle), ledger=ledger)
    left = exercise(door)
    entries = ledger.entries()
    assert [entry.sha256 for entry in entries] == [hashlib.sha256(a).hexdigest() for a in left]
    assert [entry.n_bytes for entry in entries] == [len(answer) for answer in left]
    answers = [decoded(door, answer) for answer in left]
    assert [entry.answer for entry in entries] == [type(answer).__name__ for answer in answers]
    assert [entry.exchange for entry in entries] == [answer.exchange for answer in answers]
    expected = [a.reason.name if isinstance(a, Refusal) else "" for a in answers]
    assert [entry.reason for entry in entries] == expected
    assert [entry.query for entry in entries][:2] == ["Enrol", "SumOutcomes"]
    assert [entry.query for entry in entries][-2:] == ["unreadable", "Enrol"]
    assert sorted(entry.when for entry in entries) == [entry.when for entry in entries]


def test_an_entry_tells_shapes_and_norms(draw):
    door = door_to(draw())
    told = ask(door, SumOutcomes)
    entry = door.ledger.entries()[0]
    assert entry.shapes == {"sums": [5, 3, 7, 7], "squared_weights": [5, 3]}
    assert entry.norms["sums"] == pytest.approx(np.linalg.norm(told.sums))


def test_a_ledger_on_disk_is_json_lines_and_survives_reopening(draw, tmp_path):
    path = tmp_path / "ledger.jsonl"
    assert FileLedger(path).entries() == []
    exercise(door_to(draw(), ledger=FileLedger(path)))
    first = path.read_text()
    before = FileLedger(path).entries()
    exercise(door_to(draw(), ledger=FileLedger(path)))
    assert path.read_text().startswith(first)
    assert FileLedger(path).entries()[: len(before)] == before
    lines = path.read_text().splitlines()
    assert len(lines) == 2 * len(before)
    assert all(set(json.loads(line)) == set(vars(before[0])) for line in lines)


def withholds_all(door):
    """Whether a code is all that leaves, for queries that are fine and queries that are not."""
    withheld = set()
    for number, kind in enumerate(HANDLERS):
        answer = door.handle(encoded_query(door, kind, number))
        expected = Refusal(study=door.study.digest, exchange=number, reason=RefusalCode.WITHHELD)
        withheld.add(answer == codec.encode(expected))
    withheld.add(reason(decoded(door, door.handle(b"nonsense"))) == "WITHHELD")
    return withheld == {True}


def test_nothing_leaves_if_the_ledger_is_a_folder(draw, tmp_path):
    assert withholds_all(door_to(draw(), ledger=FileLedger(tmp_path)))


def test_nothing_leaves_if_the_ledger_is_below_a_file(draw, tmp_path):
    (tmp_path / "file").write_text("")
    assert withholds_all(door_to(draw(), ledger=FileLedger(tmp_path / "file" / "ledger.jsonl")))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_nothing_leaves_if_the_disk_is_full(draw):
    assert withholds_all(door_to(draw(), ledger=FileLedger(Path("/dev/full"))))


class BrokenLedger(MemoryLedger):
    def append(self, entry):
        raise OSError(errno.EIO, "it is broken")


class UnreadableLedger(MemoryLedger):
    def since(self, position):
        raise OSError(errno.EIO, "it is broken")


def test_nothing_leaves_if_a_plugged_in_ledger_breaks(draw):
    assert withholds_all(door_to(draw(), ledger=BrokenLedger()))


def test_nothing_is_answered_if_budgets_cannot_be_counted(draw):
    door = door_to(draw(), ledger=UnreadableLedger())
    assert {reason(ask(door, kind)) for kind in queries_of(door.study)} == {"FAILED"}


def test_a_ledger_whose_disk_was_full_once_can_be_read_and_goes_on(draw, tmp_path):
    path = tmp_path / "ledger.jsonl"
    door = door_to(draw(), ledger=FileLedger(path))
    first = door.handle(encoded_query(door, Enrol, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        refused = door.handle(encoded_query(door, Enrol, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert reason(decoded(door, refused)) == "WITHHELD"
    last = door.handle(encoded_query(door, Enrol, 3))
    assert not isinstance(decoded(door, last), Refusal)
    left = [hashlib.sha256(answer).hexdigest() for answer in (first, last)]
    assert [entry.sha256 for entry in FileLedger(path).entries()] == left


# --- the store ----------------------------------------------------------------------------------


def no_scoring(*_args, **_options):
    raise AssertionError("rows were scored again")


@pytest.mark.parametrize("nuisances", [MARGINAL, LOCAL], ids=["federated", "local"])
@pytest.mark.parametrize("split", RowSplit, ids=lambda split: split.name.lower())
def test_a_new_process_values_policies_without_scoring_again(
    draw, tmp_path, monkeypatch, split, nuisances
):
    study = study_of(nuisances=nuisances)
    first = scored(door_to(draw(), study, store=FolderStore(tmp_path)))
    query = encoded_query(first, EstimateValues, split=split)
    expected = first.handle(query)
    assert not isinstance(decoded(first, expected), Refusal)
    monkeypatch.setattr(scoring_pass, "aipw_scores", no_scoring)
    assert door_to(draw(), study, store=FolderStore(tmp_path)).handle(query) == expected


@pytest.mark.parametrize("kind", [SumScores, SumPairs, ImprovePolicy, SlopeOfValue, Describe])
def test_a_new_process_sums_improves_and_describes_without_scoring_again(
    draw, tmp_path, monkeypatch, kind
):
    study = study_of(kind)
    first = scored(door_to(draw(), study, store=FolderStore(tmp_path)))
    query = encoded_query(first, kind)
    expected = first.handle(query)
    assert not isinstance(decoded(first, expected), Refusal)
    monkeypatch.setattr(scoring_pass, "aipw_scores", no_scoring)
    assert door_to(draw(), study, store=FolderStore(tmp_path)).handle(query) == expected


def test_other_rows_or_another_study_find_nothing_in_the_store(draw, tmp_path):
    store, study = FolderStore(tmp_path), study_of(SumPairs)
    data = draw()
    scored(door_to(data, study, store=store))
    other_rows = door_to(changed(data, data.rewards + 1), study, store=store)
    other_study = door_to(data, study_of(SumPairs, seed=1), store=store)
    for door in (other_rows, other_study):
        assert reason(ask(door, SumPairs)) == "NOTHING_TO_SAY"


def test_other_models_are_scored_anew(draw, tmp_path):
    store = FolderStore(tmp_path)
    door = door_to(draw(), store=store)
    told = [ask(door, SumScores, **models_for(door.study, value)) for value in (0.5, 2.0, 0.5)]
    assert told[0].products.tobytes() != told[1].products.tobytes()
    assert told[0].products.tobytes() == told[2].products.tobytes()


def test_the_store_writes_into_its_folder_only_and_for_its_owner_only(draw, tmp_path):
    folder = tmp_path / "deep" / "store"
    scored(door_to(draw(), store=FolderStore(folder)))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in files] == [folder]
    assert files[0].suffix == ".npz"
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_store_that_cannot_be_written_is_a_failure(draw, tmp_path):
    (tmp_path / "file").write_text("")
    door = door_to(draw(), store=FolderStore(tmp_path / "file"))
    assert reason(ask(door, SumScores)) == "FAILED"


def npy(array):
    import io

    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


DAMAGE = {
    "empty": lambda content: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by one": lambda content: content[:-1],
    "only zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"hello, world\n" * 30,
    "a pickle": lambda content: b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07hello!!\x94.",
    "one array": lambda content: npy(np.zeros((200, 3))),
    "a flipped number": lambda content: flipped(content, len(content) // 3),
    "an unknown compression": lambda content: unknown_compression(content),
}


def flipped(content, position):
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


def unknown_compression(content):
    central = content.index(b"PK\x01\x02")
    return content[: central + 10] + b"\x63" + content[central + 11 :]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_store_counts_as_none_and_is_made_again(draw, tmp_path, damage):
    study = study_of(SumPairs)
    door = door_to(draw(), study, store=FolderStore(tmp_path))
    query, later = encoded_query(door, SumScores), encoded_query(door, SumPairs)
    expected, expected_later = door.handle(query), door.handle(later)
    assert not isinstance(decoded(door, expected_later), Refusal)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    again = door_to(draw(), study, store=FolderStore(tmp_path))
    assert reason(explained(again, again.handle(later))) == "NOTHING_TO_SAY"
    assert again.handle(query) == expected
    assert again.handle(later) == expected_later


def test_no_flipped_byte_of_a_store_changes_an_answer(draw, tmp_path):
    study = study_of(SumPairs)
    door = scored(door_to(draw(60), study, store=FolderStore(tmp_path)))
    query = encoded_query(door, SumPairs)
    expected = door.handle(query)
    assert not isinstance(decoded(door, expected), Refusal)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for position in range(0, len(content), 11):
        file.write_bytes(flipped(content, position))
        answer = door_to(draw(60), study, store=FolderStore(tmp_path)).handle(query)
        assert answer == expected or isinstance(decoded(door, answer), Refusal)


def test_a_store_of_bundles_without_the_right_arrays_is_not_believed(draw, tmp_path):
    door = scored(door_to(draw(), store=FolderStore(tmp_path)))
    expected = door.handle(encoded_query(door, SumScores))
    (file,) = tmp_path.iterdir()
    with file.open("wb") as handle:
        np.savez(handle, something=np.zeros(3))
    again = door_to(draw(), store=FolderStore(tmp_path))
    assert again.handle(encoded_query(door, SumScores)) == expected


# --- rows set apart -----------------------------------------------------------------------------


@pytest.mark.parametrize("by", [1.0, 1e6], ids=["a little", "a lot"])
@pytest.mark.parametrize(
    ("kind", "nuisances"),
    [
        *((kind, MARGINAL) for kind in HANDLERS if kind not in ON_ROWS_SET_APART),
        *((kind, LOCAL) for kind in HANDLERS if kind not in (*ON_ROWS_SET_APART, SumOutcomes)),
    ],
)
def test_rewards_of_rows_set_apart_change_no_answer_for_learning(draw, kind, nuisances, by):
    study = study_of(kind, nuisances=nuisances)
    data = draw(200, known=False)
    plain = door_to(data, study)
    apart = plain._space.study_rows.folds_as_given.held_out
    assert apart.any()
    moved = door_to(changed(data, data.rewards + by * apart), study)
    answers = []
    for door in (plain, moved):
        answers.append(scored(door).handle(encoded_query(door, kind)))
        assert not isinstance(decoded(door, answers[-1]), Refusal)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("split", RowSplit, ids=lambda split: split.name.lower())
def test_only_values_on_rows_set_apart_depend_on_their_rewards(draw, split):
    data = draw(200)
    plain = door_to(data)
    moved = door_to(changed(data, data.rewards + plain._space.study_rows.folds_as_given.held_out))
    query = encoded_query(plain, EstimateValues, split=split)
    values = [scored(door).handle(query) for door in (plain, moved)]
    assert (values[0] != values[1]) == (split is RowSplit.EVALUATION)


def test_every_message_a_server_can_send_has_a_handler():
    assert {*HANDLERS, *PRIVATE_HANDLERS, *TARGET_HANDLERS} == set(QUERIES)
    # What may be asked with differential privacy is answered in one way only, with noise.
    assert set(PRIVATE_HANDLERS) == set(filter(is_private, QUERIES))
    others = {Refusal, MaskedSums}  # in the place of any answer, and of one that is a sum
    assert set(MESSAGES.values()) == {*QUERIES, *(query.answer for query in QUERIES), *others}


def valued_without_a_few(draw, secret, limits):
    """Values of two constant arms where three held-out rows have no score for the second."""
    data = draw(400, n_features=2)
    study = Study(actions=data.action_names, features=data.feature_names, nuisances=MARGINAL)
    door = scored(door_to(data, study, limits=limits, secret=secret))
    space = door._space
    scores = space.scores.copy()
    scores[space.rows(RowSplit.EVALUATION)][:3, 1] = np.nan
    space.keep(replace(space.scored, values=scores))
    arms = np.zeros((2, study.n_actions, study.n_features + 1))
    arms[[0, 1], [0, 1], -1] = 1.0  # everybody gets the first action, or the second
    both = [ask(door, EstimateValues, 8 + arm, linear=arms[[arm]]) for arm in (0, 1)]
    return [answer.n_rows - space.n_rows(RowSplit.EVALUATION) for answer in both]


def test_how_many_rows_have_a_score_is_told_with_noise_where_some_have_none(draw):
    """Rows without a score are left out, and which these are depends on what is asked about."""
    assert valued_without_a_few(draw, "", Limits.open()) == [0, -3]
    found = np.array([valued_without_a_few(draw, str(turn), Limits()) for turn in range(30)])
    assert found.max() == 0  # there are no more rows than there are
    exact = (found == [0, -3]).all(axis=1)
    apart = found[:, 0] - found[:, 1] == 3
    # Noise of scale 2.5 is zero once in five times, and equal for both once in nine.
    assert exact.sum() <= 10
    assert apart.sum() <= 15


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_the_handler_of_a_query_takes_it_and_gives_its_answer(query):
    hints = get_type_hints((HANDLERS | PRIVATE_HANDLERS | TARGET_HANDLERS)[query])
    assert hints.pop("return") is query.answer
    assert query in hints.values()
