"""What the five rules of the exact contract decide for one client's table, in words, for its owner.

`fedopl check` and `fedopl preview` print it, each rule with the number that it looks at.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.vocabulary import queries_of
from fedopl.study.screened_study import with_most_found

MOST_NAMED = 8


class Alone(NamedTuple):
    """Cells of a fold, an action and one value of a flag that a single row is in."""

    n_cells: int
    share: float  # of training rows that are alone in some cell


def rules_found(space: Workspace, n_studies: int = 0) -> list[str]:
    """A line for each rule."""
    return [_rows(space), *_cell(space), _share(space), _splits(space), _once(space, n_studies)]


def _rows(space: Workspace) -> str:
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


def alone_in_cells(space: Workspace) -> Alone:
    """How many sums by fold and action rest on a single row's value of a flag."""
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
    return Alone(n_cells, n_alone / max(space.n_training, 1))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED])
