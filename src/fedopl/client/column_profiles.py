"""What each column of some tables seems to be, and its role, for drafting a study from them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import NO_LABEL, quoted
from fedopl.client.table.columns import distinct_labels, is_text, moments_among, numbers_in_text
from fedopl.client.table.encoder import MOST_CODES, NAMED_ID
from fedopl.client.table.formats import Columns

# A column with more labels than this is not an action.
MOST_ACTIONS = 50
# Words in column names that suggest what the column holds.
ACTION_WORDS = (
    *("action", "treatment", "treat", "trt", "arm", "assignment", "assigned", "intervention"),
    *("condition", "plan", "campaign", "segment", "therapy", "dose"),
)
OUTCOME_WORDS = (
    *("outcome", "reward", "y", "response", "result", "gain", "conversion", "converted", "visit"),
    *("visits", "spend", "survival", "score", "cost", "costs", "mortality", "died", "readmission"),
    *("click", "clicks", "clicked", "purchase", "revenue", "sales", "profit", "success"),
)
LOWER_WORDS = (
    *("cost", "costs", "spending", "charges", "mortality", "death", "died", "relapse", "loss"),
    *("readmission", "readmitted", "complication", "complications", "pain", "hospital", "wait"),
)
PROPENSITY_WORDS = (
    *("propensity", "propensity_score", "pscore", "p", "prob", "probability", "action_prob"),
)
WEIGHT_WORDS = ("w", "weights", "sampling_weight", "sample_weight")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One column in all tables together."""

    name: str
    n_rows: int
    n_missing: int
    labels: Counter[str]  # how many rows have each label
    numbers: FloatArray | None  # the values that are not missing, if all are numbers
    years: tuple[int, int] | None  # first and last, if all values are dates
    repeats: bool  # whether rows of one table share a value

    @property
    def is_id(self) -> bool:
        """Whether it identifies people or things, by its name or by values that hardly repeat."""
        many = len(self.labels) > MOST_CODES
        if self.numbers is not None:
            return many and bool(NAMED_ID.search(self.name)) and not np.any(self.numbers % 1)
        unlike = len(self.labels) > 0.9 * (self.n_rows - self.n_missing)
        return many and (unlike or bool(NAMED_ID.search(self.name))) and self.years is None

    def is_called(self, words: Sequence[str]) -> bool:
        """Whether its whole name is one of these words."""
        return self.name.strip().lower() in words

    def mentions(self, words: Sequence[str]) -> bool:
        """Whether one of these words is a word of its name."""
        return not set(re.split(r"[_\W]+", self.name.lower())).isdisjoint(words)


def profiles(tables: Sequence[Columns], decimals: Sequence[str]) -> dict[str, Profile]:
    """The columns that all tables have, in the order of the first."""
    first, *others = tables
    shared = [name for name in first if all(name in table for table in others)]
    return {name: _profile(name, [table[name] for table in tables], decimals) for name in shared}


def _profile(name: str, parts: Sequence[Any], decimals: Sequence[str]) -> Profile:
    labels: Counter[str] = Counter()
    repeats = False
    for part in parts:
        texts, _, counts = distinct_labels(part)
        here = {t: n for t, n in zip(texts, counts, strict=True) if t not in NO_LABEL}
        labels.update(here)
        repeats |= sum(here.values()) > len(here)
    n_rows = sum(map(len, parts))
    found = [_numbers(part, decimal) for part, decimal in zip(parts, decimals, strict=True)]
    # A value that begins with a zero is a label: 01 is not 1.
    is_padded = any(re.match(r"0\d", label) for label in labels)
    are_numbers = [numbers for numbers in found if numbers is not None and not is_padded]
    return Profile(
        name=name,
        n_rows=n_rows,
        n_missing=n_rows - sum(labels.values()),
        labels=labels,
        numbers=np.concatenate(are_numbers) if len(are_numbers) == len(parts) else None,
        years=_years(parts) if len(are_numbers) < len(parts) else None,
        repeats=repeats,
    )


def _numbers(part: Any, decimal: str) -> FloatArray | None:
    kind = part.type
    if is_text(kind):
        values, others = numbers_in_text(part.cast(pa.string()), decimal)
        # Words for yes and no are labels, though they can be read as numbers.
        is_flag = {text.lower() for text in part.unique().to_pylist() if text} & {"true", "false"}
        return None if others.any() or is_flag else values[~np.isnan(values)]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        typed: FloatArray = part.cast(pa.float64(), safe=False).to_numpy()
        return typed[~np.isnan(typed)]
    return np.empty(0) if pa.types.is_null(kind) else None


def _years(parts: Sequence[Any]) -> tuple[int, int] | None:
    years: list[int] = []
    for part in parts:
        kind = part.type
        if not is_text(kind) and not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
            return None
        found, others = moments_among(part, "")
        if others.any():
            return None
        years += (found[~np.isnat(found)].astype("datetime64[Y]").astype(int) + 1970).tolist()
    return (min(years), max(years)) if years else None


def the_one(found: Mapping[str, Profile], words: Sequence[str]) -> str | None:
    """The column whose name is one of these words, or else has one of them in it."""
    called = [name for name, profile in found.items() if profile.is_called(words)]
    mentioned = [name for name, profile in found.items() if profile.mentions(words)]
    by_word = sorted(called, key=lambda name: words.index(name.strip().lower()))
    return next(iter([*by_word, *mentioned]), None)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The role that each column seems to have."""

    action: str
    outcome: str
    propensity: str | None
    weight: str | None
    group: str | None

    @classmethod
    def guessed(
        cls, found: Mapping[str, Profile], action: str | None, outcome: str | None
    ) -> "Roles":
        """The roles, by names and values; an error if no name suggests an action or an outcome.

        The column of actions, or of the outcome, may be known.
        """
        few = {n: p for n, p in found.items() if 2 <= len(p.labels) <= MOST_ACTIONS}
        action = _known(action, found, "action") or the_one(few, ACTION_WORDS)
        varied = {
            n: p
            for n, p in found.items()
            if p.numbers is not None and len(p.labels) > 1 and n != action
        }
        outcome = _known(outcome, found, "outcome") or the_one(varied, OUTCOME_WORDS)
        if action is None:
            raise OptionError(f"from: which column says what was done? --action; {_named(few)}")
        if outcome is None:
            raise OptionError(f"from: which column is the outcome? --outcome; {_named(varied)}")
        if outcome not in varied:
            raise DataError(f"from: '{outcome}' cannot be the outcome; expected numbers that vary")
        free = {n: p for n, p in found.items() if n not in (action, outcome)}
        propensity, weight = (
            next((n for n, p in free.items() if p.is_called(words)), None)
            for words in (PROPENSITY_WORDS, WEIGHT_WORDS)
        )
        chances = free[propensity].numbers if propensity else None
        if chances is None or not len(chances) or not 0 < chances.min() <= chances.max() <= 1:
            propensity = None
        repeated = [name for name, profile in free.items() if profile.is_id and profile.repeats]
        return cls(
            action=action,
            outcome=outcome,
            propensity=propensity,
            weight=weight if weight and free[weight].numbers is not None else None,
            group=next(iter(repeated), None),
        )

    @property
    def columns(self) -> set[str | None]:
        """All columns with a role; any other column may be a feature."""
        return {self.action, self.outcome, self.propensity, self.weight, self.group}


def _known(hint: str | None, found: Mapping[str, Profile], what: str) -> str | None:
    if hint is not None and hint not in found:
        raise OptionError(f"{what}: there is no column '{hint}'; {_named(found)}")
    return hint


def _named(columns: Iterable[str]) -> str:
    names = tuple(columns)
    return f"there are {quoted(names)}" if names else "there is none that could be"
