"""Snapshots: the rows that each study was answered for, as hashes, kept beside the ledger.

If a person is added, answers about the same study before and after differ by that person. So a
study is answered for the rows that it was first asked about. The rows of two studies are the same,
or differ in enough rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedopl.base.arrays import BoolArray
from fedopl.base.errors import StudyError
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import SortKeys
from fedopl.client.disk.store import Store
from fedopl.client.rows.chunks import ROWS_PER_CHUNK
from fedopl.client.rows.row_keys import row_keys
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData
from fedopl.study.study import Study

NewRows = Literal["refuse", "leave out"]
KEY = "snapshots"


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """One client's snapshots, and what it does with rows that were added since."""

    store: Store
    seed: int  # of the hashes; it follows from the client's secret
    minimum_cell: int
    new_rows: NewRows = "refuse"

    def pinned(self, client: str, study: Study, data: LoggedData, *, keep: bool) -> LoggedData:
        """The rows that the study is answered for; `keep` stores them as such."""
        hashes = _row_hashes(data, self.seed)
        kept = self.store.get(KEY) or {}
        pinned = kept.get(study.digest.hex())
        if pinned is None:
            self._check_others(client, np.sort(hashes), kept)
            if keep:
                self.store.put(KEY, {**kept, study.digest.hex(): np.sort(hashes)})
            return data
        stays = _in_multiset(hashes, pinned)
        if stays.all() and len(hashes) == len(pinned):
            return data
        came, went = int((~stays).sum()), len(pinned) - int(stays.sum())
        if went or self.new_rows == "refuse" or data.is_on_disk:
            raise StudyError(
                f"{client}: its rows are not those it has answered this study for: {came:,} came, "
                f"{went:,} went or changed. What was released before and what would be now differ "
                "by them. Restore the rows, agree on a new study, or, where rows only came and are "
                'in memory, leave them out (new_rows = "leave out" in its client.toml)'
            )
        return data.taken(np.flatnonzero(stays))

    def _check_others(self, client: str, hashes: SortKeys, kept: Mapping[str, SortKeys]) -> None:
        """Raise an error for rows that differ from those of another study in only a few."""
        for study, earlier in kept.items():
            shared = int(_in_multiset(hashes, earlier).sum())
            apart = len(hashes) + len(earlier) - 2 * shared
            if 0 < apart < self.minimum_cell:
                raise StudyError(
                    f"{client}: its rows differ in {apart} from those it answered study "
                    f"{study[:8]} for. The answers to both would differ by these rows. Restore the "
                    f"rows, or wait until at least {self.minimum_cell} have changed"
                )


def _row_hashes(data: LoggedData, seed: int) -> SortKeys:  # (n_rows,)
    """A hash of each whole row, without its group."""
    parts = [np.empty(0, np.uint64)]
    for rows in slices(data.n_rows, ROWS_PER_CHUNK):
        part = data.part(rows)
        # Not groups: their codes change when a group is added.
        columns = [getattr(part, name) for name in ROW_ARRAYS if name != "groups"]
        numbers = np.column_stack([own for own in columns if own is not None]).astype(np.float64)
        parts.append(row_keys(numbers, seed, ("snapshot",))[0])
    return np.concatenate(parts)


def _in_multiset(hashes: SortKeys, pinned: SortKeys) -> BoolArray:  # (n_hashes,)
    """Which rows are among those pinned; of equal rows, only as many as are pinned."""
    order = np.argsort(hashes, kind="stable")
    ordered, sorted_pins = hashes[order], np.sort(pinned)
    first = np.searchsorted(ordered, ordered)
    rank = np.arange(len(ordered)) - first  # among equal ones
    n_pinned = np.searchsorted(sorted_pins, ordered, "right") - np.searchsorted(
        sorted_pins, ordered
    )
    stays = np.empty(len(hashes), np.bool_)
    stays[order] = rank < n_pinned
    return stays
