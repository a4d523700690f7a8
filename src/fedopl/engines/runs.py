"""`Run`: the record of a run in one process with its ledgers, and its folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from fedopl.base.errors import StorageError
from fedopl.client.disclosure.ledger import Entry
from fedopl.client.door import Door
from fedopl.results.record import Record
from fedopl.results.run_folder import load_record, save_record

LEDGER = "ledger.jsonl"


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Record):
    """A finished run in one process, with what every client wrote down in its ledger."""

    ledger: dict[str, list[Entry]]

    @classmethod
    def of(cls, record: Record, doors: Mapping[str, Door]) -> Self:
        """The record, with these clients' entries for its study."""
        study = record.study.digest.hex()
        ledger = {
            name: [entry for entry in door.ledger.entries() if entry.study == study]
            for name, door in doors.items()
        }
        return cls(**vars(record), ledger=ledger)

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
    folder = Path(folder)
    record = load_record(folder)
    return Run(**vars(record), ledger=_entries(folder / LEDGER))


def _entries(path: Path) -> dict[str, list[Entry]]:
    ledger: dict[str, list[Entry]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            ledger.setdefault(content.pop("client"), []).append(Entry(**content))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(f"{path}: was changed or cut off since it was written") from None
    return ledger
