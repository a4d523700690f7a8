"""The operations that a policy uses to write itself in another language, and its inputs there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import NO_LABEL
from fedopl.base.schema import Encoding

Term = TypeVar("Term")  # a number, a condition or an action, in the other language
# Writes the same policy in any language that is passed in, and returns the action to take.
WrittenRule = Callable[["Target[Any]"], Any]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The columns that a policy reads, their names and spellings, and the actions it decides on."""

    encoding: Encoding
    actions: tuple[str, ...]
    column: str = "action"  # what the action is called in what comes out
    table: str = "rows"  # what is decided on, where the language has names for tables
    called: Mapping[str, str] = field(default_factory=dict)  # by the policy's name of a column
    # By column (the policy's name): from each label of the table to the policy's label.
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: tuple[str, ...] = ()  # who may get what, in words

    @property
    def marked(self) -> bool:
        """Whether rows with gaps are decided as well."""
        return self.encoding.missing == "indicator"

    def name(self, column: str) -> str:
        """The name of a column in the table."""
        return self.called.get(column, column)

    @property
    def texts(self) -> Iterator[str]:
        """All texts that must be spelled in the other language."""
        yield from (*self.actions, self.column, self.table)
        yield from map(self.name, self.encoding.feature_columns)
        for column in self.encoding.categorical:
            for level, own in self.spellings(column).items():
                yield from (level, *own)

    def spellings(self, column: str) -> dict[str, list[str]]:  # by level
        """Every text that stands for each level of a column."""
        own = self.labels.get(column, {})
        return {
            level: [*([] if level in own else [level]), *(t for t in own if own[t] == level)]
            for level in self.encoding.categorical[column]
        }

    def not_other(self, column: str, level: str) -> list[str] | None:
        """If all unlisted labels mean this level: all texts that mean another; otherwise None."""
        if self.encoding.others.get(column) != level:
            return None
        spelled = self.spellings(column)
        others = [text for name, own in spelled.items() if name != level for text in own]
        return [*others, *self.gaps(column)]

    def gaps(self, column: str) -> list[str]:
        """All texts that mean "no label", sorted."""
        known = {text for spelled in self.spellings(column).values() for text in spelled}
        return sorted(NO_LABEL - known - set(self.labels.get(column, {})))

    @cached_property
    def features(self) -> list[tuple[str, str | None]]:  # (n_features,)
        """For each encoded feature, its column and the level it marks; None for a number or a gap.

        The number of a column comes first, then its indicator of missing values, if gaps are
        marked.
        """
        found: list[tuple[str, str | None]] = []
        for column in self.encoding.numeric:
            found += [(column, None)] * (2 if self.marked else 1)
        for column, levels in self.encoding.categorical.items():
            found += [(column, level) for level in levels[1:]]
            found += [(column, None)] if self.marked else []
        return found


class Target(ABC, Generic[Term]):
    """A language to write policies in; every kind of policy writes itself with these operations."""

    # Below every score, even that of an action without any score.
    lowest: ClassVar[float] = -1e307
    # The square of a larger number, or a sum of such squares, would overflow.
    largest_squared: ClassVar[float] = 1e150

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def features(self) -> list[Term]:  # (n_features,)
        """Every encoded feature as a number, in the policy's order."""
        numeric, marked = self.inputs.encoding.numeric, self.inputs.marked
        terms = []
        for column in numeric:
            terms += [self.number(column)]
            terms += [self.flag(self.is_missing(column))] if marked else []
        for column, levels in self.inputs.encoding.categorical.items():
            terms += [self.flag(self.is_level(column, level)) for level in levels[1:]]
            terms += [self.flag(self.is_missing(column))] if marked else []
        return terms

    def at_level(self, features: Sequence[int], position: int) -> Term:
        """Whether a row has a level, counted among the levels that these features mark.

        The first level is the one that has no feature.
        """
        column, level = self.inputs.features[features[max(position - 1, 0)]]
        if column in self.inputs.encoding.numeric:  # whether the number is missing: no, or yes
            missing = self.is_missing(column)
            return missing if position else self.negated(missing)
        if position == 0:
            return self.is_level(column, self.inputs.encoding.categorical[column][0])
        return self.is_missing(column) if level is None else self.is_level(column, level)

    @abstractmethod
    def number(self, column: str) -> Term:
        """The number in a column, zero if it is missing."""

    @abstractmethod
    def is_missing(self, column: str) -> Term:
        """Whether a column has no value."""

    @abstractmethod
    def is_level(self, column: str, level: str) -> Term:
        """Whether a column of labels has this label."""

    @abstractmethod
    def at_most(self, number: Term, cut: float) -> Term:
        """Whether a number is not above a threshold."""

    @abstractmethod
    def at_least(self, number: Term, cut: float) -> Term:
        """Whether a number is not below a threshold."""

    @abstractmethod
    def negated(self, condition: Term) -> Term:
        """Whether a condition is false."""

    @abstractmethod
    def both(self, first: Term, second: Term) -> Term:
        """Whether both conditions hold."""

    @abstractmethod
    def either(self, first: Term, second: Term) -> Term:
        """Whether at least one of two conditions holds."""

    @abstractmethod
    def unless(self, condition: Term, number: Term) -> Term:
        """The number; where the condition holds, a number below every score."""

    @abstractmethod
    def flag(self, condition: Term) -> Term:
        """1 where a condition holds, and 0 elsewhere."""

    @abstractmethod
    def between(self, number: Term, low: float, high: float) -> Term:
        """The number, clamped to lie between `low` and `high`."""

    @abstractmethod
    def in_units(self, number: Term, middle: float, unit: float) -> Term:
        """How many units a number lies above `middle`."""

    @abstractmethod
    def above(self, number: Term, knot: float) -> Term:
        """By how much a number is above a knot; 0 below it."""

    @abstractmethod
    def product(self, first: Term, second: Term) -> Term:
        """One number times another."""

    @abstractmethod
    def wave(self, parts: Sequence[tuple[float, Term]], phase: float) -> Term:
        """The cosine of a phase plus numbers, each times its frequency."""

    def kept(
        self,
        what: str,  # noqa: ARG002
        names: Sequence[str],  # noqa: ARG002
        numbers: Sequence[Term],
    ) -> list[Term]:
        """These numbers, computed once, however often they are used; `what` is one word."""
        return list(numbers)  # as they are, where every term is computed once

    @abstractmethod
    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, Term]], parameters: FloatArray
    ) -> list[Term]:
        """For each row of parameters, the sum of columns times parameters, plus the last parameter.

        The sums are computed once, however often they are used.
        """

    def rectified_sums(
        self,
        layer: int,
        columns: Sequence[tuple[str, Term]],  # noqa: ARG002
        parameters: FloatArray,
    ) -> list[Term]:
        """Weighted sums where they are above 0, and 0 elsewhere: the units of a network's layer."""
        raise OptionError(
            f"a network's layer {layer} has {parameters.size:,} weights, too many for this "
            "language; a neural policy is exported to python (.py) or onnx (.onnx)"
        )

    @abstractmethod
    def less_length(self, number: Term, parts: Sequence[Term]) -> Term:
        """A number minus the root of the sum of the others' squares, within ±`largest_squared`."""

    @abstractmethod
    def counts(self, names: Sequence[str], conditions: Sequence[Sequence[Term]]) -> list[Term]:
        """For each name, how many of its conditions hold."""

    @abstractmethod
    def action(self, code: int) -> Term:
        """An action, by its code."""

    @abstractmethod
    def choice(self, condition: Term, yes: Term, no: Term) -> Term:
        """One action where a condition holds, the other elsewhere."""

    @abstractmethod
    def largest(self, scores: Mapping[int, Term]) -> Term:
        """The action with the largest number, by code; among equal ones, the first."""


def form(text: str, spelled: Callable[[float], str] = repr) -> Callable[..., str]:
    """An operation whose term is this text, filled with its terms and with numbers as spelled."""

    def filled(_target: Target[str], *parts: str | float) -> str:
        return text.format(*(one if isinstance(one, str) else spelled(one) for one in parts))

    return filled


def one_line(text: str) -> str:
    """The text on one line, so that it fits in a comment."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _read_as(inputs: Inputs, column: str) -> str:
    """What is expected in a column, in words."""
    encoding = inputs.encoding
    # The policy itself computes a feature from a date; other languages disagree on how.
    rule = f"not the date but its '{encoding.dates[column]}', " if column in encoding.dates else ""
    if column in encoding.numeric:
        return f"{rule}a number"
    texts = [text for spelled in inputs.spellings(column).values() for text in spelled]
    other = encoding.others.get(column)
    pooled = f"; every other label counts as {other}" if other else ""
    return f"{rule}one of {', '.join(texts)}{pooled}"


def header_lines(inputs: Inputs, comparing: str) -> list[str]:
    """The header of every exported file; `comparing` says how the language compares."""
    encoding = inputs.encoding
    columns = encoding.feature_columns
    undecided = "text in place of a number, an infinite number and an unknown label"
    lines = [
        f"A policy learned by fedopl: which of {len(inputs.actions)} actions to take in each row.",
        "Columns that it reads:",
        *(f"  {inputs.name(column)}: {_read_as(inputs, column)}" for column in columns),
        *(f"Whatever scores or questions say: {rule}." for rule in inputs.rules),
        f"Rows with {undecided} get no action; a missing value is one more value to the policy."
        if inputs.marked
        else f"Rows with a missing value, {undecided} get no action.",
        "A number that is exactly on a threshold is at most that threshold; where several actions "
        f"have the same score, the first of this list is taken: {', '.join(inputs.actions)}.",
        "Scores are sums of floating-point numbers: two that differ by less than their rounding, "
        "about 1e-15 of their size, may be ordered differently elsewhere.",
        comparing,
    ]
    return [one_line(line) for line in lines]
