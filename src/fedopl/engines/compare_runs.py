"""Comparison of finished runs: which settings differ, and the values of their policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.tables import html_text, text_table
from fedopl.engines.runs import Run


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The comparison of several runs; `print` it."""

    runs: dict[str, Run]
    settings: dict[str, dict[str, Any]]  # setting → run → value, if runs differ in it

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON data, for programs."""
        return {
            "runs": {name: _numbers(run) for name, run in self.runs.items()},
            "settings": self.settings,
        }

    def __str__(self) -> str:
        headers = ["run", "value", "gain over best arm", "gain over logging", "exchanges", "KB"]
        headers[2:2] = self._at_target
        table = text_table(headers, [self._cells(name, run) for name, run in self.runs.items()])
        verdicts = "\n".join(f"{name}: {run.verdict}" for name, run in self.runs.items())
        parts = [table, self._differing(), verdicts, *self._net(), CAUTION]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    @property
    def _at_target(self) -> list[str]:
        """The header of values at a site without outcomes, if there is one."""
        names = {run.target.client for run in self.runs.values() if run.target}
        if not names:
            return []
        return [f"value at {names.pop()}" if len(names) == 1 else "value at its target"]

    def _cells(self, name: str, run: Run) -> list[str]:
        found = _numbers(run)
        received = sum(latest.bytes_received for latest in run.rounds) / 1024
        unknown = "in doubt" if run.in_doubt else "–"
        named = ["value", "over_best_arm", "over_logging"]
        named[1:1] = ["at_target"] * len(self._at_target)
        estimates = [_cell(found[key]) if found[key] else unknown for key in named]
        return [name, *estimates, f"{len(run.rounds)}", f"{received:.1f}"]

    def _net(self) -> list[str]:
        """Which runs' values are net of costs, if some are and some are not."""
        net = [name for name, run in self.runs.items() if run.study.net_costs is not None]
        if len(net) in (0, len(self.runs)):
            return []
        return [f"Values of {quoted(net)} are net of costs, the others are not: do not subtract."]

    def _differing(self) -> str:
        if not self.settings:
            return "All settings are the same."
        rows = [
            [setting, *(_short(by_run[name]) for name in self.runs)]
            for setting, by_run in self.settings.items()
        ]
        return text_table(["setting", *self.runs], rows)


CAUTION = (
    "Each run's numbers are its own. For a paired comparison of two policies on the same rows:\n"
    "  fedopl evaluate FIRST/policy.json SECOND/policy.json --study study.toml --clients clients"
)


def compare_runs(runs: Mapping[str, Run]) -> Comparison:
    """Compare at least two runs."""
    if len(runs) < 2:
        raise OptionError("compare: expected at least two different runs")
    flat = {name: _flat(run.study.model_dump(mode="json")) for name, run in runs.items()}
    keys = dict.fromkeys(key for settings in flat.values() for key in settings)
    settings = {}
    for key in keys:
        by_run = {name: flat[name].get(key) for name in runs}
        if any(value != next(iter(by_run.values())) for value in by_run.values()):
            settings[key] = by_run
    return Comparison(runs=dict(runs), settings=settings)


def _flat(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return flat


def _numbers(run: Run) -> dict[str, Any]:
    values, gains = run.values.estimates(), run.gains.estimates()
    found = {
        "value": values.get((run.valued_as, GLOBAL)),
        "over_best_arm": gains.get((run.valued_arm, GLOBAL)),
        "over_logging": gains.get(("logging policy", GLOBAL)),
        "at_target": run.target.values.get(run.valued_as) if run.target else None,
    }
    # Leave out numbers that are in doubt: readers would trust their intervals.
    known = {n: None if run.in_doubt else estimate for n, estimate in found.items()}
    return {
        "verdict": run.verdict,
        "in_doubt": run.in_doubt,
        "net_of_costs": run.study.net_costs is not None,
        "best_arm": run.best_arm,
        **{name: _estimate(estimate) for name, estimate in known.items()},
    }


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    low, high = estimate.interval()
    return {"value": estimate.value, "low": low, "high": high}


def _cell(found: dict[str, float]) -> str:
    return f"{found['value']:.4g} ({found['low']:.4g} to {found['high']:.4g})"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
