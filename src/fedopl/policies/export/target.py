"""What a policy of any kind can be written with in another language, and what it reads there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import NO_LABEL
from fedopl.base.schema import Encoding

Term = TypeVar("Term")  # a number, a condition or an action, in the other language
# Beyond it the square of a number, or the sum of some, would not be one.
LARGEST_SQUARED = 1e150
# Writes the same policy in whatever language is handed over, and returns the action to take.
WrittenRule = Callable[["Target[Any]"], Any]
# Below every score, that of an action nobody has a score for included.
LOWEST = -1e307


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The columns that a policy reads, how they are called and spelled, and what it decides."""

    encoding: Encoding
    actions: tuple[str, ...]
    column: str = "action"  # what the action is called in what comes out
    table: str = "rows"  # what is decided on, where the language has names for tables
    called: Mapping[str, str] = field(default_factory=dict)  # by the policy's name of a column
    # By the policy's name of a column, the policy's label for each label of the table.
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rules: tuple[str, ...] = ()  # who may get what, in words

    @property
    def marked(self) -> bool:
        """Whether rows with gaps are decided, too."""
        return self.encoding.missing == "indicator"

    def name(self, column: str) -> str:
        """What a column is called in the table."""
        return self.called.get(column, column)

    @property
    def texts(self) -> Iterator[str]:
        """Everything that has to be spelled in the other language."""
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
        """Where every label that is not listed stands for this level: all texts that do not."""
        if self.encoding.others.get(column) != level:
            return None
        spelled = self.spellings(column)
        others = [text for name, own in spelled.items() if name != level for text in own]
        return [*others, *self.gaps(column)]

    def gaps(self, column: str) -> list[str]:
        """Every text that stands for no label, in the order of the alphabet."""
        known = {text for spelled in self.spellings(column).values() for text in spelled}
        return sorted(NO_LABEL - known - set(self.labels.get(column, {})))

    @cached_property
    def features(self) -> list[tuple[str, str | None]]:  # (n_features,)
        """Of each encoded feature its column, and the level it marks; None for a number or a gap.

        A column of numbers comes first, and then whether it is missing, where gaps are marked.
        """
        found: list[tuple[str, str | None]] = []
        for column in self.encoding.numeric:
            found += [(column, None)] * (2 if self.marked else 1)
        for column, levels in self.encoding.categorical.items():
            found += [(column, level) for level in levels[1:]]
            found += [(column, None)] if self.marked else []
        return found


class Target(ABC, Generic[Term]):
    """A language that policies are written in; every kind writes itself with these words."""

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
        """Whether a row is of a level, counted among those that these features mark.

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
        """The number in a column, zero where it is missing."""

    @abstractmethod
    def is_missing(self, column: str) -> Term:
        """Whether a column has no value."""

    @abstractmethod
    def is_level(self, column: str, level: str) -> Term:
        """Whether a column of labels has this one."""

    @abstractmethod
    def at_most(self, number: Term, cut: float) -> Term:
        """Whether a number is not above a threshold."""

    @abstractmethod
    def at_least(self, number: Term, cut: float) -> Term:
        """Whether a number is not below a threshold."""

    @abstractmethod
    def negated(self, condition: Term) -> Term:
        """Whether a condition is not so."""

    @abstractmethod
    def both(self, first: Term, second: Term) -> Term:
        """Whether two conditions are so."""

    @abstractmethod
    def either(self, first: Term, second: Term) -> Term:
        """Whether one of two conditions is so, or both."""

    @abstractmethod
    def unless(self, condition: Term, number: Term) -> Term:
        """A number; where the condition is so, one below every score."""

    @abstractmethod
    def flag(self, condition: Term) -> Term:
        """The number 1 where a condition is so, and 0 elsewhere."""

    @abstractmethod
    def between(self, number: Term, low: float, high: float) -> Term:
        """A number, or the end that is nearer to it where it lies beyond."""

    @abstractmethod
    def in_units(self, number: Term, middle: float, unit: float) -> Term:
        """How many units a number lies above a middle."""

    @abstractmethod
    def above(self, number: Term, knot: float) -> Term:
        """By how much a number is above a knot; 0 below it."""

    @abstractmethod
    def product(self, first: Term, second: Term) -> Term:
        """One number times another."""

    @abstractmethod
    def wave(self, parts: Sequence[tuple[float, Term]], phase: float) -> Term:
        """The cosine of numbers, each times its frequency, and a phase."""

    @abstractmethod
    def kept(self, what: str, names: Sequence[str], numbers: Sequence[Term]) -> list[Term]:
        """These numbers, worked out once, however often they are used; `what` is one word."""

    @abstractmethod
    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, Term]], parameters: FloatArray
    ) -> list[Term]:
        """Sums of columns, each with its name, times each row of parameters; the last is added.

        They are worked out once, however often they are used.
        """

    def rectified_sums(
        self,
        layer: int,
        columns: Sequence[tuple[str, Term]],  # noqa: ARG002
        parameters: FloatArray,
    ) -> list[Term]:
        """The same where it is above 0, and 0 elsewhere: the units of a layer of a network."""
        raise OptionError(
            f"a network's layer {layer} has {parameters.size:,} weights, too many for this "
            "language; a neural policy is exported to python (.py) or onnx (.onnx)"
        )

    @abstractmethod
    def less_length(self, number: Term, parts: Sequence[Term]) -> Term:
        """A number less the root of the sum of the squares of others, within ±LARGEST_SQUARED."""

    @abstractmethod
    def counts(self, names: Sequence[str], conditions: Sequence[Sequence[Term]]) -> list[Term]:
        """For each name, how many of its conditions are so."""

    @abstractmethod
    def action(self, code: int) -> Term:
        """An action, by its code."""

    @abstractmethod
    def choice(self, condition: Term, yes: Term, no: Term) -> Term:
        """One action where a condition is so, the other elsewhere."""

    @abstractmethod
    def largest(self, scores: Mapping[int, Term]) -> Term:
        """The action with the largest number, by code; the first of them if there are several."""


def one_line(text: str) -> str:
    """The text as it can stand in a comment, which ends with its line."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _read_as(inputs: Inputs, column: str) -> str:
    """What is expected in a column, in words."""
    encoding = inputs.encoding
    # The policy itself makes a feature of a date; other languages do not agree on how.
    rule = f"not the date but its '{encoding.dates[column]}', " if column in encoding.dates else ""
    if column in encoding.numeric:
        return f"{rule}a number"
    texts = [text for spelled in inputs.spellings(column).values() for text in spelled]
    other = encoding.others.get(column)
    pooled = f"; every other label counts as {other}" if other else ""
    return f"{rule}one of {', '.join(texts)}{pooled}"


def header_lines(inputs: Inputs, comparing: str) -> list[str]:
    """What every exported file says of itself; how the language compares is its own affair."""
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
