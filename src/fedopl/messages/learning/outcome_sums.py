"""The sums that the federation's outcome models are fitted from, and what rows weigh in total."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient, Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CELL_TOLERANCE, SLACK, fault_in_moments
from fedopl.study.study import Study

# With unknown weights, sums may depend mostly on few of the rows, but not on almost none.
LEAST_EFFECTIVE = 0.01


@message
class OutcomeSums(Message, code=66):
    """Σ w·z zᵀ with z = (x, 1, y), and Σ w², for each fold and action."""

    sums: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS, Axis.REGRESSION, Axis.REGRESSION), Sum]
    squared_weights: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS), Sum]

    def contradiction(self, study: Study, n_rows: int) -> str | None:
        """Why a client with these sums cannot have the rows it enrolled with, as agreed."""
        weights, squares = self.sums[..., -2, -2], self.sums[..., -1, -1]
        most = study.declared.reward
        if most is not None and (squares > most**2 * weights * (1 + CELL_TOLERANCE)).any():
            return f"its outcomes lie beyond the declared ±{most:g}"
        # (Σw)²/Σw² counts rows, fewer if weights differ; cells that are 0 may be left out.
        released, of_squares = weights > 0, self.squared_weights
        all_are = np.count_nonzero(released) == released.size  # the usual case
        if not all_are:
            weights, of_squares = weights[released], of_squares[released]
        effective = float((weights**2 / of_squares).ravel().sum())
        without_weights = study.table is not None and study.table.weight is None
        least = n_rows if without_weights else LEAST_EFFECTIVE * n_rows
        slack = SLACK * study.n_actions
        if effective > n_rows + slack or (all_are and effective < least - slack):
            return f"its sums rest on {effective:,.0f} rows, it enrolled with {n_rows:,}"
        return None

    def outcome_moments(self, costs: FloatArray | None = None) -> tuple[float, float]:
        """Mean and variance of the outcomes of all rows, net of the cost of the action taken.

        Costs are linear in features, (n_actions, n_features + 1): y − c is vᵀz in an action's rows.
        """
        by_action = self.sums.sum(axis=0)
        total = by_action.sum(axis=0)
        mean, square = total[-1, -2], total[-1, -1]
        if costs is not None:
            net = np.zeros(by_action.shape[:2])
            net[:, : costs.shape[1] - 1], net[:, -2], net[:, -1] = -costs[:, :-1], -costs[:, -1], 1
            mean = np.einsum("aj,aj->", by_action[:, -2], net)
            square = np.einsum("aj,ajk,ak->", net, by_action, net)
        mean, square = float(mean / total[-2, -2]), float(square / total[-2, -2])
        return mean, max(square - mean**2, 0.0)


@message
class SumOutcomes(Query[OutcomeSums], code=2, asked=Asked.TOTAL):
    """Ask for the sums that outcome models are made from, separately for each fold and action."""

    title = "Sums for outcome models"
    content = "sums of squares and products, by fold and action"
    checks_stacks = True

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether outcome models are shared by all clients."""
        return study.nuisances.kind == "federated"

    def fault_in(self, answer: OutcomeSums, _study: Study, _n_rows: int) -> str | None:
        """Check that these are moments of some rows, each with a weight."""
        weights, squared = answer.sums[..., -2, -2], answer.squared_weights
        if squared.min() < 0 or ((squared == 0) & (weights > 0)).any():
            return "a sum of squared weights is not above 0"
        return fault_in_moments(answer.sums)


@message
class TotalWeight(Message, code=84):
    """Σ w over the rows to learn from."""

    weight: Annotated[float, PerClient]

    def contradiction(self, sums: OutcomeSums) -> str | None:
        """Why a client with these sums of its rows cannot have this total."""
        by_cell = sums.sums[..., -2, -2]
        released = float(by_cell.sum())
        # Cells that are 0 may be left out, so sums may cover less than all rows.
        too_much = bool(by_cell.all()) and self.weight > (1 + CELL_TOLERANCE) * released
        if too_much or released > (1 + CELL_TOLERANCE) * self.weight:
            return f"its rows weigh {self.weight:,.4g} together, in its sums {released:,.4g}"
        return None


@message
class TellWeight(Query[TotalWeight], code=22, asked=Asked.EACH):
    """Ask for the total weight of the rows to learn from."""

    title = "What rows weigh"
    content = "the sum of the row weights"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients count by weight."""
        return study.mixture.counts_weight

    def fault_in(self, answer: TotalWeight, _study: Study, _n_rows: int) -> str | None:
        """Check that rows that count have a weight."""
        return None if answer.weight > 0 else "its rows weigh nothing together"
