"""What a client is willing to release, owned and set by the client; three of the five rules.

A study without `[privacy]` has the *exact* contract: only the sums that `preview` lists leave,
exactly, to a server that keeps to the study. Five rules say what they may rest on, and all are
decided from the client's own table before anything is answered:

- *rows*: a client with fewer rows than `minimum_rows` takes no part;
- *cell*: what fewer than `minimum_cell` rows have is held, merged or left out (`held_values.py`,
  `merged_bins.py`);
- *share*: a client with fewer rows than terms / `parameter_share` adds no sums of terms;
- *splits*: folds and held-out rows have `minimum_cell` rows of each corrected action
  (`rows/split_rule.py`);
- *once*: a study's questions are answered once each (`ledger.py`).
"""

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
        default=30,
        ge=1,
        description="with fewer rows than this, held-out ones included, the client takes no part",
    )
    minimum_cell: int = Field(
        default=5,
        ge=0,
        description="what fewer rows than this have is held at the value of all others, merged "
        "with its neighbours, or left out",
    )
    parameter_share: float = Field(
        default=0.5,
        gt=0,
        description="the most terms for each row: with fewer rows, no sums of terms are added",
    )
    values: bool = Field(default=True, description="whether values of policies are reported")
    studies: int = Field(default=20, ge=1, description="how many different studies are answered")
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
        return cls(
            minimum_rows=1,
            minimum_cell=0,
            parameter_share=math.inf,
            studies=1_000_000_000,
            epsilon=math.inf,
            norm_cap=math.inf,
        )

    def adds_terms(self, n_terms: int, n_rows: int) -> bool:
        """Whether so many rows may add sums of so many terms, an intercept among them."""
        return n_terms <= self.parameter_share * n_rows

    def most_terms(self, n_rows: int) -> float:
        """The most terms of which so many rows may add sums."""
        return math.floor(self.parameter_share * n_rows) if n_rows else 0

    def lacking(self, grants: Grants) -> list[str]:
        """What a study requires and these limits do not allow, in words; empty if nothing."""
        lacks = []
        for name, wanted in grants:
            allowed = getattr(self, name)
            is_minimum = name in ("minimum_rows", "minimum_cell")  # a smaller minimum allows more
            if wanted is not None and (allowed > wanted if is_minimum else allowed < wanted):
                enough = f"{wanted:g} or {'less' if is_minimum else 'more'}"
                needed = "true" if wanted is True else enough
                shown = str(allowed).lower() if isinstance(allowed, bool) else f"{allowed:g}"
                lacks.append(f"{name} is {shown}, the study requires {needed}")
        return lacks

    def check_rows(self, n_rows: int) -> None:
        """Refuse to take part with too few rows."""
        if n_rows < self.minimum_rows:
            raise RefusedError(RefusalCode.TOO_FEW_ROWS)


def as_limits(spec: object) -> Limits:
    """The limits: given by name, or as they are."""
    if isinstance(spec, Limits):
        return spec
    if spec == "open":
        return Limits.open()
    if spec == "guarded":
        return Limits()
    raise OptionError(f"limits: expected 'open', 'guarded' or fedopl.Limits(...), came {spec!r}")
