"""Weights for all sources' rows together, found by Newton's method: one trip for each step.

It stops where every mean and mean square is near the target's, where a further step brings them no
nearer (noise on sums limits how near they come), or after a number of steps. A source leaves where
its own rows would come to too few under the weights, and the others go on without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.target.balance_sums import MOST_BALANCING_STEPS, BalanceContexts, BalanceSums
from fedopl.server.target.found_mixture import pooled_moments
from fedopl.server.target.target_question import TargetQuestion
from fedopl.solvers.entropy_balance import LARGEST_GAP
from fedopl.solvers.joint_balance import (
    JointBalance,
    SourceSums,
    Units,
    balance_at,
    following,
    units_of,
)

# As near to the target as this, in standard deviations, another step changes nothing to be seen.
NEAR_ENOUGH = 0.01
# A step that does not bring the largest difference down to this share of it brings it no nearer.
_NEARER = 0.5
NO_ANSWER = "did not answer"
FEW_ROWS = (
    "under weights that make all sources look like the target, its sums would rest on too few rows"
)
UNSCORED = "has no scores of an action"


@dataclass(eq=False, kw_only=True)
class JointWeights:
    """The weights that were found, or None where no source is left; who left, and why."""

    units: Units
    n_steps: int = 0
    best: JointBalance | None = None
    rows: dict[str, int] = field(default_factory=dict)  # that are valued, of sources that answered
    left: dict[str, str] = field(default_factory=dict)

    def fields_at(self, slopes: FloatArray) -> dict[str, Any]:
        """The fields of queries about rows under weights at this η."""
        return {"centres": self.units.centres, "scales": self.units.scales, "slopes": slopes}

    @property
    def is_near(self) -> bool:
        """Whether sources' rows together look like the target's."""
        return self.best is not None and self.best.gap <= LARGEST_GAP


def find_joint_weights(question: TargetQuestion, sources: Sequence[str]) -> JointWeights:
    """Ask these sources for sums at one η after the other."""
    moments, setting = question.moments, question.setting
    _, covariances = pooled_moments(setting)
    units = units_of(moments.means, moments.squares, np.diagonal(covariances))
    target = units.moments(moments.means, moments.squares)
    found = JointWeights(units=units)
    asked, slopes, step = sorted(sources), np.zeros(len(target)), np.zeros(len(target))
    while asked and found.n_steps < MOST_BALANCING_STEPS:
        query = BalanceContexts(**found.fields_at(slopes))
        answers = question.conversation.each(query, asked)
        found.n_steps += 1
        sums = {name: _sums(answers[name]) for name in asked if _counts(answers.get(name))}
        found.rows |= {name: own.n_rows for name, own in answers.items()}
        if len(sums) < len(asked):
            found.left |= {n: _why_left(answers.get(n)) for n in asked if n not in sums}
            asked, found.best = sorted(sums), None
            if not asked:
                break
        latest, before = balance_at(slopes, sums, setting.rows, target), found.best
        found.best = latest if before is None or latest.gap < before.gap else before
        if latest.gap <= NEAR_ENOUGH or (
            before is not None and before.gap <= LARGEST_GAP and latest.gap > _NEARER * before.gap
        ):
            break
        # Beyond the target: back to where it was nearer, and half as far from there.
        step = latest.step() if found.best is latest else step / 2
        slopes = following(found.best.slopes, step)
    return found


def _counts(answer: BalanceSums | None) -> bool:
    return answer is not None and bool(answer.released)


def _sums(answer: BalanceSums) -> SourceSums:
    return SourceSums(log_weight=answer.log_weight, means=answer.means, products=answer.products)


def _why_left(answer: BalanceSums | None) -> str:
    if answer is None:
        return NO_ANSWER
    return FEW_ROWS if answer.scored else UNSCORED
