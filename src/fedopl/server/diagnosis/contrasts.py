"""Policies for signed weights, and how far a client's policy values lie from the mixture's.

Σ_c s_c·Q̂_c(π) with signed weights is Σ_c |s_c|·Q̂'_c(π), where Q̂' has the scores sign(s_c)·Γ̂. So
whatever learns a policy for a mixture also finds the best one for a contrast: squares of features
are weighted by |s_c|, products with scores by s_c. At a context x the regression then estimates
Σ s_c·p_c(x)·μ_c(x; a) over Σ |s_c|·p_c(x), which does not depend on the action: its largest action
is the contrast's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid_rules import rules_of
from fedopl.policies.trees.growing import grow_tree
from fedopl.policies.trees.search import FIRST_ACTION
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.server.aggregate.score_statistics import Statistics
from fedopl.server.mixtures.any_statistics import AnyStatistics, Solved
from fedopl.server.mixtures.finite_statistics import FiniteStatistics
from fedopl.server.mixtures.valued_groups import Ask, Valued, value_groups
from fedopl.server.oracles.tree_search import TreeStatistics, mixed_cells
from fedopl.study.mixture import Weights
from fedopl.theory.discrepancy import Discrepancy

# A contrast this small is none: weights are given with errors of rounding.
NOTHING = 1e-12


def contrast_with_mixture(weights: Weights, target: str) -> Weights:
    """s_c = 1{c = t} − λ_c, so that Σ_c s_c·Q_c = Q_t − Q_λ."""
    if target not in weights:
        raise OptionError(f"target: '{target}' is not one of {quoted(sorted(weights))}")
    signed = {name: (name == target) - weights[name] for name in sorted(weights)}
    return {name: sign if abs(sign) > NOTHING else 0.0 for name, sign in signed.items()}


def solve_contrast(statistics: AnyStatistics, signed: Mapping[str, float]) -> Solved:
    """The policy that maximises Σ_c s_c·Q̂_c(π) on training rows; nobody is asked anything.

    A linear one by least squares as in CSOAA; the best candidate; or a tree exactly, the best of at
    most depth two, whose splits cost nothing. No policy takes an action that a client with weight
    has no score for, since nobody knows its contrast.
    """
    if isinstance(statistics, FiniteStatistics):
        return statistics.best(_weighing(signed, statistics.means))
    if isinstance(statistics, TreeStatistics):
        return _best_tree(statistics, _weighing(signed, statistics.cells))
    return _regressed(statistics, _weighing(signed, statistics.sums))


def _weighing(signed: Mapping[str, float], there: Mapping[str, object]) -> Weights:
    weighing = {name: sign for name, sign in sorted(signed.items()) if sign}
    missing = [name for name in weighing if name not in there]
    if missing or not weighing:
        raise OptionError(
            f"signed: no sums of {quoted(missing)}"
            if missing
            else "signed: expected a weight that is not 0"
        )
    return weighing


def _sizes(signed: Weights) -> Weights:
    total = sum(abs(sign) for sign in signed.values())
    return {name: abs(sign) / total for name, sign in signed.items()}


def _regressed(statistics: Statistics, signed: Weights) -> LinearPolicy:
    shares = np.stack([statistics.sums[name].shares for name in signed])
    known = _known_by_all(shares > 0, signed)
    flipped = {
        name: replace(
            statistics.sums[name],
            products=np.sign(sign) * statistics.sums[name].products,
            shares=np.where(known, statistics.sums[name].shares, 0.0),
        )
        for name, sign in signed.items()
    }
    # Weighing clients by precision would be another contrast than the one asked for.
    study = statistics.study.model_copy(update={"precision": "rows"})
    return Statistics(study=study, sums=flipped).solve(_sizes(signed))


def _best_tree(statistics: TreeStatistics, signed: Weights) -> TreePolicy:
    study, grid = statistics.study, statistics.grid
    n_actions = study.n_actions
    rests_on = [_rests_on(grid.line(statistics.cells[name], 0), n_actions) for name in signed]
    known = _known_by_all(np.stack(rests_on) > 0, signed)
    flipped = {
        name: _flipped(statistics.cells[name], float(np.sign(sign)), known)
        for name, sign in signed.items()
    }
    cells = mixed_cells(flipped, _sizes(signed))
    rules = replace(rules_of(study.tree, study.columns, grid, study.actions), split_cost=0.0)
    depth = min(study.tree.depth, LOOK_AHEAD)
    root, value = grow_tree(grid, depth, rules, lambda _: [cells])
    if not np.isfinite(value):
        raise FederationError("no tree keeps to the rules of the study")
    return TreePolicy(root, study.actions, study.features, study.encoding)


def _rests_on(line: FloatArray, n_actions: int) -> FloatArray:  # (n_actions,)
    """The weight of the rows that have each action's score; all of it where none is told."""
    told = line[:, FIRST_ACTION + n_actions :].sum(axis=0)
    return told if told.size else np.ones(n_actions)


def _flipped(cells: FloatArray, sign: float, known: BoolArray) -> FloatArray:
    """The cells with scores of this sign, and without those that are not known of everybody."""
    flipped = cells.copy()
    n_actions = len(known)
    flipped[:, FIRST_ACTION : FIRST_ACTION + n_actions] *= sign * known
    if cells.shape[1] > FIRST_ACTION + n_actions:
        flipped[:, FIRST_ACTION + n_actions :] *= known
    elif not known.all():  # all its scores are known, but not everybody's are
        rests_on = np.outer(cells[:, 1], known)
        flipped = np.concatenate([flipped, rests_on], axis=1)
    return flipped


def _known_by_all(scored: BoolArray, signed: Weights) -> BoolArray:  # (n_actions,)
    known: BoolArray = np.asarray(scored.all(axis=0))
    if not known.any():
        raise FederationError(f"contrast: no action has scores of all of {quoted(list(signed))}")
    return known


# --- the discrepancy -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredDiscrepancy:
    """How far a client's values lie from the mixture's, at two policies learned to show it.

    Learned on training rows and valued on held-out ones, so each number estimates what is true of
    one policy without bias; a supremum over the class is at least that.
    """

    client: str
    above: Estimate  # Q_c − Q_λ at a policy learned for that; < 0 where any policy is worth less
    below: Estimate  # Q_λ − Q_c at another
    gap: Estimate  # the sum of both, paired

    @property
    def shown(self) -> Discrepancy:
        """What the held-out rows show, and no more.

        Either side may be negative, where rewards are higher or lower whatever is done. Their sum
        never is, so it counts as nothing if it is estimated below 0.
        """
        above = self.above.value
        return Discrepancy(above=above, below=max(self.below.value, -above))

    @property
    def regret_gap(self) -> float:
        """A lower bound, but for noise, of how much R_c may exceed R_λ by shift."""
        return max(self.gap.value, 0.0)

    @property
    def largest(self) -> float:
        """A lower bound, but for noise, of sup_π |Q_c(π) − Q_λ(π)|."""
        return max(self.above.value, self.below.value, 0.0)

    @property
    def is_sure(self) -> bool:
        """Whether the 95 % interval of the gap leaves out 0."""
        return self.gap.interval()[0] > 0


def measure_discrepancies(
    statistics: AnyStatistics, weights: Weights, ask: Ask, *, most: int
) -> dict[str, MeasuredDiscrepancy]:
    """Of every client from the mixture; a client that is the whole mixture has none.

    Two policies for each client, which have to come in one query.
    """
    contrasts = {name: contrast_with_mixture(weights, name) for name in sorted(weights)}
    contrasts = {name: signed for name, signed in contrasts.items() if any(signed.values())}
    pairs = [
        [solve_contrast(statistics, signed), solve_contrast(statistics, negative(signed))]
        for signed in contrasts.values()
    ]
    valued = value_groups(ask, pairs, most=most)
    return {
        name: _measured(name, signed, found)
        for (name, signed), found in zip(contrasts.items(), valued, strict=True)
    }


def _measured(client: str, signed: Weights, valued: list[Valued]) -> MeasuredDiscrepancy:
    first, second = valued
    return MeasuredDiscrepancy(
        client=client,
        above=first.value(signed),
        below=second.value(negative(signed)),
        gap=first.gain(signed, second.place),
    )


def negative(signed: Weights) -> Weights:
    """The contrast the other way round."""
    return {name: -sign for name, sign in signed.items()}
