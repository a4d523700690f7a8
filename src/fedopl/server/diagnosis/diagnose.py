"""The last questions of a study with a diagnosis: how clients differ, and what joining is worth.

Each part is optional. If clients refuse a part, it is left out, and the diagnosis says why.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import combinations
from math import ceil, inf, sqrt
from typing import Any, TypeVar

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, FedoplError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.messages.about_differences import (
    MOST_CLIENTS,
    MOST_ROUNDS,
    MOST_TARGETS,
    CompareModels,
    Models,
    ModelShifts,
    ScoreMoments,
    TellModels,
    TellMoments,
)
from fedopl.messages.evaluation.policy_fields import most_candidates
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.diagnosis import (
    Coalition,
    Coalitions,
    Diagnosis,
    MeasuredDiscrepancy,
    ModelShift,
    PairTable,
    SecondMoments,
    Shift,
)
from fedopl.results.sums.any_mixture import (
    Statistics,
    contrast_with_mixture,
    negative,
    solve_for,
)
from fedopl.server.aggregate.setting import Setting
from fedopl.server.diagnosis.context_classifier import fit_classifiers
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.found_weights import skew_paths
from fedopl.server.mixtures.value_queries import ANCHOR, Valued, ValueQueries, asking, picking
from fedopl.server.policy_comparison import Candidates
from fedopl.study.mixture import ALPHAS, Empirical, Weights, renormalised
from fedopl.study.study import Study

# With more clients than the first number, only the whole and all but one client are compared. With
# more than the second, nothing is: clients value no more policies in a study.
MOST_EXHAUSTIVE, _MOST_LEFT_OUT = 6, 30
# With more clients than these, paths lead only to those that differ most, models are not compared,
# and discrepancies are not measured, respectively.
_MOST_PATHS, _MOST_COMPARED, _MOST_DISCREPANCIES = 10, 100, 30

_Found = TypeVar("_Found")


def diagnose(
    conversation: Conversation,
    setting: Setting,
    statistics: Statistics | None,
    answers: Mapping[str, Values],
    candidates: Candidates,
) -> Diagnosis:
    """The diagnosis, from questions to the clients that reported values of these candidates."""
    clients = tuple(sorted(answers))
    if statistics is None or len(clients) < 2:
        why = "There are no others to join: only one client reported values."
        return Diagnosis(clients=clients, unknown={"everything": why})
    ask = (
        picking(candidates.names(), answers)
        if has_values_of_all(setting.study)
        else asking(conversation, clients, known=candidates.known)
    )
    values = ValueQueries(ask, most_candidates(setting.study), setting.study.reward_sign)
    rows = {name: setting.rows[name] for name in clients}
    weights, base = renormalised(setting.weights, clients), Empirical().weights(rows)
    unknown: dict[str, str] = {}

    def part(name: str, found: Callable[[], _Found], otherwise: _Found) -> _Found:
        """The result of `found`; if it fails, keep the reason and return `otherwise`."""
        try:
            return found()
        except FedoplError as error:
            unknown[name] = str(error)
            return otherwise

    def discrepancies(name: str, weights: Weights) -> dict[str, MeasuredDiscrepancy]:
        return part(name, lambda: measure_discrepancies(statistics, weights, values), {})

    measured = discrepancies("discrepancies", weights)
    # If λ = n̄, both questions are the same. Ask once, as clients' budgets are small.
    same = all(abs(base[name] - weights[name]) < 1e-12 for name in base)
    from_rows = measured if same else discrepancies("from_rows", base)
    furthest, joining = _furthest(clients, from_rows), (statistics, rows, values)
    return Diagnosis(
        clients=clients,
        discrepancies=measured,
        from_rows=from_rows,
        paths=part("paths", lambda: skew_paths(*joining, furthest[:_MOST_PATHS]), {}),
        coalitions=part("coalitions", lambda: compare_coalitions(*joining), None),
        models=part(
            "models", lambda: compare_models(conversation, ask_for_models(conversation, rows)), None
        ),
        classifiers=part(
            "classifiers",
            lambda: fit_classifiers(conversation, furthest[:MOST_TARGETS], weights),
            {},
        ),
        moments=part("moments", lambda: ask_for_moments(conversation, clients), {}),
        unknown=unknown,
    )


def ask_for_moments(conversation: Conversation, clients: Iterable[str]) -> dict[str, SecondMoments]:
    """Every client's second moments of scores; Theorem 1 uses them as the variance."""
    found = {}
    for name, answer in conversation.each(TellMoments(), clients).items():
        envelope, *by_action = (_moment(answer, place) for place in range(len(answer.rows)))
        found[name] = SecondMoments(envelope=envelope, by_action=tuple(by_action))
    return found


def _moment(answer: ScoreMoments, place: int) -> Estimate | None:
    if not answer.rows[place]:
        return None
    free = int(answer.degrees_of_freedom[place])
    return Estimate(
        value=float(answer.means[place]),
        standard_error=sqrt(answer.variances[place]) if free else inf,
        n_rows=int(answer.rows[place]),
        degrees_of_freedom=free,
    )


def _furthest(clients: tuple[str, ...], measured: Mapping[str, MeasuredDiscrepancy]) -> list[str]:
    """The clients, sorted by discrepancy, largest first."""
    gaps = {name: measured[name].regret_gap if name in measured else 0.0 for name in clients}
    return sorted(clients, key=lambda name: (-gaps[name], name))


def has_values_of_all(study: Study) -> bool:
    """Whether all that is compared was valued: candidates, if none is chosen fold by fold."""
    return study.policy.compares_candidates and not study.evaluation.is_cross_fitted


def diagnosing_exchanges(study: Study, n_clients: int) -> int:
    """How many exchanges a diagnosis takes, if clients accept queries of any size."""
    if n_clients < 2:
        return 0
    about_models = 3 + MOST_ROUNDS + 1
    if has_values_of_all(study):
        return about_models
    room = most_candidates(study)
    few = n_clients <= MOST_EXHAUSTIVE
    n_coalitions = (1 << n_clients) - n_clients if few else n_clients + 1
    n_on_paths = min(n_clients, _MOST_PATHS) * len(ALPHAS)
    per_query = [2 * min(n_clients, _MOST_DISCREPANCIES), n_on_paths, n_coalitions]
    if study.mixture.kind != "empirical" or study.mixture.counts_weight:
        per_query.append(per_query[0])
    return about_models + sum(ceil(n_policies / (room - 1)) for n_policies in per_query)


def compare_coalitions(
    statistics: Statistics, rows: Mapping[str, int], values: ValueQueries
) -> Coalitions:
    """The coalitions of these clients, with the values of their policies and of each one's data.

    Every query begins with the policy of all clients, so that the others are paired with it.
    """
    clients = tuple(sorted(rows))
    if not 2 <= len(clients) <= _MOST_LEFT_OUT:
        raise OptionError(
            f"coalitions: expected 2 to {_MOST_LEFT_OUT} clients, came {len(clients)}"
        )
    together = _subsets(clients)
    shares = [Empirical().weights({name: rows[name] for name in part}) for part in together]
    policies = [solve_for(statistics, weights) for weights in shares]
    valued = values.value_each(policies)
    missing = {name for one in valued for name in clients if name not in one.answers}
    if missing:
        raise FederationError(
            f"coalitions: no values of {quoted(sorted(missing))}; leave them out of the rows"
        )
    n_gains = sum(len(part) for part in together if len(part) > 1)
    compared = tuple(
        Coalition(
            members=part,
            weights=weights,
            gains={name: one.gain_over_local(name) for name in part},
            level=1 - 0.05 / n_gains,  # Bonferroni
        )
        for part, weights, one in zip(together, shares, valued, strict=True)
        if len(part) > 1
    )
    worth = _worth_of_data(clients, shares[0], together, valued)
    return Coalitions(clients=clients, compared=compared, worth_of_data=worth)


def _subsets(clients: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The coalitions, largest first; at least all clients, and all but one."""
    everybody = len(clients)
    fewest = 2 if everybody <= MOST_EXHAUSTIVE else everybody - 1
    sizes = range(everybody, min(fewest, everybody - 1) - 1, -1)
    return [part for size in sizes for part in combinations(clients, size)]


def _worth_of_data(
    clients: tuple[str, ...],
    weights: Weights,
    together: list[tuple[str, ...]],
    valued: list[Valued],
) -> dict[str, Estimate]:
    """Q̂_n̄(π_N) − Q̂_n̄(π_{N∖k}), paired."""
    without = {frozenset(part): one for part, one in zip(together, valued, strict=True)}
    found = {}
    for client in clients:
        one = without[frozenset(clients) - {client}]
        found[client] = Valued(one.answers, ANCHOR).gain(weights, one.place)
    return found


def measure_discrepancies(
    statistics: Statistics, weights: Weights, values: ValueQueries
) -> dict[str, MeasuredDiscrepancy]:
    """The discrepancy of each client from the mixture; none for a client that is all of it.

    Each client has two policies, which must be in the same query.
    """
    if len(weights) > _MOST_DISCREPANCIES:
        raise OptionError(f"discrepancies: expected at most {_MOST_DISCREPANCIES} clients")
    contrasts = {name: contrast_with_mixture(weights, name) for name in sorted(weights)}
    contrasts = {name: signed for name, signed in contrasts.items() if any(signed.values())}
    pairs = [
        [statistics.solve_contrast(signed), statistics.solve_contrast(negative(signed))]
        for signed in contrasts.values()
    ]
    valued = values.value(pairs)
    return {
        name: _measured(name, signed, found)
        for (name, signed), found in zip(contrasts.items(), valued, strict=True)
    }


def _measured(client: str, signed: Weights, valued: list[Valued]) -> MeasuredDiscrepancy:
    first, second = valued
    return MeasuredDiscrepancy(
        client=client,
        above=first.value(signed),
        below=second.value(negative(signed)),
        gap=first.gain(signed, second.place),
    )


def ask_for_models(conversation: Conversation, clients: Collection[str]) -> Answers[Models]:
    """Every client's own models."""
    if len(clients) > _MOST_COMPARED:
        raise OptionError(f"models: expected at most {_MOST_COMPARED} clients to compare")
    return conversation.each(TellModels(), clients)


def compare_models(conversation: Conversation, models: Answers[Models]) -> ModelShift:
    """Divergences of all models from each client's own; None for a client that did not answer."""
    names = tuple(sorted(models))
    if not 1 < len(names) <= MOST_CLIENTS:
        raise OptionError(
            f"models: expected those of 2 to {MOST_CLIENTS:,} clients to compare, came {len(names)}"
        )
    fields: dict[str, Any] = {
        field: np.stack([getattr(models[name], field) for name in names])
        for field in ("propensities", "outcomes", "variances", "supported")
    }
    answers = conversation.each(CompareModels(**fields), names)
    supported = fields["supported"]
    both = supported @ supported.T > 0  # both clients have a model of some same action
    always = np.ones_like(both)
    return ModelShift(
        names=names,
        propensity_kl=_assembled(names, answers, "propensity_kl", always),
        propensity_tv=_assembled(names, answers, "propensity_tv", always),
        outcome_kl=_assembled(names, answers, "outcome_kl", both),
    )


def _assembled(
    names: tuple[str, ...], answers: Mapping[str, ModelShifts], field: str, known: FloatArray
) -> Shift:
    """One divergence for every two clients, if `known` says that it can be computed."""
    estimates, errors = (np.full((len(names), len(names)), np.nan) for _ in range(2))
    for place, name in enumerate(names):
        if name in answers:
            there = known[place] > 0
            estimates[place, there] = getattr(answers[name], field)[there]
            errors[place, there] = np.sqrt(getattr(answers[name], f"{field}_variance")[there])
    np.fill_diagonal(estimates, 0.0)
    np.fill_diagonal(errors, 0.0)
    return Shift(names=names, estimates=_table(estimates), standard_errors=_table(errors))


def _table(numbers: FloatArray) -> PairTable:
    return tuple(
        tuple(None if np.isnan(number) else float(number) for number in row) for row in numbers
    )
