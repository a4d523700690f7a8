"""What policies are worth on a client's rows: the one question for values, and its answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.others_learned import MOST_PERSONAL, CarriesOthers
from fedopl.messages.evaluation.policy_fields import (
    AsksByFold,
    most_in_query,
    valued_split,
)
from fedopl.messages.message import (
    LARGEST_ASKED,
    Array,
    Asked,
    Axis,
    Message,
    RowSplit,
    message,
)
from fedopl.messages.plausibility import (
    CELL_TOLERANCE,
    EIGENVALUE_TOLERANCE,
    SLACK,
    fault_in_moments,
)
from fedopl.policies.trees.nodes import LEAF, NODE_NUMBERS
from fedopl.study.guardrail import guarded_columns
from fedopl.study.mixture import BestSkew, Minimax
from fedopl.study.study import Study

# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
NO_FOLD = -1  # that all training rows count
NO_ACTION = -1  # that gains are over: values are asked for, and not what is spent
N_PRICES = 64
# Trees along a path of prices: a few questions have few answers, so few trees are any different.
N_TREES = 16
# Queries for each client's own policy, where regrets are against it, and where clients are
# compared: enough for a hundred clients.
MOST_OWN, MOST_COMPARED = 256, 64
# Whole groups of rows are held out together, so their rows need not be in the agreed proportion.
MOST_BY_GROUPS = 20
MOST_WIDER = 3.0  # the largest factor of a difference's variance across folds
ROUNDING_OF_SQUARES = 1e-13  # the rounding error of a sum of squares, as a share of it
# The columns of a part: of a policy alone, and of a candidate in a leaf.
SPENDING = ("gain", "spent")
IN_LEAVES = ("value", "gain", "alike")


def n_priced(study: Study) -> int:
    """How many policies may meet a budget: at prices, trees along a path, or candidates."""
    if study.policy.compares_candidates:
        return len(study.candidates)
    return N_TREES if study.policy.on_grid else N_PRICES


def n_points(study: Study) -> int:
    """These, everybody getting each of the actions, and what was done; nothing without a budget."""
    return 0 if study.budget is None else n_priced(study) + study.n_actions + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Values:
    """Means of columns over the same rows, and the covariances of those means."""

    n_rows: int  # that all columns are known of
    of_rows: int  # that there are
    degrees_of_freedom: int
    means: FloatArray  # (n_columns,)
    covariances: FloatArray  # (n_columns, n_columns)

    def picked(self, places: Sequence[int]) -> Self:
        """The values of the columns at these places."""
        square = np.ix_(places, places)
        return replace(self, means=self.means[places], covariances=self.covariances[square])

    def variance(self, contrast: FloatArray) -> float:
        """The variance of a contrast; zero if it is no larger than rounding.

        Policies that decide alike differ only by rounding.
        """
        found = float(contrast @ self.covariances @ contrast)
        size = float(np.abs(contrast) @ np.abs(self.covariances) @ np.abs(contrast))
        return found if found > ROUNDING_OF_SQUARES * size else 0.0


@message
class ValuesByPart(Message, code=158):
    """Values in each leaf of a tree, or of everybody, in parts.

    The columns of a part are known of the same rows. One part has all candidates; or each policy is
    one, with what it gains and spends, or with what it is worth in leaves. A leaf with too few rows
    has zeros, and so has a part with too few of them.
    """

    of_rows: Annotated[Array, (Axis.LEAVES,), PerClient]  # that there are
    shares: Annotated[Array, (Axis.LEAVES,), PerClient]  # of all rows, by weight
    n_rows: Annotated[Array, (Axis.LEAVES, Axis.PARTS), PerClient]  # that all columns are known of
    degrees_of_freedom: Annotated[Array, (Axis.LEAVES, Axis.PARTS), PerClient]
    means: Annotated[Array, (Axis.LEAVES, Axis.PARTS, Axis.CANDIDATES), PerClient]
    covariances: Annotated[
        Array, (Axis.LEAVES, Axis.PARTS, Axis.CANDIDATES, Axis.CANDIDATES), PerClient
    ]

    def together(self) -> Values:
        """The values of all candidates, where they are one part."""
        return self.part(0)

    def part(self, place: int, leaf: int = 0) -> Values:
        """The values of one part."""
        return Values(
            n_rows=int(self.n_rows[leaf, place]),
            of_rows=int(self.of_rows[leaf]),
            degrees_of_freedom=int(self.degrees_of_freedom[leaf, place]),
            means=self.means[leaf, place],
            covariances=self.covariances[leaf, place],
        )

    def likely_shares(self) -> FloatArray:  # (n_leaves,)
        """Shares of rows; what is left is divided alike between leaves that were left out."""
        left_out = self.shares <= 0
        rest = max(1 - float(self.shares.sum()), 0.0)
        return np.where(left_out, rest / max(int(left_out.sum()), 1), self.shares)


@message
class Value(
    AsksByFold[ValuesByPart],
    CarriesOthers[ValuesByPart],
    code=159,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what these policies are worth on rows of this split, by an outcome of the study.

    To choose by these values for a fold, they are without it. If what all others learned comes
    along, the client moves it toward its own rows, and tells what its personal policy is worth,
    too. If gains over one action for all are asked for, these are told with what is spent: of every
    policy, at every price, then of every action given to everybody, then of what was done. At a
    price μ, a linear policy decides by argmax_a θ_aᵀφ(x) − μ·c_a(x), with the study's costs c.

    If a tree comes along, it is told of the rows in each of its leaves what every candidate is
    worth, what that is above what was done, and in which share of rows it decides as the leaf does.
    """

    title = "What policies are worth"
    content = "means of values, and how precise they are"

    split: RowSplit  # of which rows
    outcome: int = 0  # what the study is about; from 1 on, the columns that guardrails are about
    without: int = NO_FOLD  # if not of valued rows, those of this fold do not count
    against: int = NO_ACTION  # the action that gains are over, if spending is asked for
    # Rising from zero; empty for policies that have no price in them.
    prices: Annotated[Array, (Axis.PRICES,)] = field(default_factory=lambda: np.empty(0))
    # The tree in whose leaves values are asked for; empty for values of all rows together.
    tree: Annotated[Array, (Axis.LEAVES_NODES, Axis.NODE_NUMBERS)] = field(
        default_factory=lambda: np.empty((0, NODE_NUMBERS))
    )

    @classmethod
    def content_in(cls, study: Study) -> str:
        """With guardrails or a budget, more columns; and never a client's personal policy."""
        guarded = guarded_columns(study)
        also = f"; also by {', '.join(guarded)}" if guarded else ""
        also += "; also what policies at prices gain and spend" if study.budget else ""
        also += "; also by leaf of the tree" if study.values_leaves else ""
        never = "; never the personal policy itself" if study.personalises else ""
        return cls.content + also + never

    @classmethod
    def most(cls, study: Study) -> int:
        """Those of valued rows, by each outcome; and for each version, values to choose by."""
        # Where rows are held out, what was not learned is valued on all rows, in another query.
        found = (1 + len(guarded_columns(study))) * (1 + (study.evaluation.share > 0))
        found += (study.linear.oracle == "direct") + (study.budget is not None)
        found += study.values_leaves
        found += len(study.left_out) * _n_to_choose_by(study)
        found += study.personalises * (MOST_PERSONAL - 1)
        return found + (MOST_COMPARED if study.joining.diagnose else 0)

    @property
    def n_candidates(self) -> int:
        """How many values of all rows together it asks for."""
        return self.n_asked + self.is_personal + N_OWN_CANDIDATES

    @property
    def is_of_leaves(self) -> bool:
        """Whether it asks for values in the leaves of a tree."""
        return len(self.tree) > 0

    def shape(self, study: Study) -> tuple[int, int, int]:
        """How many leaves, parts and columns its answer has."""
        if self.against != NO_ACTION:
            return 1, n_points(study), len(SPENDING)
        if self.is_of_leaves:
            return int((self.tree[:, 0] == LEAF).sum()), self.n_asked, len(IN_LEAVES)
        return 1, 1, self.n_candidates

    def is_plausible(self, study: Study) -> bool:
        """An outcome and folds that there are, and others' numbers that fit the study."""
        if self.is_by_fold != (self.split is RowSplit.EACH_FOLD) or not self.versions_fit(study):
            return False
        if not self.fits(study, self):
            return False
        if self.against != NO_ACTION or self.is_of_leaves:
            is_usual = self.split is valued_split(study) and self.without == NO_FOLD
            if not is_usual or self.outcome or self.is_personal:
                return False
            if self.is_of_leaves:
                is_one = self.against == NO_ACTION and not len(self.prices)
                return study.values_leaves and is_one and super().is_plausible(study)
            return self._may_meet_budget(study)
        if len(self.prices) or not 0 <= self.outcome <= len(guarded_columns(study)):
            return False
        is_valued = self.split in (RowSplit.EVALUATION, RowSplit.EACH_FOLD)
        if self.is_personal and (self.outcome or not is_valued):
            return False
        if self.split is RowSplit.ALL and study.evaluation.is_cross_fitted:
            return False
        folds = () if is_valued else study.left_out[:-1]
        return self.without in (NO_FOLD, *folds) and super().is_plausible(study)

    def _may_meet_budget(self, study: Study) -> bool:
        """As many policies or prices as the study has, and an action that there is."""
        n_asked, prices = self.n_asked * max(1, len(self.prices)), self.prices
        if study.budget is None or n_asked != n_priced(study):
            return False
        if not 0 <= self.against < study.n_actions:
            return False
        rise = not len(prices) or (prices[0] == 0 and bool((np.diff(prices) > 0).all()))
        has_prices = study.policy.kind == "linear" and prices.max(initial=0) <= LARGEST_ASKED
        return rise and (has_prices or not len(prices))

    def fault_in(self, answer: ValuesByPart, study: Study, n_rows: int) -> str | None:
        """As many parts and columns as were asked for, of rows that are there."""
        shape = self.shape(study)
        if answer.means.shape != shape or answer.covariances.shape != (*shape, shape[-1]):
            came = " × ".join(map(str, answer.means.shape))
            return f"told {came} values of {' × '.join(map(str, shape))}"
        if fault := _fault_in_counts(self, answer, most_rows(study, self.split, n_rows)):
            return fault
        if self.is_of_leaves:
            alike = answer.means[..., IN_LEAVES.index("alike")]
            if (abs(alike - 0.5) > 0.5 + CELL_TOLERANCE).any():
                return "a share of rows is outside 0 to 1"
        elif self.against == NO_ACTION:
            if fault := self._fault_in_logged(answer, study):
                return fault
            if self.is_by_fold:
                return _fault_in_differences(answer.covariances[0, 0])
        return fault_in_moments(answer.covariances)

    def _fault_in_logged(self, answer: ValuesByPart, study: Study) -> str | None:
        """What was done, whose place is next to last, is of what is declared of outcomes."""
        most = None if self.outcome else study.largest_net  # of others, nobody declared a range
        logging = answer.means[0, 0, self.n_candidates - N_OWN_CANDIDATES]
        if most is not None and abs(logging) > most * (1 + CELL_TOLERANCE):
            return f"its mean outcome lies beyond ±{most:g}, by what is declared"
        return None


def _n_to_choose_by(study: Study) -> int:
    """The most queries for values that one version of what is learned is chosen by.

    Candidates are chosen by values. So are mixtures: on a path, and for linear policies by steps.
    """
    plan, policy = study.mixture, study.policy
    if policy.compares_candidates:
        return 3 if isinstance(plan, BestSkew) else 1
    if isinstance(plan, BestSkew):
        return queries_on_path(study, plan)
    return MOST_OWN + plan.steps + 1 if isinstance(plan, Minimax) and not policy.on_grid else 0


def queries_on_path(study: Study, plan: BestSkew) -> int:
    """How many queries carry the policies of a path, and each the one that the path begins with."""
    return math.ceil(len(plan.alphas) / (most_in_query(study) - 1))


def _fault_in_differences(covariances: FloatArray) -> str | None:
    """Check that no value and no difference of two has a variance that none can have.

    Across folds, these are all that covariances say: each was made larger by a factor of its own.
    """
    own = np.diagonal(covariances)
    sizes = own + own[:, None]
    apart = sizes - 2 * covariances
    if own.min() < 0 or (apart < -EIGENVALUE_TOLERANCE * sizes).any():
        return "a variance is negative"
    deviations = np.sqrt(own)
    if (apart > MOST_WIDER * (deviations + deviations[:, None]) ** 2 * (1 + CELL_TOLERANCE)).any():
        return "a difference varies more than the two values together"
    return None


def _fault_in_counts(query: Value, answer: ValuesByPart, most: float) -> str | None:
    """What cannot be true of how many rows are valued; parts of leaves may have none."""
    fewest, free = int(not query.is_of_leaves), answer.degrees_of_freedom
    if {len(answer.of_rows), len(answer.shares), len(answer.n_rows), len(free)} != {
        len(answer.means)
    } or {answer.n_rows.shape[1], free.shape[1]} != {answer.means.shape[1]}:
        return "counts are not those of the leaves and policies"
    if (answer.shares < 0).any() or answer.shares.sum() > 1 + CELL_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    if free.min() < 0:
        return "the degrees of freedom are negative"
    told, there = int(answer.n_rows.max()), int(answer.of_rows.sum())
    if answer.n_rows.min() < fewest or there > most or (answer.of_rows < answer.n_rows.T).any():
        return f"values of {told:,} of {there:,} rows, of which it has fewer"
    if (free > np.maximum(answer.n_rows - 1, 0)).any():
        return "more degrees of freedom than rows"
    return None


def most_rows(study: Study, split: RowSplit, n_rows: int) -> float:
    """How many rows of a split there can be, given how many a client enrolled with, if it did."""
    if not n_rows:
        return math.inf
    if split not in (RowSplit.EVALUATION, RowSplit.ALL):
        return n_rows + SLACK
    held_out = n_rows * study.evaluation.share / (1 - study.evaluation.share)
    without_groups = study.table is not None and study.table.group is None
    most = held_out * (1 if without_groups else MOST_BY_GROUPS) + SLACK * study.n_actions
    return most if split is RowSplit.EVALUATION else most + n_rows
