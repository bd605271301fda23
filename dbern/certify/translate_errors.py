"""Worst-case distance of the released polynomial of a kernel translate from the translate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.chebyshev import cosines, enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.reconstruct.axis_maps import LinearMap, evaluation_matrix, lattice_values
from dbern.reconstruct.series import Series, lebesgue_constant
from dbern.types import FloatArray, Int64Array

_TRUNCATION = 1e-6
_ROWS = 512
_WORK = 2e10
_SQUARES = 32  # a side of the domain, to begin with
_PARTS = 8  # a side of a square, at most
_T_LINES, _Y_LINES = 64, 16  # lines of squares in t, in y, that share a product
_SQUARES_WORK = 1.4e9  # products, a hundred more for each point: under a second
_SQUARES_CUT = 1e-8  # of a polynomial's size, left out
_RELATIVE_GAP = 0.02
_ABSOLUTE_GAP = 1e-5  # of the peak


@lru_cache(maxsize=256)
def translate_error(kernel: Kernel, k: int, h: int, spectrum: LinearMap | None = None) -> float:
    """Bound ``sup_{t,y} |K(y - t) - p_t(y)|``, p_t the noiseless release of K(. - t).

    *Smooth kernels*: in each variable K is a polynomial of degree D up to a proved Chebyshev tail;
    the difference is then a polynomial of degree max(k, D) in y and D in t, which oversampled
    Chebyshev nodes enclose (`enclosing_nodes`). The tails enter once for K and once through the
    operator. *Kernels with kinks*: branch and bound, see `_boxed_error`.
    """
    norm = lebesgue_constant(k, h, spectrum)
    if kernel.kinks:
        boxed = _boxed_error(kernel, k, evaluation_matrix(k, h, spectrum), norm)
        return OUTWARD * min(boxed, (1 + norm) * kernel.peak)
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
    kernel: Kernel, k: int, matrix: FloatArray, y: FloatArray, t: FloatArray
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


def _boxed_error(kernel: Kernel, k: int, matrix: FloatArray, norm: float) -> float:
    """Bound the error ``E(y, t) = K(y - t) - p_t(y)`` over squares, divided where that matters.

    In one variable a function exceeds its end values by at most ``L w / 2`` on an interval of w,
    and by at most ``C w^2 / 8``, for Lipschitz constants L of it and C of its derivative. Applied
    in y, then in t at either end, this bounds |E| on a square by its corner values. Squares that
    cannot exceed the largest value found by more than the stated gaps are done with; when the work
    is, so is the refinement, and what is left counts as it stands. p is cut after the degree that
    it really has: as lattice values are at most the peak, what is left out adds the tail of that.
    """
    first, second = _lipschitz_constants(kernel, k, matrix, norm)
    series = Series.of(k, matrix, _SQUARES_CUT)
    parts, side, best, work = 1, 1 / _SQUARES, 0.0, 0.0
    y, t = np.arange(_SQUARES // 2) * side, np.arange(_SQUARES) * side
    squares = np.stack(np.meshgrid(y, t), axis=-1).reshape(-1, 2)
    # Half of the domain is enough: it is symmetric under (y, t) -> (1 - y, 1 - t).
    while True:
        squares, corners = _corner_errors(kernel, k, series, squares, side, parts)
        side /= parts
        best = max(best, float(corners.max()))
        gap = max(_RELATIVE_GAP * best, _ABSOLUTE_GAP * kernel.peak)
        bounds = corners + min(first * side / 2, second * side**2 / 8)
        parents, *offsets = np.nonzero(bounds > best + gap)
        squares = squares[parents] + side * np.transpose(offsets)
        enough_at = max(2 * gap / first, math.sqrt(8 * gap / second))
        square_work = len(squares) * (len(series.coefficients) + 100)
        affordable = math.sqrt((_SQUARES_WORK - work) / max(square_work, 1)) - 1
        parts = math.floor(min(affordable, max(2.0, min(_PARTS, side / enough_at + 1))))
        work += square_work * (parts + 1) ** 2
        if not len(squares) or parts < 2:
            rounding = 8 * 2.0**-53 * first  # of the squares' corners
            return max(best + gap, float(bounds.max())) + rounding + series.tail * kernel.peak


def _lipschitz_constants(
    kernel: Kernel, k: int, matrix: FloatArray, norm: float
) -> tuple[float, float]:
    """Lipschitz constants of E, and of its derivatives (infinite where K' jumps): in y plus in t.

    ``p_t(y) = sum_v (b(y) M)_v K(v/k - t)`` has derivatives in t of at most `norm` times the
    kernel's; in y, see `_steepest` and `_derivative_bound`.
    """
    step = min(kernel.slope / k, kernel.peak)  # values are from zero to the peak
    sizes = (kernel.peak, step, min(kernel.curvature / k**2, 2 * step))
    in_y = _steepest(kernel, k, matrix) if k > 1 else math.inf
    if in_y == math.inf or kernel.curvature > 0:
        in_y = min(in_y, _derivative_bound(k, matrix, sizes[:2]))
    first = kernel.slope * (2 + norm) + in_y
    if kernel.jumps:
        return first, math.inf
    return first, kernel.curvature * (2 + norm) + _derivative_bound(k, matrix, sizes)


def _steepest(kernel: Kernel, k: int, matrix: FloatArray) -> float:
    """Bound ``sup_{t,y} |p_t'(y)|``.

    ``p_t'(y) = sum_v w_v(y) K(v/k - t)`` is smooth in t but where a v/k - t is a kink. On an
    interval of length at most 1/k between those it exceeds its end values by at most ``C sum_v
    |w_v(y)| / 8 k^2``, C the kernel's curvature. At either end it is a polynomial in y, which nodes
    enclose. By symmetry t in the first half is enough.
    """
    series, lattice = Series.of(k - 1, np.diff(matrix, axis=0) * k), np.arange(k + 1) / k
    sides = (side * kink for kink in kernel.kinks for side in (-1, 1))
    t = np.unique(np.concatenate([lattice, np.array([0.5]), *(lattice + side for side in sides)]))
    coefficients = series.coefficients @ lattice_values(kernel, k, t[(t >= 0.0) & (t <= 0.5)])
    values, factor = replace(series, coefficients=coefficients).at_nodes(4)
    between = kernel.curvature * series.norm / (8 * k**2)
    return 1.001 * (factor * float(np.abs(values).max()) + series.tail * kernel.peak + between)


def _derivative_bound(k: int, matrix: FloatArray, sizes: Sequence[float]) -> float:
    """Bound the derivative of ``b(y) M f`` on the unit interval, of order ``len(sizes) - 1``.

    Differences of order i of the lattice values f are at most ``sizes[i]``, all else is open.
    It is a polynomial whose Bernstein coefficients are differences of ``M f``. With Newton's
    expansion ``f_j = sum_{i < m} C(j, i) D^i f_0 + sum_q C(j - q - 1, m - 1) D^m f_q`` these are
    linear in the differences of f.
    """
    order = len(sizes) - 1
    if order > k:
        return 0.0
    rows = np.diff(matrix, n=order, axis=0) * math.perm(k, order)
    j = np.arange(k + 1)
    tail = _binomials(j[:, None] - j[: k + 1 - order] - 1, order - 1)  # zero for j <= q
    low = [sizes[i] * rows @ _binomials(j, i) for i in range(order)]
    columns = np.column_stack([*low, sizes[order] * rows @ tail])
    if order == k:
        return float(np.abs(columns).sum())
    return 1.001 * Series.of(k - order, columns).sup_norm(oversampling=4)


def _binomials(numbers: Int64Array, order: int) -> FloatArray:
    """``C(n, order)``, zero for negative n; scipy's would take a tenth of a second to import."""
    factors = ((numbers - i) / (i + 1) for i in range(order))
    return math.prod(factors, start=(numbers >= 0).astype(np.float64))


def _corner_errors(
    kernel: Kernel, k: int, series: Series, squares: FloatArray, side: float, parts: int
) -> tuple[FloatArray, FloatArray]:
    """Divide each square, given by its low (y, t), in both variables into so many parts.

    Returns the squares (m, 2) in another order, and the largest ``|E|`` at the corners of their
    parts, (m, parts in y, parts in t).
    """
    steps = np.arange(parts + 1)[:, None] * (side / parts)
    nodes = np.arange(k + 1) / k
    all_squares, all_corners = [], []
    for column in _split(squares, 1, _T_LINES):
        t = np.unique(column[:, 1])
        bumps = kernel(nodes[:, None] - (t + steps).ravel())
        coefficients = series.coefficients @ bumps
        coefficients = coefficients.reshape(-1, parts + 1, len(t))
        for block in _split(column, 0, _Y_LINES):
            y, y_index = np.unique(block[:, 0], return_inverse=True)
            t_lines, t_index = np.unique(np.searchsorted(t, block[:, 1]), return_inverse=True)
            y_lines = (y + steps).ravel()
            angles = np.arccos(1 - 2 * np.minimum(y_lines, 1.0))
            basis = cosines(angles, len(coefficients))
            released = basis @ coefficients[:, :, t_lines].reshape(len(coefficients), -1)
            errors = kernel(y_lines[:, None] - (t[t_lines] + steps).ravel())
            errors -= released
            errors = np.abs(errors, out=errors).reshape(parts + 1, len(y), parts + 1, len(t_lines))
            errors = np.maximum(errors[1:], errors[:-1])
            errors = np.maximum(errors[:, :, 1:], errors[:, :, :-1])
            all_corners.append(errors[:, y_index, :, t_index])
            all_squares.append(block)
    return np.concatenate(all_squares), np.concatenate(all_corners)


def _split(squares: FloatArray, column: int, max_lines: int) -> Iterator[FloatArray]:
    """Split squares by one of their numbers, in parts of at most `max_lines` of them."""
    squares = squares[np.argsort(squares[:, column], kind="stable")]
    starts = np.flatnonzero(np.diff(squares[:, column], prepend=-1.0))
    yield from np.split(squares, starts[max_lines::max_lines])
