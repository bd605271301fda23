"""Lattice values whose polynomials are near a kernel, by least squares at Chebyshev nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, bernstein_basis, iterated_parts
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.parity import by_parity, of_parities, parities
from dbern.types import FloatArray

_SPARE_NODES = 400  # beside one for each value: polynomials of order h vary less
_BUMPS_TRIED = 33  # of the first half, the middle among them
_FIT_RIDGE = 1e-8  # of a value's own square, beside what it does to the function


@lru_cache(maxsize=64)
def lattice_miss(kernel: Kernel, k: int, h: int) -> float:
    """Largest error of `fitted_values` on a grid: no bins there improve on it.

    Polynomials in Bernstein form are coarsest in the middle: there they miss most.
    """
    t = np.linspace(0.0, 0.5, _BUMPS_TRIED)
    y = (1 - np.cos(np.linspace(0, np.pi, 2 * k + 1))) / 2  # symmetric with t about the middle
    bases, totals = by_parity(bernstein_basis(y[: k + 1], k), len(y)), iterated_parts(k, h)
    fitted = zip(bases, totals, parities(fitted_values(kernel, k, h, t)), strict=True)
    released = of_parities(*[basis @ (total @ values) for basis, total, values in fitted])
    return float(np.abs(kernel(y[:, None] - t) - released).max())


def fitted_values(kernel: Kernel, k: int, h: int | None, t: FloatArray) -> FloatArray:
    """Lattice values (k + 1, q) whose polynomial of order h is near the kernel at t.

    Kernels with kinks, no `h`, and functions linear between nodes: the kernel's own values there.
    """
    values = kernel(np.arange(k + 1)[:, None] / k - t)
    if kernel.kinks or h is None or h == INTERPOLATED:
        return values
    y, *parts = _normal_equations(k, h)
    pairs = zip(parts, parities(kernel(y[:, None] - t)), parities(values), strict=True)
    fitted = [
        start + np.linalg.solve(square, operator.T @ (target - operator @ start) / len(y))
        for (operator, square), target, start in pairs
    ]
    return of_parities(*fitted)


@lru_cache(maxsize=4)
def _normal_equations(k: int, h: int) -> tuple[Any, ...]:
    """Nodes, and for even and for odd values the iterated basis there and the matrix to solve."""
    nodes = min(4 * k, k + _SPARE_NODES) + 1
    y = (1 - np.cos((np.arange(nodes) + 0.5) * np.pi / nodes)) / 2
    half = bernstein_basis(y[: (nodes + 1) // 2], k)
    pairs = zip(by_parity(half, nodes), iterated_parts(k, h), strict=True)
    operators = [basis @ total for basis, total in pairs]
    ridges = [_FIT_RIDGE * np.eye(operator.shape[1]) for operator in operators]
    squares = [
        operator.T @ operator / nodes + ridge
        for operator, ridge in zip(operators, ridges, strict=True)
    ]
    return y, *zip(operators, squares, strict=True)
