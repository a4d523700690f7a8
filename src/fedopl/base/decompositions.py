"""Decompositions and solutions from numpy, on one thread if matrices have more than a few columns.

Matrices here have some hundred columns at most, where several threads of BLAS are no faster, and on
a busy machine much slower.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.one_thread import ONE_BLAS_THREAD

_FEWEST_COLUMNS = 26  # with fewer, LAPACK does not divide, so BLAS has nothing for threads


def eigh(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:  # (..., n), (..., n, n)
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices."""
    with _alone(matrices):
        return np.linalg.eigh(matrices)


def eigvalsh(matrices: FloatArray) -> FloatArray:  # (..., n)
    """Eigenvalues of symmetric matrices, ascending."""
    with _alone(matrices):
        return np.asarray(np.linalg.eigvalsh(matrices))


def cholesky(matrices: FloatArray) -> FloatArray:  # shaped as matrices
    """Lower triangular factors; LinAlgError where a matrix is not positive definite."""
    with _alone(matrices):
        return np.asarray(np.linalg.cholesky(matrices))


def inv(matrices: FloatArray) -> FloatArray:  # shaped as matrices
    """Inverses."""
    with _alone(matrices):
        return np.asarray(np.linalg.inv(matrices))


def symmetric_pinv(matrices: FloatArray, rcond: float | None = None) -> FloatArray:
    """Pseudo-inverses of symmetric matrices, shaped as these."""
    with _alone(matrices):
        return np.asarray(np.linalg.pinv(matrices, rcond=rcond, hermitian=True))


def solve(matrices: FloatArray, wanted: FloatArray) -> FloatArray:  # shaped as wanted
    """Solutions of linear equations."""
    with _alone(matrices):
        return np.asarray(np.linalg.solve(matrices, wanted))


def _alone(matrices: FloatArray) -> AbstractContextManager[Any]:
    return ONE_BLAS_THREAD if matrices.shape[-1] >= _FEWEST_COLUMNS else nullcontext()
