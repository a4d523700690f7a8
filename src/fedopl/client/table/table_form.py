"""The format of one table, and its names for columns and labels of a schema."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from fedopl.base.errors import OptionError
from fedopl.base.schema import Schema
from fedopl.client.table.encoder import Encoder
from fedopl.client.table.formats import FileFormat, table_name


@dataclass(frozen=True, kw_only=True)
class TableForm:
    """The names of a table, its columns and its labels, and the format of its file."""

    name: str  # in errors
    columns: Mapping[str, str] = field(default_factory=dict)  # by the schema's name, if it differs
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: FileFormat = field(default_factory=FileFormat)

    @classmethod
    def of(
        cls,
        source: object,
        *,
        name: str | None,
        columns: Mapping[str, str] | None,
        labels: Mapping[str, Mapping[str, str]] | None,
        file: FileFormat,
    ) -> Self:
        """The form of a path or a frame, which gives its name if there is none."""
        named = name or table_name(source)
        return cls(name=named, columns=columns or {}, labels=labels or {}, file=file)

    def encoder(self, schema: Schema, needed: Iterable[str]) -> Encoder:
        """An encoder for these columns of the schema as the table has them."""
        called = {column: self.columns.get(column, column) for column in dict.fromkeys(needed)}
        return Encoder(schema=schema, name=self.name, called=called, labels=self.labels)


def check_schema(schema: object) -> None:
    """Refuse anything that is no schema."""
    if not isinstance(schema, Schema):
        raise OptionError(f"schema: expected a fedopl.Schema, came {type(schema).__name__}")
