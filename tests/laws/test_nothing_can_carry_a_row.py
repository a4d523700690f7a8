import ast
import enum
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import ClassVar, get_origin

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.messages import codec
from fedopl.messages.combining import Combination, PerClient, combinations_of
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.description import N_CUTS, Describe
from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.policy_steps import ImprovePolicy, SlopeOfValue
from fedopl.messages.learning.score_sums import SumPairs, SumScores
from fedopl.messages.message import Asked, Axis, RowSplit
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import MESSAGES, QUERIES, queries_of
from fedopl.policies.kinds import packed
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study

SOURCE = Path(fedopl.__file__).parent
MODULES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
# The command line is the client itself at its own desk; the last three invent their own rows.
# Of pages, only the one that a client's owner reads at home.
MAY_HOLD_ROWS = (
    *("client/", "engines/", "cli/", "simulation/", "reproduction/", "demo/"),
    "live/client_page.py",
)
# Tasks and their answers are pickles between a client's own process and its own workers alone.
OWN_WORKERS = "client/cluster/workers.py"
UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SECRET = "Ada Lovelace, born 1815"


# --- no message can hold a row -----------------------------------------------------------------


def cannot_hold_a_row(name, content):
    if isinstance(content, tuple):
        return content != () and all(isinstance(axis, Axis) for axis in content)
    if content is bytes:
        return name == "study"  # a digest, whose length the codec fixes
    return content in (int, float) or issubclass(content, enum.Enum)


def test_a_field_is_a_number_a_digest_a_listed_value_or_an_array_of_agreed_axes():
    fields = [(kind, *field) for kind in MESSAGES.values() for field in codec.FIELDS[kind]]
    assert len(fields) > 4 * len(MESSAGES)
    assert [field for field in fields if not cannot_hold_a_row(*field[1:])] == []


def test_the_walk_sees_every_message_and_every_field():
    assert set(codec.FIELDS) == set(MESSAGES.values())
    for kind in MESSAGES.values():
        annotated = {
            name
            for base in kind.__mro__
            for name, hint in vars(base).get("__annotations__", {}).items()
            if get_origin(hint) is not ClassVar
        }
        assert {name for name, _ in codec.FIELDS[kind]} == annotated


def test_no_axis_counts_rows():
    assert not [axis for axis in Axis if "row" in axis.name.lower() + axis.value.lower()]
    study = Study(actions=("a", "b"), features=("x", "y", "z"), evaluation=0.25)
    assert set(axis_sizes(study)) == set(Axis)
    public = {Axis.TREE_NODES, Axis.FINE_CUTS, Axis.FINE_BINS, Axis.THRESHOLDS, Axis.CELLS}
    public |= {Axis.CLIENTS, Axis.TARGETS, Axis.NEAR_CUTS, Axis.NEAR_BINS, Axis.JUMPS_TOLD}
    public |= {Axis.PARTS, Axis.PRICES, Axis.STRENGTHS}
    sizes = axis_sizes(study)
    assert max(max(size) for axis, size in sizes.items() if axis not in public) < 10
    assert max(sizes[Axis.CELLS]) == 3 * 32**2 + 3 * 32  # of the grid: 32 bins of three columns


@pytest.mark.parametrize("oracle", ["csoaa-exact", "csoaa-sgd", "wap", "direct"])
def test_the_size_of_an_answer_does_not_depend_on_how_many_rows_there_are(draw, oracle):
    lengths = set()
    for n_rows in (120, 300):
        door, study = door_to(draw(n_rows), oracle=oracle)
        queries = [
            Enrol(study=study.digest, exchange=0),
            SumOutcomes(study=study.digest, exchange=1),
            score_query(study, 2),
            *learning_queries(study, 3),
            value_query(study, 4),
            describe_query(study, 5),
            TellFit(study=study.digest, exchange=6),
            TellInteractions(study=study.digest, exchange=7),
        ]
        assert {type(query) for query in queries} == queries_of(study)
        answers = [door.handle(codec.encode(query)) for query in queries]
        assert not [a for a in answers if isinstance(decoded(a, study), Refusal)]
        lengths.add(tuple(map(len, answers)))
    assert len(lengths) == 1


# --- no module can ------------------------------------------------------------------------------


def imported(tree):
    """Every module imported anywhere in the tree, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that this test can read them"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def trees():
    """Every module of the package, parsed."""
    found = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
    assert len(found) > 400
    return found


def without_type_checking(tree):
    class Strip(ast.NodeTransformer):
        def visit_If(self, node):
            is_hint = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            return node.orelse or None if is_hint else self.generic_visit(node)

    return Strip().visit(deepcopy(tree))


def test_the_server_and_what_it_shares_import_nothing_that_holds_rows(trees):
    # The public surface names everything and loads it when asked.
    read = trees | {"__init__.py": without_type_checking(trees["__init__.py"])}
    of_clients = [
        (module, name)
        for module, tree in read.items()
        if not module.startswith(MAY_HOLD_ROWS)
        for name in imported(tree)
        if f"{name}.".startswith("fedopl.client.")
    ]
    assert of_clients == []


def test_a_running_server_has_loaded_nothing_that_holds_rows():
    script = (
        "import sys, fedopl.server.federation\n"
        "print([name for name in sys.modules if name.startswith('fedopl.client')])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_nothing_is_unpickled(trees):
    unpicklers = [
        (module, name)
        for module, tree in trees.items()
        if module != OWN_WORKERS
        for name in imported(tree)
        if name.split(".")[0] in UNPICKLERS
    ]
    assert unpicklers == []
    users = [name for name, path in MODULES.items() if "cluster.workers" in path.read_text()]
    assert users == ["client/cluster/dask_engine.py", "client/cluster/spark_engine.py"]


def test_nothing_that_is_read_is_run(trees):
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                assert reads_safely(node), f"{module}:{node.lineno}"


def reads_safely(call):
    called = dotted(call.func)
    if called in {"eval", "exec", "compile", "__import__"}:
        return False
    if called.rpartition(".")[2] in {"load", "fromfile"} and called.startswith(("np", "numpy")):
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        return options.get("allow_pickle") == "False" and len(call.args) <= 1
    return True


def dotted(function):
    """The name that is called; that of the attribute alone where it is one of a result."""
    if isinstance(function, ast.Attribute):
        return f"{dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.parametrize(
    ("text", "is_safe"),
    [
        ("eval(text)", False),
        ("np.load(path)", False),
        ("numpy.lib.npyio.load(path, allow_pickle=True)", False),
        ("np.load(path, 'r', allow_pickle=False)", False),
        ("np.load(path, allow_pickle=False)", True),
        ("re.compile(text)", True),
        ("json.load(file)", True),
        ("made().compile(text)", True),
    ],
)
def test_what_could_be_run_is_seen(text, is_safe):
    call = ast.parse(text, mode="eval").body
    assert reads_safely(call) == is_safe


# --- no error text can --------------------------------------------------------------------------


def door_to(data, *, rules=None, oracle="wap", **options):
    study = Study(
        actions=tuple(f"a{code}" for code in range(3)),
        features=tuple(f"x{column}" for column in range(5)),
        nuisances=NuisancePlan(propensity="marginal"),
        policy=fedopl.Finite(candidates=tuple(rules)) if rules else fedopl.Linear(oracle=oracle),
        evaluation=0.25,
    )
    limits = Limits(minimum_rows=1, minimum_cell=0, parameter_share=10)
    options = {"secret": SEED_ALONE, **options}
    return Door("north", data, study, limits=limits, rules=rules, **options), study


def decoded(answer, study):
    return codec.decode(answer, axis_sizes(study))


def value_query(study, exchange, rules=()):
    fields = {**packed([], study), "rules": np.array(rules, float)}
    return Value(study=study.digest, exchange=exchange, split=RowSplit.EVALUATION, **fields)


def describe_query(study, exchange, rules=()):
    width = study.n_features + 1
    one_linear = {} if rules else {"linear": np.zeros((1, study.n_actions, width))}
    fields = {**packed([], study), "rules": np.array(rules, float), **one_linear}
    cuts = np.zeros((width, N_CUTS))
    return Describe(study=study.digest, exchange=exchange, cuts=cuts, **fields)


def score_query(study, exchange):
    shape = (study.nuisances.folds + 1, study.n_actions, study.n_features + 1)
    return SumScores(
        study=study.digest,
        exchange=exchange,
        models=np.zeros(shape),
        supported=np.ones(shape[:2]),
    )


def learning_queries(study, exchange):
    """The query that the study's oracle learns by, if scores' sums are not enough."""
    width = study.n_features + 1
    common = {"study": study.digest, "exchange": exchange}
    start = {**common, "parameters": np.zeros((study.n_actions, width))}
    if study.linear.oracle == "wap":
        return [SumPairs(**common)]
    if study.linear.oracle == "csoaa-sgd":
        return [ImprovePolicy(**start, round=0, centre=np.zeros(width), scale=np.ones(width))]
    return [SlopeOfValue(**start, temperature=1.0)] if study.linear.oracle == "direct" else []


class TalkativeError(Exception):
    def __str__(self):
        return SECRET

    __repr__ = __str__


def raising(_contexts):
    raise TalkativeError(SECRET)


class TalkativeData:
    """Stands where rows should be, and has a story to tell about every one of them."""

    n_actions, n_features, n_rows = 3, 5, 100

    def __getattr__(self, name):
        raise TalkativeError(SECRET, name)


class TalkativeStore:
    is_lasting = True

    def get(self, key):
        raise TalkativeError(SECRET, key)

    put = get


@pytest.mark.parametrize("query", [value_query, describe_query])
def test_what_a_rule_raises_does_not_cross(draw, query):
    door, study = door_to(draw(120), rules={"rule": raising})
    door.handle(codec.encode(score_query(study, 0)))
    answer = door.handle(codec.encode(query(study, 1, rules=[0])))
    assert_only_a_code(answer, door, study)


@pytest.mark.parametrize(
    "query", [Enrol, SumOutcomes, SumPairs, score_query, value_query, describe_query]
)
def test_what_plugged_in_data_raise_does_not_cross(query):
    door, study = door_to(TalkativeData())
    made = query(study=study.digest, exchange=1) if isinstance(query, type) else query(study, 1)
    assert_only_a_code(door.handle(codec.encode(made)), door, study)


def test_what_a_plugged_in_store_raises_does_not_cross(draw):
    door, study = door_to(draw(120), store=TalkativeStore())
    assert_only_a_code(door.handle(codec.encode(score_query(study, 1))), door, study)


def assert_only_a_code(answer, door, study):
    message = decoded(answer, study)
    assert isinstance(message, Refusal)
    assert message.reason is RefusalCode.FAILED
    assert answer == codec.encode(Refusal(study=study.digest, exchange=1, reason=message.reason))
    entry = door.ledger.entries()[-1]
    assert entry.reason == "FAILED"
    for text in (SECRET, "Error", "Traceback", "Ada"):
        assert text.encode() not in answer
        assert text not in str(door.ledger.entries())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_every_field_of_an_answer_says_how_clients_combine(query):
    ways = combinations_of(query.answer)
    assert set(ways) == {field for field, _ in codec.FIELDS[query.answer]} - {"study", "exchange"}
    assert all(issubclass(way, Combination) for way in ways.values())
    if query.asked is Asked.TOTAL:
        assert not any(way is PerClient for way in ways.values())
