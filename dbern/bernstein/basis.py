"""Bernstein basis and iterated Bernstein operator (Definitions 3 to 6 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dbern.arrays import FloatArray

_OVERSAMPLING = 8

MOST_K = 1000
"""Largest degree: beyond, ``2^-k`` underflows."""

MOST_H = 10_000
"""Largest order: up to it and any degree `iterated_matrix` keeps constants to 1e-9.

Its roundings grow with the order: at 1e12 it keeps one digit, at 1e18 none.
"""


def bernstein_basis(y: FloatArray, k: int) -> FloatArray:
    """Evaluate ``b_{v,k}(y) = C(k,v) y^v (1-y)^(k-v)`` for all v.

    Parameters
    ----------
    y : array (m,)
        Points of the unit interval.
    k : int
        Degree, from 1 to 1000.

    Returns
    -------
    array (m, k + 1)
        Rows are nonnegative and sum to one, accurate to about ``2 k`` roundings. The recurrence
        over v starts at the nearer end of the interval, where ``(1-y)^k >= 2^-1000`` cannot
        underflow; it takes two products a value where powers or logarithms take many more.

    Raises
    ------
    ValueError
        For a degree out of range.

    Examples
    --------
    >>> bernstein_basis(np.array([0.5]), 2).round(12).tolist()
    [[0.25, 0.5, 0.25]]
    """
    if not 1 <= k <= MOST_K:
        raise ValueError(f"degree {k} is not from 1 to {MOST_K}")
    y = np.asarray(y, dtype=np.float64)
    far = y > 0.5
    near = np.where(far, 1.0 - y, y)  # exact: b_{v,k}(y) = b_{k-v,k}(1-y)
    odds = near / (1.0 - near)
    basis = np.empty((k + 1, len(y)))
    basis[0] = np.power(1.0 - near, k)
    for v in range(k):
        np.multiply(basis[v], odds, out=basis[v + 1])
        basis[v + 1] *= (k - v) / (v + 1)
    basis[:, far] = basis[::-1, far]
    return basis.T


@lru_cache(maxsize=32)
def iterated_matrix(k: int, h: int) -> FloatArray:
    """``W_h = sum_{i<h} (I - M)^i`` with ``M_{jv} = b_{v,k}(j/k)``, shape (k + 1, k + 1).

    The iterated basis is ``b^(h)(y) = b(y) W_h``, so the order enters the coefficients once and
    evaluation costs the same for every h. The eigenvalues of ``I - M`` lie in [0, 1): the sum is
    stable where the alternating one of Definition 5 cancels.

    Examples
    --------
    >>> bool(np.allclose(iterated_matrix(4, 1), np.eye(5)))
    True
    """
    step = np.eye(k + 1) - bernstein_basis(np.arange(k + 1) / k, k)
    total, power = np.eye(k + 1), step
    for bit in bin(h)[3:]:  # invariant: total = sum_{i<m} step^i, power = step^m
        total, power = total + power @ total, power @ power
        if bit == "1":
            total, power = np.eye(k + 1) + step @ total, power @ step
    total.setflags(write=False)
    return total


def iterated_basis(y: FloatArray, k: int, h: int) -> FloatArray:
    """Evaluate the iterated basis ``b^(h)_{v,k}(y)``, shape (m, k + 1); rows sum to one."""
    return np.asarray(bernstein_basis(y, k) @ iterated_matrix(k, h))


def iterate(coefficients: FloatArray, h: Sequence[int]) -> FloatArray:
    """Apply ``W_h`` along every axis: the plain Bernstein form of the iterated polynomial.

    Examples
    --------
    >>> iterate(np.array([0.0, 1.0, 0.0]), [1]).tolist()
    [0.0, 1.0, 0.0]
    """
    result = np.asarray(coefficients, dtype=np.float64)
    for order in h:  # each step moves the first axis to the end
        matrix = iterated_matrix(result.shape[0] - 1, order)
        result = np.tensordot(result, matrix, axes=(0, 1))
    return np.ascontiguousarray(result)


def enclosing_nodes(degree: int, oversampling: int = _OVERSAMPLING) -> tuple[FloatArray, float]:
    """Nodes y and a factor c with ``max |p| <= c max |p(y)|`` for every p of that degree.

    Ehlich and Zeller (1964): with M Chebyshev nodes and degree below M, c is
    ``1 / cos(pi degree / 2M)``; M is `oversampling` times the degree.

    Examples
    --------
    >>> nodes, factor = enclosing_nodes(10)
    >>> nodes.shape, round(factor, 3)
    ((80,), 1.02)
    """
    count = oversampling * max(degree, 1)
    nodes = (1 - np.cos((np.arange(count) + 0.5) * np.pi / count)) / 2
    return nodes, 1 / math.cos(math.pi * degree / (2 * count))
