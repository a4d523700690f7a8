"""The values of several policies on the same rows, and how those values vary together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in, remembered_as
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.near_identical import Decides, first_near_identical
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues, Values
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: EstimateValues) -> Values:
    """The values of the policies asked about, of the logging policy and of the client's own."""
    n_values = query.n_policies + N_OWN_CANDIDATES
    _check_rows(space, n_values, space.n_rows(query.split))
    found = estimate_candidates(space, query)
    # Rows without a score were left out: the limits are for those that remain.
    _check_rows(space, n_values, found.n_rows)
    return Values(**vars(found))


def _check_rows(space: Workspace, n_values: int, n_rows: int) -> None:
    if n_rows < space.limits.minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_values, n_rows)


def estimate_candidates(space: Workspace, query: EstimateValues) -> JointEstimate:
    """Estimate what was asked about, then the logging policy, then the client's own policy.

    Policies that differ in a few rows only, from each other, from any valued before or from the
    client's own, would disclose those rows' scores: the later one is valued as the earlier.
    """
    minimum_cell = space.limits.minimum_cell
    if not space.n_rows(query.split):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    own = [space.local_policy.decide] if query.split is RowSplit.EVALUATION else []
    valued = deciders(space, policies_in(query))
    places: IntArray = np.arange(len(valued))
    if minimum_cell:
        valued, places = _distinct(space, query, own)
    sums, left_out = JointSums(), _LeftOut()
    for chunk in space.chunks():
        rows = chunk.rows(query.split)
        values = _values(chunk, rows, valued, own)
        left_out.see(np.asarray(np.isfinite(values).all(axis=1)))
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
    if minimum_cell:
        left_out.check(space, query.split, minimum_cell)
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    every = [*places, len(valued), len(valued) + 1]  # policies that are alike share a place
    return replace(found, means=found.means[every], covariances=found.covariances[every][:, every])


def _values(
    chunk: ScoredChunk, rows: slice, valued: Sequence[Decides], own: Sequence[Decides]
) -> FloatArray:  # (n_rows, n_policies + 2)
    """The scores of what policies decide, the rewards, and the scores of the own policy."""
    contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
    rewards = chunk.data.rewards[rows]
    row = np.arange(len(scores))
    columns = [scores[row, decide(contexts)] for decide in valued]
    columns.append(rewards)
    columns += [scores[row, decide(contexts)] for decide in own] or [rewards]
    return np.column_stack(columns)


def _distinct(
    space: Workspace, query: EstimateValues, own: Sequence[Decides]
) -> tuple[list[Decides], IntArray]:
    """The policies that may be valued, and the place among them of each that was asked about."""
    what = remembered_as(query.split)
    asked = policies_in(query)
    earlier = [*own, *deciders(space, space.history.released(what))]
    decide = deciders(space, asked)
    stands_for = first_near_identical(
        earlier, decide, _compared(space, query.split), space.limits.minimum_cell
    )
    new = sorted(set(stands_for[stands_for >= len(earlier)].tolist()))
    space.history.add(what, [asked[place - len(earlier)] for place in new])
    used, places = np.unique(stands_for, return_inverse=True)
    every = [*earlier, *decide]
    return [every[place] for place in used], places


def _compared(space: Workspace, split: RowSplit) -> Iterator[tuple[FloatArray, BoolArray]]:
    """Rows on which policies have to differ, and which of them they are valued on."""
    for chunk in space.unscored_chunks():
        rows = chunk.rows(split)
        seen = rows if split is RowSplit.EVALUATION else chunk.training
        valued = np.zeros(seen.stop - seen.start, bool)
        valued[rows.start - seen.start : rows.stop - seen.start] = True
        yield chunk.data.contexts[seen], valued


class _LeftOut:
    """Which rows an answer rests on: how many, and a sum of numbers drawn for each."""

    def __init__(self) -> None:
        self._start = 0
        self._known = np.zeros(2, np.uint64)
        self._all = np.zeros(2, np.uint64)

    def see(self, known: BoolArray) -> None:
        """Take note of these rows, of which those known count."""
        drawn = np.asarray(np.random.PCG64(self._start).random_raw(len(known)))
        self._start += len(known)
        self._all += np.array([len(known), drawn.sum()], np.uint64)
        self._known += np.array([known.sum(), drawn[known].sum()], np.uint64)

    def check(self, space: Workspace, split: RowSplit, least: int) -> None:
        """Refuse to leave out a few rows, of all or of those that an earlier answer rests on.

        Rows without a score are left out: two answers about one policy would disclose the few
        between. Other rows in nearly the same number may differ by a few.
        """
        what = f"rows known {split.name}"
        for earlier in (self._all, *(item["rows"] for item in space.history.released(what))):
            apart = abs(int(earlier[0]) - int(self._known[0]))
            if not np.array_equal(earlier, self._known) and apart < least:
                raise RefusedError(RefusalCode.SMALL_CELLS)
        space.history.add(what, [{"rows": self._known}])
