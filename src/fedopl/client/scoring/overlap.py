"""Overlap: whether every action was taken often enough, by everyone, to be judged."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, check_probability
from fedopl.base.tables import Backend, frame_of, html_table, text_table
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.table.logged_data import LoggedData

QUANTILES = (0.0, 0.01, 0.05, 0.5, 0.95, 1.0)
FEW_EFFECTIVE_ROWS = 30
LARGE_SHARE_BELOW = 0.01
USUAL_FLOOR = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Overlap:
    """How well logged data support each action; read it before trusting a value. `print` it."""

    action_names: tuple[str, ...]
    n_rows: int
    rows: IntArray  # (n_actions,)  rows that took the action
    propensity_quantiles: FloatArray  # (n_actions, 6)  at QUANTILES, over all rows where known
    effective_rows: FloatArray  # (n_actions,)  (Σw)²/Σw², w the inverse propensities of takers
    share_below_floor: FloatArray  # (n_actions,)  share of rows with a propensity below the floor
    residual_variance: FloatArray  # (n_actions,)  of Y − μ̂ out of fold, NaN if never taken
    floor: float

    @property
    def cautions(self) -> tuple[str, ...]:
        """Problems, in sentences; empty if there are none."""
        return tuple(
            caution
            for action, name in enumerate(self.action_names)
            for caution in self._cautions_about(action, name)
        )

    def _cautions_about(self, action: int, name: str) -> list[str]:
        if not self.rows[action]:
            return [f"'{name}' was never taken: nothing here says what it is worth"]
        cautions = []
        if self.effective_rows[action] < FEW_EFFECTIVE_ROWS:
            cautions.append(
                f"'{name}' is judged on {self.effective_rows[action]:.0f} effective rows "
                f"({self.rows[action]:,} took it): its value is very uncertain"
            )
        share = self.share_below_floor[action]
        if share > LARGE_SHARE_BELOW:
            cautions.append(
                f"'{name}' had a propensity below {self.floor:.3g} in {share:.0%} of rows: "
                "its scores there rest on few decisions, or on the outcome model alone"
            )
        return cautions

    def to_frame(self, backend: Backend | None = None) -> Any:
        """One row per action: a frame of pandas, polars or pyarrow; see `frame_of`."""
        quantiles = zip(QUANTILES, self.propensity_quantiles.T.tolist(), strict=True)
        columns: dict[str, list[object]] = {
            "action": list(self.action_names),
            "rows": self.rows.tolist(),
            "effective_rows": self.effective_rows.tolist(),
            **{f"propensity_{100 * level:g}": values for level, values in quantiles},
            "share_below_floor": self.share_below_floor.tolist(),
            "residual_variance": self.residual_variance.tolist(),
        }
        return frame_of(columns, backend)

    def __str__(self) -> str:
        return "\n".join([self.table(), *(f"Caution: {caution}." for caution in self.cautions)])

    def table(self) -> str:
        """The table of numbers, without cautions."""
        return text_table(*self._table())

    def _repr_html_(self) -> str:
        cautions = "".join(f"<p>Caution: {escape(caution)}.</p>" for caution in self.cautions)
        return html_table(*self._table()) + cautions

    def _table(self) -> tuple[list[str], list[list[str]]]:
        headers = [
            "action",
            "rows",
            "effective",
            "propensity min",
            "1 %",
            "5 %",
            "median",
            "95 %",
            "max",
            f"below {self.floor:.3g}",
            "residual variance",
        ]
        return headers, [self._cells(action) for action in range(len(self.action_names))]

    def _cells(self, action: int) -> list[str]:
        return [
            self.action_names[action],
            f"{self.rows[action]:,}",
            f"{self.effective_rows[action]:,.0f}",
            *(f"{quantile:.3f}" for quantile in self.propensity_quantiles[action]),
            f"{self.share_below_floor[action]:.1%}",
            f"{self.residual_variance[action]:.4g}",
        ]


def overlap(data: LoggedData, nuisances: Nuisances, *, floor: float | None = None) -> Overlap:
    """Diagnose how well each action is supported; nothing is clipped or changed.

    A propensity below the floor is called small. The default floor is 0.05. With more than ten
    actions it is half an even chance.
    """
    floor = min(USUAL_FLOOR, 0.5 / data.n_actions) if floor is None else floor
    check_probability(floor, "floor")
    by_action = [_one_action(data, nuisances, action, floor) for action in range(data.n_actions)]
    quantiles, effective, below, variance = (
        np.array(column) for column in zip(*by_action, strict=True)
    )
    return Overlap(
        action_names=data.action_names,
        n_rows=data.n_rows,
        rows=data.rows_per_action,
        propensity_quantiles=quantiles,
        effective_rows=effective,
        share_below_floor=below,
        residual_variance=variance,
        floor=floor,
    )


def _one_action(
    data: LoggedData, nuisances: Nuisances, action: int, floor: float
) -> tuple[FloatArray, float, float, float]:
    propensities = nuisances.propensities[:, action]
    known = propensities[np.isfinite(propensities)]
    quantiles = np.quantile(known, QUANTILES) if len(known) else np.full(len(QUANTILES), np.nan)
    below = float((known < floor).mean()) if len(known) else np.nan
    took = data.actions == action
    weights = data.weights_of(took)
    likely = propensities[took] > 0
    inverse = weights[likely] / propensities[took][likely]
    effective = float(inverse.sum() ** 2 / (inverse**2).sum()) if likely.any() else 0.0
    residuals = (data.rewards - nuisances.outcome_means[:, action])[took]
    scored = np.isfinite(residuals)
    variance = np.nan
    if scored.any():
        variance = float(np.average(residuals[scored] ** 2, weights=weights[scored]))
    return quantiles, effective, below, variance
