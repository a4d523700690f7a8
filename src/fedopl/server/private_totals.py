"""Noisy sums over all clients, in two ways: from each client's answers, or as a total under masks.

Without masks, each client adds all the noise, and the server adds up the answers. With masks, the
server can read only the total. Learning needs no more than these sums.
"""

import math
from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.labels import GLOBAL
from fedopl.messages.about_masks import (
    SessionKeys,
    ShareSecrets,
    TakeRoster,
    TellKeys,
    counting_of,
    unflattened,
)
from fedopl.messages.combining import combined, weighted_sum
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.message import AnswerType, Query
from fedopl.messages.private.noised_sums import (
    MeasureNumbers,
    NoisedMoments,
    NoisedSums,
    SumPrivately,
    SumResiduals,
    TakeRanges,
)
from fedopl.messages.sensitivity import beyond_rows
from fedopl.privacy.exact_noise import FINE
from fedopl.secure.masks import added_up
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.unmasking import Unmasking
from fedopl.study.mixture import Weights, capped, renormalised
from fedopl.study.private.added_up import (
    AddedUp,
    Counting,
    adds_under_masks,
    most_lacking,
    parties_of,
)
from fedopl.study.private.private_setting import found_ranges, with_ranges
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class _Totals:
    """The clients that take part, their first sums, and methods to ask for further sums."""

    conversation: Conversation
    rows: dict[str, int]
    weights: Weights
    # The first sums of each client. Under masks, only the total, under the name GLOBAL.
    first: Mapping[str, NoisedSums]
    noise_of_first: float  # the noise of each of these, in deviations of the release
    noise: float  # the noise of their total, in the same unit

    @property
    def total(self) -> NoisedSums:
        """The first sums over all clients."""
        return combined(self.first, weights={})


# --- each client's answers are read ---------------------------------------------------------------


class OfEach(_Totals):
    """Every client adds all the noise that was promised, so each client's answers may be read."""

    def step(self, query: SumResiduals, per_row: Mapping[str, float]) -> FloatArray:
        """Σ_c r_c·(sums of c), with the weight r_c of each row; who answered stands for all."""
        answers = self.conversation.require_quorum(self.conversation.each(query, self.rows))
        present = sum(self.weights[name] for name in answers)
        return np.asarray(
            sum(per_row[name] / present * own.residuals for name, own in answers.items())
        )

    def required(self, query: Query[Any], field: str) -> FloatArray:
        """A field: the mean over training rows, by weight; a quorum of clients must answer."""
        answers = self.conversation.each(query, self.weights)
        return self._mean(self.conversation.require_quorum(answers), field)

    def wanted(self, query: Query[Any], field: str) -> FloatArray | None:
        """The weighted mean over the clients that answered; None without a quorum."""
        answers = self.conversation.each(query, self.weights)
        return self._mean(answers, field) if self.conversation.has_quorum(answers) else None

    def _mean(self, answers: Answers[Any], field: str) -> FloatArray:
        shares = renormalised(self.weights, answers.keys())
        own = {name: getattr(answer, field) / self.rows[name] for name, answer in answers.items()}
        return weighted_sum(shares, own)


def of_each(conversation: Conversation) -> OfEach:
    """The totals of all clients that enrol and send sums that are possible for their rows."""
    _measure_if_wanted(conversation)
    study, clients = conversation.study, conversation.transport.clients
    first = _told_first(study)
    *_, enrolled, sums = conversation.together(clients, *first, Enrol(), SumPrivately())
    kept = _possible(conversation, sums, enrolled)
    rows = {name: own.n_rows for name, own in enrolled.items() if name in kept}
    weights, largest = study.mixture.weights(rows), study.mixture.largest_share
    return OfEach(
        conversation=conversation,
        rows=rows,
        weights=weights if largest is None else capped(weights, largest),
        first=kept,
        noise_of_first=1.0,
        noise=math.sqrt(len(rows)),
    )


def _possible(
    conversation: Conversation, answers: Answers[AnswerType], enrolled: Answers[Enrolment]
) -> Answers[AnswerType]:
    """The answers that the rows with which clients enrolled allow; those of a quorum."""

    def fault_in(name: str, answer: AnswerType) -> str | None:
        if name not in enrolled:
            return "did not enrol"
        return beyond_rows(answer, conversation.study, enrolled[name].n_rows)

    return conversation.require_quorum(conversation.drop(answers, fault_in))


def _told_first(study: Study) -> list[Query[Any]]:
    """The query that tells clients the measured ranges; empty if none were measured."""
    return [TakeRanges.of(study)] if TakeRanges.needed(study) else []


def _measure_if_wanted(conversation: Conversation) -> None:
    """Measure the ranges of numbers if the study asks for it, and continue with these ranges."""
    study = conversation.study
    if not MeasureNumbers.needed(study):
        return
    clients = conversation.transport.clients
    enrolled, told = conversation.together(clients, Enrol(), MeasureNumbers())
    kept = _possible(conversation, told, enrolled)
    n_rows = sum(enrolled[name].n_rows for name in kept)
    _go_on_with(conversation, combined(kept, weights={}), n_rows, math.sqrt(len(kept)))


def _go_on_with(
    conversation: Conversation, total: NoisedMoments, n_rows: int, noise: float
) -> None:
    study = conversation.study
    found = found_ranges(study, total.sums, total.squares, n_rows, noise)
    conversation.go_on_as(with_ranges(study, found))


# --- the total alone is ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class UnderMasks(_Totals):
    """Clients' answers are masked: only the sum over all that answered can be read."""

    together: AddedUp
    unmasking: Unmasking | None  # if clients may drop out

    def step(self, query: SumResiduals, per_row: Mapping[str, float]) -> FloatArray:
        """The sum for all clients with first sums, scaled up from those that answered."""
        counted = sum(per_row[name] * n_rows for name, n_rows in self.rows.items())
        return counted * self.required(query, "residuals")

    def required(self, query: Query[Any], field: str) -> FloatArray:
        """The mean over the clients that answered, by their agreed weights."""
        total, over, _ = self.sums_and_beside(query)
        found: FloatArray = getattr(total, field)
        return found / over.of_training.total(over.counted(over.rows))

    wanted = required

    def sums_and_beside(
        self, query: Query[AnswerType], *beside: Query[Any]
    ) -> tuple[AnswerType, AddedUp, tuple[Answers[Any], ...]]:
        """The total and the clients it is over; the row with the largest weight counts as 1.

        Also each client's answers to further queries without masks, in the same round trip.
        """
        # A client that was absent before may be back, and not know the measured ranges yet.
        first = _told_first(self.conversation.study) if self.unmasking else []
        found = self.conversation.together(self.together.rows, *first, query, *beside)
        answers, others = found[len(first)], found[len(first) + 1 :]
        total, over = read_total(self.conversation, query, answers, self.together, self.unmasking)
        return total, over, others


def read_total(
    conversation: Conversation,
    query: Query[AnswerType],
    answers: Answers[Any],
    together: AddedUp,
    unmasking: Unmasking | None,
) -> tuple[AnswerType, AddedUp]:
    """The total of masked answers; refused if too few answered or the total is impossible."""
    study, counting = conversation.study, counting_of(query)
    if unmasking:
        numbers, stayed = unmasking.total(query, answers)
        together = together.over(stayed)
    else:
        _require_all(conversation, answers, together.rows)
        numbers = added_up(answers[name].numbers for name in sorted(answers))
    _require_weight(together, counting)
    step = FINE * together.weights_of(counting).scale
    total = unflattened(query, numbers, study, step)
    n_rows = sum(together.rows.values()) + sum(together.held_out.values())
    fault = beyond_rows(total, study, n_rows, together.noise)
    if fault:
        conversation.journal.forget(conversation.rounds[-1].trip)
        raise FederationError(
            f"{type(query).__name__}: the total over all clients cannot be true: {fault}. A "
            "client's answer is wrong, and masks hide which one; let each client look for "
            "errors (fedopl check), or agree on a study without secure aggregation"
        )
    return total, together


def _require_weight(together: AddedUp, counting: Counting) -> None:
    """Refuse a sum in which no client that answered has any weight."""
    rows = together.held_out if counting is Counting.HELD_OUT else together.rows
    if not together.weights_of(counting).total(together.counted(rows)):
        raise FederationError(
            f"{', '.join(sorted(together.stayed or rows))} answered, and the mixture gives "
            "them no weight: resume the run when clients with weight answer again"
        )


def _require_all(conversation: Conversation, answers: Answers[Any], names: Sized) -> None:
    try:
        conversation.require_quorum(answers, of=len(names), share=1.0)
    except FederationError as error:
        raise FederationError(
            f"{error}\nAnswers are under masks that only cancel if all clients answer. "
            "Otherwise nothing can be read from any client. Resume the run when all clients "
            "answer again"
        ) from None


def under_masks(conversation: Conversation) -> UnderMasks:
    """Exchange keys, tell all clients who takes part, and add up the first sums.

    If clients may drop out, they first send shares of the secrets behind their masks.
    """
    study, names = conversation.study, parties_of(conversation.study)
    strangers = sorted(set(conversation.transport.clients) - set(names))
    missing = sorted(set(names) - set(conversation.transport.clients))
    if strangers or missing:
        raise FederationError(
            f"privacy.keys: the study is of {', '.join(names)}; "
            + "; ".join([f"{name} is not there" for name in missing])
            + "; ".join([f"{name} has no key in it" for name in strangers])
        )
    enrolled, keys = conversation.together(names, Enrol(), TellKeys())
    rows = {name: own.n_rows for name, own in enrolled.items()}
    _require_all(conversation, enrolled, names)
    _require_all(conversation, keys, rows)
    held_out = {name: own.held_out for name, own in keys.items()}
    together = AddedUp(study=study, rows=rows, held_out=held_out)
    unmasking, roster = None, _roster(rows, keys)
    measures = MeasureNumbers.needed(study)
    query: Query[Any] = MeasureNumbers() if measures else SumPrivately()
    if most_lacking(study):
        taken, shares = conversation.together(names, roster, ShareSecrets())
        _require_all(conversation, taken, rows)
        _require_all(conversation, shares, rows)
        unmasking = Unmasking(conversation=conversation, roster=roster, shares=shares)
        (answers,) = conversation.together(names, query)
    else:
        taken, answers = conversation.together(names, roster, query)
        _require_all(conversation, taken, rows)
    total, over = read_total(conversation, query, answers, together, unmasking)
    if measures:
        _go_on_with(conversation, total, sum(over.counted(rows).values()), over.noise)
        study = conversation.study
        together = replace(together, study=study)
        *_, answers = conversation.together(names, *_told_first(study), SumPrivately())
        total, over = read_total(conversation, SumPrivately(), answers, together, unmasking)
    return UnderMasks(
        conversation=conversation,
        rows=over.counted(rows),
        weights=renormalised(together.weights, over.stayed) if over.stayed else together.weights,
        first={GLOBAL: total},
        noise_of_first=over.noise,
        noise=over.noise,
        together=together,
        unmasking=unmasking,
    )


def _roster(rows: Mapping[str, int], keys: Mapping[str, SessionKeys]) -> TakeRoster:
    told = [keys[name] for name in sorted(rows)]
    return TakeRoster(
        rows=np.array([rows[name] for name in sorted(rows)], np.uint64),
        held_out=np.array([own.held_out for own in told], np.uint64),
        keys=np.stack([own.keys for own in told]),
        signatures=np.stack([own.signature for own in told]),
    )


Totals = OfEach | UnderMasks


def first_totals(conversation: Conversation) -> Totals:
    """Enrol all clients and collect the first sums, with or without masks as the study says."""
    start = under_masks if adds_under_masks(conversation.study) else of_each
    return start(conversation)
