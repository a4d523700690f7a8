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
    from fedopl.base.errors import (
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
    from fedopl.base.estimates import Estimate
    from fedopl.base.schema import Schema
    from fedopl.client.cluster.dask_engine import DaskEngine
    from fedopl.client.cluster.spark_engine import SparkEngine
    from fedopl.client.disclosure.limits import Limits
    from fedopl.client.local.local_tree import search_tree
    from fedopl.client.scoring.cross_fit import Nuisances, cross_fit
    from fedopl.client.scoring.overlap import Overlap, overlap
    from fedopl.client.scoring.scores import (
        Scores,
        aipw_scores,
        dm_scores,
        ipw_scores,
        self_normalised_aipw_scores,
        self_normalised_ipw_scores,
    )
    from fedopl.client.scoring.values import estimate_value
    from fedopl.client.table.logged_data import LoggedData
    from fedopl.client.table.read import Contexts, read_contexts, read_logged
    from fedopl.engines.check_study import check
    from fedopl.engines.clients import ClientFactory
    from fedopl.engines.estimator import PolicyLearner
    from fedopl.engines.learn import learn
    from fedopl.engines.run import evaluate, run
    from fedopl.engines.run_in_memory import Running
    from fedopl.engines.runs import Run, load_run
    from fedopl.policies.basis import Basis
    from fedopl.policies.kinds import load_policy
    from fedopl.policies.linear import LinearPolicy
    from fedopl.policies.neural import NeuralPolicy
    from fedopl.policies.pairwise import PairwisePolicy
    from fedopl.policies.tree import TreePolicy
    from fedopl.report.page import write_report
    from fedopl.study import mixture
    from fedopl.study.guardrail import Guardrail
    from fedopl.study.plans import (
        Declared,
        EvaluationPlan,
        JoiningPlan,
        NuisancePlan,
        Ranges,
        TrainingPlan,
    )
    from fedopl.study.policy_plans import Finite, Linear, Neural, Tree
    from fedopl.study.private.privacy_plan import PrivacyPlan
    from fedopl.study.spending import Budget, Costs
    from fedopl.study.study import Study
    from fedopl.study.study_file import read_study

__version__ = "0.2.0"

_HOMES = {
    "fedopl.client.cluster.dask_engine": ("DaskEngine",),
    "fedopl.client.cluster.spark_engine": ("SparkEngine",),
    "fedopl.client.disclosure.limits": ("Limits",),
    "fedopl.client.table.logged_data": ("LoggedData",),
    "fedopl.client.scoring.cross_fit": ("Nuisances", "cross_fit"),
    "fedopl.client.scoring.overlap": ("Overlap", "overlap"),
    "fedopl.client.table.read": ("Contexts", "read_contexts", "read_logged"),
    "fedopl.client.scoring.scores": (
        "Scores",
        "aipw_scores",
        "dm_scores",
        "ipw_scores",
        "self_normalised_aipw_scores",
        "self_normalised_ipw_scores",
    ),
    "fedopl.client.local.local_tree": ("search_tree",),
    "fedopl.client.scoring.values": ("estimate_value",),
    "fedopl.engines.estimator": ("PolicyLearner",),
    "fedopl.engines.check_study": ("check",),
    "fedopl.engines.run": ("evaluate", "run"),
    "fedopl.engines.clients": ("ClientFactory",),
    "fedopl.engines.learn": ("learn",),
    "fedopl.engines.run_in_memory": ("Running",),
    "fedopl.engines.runs": ("Run", "load_run"),
    "fedopl.base.errors": (
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
    "fedopl.base.estimates": ("Estimate",),
    "fedopl.policies.basis": ("Basis",),
    "fedopl.policies.kinds": ("load_policy",),
    "fedopl.policies.linear": ("LinearPolicy",),
    "fedopl.policies.neural": ("NeuralPolicy",),
    "fedopl.policies.pairwise": ("PairwisePolicy",),
    "fedopl.policies.tree": ("TreePolicy",),
    "fedopl.report.page": ("write_report",),
    "fedopl.base.schema": ("Schema",),
    "fedopl.study.study_file": ("read_study",),
    "fedopl.study.guardrail": ("Guardrail",),
    "fedopl.study.plans": (
        *("Declared", "EvaluationPlan", "JoiningPlan", "NuisancePlan", "Ranges", "TrainingPlan"),
    ),
    "fedopl.study.private.privacy_plan": ("PrivacyPlan",),
    "fedopl.study.policy_plans": ("Finite", "Linear", "Neural", "Tree"),
    "fedopl.study.spending": ("Budget", "Costs"),
    "fedopl.study.study": ("Study",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Basis",
    "Budget",
    "ClientFactory",
    "Contexts",
    "Costs",
    "DaskEngine",
    "DataError",
    "Declared",
    "Estimate",
    "EvaluationPlan",
    "FederationError",
    "FedoplError",
    "FedoplWarning",
    "Finite",
    "Guardrail",
    "JoiningPlan",
    "Limits",
    "Linear",
    "LinearPolicy",
    "LoggedData",
    "ModelError",
    "Neural",
    "NeuralPolicy",
    "NuisancePlan",
    "Nuisances",
    "OptionError",
    "Overlap",
    "PairwisePolicy",
    "PolicyError",
    "PolicyLearner",
    "PrivacyError",
    "PrivacyPlan",
    "Ranges",
    "Run",
    "Running",
    "Schema",
    "SchemaError",
    "Scores",
    "SparkEngine",
    "StorageError",
    "Study",
    "StudyError",
    "TrainingPlan",
    "Tree",
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
    "read_contexts",
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
        return import_module("fedopl.study.mixture")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fedopl' has no attribute '{name}'")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
