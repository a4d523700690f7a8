"""The columns that a tree may split on: numbers at thresholds, labels level by level."""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.schema import Encoding


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """One encoded feature, split at a threshold."""

    name: str
    feature: int

    def values(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The numbers themselves."""
        return contexts[:, self.feature]


@dataclass(frozen=True, kw_only=True)
class LevelColumn:
    """A column of labels, split into one level and the rest; the first level has no feature."""

    name: str
    levels: tuple[str, ...]
    features: tuple[int, ...]  # of all levels but the first

    def values(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The position of each row's level; what is marked as missing has one past the last."""
        marks = contexts[:, self.features] > 0.5
        return np.where(marks.any(axis=1), 1 + marks.argmax(axis=1), 0).astype(np.float64)


Column = NumberColumn | LevelColumn


def tree_columns(feature_names: tuple[str, ...], encoding: Encoding | None) -> tuple[Column, ...]:
    """Every column of the study, in the order of its first feature."""
    categorical = {} if encoding is None else encoding.categorical
    level_of = {
        f"{column}={level}": column
        for column, levels in categorical.items()
        for level in levels[1:]
    }
    columns: dict[str, Column] = {}
    for feature, name in enumerate(feature_names):
        column = level_of.get(name)
        if column is None:
            columns[name] = NumberColumn(name=name, feature=feature)
        elif column not in columns:
            levels = categorical[column]
            features = tuple(feature_names.index(f"{column}={level}") for level in levels[1:])
            columns[column] = LevelColumn(name=column, levels=levels, features=features)
    return tuple(columns.values())
