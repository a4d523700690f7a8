"""`export_rule`: writes a policy as a file for another program, after a trial on made-up rows."""

import operator
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.files import write_atomically
from fedopl.base.labels import quoted
from fedopl.policies.export.excel_workbook import excel_workbook
from fedopl.policies.export.onnx_model import onnx_model
from fedopl.policies.export.python_module import python_module
from fedopl.policies.export.sql_query import sql_query
from fedopl.policies.export.target import Inputs, Target, WrittenRule

N_MADE_UP = 2000
# If decisions differ in more than this share of made-up rows, rounding is not the reason.
MOST_DIFFERENT = 0.01
Decide = Callable[[FloatArray], IntArray]


class Language(NamedTuple):
    """How a policy is written in one language, and the file endings of that language."""

    ending: str
    write: Callable[[WrittenRule, Inputs], bytes]


LANGUAGES = {
    "sql": Language(".sql", sql_query),
    "python": Language(".py", python_module),
    "excel": Language(".xlsx", excel_workbook),
    "onnx": Language(".onnx", onnx_model),
}


def export_rule(
    rule: WrittenRule, inputs: Inputs, decide: Decide, path: Path, to: str | None
) -> Path:
    """Write the rule in a language, whole or not at all, if it decides as the policy does."""
    language = _language(path, to)
    _check_names(inputs)
    _check_decisions(rule, inputs, decide)
    if path.is_dir():
        raise OptionError(f"{path}: is a folder; name a file to write")
    write_atomically(path, language.write(rule, inputs))
    return path


def _language(path: Path, to: str | None) -> Language:
    if to is None:
        endings = {language.ending: name for name, language in LANGUAGES.items()}
        to = endings.get(path.suffix.lower())
        if to is None:
            raise OptionError(
                f"{path}: expected a name that ends in {', '.join(endings)}, came '{path.name}'; "
                f"or say to=, one of {quoted(list(LANGUAGES))}"
            )
    if to not in LANGUAGES:
        raise OptionError(f"to: expected one of {quoted(list(LANGUAGES))}, came {to!r}")
    return LANGUAGES[to]


def _check_names(inputs: Inputs) -> None:
    names = [inputs.name(column) for column in inputs.encoding.feature_columns]
    if inputs.column in names:
        raise OptionError(
            f"the policy reads a column '{inputs.column}'; choose another name for the action, "
            "with column= (--column)"
        )
    # Two of the policy's columns with one name would both be read from the same column.
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(f"columns: named more than once: {quoted(twice)}")
    wrong = [text for text in inputs.texts if any(map(_is_control, text))]
    if wrong:
        raise PolicyError(
            f"{wrong[0]!r} has a line break or another control character, which other programs may "
            "read differently; rename that column, label or action"
        )


def _is_control(sign: str) -> bool:
    """Whether it ends a line, is a control character, or is not a character at all."""
    return unicodedata.category(sign) in ("Cc", "Cs", "Cn", "Zl", "Zp")


def _check_decisions(rule: WrittenRule, inputs: Inputs, decide: Decide) -> None:
    """Refuse a kind of policy whose `written_in` disagrees with its `decide` on made-up rows."""
    first = _OnArrays(inputs, _made_up_contexts(inputs, ()))
    rule(first)  # which tells where the cuts are
    contexts = _made_up_contexts(inputs, first.cuts)
    differ = float(np.mean(rule(_OnArrays(inputs, contexts)) != decide(contexts)))
    if differ > MOST_DIFFERENT:
        raise PolicyError(
            f"what would be exported decides {differ:.0%} of made-up rows differently from the "
            "policy; its kind has to say with written_in what its decide does"
        )


def _made_up_contexts(inputs: Inputs, cuts: Sequence[float]) -> FloatArray:  # (n_rows, n_features)
    """Rows with every level, with gaps if these are marked, and numbers on and near the cuts."""
    rng = np.random.default_rng(0)
    encoding, columns = inputs.encoding, []
    for _ in encoding.numeric:
        around = rng.choice([0.0, *cuts], N_MADE_UP) + rng.choice([0.0, 1.0, -1.0], N_MADE_UP)
        values = np.where(rng.random(N_MADE_UP) < 0.5, around, rng.normal(size=N_MADE_UP))
        missing = rng.random(N_MADE_UP) < (0.2 if inputs.marked else 0)
        columns += [np.where(missing, 0.0, values), missing] if inputs.marked else [values]
    for levels in encoding.categorical.values():
        n_levels = len(levels) + inputs.marked
        level = rng.integers(n_levels, size=N_MADE_UP)
        columns += [level == place for place in range(1, n_levels)]
    return np.column_stack(columns).astype(np.float64)


class _OnArrays(Target[Any]):
    """Terms are arrays, one number for each row."""

    def __init__(self, inputs: Inputs, contexts: FloatArray) -> None:
        super().__init__(inputs)
        self._contexts = contexts
        self.cuts: list[float] = []  # that were asked about

    negated: Callable[..., Any] = staticmethod(operator.invert)
    both: Callable[..., Any] = staticmethod(operator.and_)
    either: Callable[..., Any] = staticmethod(operator.or_)
    product: Callable[..., Any] = staticmethod(operator.mul)
    choice: Callable[..., Any] = staticmethod(np.where)

    def number(self, column: str) -> Any:
        return self._contexts[:, self.inputs.features.index((column, None))]

    def is_missing(self, column: str) -> Any:
        last = len(self.inputs.features) - 1 - self.inputs.features[::-1].index((column, None))
        return self._contexts[:, last] > 0.5

    def is_level(self, column: str, level: str) -> Any:
        if (column, level) in self.inputs.features:
            return self._contexts[:, self.inputs.features.index((column, level))] > 0.5
        own = [place for place, (name, _) in enumerate(self.inputs.features) if name == column]
        return ~(self._contexts[:, own] > 0.5).any(axis=1)

    def at_most(self, number: Any, cut: float) -> Any:
        self.cuts.append(cut)
        return number <= cut

    def at_least(self, number: Any, cut: float) -> Any:
        self.cuts.append(cut)
        return number >= cut

    def unless(self, condition: Any, number: Any) -> Any:
        return np.where(condition, self.lowest, number)

    def flag(self, condition: Any) -> Any:
        return condition.astype(np.float64)

    def between(self, number: Any, low: float, high: float) -> Any:
        self.cuts += [low, high]
        return np.clip(number, low, high)

    def in_units(self, number: Any, middle: float, unit: float) -> Any:
        self.cuts += [middle - unit, middle, middle + unit]
        return (number - middle) / unit

    def above(self, number: Any, knot: float) -> Any:
        return np.maximum(number - knot, 0.0)

    def wave(self, parts: Sequence[tuple[float, Any]], phase: float) -> Any:
        return np.cos(sum(frequency * number for frequency, number in parts) + phase)

    def weighted_sums(
        self, _names: Sequence[str], columns: Sequence[tuple[str, Any]], parameters: FloatArray
    ) -> list[Any]:
        features = np.column_stack([column for _, column in columns])
        return list((features @ parameters[:, :-1].T + parameters[:, -1]).T)

    def rectified_sums(
        self, _layer: int, columns: Sequence[tuple[str, Any]], parameters: FloatArray
    ) -> list[Any]:
        return list(np.maximum(self.weighted_sums((), columns, parameters), 0.0))

    def less_length(self, number: Any, parts: Sequence[Any]) -> Any:
        bounded = np.clip(parts, -self.largest_squared, self.largest_squared)
        return number - np.sqrt(np.sum(np.square(bounded), axis=0))

    def counts(self, _names: Sequence[str], conditions: Sequence[Sequence[Any]]) -> list[Any]:
        return [np.sum(own, axis=0) for own in conditions]

    def action(self, code: int) -> Any:
        return np.full(len(self._contexts), code)

    def largest(self, scores: Mapping[int, Any]) -> Any:
        codes = sorted(scores)
        return np.array(codes)[np.argmax([scores[code] for code in codes], axis=0)]
