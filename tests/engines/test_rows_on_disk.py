"""Rows on disk give what rows in memory give, whatever is learned from them."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.rows import chunks, study_rows
from fedopl.client.screening.product_statistics import product_tests
from fedopl.policies.basis import Basis

N_ROWS, LEVELS = 900, ("none", "some", "much")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Several chunks of a small table, the last of them not full."""
    monkeypatch.setattr(study_rows, "ROWS_PER_CHUNK", 200)
    assert chunks.ROWS_PER_CHUNK > 200


def table(seed, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    x, level = rng.normal(size=(n_rows, 3)), rng.integers(0, 3, n_rows)
    action = rng.integers(0, 3, n_rows)
    reward = (x * np.eye(3)[action]).sum(axis=1) + level * (action == 1) + rng.normal(size=n_rows)
    return pa.table(
        {
            **{f"x{k}": x[:, k] for k in range(3)},
            "level": np.array(LEVELS)[level],
            "flag": (np.arange(n_rows) < 3).astype(float),  # which tells of three rows
            "done": np.array(["a", "b", "c"])[action],
            "gained": reward,
            "weight": rng.uniform(0.5, 2, n_rows),
            "person": rng.integers(0, n_rows // 3, n_rows),
        }
    )


def schema(**more):
    return fedopl.Schema(
        action="done",
        actions=("a", "b", "c"),
        reward="gained",
        direction="higher",
        numeric=("x0", "x1", "x2", "flag"),
        categorical={"level": LEVELS},
        **more,
    )


@pytest.fixture
def both(tmp_path):
    """The same clients in memory and on disk."""

    def _both(n_rows=N_ROWS, **more):
        in_memory, on_disk = {}, {}
        for seed, name in enumerate(("east", "north")):
            path = tmp_path / f"{name}.parquet"
            parquet.write_table(table(seed, n_rows), path)
            in_memory[name] = fedopl.read_logged(path, schema(**more))
            on_disk[name] = fedopl.read_logged(path, schema(**more), on_disk=tmp_path / "rows")
            assert on_disk[name].is_on_disk
        return in_memory, on_disk

    return _both


# What "auto" chooses among differs: on disk, fewer models are tried.
MARGINAL = fedopl.NuisancePlan(propensity="marginal")
OPTIONS = {
    "linear": {},
    "guarded": {"limits": "guarded"},
    "local": {"nuisances": fedopl.NuisancePlan(propensity="marginal", kind="local")},
    "the paper's models": {"nuisances": fedopl.NuisancePlan(propensity="logistic", outcome="ols")},
    "blocks": {"nuisances": fedopl.NuisancePlan(propensity="marginal", features="blocks")},
    "local blocks": {
        "nuisances": fedopl.NuisancePlan(propensity="marginal", kind="local", features="blocks")
    },
    "boosted": {"nuisances": fedopl.NuisancePlan(propensity="boosting")},
    "clipped": {"nuisances": fedopl.NuisancePlan(propensity="marginal", clip=0.3)},
    "tree": {"policy": fedopl.Tree(bins=6)},
    "deep tree": {"policy": fedopl.Tree(bins=6, depth=3)},
    "guarded tree": {
        # Thresholds from noisy counts would depend on draws that no two kinds of rows share.
        "policy": fedopl.Tree(cuts={"x0": (-0.5, 0.0, 0.5)}, columns=("x0", "level")),
        "limits": "guarded",
    },
    "finite": {"policy": fedopl.Finite(candidates={"by x0": lambda x: (x[:, 0] > 0).astype(int)})},
}
ORACLES = {
    "local steps": {
        "policy": fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=5))
    },
    "local steps on all rows": {
        "policy": fedopl.Linear(
            oracle="csoaa-sgd",
            training=fedopl.TrainingPlan(rounds=4, local_steps=3, batch_size=2 * N_ROWS),
        )
    },
    "pairs": {"policy": fedopl.Linear(oracle="wap")},
    "guarded pairs": {
        "policy": fedopl.Linear(oracle="wap"),
        "limits": "guarded",
    },
    "direct": {"policy": fedopl.Linear(oracle="direct")},
    "guarded direct": {
        "policy": fedopl.Linear(oracle="direct"),
        "limits": "guarded",
    },
}
ROWS = {"plain": {}, "weighed": {"weight": "weight"}, "grouped": {"group": "person"}}


ALL = {f"{name}, {rows}": (OPTIONS[name], ROWS[rows]) for name in OPTIONS for rows in ROWS}
ALL |= {name: (ORACLES[name], ROWS["weighed"]) for name in ORACLES}
ALL["direct, grouped"] = ORACLES["direct"], ROWS["grouped"]


@pytest.mark.parametrize(("options", "more"), ALL.values(), ids=ALL)
def test_rows_on_disk_give_the_same_policy_and_the_same_values(both, options, more, monkeypatch):
    # Of rows on disk, values are not corrected for what features do together, and errors are those
    # that the rows show.
    monkeypatch.setattr("fedopl.client.scoring.study_scores.find_products", lambda *_: None)
    monkeypatch.setattr("fedopl.client.scoring.scoring_pass.UNLIKELY", 0.0)
    # Batches take rows by their places, which are by content in memory and by the table on disk.
    as_given = "fedopl.client.rows.study_rows.content_order"
    monkeypatch.setattr(as_given, lambda data: np.arange(data.n_rows))
    # Of more rows than it has bins, scikit-learn takes half a second to find weighted quantiles.
    n_rows = 330 if options is OPTIONS["boosted"] else N_ROWS
    options = {"nuisances": MARGINAL, **options}
    clients = both(n_rows, **more)
    in_memory, on_disk = (
        fedopl.learn(data, basis="linear", **{"evaluation": 0.25, **options}) for data in clients
    )
    assert on_disk.refusals == in_memory.refusals
    assert on_disk.rows == in_memory.rows
    assert on_disk.chosen == in_memory.chosen
    if in_memory.tree:
        assert on_disk.policy.root == in_memory.policy.root
    elif in_memory.policy:
        np.testing.assert_allclose(
            on_disk.policy.numbers(), in_memory.policy.numbers(), rtol=1e-9, atol=1e-12
        )
    for own, other in zip(on_disk.values.rows, in_memory.values.rows, strict=True):
        # A tree that a client learns alone has quantiles of some rows only, and a personal tree may
        # take its questions.
        if in_memory.tree is None or own.policy not in ("local policy", "personal policy"):
            assert own.estimate.value == pytest.approx(other.estimate.value, rel=1e-9, abs=1e-12)
            error = other.estimate.standard_error
            assert own.estimate.standard_error == pytest.approx(error, rel=1e-9)
            free = other.estimate.degrees_of_freedom  # cut off to a whole number
            assert own.estimate.degrees_of_freedom == pytest.approx(free, abs=1)


@pytest.mark.parametrize(
    "options",
    [
        {"policy": fedopl.Linear(oracle="csoaa-vw")},
        {"nuisances": fedopl.NuisancePlan(propensity="marginal", outcome="boosting")},
    ],
    ids=str,
)
def test_what_needs_rows_in_memory_says_so(both, options):
    _, on_disk = both()
    with pytest.raises(fedopl.FederationError, match="rows are on disk"):
        fedopl.learn(on_disk, basis="linear", **options)


def numbers_in(found, path=""):
    """All numbers of a record, by where they are."""
    if dataclasses.is_dataclass(found):
        found = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    if isinstance(found, dict):
        return {
            k: v for name, own in found.items() for k, v in numbers_in(own, f"{path}.{name}")
        }.items()
    if isinstance(found, list | tuple | np.ndarray):
        return numbers_in(dict(enumerate(found)), path)
    return {path: found}.items() if isinstance(found, float) else {}.items()


# Logistic models are fitted to all of so few rows. Where they say that an action was unlikely, rows
# in memory alone are said to vary by more than they show, as they do here in one of all rows.
@pytest.mark.parametrize(
    ("evaluation", "propensity"), [("held-out", "logistic"), ("cross-fitted", "marginal")]
)
@pytest.mark.parametrize("more", ROWS.values(), ids=ROWS)
def test_a_diagnosis_of_rows_on_disk_is_that_of_rows_in_memory(both, more, evaluation, propensity):
    options = {"nuisances": fedopl.NuisancePlan(propensity=propensity), "evaluation": evaluation}
    in_memory, on_disk = (
        fedopl.learn(data, basis="linear", diagnose=True, **options).diagnosis
        for data in both(**more)
    )
    assert in_memory.unknown == on_disk.unknown == {}
    numbers, others = dict(numbers_in(in_memory)), dict(numbers_in(on_disk))
    assert len(numbers) > 100
    assert others == pytest.approx(numbers, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("evaluation", ["held-out", "cross-fitted"])
@pytest.mark.parametrize("balance", ["each", "joint"])
def test_what_is_said_of_a_target_is_the_same(both, evaluation, balance):
    more = {"weight": "weight", "group": "person"}
    there = fedopl.read_contexts(table(9, 300), schema(**more))
    in_memory, on_disk = (
        fedopl.learn(data, target=there, balance=balance, basis="linear", evaluation=evaluation)
        for data in both(**more)
    )
    assert in_memory.target.values
    numbers = dict(numbers_in(in_memory.target))
    assert dict(numbers_in(on_disk.target)) == pytest.approx(numbers, rel=1e-6, abs=1e-9)


def test_a_diagnosis_fits_models_to_some_of_many_rows_on_disk(both, monkeypatch):
    monkeypatch.setattr("fedopl.client.answers.tell_models.MOST_FITTED", 500)
    plan = fedopl.NuisancePlan(propensity="logistic")
    in_memory, on_disk = (
        fedopl.learn(data, basis="linear", nuisances=plan, diagnose=True, evaluation=0.25).diagnosis
        for data in both()
    )
    numbers, others = dict(numbers_in(in_memory)), dict(numbers_in(on_disk))
    differ = {path for path, own in numbers.items() if others[path] != pytest.approx(own, rel=1e-6)}
    assert differ
    assert all("propensit" in path or "actions" in path for path in differ), differ


OWN = ("local policy", "personal policy")


@pytest.mark.parametrize("policy", ["linear", "tree", "finite"])
def test_cross_fitted_values_of_rows_on_disk_are_those_of_rows_in_memory(both, policy):
    plan = {"evaluation": "cross-fitted", "policy": policy}
    in_memory, on_disk = (
        fedopl.learn(data, basis="linear", nuisances=MARGINAL, **plan).values for data in both()
    )
    for own, other in zip(on_disk.rows, in_memory.rows, strict=True):
        assert own.policy == other.policy
        if policy == "linear" or own.policy not in OWN:  # with quantiles of some rows only
            assert own.estimate.value == pytest.approx(other.estimate.value, rel=1e-9)


def test_half_the_digits_give_nearly_the_same(both, tmp_path):
    in_memory, _ = both()
    short = {
        name: fedopl.read_logged(
            tmp_path / f"{name}.parquet", schema(), on_disk=tmp_path / "rows", numbers="float32"
        )
        for name in in_memory
    }
    long, half = (
        fedopl.learn(data, basis="linear", nuisances=MARGINAL) for data in (in_memory, short)
    )
    # Rows have other keys then, and go to other folds.
    np.testing.assert_allclose(
        half.values.of("learned").value, long.values.of("learned").value, atol=0.3
    )


def test_a_new_process_finds_the_scores_beside_the_rows(both, tmp_path, monkeypatch):
    _, on_disk = both()
    once = fedopl.learn(
        on_disk, basis="linear", running=fedopl.Running(journal=tmp_path / "journal")
    )
    monkeypatch.setattr("fedopl.client.scoring.scoring_pass.aipw_scores", None)
    again = fedopl.learn(
        on_disk, basis="linear", running=fedopl.Running(journal=tmp_path / "journal")
    )
    assert str(again) == str(once)


def test_only_parquet_files_can_be_kept_on_disk(tmp_path):
    frame = table(0, 30)
    with pytest.raises(fedopl.OptionError, match="on_disk: expected the path of a Parquet file"):
        fedopl.read_logged(frame, schema(), on_disk=tmp_path / "rows")
    path = tmp_path / "rows.csv"
    path.write_text("x0\n1\n")
    with pytest.raises(fedopl.DataError, match=r"rows\.csv: only Parquet files"):
        fedopl.read_logged(path, schema(), on_disk=tmp_path / "rows")


def test_numbers_on_disk_can_take_half_the_space(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(table(0), path)
    whole, half = (
        fedopl.read_logged(path, schema(), on_disk=tmp_path / kept, numbers=kept)
        for kept in ("float64", "float32")
    )
    assert half.contexts[:].nbytes == whole.contexts[:].nbytes  # as they are used
    small, large = (
        sum(file.stat().st_size for file in (tmp_path / kept).rglob("contexts*"))
        for kept in ("float32", "float64")
    )
    assert 2 * small == large > 0
    np.testing.assert_allclose(half.contexts[:], whole.contexts[:], rtol=1e-6)
    with pytest.raises(fedopl.OptionError, match="numbers: expected float64 or float32"):
        fedopl.read_logged(path, schema(), on_disk=tmp_path, numbers="float16")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(table(0), path)
    with pytest.raises(fedopl.StorageError, match=r"rows\.parquet/inside: cannot be made"):
        fedopl.read_logged(path, schema(), on_disk=path / "inside")


@pytest.mark.parametrize("without", [None, 2])
@pytest.mark.parametrize("more", ROWS.values(), ids=ROWS)
def test_products_are_screened_alike_in_memory_and_on_disk(both, more, without):
    told = []
    for clients in both(**more):
        data = clients["east"]
        basis = Basis(knots={"x0": (-1, 0, 1)}, screened_pairs=2)
        study = fedopl.Study(actions=data.action_names, features=data.feature_names, basis=basis)
        space = Door("east", data, study, secret=SEED_ALONE)._space
        terms = study.terms
        asked = (space.unscored_chunks, terms.scaled, 3, data.n_features)
        tests = product_tests(*asked, without=without)
        left_out = 0 if without is None else space.rows_by_fold_action[without]
        assert (tests.n_rows == space.rows_per_action - left_out).all()
        assert np.abs(tests.statistics).max() > 1
        told.append(tests)
    np.testing.assert_allclose(told[1].statistics, told[0].statistics, rtol=1e-6, atol=1e-8)
