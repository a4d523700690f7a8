"""Thresholds of a tree, from counts of rows in public bins."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.messages.trees.bin_counts import N_FINE_BINS, CountBins
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.grid import Grid, agreed_grid
from fedopl.policies.trees.nodes import Branch
from fedopl.policies.trees.second_look import BINS_TO_A_SIDE, window
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import Empirical

# The first bins reach this many standard deviations to both sides of the mean.
_REACH = 4.0
# A second look tries cuts of the fine bins, which are as fine with fewer bins as with this many.
_LOOK_BINS = 32


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of all clients' rows between public cuts, by column."""

    cuts: Mapping[str, FloatArray]  # each (n_fine_bins − 1,)
    rows: Mapping[str, FloatArray]  # each (n_fine_bins,)

    def thresholds(self, column: str, n_bins: int) -> list[float]:
        """Thresholds that divide rows into about equally full bins."""
        return thresholds(self.cuts[column], self.rows[column], n_bins)

    def beside(self, column: str, branch: Branch, grid: Grid) -> list[float]:
        """Thresholds on both sides of a question's threshold, with about equally full bins."""
        low, high = window(grid, branch)
        cuts, rows, found = self.cuts[column], self.rows[column], []
        for least, most in ((low, branch.cut), (branch.cut, high)):
            within = np.flatnonzero((cuts > least) & (cuts < most))
            if len(within):
                between = rows[within[0] : within[-1] + 2]
                proposed = thresholds(cuts[within], between, BINS_TO_A_SIDE)
                found += [cut for cut in proposed if least < cut < most]
        return found


def agree_on_grid(setting: Setting, conversation: Conversation) -> tuple[Grid, Counts]:
    """The grid, and the counts that it is based on.

    It has the study's thresholds. For other columns it has thresholds with about equally full bins.
    """
    study, counts = setting.study, Counts({}, {})
    if study.cut_columns:
        counts = _counted(setting, conversation)
    proposed = {name: counts.thresholds(name, study.tree.bins) for name in counts.cuts}
    return agreed_grid(study.tree, study.columns, proposed), counts


def _counted(setting: Setting, conversation: Conversation) -> Counts:
    """Counts of rows between cuts that are fine enough for the bins and for a second look."""
    study = setting.study
    # Weighted by rows, not by the mixture, so that all mixtures have the same grid.
    by_rows = Empirical().weights({name: setting.rows[name] for name in setting.weights})
    centre, scale = setting.statistics.standardisation(by_rows)
    features = [column.feature for column in study.cut_columns]
    steps = np.linspace(-_REACH, _REACH, N_FINE_BINS - 1)
    cuts = _rounded(centre[features, None] + scale[features, None] * steps)
    counts = conversation.total(CountBins(cuts=cuts), setting.weights).counts
    least = _LOOK_BINS if SumNearThresholds.needed(study) else 0
    n_bins = max(study.tree.bins, least)
    finer = [_finer(*one, n_bins) for one in zip(cuts, counts, strict=True)]
    if any(one is not None for one in finer):
        kept = zip(cuts, finer, strict=True)
        cuts = np.array([own if more is None else _rounded(more) for own, more in kept])
        counts = conversation.total(CountBins(cuts=cuts), setting.weights).counts
    names = [column.name for column in study.cut_columns]
    return Counts(dict(zip(names, cuts, strict=True)), dict(zip(names, counts, strict=True)))


def thresholds(cuts: FloatArray, counts: FloatArray, n_bins: int) -> list[float]:
    """Thresholds that make bins about equally full: round numbers among the fine cuts.

    Neighbouring cuts with no row in between split the rows in the same way. The threshold is then
    in the middle of them. So values that come in steps are cut between two steps.
    """
    total = counts.sum()
    if not total:
        return []
    below = np.cumsum(counts)[:-1] / total  # at each cut
    shares = np.unique(below[(below > 0) & (below < 1)])
    if not len(shares):
        return []
    chosen = shares
    if len(shares) >= n_bins:
        wanted = np.arange(1, n_bins) / n_bins
        chosen = np.unique(shares[np.abs(shares[None] - wanted[:, None]).argmin(axis=1)])
    found = []
    for share in chosen:
        alike = cuts[below == share]
        found.append(_round_number(float(alike[0]), float(alike[-1])))
    return found


def _finer(cuts: FloatArray, counts: FloatArray, n_bins: int) -> FloatArray | None:
    """Finer cuts inside the bins that hold too many rows beside a bin that has rows, too.

    None if there is no such bin.
    """
    inner = counts[1:-1]
    shares = inner / max(counts.sum(), 1.0)
    busy: BoolArray = counts > 0
    heavy = (shares > 1 / n_bins) & (busy[:-2] | busy[2:])
    if not heavy.any():
        return None
    edges = np.array([cuts[0], cuts[-1], *cuts[:-1][heavy], *cuts[1:][heavy]])
    edges = np.unique(edges)
    weight = np.interp(edges, cuts, np.cumsum(counts)[:-1])
    n_more = N_FINE_BINS - 1 - len(edges)
    levels = np.linspace(weight[0], weight[-1], n_more + 2)[1:-1]
    # `interp` needs increasing numbers, but empty bins do not increase the weight.
    rising = weight + np.arange(len(weight)) * 1e-9 * max(weight[-1], 1.0)
    return np.sort(np.concatenate([edges, np.interp(levels, rising, edges)]))


def _rounded(cuts: FloatArray) -> FloatArray:  # shaped as cuts
    """The cuts with as few digits as keep them apart."""
    apart = np.diff(cuts)
    least = np.min(apart, axis=-1, keepdims=True, where=apart > 0, initial=np.inf)
    step = 10.0 ** np.floor(np.log10(np.where(np.isfinite(least), least, 1.0)))
    inverse = np.round(1 / np.minimum(step, 1.0))  # exact, unlike a negative power of ten
    fine = np.round(cuts / step) * np.maximum(step, 1.0) / inverse
    return fine + 0.0  # not −0.0


def _round_number(low: float, high: float) -> float:
    """A number with few digits near the middle between low and high."""
    if low == high:
        return low
    middle = (low + high) / 2
    digits = -math.floor(math.log10(high - low))
    rounded = (round(middle, digits + more) + 0.0 for more in range(4))
    return next((number for number in rounded if low <= number <= high), middle)
