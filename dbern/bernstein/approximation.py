"""How far the released polynomial of a kernel bump is from the bump, at worst."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import bernstein_basis, enclosing_nodes, iterated_matrix
from dbern.bernstein.kernels import OUTWARD, Gaussian
from dbern.bernstein.spectrum import AxisSpectrum

_TRUNCATION = 1e-6
_ROWS = 512
_WORK = 2e10


def evaluation_matrix(k: int, h: int, spectrum: AxisSpectrum | None = None) -> FloatArray:
    """What takes one axis's lattice values to the coefficients of the Bernstein basis.

    ``W_h`` for the lattice values themselves, ``W_h A T`` where only a spectrum is released.
    """
    matrix = iterated_matrix(k, h)
    return matrix if spectrum is None else matrix @ spectrum.synthesis @ spectrum.analysis


def sup_norm(k: int, matrix: FloatArray) -> float:
    """Bound ``max_y sum_j |(b(y) M)_j|`` for a matrix M with k + 1 rows, within 2 %.

    At its maximum the sum is a polynomial of degree k with fixed signs, which the nodes enclose.

    Examples
    --------
    >>> 1.0 <= sup_norm(20, np.eye(21)) < 1.021
    True
    """
    nodes, factor = enclosing_nodes(k)
    worst = max(
        float(np.abs(bernstein_basis(nodes[i : i + _ROWS], k) @ matrix).sum(axis=1).max())
        for i in range(0, len(nodes), _ROWS)
    )
    return factor * worst * (1 + 1e-9)


@lru_cache(maxsize=256)
def lebesgue_constant(k: int, h: int, spectrum: AxisSpectrum | None = None) -> float:
    """Bound the sup of the axis's polynomial by the largest lattice value, within 2 %.

    Examples
    --------
    >>> 1.0 <= lebesgue_constant(20, 1) < 1.021
    True
    """
    return sup_norm(k, evaluation_matrix(k, h, spectrum))


@lru_cache(maxsize=256)
def bump_error(kernel: Gaussian, k: int, h: int, spectrum: AxisSpectrum | None = None) -> float:
    """Bound ``sup_{t,y} |K(y - t) - p_t(y)|``, p_t what a noiseless release makes of K(. - t).

    In each variable K is a polynomial of degree D up to a proved Chebyshev tail; the difference is
    then a polynomial of degree max(k, D) in y and D in t, which oversampled Chebyshev nodes
    enclose (`enclosing_nodes`). The tails enter once for K and once through the operator.

    Examples
    --------
    >>> wide, narrow = (bump_error(Gaussian(b), 20, 4) for b in (0.3, 0.1))
    >>> wide < narrow
    True
    """
    norm = lebesgue_constant(k, h, spectrum)
    degree, tail = kernel.degree_for(_TRUNCATION, radius=0.5)
    for oversampling in (8, 4, 2):
        y, y_factor = enclosing_nodes(max(k, degree), oversampling)
        t, t_factor = enclosing_nodes(degree, oversampling)
        if len(y) * len(t) * (k + 20) <= _WORK:
            break
    else:  # a kernel this narrow is not resolved anyway: bound each term by itself
        return OUTWARD * (1 + norm) * kernel.peak
    y = y[: (len(y) + 1) // 2]  # symmetric under (y, t) -> (1 - y, 1 - t)
    worst = _largest_error(kernel, k, evaluation_matrix(k, h, spectrum), y, t)
    # Enclose in t at fixed y, then in y: each replaces K by a polynomial, off by at most `tail`.
    in_t = t_factor * (worst + (1 + norm) * tail) + (1 + norm) * tail
    return OUTWARD * (y_factor * (in_t + tail) + tail)


def _largest_error(
    kernel: Gaussian, k: int, matrix: FloatArray, y: FloatArray, t: FloatArray
) -> float:
    """``max |K(y - t) - b(y) M (K(v/k - t))_v|`` over the product of nodes, in blocks."""
    nodes = np.arange(k + 1)[:, None] / k
    worst = 0.0
    for columns in np.array_split(t, max(1, len(t) // _ROWS)):
        coefficients = matrix @ kernel(nodes - columns)
        for rows in np.array_split(y, max(1, len(y) // _ROWS)):
            error = kernel(rows[:, None] - columns) - bernstein_basis(rows, k) @ coefficients
            worst = max(worst, float(np.abs(error).max()))
    return worst
