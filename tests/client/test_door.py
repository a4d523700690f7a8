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
from fedopl.client.answers.learning import _models_in
from fedopl.client.disclosure.ledger import FileLedger, MemoryLedger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.scoring import scoring_pass
from fedopl.messages import codec
from fedopl.messages.about_differences import (
    N_PARTS,
    ClassifyContexts,
    CompareModels,
    TellModels,
    TellMoments,
)
from fedopl.messages.about_masks import MaskedSums
from fedopl.messages.about_target import N_REGIONS, BalanceContexts, TellContexts, ValueAtTarget
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes, TellWeight
from fedopl.messages.learning.policy_steps import ImprovePolicy, SlopeOfValue, TrainNetwork
from fedopl.messages.learning.score_sums import SumByFold, SumContrasts, SumPairs, SumScores
from fedopl.messages.learning.term_screening import ScreenJumps, ScreenProducts, TakeFound
from fedopl.messages.message import LARGEST_ASKED, Axis, Query, RowSplit
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.trees.bin_counts import N_FINE_BINS, CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.messages.vocabulary import MESSAGES, QUERIES, is_private, queries_of
from fedopl.policies.basis import Basis
from fedopl.policies.kinds import packed
from fedopl.policies.trees.nodes import Branch, Leaf, as_arrays
from fedopl.policies.trees.second_look import NEAR_BINS
from fedopl.study.plans import NuisancePlan, TargetPlan, TrainingPlan
from fedopl.study.study import Study

ACTIONS, FEATURES = ("a0", "a1", "a2"), ("x0", "x1", "x2", "x3", "x4")
MARGINAL = NuisancePlan(propensity="marginal")
LOCAL = NuisancePlan(propensity="marginal", kind="local")


# The last one is of studies that set none apart.
ON_ROWS_SET_APART = (
    *(Value, TellFit),
    *(ValueAtTarget, TellInteractions, BalanceContexts),
    SumByFold,
)
KEPT_SPLITS = [split for split in RowSplit if split is not RowSplit.EACH_FOLD]
ABOUT_A_TARGET = (TellContexts, ValueAtTarget)
ON_MODELS = (TellModels, CompareModels, ClassifyContexts, TellMoments)
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
    if kind in (CountBins, SumCells, SumNearThresholds):
        options["policy"] = "tree"
    if kind is TrainNetwork:
        options["policy"] = fedopl.Neural(hidden=(2,), rounds=2)
    options["joining"] = kind in ON_MODELS
    if kind in LOOKING:
        knots = {"x0": (-1.0, 0.0, 1.0)}
        options["basis"] = Basis(knots=knots, **LOOKING[kind])
    if kind is TellWeight:
        options["mixture"] = fedopl.mixture.empirical(count="weight")
    if kind is SumByFold:
        options["evaluation"] = "cross-fitted"
    if kind is SumContrasts:
        options["personal"] = "ridge"
    if kind in ABOUT_A_TARGET:
        options["target"] = TargetPlan(client="new")
    if kind is BalanceContexts:
        options["target"] = TargetPlan(client="new", balance="joint")
    return Study(**{"evaluation": 0.25, **options, **changes})


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
    is_joint = agreed.target is not None and agreed.target.balance == "joint"
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
        Value: {**packed([], agreed), **valued_rows(agreed)},
        ValueAtTarget: {
            **packed([], agreed),
            "linear": np.zeros((1, *shape)),
            "models": np.zeros((1, *shape)),
            "means": np.append(np.zeros(shape[1] - 1), 1.0),
            "squares": np.ones(shape[1]),
            "regions": np.zeros((N_REGIONS, shape[1])),
            **({"share": 0.5, **jointly} if is_joint else {}),
        },
        BalanceContexts: jointly,
        Describe: {
            **packed([], agreed),
            "linear": np.zeros((1, *shape)),
            "cuts": np.tile([-1.0, 0.0, 1.0], (shape[1], 1)),
        },
        CountBins: {"cuts": np.tile(np.linspace(-3, 3, N_FINE_BINS - 1), (agreed.n_features, 1))},
        SumCells: {
            "partitions": as_arrays([Leaf(0)] * len(agreed.left_out)),
            "n_cuts": np.full(agreed.n_features, 3.0),
            "cuts": np.tile([-1.0, 0.0, 1.0], agreed.n_features),
        },
        SumNearThresholds: {
            "trees": as_arrays([Branch(0, 0.0, Leaf(0), Leaf(1))] * len(agreed.left_out)),
            "n_cuts": np.full(agreed.n_features, 3.0),
            "cuts": np.tile([-1.0, 0.0, 1.0], agreed.n_features),
            "near": np.tile(np.linspace(-0.75, 0.75, NEAR_BINS - 1), (len(agreed.left_out), 1)),
        },
        TakeFound: dict(TakeFound.of(agreed).named_arrays()),
        CompareModels: others_models(agreed),
        ClassifyContexts: {"split": RowSplit.TRAINING, "parameters": np.zeros((1, shape[1]))},
    }.get(kind, {})
    common = {"study": agreed.digest, "exchange": exchange}
    return kind(**{**common, **made, **changes})


def valued_rows(agreed):
    """The fields that name the rows that a study's values are of."""
    if not agreed.evaluation.is_cross_fitted:
        return {"split": RowSplit.EVALUATION}
    return {"split": RowSplit.EACH_FOLD, "versions": np.empty((0, agreed.nuisances.folds))}


def ask(door, kind, exchange=1, **changes):
    """What the door answers, as a message."""
    return decoded(door, door.handle(encoded_query(door, kind, exchange, **changes)))


def encoded_query(door, kind, exchange=1, **changes):
    return codec.encode(query_of(kind, door.study, exchange, **changes))


def decoded(door, answer):
    return codec.decode(answer, axis_sizes(door.study))


def scored(door):
    """The door, once it has scored its rows, where its study is one that comes to that."""
    if door.study.is_screened:
        space = door._space
        space.keep(space.scored_with(_models_in(query_of(SumScores, door.study))))
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
    assert told.rows_per_action.tolist() == [*all_counts[:2], 0]
    assert told.n_rows == all_counts.sum()
    told = ask(door_to(data, study, limits=Limits(minimum_cell=3)), Enrol)
    assert told.rows_per_action.tolist() == all_counts.tolist()


def test_folds_with_few_rows_of_an_action_are_left_out_of_outcome_sums(draw):
    data = thinned(draw(300), 2, 12)  # nine of them to learn from: not corrected
    every, some = (ask(door_to(data, limits=own), SumOutcomes) for own in (Limits.open(), Limits()))
    counts = every.sums[..., -2, -2]
    assert sorted(counts[:, 2]) == [1, 2, 2, 2, 2]
    used = some.squared_weights > 0
    assert used.tolist() == [[True, True, False]] * 5
    assert some.sums[used].tobytes() == every.sums[used].tobytes()
    assert not some.sums[~used].any()


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
        {"requires": {"values": True}},
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
    for kind in (Enrol, SumOutcomes, SumScores, Value, Describe):
        answer = door.handle(encoded_query(door, kind))
        assert reason(decoded(door, door.handle(answer))) == "MALFORMED"


REFUSED = {
    "too few rows": ({"minimum_rows": 201}, Enrol, "TOO_FEW_ROWS"),
    "too few rows for sums": ({"minimum_rows": 201}, SumScores, "TOO_FEW_ROWS"),
    "more terms than rows": ({"parameter_share": 0.039}, SumPairs, "TOO_MANY_PARAMETERS"),
    "the same for slopes": ({"parameter_share": 0.039}, SlopeOfValue, "TOO_MANY_PARAMETERS"),
    "the same for steps": ({"parameter_share": 0.039}, ImprovePolicy, "TOO_MANY_PARAMETERS"),
    "the same for networks": ({"parameter_share": 0.039}, TrainNetwork, "TOO_MANY_PARAMETERS"),
    "the same for models": ({"parameter_share": 0.039}, TellModels, "TOO_MANY_PARAMETERS"),
    "the same to classify": ({"parameter_share": 0.039}, ClassifyContexts, "TOO_MANY_PARAMETERS"),
    "every action is rare": ({"minimum_cell": 60}, TellModels, "SMALL_CELLS"),
    "the same to compare": ({"minimum_cell": 60}, CompareModels, "SMALL_CELLS"),
    "no action has enough held out": ({"minimum_cell": 30}, Value, "ONLY_LEARNS"),
    "values are forbidden": ({"values": False}, Value, "VALUES_FORBIDDEN"),
    "large sums by fold": ({"norm_cap": 1e-6}, SumByFold, "NORM_TOO_LARGE"),
    "large moments": ({"norm_cap": 1e-6}, TellMoments, "NORM_TOO_LARGE"),
    "large models": ({"norm_cap": 1e-6}, TellModels, "NORM_TOO_LARGE"),
    "large shifts": ({"norm_cap": 1e-6}, CompareModels, "NORM_TOO_LARGE"),
    "a large loss": ({"norm_cap": 1e-6}, ClassifyContexts, "NORM_TOO_LARGE"),
    "a large number": ({"norm_cap": 1.0}, SumOutcomes, "NORM_TOO_LARGE"),
    "a large count": ({"norm_cap": 10.0}, Enrol, "NORM_TOO_LARGE"),
    "large counts": ({"norm_cap": 10.0}, Describe, "NORM_TOO_LARGE"),
    "large parameters": ({"norm_cap": 1e-6}, ImprovePolicy, "NORM_TOO_LARGE"),
    "large values": ({"norm_cap": 1e-6}, Value, "NORM_TOO_LARGE"),
}


def reason(answer):
    assert isinstance(answer, Refusal), f"answered with {type(answer).__name__}"
    return answer.reason.name


@pytest.mark.parametrize(("limit", "kind", "expected"), REFUSED.values(), ids=REFUSED)
def test_a_client_refuses_what_its_limits_forbid(draw, limit, kind, expected):
    data = draw(200)  # 151 rows to learn from, 49 set apart
    loose = {"minimum_rows": 1, "minimum_cell": 0, "parameter_share": 10}
    door = scored(door_to(data, study_of(kind), limits=Limits(**{**loose, **limit})))
    assert reason(ask(door, kind)) == expected
    entry = door.ledger.entries()[0]
    assert (entry.reason, entry.why) == (expected, "")


def with_shares(door):
    """Whether the door adds sums of terms, what it says of scores, and whether it values them."""
    sums = ask(door, SumScores)
    outcomes = ask(door, SumOutcomes)
    assert bool(outcomes.sums.any()) == sums.has_sums
    assert sums.has_sums or not (sums.grams.any() or sums.products.any() or sums.squares.any())
    return sums.has_sums, ask(door, Value)


def test_a_client_with_few_rows_for_its_terms_adds_no_sums_and_is_valued(draw):
    """151 rows and 6 terms."""
    data = draw(200)
    added, few = (
        with_shares(door_to(data, limits=Limits(parameter_share=share)))
        for share in (6 / 151, 5.9 / 151)
    )
    assert (added[0], few[0]) == (True, False)
    assert few[1].means.tobytes() == added[1].means.tobytes()
    by_fold = study_of(SumByFold)
    told = ask(scored(door_to(data, by_fold, limits=Limits(parameter_share=0.02))), SumByFold)
    assert not any(getattr(told, name).any() for name in ("grams", "products", "squares", "shares"))


# --- every question once ------------------------------------------------------------------------

OTHERWISE: dict[type[Query[Any]], dict[str, Any]] = {
    Value: {"linear": np.ones((1, 3, 6))},
    SumScores: models_for(study_of(), 0.25),
    Describe: {"cuts": np.tile([-0.5, 0.0, 1.0], (6, 1))},
    Enrol: {"exchange": 9},
}


@pytest.mark.parametrize("kind", OTHERWISE, ids=lambda kind: kind.__name__)
def test_another_question_of_a_kind_is_refused_and_the_first_is_answered_again(draw, kind):
    study = study_of()
    door = scored(door_to(draw(), study))
    queries = [encoded_query(door, kind, exchange) for exchange in range(kind.most(study))]
    answers = [door.handle(query) for query in queries]
    assert not [answer for answer in answers if isinstance(decoded(door, answer), Refusal)]
    assert reason(ask(door, kind, **{"exchange": 99, **OTHERWISE[kind]})) == "ASKED_ALREADY"
    assert [door.handle(query) for query in queries] == answers


def test_a_question_that_was_refused_may_still_be_asked(draw):
    door = door_to(draw())
    assert reason(ask(door, Value, 1)) == "NOTHING_TO_SAY"  # before rows are scored
    scored(door)
    for exchange in range(Value.most(door.study)):
        assert not isinstance(ask(door, Value, exchange), Refusal)
    assert reason(ask(door, Value, 9)) == "ASKED_ALREADY"


def files_of(folder, array):
    """The files of a store that hold this array."""
    return [file for file in folder.iterdir() if f"{array}.npy".encode() in file.read_bytes()]


def test_a_new_process_gives_stored_answers_even_if_scores_are_gone(draw, tmp_path):
    own = {"ledger": FileLedger(tmp_path / "ledger.jsonl"), "store": FolderStore(tmp_path / "s")}
    first = door_to(draw(), **own)
    queries = [encoded_query(first, kind) for kind in (SumOutcomes, SumScores, Value)]
    answers = [first.handle(query) for query in queries]
    for file in files_of(tmp_path / "s", "hidden"):
        file.unlink()
    again = door_to(draw(), **own)
    assert [again.handle(query) for query in queries] == answers
    assert reason(ask(again, SumScores, 5)) == "ASKED_ALREADY"
    assert reason(ask(again, Describe, 5)) == "NOTHING_TO_SAY"


def test_a_ledger_answers_so_many_studies_and_goes_on_with_those(draw, tmp_path):
    own: dict[str, Any] = {
        "ledger": FileLedger(tmp_path / "ledger.jsonl"),
        "limits": Limits(studies=2),
    }
    first, second, third = (door_to(draw(400), study_of(seed=seed), **own) for seed in range(3))
    for door in (first, second):
        assert not isinstance(ask(door, Enrol), Refusal)
    assert reason(ask(third, Enrol)) == "TOO_MANY_STUDIES"
    for door in (first, second):
        assert not isinstance(ask(door, SumOutcomes), Refusal)


def test_what_was_withheld_by_version_0_2_0_was_asked_and_an_unlocking_is_no_question(draw):
    door = door_to(draw())
    door.handle(encoded_query(door, Enrol))
    (entry,) = door.ledger.entries()
    for kind, old in (
        ("SumOutcomes", {"reason": "WITHHELD", "why": "SMALL_CELLS"}),
        ("unlock", {}),
    ):
        door.ledger.append(replace(entry, query=kind, answer="Refusal", query_sha256="", **old))
    assert [one.was_answered for one in door.ledger.entries()] == [True, True, False]
    assert reason(ask(door, SumOutcomes)) == "ASKED_ALREADY"
    assert not isinstance(ask(door, SumScores), Refusal)


# --- what cannot be answered --------------------------------------------------------------------


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
    [SumPairs, SumByFold, ImprovePolicy, SlopeOfValue, Value, Describe, TellMoments],
)
def test_there_is_nothing_to_say_before_rows_are_scored(draw, kind):
    assert reason(ask(door_to(draw(), study_of(kind)), kind)) == "NOTHING_TO_SAY"


def test_there_is_nothing_to_say_of_rows_that_are_not_there(draw):
    door = scored(door_to(draw(), study_of(evaluation=0.0)))
    assert reason(ask(door, Value)) == "ONLY_LEARNS"


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
    policy = np.arange(18.0).reshape(1, 3, 6) % 5 - 2
    told = [
        ask(scored(door_to(draw())), Value, linear=size * policy).means for size in (1.0, 1e300)
    ]
    np.testing.assert_array_equal(*told)


@pytest.mark.parametrize("outside", [-1, 40])
def test_a_round_outside_the_plan_is_malformed(draw, outside):
    door = scored(door_to(draw(), study_of(ImprovePolicy)))
    assert reason(ask(door, ImprovePolicy, round=outside)) == "MALFORMED"


def test_a_secret_decides_which_rows_a_batch_holds(draw):
    study = study_of(ImprovePolicy, plan=TrainingPlan(batch_size=20, local_steps=2))
    told = [
        ask(scored(door_to(draw(), study, secret=secret)), ImprovePolicy).parameters
        for secret in ("", "", "ours")
    ]
    np.testing.assert_array_equal(told[0], told[1])
    assert (told[0] != told[2]).any()


@pytest.mark.parametrize("code", RefusalCode, ids=lambda code: code.name)
def test_every_refusal_is_a_code_and_nothing_else(code):
    refusal = Refusal(study=study_of().digest, exchange=3, reason=code)
    assert len(codec.encode(refusal)) == 8 + 32 + 8 + 8


# --- what no server may ask ---------------------------------------------------------------------

# What every study asks that describes what it learned.
DESCRIBING = (Describe, TellFit, TellInteractions)
NOT_DESCRIBED = fedopl.EvaluationPlan(share=0.25, describe=False)
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
    "on a path": (
        study_of(mixture=fedopl.mixture.path("north")),
        {SumOutcomes, *DESCRIBING, SumByFold},
    ),
    "by weight": (study_of(TellWeight), {SumOutcomes, *DESCRIBING, TellWeight}),
    "cross-fitted": (
        study_of(SumByFold),
        {SumOutcomes, *DESCRIBING, SumByFold},
    ),
    "cross-fitted trees": (
        study_of(evaluation="cross-fitted", policy="tree"),
        {
            SumOutcomes,
            *DESCRIBING,
            SumByFold,
            CountBins,
            SumCells,
            SumNearThresholds,
        },
    ),
    "personal": (
        study_of(SumContrasts),
        {SumOutcomes, *DESCRIBING, SumContrasts},
    ),
    "personal trees": (
        study_of(SumContrasts, policy="tree"),
        {
            SumOutcomes,
            *DESCRIBING,
            CountBins,
            SumCells,
            SumNearThresholds,
            SumContrasts,
        },
    ),
    "personal choices": (
        study_of(SumContrasts, policy="finite"),
        {SumOutcomes, *DESCRIBING},
    ),
    "for a target": (study_of(ValueAtTarget), {SumOutcomes, *DESCRIBING, *ABOUT_A_TARGET}),
    "for a target, jointly": (
        study_of(BalanceContexts),
        {SumOutcomes, *DESCRIBING, *ABOUT_A_TARGET, BalanceContexts},
    ),
    "guarded": (study_of(guardrails={"harm": HARM}), {SumOutcomes, *DESCRIBING}),
    "not described": (study_of(evaluation=NOT_DESCRIBED), {SumOutcomes}),
    "local, not described": (
        study_of(nuisances=LOCAL, evaluation=NOT_DESCRIBED),
        set(),
    ),
}


@pytest.mark.parametrize(("study", "own"), STUDIES.values(), ids=STUDIES)
def test_a_client_answers_what_its_study_needs_and_nothing_else(draw, study, own):
    needed = {Enrol, SumScores, Value, *own}
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
    "kind", [Value, Describe], ids=lambda kind: kind.__name__
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
        expected = Refusal(study=door.study.digest, exchange=number, reason=RefusalCode.FAILED)
        withheld.add(answer == codec.encode(expected))
    withheld.add(reason(decoded(door, door.handle(b"nonsense"))) == "FAILED")
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


def test_nothing_is_answered_if_questions_cannot_be_counted(draw):
    door = door_to(draw(), ledger=UnreadableLedger())
    assert {reason(ask(door, kind)) for kind in queries_of(door.study)} == {"FAILED"}


def test_a_ledger_whose_disk_was_full_once_can_be_read_and_goes_on(draw, tmp_path):
    path = tmp_path / "ledger.jsonl"
    door = door_to(draw(), ledger=FileLedger(path))
    first = door.handle(encoded_query(door, Enrol, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        refused = door.handle(encoded_query(door, SumOutcomes, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert reason(decoded(door, refused)) == "FAILED"
    last = door.handle(encoded_query(door, SumOutcomes, 3))
    assert not isinstance(decoded(door, last), Refusal)
    left = [hashlib.sha256(answer).hexdigest() for answer in (first, last)]
    assert [entry.sha256 for entry in FileLedger(path).entries()] == left


# --- the store ----------------------------------------------------------------------------------


def forget_answers(folder):
    for file in files_of(folder, "bytes"):
        file.unlink()


def no_scoring(*_args, **_options):
    raise AssertionError("rows were scored again")


@pytest.mark.parametrize("nuisances", [MARGINAL, LOCAL], ids=["federated", "local"])
# Policies that clients learn alone without each fold are not kept, and are learned again.
@pytest.mark.parametrize("split", KEPT_SPLITS, ids=lambda split: split.name.lower())
def test_a_new_process_values_policies_without_scoring_again(
    draw, tmp_path, monkeypatch, split, nuisances
):
    study = study_of(nuisances=nuisances)
    first = scored(door_to(draw(), study, store=FolderStore(tmp_path)))
    query = encoded_query(first, Value, split=split)
    expected = first.handle(query)
    assert not isinstance(decoded(first, expected), Refusal)
    forget_answers(tmp_path)
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
    forget_answers(tmp_path)
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
    for file in tmp_path.iterdir():  # scores and answers
        file.write_bytes(damage(file.read_bytes()))
    again = door_to(draw(), study, store=FolderStore(tmp_path))
    assert reason(decoded(again, again.handle(later))) == "NOTHING_TO_SAY"
    assert again.handle(query) == expected
    assert again.handle(later) == expected_later


def test_no_flipped_byte_of_a_store_changes_an_answer(draw, tmp_path):
    study = study_of(SumPairs)
    door = scored(door_to(draw(60), study, store=FolderStore(tmp_path)))
    query = encoded_query(door, SumPairs)
    expected = door.handle(query)
    assert not isinstance(decoded(door, expected), Refusal)
    (file,) = files_of(tmp_path, "hidden")
    content = file.read_bytes()
    for position in range(0, len(content), 11):
        forget_answers(tmp_path)
        file.write_bytes(flipped(content, position))
        answer = door_to(draw(60), study, store=FolderStore(tmp_path)).handle(query)
        assert answer == expected or isinstance(decoded(door, answer), Refusal)


def test_a_store_of_bundles_without_the_right_arrays_is_not_believed(draw, tmp_path):
    door = scored(door_to(draw(), store=FolderStore(tmp_path)))
    expected = door.handle(encoded_query(door, SumScores))
    for file in tmp_path.iterdir():
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


@pytest.mark.parametrize("split", KEPT_SPLITS, ids=lambda split: split.name.lower())
def test_only_values_on_rows_set_apart_depend_on_their_rewards(draw, split):
    data = draw(200)
    plain = door_to(data)
    moved = door_to(changed(data, data.rewards + plain._space.study_rows.folds_as_given.held_out))
    query = encoded_query(plain, Value, split=split)
    values = [scored(door).handle(query) for door in (plain, moved)]
    assert (values[0] != values[1]) == (split in (RowSplit.EVALUATION, RowSplit.ALL))


def test_every_message_a_server_can_send_has_a_handler():
    assert {*HANDLERS, *PRIVATE_HANDLERS, *TARGET_HANDLERS} == set(QUERIES)
    # What may be asked with differential privacy is answered in one way only, with noise.
    assert set(PRIVATE_HANDLERS) == set(filter(is_private, QUERIES))
    others = {Refusal, MaskedSums}  # in the place of any answer, and of one that is a sum
    assert set(MESSAGES.values()) == {*QUERIES, *(query.answer for query in QUERIES), *others}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_the_handler_of_a_query_takes_it_and_gives_its_answer(query):
    hints = get_type_hints((HANDLERS | PRIVATE_HANDLERS | TARGET_HANDLERS)[query])
    assert hints.pop("return") is query.answer
    assert query in hints.values()
