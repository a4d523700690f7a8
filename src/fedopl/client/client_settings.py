"""The settings in `client.toml`: where rows are, whose workers sum them, what may leave."""

from typing import Literal, Self

from pydantic import Field, model_validator

from fedopl.base.validation import Checked
from fedopl.client.disclosure.limits import Limits

EngineKind = Literal["dask", "spark"]


class DataSection(Checked):
    """The source of the rows: a file, or a database query."""

    file: str | None = Field(
        default=None,
        description="the table: a text file (.csv, .tsv, .txt, also with .gz), a Parquet or "
        "Feather file, a workbook (.xlsx, .xls, .ods), or a Stata, SPSS or SAS file; the path is "
        "relative to client.toml",
    )
    encoding: str = Field(default="utf-8", description="of a text file")
    delimiter: str | None = Field(
        default=None,
        description="separates the cells of a text file; default: a comma, or a tab in .tsv",
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="the decimal sign in numbers of a text file"
    )
    sheet: str | None = Field(default=None, description="the sheet, of a workbook with several")
    database: str | None = Field(
        default=None,
        description='"duckdb", a DuckDB file, an SQLAlchemy URL (sqlite, postgresql), or one of '
        "ADBC (adbc+sqlite, adbc+postgresql); ${NAME} stands for an environment variable",
    )
    query: str | None = Field(default=None, description="the SQL query that returns the rows")
    rows: Literal["auto", "memory", "disk"] = Field(
        default="auto",
        description="where rows are kept during use; auto: on disk if a Parquet file or the answer "
        "to a query has more than a gigabyte of numbers",
    )
    numbers: Literal["float64", "float32"] = Field(
        default="float64",
        description="how numbers of rows on disk are stored; float32 takes half the space",
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.file is None) == (self.query is None):
            raise ValueError("say where the rows are: either file, or database and query")
        if (self.query is None) != (self.database is None):
            raise ValueError("a query needs a database, and a database a query")
        if self.rows == "disk" and not self.may_be_on_disk:
            raise ValueError("rows: only those of a Parquet file or a query can be kept on disk")
        return self

    @property
    def may_be_on_disk(self) -> bool:
        """Whether rows can be kept there, and need not be in memory."""
        return self.rows != "memory" and (self.file is None or self.file.endswith(".parquet"))


class EngineSection(Checked):
    """The client's own workers, which sum rows on disk in place of this process."""

    kind: EngineKind = Field(
        description="whose workers: those of Dask or of Spark; needed only where there is an "
        "[engine]"
    )
    address: str | None = Field(
        default=None,
        description="of Dask's scheduler, such as tls://lake.example.org:8786, or of Spark's "
        "master, such as spark://lake.example.org:7077 or yarn; ${NAME} stands for an "
        "environment variable; default: workers are started on this machine",
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        description="how many are started on this machine; default: as many as it has cores",
    )
    wait: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="for how many seconds to wait for the scheduler or master, and for a first "
        "worker",
    )

    @model_validator(mode="after")
    def _is_here_or_there(self) -> Self:
        if self.address is not None and self.workers is not None:
            raise ValueError("workers are started where there is no address; leave out one of both")
        return self


class ClientFile(Checked):
    """The whole file."""

    name: str | None = Field(
        default=None,
        min_length=1,
        description="the client's name in the study; default: the folder's name",
    )
    data: DataSection
    columns: dict[str, str] = Field(
        default_factory=dict, description="the study's name of a column = its name here"
    )
    labels: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="for a column by the study's name: the label here = the study's label",
    )
    engine: EngineSection | None = Field(
        default=None,
        description="the client's own workers, which sum rows on disk in place of this process",
    )
    limits: Limits = Field(default=Limits(), description="what this client is willing to release")
    share_personal: bool = Field(
        default=False,
        description="in a study with personal policies: whether this client's personal policy is "
        "written into the run's folder, where everybody with access to the folder can read it. "
        "If not, it is kept here alone. In a study over a network it is kept here in any case",
    )
    approve: Literal["auto", "ask"] = Field(
        default="auto",
        description="auto: queries within the limits are answered by themselves; ask: each waits "
        "until the client's owner approves it by hand, on the page of `fedopl node --serve`",
    )
    secret: str = Field(
        default="",
        description="decides which rows are held out, and the noise of a study with [privacy]: at "
        "least 32 random bytes, in hexadecimal digits or base64; default: made at first use, "
        "or by `fedopl keys`, and kept beside this file",
    )

    @model_validator(mode="after")
    def _has_rows_for_workers(self) -> Self:
        if self.engine and not self.data.may_be_on_disk:
            raise ValueError(
                "engine: its workers read rows on disk, and only those of a Parquet file or a "
                "query can be kept there; convert the table to Parquet, and leave out data.rows = "
                '"memory"'
            )
        return self
