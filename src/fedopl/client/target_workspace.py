"""The workspace of a site without outcomes: contexts, all of which may be described."""

from typing import Any

from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.workspace import Workspace


class TargetWorkspace(Workspace):
    """The contexts of a target in one study.

    Nothing is learned from them, so none are held out. Rare values are masked in all of them, as in
    the training rows of other clients. Actions and rewards are zeros that no answer uses.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        rows, cell = self.study_rows.given, self.limits.minimum_cell
        self.study_rows = StudyRows(rows, self.study, cell, self.draws, held_out=0.0)
