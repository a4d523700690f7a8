"""`Run`: a run's record with its ledgers, its folder and its figures; runs side by side."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedopl.base.errors import OptionError, StorageError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.restricted import OnDemand
from fedopl.base.tables import html_text, text_table
from fedopl.client.disclosure.ledger import Entry, Ledger, as_entry
from fedopl.client.disclosure.packed_ledger import PackedLedgers
from fedopl.policies.policy import Policy
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.results.record import Record
from fedopl.results.round import RoundTable
from fedopl.study.splits import split_studies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedopl.client.table.logged_data import LoggedData
    from fedopl.report.recommending import Recommendation

LEDGER = "ledger.jsonl"


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Record):
    """A finished run in one process, with the ledger of every client."""

    rounds: RoundTable
    ledger: Mapping[str, list[Entry]]
    # Personal policies by client, solved in this process before any client joined or left.
    solved_for_clients: dict[str, Policy] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Record, ledgers: Mapping[str, Ledger]) -> Self:
        """The record with these clients' ledger entries for all splits of its study."""
        splits = split_studies(record.study)
        # Before screening found terms, the study had another digest.
        studies = {one.digest.hex() for own in splits for one in (own, own.before_screening)}

        def entries(name: str) -> list[Entry]:
            return [entry for entry in ledgers[name].entries() if entry.study in studies]

        own = OnDemand(ledgers, entries)  # many clients' entries are read when they are used
        return cls.with_ledger(record, own if isinstance(ledgers, PackedLedgers) else dict(own))

    @classmethod
    def with_ledger(cls, record: Record, ledger: Mapping[str, list[Entry]]) -> Self:
        """The record with these ledger entries by client."""
        # Rounds as a table, to print or to turn into a data frame.
        return cls(**{**vars(record), "rounds": RoundTable(record.rounds)}, ledger=ledger)

    @property
    def personal_policies(self) -> dict[str, Policy]:
        """Personal policies by client, if learned in this process; they are not saved with the run.

        Empty if the run's clients are not those that the policies were solved with.
        """
        return {} if self.membership and not self.personal else self.solved_for_clients

    def join(
        self,
        clients: "Mapping[str, LoggedData]",
        *,
        shares: Mapping[str, float] | None = None,
        limits: object = "open",
    ) -> "Run":
        """A new run with further clients; only they are asked, and this run does not change.

        The policy is solved again from the sums of all clients. Its value is known only at the
        newcomers: see `membership.of_policy(policy)` of the result.

        Args:
            clients: their data, by name.
            shares: the newcomers' shares of the mixture, by name, if the mixture gives shares to
                clients.
            limits: "open", "guarded" or `Limits`; what newcomers are willing to release.

        """
        from fedopl.engines.run import join_rows  # here, as it imports this file

        return join_rows(self, clients, shares=shares, limits=limits)

    def leave(self, client: str) -> "Run":
        """A new run without this client, solved again from the others' sums; asks no client."""
        from fedopl.engines.run import leave_in_memory

        return leave_in_memory(self, client)

    @property
    def recommendation(self) -> "Recommendation":
        """What to do: the policy that demonstrably beats what was done, or to keep to that."""
        from fedopl.report.recommending import recommend

        return recommend(self)

    def plot_values(self) -> "Figure":
        """The values of policies with intervals, drawn as in the report."""
        return self._plot("values")

    def plot_gains(self) -> "Figure":
        """The learned policy's gain over each other policy, on the same rows."""
        return self._plot("gains")

    def plot_clients(self) -> "Figure":
        """The learned policy's gain at each client."""
        return self._plot("clients")

    def plot_policy(self) -> "Figure":
        """The policy itself: its weights, or the tree."""
        return self._plot("policy")

    def plot_decisions(self) -> "Figure":
        """What the learned policy would do in groups of rows, as clients described them."""
        return self._plot("decisions")

    def plot_overlap(self) -> "Figure":
        """How likely each action was at each client, as clients described it."""
        return self._plot("overlap")

    def _plot(self, what: str) -> "Figure":
        from fedopl.report.page import figure_of  # here, as matplotlib is slow to import

        return figure_of(self, what)

    def save(self, folder: str | Path) -> None:
        """Write the run as files; `fedopl.load_run` reads them."""
        lines = [
            json.dumps({"client": name, **asdict(entry)}, ensure_ascii=False)
            for name, entries in sorted(self.ledger.items())
            for entry in entries
        ]
        text = "".join(f"{line}\n" for line in lines)
        save_record(self, Path(folder), private={LEDGER: text.encode()})


def load_run(folder: str | Path) -> Run:
    """The run that was saved in this folder, as `learn` returned it."""
    return Run.with_ledger(load_record(Path(folder)), _entries(Path(folder) / LEDGER))


def _entries(path: Path) -> dict[str, list[Entry]]:
    ledger: dict[str, list[Entry]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            ledger.setdefault(content.pop("client"), []).append(as_entry(content))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
    return ledger


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
