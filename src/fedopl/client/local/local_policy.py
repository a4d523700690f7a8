"""The local policy: what one client would learn from its own rows alone; it is never released."""

from collections.abc import Callable, Iterator

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.local_tree import best_local_tree
from fedopl.client.local.score_means import means_of
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.rows.study_rows import StudyRows
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import as_array
from fedopl.solvers import least_squares
from fedopl.solvers.linear_solvers import solve_scores
from fedopl.study.study import Study

# Chunks with their scores; called once for every pass.
ScoredChunks = Callable[[], Iterator[ScoredChunk]]


def learn_local_policy(
    rows: StudyRows, study: Study, parts: ScoredChunks, blocks: list[IntArray] | None
) -> FloatArray:  # the numbers of a policy of the local kind
    """By the exact oracle or search, on scores that rest on nobody else."""
    if study.policy.local_kind == TreePolicy.kind:
        return _tree(rows, study, parts)
    means = means_of(parts, rows, blocks, complete=True)
    parameters = solve_scores(
        means.grams, means.products, means.squares, means.shares, intercept=study.has_intercept
    )
    return least_squares.widen(parameters, blocks, len(study.features))


def _tree(rows: StudyRows, study: Study, parts: ScoredChunks) -> FloatArray:  # (n_nodes, 4)
    if rows.given.is_on_disk and study.tree.thresholds == "observed":
        raise RefusedError(RefusalCode.ROWS_ON_DISK)

    def scored() -> Iterator[ScoredRows]:
        return (chunk.scored_rows() for chunk in parts())

    found = scored
    if not rows.given.is_on_disk:
        whole = list(scored())  # scored once, and gone through for every level
        found = lambda: iter(whole)  # noqa: E731
    return as_array(best_local_tree(found, study.tree, study.columns, study.actions))
