"""The form that is hashed stays what it was: folders of earlier runs and other parties hold it."""

import json
from functools import partial

import pytest

import fedopl
from fedopl import Finite, Linear, Schema, Tree
from fedopl.study import study as studies

# As studies were when they were first hashed, with a quarter of the rows held out.
NAMES = {"actions": ("a", "b", "c"), "features": ("x0", "x1", "x2"), "evaluation": 0.25}
TABLE = Schema(
    action="arm",
    actions=("a", "b"),
    reward="gain",
    direction="lower",
    numeric=("age",),
    categorical={"ward": ("s", "t")},
    propensity={"a": "p0", "b": "p1"},
    weight="w",
    missing="drop",
)
TREE = Tree(
    depth=3,
    bins=8,
    refine=False,  # nor did thresholds move
    cuts={"x1": (0.5, 2)},
    allowed=({"column": "x0", "above": 80, "actions": ("a",)},),
)
FEW_STEPS = fedopl.TrainingPlan(rounds=7, rate=1e-7, average="rounds")
# No weights were limited then, and clients counted as the mixture says.
PLAN = partial(fedopl.NuisancePlan, learning_clip=0)
Study = partial(studies.Study, nuisances=PLAN(), policy=Linear(precision="rows"))
# Each study with the digest that it had when a study was one flat record.
STUDIES = {
    "linear": (
        Study(**NAMES),
        "6c0bde591adc3bb2aff4cda516c5d4c66b8b97aa69e827ac1de916eb1e6f43e0",
    ),
    "tree": (
        Study(**NAMES, policy=TREE),
        "06bbd42efe60ed66c5549a33d3f05e08918c7f275a8080db5644c081382e2c0d",
    ),
    "finite": (
        Study(**NAMES, policy=Finite(candidates=("rule", "last year's"))),
        "2611789ff81a3a9f45a5579b27311f87bf4210aba446042792579b8a0299911a",
    ),
    "sgd": (
        Study(**NAMES, policy=Linear(oracle="csoaa-sgd", precision="rows", training=FEW_STEPS)),
        "c6d933e69a459c392f4d52679464905bfc2c9120fed7cc0da85cd4bcb37ee714",
    ),
    "blocks by precision": (
        Study(**NAMES, policy=Linear(features="blocks", precision="clients")),
        "3c14930d38cce8c13293636e3efd037064c876e1264248afb4cc8a7c01d9794a",
    ),
    "minimax": (
        Study(**NAMES, mixture=fedopl.mixture.minimax(3)),
        "8879513cec7d8c18d967dd8adfe62b45026a33f7b801b33091f35ff5160afdcd",
    ),
    "path": (
        Study(**NAMES, mixture=fedopl.mixture.path("north")),
        "e38d66f051d1007e7fd6290d4ca4ef66f389fde5c111e2dbbb1d9524742d962d",
    ),
    "one split": (
        Study(**{**NAMES, "evaluation": {"share": 0.25, "splits": 1}}),
        "6c0bde591adc3bb2aff4cda516c5d4c66b8b97aa69e827ac1de916eb1e6f43e0",
    ),
    "declared": (
        Study(**NAMES, declared=fedopl.Declared(reward=30, overlap=0.05)),
        "974537106c7bdd71e5ab84e9df1aebca49ebefd0db4964aca412f1dfa283534f",
    ),
    "requires": (
        Study(**NAMES, requires={"values": True, "parameter_share": 0.2}),
        "85932bb8d8344af676713f8d889d4c5b4367685180fc4352c4387ea5e574e466",
    ),
    "table": (
        Study(
            name="Wards",
            actions=TABLE.actions,
            features=TABLE.feature_names,
            table=TABLE,
            evaluation=0.25,
            seed=3,
            quorum=1,
        ),
        "94f29b6a3a1b1ca50d467136b23498b010b5c2f6b7c16d04cdc6c5462bb52b51",
    ),
    "evaluation": (
        Study(**{**NAMES, "evaluation": {"share": 0, "describe": False}}, joining=True),
        "63f11418aae3b01cefa473fc8f459883e171a1671190b3539085b3af2cfa6b02",
    ),
    "nuisances": (
        Study(**NAMES, nuisances=PLAN(kind="local", clip=0.01, folds=3)),
        "7acd5740a7af2c8b96b50a5a75cd371af682965b74bed4ddbd499425a13e3b64",
    ),
}


GONE = (
    *("value_queries", "score_queries", "slope_queries", "descriptions", "count_queries"),
    *("cell_queries", "model_queries", "classifier_queries"),
)


def as_written_before(study):
    """The flat form of a study of version 0.2.0, which said how much it requires of each budget."""
    flat = json.loads(study.model_dump_json())
    flat["requires"] |= dict.fromkeys(GONE, 0)
    return flat


@pytest.mark.parametrize(("study", "digest"), STUDIES.values(), ids=STUDIES)
def test_the_digest_is_what_it_was_and_survives_the_way_through_json(study, digest):
    before = studies.Study.model_validate_json(json.dumps(as_written_before(study)))
    assert before.digest.hex() == digest
    again = studies.Study.model_validate_json(before.model_dump_json(indent=1))
    assert again.digest.hex() == digest
    assert studies.Study.model_validate_json(study.model_dump_json()).digest == study.digest
    assert again.policy == study.policy
    assert (again.evaluation, again.joining) == (study.evaluation, study.joining)


def test_settings_that_the_kind_of_policy_has_no_use_for_are_hashed_all_the_same():
    study, _ = STUDIES["tree"]
    flat = as_written_before(study)
    flat["plan"]["rounds"] = 7  # a tree has no rounds
    with_rounds = studies.Study.model_validate_json(json.dumps(flat))
    assert with_rounds.policy == study.policy
    assert with_rounds.digest.hex().startswith("44b0f9593b786369")
    assert json.loads(with_rounds.model_dump_json()) == flat
    assert with_rounds.model_copy(update={"seed": 1}).model_dump(mode="json")["plan"]["rounds"] == 7


def test_candidates_cross_by_name_alone():
    rule = Finite(candidates={"rule": lambda contexts: contexts[:, 0]})
    by_name = Finite(candidates=("rule",))
    assert Study(**NAMES, policy=rule).digest == Study(**NAMES, policy=by_name).digest
    assert rule.by_name == by_name


@pytest.mark.parametrize("tree", [3, "deep", None, [1]])
def test_what_is_no_plan_is_an_error_in_our_words(tree):
    flat = {**json.loads(STUDIES["tree"][0].model_dump_json()), "tree": tree}
    with pytest.raises(ValueError, match="tree"):
        studies.Study.model_validate_json(json.dumps(flat))


def test_a_largest_share_is_hashed_where_it_is_said_and_only_there():
    plain, capped = (
        Study(**NAMES),
        Study(**NAMES, mixture=fedopl.mixture.empirical(largest_share=0.4)),
    )
    assert "largest_share" not in plain.model_dump_json()
    assert capped.digest != plain.digest
    assert studies.Study.model_validate_json(capped.model_dump_json()) == capped


def test_what_clients_count_by_is_hashed_where_it_is_not_rows():
    plain = Study(**NAMES)
    by_rows = Study(**NAMES, mixture=fedopl.mixture.empirical(count="rows"))
    by_weight = Study(**NAMES, mixture=fedopl.mixture.empirical(count="weight"))
    assert by_rows.digest == plain.digest
    assert by_weight.digest != plain.digest
    assert studies.Study.model_validate_json(by_weight.model_dump_json()).mixture.count == "weight"


def test_blocks_of_features_for_outcome_models_are_hashed_where_they_are_said():
    plain, blocks = (Study(**NAMES, nuisances=PLAN(features=one)) for one in ("shared", "blocks"))
    assert plain.digest == STUDIES["linear"][0].digest
    assert blocks.digest != plain.digest
    assert (
        studies.Study.model_validate_json(blocks.model_dump_json()).nuisances.features == "blocks"
    )
    with pytest.raises(fedopl.OptionError, match=r"nuisances\.features: 4 features cannot be cut"):
        Study(
            actions=("a", "b", "c"),
            features=tuple("wxyz"),
            nuisances=PLAN(features="blocks"),
        )


def test_splits_are_hashed_where_there_are_several_and_only_there():
    plain, several = Study(**NAMES), Study(**{**NAMES, "evaluation": {"share": 0.25, "splits": 3}})
    assert "splits" not in plain.model_dump_json()
    assert several.digest != plain.digest
    again = studies.Study.model_validate_json(several.model_dump_json())
    assert again == several
    assert again.evaluation.splits == 3


def test_thresholds_move_in_new_studies_and_not_in_those_that_could_not_say_so():
    new, then = Study(**NAMES, policy=Tree()), Study(**NAMES, policy=Tree(refine=False))
    assert json.loads(new.model_dump_json())["tree"]["refine"]
    assert studies.Study.model_validate_json(new.model_dump_json()) == new
    assert "refine" not in json.loads(then.model_dump_json())["tree"]
    assert not studies.Study.model_validate_json(then.model_dump_json()).tree.refine


def test_weights_are_limited_in_new_studies_and_not_in_those_that_could_not_say_so():
    new, then = studies.Study(**NAMES), Study(**NAMES)
    assert new.nuisances.learning_clip == 0.05
    assert json.loads(new.model_dump_json())["nuisances"]["learning_clip"] == 0.05
    assert studies.Study.model_validate_json(new.model_dump_json()) == new
    assert "learning_clip" not in json.loads(then.model_dump_json())["nuisances"]
    again = studies.Study.model_validate_json(then.model_dump_json())
    assert again.nuisances.learning_clip == 0
    assert again.digest != new.digest
