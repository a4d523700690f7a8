"""The columns that a tree may split on: numbers at a threshold, labels at one of their levels."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.schema import Encoding


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """One encoded feature, split at a threshold."""

    name: str
    feature: int

    def values(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The numbers that are compared with thresholds."""
        return contexts[:, self.feature]


@dataclass(frozen=True, kw_only=True)
class LevelColumn:
    """A column of labels, split into one level and the rest; the first level has no feature."""

    name: str
    levels: tuple[str | None, ...]  # None where the label is missing
    features: tuple[int, ...]  # of all levels but the first

    def values(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The position of each row's level."""
        # At most one indicator of a column is set; if none is, the row has the first level.
        marks = contexts[:, self.features] > 0.5
        return np.where(marks.any(axis=1), 1 + marks.argmax(axis=1), 0).astype(np.float64)


Column = NumberColumn | LevelColumn


def tree_columns(feature_names: tuple[str, ...], encoding: Encoding | None) -> tuple[Column, ...]:
    """Every column of the study, in the order of its first feature."""
    place = {name: feature for feature, name in enumerate(feature_names)}
    if encoding is None:
        return tuple(NumberColumn(name=name, feature=f) for name, f in place.items())
    marked = encoding.missing == "indicator"
    columns: list[Column] = []
    for name in encoding.numeric:
        columns.append(NumberColumn(name=name, feature=place[name]))
        if marked:
            mark = f"{name} is missing"
            columns.append(LevelColumn(name=mark, levels=("no", "yes"), features=(place[mark],)))
    for name, levels in encoding.categorical.items():
        features = [place[f"{name}={level}"] for level in levels[1:]]
        if marked:
            features.append(place[f"{name} is missing"])
        known: tuple[str | None, ...] = (*levels, None) if marked else levels
        columns.append(LevelColumn(name=name, levels=known, features=tuple(features)))
    return tuple(columns)
