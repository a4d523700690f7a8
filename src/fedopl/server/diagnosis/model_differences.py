"""Where clients differ: how they chose actions, what came of them, and whom they saw (Theorem 3).

Every client tells its own models, and compares all clients' with its own on its own contexts. That
gives the propensity and outcome parts of Theorem 3 for every two clients. Whom they saw is told by
`classifier`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.messages.diagnosis.client_models import Models, TellModels
from fedopl.messages.diagnosis.model_shifts import MOST_CLIENTS, CompareModels, ModelShifts
from fedopl.results.diagnosis import ModelShift, Shift, Table
from fedopl.server.exchange.conversation import Answers, Conversation


def ask_for_models(conversation: Conversation, clients: Iterable[str]) -> Answers[Models]:
    """Every client's own models, without those that cannot be."""
    return conversation.each(TellModels(), clients)


def compare(conversation: Conversation, models: Answers[Models]) -> ModelShift:
    """Have every client compare all models with its own; who does not answer is None."""
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
    have_both = supported @ supported.T > 0  # some action that both have a model of
    everything = np.ones_like(have_both)
    return ModelShift(
        names=names,
        propensity_kl=_assembled(names, answers, "propensity_kl", everything),
        propensity_tv=_assembled(names, answers, "propensity_tv", everything),
        outcome_kl=_assembled(names, answers, "outcome_kl", have_both),
    )


def _assembled(
    names: tuple[str, ...], answers: Mapping[str, ModelShifts], field: str, known: FloatArray
) -> Shift:
    estimates, errors = (np.full((len(names), len(names)), np.nan) for _ in range(2))
    for place, name in enumerate(names):
        if name in answers:
            told = (answers[name].compared > 0) & known[place]
            estimates[place, told] = getattr(answers[name], field)[told]
            errors[place, told] = np.sqrt(getattr(answers[name], f"{field}_variance")[told])
    np.fill_diagonal(estimates, 0.0)
    np.fill_diagonal(errors, 0.0)
    return Shift(names=names, estimates=_table(estimates), standard_errors=_table(errors))


def _table(numbers: FloatArray) -> Table:
    return tuple(
        tuple(None if np.isnan(number) else float(number) for number in row) for row in numbers
    )
