"""A Bernstein polynomial as pieces of low degree, with a proved error.

On each half of an axis take ``s = sqrt(min(y, 1 - y))``. With ``s = sin(theta)`` and theta complex,

    ``sum_v |b_{v,k}(s^2)| = (|sin^2 theta| + |cos^2 theta|)^k = cosh(2 Im theta)^k``,

so a polynomial with coefficients of size A is at most ``A cosh(2 Im theta)^k`` off the real axis:
as a function of s it is equally smooth everywhere, on a scale of ``1 / sqrt(k)``, where in y it is
not near the ends. Each half is cut into equal cells of s, and on each cell the interpolant in
``2 order`` Chebyshev nodes is cut after `order` terms. Both errors are bounded in `_axis_error`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.chebyshev import chebyshev, enclosing_nodes
from dbern.types import FloatArray

TOLERANCE = 1e-9
"""Most error of the pieces, as a share of the largest value."""

_CHOICES = ((8, 1 << 22), (12, 1 << 23), (16, 1 << 24))
"""Terms along an axis and most numbers in the table (32, 64, 128 MiB); the first are fastest."""

_PROJECTION_NORM = 2.5  # of cutting the interpolant in 2 order nodes after `order` terms, any order
_OVERSAMPLING = 2
_ATTEMPTS = 8
_MAX_AXES = 3
_LINES_TOGETHER = 1024
_DECAYS = np.linspace(0.2, 8.0, 200)


@dataclass(frozen=True)
class Pieces:
    """A function on the unit cube as one polynomial for each cell.

    `cells` along each axis are even: those of ``y <= 1/2`` first, each half counted from its end.
    Row (cell) of `table` (prod(cells), order ** l) has the coefficients of ``prod_i t_i^(m_i)``,
    cells and powers in C order, lowest power first; with c cells on a half, ``t = c sqrt(2 min(y, 1
    - y)) - index - 1/2`` lies in [-1/2, 1/2]. `error` bounds the distance from the function that
    was resampled, roundings apart.
    """

    cells: tuple[int, ...]
    order: int
    table: FloatArray
    error: float


def resample(bernstein: FloatArray) -> Pieces | None:
    """Cut a polynomial into pieces that miss it by at most `TOLERANCE` times its largest value.

    None where the table would be larger than 128 MiB, or with more than three axes, of which few
    tables are not.
    """
    if (
        bernstein.ndim > _MAX_AXES
        or math.prod(_OVERSAMPLING * n for n in bernstein.shape) > _CHOICES[-1][1]
    ):
        return None
    lines, largest = _lines(bernstein)
    for order, max_numbers in _CHOICES:
        max_cells = max_numbers // order**bernstein.ndim
        division = _count_cells(lines, order, TOLERANCE * largest, max_cells)
        if division is not None:
            halves, error = division
            degrees = (nodes - 1 for nodes in bernstein.shape)
            maps = [_powers(k, half, order) for k, half in zip(degrees, halves, strict=True)]
            cells = tuple(2 * half for half in halves)
            return Pieces(cells, order, _table(bernstein, maps), error)
    return None


def _lines(bernstein: FloatArray) -> tuple[list[tuple[FloatArray, float]], float]:
    """Coefficients along each axis at enclosing nodes of the other axes, and the largest value.

    The first are arrays (k + 1, nodes), each with the factor by which values elsewhere may exceed
    it. The second is the largest at the nodes: no more than the largest anywhere.
    """
    enclosing = [enclosing_nodes(nodes - 1, _OVERSAMPLING) for nodes in bernstein.shape]
    bases = [
        bernstein_basis(y, n - 1) for (y, _), n in zip(enclosing, bernstein.shape, strict=True)
    ]
    factors = [factor for _, factor in enclosing]
    lines = []
    for axis, nodes in enumerate(bernstein.shape):
        values = bernstein
        for direction, basis in enumerate(bases):
            matrix = np.eye(nodes) if direction == axis else basis
            values = np.tensordot(values, matrix, axes=(0, 1))
        factor = math.prod(factors) / factors[axis]
        lines.append((np.moveaxis(values, axis, 0).reshape(nodes, -1), factor))
    return lines, float(np.abs(bases[0] @ lines[0][0]).max())


def _count_cells(
    lines: Sequence[tuple[FloatArray, float]], order: int, max_error: float, max_cells: int
) -> tuple[list[int], float] | None:
    """Cells on each half axis, at most `max_cells`, that keep within an error; and the error.

    With P_i what resampling does along axis i, ``1 - P_1 P_2 P_3`` is
    ``(1 - P_1) + P_1 (1 - P_2) + P_1 P_2 (1 - P_3)``, so each axis counts times the norms before.
    """
    weights = [_PROJECTION_NORM**axis for axis in range(len(lines))]
    halves: list[int] = []
    error = 0.0
    for (values, factor), weight in zip(lines, weights, strict=True):
        axis_error = max_error / sum(weights)
        half = max(1, 4 * math.isqrt(len(values)) // order)
        for _ in range(_ATTEMPTS):
            if math.prod(halves) * half * 2 ** (len(halves) + 1) > max_cells:
                return None
            bound = factor * _axis_error(values, half, order)
            if bound <= axis_error:
                break
            excess = bound / axis_error if axis_error > 0 else math.inf
            half = math.ceil((half + 0.1) * min(excess ** (1 / order), 4.0))
        else:
            return None
        halves.append(half)
        error += weight * bound
    return halves, error


def _axis_error(values: FloatArray, half: int, order: int) -> float:
    """Bound the error along one axis, where `values` (k + 1, lines) are coefficients on lines.

    On a cell let Q interpolate p in ``n = 2 order`` Chebyshev nodes, with coefficients q_m. Every
    ``|T_m| <= 1``, so cutting Q after `order` terms costs at most the sum of the other ``|q_m|``:
    the first part. Where ``|p| <= M`` on the ellipse of parameter r around the cell, coefficient m
    of p itself is at most ``2 M r^-m``; those from n on alias to others, so ``|p - Q|`` is at most
    twice their sum, ``4 M r^(1-n) / (r - 1)``: the second part.
    """
    k = len(values) - 1
    spectrum = _spectrum(k, half, 2 * order)[:, order:].reshape(-1, k + 1)
    dropped = 0.0
    for side in (values, values[::-1]):
        for first in range(0, side.shape[1], _LINES_TOGETHER):
            terms = np.abs(spectrum @ side[:, first : first + _LINES_TOGETHER])
            sums = terms.reshape(half, order, -1).sum(axis=1)
            dropped = max(dropped, float(sums.max()))
    return dropped + _tail(k, half, 2 * order) * float(np.abs(values).max())


def _tail(k: int, half: int, nodes: int) -> float:
    """Bound interpolation in `nodes` nodes for coefficients in [-1, 1], on every cell.

    ``|z - 1| + |z + 1| = 2 cosh(Im theta)`` for ``z = sin(theta)``. It is convex and even in z, so
    on the box around an ellipse it is largest at a corner, and the outermost cell is the worst.
    """
    radius = math.sqrt(0.125) / half
    real = math.sqrt(0.5) - radius + radius * np.cosh(_DECAYS)
    imaginary = radius * np.sinh(_DECAYS)
    height = np.arccosh((np.hypot(real - 1, imaginary) + np.hypot(real + 1, imaginary)) / 2)
    growth = k * np.log(np.cosh(np.minimum(2 * height, 300.0)))
    logarithms = math.log(4) + growth - (nodes - 1) * _DECAYS - np.log(np.expm1(_DECAYS))
    return math.exp(min(float(logarithms.min()), 300.0))


@lru_cache(maxsize=16)
def _spectrum(k: int, half: int, nodes: int) -> FloatArray:
    """Chebyshev coefficients of the basis on the cells of ``y <= 1/2``, (half, nodes, k + 1)."""
    offsets, analysis = chebyshev(nodes)
    positions = np.arange(half)[:, None] + 0.5 + 0.5 * offsets
    basis = bernstein_basis((positions**2 / (2 * half**2)).ravel(), k)
    return np.asarray(analysis @ basis.reshape(half, nodes, k + 1))


def _powers(k: int, half: int, order: int) -> FloatArray:
    """Maps from coefficients of the basis to powers of t on the cells, (2 half, order, k + 1)."""
    change = np.zeros((order, order))  # T_m(2 t) in powers of t, by its recurrence
    change[0, 0], change[1, 1] = 1.0, 2.0
    for m in range(2, order):
        change[1:, m] = 4 * change[:-1, m - 1]
        change[:, m] -= change[:, m - 2]
    powers = change @ _spectrum(k, half, 2 * order)[:, :order]
    return np.concatenate([powers, powers[:, :, ::-1]])  # b_{v,k}(1 - y) = b_{k-v,k}(y)


def _table(bernstein: FloatArray, maps: Sequence[FloatArray]) -> FloatArray:
    """Apply each axis's map (cells, order, k + 1), one cell of the first axis at a time."""
    cells, order = [len(matrices) for matrices in maps], maps[0].shape[1]
    table = np.empty((cells[0], math.prod(cells[1:]), order ** len(maps)))
    later = range(1, len(maps))
    arrangement = [2 * axis - 1 for axis in later] + [0] + [2 * axis for axis in later]
    for piece, rows in zip(table, maps[0], strict=True):
        values = np.tensordot(rows, bernstein, axes=(1, 0))
        for matrices in maps[1:]:
            values = np.tensordot(values, matrices, axes=(1, 2))
        piece[...] = values.transpose(arrangement).reshape(piece.shape)
    return table.reshape(-1, table.shape[-1])
