"""The values of several policies on the same rows, and how those values vary together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, frozen
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.near_identical import Decides, first_near_identical
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.packing import FIELDS, RULES, unpacked


def estimate_candidates(
    space: Workspace, query: EstimateValues, minimum_cell: int
) -> JointEstimate:
    """Estimate what was asked about, then the logging policy, then the client's own policy.

    Policies that differ in a few rows only, from each other, from any valued before or from the
    client's own, would tell those rows' scores: the later one is valued as the earlier.
    """
    if not space.n_rows(query.split):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    own: list[Decides] = []
    if query.split is RowSplit.EVALUATION:
        own = [space.local_policy.decide]
    told = deciders(space, policies_in(query))
    places: IntArray = np.arange(len(told))
    if minimum_cell:
        told, places = _told_apart(space, query, own, minimum_cell)
    sums, left_out = JointSums(), _LeftOut()
    for chunk in space.chunks():
        rows = chunk.rows(query.split)
        values = _values(chunk, rows, told, own)
        left_out.see(np.asarray(np.isfinite(values).all(axis=1)))
        sums.add(values, chunk.weights(rows), chunk.groups(rows))
    if minimum_cell:
        left_out.check(space, query.split, minimum_cell)
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return _in_order(found, [*places, len(told), len(told) + 1])


def _values(
    chunk: ScoredChunk, rows: slice, told: Sequence[Decides], own: Sequence[Decides]
) -> FloatArray:  # (n_rows, n_policies + 2)
    """The scores of what policies decide, the rewards, and the scores of the own policy."""
    contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
    rewards = chunk.data.rewards[rows]
    row = np.arange(len(scores))
    columns = [scores[row, decide(contexts)] for decide in told]
    columns.append(rewards)
    columns += [scores[row, decide(contexts)] for decide in own] or [rewards]
    return np.column_stack(columns)


def _told_apart(
    space: Workspace, query: EstimateValues, own: list[Decides], minimum_cell: int
) -> tuple[list[Decides], IntArray]:
    """The policies that may be valued, and the place among them of each that was asked about."""
    what = told_on(query.split)
    asked = policies_in(query)
    earlier = [*own, *deciders(space, space.history.released(what))]
    decide = deciders(space, asked)
    stands_for = first_near_identical(earlier, decide, _compared(space, query.split), minimum_cell)
    new = sorted(set(stands_for[stands_for >= len(earlier)].tolist()))
    space.history.add(what, [asked[place - len(earlier)] for place in new])
    used, places = np.unique(stands_for, return_inverse=True)
    every = [*earlier, *decide]
    return [every[place] for place in used], places


def told_on(split: RowSplit) -> str:
    """Under which name policies are remembered: splits of the training rows overlap."""
    return "held out" if split is RowSplit.EVALUATION else "training"


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
        drawn = np.random.PCG64(self._start).random_raw(len(known)).astype(np.uint64)
        self._start += len(known)
        self._all += np.array([len(known), _sum(drawn)], np.uint64)
        self._known += np.array([known.sum(), _sum(drawn[known])], np.uint64)

    def check(self, space: Workspace, split: RowSplit, least: int) -> None:
        """Refuse to leave out a few rows, of all or of those that an earlier answer rests on.

        Rows without a score are left out: two answers about one policy would tell of the few
        between. Other rows in nearly the same number may differ by a few.
        """
        what = f"rows known {split.name}"
        for earlier in (self._all, *(item["rows"] for item in space.history.released(what))):
            apart = abs(int(earlier[0]) - int(self._known[0]))
            if not np.array_equal(earlier, self._known) and apart < least:
                raise RefusedError(RefusalCode.SMALL_CELLS)
        space.history.add(what, [{"rows": self._known}])


def _sum(drawn: Any) -> int:
    return int(np.add.reduce(drawn, dtype=np.uint64)) if len(drawn) else 0


def _in_order(found: JointEstimate, places: Sequence[int]) -> JointEstimate:
    """The estimates at these places, some of them more than once."""
    return replace(
        found, means=found.means[places], covariances=found.covariances[np.ix_(places, places)]
    )


# --- policies ------------------------------------------------------------------------------------


def policies_in(query: EstimateValues | Describe) -> list[Arrays]:
    """The policies of a query, each as the field that carried it and its numbers."""
    return [{name: np.asarray(one)} for name in FIELDS for one in getattr(query, name)]


def n_policies(query: EstimateValues | Describe) -> int:
    """How many policies a query asks about."""
    return sum(len(getattr(query, name)) for name in FIELDS)


def deciders(space: Workspace, policies: Sequence[Arrays]) -> list[Decides]:
    """What each of these policies decides, as functions of contexts."""
    return [_decider(space, *next(iter(one.items()))) for one in policies]


def _decider(space: Workspace, field: str, numbers: FloatArray) -> Decides:
    if field == RULES:
        return _rule(space, float(numbers))
    try:
        return unpacked(field, numbers, space.study).decide
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None


def _rule(space: Workspace, position: float) -> Decides:
    """A rule of the client's own code; anything it answers but action codes is a failure."""
    if position not in range(len(space.study.candidates)):
        raise RefusedError(RefusalCode.MALFORMED)
    rule = space.rules[space.study.candidates[int(position)]]
    alone = Lock()  # several threads work on the rows, of which the rule need not know

    def decide(contexts: FloatArray) -> IntArray:
        with alone:
            answered = np.asarray(rule(frozen(contexts)))
        if answered.shape != (len(contexts),) or answered.dtype.kind not in "iub":
            raise RefusedError(RefusalCode.FAILED)
        codes = answered.astype(np.int64)
        if len(codes) and (codes.min() < 0 or codes.max() >= space.study.n_actions):
            raise RefusedError(RefusalCode.FAILED)
        return codes

    return decide
