"""How much a result depends on the split of the rows: the gain under each split, and combined."""

import statistics
from collections import Counter
from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING, Row


@dataclass(frozen=True, eq=False, kw_only=True)
class Movement:
    """The learned policy's gain over another: under each split alone, and the median."""

    against: str
    alone: tuple[Row | None, ...]  # None for a split without this gain
    together: Row

    @property
    def gains(self) -> tuple[float, ...]:
        """The estimates of the splits that have one."""
        return tuple(row.estimate.value for row in self.alone if row)

    @property
    def spread(self) -> float:
        """The standard deviation of the estimates over splits; 0 with one split."""
        return statistics.stdev(self.gains) if len(self.gains) > 1 else 0.0

    @property
    def error_alone(self) -> float:
        """The median over splits of the standard error from one split alone."""
        return statistics.median(row.estimate.standard_error for row in self.alone if row)

    @property
    def verdicts(self) -> Counter[str]:
        """How many splits alone would have given each verdict."""
        return Counter(decided(row) for row in self.alone if row)


def decided(row: Row) -> str:
    """'better', 'worse' or 'unclear', by the interval at the row's own level."""
    low, high = row.interval
    if low > 0:
        return "better"
    return "worse" if high < 0 else "unclear"


def movements(record: Record) -> tuple[Movement, ...]:
    """The gains over what was done and over the best arm; recommendations use the first.

    Empty if rows were split only once: then the effect of the split is not known.
    """
    if not record.splits:
        return ()
    past = (record.chosen, GLOBAL)
    arm = (record.valued_arm, GLOBAL)
    found = (
        (LOGGING, record.improvements, [one.improvements for one in record.splits], past),
        (arm[0], record.gains, [one.gains for one in record.splits], arm),
    )
    return tuple(
        Movement(
            against=against,
            alone=tuple(table.by_cell().get(cell) for table in tables),
            together=together.by_cell()[cell],
        )
        for against, together, tables, cell in found
        if cell in together.by_cell()
    )
