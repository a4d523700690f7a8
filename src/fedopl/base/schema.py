"""The schema: what the columns of a table mean, agreed before anybody reads one."""

from dataclasses import asdict
from decimal import Decimal
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from fedopl.base.errors import FedoplError, SchemaError
from fedopl.base.known_shares import Stated, Strata, as_stated, columns_in, shares_in
from fedopl.base.labels import label_text, quoted
from fedopl.base.validation import Checked, PlacedError

Direction = Literal["higher", "lower"]
MissingRule = Literal["error", "drop", "indicator"]


def _label(value: object) -> str:
    if not isinstance(value, str | int | float | Decimal):
        raise ValueError(f"expected a label, text or a number, came {value!r}")  # noqa: TRY004
    return label_text(value)


Label = Annotated[
    str, BeforeValidator(_label), WithJsonSchema({"type": ["string", "number", "boolean"]})
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


class Encoding(Checked):
    """Which columns describe a context, and how they become numbers.

    Categories become one column for each level but the first, numbers stay as they are, and the
    order is that given here: so every client encodes alike, whatever its table looks like.
    """

    error: ClassVar[type[FedoplError]] = SchemaError

    numeric: tuple[str, ...] = Field(default=(), description="columns of numbers")
    categorical: dict[str, tuple[Label, ...]] = Field(
        default_factory=dict, description="columns of labels, each with all its levels"
    )
    missing: MissingRule = Field(
        default="error",
        description="missing values: refuse the table, drop the rows, or mark missing features",
    )

    @model_validator(mode="after")
    def _names_distinct_features(self) -> Self:
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
    """Which columns hold what; every client of a study reads its table with the same one."""

    action: str = Field(description="the column that says what was done")
    actions: tuple[Label, ...] = Field(description="every action there is, taken anywhere or not")
    reward: str = Field(description="the column with the outcome, a number")
    direction: Direction = Field(description="whether a higher or a lower outcome is better")
    propensity: KnownPropensity | None = Field(
        default=None,
        description="if known: the column with the probability of what was done, or one column "
        "for each action; or the probabilities themselves, of all actions or of each, perhaps by "
        "stratum",
    )
    weight: str | None = Field(default=None, description="the column with row weights")
    group: str | None = Field(default=None, description="the column that says what goes together")

    @model_validator(mode="after")
    def _contradicts_nothing(self) -> Self:
        _distinct(self.actions, "actions", ("actions",))
        if len(self.actions) < 2:
            raise PlacedError("actions", "a decision needs at least two", ("actions",))
        if isinstance(self.propensity, dict) and set(self.propensity) != set(self.actions):
            message = (
                "name one column for the logged action, or a column or a number for each of "
                f"{', '.join(self.actions)}"
            )
            raise PlacedError("propensity", message, ("propensity",))
        single = [c for c in (self.action, self.reward, self.weight, self.group) if c]
        _distinct((*single, *self.propensity_columns), "roles of columns", ("action",))
        if self.stratum in {self.action, self.reward, self.weight, *self.numeric} - {None}:
            message = f"'{self.stratum}' cannot be the stratum: it is read as something else"
            raise PlacedError("propensity", message, ("propensity",))
        try:
            self.known_shares  # noqa: B018
        except ValueError as error:
            raise PlacedError("propensity", str(error), ("propensity",)) from None
        leaks = {self.action, self.reward} & set(self.feature_columns)
        if leaks:
            message = (
                f"{', '.join(sorted(leaks))} is the action or the reward, which nobody knows "
                "before deciding"
            )
            raise PlacedError("numeric, categorical", message, ("numeric",))
        return self

    @property
    def encoding(self) -> Encoding:
        """What a policy has to know of a table to decide on its rows."""
        return Encoding(numeric=self.numeric, categorical=self.categorical, missing=self.missing)

    @property
    def propensity_columns(self) -> tuple[str, ...]:
        """The columns of propensities: none, the logged action's, or one for each action."""
        return columns_in(self.propensity, self.actions)

    @cached_property
    def known_shares(self) -> dict[str, tuple[float, ...]]:
        """Each action's probability, by stratum, where the schema itself states them."""
        return shares_in(self.propensity, self.actions)

    @property
    def stratum(self) -> str | None:
        """The column of strata, if propensities differ by them."""
        return self.propensity.stratum if isinstance(self.propensity, Strata) else None

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        """Of one row's propensities: of the logged action alone, or of every action."""
        return () if isinstance(self.propensity, str) else (len(self.actions),)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column the schema reads, each once, in a fixed order."""
        wanted = [*self.feature_columns, self.action, self.reward, *self.propensity_columns]
        return tuple(
            dict.fromkeys([*wanted, *filter(None, (self.weight, self.group, self.stratum))])
        )

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns whose values are labels, even where they look like numbers."""
        named = (self.action, *self.categorical, *filter(None, (self.group, self.stratum)))
        return tuple(dict.fromkeys(named))


def _distinct(names: tuple[str, ...], subject: str, place: tuple[str, ...]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise PlacedError(subject, f"named more than once: {quoted(repeated)}", place)
