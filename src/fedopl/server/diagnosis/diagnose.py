"""The last questions of a study with a diagnosis: how clients differ, and what joining is worth.

Each part is optional. If clients refuse a part, it is left out, and the diagnosis says why.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import TypeVar

from fedopl.base.errors import FedoplError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.messages.diagnosis.classifier_sums import MOST_ROUNDS, MOST_TARGETS
from fedopl.messages.diagnosis.score_moments import ScoreMoments, TellMoments
from fedopl.messages.evaluation.policy_fields import most_candidates
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.diagnosis import Diagnosis, MeasuredDiscrepancy, ModelShift, SecondMoments
from fedopl.results.sums.any_mixture import Statistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.diagnosis.compare_coalitions import MOST_EXHAUSTIVE, compare_coalitions
from fedopl.server.diagnosis.context_classifier import fit_classifiers
from fedopl.server.diagnosis.discrepancies import measure_discrepancies
from fedopl.server.diagnosis.model_differences import ask_for_models, compare_models
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.mixture_paths import skew_paths
from fedopl.server.mixtures.value_queries import ValueQueries, asking, picking
from fedopl.server.policy_comparison import Candidates
from fedopl.study.mixture import ALPHAS, Empirical, Weights, renormalised
from fedopl.study.study import Study

# With more clients than these, paths lead only to those that differ most, models are not compared,
# and discrepancies are not measured, respectively.
_MOST_PATHS, _MOST_COMPARED, _MOST_DISCREPANCIES = 10, 100, 30

_Found = TypeVar("_Found")


@dataclass(eq=False, kw_only=True)
class _Diagnosis:
    """What all parts of the diagnosis need, and why some parts are unknown."""

    conversation: Conversation
    statistics: Statistics
    rows: dict[str, int]
    weights: Weights
    values: ValueQueries
    unknown: dict[str, str] = field(default_factory=dict)

    def part(self, name: str, found: Callable[[], _Found], otherwise: _Found) -> _Found:
        """The result of `found`; if it fails, keep the reason and return `otherwise`."""
        try:
            return found()
        except FedoplError as error:
            self.unknown[name] = str(error)
            return otherwise

    def discrepancies(self, weights: Weights) -> dict[str, MeasuredDiscrepancy]:
        if len(weights) > _MOST_DISCREPANCIES:
            raise OptionError(f"discrepancies: expected at most {_MOST_DISCREPANCIES} clients")
        return measure_discrepancies(self.statistics, weights, self.values)

    def models(self) -> ModelShift:
        if len(self.rows) > _MOST_COMPARED:
            raise OptionError(f"models: expected at most {_MOST_COMPARED} clients to compare")
        return compare_models(self.conversation, ask_for_models(self.conversation, self.rows))


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
    has_all_values = has_values_of_all(setting.study)
    ask = (
        picking(candidates.names(), answers)
        if has_all_values
        else asking(conversation, clients, known=candidates.known)
    )
    on = _Diagnosis(
        conversation=conversation,
        statistics=statistics,
        rows={name: setting.rows[name] for name in clients},
        weights=renormalised(setting.weights, clients),
        values=ValueQueries(ask, most_candidates(setting.study), setting.study.reward_sign),
    )
    none: dict[str, MeasuredDiscrepancy] = {}
    base = Empirical().weights(on.rows)
    measured = on.part("discrepancies", lambda: on.discrepancies(on.weights), none)
    # If λ = n̄, both questions are the same. Ask once, as clients' budgets are small.
    same = all(abs(base[name] - on.weights[name]) < 1e-12 for name in base)
    from_rows = measured if same else on.part("from_rows", lambda: on.discrepancies(base), none)
    furthest, joining = _furthest(clients, from_rows), (statistics, on.rows, on.values)
    return Diagnosis(
        clients=clients,
        discrepancies=measured,
        from_rows=from_rows,
        paths=on.part("paths", lambda: skew_paths(*joining, furthest[:_MOST_PATHS]), {}),
        coalitions=on.part("coalitions", lambda: compare_coalitions(*joining), None),
        models=on.part("models", on.models, None),
        classifiers=on.part(
            "classifiers",
            lambda: fit_classifiers(conversation, furthest[:MOST_TARGETS], on.weights),
            {},
        ),
        moments=on.part("moments", lambda: ask_for_moments(conversation, clients), {}),
        unknown=on.unknown,
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
