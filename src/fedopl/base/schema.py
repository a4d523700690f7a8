"""The schema: the meaning of a table's columns, agreed before any table is read.

A named rule turns a date into a feature, in the same way at every client.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from fedopl.base.errors import FedoplError, SchemaError
from fedopl.base.known_shares import Stated, Strata, as_stated, columns_in, stated_shares
from fedopl.base.labels import label_text, quoted
from fedopl.base.validation import Checked, PlacedError

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = tuple(str(month) for month in range(1, 13))
# The rules that give labels, each with all its labels in order. Other rules give numbers.
LABELLED = {"weekday": WEEKDAYS, "month": MONTHS}
COUNTED = ("year", "hour")
SINCE = re.compile(r"days since (\d{4}-\d{2}-\d{2})")
RULES_IN_WORDS = '"days since YYYY-MM-DD", "year", "month", "weekday" or "hour"'


def is_date_rule(text: object) -> bool:
    """Whether this is the name of a rule, with a day that exists."""
    if not isinstance(text, str):
        return False
    if found := SINCE.fullmatch(text):
        try:
            date.fromisoformat(found[1])
        except ValueError:
            return False
        return True
    return text in LABELLED or text in COUNTED


def date_rule(text: object) -> str:
    """The rule of this name; refused if there is none."""
    if not isinstance(text, str) or not is_date_rule(text):
        raise ValueError(f"expected a rule for dates, {RULES_IN_WORDS}, came {text!r}")
    return text


Direction = Literal["higher", "lower"]
MissingRule = Literal["error", "drop", "indicator"]


def as_label(value: object) -> str:
    """A label as text; refused if it is neither text nor a number."""
    if not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"expected a label, text or a number, came {value!r}")  # noqa: TRY004
    return label_text(value)


DateRule = Annotated[str, BeforeValidator(date_rule)]
Label = Annotated[
    str, BeforeValidator(as_label), WithJsonSchema({"type": ["string", "number", "boolean"]})
]


_PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}
_SHARES = {"anyOf": [_PROBABILITY, {"type": "object", "additionalProperties": _PROBABILITY}]}
KnownPropensity = Annotated[
    Stated,
    PlainValidator(as_stated),
    PlainSerializer(lambda stated: asdict(stated) if isinstance(stated, Strata) else stated),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "additionalProperties": {"type": "string"}},
                *_SHARES["anyOf"],
                {
                    "type": "object",
                    "required": ["stratum", "shares"],
                    "additionalProperties": False,
                    "properties": {
                        "stratum": {"type": "string"},
                        "shares": {"type": "object", "additionalProperties": _SHARES},
                    },
                },
            ]
        }
    ),
]


FEWEST_PARTS = 2


def fault_in_sum(parts: Mapping[str, float]) -> str | None:
    """What is wrong with the sum of these columns, each times its number; None if it is valid."""
    if len(parts) < FEWEST_PARTS:
        return "a sum has two columns or more; of one column, name the column"
    nothing = [column for column, weight in parts.items() if not weight]
    if nothing:
        return f"'{nothing[0]}' is multiplied by 0, so it has no part in the sum; leave it out"
    return None


def sum_in_words(parts: Mapping[str, float]) -> str:
    """The name of the sum: (days_home − 0.2 × pain)."""
    words = ""
    for column, weight in parts.items():
        sign = ("− " if weight < 0 else "+ ") if words else ("−" if weight < 0 else "")
        size = "" if abs(weight) == 1 else f"{abs(weight):.12g} × "
        words += f"{' ' if words else ''}{sign}{size}{column}"
    return f"({words})"


class Encoding(Checked):
    """Which columns describe a context, and how they become numbers.

    A category becomes one column for each level but the first. Numbers stay as they are. The order
    is that given here. So all clients encode in the same way, whatever their tables look like.
    """

    error: ClassVar[type[FedoplError]] = SchemaError

    numeric: tuple[str, ...] = Field(default=(), description="columns of numbers")
    categorical: dict[str, tuple[Label, ...]] = Field(
        default_factory=dict, description="columns of labels, each with all its levels"
    )
    missing: MissingRule = Field(
        default="error",
        description="missing values: refuse the table, drop the rows, or mark the missing features",
    )
    dates: dict[str, DateRule] = Field(
        default_factory=dict, description="columns of dates, each with the rule for its feature"
    )
    others: dict[str, Label] = Field(
        default_factory=dict,
        description="for columns of labels, the level that every label not listed stands for",
    )

    @model_validator(mode="before")
    @classmethod
    def _place_dates(cls, given: Any) -> Any:
        """Add each date to the numbers or the categories, as its rule says."""
        if not isinstance(given, dict) or not isinstance(given.get("dates"), dict):
            return given
        numeric, categorical = list(given.get("numeric", ())), dict(given.get("categorical", {}))
        for column, rule in given["dates"].items():
            if rule in LABELLED:
                categorical.setdefault(column, LABELLED[rule])
            elif column not in numeric:
                numeric.append(column)
        return {**given, "numeric": tuple(numeric), "categorical": categorical}

    @model_serializer(mode="wrap")
    def _write_rules_where_there_are_any(self, write: SerializerFunctionWrapHandler) -> Any:
        # These keys did not exist when studies were first hashed.
        later = ("dates", "others", "missing_reward", "reward_sum", "outcomes")
        return {key: value for key, value in write(self).items() if value or key not in later}

    @model_validator(mode="after")
    def _has_rules_for_distinct_features(self) -> Self:
        for column, rule in self.dates.items():
            if rule in LABELLED and self.categorical.get(column) != LABELLED[rule]:
                message = f"'{column}' has the levels of its rule, {quoted(LABELLED[rule])}"
                raise PlacedError("dates", message, ("categorical", column))
        for column, level in self.others.items():
            if level not in self.categorical.get(column, ()) or column in self.dates:
                message = f"'{level}' is not one of the levels of '{column}'"
                raise PlacedError("others", message, ("categorical", column))
        if not self.numeric and not self.categorical:
            raise PlacedError("numeric, categorical", "name at least one feature", ("numeric",))
        _distinct((*self.numeric, *self.categorical), "numeric, categorical", ("numeric",))
        for column, levels in self.categorical.items():
            subject, place = f"categorical '{column}'", ("categorical", column)
            _distinct(levels, subject, place)
            if len(levels) < 2:
                raise PlacedError(subject, "name at least two levels", place)
        return self

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns of a table that features are made from."""
        return (*self.numeric, *self.categorical)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded features, in order."""
        marked = self.missing == "indicator"
        names: list[str] = []
        for column in self.numeric:
            names += [column, f"{column} is missing"] if marked else [column]
        for column, levels in self.categorical.items():
            names += [f"{column}={level}" for level in levels[1:]]
            names += [f"{column} is missing"] if marked else []
        return tuple(names)


class Schema(Encoding):
    """What each column holds. All clients of a study read their tables with the same schema."""

    action: str = Field(description="the column that says what was done")
    actions: tuple[Label, ...] = Field(description="every action there is, taken anywhere or not")
    reward: str = Field(
        default="", description="the column with the outcome, a number, unless it is a sum"
    )
    direction: Direction = Field(description="whether a higher or a lower outcome is better")
    missing_reward: Literal["error", "drop"] | None = Field(
        default=None,
        description="rows without an outcome: refuse the table, or drop the rows; default: as "
        "for other missing values",
    )
    propensity: KnownPropensity | None = Field(
        default=None,
        description="if known: the column with the probability of the action that was taken, or "
        "one column for each action; or the probabilities as numbers: one for all actions or one "
        "for each, also by stratum",
    )
    reward_sum: dict[str, float] = Field(
        default_factory=dict,
        description="the outcome as a weighted sum: what each of its columns is multiplied by",
    )
    outcomes: tuple[str, ...] = Field(
        default=(), description="columns of further outcomes, numbers, that guardrails are about"
    )
    weight: str | None = Field(default=None, description="the column with row weights")
    group: str | None = Field(
        default=None, description="the column that says which rows belong together"
    )

    @model_validator(mode="before")
    @classmethod
    def _name_the_sum(cls, given: Any) -> Any:
        """Use the name of a sum wherever an outcome is named."""
        parts = given.get("reward_sum") if isinstance(given, dict) else None
        if not isinstance(parts, dict) or not _are_numbers(parts):
            return given
        fault, called = fault_in_sum(parts), sum_in_words(parts)
        if given.get("reward") not in (None, "", called):
            fault = "the outcome is one column or a sum of several; leave one of them out"
        if fault:
            raise PlacedError("reward_sum", fault)
        return {**given, "reward": called}

    @model_validator(mode="after")
    def _contradicts_nothing(self) -> Self:
        if not self.reward:
            message = "name the column with the outcome, or say which columns it is the sum of"
            raise PlacedError("reward", message)
        _distinct(self.actions, "actions", ("actions",))
        if len(self.actions) < 2:
            raise PlacedError("actions", "a decision needs at least two", ("actions",))
        if isinstance(self.propensity, dict) and set(self.propensity) != set(self.actions):
            message = (
                "name one column for the logged action, or a column or a number for each of "
                f"{', '.join(self.actions)}"
            )
            raise PlacedError("propensity", message, ("propensity",))
        single = [c for c in (self.action, *self.reward_columns, self.weight, self.group) if c]
        _distinct((*single, *self.propensity_columns), "roles of columns", ("action",))
        if self.stratum in {self.action, *self.reward_columns, self.weight, *self.numeric} - {None}:
            message = f"'{self.stratum}' cannot be the stratum: the column has another role"
            raise PlacedError("propensity", message, ("propensity",))
        try:
            self.known_shares  # noqa: B018
        except ValueError as error:
            raise PlacedError("propensity", str(error), ("propensity",)) from None
        if self.reward in self.outcomes:
            message = f"'{self.reward}' is the outcome itself; a guardrail is about another column"
            raise PlacedError("outcomes", message)
        _distinct(self.outcomes, "outcomes", ("outcomes",))
        others = {self.weight, self.group, *self.propensity_columns} & set(self.outcomes)
        if others:
            message = f"'{min(map(str, others))}' is read as something else than an outcome"
            raise PlacedError("outcomes", message)
        leaks = {self.action, *self.outcome_columns} & set(self.feature_columns)
        if leaks:
            message = (
                f"{', '.join(sorted(leaks))} is the action or an outcome, which is not known "
                "before deciding"
            )
            raise PlacedError("numeric, categorical", message, ("numeric",))
        return self

    def drops(self, column: str) -> bool:
        """Whether rows without a value in this column are left out."""
        rule = self.missing_reward if column in self.outcome_columns else None
        return (rule or self.missing) == "drop"

    @property
    def reward_columns(self) -> tuple[str, ...]:
        """The columns that the outcome is made from: one, or those of a sum."""
        return tuple(self.reward_sum) or (self.reward,)

    @property
    def outcome_columns(self) -> tuple[str, ...]:
        """The columns of the outcome and of further outcomes, each once."""
        return tuple(dict.fromkeys((*self.reward_columns, *self.outcomes)))

    @property
    def encoding(self) -> Encoding:
        """What a policy needs to know about a table to decide on its rows."""
        return Encoding(**{name: getattr(self, name) for name in Encoding.model_fields})

    @property
    def propensity_columns(self) -> tuple[str, ...]:
        """The columns of propensities: none, the logged action's, or one for each action."""
        return columns_in(self.propensity, self.actions)

    @cached_property
    def known_shares(self) -> dict[str, tuple[float, ...]]:
        """Each action's probability, by stratum, if the schema itself states them."""
        return stated_shares(self.propensity, self.actions)

    @property
    def stratum(self) -> str | None:
        """The column of strata, if propensities differ by them."""
        return self.propensity.stratum if isinstance(self.propensity, Strata) else None

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        """The shape of one row's propensities: for the logged action alone, or for every action."""
        return () if isinstance(self.propensity, str) else (len(self.actions),)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column the schema reads, each once, in a fixed order."""
        wanted = [*self.feature_columns, self.action, *self.outcome_columns]
        wanted += self.propensity_columns
        return tuple(
            dict.fromkeys([*wanted, *filter(None, (self.weight, self.group, self.stratum))])
        )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns whose values are labels, even if they look like numbers."""
        named = (self.action, *self.categorical, *filter(None, (self.group, self.stratum)))
        return tuple(column for column in dict.fromkeys(named) if column not in self.dates)


def _are_numbers(parts: dict[Any, Any]) -> bool:
    """Whether pydantic accepts the numbers of a sum."""
    numbers = [n for n in parts.values() if isinstance(n, int | float) and math.isfinite(n)]
    return bool(parts) and len(numbers) == len(parts)


def _distinct(names: tuple[str, ...], subject: str, place: tuple[str, ...]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise PlacedError(subject, f"named more than once: {quoted(repeated)}", place)
