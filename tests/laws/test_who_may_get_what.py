"""Law: nobody gets what they may not get: in decisions, in values, at clients and in exports."""

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.allowed.permissions import Never, Permissions
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.kinds import load_policy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import Layer, NeuralPolicy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.study import Study

ACTIONS = ("a", "b", "c")
WARDS = ("icu", "er one", "and")
SIGNS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
}


def encoding_of(missing):
    return Encoding(numeric=("kidney", "age"), categorical={"ward": WARDS}, missing=missing)


def random_rules(rng, missing):
    """Rules about two of three actions, and the same as functions of cells: None is missing."""
    never, functions = [], []
    for _ in range(rng.integers(1, 4)):
        parts, checks = [], []
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.6:
                column, sign = rng.choice(["kidney", "age"]), rng.choice(list(SIGNS))
                cut = int(rng.integers(2, 7))
                parts.append(f"{column}{sign}{cut}")
                checks.append(
                    lambda row, c=column, s=SIGNS[sign], v=cut: row[c] is None or s(row[c], v)
                )
            elif missing == "indicator" and rng.random() < 0.4:
                parts.append("age is missing")
                checks.append(lambda row: row["age"] is None)
            else:
                some = [str(ward) for ward in rng.permutation(WARDS)[: rng.integers(1, 3)]]
                parts.append("ward in (" + ", ".join(f'"{ward}"' for ward in some) + ")")
                checks.append(lambda row, s=some: row["ward"] is None or row["ward"] in s)
        action = str(rng.choice(ACTIONS[:2]))
        never.append(Never(action=action, when=" and ".join(parts)))
        functions.append((action, checks))
    return never, functions


def may_get(row, action, functions, only=ACTIONS):
    return action in only and not any(
        action == which and all(check(row) for check in checks) for which, checks in functions
    )


def random_rows(rng, missing, n_rows=300):
    """Cells, and the contexts that they become."""
    gap = 0.2 if missing == "indicator" else 0.0
    rows, contexts = [], []
    for _ in range(n_rows):
        row = {
            "kidney": float(rng.integers(0, 10)),
            "age": float(rng.integers(0, 10)),
            "ward": str(rng.choice(WARDS)),
        }
        row = {name: None if rng.random() < gap else value for name, value in row.items()}
        marked = missing == "indicator"
        context = []
        for name in ("kidney", "age"):
            context += [row[name] or 0.0, *([float(row[name] is None)] if marked else [])]
        context += [float(row["ward"] == ward) for ward in WARDS[1:]]
        context += [float(row["ward"] is None)] if marked else []
        rows.append(row)
        contexts.append(context)
    return rows, np.array(contexts)


def policies_of(rng, encoding, permissions):
    """Every kind, each with permissions."""
    names = (ACTIONS, encoding.feature_names)
    size = len(encoding.feature_names) + 1
    numbers = rng.integers(-2, 3, (3, size)).astype(float)  # with ties
    linear = LinearPolicy(numbers, *names, encoding, None, permissions)
    first = Layer(rng.normal(size=(size - 1, 4)), rng.normal(size=4))
    network = (first, Layer(rng.normal(size=(4, 3)), rng.normal(size=3)))
    root = Branch(0, 4.0, Leaf(0), Branch(0, 6.0, Leaf(1), Leaf(2)))
    return {
        "linear": linear,
        "cautious": CautiousPolicy.doubting(linear, np.stack([np.eye(size) / 8] * 3)),
        "pairwise": PairwisePolicy(rng.normal(size=(3, size)), *names, encoding, None, permissions),
        "neural": NeuralPolicy.beside(linear, network),
        "tree": TreePolicy(root, *names, encoding, permissions=permissions),
    }


def best_by_hand(policy, contexts, allowed):
    """The best of what is allowed, row by row; for a tree its own action, or the first allowed."""
    if isinstance(policy, TreePolicy):
        preferred = policy.preferred(contexts)
        return [
            code if own[code] else own.index(True)
            for code, own in zip(preferred, allowed, strict=True)
        ]
    return [
        max((code for code in range(3) if own[code]), key=lambda code: (scores[code], -code))
        for scores, own in zip(policy.scores(contexts), allowed, strict=True)
    ]


@pytest.mark.parametrize("missing", ["error", "indicator"])
@pytest.mark.parametrize("seed", range(4))
def test_no_rule_is_broken_by_decisions_saved_policies_and_exports(tmp_path, seed, missing):
    rng = np.random.default_rng(seed)
    encoding = encoding_of(missing)
    never, functions = random_rules(rng, missing)
    permissions = Permissions(never=never, only={"north": ("b", "c"), "south": ("c", "a")})
    rows, contexts = random_rows(rng, missing)
    for kind, policy in policies_of(rng, encoding, permissions).items():
        policy.save(tmp_path / "policy.json")
        for client, only in (("north", "bc"), ("south", "ac"), ("other", "abc")):
            allowed = [[may_get(row, a, functions, only) for a in ACTIONS] for row in rows]
            expected = np.array(ACTIONS)[best_by_hand(policy, contexts, allowed)]
            found = policy.names(contexts, client=client)
            assert (found == expected).all()
            saved = load_policy(tmp_path / "policy.json")
            assert (saved.at(client).names(contexts) == expected).all()
            if seed == 0 and client != "south":
                exported = run_exports(tmp_path, saved, rows, client)
                for language, decided in exported.items():
                    assert decided == expected.tolist(), (kind, language)


def run_exports(tmp_path, policy, rows, client):
    """What exported files decide."""
    path = policy.export(tmp_path / "rule.py", client=client)
    calls = f"import json, sys; sys.path.insert(0, {str(tmp_path)!r}); import rule; "
    calls += "print(json.dumps([rule.decide(row) for row in json.load(sys.stdin)]))"
    answer = subprocess.run(
        [sys.executable, "-c", calls], input=json.dumps(rows), capture_output=True, text=True
    )
    found = {"python": json.loads(answer.stdout)}
    assert "never '" in path.read_text()
    if not isinstance(policy, NeuralPolicy):
        query = policy.export(tmp_path / "rule.sql", client=client).read_text()
        with sqlite3.connect(":memory:") as base:
            base.execute("CREATE TABLE rows (kidney REAL, age REAL, ward TEXT)")
            base.executemany("INSERT INTO rows VALUES (:kidney, :age, :ward)", rows)
            found["sql"] = [row[-1] for row in base.execute(query)]
        policy.export(tmp_path / "rule.xlsx", client=client)  # tried on made-up rows
    found["onnx"] = run_onnx(policy.export(tmp_path / "rule.onnx", client=client), rows)
    return found


def run_onnx(path, rows):
    onnxruntime = pytest.importorskip("onnxruntime")

    session = onnxruntime.InferenceSession(path)
    feeds = {}
    for name in ("kidney", "age"):
        feeds[name] = np.array([[np.nan if r[name] is None else r[name]] for r in rows])
    feeds["ward"] = np.array([[r["ward"] or ""] for r in rows], object)
    return session.run(None, feeds)[0][:, 0].tolist()


def test_where_clients_have_actions_of_their_own_a_decision_says_where(tmp_path):
    permissions = Permissions(only={"north": ("b",)})
    policy = LinearPolicy(np.eye(3, 2), ACTIONS, ("x",), permissions=permissions)
    assert policy.names([[0.0]], client="north") == ["b"]
    for client, words in ((None, "say client="), ("nrth", "'nrth' is none of them")):
        with pytest.raises(OptionError, match=words):
            policy.decide([[0.0]], client=client)
    with pytest.raises(OptionError, match="say client="):
        policy.export(tmp_path / "rule.sql")


def test_a_saved_policy_without_its_permissions_is_refused(tmp_path):
    path = tmp_path / "policy.json"
    permissions = Permissions(never=[Never(action="a", when="x < 1")])
    LinearPolicy(np.eye(3, 2), ACTIONS, ("x",), permissions=permissions).save(path)
    content = json.loads(path.read_text())
    assert content["version"] == 2  # which earlier versions refuse, that would not obey
    del content["permissions"]
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match="expected version 1, came 2"):
        load_policy(path)


# --- studies --------------------------------------------------------------------------------------

SIZES = {"north": 400, "south": 250, "west": 161}
RULES = {
    "never": (Never(action="a2", when="x0 < 0.3"), Never(action="a1", when="x1 >= 0 and x2 > 0")),
    "only": {"south": ("a0", "a2")},
}


def federation(draw, policy, limits=None, **options):
    """Three clients' doors after a run, and the record."""
    clients = {
        name: draw(size, seed=seed, known=True, confounded=True)
        for seed, (name, size) in enumerate(SIZES.items())
    }
    first = clients["north"]
    options.setdefault("nuisances", fedopl.NuisancePlan(learning_clip=0))
    study = Study(
        actions=first.action_names,
        features=first.feature_names,
        policy=policy,
        **{"evaluation": 0.25, **options},
    )
    doors = {
        name: Door(name, data, study, limits=limits or Limits.open(), secret=SEED_ALONE)
        for name, data in clients.items()
    }
    return doors, run_study(Conversation(study, InProcess(doors)))


def pooled(doors, mixture):
    """Everybody's contexts, scores, what held-out rows count for, and what rows may get."""
    spaces = {name: door._space for name, door in sorted(doors.items())}
    contexts = np.vstack([space.data.contexts for space in spaces.values()])
    scores = np.vstack([space.scores for space in spaces.values()])
    held_out = np.concatenate(
        [np.arange(s.data.n_rows) >= s.whole.training.stop for s in spaces.values()]
    )
    client = np.repeat(list(spaces), [space.data.n_rows for space in spaces.values()])
    shares = {name: mixture[name] / held_out[client == name].sum() for name in mixture}
    counts = np.array([shares[name] for name in client]) * held_out
    allowed = np.ones(scores.shape, bool)
    allowed[contexts[:, 0] < 0.3, 2] = False
    allowed[(contexts[:, 1] >= 0) & (contexts[:, 2] > 0), 1] = False
    allowed[client == "south", 1] = False
    return contexts, scores, counts, allowed


@pytest.mark.parametrize("oracle", ["csoaa-exact", "wap", "direct"])
def test_values_are_of_constrained_decisions_and_sums_are_as_always(draw, oracle):
    doors, record = federation(draw, fedopl.Linear(precision="rows", oracle=oracle, **RULES))
    contexts, scores, counts, allowed = pooled(doors, record.mixture)
    decided = np.where(allowed, record.policy.scores(contexts), -np.inf).argmax(axis=1)
    worth = counts @ scores[np.arange(len(scores)), decided]
    assert record.values.of(LEARNED).value == pytest.approx(worth, rel=1e-9)
    for code, action in enumerate(record.study.actions):
        given = np.where(allowed[:, code], code, allowed.argmax(axis=1))
        worth = counts @ scores[np.arange(len(scores)), given]
        # On held-out rows, as what was learned is; the table of values has that of all rows.
        gain = record.gains.over(arm_name(action)).value
        assert record.values.of(LEARNED).value - gain == pytest.approx(worth, rel=1e-9, abs=1e-12)
    assert record.best_arm == "a0"  # though a2 is worth more: some may not get it
    if oracle == "csoaa-exact":
        _, plain = federation(draw, fedopl.Linear(precision="rows"))
        np.testing.assert_array_equal(record.policy.parameters, plain.policy.parameters)
        assert plain.best_arm == "a2"


def test_the_federated_tree_is_the_best_on_pooled_rows_of_what_can_be_given(draw):
    cuts = {f"x{place}": (-0.5, 0.0, 0.3, 1.0) for place in range(5)}
    plan = fedopl.Tree(depth=1, cuts=cuts, refine=False, **RULES)
    doors, record = federation(draw, plan)
    contexts, scores, counts, allowed = pooled(doors, record.mixture)
    held_out, first = counts > 0, allowed.argmax(axis=1)[:, None]
    worth = np.where(allowed, scores, np.take_along_axis(scores, first, axis=1))[~held_out]

    def best(rows):
        return worth[rows].sum(axis=0).max() if rows.any() else 0.0

    splits = [
        (best(at_most) + best(~at_most)) / len(worth)
        for place in range(5)
        for cut in cuts["x0"]
        for at_most in [contexts[~held_out, place] <= cut]
    ]
    found = np.where(allowed, np.eye(3)[record.policy.preferred(contexts)], -1).argmax(axis=1)
    value = scores[np.arange(len(scores)), found]
    assert value[~held_out].mean() == pytest.approx(max(splits), rel=1e-9)
    assert record.values.of(LEARNED).value == pytest.approx(counts @ value, rel=1e-9)


def test_a_function_among_candidates_obeys_too(draw):
    plan = fedopl.Finite(candidates={"third": lambda rows: np.full(len(rows), 2)}, **RULES)
    clients = {
        name: draw(size, seed=seed, known=True) for seed, (name, size) in enumerate(SIZES.items())
    }
    run = fedopl.learn(clients, policy=plan, basis="linear")
    assert run.values.of("third") == run.values.of(arm_name("a2"))
    unruly = LinearPolicy(
        np.eye(3, 6),
        ("a0", "a1", "a2"),
        tuple(f"x{n}" for n in range(5)),
        permissions=Permissions(never=[Never(action="a0", when="x0 < 1")]),
    )
    with pytest.raises(OptionError, match="is not what the study says"):
        fedopl.learn(clients, policy=fedopl.Finite(candidates={"other": unruly}), basis="linear")


@pytest.mark.parametrize("loss", ["regression", "softmax"])
def test_a_network_obeys(draw, loss):
    doors, record = federation(draw, fedopl.Neural(hidden=(4,), rounds=2, loss=loss, **RULES))
    contexts, scores, counts, allowed = pooled(doors, record.mixture)
    decided = np.where(allowed, record.policy.scores(contexts), -np.inf).argmax(axis=1)
    worth = counts @ scores[np.arange(len(scores)), decided]
    assert record.values.of(LEARNED).value == pytest.approx(worth, rel=1e-9)
