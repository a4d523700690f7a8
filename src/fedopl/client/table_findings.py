"""What the owner of a table is told of it, in words: values that look wrong, what rules decide.

Values may lie far outside the rest of their column, be codes for missing values, or dominate sums;
rows may be repeated. `fedopl check` and `fedopl preview` print what the five rules of the exact
contract decide, each with the number that it looks at.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.rows.row_keys import row_keys
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.vocabulary import queries_of
from fedopl.study.screened_study import with_most_found

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


# --- the five rules -------------------------------------------------------------------------------

# The most columns, or actions, that a line names.
MOST_NAMED = 8


def rules_found(space: Workspace, n_studies: int = 0) -> list[str]:
    """A line for each rule."""
    return [
        _enough(space),
        *_cell(space),
        _share(space),
        _splits(space),
        _once(space, n_studies),
    ]


def _enough(space: Workspace) -> str:
    n_rows, least = space.n_rows_given, space.limits.minimum_rows
    verdict = "takes part" if n_rows >= least else "takes no part"
    return f"rows: {n_rows:,}, minimum_rows is {least:,}: {verdict}"


def _cell(space: Workspace) -> Iterator[str]:
    minimum, study = space.limits.minimum_cell, space.study
    rows = space.study_rows
    names = [*study.features] if study.terms is None else [*study.terms.names]
    held = {**rows.held.values, **rows.into_terms.held.values}
    if held:
        named = [f"{names[place]} at {value:g}" for place, value in sorted(held.items())]
        more = f" and {len(named) - MOST_NAMED} more" * (len(named) > MOST_NAMED)
        yield (
            f"cell: fewer than {minimum} rows have another value of {_listed(named)}{more}: "
            "held at that for all rows"
        )
    counts = rows.given.rows_per_action
    few = [
        f"'{action}' ({count:,} rows)"
        for action, count, corrected in zip(study.actions, counts, space.corrected, strict=True)
        if not corrected
    ]
    if few:
        yield (
            f"cell: too few rows took {_listed(few)} for minimum_cell = {minimum} in two folds"
            f"{' and held out' if rows.split.share else ''}: scored by models alone here"
        )
    if not held and not few:
        yield f"cell: no value and no action rests on fewer than minimum_cell = {minimum} rows"


def _share(space: Workspace) -> str:
    n_terms, n_rows = space.study.n_terms + 1, space.n_training
    said = f"share: {n_rows:,} rows to learn from, {n_terms:,} terms"
    most = space.limits.most_terms(n_rows)
    if space.adds_terms:
        may_stop = space.study.most_terms + 1 > most
        unless = f", unless screening finds more than {most - n_terms:,.0f}" if may_stop else ""
        return f"{said}: adds sums of terms{unless}"
    return (
        f"{said}, parameter_share is {space.limits.parameter_share:g}: scored and valued, but adds "
        f"no sums of terms; it would with {most:,.0f} terms, an intercept among them"
    )


def _splits(space: Workspace) -> str:
    split, agreed = space.study_rows.split, space.study.nuisances.folds
    said = f"splits: {split.n_used} of {agreed} folds"
    if not space.study.evaluation.share:
        return said
    if not split.share:
        return (
            f"{said}, and only learns: its held-out rows would have fewer than minimum_cell = "
            f"{space.limits.minimum_cell} of every action"
        )
    return f"{said}, {space.n_rows(RowSplit.EVALUATION):,} rows held out"


def _once(space: Workspace, n_studies: int) -> str:
    stages = {space.study, with_most_found(space.study)}  # before and after screening
    most = sum(kind.most(stage) for stage in stages for kind in queries_of(stage))
    return (
        f"once: at most {most:,} questions, each answered once; {n_studies:,} of "
        f"{space.limits.studies:,} studies answered before"
    )


def alone_in_cells(space: Workspace) -> tuple[int, float]:
    """How many sums by fold and action rest on one row's value of a flag; the share of these."""
    n_cells, n_alone = 0, 0
    n_groups = space.rows_by_fold_action.size
    for chunk in space.study_rows.chunks():
        cells = chunk.fold_actions[chunk.training]
        contexts = chunk.data.contexts[chunk.training]
        alone: BoolArray = np.zeros(len(cells), np.bool_)
        for column in contexts.T:
            low, high = column.min(initial=np.inf), column.max(initial=-np.inf)
            if low == high or not ((column == low) | (column == high)).all():
                continue
            for value in (low, high):
                own = column == value
                single = np.bincount(cells[own], minlength=n_groups) == 1
                n_cells += int(single.sum())
                alone |= own & single[cells]
        n_alone += int(alone.sum())
    return n_cells, n_alone / max(space.n_training, 1)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED])
