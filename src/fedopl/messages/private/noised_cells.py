"""Sums over coarse tables of a grid, in a study of trees with differential privacy."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import Moves, beyond_rows
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def _cells_move(study: Study) -> float:
    """How far a row moves the tables: it is in one cell of each."""
    setting = PrivateSetting(study)
    return setting.bounds.contrast * setting.tables.cells_move


@message
class NoisedCells(Message, code=97):
    """By cell, Σ Γ̂(a) less the mean over actions, bounded row by row, in units, with noise."""

    cells: Annotated[Array, (Axis.CELLS, Axis.ACTIONS), Moves(_cells_move, "cells"), PerClient]


@message
class SumCellsPrivately(Query[NoisedCells], code=33, asked=Asked.EACH):
    """Ask to score training rows with these outcome models, and sum over a public grid's tables."""

    title = "Sums over a coarse grid, with noise"
    content = "sums of scores, held against their mean over actions, by cell of two columns"
    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is searched for with differential privacy."""
        return study.privacy is not None and study.policy.on_grid

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each cell and action."""
        return {"cells": (len(PrivateSetting(study).tables.places), study.n_actions)}

    def fault_in(self, answer: NoisedCells, study: Study, n_rows: int) -> str | None:
        """Check for one number per cell and action, none larger than its rows and noise allow."""
        if len(answer.cells) != len(PrivateSetting(study).tables.places):
            return "the cells are not those of the grid"
        return beyond_rows(answer, study, n_rows)
