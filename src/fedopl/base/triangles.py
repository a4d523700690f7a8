"""Symmetric matrices stored as lower triangles: about half the numbers, without loss."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import IntArray, Scalar


def triangle_size(width: int) -> int:
    """How many numbers a symmetric matrix of this width has on and below its diagonal."""
    return width * (width + 1) // 2


def lower_triangles(matrices: NDArray[Scalar]) -> NDArray[Scalar]:  # (…, triangle_size)
    """The entries on and below the diagonals of matrices (…, n, n), row by row."""
    *stack, width, _ = matrices.shape
    kept, _ = _places(width)
    return matrices.reshape(*stack, width * width).take(kept, axis=-1)


def from_triangles(triangles: NDArray[Scalar], width: int) -> NDArray[Scalar]:  # (…, n, n)
    """The symmetric matrices with these lower triangles."""
    _, taken = _places(width)
    return triangles.take(taken, axis=-1).reshape(*triangles.shape[:-1], width, width)


@lru_cache(8)
def _places(width: int) -> tuple[IntArray, IntArray]:
    """The positions of the triangle in a flat matrix, and of each entry in the triangle."""
    rows, columns = np.tril_indices(width)
    taken = np.empty((width, width), np.int64)
    taken[rows, columns] = taken[columns, rows] = np.arange(len(rows))
    return rows * width + columns, taken.ravel()
