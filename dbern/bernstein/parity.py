"""Even and odd parts of vectors, and of matrices that are the same in reverse."""

from __future__ import annotations

import math

import numpy as np

from dbern.types import FloatArray


def by_parity(matrix: FloatArray, count: int = 0) -> tuple[FloatArray, FloatArray]:
    """Parts on even and odd vectors of a matrix that is the same in reverse, rows and columns.

    It mixes neither kind with the other, so products, sums, inverses and transposes are those of
    the two parts, in orthonormal coordinates (`parities`). With a `count`, `matrix` is the first
    half of as many rows.
    """
    count, columns = count or len(matrix), matrix.shape[1] // 2
    rows = count // 2
    top = matrix[: count - rows]
    first, last = top[:, :columns], top[:, ::-1][:, :columns]
    middle = math.sqrt(2) * top[:, columns : matrix.shape[1] - columns]
    even = np.concatenate([first + last, middle], axis=1)
    even[rows:] /= math.sqrt(2)
    return even, (first - last)[:rows]


def with_mirrored(rows: FloatArray, count: int) -> FloatArray:
    """Complete the first half of `count` rows by the same rows in reverse."""
    return np.concatenate([rows, rows[: count - len(rows)][::-1, ::-1]])


def from_parity(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Merge two parts into the matrix: the inverse of `by_parity`."""
    rows, columns = odd.shape
    top, paired = np.empty((len(even), even.shape[1] + columns)), even[:, :columns].copy()
    paired[rows:] *= math.sqrt(2)
    top[:, :columns], top[:, ::-1][:, :columns] = paired / 2, paired / 2
    top[:rows, :columns] += odd / 2
    top[:rows, ::-1][:, :columns] -= odd / 2
    top[:rows, columns : even.shape[1]] = even[:rows, columns:] / math.sqrt(2)
    top[rows:, columns : even.shape[1]] = even[rows:, columns:]
    return with_mirrored(top, len(even) + rows)


def parities(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Even and odd parts of values (m, ..) in reverse, in orthonormal coordinates."""
    half = len(values) // 2
    first, last = values[:half], values[::-1][:half]
    middle = values[half : len(values) - half]
    even = np.concatenate([(first + last) / math.sqrt(2), middle])
    return even, (first - last) / math.sqrt(2)


def of_parities(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Merge two parts into the values (m, ..): the inverse of `parities`."""
    half = len(odd)
    first, last = even[:half] + odd, even[:half] - odd
    return np.concatenate([first / math.sqrt(2), even[half:], last[::-1] / math.sqrt(2)])
