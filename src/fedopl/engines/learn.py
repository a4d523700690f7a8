"""`learn`: runs a study in one call, with all clients' rows in this process."""

import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, cast

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError, StudyError
from fedopl.base.labels import check_client_name, quoted
from fedopl.client.disclosure.limits import Limits, as_limits
from fedopl.client.drafted_basis import MOST_SAMPLED, drafted_basis
from fedopl.client.rows.row_keys import content_order
from fedopl.client.scoring.joined_models import try_out
from fedopl.client.table.logged_data import LoggedData, check_outcomes
from fedopl.client.table.read import Contexts
from fedopl.engines.aggregator import check_aggregators
from fedopl.engines.clients import aggregators_in, members_of, sizes_of
from fedopl.engines.in_process import check_packages
from fedopl.engines.run_in_memory import Running, run_in_memory, secret_for_noise, with_keys
from fedopl.engines.runs import Run
from fedopl.policies.basis import Basis
from fedopl.policies.policy import Policy
from fedopl.study.guardrail import Guardrail, guarded_columns
from fedopl.study.mixture import as_mixture
from fedopl.study.plans import Balance, Declared, EvaluationPlan, NuisancePlan, Ranges, TargetPlan
from fedopl.study.policy_plans import Finite, KindOfPlan, Linear, Neural, Tree
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.private.private_setting import most_terms
from fedopl.study.private.private_units import likely_values
from fedopl.study.spending import Budget, Cost, Costs
from fedopl.study.study import Study
from fedopl.study.study_check import MOST_TO_SCREEN, why_not_personal

TARGET = "target"  # the name of a site without outcomes
_PERSONAL = ("auto", "ridge", "none")
MOST_WITH_THEIR_OWN = 100  # the most clients for which `personal="auto"` gives personal policies


def learn(
    clients: Mapping[str, LoggedData | Mapping[str, Any]],
    *,
    policy: str | Linear | Tree | Finite | Neural = "linear",
    basis: str | Basis | None = "auto",
    costs: Costs | Mapping[str, Cost] | None = None,
    budget: Budget | float | None = None,
    mixture: object = "empirical",
    nuisances: str | NuisancePlan = "federated",
    evaluation: float | str | EvaluationPlan = "auto",
    diagnose: bool = False,
    personal: str = "auto",
    guardrails: Mapping[str, Guardrail] | None = None,
    declared: Declared | None = None,
    ranges: Ranges | None = None,
    target: Contexts | None = None,
    balance: Balance = "each",
    privacy: PrivacyPlan | None = None,
    quorum: float = 0.5,
    limits: object = "open",
    running: Running | None = None,
    seed: int = 0,
) -> Run:
    """Learn one policy from the logged data of several clients.

    Args:
        clients: each client's data, by name; one client is ordinary offline policy learning. For
            very many clients, a `ClientFactory` makes the data of each when it is asked. A
            dictionary of clients in place of data is a region: an aggregator adds up what they
            answer, and sends the sums as one client; regions may be in regions.
        policy: "linear", "tree", "neural" or "finite", or a plan with settings:
            `Linear(oracle=...)`, `Tree(depth=...)`, `Neural(hidden=...)`, or
            `Finite(candidates=...)` for the best of constant arms and of policies, or functions
            from contexts to action codes, by name.
        basis: terms for effects that are not linear. "auto" chooses terms, with knots at quantiles
            of these rows, if the kind of policy allows it; "linear" has none; or "hinges",
            "splines", "steps", "waves", or a `Basis` with your own knots.
        costs: what actions cost, by action: a number, or the feature with the cost. Costs are in
            the unit of the outcome, and all values are net of costs; or use `Costs(by_action=...,
            unit=...)` for another unit, with a budget.
        budget: what decisions may cost on average: a number, or a `Budget`, which can also limit
            the share of people who get an action: `Budget(shares={"new": 0.2})`.
        mixture: "empirical", "uniform", shares by client, `fedopl.mixture.skewed(...)`, or weights
            found from data: "minimax" protects the client that loses most,
            `fedopl.mixture.path(...)` favours one client.
        nuisances: "federated", "local", or a `NuisancePlan`, in which `outcome` may be a
            scikit-learn regressor, for rows in memory: it is combined with models from sums.
        evaluation: "cross-fitted": all rows are learned from, and value the way of learning, fold
            by fold; or the share of rows held out to value the policy (with 0 it is not valued); or
            "refit": a quarter is held out, and then the policy is learned once more, from all rows.
            "auto" is the first of cross-fitted, refit and 0.25 that can be. Or an `EvaluationPlan`,
            which also says whether clients describe decisions and overlap, and under how many
            splits of the rows the results are medians.
        diagnose: whether clients also report where they differ and what joining is worth to each.
        personal: "ridge" also gives each client a personal policy: that of all others, moved toward
            its own rows as far as these support it. "none": no personal policies. "auto": personal
            policies for two to a hundred clients, if the study allows them; if not, the report says
            why. With `privacy` say "ridge": personal policies then have no noise, and neither the
            run's values nor its folder contain anything of them.
        guardrails: what must not get worse, by name: `Guardrail(column="death", at_most=0.005,
            more_than="what was done")`; the column is one of every client's `outcomes`.
        declared: bounds on rewards and propensities that hold at all clients, used in regret
            bounds.
        ranges: where outcomes and features lie, `Ranges(outcome=(0, 1), features={"age": (0,
            120)})`; what lies beyond counts as the nearer end, and the result says how much did.
        target: `Contexts` of a site without outcomes. The result says what the policy is worth
            there; among the clients the site is called "target".
        balance: how clients are weighted to look like the target: "each" for itself, "joint": all
            together, for clients that are far apart, or "auto": joint if each for itself leaves too
            few effective rows.
        privacy: differential privacy, `PrivacyPlan(epsilon=..., outcome=..., ranges=...)`: then
            everything is learned and valued from noisy sums; default: exact sums.
        quorum: the share of clients that must answer, or a round does not count.
        limits: "open", "guarded" or `Limits`; the caller holds all rows, so open by default.
        running: threads, a journal from which an interrupted run continues, and a progress
            function; see `Running`.
        seed: decides folds, evaluation rows and batches.

    """
    regions, clients = clients, members_of(clients)
    _check_clients(clients)
    names = aggregators_in(regions)
    if not isinstance(personal, str) or personal not in _PERSONAL:
        raise OptionError(f"personal: expected {quoted(_PERSONAL)}, came {personal!r}")
    candidates = policy.named if isinstance(policy, KindOfPlan) else {}
    if target is not None:
        _check_target(target, clients, candidates)
    elif balance != "each":
        raise OptionError(f"balance: {balance!r} is about a target, and there is none; give target")
    running = running or Running()
    if privacy and privacy.is_secure and not privacy.keys:
        running = replace(running, secret=secret_for_noise(running))
        privacy = with_keys(privacy, clients, str(running.secret))
    agreed = {
        "policy": policy.by_name if isinstance(policy, KindOfPlan) else policy,
        "budget": Budget(most=budget) if isinstance(budget, int | float) else budget,
        "costs": Costs(by_action=dict(costs)) if isinstance(costs, Mapping) else costs,
        "mixture": as_mixture(mixture),
        "nuisances": nuisances,
        "evaluation": evaluation,
        "joining": diagnose,
        "personal": "none" if personal == "auto" else personal,
        "guardrails": dict(guardrails or {}),
        "declared": declared or Declared(),
        "ranges": ranges or Ranges(),
        "target": None if target is None else TargetPlan(client=TARGET, balance=balance),
        "aggregators": names,
        "privacy": privacy,
        "quorum": quorum,
        "seed": seed,
    }
    sizes = sizes_of(regions)
    study = _study_of(clients, sizes, basis=None if isinstance(basis, str) else basis, **agreed)
    own_limits = as_limits(limits)
    if isinstance(basis, str) and (may_bend(study) or basis != "auto"):
        drafted = basis_for(clients, basis, study, own_limits)
        study = _study_of(clients, sizes, basis=drafted, **agreed)
    check_aggregators(study, names)
    few = 1 < len(clients) <= MOST_WITH_THEIR_OWN and not names
    # Whatever a private run returns has noise, so one that has none is only there if asked for.
    if personal == "auto" and few and not privacy and why_not_personal(study) is None:
        agreed["personal"] = "ridge"
        study = _study_of(clients, sizes, basis=study.basis, **agreed)
    given = {"candidates": candidates, "regressor": _plugged_in(study, clients)}
    everybody: Mapping[str, LoggedData] = clients
    if target is not None:
        there = {TARGET: target.as_rows(study.actions)}
        made = not isinstance(everybody, dict)
        everybody = ChainMap(there, cast(Any, everybody)) if made else {**everybody, **there}
    return run_in_memory(study, everybody, given, own_limits, running, regions if names else None)


def _plugged_in(study: Study, clients: Mapping[str, LoggedData]) -> object:
    """The user's regressor for outcomes, after a trial on some rows; None without one."""
    plan = study.nuisances
    if plan.outcome != "plugged-in":
        return None
    if plan.regressor is None:
        raise OptionError("outcome: 'plugged-in' stands for a regressor; give the regressor itself")
    try_out(plan.regressor, next(iter(clients.values())))
    return plan.regressor


def _study_of(clients: Mapping[str, LoggedData], sizes: Mapping[str, int], **agreed: Any) -> Study:
    """The study that these arguments describe, checked against these clients.

    Sizes are of whoever speaks to the server, which counts by mixture.
    """
    first = next(iter(clients.values()))
    on_demand = not isinstance(clients, dict)  # a factory sees to it that all have the same
    same_schema = on_demand or all(data.schema == first.schema for data in clients.values())
    study = Study(
        actions=first.action_names,
        features=first.feature_names,
        table=first.schema if same_schema else None,
        **agreed,
    )
    check_packages(study)
    study.mixture.weights(dict(sizes))  # names them all
    try:
        if study.permissions:
            study.permissions.check_clients([*clients, *([TARGET] if study.target else [])])
    except ValueError as error:
        raise OptionError(str(error)) from None
    for name, data in clients.items() if guarded_columns(study) else ():
        check_outcomes(data, guarded_columns(study), name)
    return study


def _check_clients(clients: Mapping[str, LoggedData]) -> None:
    if not isinstance(clients, Mapping) or not clients:
        raise OptionError("clients: expected a dictionary of LoggedData by client name")
    if not isinstance(clients, dict):
        return  # a factory checks each client when it makes its rows
    for name, data in clients.items():
        if not isinstance(name, str) or not isinstance(data, LoggedData):
            raise OptionError(
                f"clients: expected LoggedData by name, came {type(data).__name__} for {name!r}"
            )
        check_client_name(name, "clients")
    first_name, first = next(iter(clients.items()))
    for name, what in product(clients, ("action_names", "feature_names")):
        expected, came = getattr(first, what), getattr(clients[name], what)
        if expected != came:
            raise StudyError(
                f"{name}: {what} differ from those of {first_name}: expected {quoted(expected)}, "
                f"came {quoted(came)}; give every client the same {what}, in the same order"
            )


def _check_target(
    target: object, clients: Mapping[str, LoggedData], candidates: Mapping[str, object]
) -> None:
    """Refuse a target of another type, or with other features than the clients."""
    if not isinstance(target, Contexts):
        raise OptionError(
            f"target: expected fedopl.Contexts(...), came {type(target).__name__}; for a "
            "client with outcomes, its values are already in every result"
        )
    if TARGET in clients:
        raise OptionError(f"clients: '{TARGET}' is what the target is called; use another name")
    first_name, first = next(iter(clients.items()))
    if target.feature_names != first.feature_names:
        raise StudyError(
            f"target: feature_names differ from those of {first_name}: expected "
            f"{quoted(first.feature_names)}, came {quoted(target.feature_names)}"
        )
    rules = [name for name, one in candidates.items() if not isinstance(one, Policy)]
    if rules:
        raise OptionError(
            f"candidates: {quoted(rules)} is a function, which the target does not have; give a "
            "saved policy instead, or leave the target out"
        )


MOST_ASKED = 100  # clients whose rows are used to choose knots
IN_A_ROW = 100  # neighbouring rows that are read at once for knots


def may_bend(study: Study) -> bool:
    """Whether `basis="auto"` adds terms for non-linear effects.

    With differential privacy, a tree's tables or candidates' scores already show non-linear
    effects. More terms in the outcome models would only add noise.
    """
    return study.can_bend and (study.privacy is None or study.policy.kind == "linear")


def basis_for(
    clients: Mapping[str, LoggedData], kind: str, study: Study, limits: Limits
) -> Basis | None:
    """A basis for these rows; it is written into the study before any client is asked.

    Every client must have enough rows for sums of all terms.
    With differential privacy, the basis depends only on public ranges and sizes, not on the rows.
    """
    if study.privacy:
        likely = likely_values(study.features, study.privacy.ranges)
        learned_from = 1 - study.evaluation.share
        sizes = [round(learned_from * own.n_rows) for own in clients.values()]
        columns = {name: [values] for name, values in likely.items()}
        return drafted_basis(columns, kind, most_terms(study.privacy, sizes))
    most = math.inf
    if math.isfinite(limits.parameter_share):
        fewest = min(data.n_rows for data in clients.values())
        most = fewest * (1 - study.evaluation.share) * limits.parameter_share - 1
    names = sorted(clients)
    some = [_spread(clients[name]) for name in names[:: -(-len(names) // MOST_ASKED)]]
    columns = {
        name: [contexts[:, place] for contexts in some] for place, name in enumerate(study.features)
    }
    plan = study.evaluation
    may_screen = plan.splits == 1 and study.n_features <= MOST_TO_SCREEN and study.target is None
    may_screen &= not study.aggregators
    n_screenings = len(study.left_out) if may_screen else 0
    return drafted_basis(columns, kind, most, n_screenings=n_screenings, seed=study.seed)


def _spread(data: LoggedData) -> FloatArray:  # (at most MOST_SAMPLED rows, n_features)
    """A sample of rows, whatever their order; on disk, blocks of neighbours from all parts."""
    if data.n_rows <= MOST_SAMPLED:
        return data.contexts[:]
    if not data.is_on_disk:
        return data.contexts[content_order(data)[:MOST_SAMPLED]]
    starts = np.linspace(0, data.n_rows - IN_A_ROW, MOST_SAMPLED // IN_A_ROW).astype(int)
    return np.concatenate([data.contexts[start : start + IN_A_ROW] for start in starts.tolist()])
