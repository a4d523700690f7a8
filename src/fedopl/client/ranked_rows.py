"""Scores beside decisions: margins, ranks, and which rows get actions of limited supply."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError, PolicyError
from fedopl.base.labels import quoted
from fedopl.client.scoring.net_scores import costs_in
from fedopl.policies.policy import Policy
from fedopl.solvers.places import decide_within, fill_places, gain_over_others

MARGIN, RANK, COST = "margin", "rank", "cost"


@dataclass(frozen=True, eq=False, kw_only=True)
class Affordable:
    """The largest mean cost of a decision over the rows of a table, and the costs of actions."""

    most: float
    costs: FloatArray  # (n_actions, n_features + 1), linear in features

    def check(self, n_actions: int, n_features: int) -> None:
        """Raise an error unless the budget is above 0 and costs are of these actions."""
        if not (np.isfinite(self.most) and self.most > 0):
            raise OptionError(f"budget: expected a number above 0, came {self.most:g}")
        if self.costs.shape != (n_actions, n_features + 1):
            raise OptionError("budget: costs are of other actions or features than the policy's")

    def of(self, contexts: FloatArray, features: tuple[str, ...]) -> FloatArray:
        """The cost of each action in each row, (n_rows, n_actions)."""
        for place in np.flatnonzero(self.costs[:, :-1].any(axis=0)):
            name = features[place]
            gap = f"{name} is missing"
            marked = contexts[:, features.index(gap)] if gap in features else 0.0
            wrong = np.count_nonzero((contexts[:, place] < 0) | (marked != 0))
            if wrong:
                raise DataError(
                    f"column '{name}' is the cost of an action; {wrong:,} rows have no "
                    f"cost there, or one below 0; complete it"
                )
        return costs_in(contexts, self.costs)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The columns to add to decisions, and how many places each action has."""

    over: str | None = None  # the action that margins are over; by default the best other one
    places: Mapping[str, int] = field(default_factory=dict)  # by action
    fill: bool = False  # fill every place, even with rows that are better off without
    affordable: Affordable | None = None  # a budget for all rows together

    def check(self, actions: tuple[str, ...]) -> None:
        """Raise an error unless all named actions exist and the options fit together."""
        named = [*self.places, *([self.over] if self.over is not None else [])]
        unknown = [action for action in named if action not in actions]
        if unknown:
            raise OptionError(f"{quoted(unknown)} is no action; there are {quoted(actions)}")
        for action, n_places in self.places.items():
            if n_places < 0:
                raise OptionError(f"places: '{action}' cannot have {n_places}; 0 or more")
        if self.fill and not self.places:
            raise OptionError("fill: there are no places to fill; say places= (--places)")
        if self.affordable and self.places:
            raise OptionError("budget: say either what may be spent, or how many places there are")


class RankedRows:
    """The scores of all rows, 8 bytes for each row and action, and margins and ranks from them.

    With a budget, costs are kept as well.
    """

    def __init__(self, policy: Policy, ranking: Ranking) -> None:
        ranking.check(policy.action_names)
        self._policy, self._ranking, self._actions = policy, ranking, policy.action_names
        policy.worth(np.empty((0, len(policy.feature_names))))  # an error if it has no scores
        if ranking.affordable:
            ranking.affordable.check(len(self._actions), len(policy.feature_names))
        self._costs: list[FloatArray] = []
        self.cost: FloatArray = np.empty(0)  # of what is decided, if there is a budget
        self._parts: list[tuple[FloatArray, IntArray]] = []
        self.codes: IntArray = np.empty(0, np.int64)
        self._scores = self._margins = np.empty(0)
        self._ranks: IntArray = np.empty(0, np.int64)

    @property
    def names(self) -> list[str]:
        """The names of the columns of scores, cost, margin and rank."""
        cost = [COST] if self._ranking.affordable else []
        return [*(f"score: {action}" for action in self._actions), *cost, MARGIN, RANK]

    def see(self, contexts: FloatArray, codes: IntArray, kept: BoolArray | slice) -> None:
        """Add a batch: `contexts` are those of the kept rows; the other rows are undecided."""
        scores = np.full((len(codes), len(self._actions)), np.nan)
        worth = self._policy.worth(contexts)
        scores[kept] = np.where(self._policy.forbidden(contexts), np.nan, worth)
        self._parts.append((scores, codes.astype(np.int16)))
        if self._ranking.affordable:
            costs = np.zeros_like(scores)
            costs[kept] = self._ranking.affordable.of(contexts, self._policy.feature_names)
            self._costs.append(costs)

    def finish(self) -> None:
        """Assign places, and rank the rows."""
        scores, codes = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        self._parts.clear()
        self._scores, self.codes = scores, codes.astype(np.int64)
        decided = self.codes < len(self._actions)
        if self._ranking.places or self._ranking.affordable:
            self._fill(decided)
        self._margins = self._margin(decided)
        order = np.argsort(-self._margins, kind="stable")  # rows without a margin come last
        self._ranks = np.empty(len(order), np.int64)
        self._ranks[order] = np.arange(1, len(order) + 1)

    def _fill(self, decided: BoolArray) -> None:
        usable = np.where(np.isnan(self._scores[decided]), -np.inf, self._scores[decided])
        n_unknown = np.count_nonzero(np.isneginf(usable).all(axis=1))
        if n_unknown:
            raise PolicyError(
                f"{n_unknown:,} rows have no score of any action they may get, so what they "
                "would gain is not known"
            )
        if self._ranking.affordable:
            costs, rows = np.concatenate(self._costs), np.flatnonzero(decided)
            self._costs.clear()
            self.codes[rows] = decide_within(usable, costs[rows], self._ranking.affordable.most)
            self.cost = np.full(len(costs), np.nan)
            self.cost[rows] = costs[rows, self.codes[rows]]
            return
        places = {self._actions.index(name): n for name, n in self._ranking.places.items()}
        self.codes[decided] = fill_places(usable, places, fill=self._ranking.fill)

    def _margin(self, decided: BoolArray) -> FloatArray:  # (n_rows,)
        """The score of what is decided, less that of the second best, or of the named action.

        If one action has places, the margin is what that action gains over the best other one.
        """
        scores = np.where(np.isnan(self._scores), -np.inf, self._scores)
        rows, codes = np.arange(len(scores)), np.where(decided, self.codes, 0)
        own = scores[rows, codes]
        with np.errstate(invalid="ignore"):
            if self._ranking.over is not None:
                margin = own - scores[:, self._actions.index(self._ranking.over)]
            elif len(self._ranking.places) == 1:
                (action,) = self._ranking.places
                margin = gain_over_others(scores, self._actions.index(action))
            else:
                scores[rows, codes] = -np.inf
                margin = own - scores.max(axis=1)
        return np.where(decided & np.isfinite(margin), margin, np.nan)

    def columns(self, rows: slice) -> list[FloatArray | IntArray]:
        """The columns of these rows, in the order of `names`; NaN and 0 where there is nothing."""
        margins = self._margins[rows]
        ranks = np.where(np.isnan(margins), 0, self._ranks[rows])
        cost = [self.cost[rows]] if self._ranking.affordable else []
        return [*self._scores[rows].T, *cost, margins, ranks]
