"""Rows of a run as tables: leaves of a tree, and exchanges; both convert to a data frame."""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from fedopl.base.tables import Backend, frame_of, html_table, text_table
from fedopl.results.round import Round
from fedopl.results.value_tables import LeafRow

_Kind = TypeVar("_Kind")
_OF_ESTIMATE = ("value", "standard_error", "n_rows", "degrees_of_freedom")


class _Printed(tuple[_Kind, ...], ABC, Generic[_Kind]):
    """A tuple of rows that prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    @abstractmethod
    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows."""


class LeafTable(_Printed[LeafRow]):
    """Every action in every leaf of the learned tree, as a tuple of rows; `print` it."""

    __slots__ = ()

    def to_frame(self, backend: Backend | None = None) -> Any:
        """One row for each action in each leaf: a data frame of pandas, polars or pyarrow."""
        found = [row.estimate for row in self]
        columns: dict[str, list[object]] = {
            "leaf": [row.leaf for row in self],
            "share": [row.share for row in self],
            "action": [row.action for row in self],
            **{
                name: [getattr(estimate, name) if estimate else None for estimate in found]
                for name in _OF_ESTIMATE
            },
        }
        return frame_of(columns, backend)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [f"{row.leaf}", f"{row.share:.1%}", row.action, str(row.estimate or "–")]
            for row in self
        ]
        return ["leaf", "share of people", "action", "value"], rows


class RoundTable(_Printed[Round]):
    """Every exchange of a run, as a tuple of rounds; `print` it."""

    __slots__ = ()

    def to_frame(self, backend: Backend | None = None) -> Any:
        """One row for each exchange, with counts of clients: of pandas, polars or pyarrow."""
        columns: dict[str, list[object]] = {
            **{
                name: [getattr(one, name) for one in self] for name in ("exchange", "trip", "query")
            },
            **{
                name: [len(getattr(one, name)) for one in self]
                for name in ("asked", "answered", "refused", "rejected", "silent")
            },
            **{
                name: [getattr(one, name) for one in self]
                for name in ("bytes_sent", "bytes_received", "loss", "value")
            },
        }
        return frame_of(columns, backend)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [
                f"{one.exchange}",
                one.query,
                f"{len(one.answered)} of {len(one.asked)}",
                f"{one.bytes_sent:,}",
                f"{one.bytes_received:,}",
            ]
            for one in self
        ]
        return ["exchange", "query", "answered", "bytes sent", "bytes received"], rows
