"""Rows of numbers in a Parquet file, to be read into memory or onto disk."""

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fedopl


def write_rows(path, contexts, done, gained, *, actions, columns=None, **more):
    """Write the rows, with further columns, and return the schema; `more` are settings of it."""
    table = {f"x{place}": column for place, column in enumerate(np.transpose(contexts))}
    numeric = tuple(table)
    table |= {"done": done, "gained": gained, **(columns or {})}
    parquet.write_table(pa.table(table), path)
    return fedopl.Schema(
        action="done",
        actions=actions,
        reward="gained",
        direction="higher",
        numeric=numeric,
        **more,
    )
