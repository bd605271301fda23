"""Evaluate a released polynomial at many points (Algorithm 1, lines 7 and 8)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import bernstein_basis

_WORK_VALUES = 1 << 21  # numbers in flight at a time: 16 MiB, inside the cache of a server


def evaluate(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    """``sum_v a_v prod_i b_{v_i,k_i}(y_i)`` for a block of points.

    Parameters
    ----------
    bernstein : array (k_1 + 1, .., k_l + 1)
        Plain Bernstein coefficients: the iterated operator is already applied (`iterate`).
    points : array (m, l)
        Points of the unit cube.

    Returns
    -------
    array (m,)

    Examples
    --------
    >>> evaluate(np.array([0.0, 0.5, 1.0]), np.array([[0.25]])).tolist()
    [0.25]
    """
    values = np.empty(len(points))
    rows = max(1, _WORK_VALUES // (bernstein.size // bernstein.shape[0] + sum(bernstein.shape)))
    for first in range(0, len(points), rows):
        part = slice(first, first + rows)
        values[part] = _evaluate_block(bernstein, points[part])
    return values


def _evaluate_block(bernstein: FloatArray, points: FloatArray) -> FloatArray:
    flat = bernstein.reshape(bernstein.shape[0], -1)
    partial = bernstein_basis(points[:, 0], bernstein.shape[0] - 1) @ flat
    for axis, nodes in enumerate(bernstein.shape[1:], start=1):
        basis = bernstein_basis(points[:, axis], nodes - 1)
        partial = np.einsum("mvr,mv->mr", partial.reshape(len(points), nodes, -1), basis)
    return np.asarray(partial[:, 0])


def evaluate_grid(bernstein: FloatArray, axes: Sequence[FloatArray]) -> FloatArray:
    """The polynomial on the product grid of `axes`, by one product per axis."""
    values = bernstein
    for positions in axes:
        basis = bernstein_basis(positions, values.shape[0] - 1)
        values = np.tensordot(values, basis, axes=(0, 1))
    return values
