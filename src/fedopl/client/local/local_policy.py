"""What one client would learn alone: to compare with, and never told."""

from collections.abc import Callable, Iterator

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.local_tree import tree_alone
from fedopl.client.local.score_means import means_of
from fedopl.client.rows.chunks import Chunk, ScoredRows
from fedopl.client.rows.study_rows import DealtRows
from fedopl.messages.vocabulary import RefusalCode
from fedopl.policies.tree import as_array
from fedopl.solvers import least_squares
from fedopl.solvers.linear_solvers import solve_scores
from fedopl.study.study import Study

# Chunks with their scores; called once for every pass.
Parts = Callable[[], Iterator[Chunk]]


def learned_alone(
    rows: DealtRows, study: Study, parts: Parts, blocks: list[IntArray] | None
) -> FloatArray:  # (n_actions, n_features + 1), or a tree's numbers
    """The exact oracle or search on scores that rest on nobody else."""
    if study.policy == "tree":
        return _tree_alone(rows, study, parts)
    means = means_of(parts, rows, blocks, complete=True)
    parameters = solve_scores(
        means.grams, means.products, means.squares, means.shares, intercept=study.has_intercept
    )
    return least_squares.widen(parameters, blocks, len(study.features))


def _tree_alone(rows: DealtRows, study: Study, parts: Parts) -> FloatArray:  # a tree's numbers
    if rows.is_on_disk and study.tree.thresholds == "observed":
        raise RefusedError(RefusalCode.ROWS_ON_DISK)

    def scored() -> Iterator[ScoredRows]:
        return (chunk.scored_rows() for chunk in parts())

    found = scored
    if not rows.is_on_disk:
        whole = list(scored())  # scored once, and gone through for every level
        found = lambda: iter(whole)  # noqa: E731
    return as_array(tree_alone(found, study.tree, study.columns, study.actions))
