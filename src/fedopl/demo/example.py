"""The structure of an example: files by name, ready to be written."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedopl.base.errors import StorageError
from fedopl.base.files import replacing, write_atomically

# A table is its columns by name.
ExampleTable = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class ExampleClient:
    """One client's folder: its settings and its rows."""

    settings: str  # client.toml
    file_name: str  # .csv or .parquet
    rows: ExampleTable


@dataclass(frozen=True, kw_only=True)
class Example:
    """A study and its clients."""

    study: str  # study.toml
    clients: dict[str, ExampleClient] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write all files; refused if the study or a client's settings exist with other content."""
        study = folder / "study.toml"
        texts = {study: self.study} | {
            folder / "clients" / name / "client.toml": client.settings
            for name, client in self.clients.items()
        }
        for path, text in texts.items():
            if path.exists() and path.read_text(encoding="utf-8") != text:
                raise StorageError(
                    f"{path}: is there already with another content; name a new folder"
                )
        for name, client in self.clients.items():
            home = folder / "clients" / name
            write_atomically(home / "client.toml", client.settings.encode(), mode=0o600)
            _write_table(home / client.file_name, client.rows)
        write_atomically(study, self.study.encode())
        return study


def own_names(columns: dict[str, str], labels: dict[str, dict[str, str]]) -> str:
    """The part of a client.toml with the client's own names of columns and labels."""
    lines = ["", "[columns]                      # the study's name = the name here"]
    lines += [f'{agreed} = "{own}"' for agreed, own in columns.items()]
    for column, known in labels.items():
        heading = f"[labels.{column}]"
        lines += ["", f"{heading:<31}# the label here = the study's label"]
        lines += [f'{own} = "{agreed}"' for agreed, own in known.items()]
    return "\n".join([*lines, ""])


def renamed(
    rows: ExampleTable, columns: dict[str, str], labels: dict[str, dict[str, str]]
) -> ExampleTable:
    """The same rows with a client's own names for columns and labels."""
    own = {
        name: [labels[name][str(label)] for label in np.asarray(values)]
        if name in labels
        else values
        for name, values in rows.items()
    }
    return {columns[name]: values for name, values in own.items()}


def _write_table(path: Path, rows: ExampleTable) -> None:
    from pyarrow import csv, parquet

    table = pa.table(rows)
    with replacing(path) as file:
        if path.suffix == ".parquet":
            parquet.write_table(table, file)
        else:
            csv.write_csv(table, file)
