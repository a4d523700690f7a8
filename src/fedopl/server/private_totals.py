"""Sums over all clients, whether each one's answers are read and added up or their total alone is.

Learning needs no more than these: with noise of each client's own, and with masks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.labels import GLOBAL
from fedopl.messages.combining import combined, weighted_sum
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.message import AnswerType, Query
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.messages.secure.masked_sums import unflattened
from fedopl.messages.secure.session_keys import SessionKeys, TakeRoster, TellKeys
from fedopl.messages.sensitivity import beyond_rows
from fedopl.privacy.sum_grid import FINE
from fedopl.secure.masks import added_up
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.added_up import AddedUp, Counting, adds_under_masks, parties_of
from fedopl.study.mixture import Weights, capped, renormalised


@dataclass(frozen=True, eq=False, kw_only=True)
class Totals(ABC):
    """Who takes part, the first sums, and a way to further ones."""

    conversation: Conversation
    rows: dict[str, int]
    weights: Weights
    # Those of each client; or, under masks, the total, in the name of all.
    first: Mapping[str, NoisedSums]
    noise_of_first: float  # of each of these, in deviations of the release
    noise: float  # of their total, likewise

    @property
    def total(self) -> NoisedSums:
        """The first sums over all clients."""
        return combined(self.first, weights={})

    @abstractmethod
    def step(self, query: SumResiduals, per_row: Mapping[str, float]) -> FloatArray:
        """Σ_c r_c·(sums of c): a client's rows count in a step as it does in the mixture."""

    @abstractmethod
    def required(self, query: Query[Any], field: str) -> FloatArray:
        """The mixture of means over training rows of a field of answers."""

    @abstractmethod
    def wanted(self, query: Query[Any], field: str) -> FloatArray | None:
        """The same where a run can do without; None if less than a quorum answers."""


# --- each client's answers are read ---------------------------------------------------------------


class OfEach(Totals):
    """Every client adds all noise of the promise, so each one's answers may be read."""

    def step(self, query: SumResiduals, per_row: Mapping[str, float]) -> FloatArray:
        """Of those who answered, who count for all."""
        answers = self.conversation.require_quorum(self.conversation.each(query, self.rows))
        present = sum(self.weights[name] for name in answers)
        return np.asarray(
            sum(per_row[name] / present * own.residuals for name, own in answers.items())
        )

    def required(self, query: Query[Any], field: str) -> FloatArray:
        """By weights of those who answered, of whom there is a quorum."""
        answers = self.conversation.each(query, self.weights)
        return self._mean(self.conversation.require_quorum(answers), field)

    def wanted(self, query: Query[Any], field: str) -> FloatArray | None:
        """By weights of those who answered."""
        answers = self.conversation.each(query, self.weights)
        return self._mean(answers, field) if self.conversation.has_quorum(answers) else None

    def _mean(self, answers: Answers[Any], field: str) -> FloatArray:
        shares = renormalised(self.weights, answers.keys())
        own = {name: getattr(answer, field) / self.rows[name] for name, answer in answers.items()}
        return weighted_sum(shares, own)


def of_each(conversation: Conversation) -> OfEach:
    """Who takes part: whoever enrols, and gives sums that so many rows can have."""
    study = conversation.study
    enrolled, sums = conversation.together(conversation.transport.clients, Enrol(), SumPrivately())

    def fault_in(name: str, answer: NoisedSums) -> str | None:
        if name not in enrolled:
            return "did not enrol"
        return beyond_rows(answer, study, enrolled[name].n_rows)

    kept = conversation.require_quorum(conversation.drop(sums, fault_in))
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


# --- the total alone is ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class UnderMasks(Totals):
    """Answers of all clients add up, and nothing less than all of them can be read."""

    together: AddedUp

    def step(self, query: SumResiduals, per_row: Mapping[str, float]) -> FloatArray:
        """Of everybody, from the mean over rows."""
        counted = sum(per_row[name] * n_rows for name, n_rows in self.rows.items())
        return counted * self.required(query, "residuals")

    def required(self, query: Query[Any], field: str) -> FloatArray:
        """By the agreed weights, of everybody: less than all tell nothing."""
        total = self.sums(query, Counting.TRAINING)
        found: FloatArray = getattr(total, field)
        return found / self.together.of_training.total(self.rows)

    wanted = required

    def sums(self, query: Query[AnswerType], counting: Counting) -> AnswerType:
        """The total; a row that counts most counts as 1."""
        answers = self.conversation.together(self.rows, query)[0]
        return read_total(self.conversation, query, answers, self.together, counting)


def read_total(
    conversation: Conversation,
    query: Query[AnswerType],
    answers: Answers[Any],
    together: AddedUp,
    counting: Counting,
) -> AnswerType:
    """What masked answers add up to, if all are there and so many rows can have it."""
    study = conversation.study
    _require_all(conversation, answers, together.rows)
    step = FINE * together.weights_of(counting).scale
    numbers = added_up(answers[name].numbers for name in sorted(answers))
    total = unflattened(query, numbers, study, step)
    noise = study.privacy.noise_of_total if study.privacy else 0.0
    n_rows = sum(together.rows.values()) + sum(together.held_out.values())
    fault = beyond_rows(total, study, n_rows, noise)
    if fault:
        conversation.journal.forget(conversation.rounds[-1].trip)
        raise FederationError(
            f"{type(query).__name__}: the total over all clients cannot be true: {fault}. A "
            "client's answer is wrong, and under masks nobody can tell whose; let each look for "
            "errors (fedopl check), or agree on a study without secure aggregation"
        )
    return total


def _require_all(conversation: Conversation, answers: Answers[Any], names: Sized) -> None:
    try:
        conversation.require_quorum(answers, of=len(names), share=1.0)
    except FederationError as error:
        raise FederationError(
            f"{error}\nAnswers are under masks that only cancel if all are there: without them "
            "nothing can be read, of anybody. Resume the run when all clients are there again"
        ) from None


def under_masks(conversation: Conversation) -> UnderMasks:
    """Exchange keys, tell everybody who takes part, and add up the first sums."""
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
    query = SumPrivately()
    taken, answers = conversation.together(names, _roster(rows, keys), query)
    _require_all(conversation, taken, rows)
    total = read_total(conversation, query, answers, together, Counting.ALIKE)
    noise = study.privacy.noise_of_total if study.privacy else 0.0
    return UnderMasks(
        conversation=conversation,
        rows=rows,
        weights=together.weights,
        first={GLOBAL: total},
        noise_of_first=noise,
        noise=noise,
        together=together,
    )


def _roster(rows: Mapping[str, int], keys: Mapping[str, SessionKeys]) -> TakeRoster:
    told = [keys[name] for name in sorted(rows)]
    return TakeRoster(
        rows=np.array([rows[name] for name in sorted(rows)], np.uint64),
        held_out=np.array([own.held_out for own in told], np.uint64),
        keys=np.stack([own.keys for own in told]),
        signatures=np.stack([own.signature for own in told]),
    )


def first_totals(conversation: Conversation) -> Totals:
    """Enrol everybody, and have the first sums, as the study says."""
    start = under_masks if adds_under_masks(conversation.study) else of_each
    return start(conversation)
