"""Second moments of clients' scores, which regret bounds take for their variance (Theorem 1)."""

import math
from collections.abc import Iterable

from fedopl.base.estimates import Estimate
from fedopl.messages.diagnosis.score_moments import ScoreMoments, TellMoments
from fedopl.results.diagnosis import SecondMoments
from fedopl.server.exchange.conversation import Conversation


def ask_for_moments(conversation: Conversation, clients: Iterable[str]) -> dict[str, SecondMoments]:
    """Every client's second moments."""
    answers = conversation.each(TellMoments(), clients)
    return {name: _moments(answer) for name, answer in answers.items()}


def _moments(answer: ScoreMoments) -> SecondMoments:
    envelope, *by_action = (_estimate(answer, place) for place in range(len(answer.released)))
    return SecondMoments(envelope=envelope, by_action=tuple(by_action))


def _estimate(answer: ScoreMoments, place: int) -> Estimate | None:
    if not answer.released[place]:
        return None
    free = int(answer.degrees_of_freedom[place])
    return Estimate(
        value=float(answer.means[place]),
        standard_error=math.sqrt(answer.variances[place]) if free else math.inf,
        n_rows=int(answer.rows[place]),
        degrees_of_freedom=free,
    )
