"""The format of one table, and its names for columns and labels of a schema."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedopl.base.schema import Schema
from fedopl.client.table.encoder import Encoder
from fedopl.client.table.formats import FileFormat


@dataclass(frozen=True, kw_only=True)
class TableForm:
    """The names of a table, its columns and its labels, and the format of its file."""

    name: str  # in errors
    columns: Mapping[str, str] = field(default_factory=dict)  # by the schema's name, if it differs
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: FileFormat = field(default_factory=FileFormat)

    def encoder(self, schema: Schema, needed: Iterable[str]) -> Encoder:
        """An encoder for these columns of the schema as the table has them."""
        called = {column: self.columns.get(column, column) for column in dict.fromkeys(needed)}
        return Encoder(schema=schema, name=self.name, called=called, labels=self.labels)
