"""The grid on which sums of rows are exact, and noise is whole."""

from fractions import Fraction

import numpy as np

from fedopl.base.arrays import FloatArray

GRID = 1024  # steps of a unit
# The step of a product of two numbers on the grid; all sums are whole multiples of it.
FINE = float(GRID**2)
FINE_STEP = Fraction(1, GRID**2)


def row_by_row(rows: FloatArray, matrix: FloatArray) -> FloatArray:  # (n_rows, n_columns)
    """Rows times a matrix, with each row rounded as it would be alone.

    A product by BLAS may round a row differently beside other rows. Then one row more or less could
    move others on the grid, and change a sum by more than its own part.
    """
    found: FloatArray = np.einsum(
        "ij,jk->ik", np.ascontiguousarray(rows), np.ascontiguousarray(matrix)
    )
    return found
