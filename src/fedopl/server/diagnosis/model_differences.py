"""How clients' propensity and outcome models differ, for every two clients (Theorem 3).

Every client releases its own models. Then it compares all clients' models with its own, on its own
contexts. `context_classifier` finds how the contexts differ.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.messages.diagnosis.client_models import Models, TellModels
from fedopl.messages.diagnosis.model_shifts import MOST_CLIENTS, CompareModels, ModelShifts
from fedopl.results.diagnosis import ModelShift, PairTable, Shift
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation


def ask_for_models(conversation: Conversation, clients: Iterable[str]) -> Answers[Models]:
    """Every client's own models."""
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
