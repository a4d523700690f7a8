"""`Run`: the record of a run in one process with its ledgers, its folder and its figures."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedopl.base.errors import StorageError
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
        own = _EntriesOf(ledgers, frozenset(studies))
        return cls.with_ledger(record, own if isinstance(ledgers, PackedLedgers) else dict(own))

    @classmethod
    def with_ledger(cls, record: Record, ledger: Mapping[str, list[Entry]]) -> Self:
        """The record with these ledger entries by client."""
        return cls(**_as_tables(record), ledger=ledger)

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
        from fedopl.engines.join_and_leave import join_rows  # here, as it imports this file

        return join_rows(self, clients, shares=shares, limits=limits)

    def leave(self, client: str) -> "Run":
        """A new run without this client, solved again from the others' sums; asks no client."""
        from fedopl.engines.join_and_leave import leave_in_memory

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


class _EntriesOf(Mapping[str, list[Entry]]):
    """Clients' ledger entries for some studies, read from the ledgers when they are used."""

    def __init__(self, ledgers: Mapping[str, Ledger], studies: frozenset[str]) -> None:
        self._ledgers, self._studies = ledgers, studies

    def __getitem__(self, name: str) -> list[Entry]:
        return [entry for entry in self._ledgers[name].entries() if entry.study in self._studies]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ledgers)

    def __len__(self) -> int:
        return len(self._ledgers)


def load_run(folder: str | Path) -> Run:
    """The run that was saved in this folder, as `learn` returned it."""
    folder = Path(folder)
    record = load_record(folder)
    return Run(**_as_tables(record), ledger=_entries(folder / LEDGER))


def _as_tables(record: Record) -> dict[str, Any]:
    """The record's fields; rounds as a table, to print or to turn into a data frame."""
    return {**vars(record), "rounds": RoundTable(record.rounds)}


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
