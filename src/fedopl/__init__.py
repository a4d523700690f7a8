"""Federated offline policy learning: one good decision policy from data nobody may share.

    north, south = (fedopl.read_logged(f"{site}.csv", schema) for site in ("north", "south"))
    run = fedopl.learn({"north": north, "south": south})
    print(run)
    run.policy.save("policy.json")

Names are loaded when they are first used, so that importing fedopl stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedopl import mixture
    from fedopl.client.limits import Limits
    from fedopl.client.logged_data import LoggedData
    from fedopl.client.nuisances import Nuisances, cross_fit
    from fedopl.client.overlap import Overlap, overlap
    from fedopl.client.read import read_logged
    from fedopl.client.scores import (
        Scores,
        aipw_scores,
        dm_scores,
        ipw_scores,
        self_normalised_aipw_scores,
        self_normalised_ipw_scores,
    )
    from fedopl.client.tree_alone import search_tree
    from fedopl.client.values import estimate_value
    from fedopl.engines.checking import check
    from fedopl.engines.estimator import PolicyLearner
    from fedopl.engines.folders import evaluate, run
    from fedopl.engines.learning import learn
    from fedopl.engines.runs import Run, load_run
    from fedopl.errors import (
        DataError,
        FederationError,
        FedoplError,
        FedoplWarning,
        ModelError,
        OptionError,
        PolicyError,
        PrivacyError,
        SchemaError,
        StorageError,
        StudyError,
    )
    from fedopl.estimates import Estimate
    from fedopl.policies.kinds import load_policy
    from fedopl.policies.linear import LinearPolicy, PairwisePolicy
    from fedopl.policies.tree import TreePolicy
    from fedopl.report.page import write_report
    from fedopl.schema import Schema
    from fedopl.study import Declared, NuisancePlan, Study, TrainingPlan
    from fedopl.study_file import read_study
    from fedopl.trees.plan import TreePlan

__version__ = "0.1.0"

_HOMES = {
    "fedopl.client.limits": ("Limits",),
    "fedopl.client.logged_data": ("LoggedData",),
    "fedopl.client.nuisances": ("Nuisances", "cross_fit"),
    "fedopl.client.overlap": ("Overlap", "overlap"),
    "fedopl.client.read": ("read_logged",),
    "fedopl.client.scores": (
        "Scores",
        "aipw_scores",
        "dm_scores",
        "ipw_scores",
        "self_normalised_aipw_scores",
        "self_normalised_ipw_scores",
    ),
    "fedopl.client.tree_alone": ("search_tree",),
    "fedopl.client.values": ("estimate_value",),
    "fedopl.engines.estimator": ("PolicyLearner",),
    "fedopl.engines.checking": ("check",),
    "fedopl.engines.folders": ("evaluate", "run"),
    "fedopl.engines.learning": ("learn",),
    "fedopl.engines.runs": ("Run", "load_run"),
    "fedopl.errors": (
        "DataError",
        "FederationError",
        "FedoplError",
        "FedoplWarning",
        "ModelError",
        "OptionError",
        "PolicyError",
        "PrivacyError",
        "SchemaError",
        "StorageError",
        "StudyError",
    ),
    "fedopl.estimates": ("Estimate",),
    "fedopl.policies.kinds": ("load_policy",),
    "fedopl.policies.linear": ("LinearPolicy", "PairwisePolicy"),
    "fedopl.policies.tree": ("TreePolicy",),
    "fedopl.report.page": ("write_report",),
    "fedopl.schema": ("Schema",),
    "fedopl.study_file": ("read_study",),
    "fedopl.study": ("Declared", "NuisancePlan", "Study", "TrainingPlan"),
    "fedopl.trees.plan": ("TreePlan",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DataError",
    "Declared",
    "Estimate",
    "FederationError",
    "FedoplError",
    "FedoplWarning",
    "Limits",
    "LinearPolicy",
    "LoggedData",
    "ModelError",
    "NuisancePlan",
    "Nuisances",
    "OptionError",
    "Overlap",
    "PairwisePolicy",
    "PolicyError",
    "PolicyLearner",
    "PrivacyError",
    "Run",
    "Schema",
    "SchemaError",
    "Scores",
    "StorageError",
    "Study",
    "StudyError",
    "TrainingPlan",
    "TreePlan",
    "TreePolicy",
    "aipw_scores",
    "check",
    "cross_fit",
    "dm_scores",
    "estimate_value",
    "evaluate",
    "ipw_scores",
    "learn",
    "load_policy",
    "load_run",
    "mixture",
    "overlap",
    "read_logged",
    "read_study",
    "run",
    "search_tree",
    "self_normalised_aipw_scores",
    "self_normalised_ipw_scores",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name == "mixture":
        return import_module("fedopl.mixture")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedopl' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
