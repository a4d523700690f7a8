"""Sums of scores with differential privacy: of candidates, of cells of a grid, close to thresholds.

Those choose a candidate or a tree, on training rows. Those of policies on held-out rows value them.
"""

from typing import Annotated, Any

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES
from fedopl.messages.message import AnswerType, Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import UNMOVED, Moves, beyond_rows
from fedopl.policies.trees.nodes import branches_of, depth_of, from_array
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook
from fedopl.study.private.added_up import adds_under_masks
from fedopl.study.private.private_setting import N_VALUED, PrivateSetting
from fedopl.study.study import Study


def _scores_move(study: Study) -> float:
    setting = PrivateSetting(study)
    return setting.bounds.contrast * setting.scores_move


@message
class NoisedScores(Message, code=99):
    """Σ Γ̂(π(x)) of each candidate less their mean, bounded row by row, in units, with noise."""

    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_scores_move, "scores"), PerClient]


@message
class AsksForNoisedScores(AsksAboutPolicies[AnswerType]):
    """Ask for scores of what policies decide, with these outcome models, with noise."""

    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    def arrays(self) -> list[Array]:
        """Policies as well: whether numbers overflow must not depend on rows."""
        return [held for _, held in self.named_arrays()]


@message
class SumCandidates(AsksForNoisedScores[NoisedScores], code=35, asked=Asked.EACH):
    """Ask for the sums of all candidates' scores on training rows, with these outcome models."""

    title = "What candidates score, with noise"
    content = "sums of scores of what each candidate decides, held against their mean"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether one of several candidates is chosen with differential privacy."""
        return study.privacy is not None and study.policy.compares_candidates

    def is_plausible(self, study: Study) -> bool:
        """Check the number of candidates, for which the noise is set."""
        is_whole = self.n_policies == PrivateSetting(study).n_candidates
        return is_whole and super().is_plausible(study)

    def shapes(self, _study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each candidate."""
        return {"sums": (self.n_policies,)}

    def fault_in(self, answer: NoisedScores, study: Study, n_rows: int) -> str | None:
        """Check for one sum per candidate, none larger than its rows and noise allow."""
        if len(answer.sums) != self.n_policies:
            return f"scored {len(answer.sums)} candidates of {self.n_policies}"
        return beyond_rows(answer, study, n_rows)


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


def _gains_move(study: Study) -> float:
    """How far a row moves the gains: it meets one question per level of the tree."""
    setting = PrivateSetting(study)
    return setting.bounds.contrast * setting.tables.gains_move


@message
class NoisedGains(Message, code=98):
    """By question and narrow bin, Σ Γ̂(yes) − Γ̂(no), bounded row by row, in units, with noise."""

    gains: Annotated[
        Array, (Axis.QUESTIONS, Axis.NEAR_BINS), Moves(_gains_move, "gains"), PerClient
    ]


@message
class LookPrivately(Query[NoisedGains], code=34, asked=Asked.EACH):
    """Ask what this tree would gain from thresholds close to its own."""

    title = "Sums close to thresholds, with noise"
    content = "by question: differences of scores between thresholds"
    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]
    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is searched for with differential privacy, and its thresholds may move."""
        if study.privacy is None or not study.policy.on_grid:
            return False
        return PrivateSetting(study).tables.may_refine

    def is_plausible(self, study: Study) -> bool:
        """Check for a tree of this study: in a deeper one a row counts in more questions."""
        try:
            root = from_array(self.tree, study.columns, range(study.n_actions))
        except ValueError:
            return False
        return 0 < depth_of(root) <= study.tree.depth and super().is_plausible(study)

    def look(self, study: Study) -> SecondLook:
        """The tree, and the thresholds near those of its questions."""
        root = from_array(self.tree, study.columns, range(study.n_actions))
        return PrivateSetting(study).tables.look(root)

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each narrow bin of each question."""
        return {"gains": (len(branches_of(self.look(study).root)), NEAR_BINS)}

    def fault_in(self, answer: NoisedGains, study: Study, n_rows: int) -> str | None:
        """Check for numbers for each question, none larger than its rows and noise allow."""
        if len(answer.gains) != len(branches_of(self.look(study).root)):
            return "the gains are not those of the questions"
        return beyond_rows(answer, study, n_rows)


def n_own_candidates(study: Study) -> int:
    """The number of further candidates: what was done, and without masks the own policy."""
    return N_OWN_CANDIDATES - adds_under_masks(study)


def _sums_move(study: Study) -> float:
    return PrivateSetting(study).longest_scores


def _squares_move(study: Study) -> float:
    """How far a row moves squares: the Frobenius length of zzᵀ is |z|²."""
    return PrivateSetting(study).longest_scores ** 2


@message
class NoisedValues(Message, code=92):
    """Σ z and Σ zzᵀ over held-out rows, with noise.

    z are scores of candidates, in half-ranges of the outcome, rotated so that noise is small where
    it matters: `score_axes`.
    """

    n_rows: Annotated[int, UNMOVED, PerClient]
    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_sums_move, "values"), PerClient]
    squares: Annotated[
        Array, (Axis.CANDIDATES, Axis.CANDIDATES), Moves(_squares_move, "value squares"), PerClient
    ]


@message
class AsksForNoisedValues(AsksForNoisedScores[AnswerType]):
    """Ask for the values of policies on held-out rows, with these outcome models, with noise."""

    content = "sums of scores of what policies decide, and of their squares"

    def is_plausible(self, study: Study) -> bool:
        """Check the number of policies, for which the noise is set."""
        return self.n_policies == N_VALUED and super().is_plausible(study)

    def fault_in(self, answer: Any, study: Study, _n_rows: int) -> str | None:
        """Check for one sum per candidate, none larger than the held-out rows and noise allow."""
        n_candidates = self.n_policies + n_own_candidates(study)
        if len(answer.sums) != n_candidates or answer.squares.shape != (n_candidates,) * 2:
            return f"valued {len(answer.sums)} policies of {n_candidates}"
        if answer.n_rows <= 0:
            return "valued policies on no rows"
        return beyond_rows(answer, study, answer.n_rows)


@message
class ValuePrivately(
    AsksForNoisedValues[NoisedValues], code=28, asked=Asked.EACH, permission="values"
):
    """Value policies on held-out rows, with these outcome models."""

    title = "What policies are worth, with noise"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has differential privacy and held-out rows."""
        return study.privacy is not None and study.evaluation.share > 0

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each candidate, and for every two."""
        n_candidates = self.n_policies + n_own_candidates(study)
        return {"sums": (n_candidates,), "squares": (n_candidates, n_candidates)}


@message
class ValuesApart(Message, code=122):
    """The values of one client, under masks: read unmasked, with all the noise of the promise."""

    n_rows: Annotated[int, UNMOVED, PerClient]
    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_sums_move, "values apart"), PerClient]
    squares: Annotated[
        Array,
        (Axis.CANDIDATES, Axis.CANDIDATES),
        Moves(_squares_move, "value squares apart"),
        PerClient,
    ]


@message
class ValueApart(AsksForNoisedValues[ValuesApart], code=56, asked=Asked.EACH, permission="values"):
    """Ask to value the same policies once more, to be read for each client separately."""

    title = "What policies are worth at each client, with noise"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether answers are masked, and the study reads values of each client separately."""
        return study.privacy is not None and study.privacy.values_apart > 0
