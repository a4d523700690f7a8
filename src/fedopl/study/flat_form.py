"""The form of a study that is hashed and kept as `study.json`: every setting in one flat record.

It has a key for each setting of every kind of policy. The form may not change: messages carry its
hash, and folders of earlier runs hold it. So `Study`, which consists of plans, is written in this
form and read from it.
"""

from collections.abc import Mapping
from typing import Any

from fedopl.base.validation import GONE_LIMITS
from fedopl.study.policy_plans import Linear, Tree

Flat = dict[str, Any]
_HELD_OUT = "held-out"
# The first hashed studies had no limit on weights, and no key for it.
_UNLIMITED: Flat = {"learning_clip": 0.0}

# In the first hashed studies, private steps used all rows, and each client's answers were read.
_PLAIN: Flat = {
    "sampled": 1.0,
    "aggregation": "plain",
    "colluders": 1,
    "dropouts": 0,
    "values_apart": 0.0,
    "keys": {},
    "scales": "declared",
    "declared_ranges": None,
}

# In the first hashed studies with a target, every source found weights for itself.
_EACH_ALONE: Flat = {"balance": "each"}

# For each kind of policy, the flat key of each field of its plan; `tree` holds a tree's plan.
_FIELDS = {
    "linear": {
        "policy_features": "features",
        "oracle": "oracle",
        "plan": "training",
        "precision": "precision",
    },
    "finite": {"policy_features": "features", "candidates": "candidates"},
    "tree": {},
    "neural": {},
}
_PERMISSIONS = ("never", "only")
_GONE = "requires of version 0.2.0"  # among settings that are not used
# In the first hashed studies, thresholds did not move, and there was no key for it.
_UNMOVED: Flat = {"refine": False}
_LONG_CELLS: Flat = {"cell_numbers": "float64"}  # nor was there this key
# In the first hashed studies, clients counted as the mixture says.
_LINEAR = Linear(precision="rows").model_dump(mode="json")
_USUAL_PRECISION = Linear().precision
_NOT_YET = {"never", "only", "caution", *_UNMOVED, *_LONG_CELLS}
_TREE = Tree().model_dump(mode="json", exclude={"kind", *_NOT_YET})
_DEFAULTS: Flat = {
    **{key: _LINEAR[field] for key, field in _FIELDS["linear"].items()},
    "tree": _TREE,
    "candidates": [],
}


def flat_form(plans: Flat, unused: Flat) -> Flat:
    """A study's plans in the flat form, with settings that its kind of policy does not use."""
    policy, evaluation = dict(plans["policy"]), plans["evaluation"]
    kind = policy.pop("kind")
    # In the first hashed studies, everybody could get every action.
    permissions = {key: policy.pop(key) for key in _PERMISSIONS}
    said = {key: policy[field] for key, field in _FIELDS[kind].items()}
    tree = {key: told for key, told in policy.items() if key != "caution"}
    said |= {"tree": _said(tree, **_UNMOVED, **_LONG_CELLS)} if kind == "tree" else {}
    neural = {"neural": policy} if kind == "neural" else {}  # there was none when first hashed
    said = {**_DEFAULTS, **unused, **said}
    return {
        **{key: plans[key] for key in ("name", "actions", "features", "table")},
        # Left out if not set: these keys did not exist when studies were first hashed.
        **{key: plans[key] for key in ("basis", "costs", "budget") if plans[key] is not None},
        "policy": kind,
        **{key: said[key] for key in ("policy_features", "tree", "candidates", "oracle")},
        **{key: said[key] for key in ("plan", "precision")},
        **neural,
        **({"caution": policy["caution"]} if policy.get("caution") else {}),  # nor was there this
        **({"permissions": permissions} if any(permissions.values()) else {}),
        "nuisances": _said(plans["nuisances"], features="shared", **_UNLIMITED),
        "mixture": _said(plans["mixture"], count="rows", largest_share=None, robust=None),
        "evaluation_share": evaluation["share"],
        "describe": evaluation["describe"],
        # Left out if it is the default: no other setting existed when studies were first hashed.
        **({"evaluation": evaluation["kind"]} if evaluation["kind"] != _HELD_OUT else {}),
        **({"splits": evaluation["splits"]} if evaluation["splits"] != 1 else {}),
        "diagnose": plans["joining"]["diagnose"],
        # In the first hashed studies, clients had no personal policies.
        **({"personal": plans["personal"]} if plans["personal"]["kind"] != "none" else {}),
        **({"guardrails": plans["guardrails"]} if plans["guardrails"] else {}),
        **({"target": _said(plans["target"], **_EACH_ALONE)} if plans["target"] else {}),
        **({"aggregators": plans["aggregators"]} if plans["aggregators"] else {}),
        **({"privacy": _said(plans["privacy"], **_PLAIN)} if plans["privacy"] else {}),
        **({"evaluates": plans["evaluates"]} if plans["evaluates"] else {}),
        # Nor were there agreed ranges.
        **({"ranges": plans["ranges"]} if any(plans["ranges"].values()) else {}),
        "declared": plans["declared"],
        "requires": {**plans["requires"], **unused.get(_GONE, {})},
        **{key: plans[key] for key in ("quorum", "seed")},
    }


def _said(plan: Flat, **usual: object) -> Flat:
    """The plan without default settings, which did not exist when earlier studies were hashed."""
    return {key: said for key, said in plan.items() if key not in usual or said != usual[key]}


def plans_of(flat: Mapping[str, Any]) -> tuple[Flat, Flat]:
    """The plans in the flat form, and settings that its kind of policy does not use."""
    plans = dict(flat)
    kind = plans.pop("policy", "linear")
    said = {key: plans.pop(key) for key in _DEFAULTS if key in plans}
    fields = _FIELDS.get(str(kind), {})
    policy = {fields[key]: said.pop(key) for key in list(said) if key in fields}
    tree = said.pop("tree", {}) if kind == "tree" else {}
    if kind == "tree":
        policy |= {**_UNMOVED, **tree} if isinstance(tree, Mapping) else {"tree": tree}
    elif isinstance(said.get("tree"), Mapping):  # of a study file, which says it of every kind
        said["tree"] = _said(said["tree"], refine=True, **_LONG_CELLS)
    neural = plans.pop("neural", {}) if kind == "neural" else {}
    policy |= neural if isinstance(neural, Mapping) else {"neural": neural}
    policy |= {"caution": plans.pop("caution")} if "caution" in plans else {}
    permissions = plans.pop("permissions", {})
    policy |= permissions if isinstance(permissions, Mapping) else {"permissions": permissions}
    evaluation = {"evaluation_share": "share", "describe": "describe", "evaluation": "kind"}
    evaluation["splits"] = "splits"
    plans["policy"] = {"kind": kind, **policy}
    plans["evaluation"] = {evaluation[k]: plans.pop(k) for k in evaluation if k in plans}
    if isinstance(nuisances := plans.get("nuisances", {}), Mapping):
        plans["nuisances"] = {**_UNLIMITED, **nuisances}
    plans["joining"] = {"diagnose": plans.pop("diagnose")} if "diagnose" in plans else {}
    said = _said(said, precision=_USUAL_PRECISION)  # of a study file, which says it of every kind
    unused = {key: value for key, value in said.items() if value != _DEFAULTS[key]}
    requires = plans.get("requires")
    if isinstance(requires, Mapping) and (gone := GONE_LIMITS.keys() & requires.keys()):
        # A run of version 0.2.0 keeps its hash.
        unused[_GONE] = {key: value for key, value in requires.items() if key in gone}
        plans["requires"] = {key: value for key, value in requires.items() if key not in gone}
    return plans, unused
