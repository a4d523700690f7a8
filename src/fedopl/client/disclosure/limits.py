"""Disclosure limits: what a client is willing to release, owned and set by the client."""

import math
from typing import Self

from pydantic import ConfigDict, Field

from fedopl.base.errors import OptionError
from fedopl.base.validation import Checked
from fedopl.messages.refusal import RefusalCode
from fedopl.study.plans import Grants


class RefusedError(Exception):
    """The client refuses to answer; only the code is released."""

    def __init__(self, code: RefusalCode) -> None:
        super().__init__(code.name)
        self.code = code


class Limits(Checked):
    """A client's limits. `Limits.open()` is for a caller who holds all rows."""

    model_config = ConfigDict(allow_inf_nan=True)

    minimum_rows: int = Field(
        default=50, ge=1, description="with fewer rows than this, nothing is answered"
    )
    minimum_cell: int = Field(
        default=5, ge=0, description="sums and counts over fewer rows than this are left out"
    )
    parameter_share: float = Field(
        default=0.5,
        gt=0,
        description="the largest number of fitted numbers, as a share of the rows",
    )
    values: bool = Field(default=True, description="whether values of policies are reported")
    value_queries: int = Field(
        default=20, ge=0, description="how many different value queries are answered"
    )
    value_policies: int = Field(
        default=400, ge=0, description="how many policies are valued, in all studies together"
    )
    value_noise: float = Field(
        default=2.0,
        ge=0,
        description="noise on each value: as much as this many typical rows change it",
    )
    studies: int = Field(default=5, ge=1, description="how many different studies are answered")
    withheld_answers: int = Field(
        default=20,
        ge=1,
        description="number of answers withheld in a study until this client must unlock it",
    )
    dominance: float = Field(
        default=0.8, gt=0, description="the largest share of a sum of squares that one row may have"
    )
    score_queries: int = Field(
        default=1,
        ge=0,
        description="number of different sets of outcome models that rows are scored with",
    )
    slope_queries: int = Field(
        default=30, ge=0, description="how many different slopes are reported"
    )
    descriptions: int = Field(
        default=3, ge=0, description="how many different descriptions are given"
    )
    count_queries: int = Field(
        default=2, ge=0, description="number of different sets of bins in which rows are counted"
    )
    cell_queries: int = Field(
        default=5, ge=0, description="for how many levels of a tree sums over cells are reported"
    )
    model_queries: int = Field(
        default=1,
        ge=0,
        description="how often the client's models are reported, and compared with those of others",
    )
    classifier_queries: int = Field(
        default=8,
        ge=0,
        description="how many steps of a classifier of contexts are reported, and how many toward "
        "weights for a target",
    )
    epsilon: float = Field(
        default=10.0,
        gt=0,
        description="largest epsilon of all studies with differential privacy together, over the "
        "lifetime of the rows",
    )
    delta: float = Field(default=1e-6, gt=0, lt=0.5, description="the delta that goes with epsilon")
    norm_cap: float = Field(default=1e15, gt=0, description="the largest number that may leave")

    @classmethod
    def open(cls) -> Self:
        """No limits: for a caller who holds every row anyway."""
        budgets = [name for name in cls.model_fields if name.endswith(("queries", "descriptions"))]
        return cls(
            minimum_rows=1,
            minimum_cell=0,
            parameter_share=math.inf,
            value_policies=1_000_000_000,
            value_noise=0.0,
            studies=1_000_000_000,
            withheld_answers=1_000_000_000,
            dominance=1.0,
            epsilon=math.inf,
            norm_cap=math.inf,
            **dict.fromkeys(budgets, 1_000_000_000),
        )

    def rows_needed(self, n_columns: int) -> int:
        """The fewest rows whose sums of squares in this many columns may be released."""
        # With as many sums as columns, one could solve for the rows themselves.
        return max(self.minimum_cell, math.ceil(n_columns / self.parameter_share))

    def lacking(self, grants: Grants) -> list[str]:
        """What a study requires and these limits do not allow, in words; empty if nothing."""
        lacks = []
        for name, wanted in grants:
            allowed = getattr(self, name)
            is_minimum = name in ("minimum_rows", "minimum_cell")  # a smaller minimum allows more
            if wanted is not None and (allowed > wanted if is_minimum else allowed < wanted):
                enough = f"{wanted:g} or {'less' if is_minimum else 'more'}"
                needed = "true" if wanted is True else enough
                lacks.append(f"{name} is {_plain(allowed)}, the study requires {needed}")
        return lacks

    def check_rows(self, n_rows: int) -> None:
        """Refuse to answer if there are too few rows."""
        if n_rows < self.minimum_rows:
            raise RefusedError(RefusalCode.TOO_FEW_ROWS)

    def check_parameters(self, n_parameters: int, n_rows: int) -> None:
        """Refuse to fit more numbers than the allowed share of the rows."""
        if n_parameters > self.parameter_share * n_rows:
            raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)


def _plain(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def as_limits(spec: object) -> Limits:
    """The limits: given by name, or as they are."""
    if isinstance(spec, Limits):
        return spec
    if spec == "open":
        return Limits.open()
    if spec == "guarded":
        return Limits()
    raise OptionError(f"limits: expected 'open', 'guarded' or fedopl.Limits(...), came {spec!r}")
