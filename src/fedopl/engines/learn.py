"""One call: several clients' data in, a policy and its honest value out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedopl.base.errors import OptionError, StudyError
from fedopl.base.labels import check_client_name, quoted
from fedopl.base.schema import Schema
from fedopl.client.disclosure.limits import as_limits
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Rule
from fedopl.engines.in_process import InProcess, check_packages, fingerprint_of, only_policy
from fedopl.engines.runs import Run
from fedopl.policies.kinds import Policy
from fedopl.policies.trees.tree_plan import TreePlan
from fedopl.server.exchange.conversation import Progress
from fedopl.server.federation import run_study
from fedopl.study.mixture import as_mixture
from fedopl.study.study import Declared, NuisancePlan, Study, TrainingPlan


def learn(
    clients: Mapping[str, LoggedData],
    *,
    policy: str = "linear",
    depth: int | None = None,
    thresholds: str | None = None,
    tree: TreePlan | None = None,
    features: str = "shared",
    candidates: Mapping[str, Policy | Rule] | None = None,
    oracle: str = "csoaa-exact",
    plan: TrainingPlan | None = None,
    precision: str = "rows",
    mixture: object = "empirical",
    nuisances: str | NuisancePlan = "federated",
    evaluation_share: float = 0.25,
    describe: bool = True,
    diagnose: bool = False,
    declared: Declared | None = None,
    quorum: float = 0.5,
    limits: object = "open",
    threads: int = 1,
    journal: str | Path | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> Run:
    """Learn one policy from the logged data of several clients.

    Args:
        clients: each client's data, by name; one client is ordinary offline policy learning.
        policy: "linear", "tree", or "finite" for the best of constant arms and `candidates`.
        depth: of a tree, how many questions are asked at most; exact up to 2, which is the default.
        thresholds: of a tree, "grid", or "observed" for one client that tries every threshold.
        tree: more about a tree: bins or cuts, columns, leaf sizes, what a split costs, and who may
            get what.
        features: "shared" (all of x for each action) or "blocks" (φ(x, a) = x_a).
        candidates: policies, or functions from contexts to action codes, by name.
        oracle: "csoaa-exact", "csoaa-sgd" (the paper's FedOPL), "csoaa-vw" (the same with Vowpal
            Wabbit's steps, on shared features), "wap" or "direct".
        plan: rounds, steps and rates of the iterative oracle.
        precision: "rows", or "clients" to weigh clients by how precise their scores are.
        mixture: "empirical", "uniform", shares by client, `fedopl.mixture.skewed(...)`, or found
            from data: "minimax" for the client that loses most, `fedopl.mixture.path(...)`.
        nuisances: "federated", "local", or a `NuisancePlan`.
        evaluation_share: rows set apart for evaluation; with 0, no value is claimed.
        describe: whether clients tell how decisions split over groups, and how likely actions were.
        diagnose: whether clients also tell where they differ and what joining is worth to each.
        declared: bounds on rewards and propensities that all vouch for, for regret bounds.
        quorum: the share of clients without whose answers a round does not count.
        limits: "open", "guarded" or `Limits`; the caller holds all rows, so open by default.
        threads: how many clients work at once.
        journal: a folder; a killed run that is called again goes on from there. It also keeps the
            clients' scores, so it is as private as their rows.
        progress: called after every exchange.
        seed: decides folds, evaluation rows and batches.

    """
    _check_clients(clients)
    first = next(iter(clients.values()))
    given = dict(candidates or {})
    if given and policy != "finite":
        raise OptionError("candidates: only a finite policy chooses among candidates")
    agreed: dict[str, Any] = {
        "actions": first.action_names,
        "features": first.feature_names,
        "table": _common_schema(clients),
        "policy": policy,
        "policy_features": features,
        "tree": _tree_plan(policy, tree, depth=depth, thresholds=thresholds),
        "candidates": tuple(given),
        "oracle": oracle,
        "plan": plan or TrainingPlan(),
        "precision": precision,
        "nuisances": nuisances if isinstance(nuisances, NuisancePlan) else {"kind": nuisances},
        "mixture": as_mixture(mixture),
        "evaluation_share": evaluation_share,
        "describe": describe,
        "diagnose": diagnose,
        "declared": declared or Declared(),
        "quorum": quorum,
        "seed": seed,
    }
    study = Study(**agreed)
    check_packages(study)
    study.mixture.weights({name: data.n_rows for name, data in clients.items()})  # names them all
    rules = {name: rule for name, rule in given.items() if not isinstance(rule, Policy)}
    # Scores are kept beside the journal: answers that are replayed from it rest on them.
    store = FolderStore(Path(journal) / "scores") if journal else None
    own: dict[str, Any] = {"limits": as_limits(limits), "store": store, "rules": _checked(rules)}
    doors = {name: Door(name, data, study, **own) for name, data in clients.items()}
    record = run_study(
        study,
        InProcess(doors, threads),
        alone=only_policy(doors),
        policies={name: p for name, p in given.items() if isinstance(p, Policy)},
        journal=Path(journal) if journal else None,
        fingerprint=fingerprint_of(clients) if journal else "",
        progress=progress,
    )
    return Run.of(record, doors)


def _tree_plan(policy: str, plan: TreePlan | None, **said: object) -> TreePlan:
    """The plan, with what else was said about it."""
    more = {name: value for name, value in said.items() if value is not None}
    if policy != "tree" and (plan is not None or more):
        named = ", ".join(more) or "tree"
        raise OptionError(f"{named}: only a tree has it, and the policy is '{policy}'")
    return TreePlan(**{**dict(plan or TreePlan()), **more})


def _common_schema(clients: Mapping[str, LoggedData]) -> Schema | None:
    """What everybody's table means, if all were read with the same schema."""
    first, *others = (data.schema for data in clients.values())
    return first if all(other == first for other in others) else None


def _check_clients(clients: Mapping[str, LoggedData]) -> None:
    if not isinstance(clients, Mapping) or not clients:
        raise OptionError("clients: expected a dictionary of LoggedData by client name")
    for name, data in clients.items():
        if not isinstance(name, str) or not isinstance(data, LoggedData):
            raise OptionError(
                f"clients: expected LoggedData by name, came {type(data).__name__} for {name!r}"
            )
        check_client_name(name, "clients")
    first_name, first = next(iter(clients.items()))
    for name, data in clients.items():
        _check_same(first_name, first.action_names, name, data.action_names, "action_names")
        _check_same(first_name, first.feature_names, name, data.feature_names, "feature_names")


def _check_same(
    first: str, expected: Sequence[str], name: str, came: Sequence[str], what: str
) -> None:
    if tuple(expected) != tuple(came):
        raise StudyError(
            f"{name}: {what} differ from those of {first}: expected {quoted(expected)}, "
            f"came {quoted(came)}; give every client the same {what}, in the same order"
        )


def _checked(rules: Mapping[str, Callable[..., object]]) -> dict[str, Rule]:
    for name, rule in rules.items():
        if not callable(rule):
            raise OptionError(f"candidates: '{name}' is neither a policy nor a function")
    return dict(rules)  # type: ignore[arg-type]
