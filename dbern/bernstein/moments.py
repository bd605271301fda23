"""Exact integer sketches of smooth kernel sums: cells and integer moments of the offset.

Each axis has a public number of equal cells. A record in cell j at offset u in [-1, 1] adds, for
every multi-index a of total order at most p, the integer ``round(2^s prod_i T_{a_i}(u_i))`` (T
the Chebyshev polynomials) to its cell. Integer sums are exact in any order, so partitioning,
order and retries cannot change them. A kernel at lattice point v is then
``sum_a prod_i c_{a_i}(v_i, j_i) T_{a_i}(u_i)`` up to a proved error, with the public tables
``c_a(v, j)``, the Chebyshev coefficients of ``u -> K(v - center_j - u / 2m)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.counting import EQUAL, Terms, add_rows, unit_rows
from dbern.bernstein.kernels import EXP_ULPS, OUTWARD, Gaussian

UNIT_ROUNDOFF = 2.0**-53
_NODES = 32
_TABLE_ULPS = 2 * (EXP_ULPS + 12) + 2 * _NODES + 2 * 8 * 16
"""Error of one table entry in units of ``peak * 2^-53``: the mean over the nodes doubles the error
of one kernel value (exp, the exponent's five roundings times ``|z| e^z < 0.37``, two products)
and of the weight (the cosine of an angle up to 8 pi, whose roundings shift it by 8 pi 2^-53 each),
and summing the nodes adds at most one rounding each."""


@dataclass(frozen=True)
class MomentSketch:
    """The integers a record becomes, and how they add up.

    Parameters
    ----------
    cells : tuple of int
        Cells per axis.
    order : int
        Largest total order p of the moments kept.
    bits : int
        Fixed-point bits s of each moment; ``rows * 2^bits < 2^62`` so that no sum overflows.

    Examples
    --------
    >>> sketch = MomentSketch(cells=(2,), order=1, bits=4)
    >>> state = sketch.empty()
    >>> sketch.add(state, np.array([[0.25], [0.5], [1.0]]))
    >>> state.tolist()
    [[16, 32], [0, 0]]
    """

    cells: tuple[int, ...]
    order: int
    bits: int

    @cached_property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """Multi-indices of total order at most p, in C order."""
        every = itertools.product(range(self.order + 1), repeat=len(self.cells))
        return tuple(index for index in every if sum(index) <= self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state: one array of cells for each multi-index."""
        return (len(self.indices), *self.cells)

    @property
    def state_bytes(self) -> int:
        """Memory of one state."""
        return 8 * math.prod(self.shape)

    def empty(self) -> Int64Array:
        """The state of no records."""
        return np.zeros(self.shape, dtype=np.int64)

    def add(
        self,
        state: Int64Array,
        positions: FloatArray,
        output: Int64Array | None = None,
        weight: FloatArray | None = None,
    ) -> None:
        """Add records at unit-cube `positions` (m, l) to `state`, in place.

        With `output` (m,) the state has a second axis, and each record adds to its own layer of
        it; with `weight` (m,), in [-1, 1], to each of its integers' sums in proportion.
        """
        layers = state[0].size // math.prod(self.cells)
        add_rows(state, unit_rows(positions, output, weight), self.terms(layers))

    def terms(self, outputs: int) -> Terms:
        """What a record adds to a state of shape (indices, outputs, cells)."""
        return Terms(
            indices=np.array(self.indices, dtype=np.int64),
            places=np.arange(len(self.indices)) * (outputs * math.prod(self.cells)),
            outputs=outputs,
            extents=self.cells,
            periods=self.cells,
            edges=(EQUAL,) * len(self.cells),
            bits=self.bits,
            order=self.order,
            splines=False,
        )


def chebyshev_table(kernel: Gaussian, k: int, cells: int, order: int) -> FloatArray:
    """Coefficients ``c_a(v, j)``, shape (order + 1, k + 1, cells), each within `table_error`.

    Gauss-Chebyshev quadrature with 32 nodes, exact up to aliasing from degrees 64 - a and up.
    """
    theta = (np.arange(_NODES) + 0.5) * np.pi / _NODES
    centers = (np.arange(cells) + 0.5) / cells
    offset = np.arange(k + 1)[:, None] / k - centers
    table = np.zeros((order + 1, k + 1, cells))
    for angle in theta:
        values = kernel(offset - math.cos(angle) / (2 * cells))
        for degree in range(order + 1):
            weight = (2 if degree else 1) * math.cos(degree * angle) / _NODES
            table[degree] += weight * values
    return table


def table_error(kernel: Gaussian, cells: int, order: int) -> float:
    """Bound on the error of one entry of `chebyshev_table`: rounding and aliasing.

    Raises
    ------
    ValueError
        Where a cell is wider than two bandwidths: the aliasing bound is proved only below that.
    """
    radius = 0.5 / cells
    if radius > kernel.bandwidth:
        raise ValueError("a cell must be at most two bandwidths wide")
    # The bounds at least halve with each degree from there on, so doubling covers the other turns.
    alias = 2 * sum(
        kernel.chebyshev_bound(2 * _NODES * turn + sign * degree, radius)
        for degree in range(order + 1)
        for turn in (1, 2, 3)
        for sign in (-1, 1)
    )
    # Nodes, centers and lattice points are rounded too: at most 8 roundings of numbers up to 1.
    shift = 8 * UNIT_ROUNDOFF * kernel.slope
    return OUTWARD * (_TABLE_ULPS * UNIT_ROUNDOFF * kernel.peak + 2 * shift + alias)


def contract(sketch: MomentSketch, state: Int64Array, tables: Sequence[FloatArray]) -> FloatArray:
    """``sum_a sum_j prod_i c_{a_i}(v_i, j_i) state[a, j] / 2^bits`` for the tables' v.

    Parameters
    ----------
    state : array, `sketch.shape`
    tables : sequence of arrays (order + 1, rows_i, cells_i)
        `chebyshev_table` of each axis, or some rows of it.

    Returns
    -------
    array (rows_1, .., rows_l)
        Within `contraction_error` of the exact sum.
    """
    partial: dict[tuple[int, ...], FloatArray] = {
        index: np.ldexp(moment.astype(np.float64), -sketch.bits)
        for index, moment in zip(sketch.indices, state, strict=True)
    }
    for table in tables:  # each step replaces the first cell axis by a last lattice axis
        reduced: dict[tuple[int, ...], FloatArray] = {}
        for index, values in partial.items():
            term = np.tensordot(values, table[index[0]], axes=(0, 1))
            rest = index[1:]
            reduced[rest] = reduced[rest] + term if rest in reduced else term
        partial = reduced
    return partial[()]


def mapped_table(table: FloatArray, matrix: FloatArray | None) -> FloatArray:
    """Apply a matrix (d, k + 1) to the lattice points of a table (order + 1, k + 1, cells)."""
    return table if matrix is None else np.asarray(np.matmul(matrix, table))


def truncation_error(
    kernels: Sequence[Gaussian], cells: Sequence[int], order: int, bits: int
) -> float:
    """Bound rho on ``|K~ - K|``, K~ the kernel that the integers and exact tables represent.

    With ``E_i(x) = sum_a e_{i,a} x^a`` for the per-axis coefficient bounds, what total-degree
    truncation drops is at most the part of ``prod_i E_i`` above order p, and each kept moment is
    rounded by less than ``2^-bits`` (half of that, and the float recurrence's own error).
    """
    product = _degree_bounds(kernels, cells, order)
    kept = product[: order + 1].sum()
    return OUTWARD * float(product[order + 1 :].sum() + kept * 2.0**-bits)


def _degree_bounds(kernels: Sequence[Gaussian], cells: Sequence[int], order: int) -> FloatArray:
    """Coefficients of ``prod_i E_i``; each axis's infinite tail is lumped beyond `order`."""
    product = np.ones(1)
    for kernel, count in zip(kernels, cells, strict=True):
        radius = 0.5 / count
        degree, tail = kernel.degree_for(1e-18, radius)
        degree = max(degree, order + 1)
        bounds = [kernel.chebyshev_bound(a, radius) for a in range(degree + 1)]
        product = np.convolve(product, np.array([*bounds, tail]))
    return product


def contraction_error(
    kernels: Sequence[Gaussian], cells: Sequence[int], order: int, terms: Sequence[int]
) -> float:
    """Bound the float error of `contract` for any records, divided by their number.

    Tables may have gone through a linear map per axis (`mapped_table`) whose rows have `terms`
    entries that sum to one in absolute value (zero terms: no map); for other rows the bound grows
    with the product of their sums. The map's product adds its own rounding.

    The absolute moments of all cells sum to at most `count` for each index, so the terms of the
    contraction sum to at most ``count * prod_i sum_a e_{i,a}`` in absolute value; a sum of D
    rounded products errs by at most ``(D + 1) 2^-53`` of that to first order, whatever the order
    of summation or fused operations, and the factor 2 covers the higher orders.
    """
    exact, perturbed, depth = 1.0, 1.0, 8
    for kernel, cells_i, terms_i in zip(kernels, cells, terms, strict=True):
        bound = sum(kernel.chebyshev_bound(a, 0.5 / cells_i) for a in range(order + 1))
        error = (order + 1) * table_error(kernel, cells_i, order)
        error += 2 * terms_i * UNIT_ROUNDOFF * (bound + error)
        exact *= bound
        perturbed *= bound + error
        depth += cells_i + order + 2
    return OUTWARD * (2 * depth * UNIT_ROUNDOFF * perturbed + (perturbed - exact))
