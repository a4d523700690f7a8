"""What docs/performance.md says things cost is what they cost, to the byte and to the pass."""

import enum
import re
import struct
import sys
from collections import Counter
from importlib.util import find_spec
from itertools import groupby, product
from math import ceil

import costs
import numpy as np
import performance_page as page
import pyarrow as pa
import pytest
from costs import ANSWERS, QUERIES, WAYS, Around, value_of
from pyarrow import parquet

import fedopl
from fedopl.client import door as doors
from fedopl.client import workspace
from fedopl.client.answers import learning
from fedopl.client.disk.disk_array import DiskArray
from fedopl.client.local import local_training
from fedopl.client.local.local_training import ScoredStudyRows
from fedopl.client.rows import chunks
from fedopl.engines import in_process, run_in_memory
from fedopl.messages import codec, vocabulary
from fedopl.messages.about_target import ValueAtTarget
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import Axis
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    NoisedCells,
    NoisedGains,
    NoisedScores,
    NoisedValues,
    ValueApart,
    ValuePrivately,
    ValuesApart,
)
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.messages.vocabulary import MESSAGES
from fedopl.server.exchange_counts import expected_exchanges, expected_trips

# Features, actions, folds, clients: no two alike, so that no letter can stand for another.
SHAPES = [(2, 3, 5, 1), (6, 2, 4, 3), (12, 4, 2, 2)]
RESTS = {
    "as it comes": Around(),
    "local": Around(federated=False),
    "not evaluated": Around(evaluated=False),
    "not described": Around(described=False),
    "bare": Around(federated=False, evaluated=False, described=False),
}


def logged(n_rows, p, d, seed=0, *, taken=None, tail=False):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, p))
    if tail:
        contexts = np.exp(3 * contexts)
    actions = np.arange(n_rows) % (taken or d)
    rewards = contexts[:, 0] * (actions == 1) + rng.standard_normal(n_rows)
    names = [f"a{action}" for action in range(d)]
    return fedopl.LoggedData(contexts, actions, rewards, action_names=names)


def clients(p, d, n_clients, n_rows=240, **more):
    return {f"client {c}": logged(n_rows, p, d, c, **more) for c in range(n_clients)}


def learn_one(*clients, **given):
    """One policy for all, unless something else is said."""
    return fedopl.learn(*clients, **{"evaluation": 0.25, "personal": "none", **given})


def options(around, folds, **more):
    plan = fedopl.NuisancePlan(
        kind="federated" if around.federated else "local", propensity="marginal", folds=folds
    )
    share = 0.25 if around.evaluated else 0.0
    evaluation = fedopl.EvaluationPlan(share=share, describe=around.described)
    return {"nuisances": plan, "evaluation": evaluation, **more}


@pytest.fixture
def travelled(monkeypatch):
    """All bytes of every trip, there and back, by client."""
    found = Counter()

    class Weighed(in_process.InProcess):
        def exchange(self, queries):
            for name, content in super().exchange(queries):
                found[name, "receives"] += len(queries[name])
                found[name, "sends"] += len(content)
                yield name, content

    monkeypatch.setattr(run_in_memory, "InProcess", Weighed)
    return found


def queries_by_trip(run):
    by_trip = groupby(run.rounds, key=lambda latest: latest.trip)
    return [[latest.query for latest in trip] for _, trip in by_trip]


def with_policies_valued_beside(run, way, letters, around):
    """As many policies without one client as the rows led to, of those that there may be."""
    asked = [latest for latest in run.rounds if latest.query == "Value"]
    asked = asked[: len(asked) - way.values_leaves(around)]
    for e, b in product(range(int(letters["e"]) + 1), range(1, int(letters["d"]) + 1)):
        fewer = {**letters, "e": e, "b": b}
        fewer |= {name: value_of(getattr(way, name), fewer) for name in ("v", "W")}
        sizes = [
            [kind["Value"].n_bytes(own) for kind in (QUERIES, ANSWERS)]
            for own in (fewer, way.not_learned(fewer))
        ]
        came = [[n.bytes_sent / len(n.asked), *set(n.received.values())] for n in asked[-2:]]
        if came == sizes:
            return fewer
    return letters


def check(run, way, letters, around, travelled):
    """Every message of the run has the bytes it should, and there are no others."""
    letters = {**letters, "M": letters["M"] * around.federated}
    letters = with_policies_valued_beside(run, way, letters, around)
    expected = costs.trips(way, letters, around)
    assert queries_by_trip(run) == expected
    sized = costs.sized(way, letters, [latest.query for latest in run.rounds], around)
    for latest, (_, own) in zip(run.rounds, sized, strict=True):
        n_asked = len(latest.asked)
        assert latest.bytes_sent == n_asked * QUERIES[latest.query].n_bytes(own), latest.query
        answer = ANSWERS[latest.query].n_bytes(own)
        assert set(latest.received.values()) == {answer}, latest.query
    cost, frames = costs.cost(way, letters, around), costs.framing(expected)
    assert (cost.exchanges, cost.trips) == (len(run.rounds), len(expected))
    for name in run.mixture:
        assert travelled[name, "sends"] == cost.sends + frames
        assert travelled[name, "receives"] == cost.receives + frames
    study = run.study
    assert cost.exchanges <= expected_exchanges(study, len(run.mixture))
    assert cost.trips <= expected_trips(study, len(run.mixture))


# --- formulas -------------------------------------------------------------------------------------


def test_a_formula_is_read_as_it_is_printed():
    letters = {"p": 3, "d": 2, "K": 5}
    assert value_of("K·d·((p + 2)² + 1) − d/2", letters) == 5 * 2 * 26 - 1
    for wrong in ("__import__('os')", "p if d else K", "1.5·p", "p % 2"):
        with pytest.raises((ValueError, KeyError)):
            value_of(wrong, letters)


def test_every_letter_is_explained():
    texts = [message.numbers for table in (QUERIES, ANSWERS) for message in table.values()]
    texts += [times for way in WAYS.values() for _, times in way.asks]
    texts += [one.times for one in costs.PASSES] + [one.n_bytes for one in costs.MEMORY.values()]
    used = {letter for text in texts for letter in text if letter.isalpha()}
    assert used <= set(costs.LETTERS)


# --- messages -------------------------------------------------------------------------------------

AXES = {
    Axis.ACTIONS: "d",
    Axis.PARAMETERS: "p + 1",
    Axis.TERMS: "p + 1",
    Axis.REGRESSION: "p + 2",
    Axis.FEATURES: "f",
    Axis.FOLDS: "K",
    Axis.MODELS: "M",
    Axis.GRAMS: "g",
    Axis.PAIRS: "P",
    Axis.LINEAR_POLICIES: "v",
    Axis.LINEAR_NUMBERS: "p + 1 + D",
    Axis.PAIRWISE_POLICIES: "0",
    Axis.TREES: "0",
    Axis.TREE_NODES: "127",
    Axis.NODE_NUMBERS: "4",
    Axis.NEURAL_POLICIES: "0",
    Axis.NEURAL_NUMBERS: "0",
    Axis.NETWORK_NUMBERS: "N",
    Axis.RULES: "0",
    Axis.CUTS: "3",
    Axis.BINS: "4",
    Axis.CHANCE_BINS: "8",
    Axis.COLUMNS: "c + j",
    Axis.CUT_COLUMNS: "s",
    Axis.FINE_CUTS: "255",
    Axis.FINE_BINS: "256",
    Axis.THRESHOLDS: "T",
    Axis.VERSIONS: "V",
    Axis.OPEN_NODES: "V·o",
    Axis.CELLS: "G",
    Axis.FIT_NUMBERS: "8",
    Axis.CELL_NUMBERS: "x",
    Axis.LEAVES: "E",
    Axis.LEAVES_NODES: "H",
    Axis.QUESTIONS: "V·q",
    Axis.NEAR_CUTS: "31",
    Axis.NEAR_BINS: "32",
    Axis.CLIENTS: "C",
    Axis.REPEATS: "6",
    Axis.TARGETS: "a",
    Axis.MOMENTS: "d + 1",
    Axis.FEATURE_PAIRS: "p·(p − 1)/2",
    Axis.FOUND_PAIRS: "u",
    Axis.JUMPS_TOLD: "32",
    Axis.JUMP_NUMBERS: "6",
    Axis.FOUND_THRESHOLDS: "y",
    Axis.FOUND_TERMS: "u + y",
    Axis.CORNER_NUMBERS: "4",
    Axis.TWO: "2",
    Axis.PRICES: "i",
    Axis.PARTS: "U",
    Axis.STRENGTHS: "47",
    Axis.OTHERS_VERSIONS: "1",
    Axis.ASKED_BY_FOLD: "v",
    Axis.OWN_FOLDS: "K",
    Axis.OTHERS: "d",
    Axis.OTHERS_NUMBERS: "p + 1 + D",
    Axis.OTHERS_TERMS: "p + 1",
    Axis.OTHERS_NODES: "0",
    Axis.CANDIDATES: "v + 2",
    Axis.NUMBERS: "p",
    Axis.PARTIES: "C",
    Axis.SESSION_KEYS: "1",
    Axis.KEY_WORDS: "4",
    Axis.SIGNATURE_WORDS: "8",
    Axis.HOLDERS: "C",  # of up to 100
    Axis.MASK_SECRETS: "2·m",
    Axis.SUMS: "m",
    Axis.SEALED_WORDS: "6",
    Axis.TARGET_VALUES: "d + 1",
    Axis.BALANCED: "2·p",
    Axis.UNITS: "0",
    Axis.SLOPES: "0",
    Axis.REGIONS: "4",
    Axis.PRODUCTS_TOLD: "8",
    Axis.INTERACTION_NUMBERS: "6",
}
# One policy for all rows.
OF_ONE = {Axis.LINEAR_POLICIES: "1", Axis.MODELS: "1"}
OF_ONE |= {Axis.ASKED_BY_FOLD: "0", Axis.OWN_FOLDS: "0"}
# Where an axis is not as long as elsewhere.
OWN_AXES = {
    SumCells: {Axis.TREE_NODES: "h"},
    SumNearThresholds: {Axis.TREE_NODES: "2·q + 1"},
    Describe: {Axis.LINEAR_POLICIES: "1"},
    ValueAtTarget: OF_ONE,
    ValuePrivately: {Axis.LINEAR_POLICIES: "2"},
    NoisedValues: {Axis.CANDIDATES: "4"},
    ValueApart: {Axis.LINEAR_POLICIES: "2"},
    ValuesApart: {Axis.CANDIDATES: "3"},
    NoisedCells: {Axis.CELLS: "8·c·(c − 1)"},  # every two columns have 16, if all are numbers
    LookPrivately: {Axis.TREE_NODES: "2·q + 1"},
    NoisedGains: {Axis.QUESTIONS: "q"},
    NoisedScores: {Axis.CANDIDATES: "v"},
}
# The same of answers, by what they answer.
ANSWERED_AXES = {}


def encoded(message, letters, query=None):
    """A message of zeros, as large as these letters make it; perhaps the answer to a query."""
    own = ANSWERED_AXES.get(query, {}) if message is not query else {}
    axes, values = {**AXES, **OWN_AXES.get(message, {}), **own}, {}
    for name, content in codec.FIELDS[message]:
        if isinstance(content, tuple):
            values[name] = np.zeros([int(value_of(axes[axis], letters)) for axis in content])
        elif issubclass(content, enum.Enum):
            values[name] = next(iter(content))
        else:
            values[name] = {bytes: bytes(32), int: 0, float: 0.0}[content]
    return codec.encode(message(**values))


@pytest.mark.parametrize("query", vocabulary.QUERIES, ids=lambda query: query.__name__)
@pytest.mark.parametrize(("p", "d", "folds", "n_clients"), SHAPES)
def test_a_message_has_the_bytes_that_its_formula_says(query, p, d, folds, n_clients):
    more = {"f": p // d + 1, "g": d, "s": p - 1, "c": p + 2, "j": 3, "B": 3, "o": 2, "L": 7, "v": 5}
    more |= {"m": 3, "V": folds + 1}
    more["I"] = more["v"] * folds
    if query is Value:  # with a personal policy, in a cautious study, and a budget
        more |= {"i": 64, "U": 65 + d, "E": 7, "H": 13}
        more["D"] = (p + 1) * (p + 2) // 2
        more["z"] = d * (p + 1 + more["D"]) + 2 * (p + 1) + 47
    letters = WAYS["csoaa-exact"].letters(
        p, d, K=folds, C=n_clients, W=5 * d * (p + 1 + more.get("D", 0)), x=2 * d + 2, **more
    )
    for message, table in ((query, QUERIES), (query.answer, ANSWERS)):
        assert table[query.__name__].n_bytes(letters) == len(encoded(message, letters, query))


def test_a_refusal_has_the_bytes_that_its_formula_says():
    assert costs.REFUSAL.n_bytes({}) == len(encoded(Refusal, {}))


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("around", RESTS.values(), ids=RESTS)
@pytest.mark.parametrize(("p", "d", "folds", "n_clients"), SHAPES)
def test_an_exact_policy_costs_what_its_formulas_say(p, d, folds, n_clients, around, travelled):
    run = learn_one(clients(p, d, n_clients), basis="linear", **options(around, folds))
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(p, d, K=folds, C=n_clients), around, travelled)


def test_caution_costs_what_its_formulas_say(travelled):
    plan = fedopl.Linear(caution=1.0)
    run = learn_one(clients(4, 2, 3), basis="linear", policy=plan, **options(Around(), 5))
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(4, 2, C=3, D=15), Around(), travelled)


@pytest.mark.parametrize(("p", "d"), [(4, 2), (6, 3), (12, 3)])
def test_blocks_cost_what_their_formulas_say(p, d, travelled):
    run = learn_one(
        clients(p, d, 2),
        basis="linear",
        policy=fedopl.Linear(features="blocks"),
        **options(Around(), 5),
    )
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(p, d, f=p // d + 1, g=d), Around(), travelled)


def test_rows_without_a_score_cost_a_sum_of_squares_for_each_action(travelled):
    plan = fedopl.NuisancePlan(unseen="mask", propensity="marginal")
    run = learn_one(clients(4, 3, 2, taken=2), basis="linear", nuisances=plan)
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(4, 3, g=3), Around(), travelled)


PLAN = {"local_steps": 3, "batch_size": 16}


@pytest.mark.parametrize("oracle", ["csoaa-sgd", "csoaa-vw", "wap", "direct"])
@pytest.mark.parametrize(("p", "d", "folds", "n_clients"), SHAPES)
def test_an_oracle_costs_what_its_formulas_say(oracle, p, d, folds, n_clients, travelled):
    if oracle == "csoaa-vw" and find_spec("vowpalwabbit") is None:
        pytest.skip("needs vowpalwabbit")
    rounds, way = p + 1, WAYS["csoaa-sgd" if oracle == "csoaa-vw" else oracle]
    plan = fedopl.TrainingPlan(rounds=rounds, **PLAN)
    run = learn_one(
        clients(p, d, n_clients),
        basis="linear",
        policy=fedopl.Linear(oracle=oracle, training=plan),
        **options(Around(), folds),
    )
    letters = way.letters(p, d, K=folds, C=n_clients, R=rounds)
    check(run, way, letters, Around(), travelled)


@pytest.mark.parametrize(("p", "d", "folds", "n_clients"), SHAPES)
def test_a_finite_policy_costs_what_its_formulas_say(p, d, folds, n_clients, travelled):
    run = learn_one(
        clients(p, d, n_clients), basis="linear", policy="finite", **options(Around(), folds)
    )
    way = WAYS["finite"]
    check(run, way, way.letters(p, d, K=folds, C=n_clients), Around(), travelled)


def test_a_network_costs_what_its_formulas_say(travelled):
    way, plan = WAYS["neural"], fedopl.Neural(rounds=3, local_steps=2)
    run = learn_one(clients(6, 2, 3), basis="linear", policy=plan, **options(Around(), 4))
    letters = way.letters(6, 2, K=4, C=3, t=3)
    check(run, way, letters, Around(), travelled)
    assert expected_exchanges(run.study, 3) == len(run.rounds)
    assert expected_trips(run.study, 3) == max(latest.trip for latest in run.rounds) + 1


def test_a_rule_costs_one_number_and_a_tree_508(travelled):
    tree = learn_one(clients(3, 2, 1), basis="linear", policy=fedopl.Tree(bins=4)).policy
    travelled.clear()
    rule = lambda x: np.zeros(len(x), int)  # noqa: E731
    run = learn_one(
        clients(3, 2, 2),
        basis="linear",
        policy=fedopl.Finite(candidates={"rule": rule, "tree": tree}),
    )
    arms = {"d": 2, "p": 3}
    learned = 508 if run.chosen == "tree" else 1 if run.chosen == "rule" else 2 * 4
    letters = WAYS["finite"].letters(
        3, 2, v=4, w=learned, W=value_of("d·d·(p + 1)", arms) + 1 + 508
    )
    check(run, WAYS["finite"], letters, Around(), travelled)


@pytest.mark.parametrize(
    ("p", "d", "bins", "n_clients"), [(2, 3, 4, 1), (3, 2, 7, 3), (5, 4, 5, 2)]
)
def test_a_tree_costs_what_its_formulas_say(p, d, bins, n_clients, travelled):
    plan = fedopl.Tree(bins=bins)
    run = learn_one(clients(p, d, n_clients, 600), basis="linear", policy=plan)
    counted = sum(latest.query == "CountBins" for latest in run.rounds)
    assert counted in (1, 2)
    way = WAYS["tree"]
    letters = way.letters(p, d, B=bins, C=n_clients, k=counted, L=len(run.policy.leaves()))
    assert run.tree.grid.n_cells == letters["G"]
    check(run, way, letters, Around(), travelled)


def test_columns_that_a_tree_may_not_ask_about_cost_no_cells(travelled):
    plan = fedopl.Tree(bins=5, columns=("x1", "x3"))
    run = learn_one(clients(6, 2, 2, 600), basis="linear", policy=plan)
    way = WAYS["tree"]
    letters = way.letters(6, 2, B=5, c=2, L=len(run.policy.leaves()))
    assert (letters["j"], letters["G"]) == (4, run.tree.grid.n_cells)
    check(run, way, letters, Around(), travelled)


def test_a_long_tail_is_counted_twice_and_agreed_cuts_not_at_all(travelled):
    way, plan = WAYS["tree"], fedopl.Tree(bins=4)
    run = learn_one(clients(2, 2, 2, 600, tail=True), basis="linear", policy=plan)
    grid = run.tree.grid
    letters = way.letters(2, 2, k=2, L=len(run.policy.leaves()), G=grid.n_cells)
    letters["T"] = sum(map(len, grid.cuts))
    check(run, way, letters, Around(), travelled)
    travelled.clear()
    plan = fedopl.Tree(cuts={"x0": (-1, 0, 1), "x1": (-1, 0, 1)})
    run = learn_one(clients(2, 2, 2, 600), basis="linear", policy=plan)
    letters = way.letters(2, 2, B=4, k=0, s=0, r=0, L=len(run.policy.leaves()))
    check(run, way, letters, Around(), travelled)


def test_cells_of_rows_without_a_score_have_more_numbers():
    plan = fedopl.NuisancePlan(unseen="mask", propensity="marginal")
    run = learn_one(
        clients(2, 3, 1, 600, taken=2), basis="linear", policy=fedopl.Tree(bins=4), nuisances=plan
    )
    letters = WAYS["tree"].letters(2, 3, B=4, x=2 * 3 + 2)
    (cells,) = (latest for latest in run.rounds if latest.query == "SumCells")
    assert cells.bytes_received == ANSWERS["SumCells"].n_bytes(letters)


@pytest.mark.parametrize("depth", [3, 4])
def test_deeper_trees_cost_an_exchange_for_each_level(depth):
    plan = fedopl.Tree(bins=5, depth=depth)
    run = learn_one(clients(3, 4, 1, 1200), basis="linear", policy=plan)
    told = [entry for entry in run.ledger["client 0"] if entry.query == "SumCells"]
    levels = [latest for latest in run.rounds if latest.query == "SumCells"]
    assert 1 < len(levels) <= depth - 1  # fewer where a question would add nothing
    for level, (entry, latest) in enumerate(zip(told, levels, strict=True)):
        n_open = entry.shapes["cells"][0]
        assert n_open <= 2**level
        letters = WAYS["tree"].letters(3, 4, B=5, o=n_open)
        assert latest.bytes_received == ANSWERS["SumCells"].n_bytes(letters)
        assert latest.bytes_sent <= QUERIES["SumCells"].n_bytes(
            {**letters, "h": 2 ** (level + 1) - 1}
        )


def test_observed_thresholds_cost_no_exchange(travelled):
    pytest.importorskip("numba")
    run = learn_one(clients(2, 2, 1), basis="linear", policy=fedopl.Tree(thresholds="observed"))
    way = WAYS["observed"]
    letters = way.letters(2, 2, C=1, L=len(run.policy.leaves()))
    check(run, way, letters, Around(), travelled)


@pytest.mark.parametrize("outcome", ["ridge", "ols"])
@pytest.mark.parametrize("propensity", ["auto", "logistic", "marginal"])
def test_which_models_nuisances_are_costs_nobody_a_byte(outcome, propensity, travelled):
    plan = fedopl.NuisancePlan(outcome=outcome, propensity=propensity)
    run = learn_one(clients(3, 2, 2), basis="linear", nuisances=plan)
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(3, 2), Around(), travelled)


def test_limits_change_no_size(travelled):
    run = learn_one(clients(3, 2, 2), basis="linear", limits="guarded", **options(Around(), 5))
    assert not run.refusals
    way = WAYS["csoaa-exact"]
    check(run, way, way.letters(3, 2), Around(), travelled)


@pytest.mark.parametrize(("d", "n_clients"), [(2, 2), (2, 5), (4, 3)])
def test_mixtures_that_are_found_cost_what_the_page_says(d, n_clients):
    def asked(**given):
        run = learn_one(clients(3, d, n_clients, 600), basis="linear", **given)
        assert len(run.rounds) <= expected_exchanges(run.study, n_clients)
        return Counter(latest.query for latest in run.rounds)

    for versions, more, evaluation in ((6, 4, "cross-fitted"), (1, 0, 0.25)):
        rows = {"evaluation": evaluation}
        usual = asked(**rows)
        on_path = asked(mixture=fedopl.mixture.path("client 1"), **rows) - usual
        by_fold = {} if usual["SumByFold"] else {"SumByFold": 1}
        assert on_path == {**by_fold, "Value": versions * ceil(5 / (d + 3 + more))}
        finite = asked(policy="finite", **rows)
        on_path = asked(policy="finite", mixture=fedopl.mixture.path("client 1"), **rows) - finite
        assert on_path == {"Value": 2 * versions}
        assert asked(policy="finite", mixture="minimax", **rows) == finite
        climbed = asked(mixture="minimax", **rows) - usual
        assert set(climbed) == {"Value"}
        each = ceil(n_clients / (d + 4 + more)) + 15 + 1
        assert climbed["Value"] <= versions * each
    usual = asked()
    diagnosed = asked(diagnose=True) - usual
    assert diagnosed.pop("ClassifyContexts") <= 8
    assert diagnosed == {
        "Value": 3,
        "TellModels": 1,
        "CompareModels": 1,
        "TellMoments": 1,
    }


# --- passes ---------------------------------------------------------------------------------------


class Reads:
    """How often the last row of the contexts was read while each kind of query was answered.

    What looks at the first rows only does not come that far.
    """

    def __init__(self, monkeypatch):
        self.of_last, self.by_query = 0, {}
        read, handle = DiskArray.__getitem__, doors.Door._handle

        def counted(array, rows):
            found = read(array, rows)
            reaches_the_end = array.path.name == "contexts" and len(found)
            self.of_last += bool(reaches_the_end and rows.indices(len(array))[1] == len(array))
            return found

        def handled(door, content, decision):
            before = self.of_last
            answer = handle(door, content, decision)
            name = MESSAGES[struct.unpack_from("<4sHH", content)[2]].__name__
            self.by_query.setdefault(name, []).append(self.of_last - before)
            return answer

        monkeypatch.setattr(DiskArray, "__getitem__", counted)
        monkeypatch.setattr(doors.Door, "_handle", handled)


@pytest.fixture
def reads(monkeypatch):
    assert chunks.ROWS_PER_CHUNK == costs.ROWS_PER_CHUNK
    for name, module in list(sys.modules.items()):
        if name.startswith("fedopl.client.") and hasattr(module, "ROWS_PER_CHUNK"):
            monkeypatch.setattr(module, "ROWS_PER_CHUNK", 150)
    return Reads(monkeypatch)


def on_disk(folder, n_rows=500, p=3, d=3, *, number="float64", **more):
    data = logged(n_rows, p, d)
    contexts = np.array(data.contexts)
    n_flags = more.get("binary", 0)
    contexts[:, :n_flags] = contexts[:, :n_flags] > 0
    columns = {f"x{column}": contexts[:, column] for column in range(p)}
    columns |= {"done": [f"a{action}" for action in data.actions], "gained": data.rewards}
    columns |= {"chance": np.full(n_rows, 1 / d)} if more.get("known") else {}
    columns |= {"person": np.arange(n_rows) // 2} if more.get("grouped") else {}
    path = folder / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    schema = fedopl.Schema(
        action="done",
        actions=data.action_names,
        reward="gained",
        direction="higher",
        numeric=[f"x{column}" for column in range(p)],
        propensity="chance" if more.get("known") else None,
        group="person" if more.get("grouped") else None,
    )
    return fedopl.read_logged(path, schema, on_disk=folder / "rows", numbers=number)


def plan_of(propensity, kind="federated"):
    return {"nuisances": fedopl.NuisancePlan(propensity=propensity, kind=kind)}


TREE = fedopl.Tree(bins=4, cuts={"x0": (-1, 0, 1)})
ALONE = {"linear alone"}
ON_DISK = {
    "known": (plan_of("known"), ALONE, {"known": True}),
    "marginal": (plan_of("marginal"), ALONE, {}),
    "logistic": (plan_of("logistic"), ALONE | {"fitted"}, {}),
    "auto": (plan_of("auto"), ALONE | {"fitted"}, {}),
    "local": (plan_of("marginal", "local"), ALONE | {"own models"}, {}),
    "nothing held out": ({**plan_of("marginal"), "evaluation": 0}, set(), {}),
    "local, nothing held out": (
        {**plan_of("marginal", "local"), "evaluation": 0},
        {"own models"},
        {},
    ),
    "wider": (plan_of("marginal"), ALONE, {"p": 7, "d": 2, "n_rows": 700}),
    "tree": ({**plan_of("marginal"), "policy": TREE}, {"tree alone"}, {"n_rows": 1200}),
    "deep tree": (
        {**plan_of("marginal"), "policy": TREE.model_copy(update={"depth": 4})},
        {"tree alone"},
        {"n_rows": 1200},
    ),
    "finite": ({**plan_of("marginal"), "policy": "finite"}, ALONE, {}),
    "groups": (plan_of("marginal"), ALONE, {"grouped": True}),
    "known by the data": (plan_of("auto"), ALONE, {"known": True}),
}


@pytest.mark.parametrize(("given", "conditions", "rows"), ON_DISK.values(), ids=ON_DISK)
def test_rows_on_disk_are_read_as_often_as_the_table_says(given, conditions, rows, reads, tmp_path):
    run = learn_one({"only": on_disk(tmp_path, **rows)}, basis="linear", **given)
    assert not run.refusals
    conditions = conditions if rows.get("grouped") else conditions | {"dealt"}
    policy = given.get("policy")
    depth = getattr(policy, "depth", 2)
    letters = {"l": max(1, depth - 1), "r": int(depth <= 2)}
    expected = {
        query: [costs.passes(query, letters, frozenset(conditions))] * len(found)
        for query, found in reads.by_query.items()
    }
    assert reads.by_query == expected
    asked = [latest.query for latest in run.rounds]
    through_rows = {one.query for one in costs.PASSES if one.query in asked}
    # What they tell was worked out, and kept, when rows were scored.
    assert through_rows | {"TellFit", "TellInteractions"} == set(reads.by_query)


@pytest.mark.parametrize(
    ("policy", "scales"),
    [("linear", "declared"), ("linear", "measured"), ("tree", "declared"), ("finite", "declared")],
)
def test_rows_on_disk_are_read_once_for_each_private_answer_and_once_for_noise(
    policy, scales, reads, tmp_path
):
    ranges = dict.fromkeys(("x0", "x1", "x2"), (-2.0, 2.0))
    person = {"unit": "person", "most_rows_per_person": 2}
    run = learn_one(
        {"only": on_disk(tmp_path, grouped=True)},
        policy=policy,
        basis="linear",
        privacy=fedopl.PrivacyPlan(
            epsilon=8.0, outcome=(-4, 4), ranges=ranges, scales=scales, **person
        ),
        declared=fedopl.Declared(overlap=0.2),
    )
    assert not run.refusals
    expected = {
        query: [costs.passes(query, {}, frozenset({"private"}))] * len(found)
        for query, found in reads.by_query.items()
    }
    assert reads.by_query == expected
    assert sum(map(sum, expected.values())) >= 4


def test_limits_cost_a_pass_to_find_values_that_few_rows_have(reads, tmp_path):
    data = on_disk(tmp_path, 900, binary=1)
    run = learn_one({"only": data}, basis="linear", limits="guarded", **plan_of("marginal"))
    assert not run.refusals
    conditions = frozenset({*ALONE, "dealt", "guarded"})
    expected = {
        query: [costs.passes(query, {}, conditions)] * len(found)
        for query, found in reads.by_query.items()
    }
    assert reads.by_query == expected


def test_oracles_that_want_rows_in_memory_visit_them_as_often_as_the_page_says(monkeypatch):
    visits = Counter()

    def counting(module, name):
        function = getattr(module, name)

        def counted(*given, **named):
            visits[name] += 1
            if name == "improve":
                visits["rows"] += given[3].size
            return function(*given, **named)

        monkeypatch.setattr(module, name, counted)

    for module, name in (
        (learning, "pair_means"),
        (learning, "value_slope"),
        (local_training, "improve"),
        (local_training, "examples"),
    ):
        counting(module, name)
    plan = fedopl.TrainingPlan(rounds=6, local_steps=3, batch_size=16)
    for oracle in ("csoaa-sgd", "wap", "direct"):
        learn_one(
            clients(3, 3, 1), basis="linear", policy=fedopl.Linear(oracle=oracle, training=plan)
        )
    # Once in the federation, and once for the policy that the client would have learned alone.
    assert visits == {
        "examples": 2,
        "improve": 2 * 6,
        "rows": 2 * 6 * 3 * 16,
        "pair_means": 1,
        "value_slope": 15,
    }


# --- settings ------------------------------------------------------------------------------------


def test_settings_on_the_page_are_those_of_the_reference():
    reference = page.PAGE.with_name("reference.md").read_text(encoding="utf-8")
    files = "policy|tree|plan|nuisances|evaluation|joining|data"
    named = re.findall(rf"`((?:{files})\.\w+)", page.PAGE.read_text(encoding="utf-8"))
    assert len(named) > 20
    for key in named:
        assert f"| `{key}` |" in reference, key


# --- limits ---------------------------------------------------------------------------------------


def is_accepted(p, d, **more):
    names = {"actions": [f"a{a}" for a in range(d)], "features": [f"x{f}" for f in range(p)]}
    try:
        fedopl.Study(**names, **{"evaluation": 0.25, **more})
    except fedopl.OptionError:
        return False
    return True


@pytest.mark.parametrize("d", [4, 100])
def test_federated_nuisances_are_told_up_to_the_features_that_the_page_says(d):
    most = page.most_features(d)
    assert is_accepted(most, d)
    assert not is_accepted(most + 1, d)


@pytest.mark.parametrize(("bins", "d"), [(8, 4), (32, 4), (32, 100)])
def test_cells_are_told_up_to_the_columns_that_the_page_says(bins, d):
    most, tree = page.most_columns(bins, d), {"policy": fedopl.Tree(bins=bins)}
    assert is_accepted(most, d, **tree)
    assert not is_accepted(most + 1, d, **tree)


# --- what is kept ---------------------------------------------------------------------------------


def kept(name, **letters):
    return value_of(costs.MEMORY[name].n_bytes, letters)


@pytest.mark.parametrize(("p", "d", "n_rows"), [(3, 2, 100), (7, 4, 260)])
def test_a_client_keeps_the_bytes_that_the_table_says(p, d, n_rows, monkeypatch):
    spaces, made = [], workspace.Workspace.__init__

    def init(space, *given, **named):
        made(space, *given, **named)
        spaces.append(space)

    monkeypatch.setattr(workspace.Workspace, "__init__", init)
    data = logged(n_rows, p, d)
    plan = fedopl.TrainingPlan(rounds=1, **PLAN)
    learn_one(
        {"only": data},
        basis="linear",
        policy=fedopl.Linear(oracle="csoaa-sgd", training=plan),
        evaluation=0,
    )
    (space,) = spaces
    letters = {"n": n_rows, "p": p, "d": d}
    arrays = (data.contexts, data.actions, data.rewards)
    assert sum(array.nbytes for array in arrays) == kept("rows", **letters)
    ordered = (space.data.contexts, space.data.actions, space.data.rewards, space.study_rows.order)
    assert sum(array.nbytes for array in ordered) == kept("ordered", **letters)
    folds = (space.study_rows.folds_as_given, space.folds)
    assert sum(own.of_row.nbytes for own in folds) == kept("folds", **letters)
    assert space.propensities.of(space.study_rows.whole).nbytes == kept("propensities", **letters)
    assert space.scores.nbytes == kept("scores", **letters)
    scored = ScoredStudyRows(data, space.chunks, space.scored)
    rows = space.local_training.examples(scored, np.zeros(p + 1), np.ones(p + 1))
    assert rows.features.nbytes + rows.scores.nbytes == kept("steps", **letters)


@pytest.mark.parametrize(("p", "d", "n_clients"), [(3, 2, 2), (6, 3, 4)])
def test_the_server_keeps_the_bytes_that_the_table_says(p, d, n_clients):
    def n_bytes(told):
        return sum(value.nbytes for value in vars(told).values() if isinstance(value, np.ndarray))

    letters = WAYS["tree"].letters(p, d, C=n_clients, B=4)
    run = learn_one(clients(p, d, n_clients, 600), basis="linear", policy=fedopl.Tree(bins=4))
    assert sum(map(n_bytes, run.statistics.sums.values())) == kept("sums", **letters)
    assert sum(cells.nbytes for cells in run.tree.cells.values()) == kept("cells", **letters)
    told = [
        entry for ledger in run.ledger.values() for entry in ledger if entry.query == "SumOutcomes"
    ]
    numbers = [np.prod(shape) for entry in told for shape in entry.shapes.values()]
    assert 8 * sum(numbers) == kept("outcomes", **letters)


@pytest.mark.parametrize(("p", "d", "n_rows"), [(3, 2, 400), (7, 4, 600)])
@pytest.mark.parametrize(("number", "name"), [("float64", "disk"), ("float32", "half")])
def test_rows_on_disk_take_the_bytes_that_the_table_says(p, d, n_rows, number, name, tmp_path):
    data = on_disk(tmp_path, n_rows, p, d, number=number)
    learn_one({"only": data}, basis="linear", **plan_of("marginal"))
    files = [path for path in (tmp_path / "rows").rglob("*") if path.is_file()]
    arrays = [path.stat().st_size for path in files if path.suffix != ".json"]
    assert sum(arrays) == kept(name, n=n_rows, p=p, d=d)
