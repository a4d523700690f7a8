"""Finds values far outside the rest of their column, codes for missing values, repeated rows."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.rows.row_keys import row_keys
from fedopl.client.table.logged_data import LoggedData

# Repeated nines of either sign, which people write where a number is missing.
CODES = tuple(sign * (10**digits - 1) for digits in range(2, 8) for sign in (-1, 1))
# A code lies outside the other values by at least this share of their range.
APART = 0.5
# The distance beyond the quartiles, in interquartile ranges. In a normal column nothing lies beyond
# five. At most the second share of the rows may be that far.
FAR, MOST_FAR = 30.0, 0.05
# A row with more than this share of a column's sum of squares, about its median, decides the sums.
DOMINATES = 0.5


def far_values(columns: Mapping[str, FloatArray]) -> list[str]:
    """For the client alone, in words: column, count and pattern of values that look wrong."""
    found = []
    for name, column in columns.items():
        codes = _codes(column)
        for code, n_rows in codes.items():
            found.append(
                f"{name} is {code:g} in {_rows(n_rows)} and lies far from that in all others: "
                "if it means a missing value, mark it as missing (or leave the cell empty); "
                "as a number it distorts every model"
            )
        found += _far(name, column[~np.isin(column, list(codes))])
    return found


def dominating_values(client: str, columns: Mapping[str, FloatArray]) -> list[str]:
    """In words: values that have most of their column's sum of squares, and what they change."""
    found = []
    for name, column in columns.items():
        apart = (column - np.median(column)) ** 2
        worst = int(apart.argmax()) if len(apart) > 2 else 0
        if not len(apart) or apart[worst] <= DOMINATES * apart.sum():
            continue
        others = np.delete(column, worst)
        if not np.ptp(others):
            continue  # a flag that one row has; the rule on cells sees to it
        share = apart[worst] / apart.sum()
        found.append(
            f"{client}: one row has {share:.0%} of the sum of squares of {name}, {column[worst]:g} "
            f"where others are {others.min():g} to {others.max():g}. Sums here rest on it: the "
            f"mean is {column.mean():.3g} with it and {others.mean():.3g} without, the standard "
            f"deviation {column.std():.3g} and {others.std():.3g}. Look for a typo, or agree on "
            "[ranges], which clip such values"
        )
    return found


def _codes(column: FloatArray) -> dict[float, int]:
    """Codes that some rows have and that lie outside all other values, with counts of rows."""
    found: dict[float, int] = {}
    for code in CODES:
        own = column == code
        others = column[~own & ~np.isin(column, CODES)]
        if not own.any() or len(others) < len(column) / 2:
            continue
        low, high = float(others.min()), float(others.max())
        outside = max(low - code, code - high)
        if outside > APART * (high - low) and outside > 0:
            found[float(code)] = int(own.sum())
    return found


def _far(name: str, column: FloatArray) -> list[str]:
    """A description of values many interquartile ranges beyond the quartiles, if they are few."""
    if len(column) < 8:
        return []
    first, third = np.quantile(column, [0.25, 0.75])
    spread = float(third - first)
    if spread <= 0:  # most rows have one value; a rare other value is then no error
        return []
    far = (column > third + FAR * spread) | (column < first - FAR * spread)
    n_far = int(far.sum())
    if not 0 < n_far <= MOST_FAR * len(column):
        return []
    rest = column[~far]
    worst = float(column[np.abs(column - np.median(column)).argmax()])
    return [
        f"{name} lies far outside the rest in {_rows(n_far)}: up to {worst:g}, where others are "
        f"between {rest.min():g} and {rest.max():g}; look for a typo, another unit or a code"
    ]


def _rows(n_rows: int) -> str:
    return "1 row" if n_rows == 1 else f"{n_rows:,} rows"


# The share of rows that may repeat another row without consequence.
FEW_REPEATED = 0.001


def n_repeated_rows(data: LoggedData) -> int:
    """How many rows agree with another in everything, if that is not a coincidence.

    Rows of a few coarse columns agree by chance. So rows are counted again in two ways: with other
    actions and outcomes beside the contexts, and with each column shuffled by itself, because one
    column may follow from another. Only if both counts are less than half do the rows point to
    duplicates.
    """
    rng = generator_for(0, purpose="repeated rows")
    repeated = _n_alike(data.contexts, data.actions, data.rewards)
    if not repeated or repeated < FEW_REPEATED * data.n_rows:
        return 0
    order = rng.permutation(data.n_rows)
    other_outcomes = _n_alike(data.contexts, data.actions[order], data.rewards[order])
    columns = [rng.permutation(column) for column in data.contexts.T]
    shuffled = np.ascontiguousarray(np.column_stack(columns))
    other_contexts = _n_alike(shuffled, data.actions, data.rewards)
    return repeated if repeated > 2 * max(other_outcomes, other_contexts) else 0


def _n_alike(contexts: FloatArray, actions: IntArray, rewards: FloatArray) -> int:
    """How many rows agree with another in everything; contexts are compared by a hash."""
    (keys,) = row_keys(contexts, 0, ("repeated rows",))
    order = np.lexsort((rewards, actions, keys))
    same = np.ones(len(actions) - 1, bool)
    for column in (keys, actions, rewards):
        same &= column[order][1:] == column[order][:-1]
    return int(same.sum())
