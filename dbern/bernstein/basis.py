"""Bernstein basis and iterated Bernstein operator (Definitions 3 to 6 of the paper).

Nodes lie evenly, so bases are the same in reverse: vectors and matrices are worked on as even and
odd parts, each half as large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dbern.bernstein.splines import bin_matrix
from dbern.types import FloatArray

_FEW_POINTS = 32  # for which steps of Python would take longer than the products
MANY = 256
"""Rows, or bins, of which each has to do with its neighbours alone."""
_POINTS_TOGETHER = 1024
_MIN_WEIGHT = 1e-22
MOST_K = 1000
"""Largest degree: beyond, ``2^-k`` underflows."""
MOST_AXES = 8
"""Most axes of a lattice."""
MOST_H = 10_000
"""Largest order: up to it and any degree `iterated_matrix` keeps constants to 1e-9.

Its roundings grow with the order: at 1e12 it keeps one digit, at 1e18 none.
"""
INTERPOLATED = 0
"""Order of a function that is linear, axis by axis, between its lattice values.

It has no iterated operator: its coefficients are its lattice values, its basis are hats. So it is
nowhere larger than its largest lattice value, and k may be as large as a narrow kernel needs.
"""
MOST_INTERPOLATED_K = 4096
"""Largest k of a function that is linear between its lattice values."""
MOST_INTERPOLATED = 1 << 22
"""Most lattice values of such a function: it is held in memory (32 MiB)."""


def bernstein_basis(y: FloatArray, k: int) -> FloatArray:
    """Evaluate ``b_{v,k}(y) = C(k,v) y^v (1-y)^(k-v)`` for all v.

    Rows of the result (m, k + 1) are nonnegative and sum to one, accurate to about ``2 k``
    roundings; degrees above 1000 raise a ValueError. The recurrence over v starts at the nearer end
    of the interval, where ``(1-y)^k >= 2^-1000`` cannot underflow; it takes two products a value
    where powers or logarithms take many more.
    """
    if not 1 <= k <= MOST_K:
        raise ValueError(f"degree {k} is not from 1 to {MOST_K}")
    y = np.asarray(y, dtype=np.float64)
    far = y > 0.5
    near = np.minimum(y, 1.0 - y)  # exact: b_{v,k}(y) = b_{k-v,k}(1-y)
    rest = 1.0 - near
    odds = near / rest
    if len(y) <= _FEW_POINTS:  # the same products in the same order, at once
        factors = np.empty((2 * k + 1, len(y)))
        np.power(rest, k, out=factors[0])
        factors[1::2], factors[2::2] = odds, _ratios(k)
        products = np.multiply.accumulate(factors, axis=0)[::2]
        return np.where(far, products[::-1], products).T
    basis = np.empty((k + 1, len(y)))
    np.power(rest, k, out=basis[0])
    for v in range(k):
        np.multiply(basis[v], odds, out=basis[v + 1])
        basis[v + 1] *= (k - v) / (v + 1)
    basis[:, far] = basis[::-1, far]
    return basis.T


def bernstein_mixtures(y: FloatArray, k: int, coefficients: FloatArray) -> FloatArray:
    """Evaluate ``b(y) M`` at increasing y (m,) for coefficients M (k + 1, q), shape (m, q).

    Of more rows than `MANY`, those whose weight at nearby points is below 1e-22 are left out: 1e-19
    of the largest coefficient together, far less than the roundings of the others.
    """
    if k < MANY:
        return np.asarray(bernstein_basis(y, k) @ coefficients)
    values = np.empty((len(y), coefficients.shape[1]))
    for first in range(0, len(y), _POINTS_TOGETHER):
        points = slice(first, first + _POINTS_TOGETHER)
        basis = bernstein_basis(y[points], k)
        near = np.flatnonzero(basis.max(axis=0) > _MIN_WEIGHT)
        rows = slice(near[0], near[-1] + 1)
        np.matmul(basis[:, rows], coefficients[rows], out=values[points])
    return values


@lru_cache(maxsize=32)
def _ratios(k: int) -> FloatArray:
    return np.asarray((np.arange(k, 0, -1) / np.arange(1, k + 1))[:, None])


@lru_cache(maxsize=32)
def iterated_matrix(k: int, h: int) -> FloatArray:
    """``W_h = sum_{i<h} (I - M)^i`` with ``M_{jv} = b_{v,k}(j/k)``, shape (k + 1, k + 1).

    The iterated basis is ``b^(h)(y) = b(y) W_h``, so the order enters the coefficients once and
    evaluation costs the same for every h. The eigenvalues of ``I - M`` lie in [0, 1): the sum is
    stable where the alternating one of Definition 5 cancels. The identity where `INTERPOLATED`.
    """
    total = np.eye(k + 1) if h == INTERPOLATED else from_parity(*iterated_parts(k, h))
    total.setflags(write=False)
    return total


@lru_cache(maxsize=32)
def iterated_parts(k: int, h: int) -> tuple[FloatArray, FloatArray]:
    """``W_h`` by parity (`by_parity`): a quarter of the work."""
    if h == 1:
        return np.eye(k // 2 + 1), np.eye((k + 1) // 2)
    if h % 2:
        before = zip(iterated_parts(k, h - 1), _step(k, h - 1), strict=True)
        even, odd = (total + power for total, power in before)
    else:
        before = zip(iterated_parts(k, h // 2), _step(k, h // 2), strict=True)
        even, odd = (total + power @ total for total, power in before)
    return even, odd


@lru_cache(maxsize=8)
def _step(k: int, power: int) -> tuple[FloatArray, FloatArray]:
    if power == 1:
        nodes = np.arange(k + 1) / k
        return by_parity(np.eye(k + 1) - bernstein_basis(nodes, k))
    halves = _step(k, power // 2), _step(k, power - power // 2)
    even, odd = (left @ right for left, right in zip(*halves, strict=True))
    return even, odd


def iterated_basis(y: FloatArray, k: int, h: int) -> FloatArray:
    """Evaluate the iterated basis ``b^(h)_{v,k}(y)``, shape (m, k + 1); rows sum to one."""
    basis = coefficient_basis(y, k, h)
    return basis if h == INTERPOLATED else np.asarray(basis @ iterated_matrix(k, h))


def coefficient_basis(y: FloatArray, k: int, h: int) -> FloatArray:
    """Evaluate what multiplies coefficients at y, (m, k + 1): the Bernstein basis, or hats."""
    return bin_matrix(y, k, 1) if h == INTERPOLATED else bernstein_basis(y, k)


def iterate(coefficients: FloatArray, h: Sequence[int]) -> FloatArray:
    """Apply ``W_h`` along every axis: the plain Bernstein form of the iterated polynomial."""
    result = np.asarray(coefficients, dtype=np.float64)
    if set(h) == {INTERPOLATED}:
        return result
    for order in h:  # each step moves the first axis to the end
        matrix = iterated_matrix(result.shape[0] - 1, order)
        result = np.tensordot(result, matrix, axes=(0, 1))
    return np.ascontiguousarray(result)


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
