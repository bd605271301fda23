"""Count kernel sums by exact integer sketches: cells and integer moments of the offset.

Each axis is cut into public cells (`Cells`), equal ones where the kernel is smooth. A record in
cell j at offset u in [-1, 1] adds, for every multi-index a of total order at most p, the integer
``round(2^s prod_i T_{a_i}(u_i))`` (T the Chebyshev polynomials) to its cell. Integer sums are
exact in any order, so partitioning, order and retries cannot change them. A kernel at lattice
point v is then ``sum_a prod_i c_{a_i}(v_i, j_i) T_{a_i}(u_i)`` up to a proved error, with the
public tables ``c_a(v, j)``, the Chebyshev coefficients of ``u -> K(v - center_j - radius_j u)``.

Kinks
-----
A kernel with kinks is smooth on every cell, because edges lie at all of its kinks ``v/k +- d``, up
to the rounding of an edge to a float: that moves an edge from its kink by at most 2^-54 of a
period, so by ``delta <= 2^-54``. On a cell C let A be the affine map onto the part of C between
its kinks; then ``x -> K(v/k - A(x))`` is smooth on C, within ``slope delta`` of K, and has no
larger radius: its coefficients are what tables approximate and bounds are proved for. The part is
never empty: rounding keeps the order of kinks, and equal edges are one.

Rounding of a position needs no bound for privacy: a record's integers are those of a record at
``center + radius u`` with the float u in [-1, 1] that it was given, exactly.

Choice
------
A sum is counted with the cells and moments that are fewest among those accurate enough.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.measure.record_integers import Terms
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_NODES = 32
_SUM_ULPS = 2 * _NODES + 2 * 8 * 16
"""Error of one table entry in units of ``peak * 2^-53``, besides twice that of a kernel value (the
mean over the nodes doubles it): the weight's (the cosine of an angle up to 8 pi, whose roundings
shift it by 8 pi 2^-53 each), and at most one rounding for each node that is summed."""
_CACHED_ENTRIES = 1 << 16
_MAX_STATE_BYTES = 1 << 28
_CACHE_BYTES = 1 << 22
_MAX_CUTS = 1000  # of a period of cells: plans list them


@dataclass(frozen=True)
class Cells:
    """Cells of one axis: equal periods of the unit interval, all cut at the same fractions."""

    periods: int
    cuts: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        """Number of cells."""
        return self.periods * (len(self.cuts) + 1)

    @cached_property
    def _edges(self) -> FloatArray:
        return np.array([0.0, *self.cuts, 1.0])

    @cached_property
    def centers(self) -> FloatArray:
        """Middles of the cells in order, shape (count,)."""
        middles = (self._edges[:-1] + self._edges[1:]) / 2
        return np.asarray((np.arange(self.periods)[:, None] + middles) / self.periods).ravel()

    @cached_property
    def inverse_radii(self) -> FloatArray:
        """Two divided by the cells' widths, shape (count,)."""
        return np.tile(2 * self.periods / np.diff(self._edges), self.periods)

    @cached_property
    def radius(self) -> float:
        """Half the width of the widest cell."""
        return 0.5 * float(np.diff(self._edges).max()) / self.periods


def cells_for(kernel: Kernel, k: int, density: float) -> Cells:
    """Fewest cells, `density` or more to a unit, with every ``K(v/k - .)`` smooth on each."""
    if not kernel.kinks:
        return Cells(max(1, math.ceil(density)))
    scaled = [Fraction(kink) * k for kink in kernel.kinks]
    edges = sorted({Fraction(0), Fraction(1), *(s % 1 for s in scaled), *(-s % 1 for s in scaled)})
    counts = [max(1, math.ceil(float(high - low) * density / k)) for low, high in pairwise(edges)]
    if len(edges) == 2:  # lattice points alone: equal cells
        return Cells(k * counts[0])
    # `linspace` ends at the edges themselves, each rounded once.
    pieces = zip(pairwise(map(float, edges)), counts, strict=True)
    cuts = np.unique(np.concatenate([np.linspace(*ends, count + 1) for ends, count in pieces]))
    return Cells(k, tuple(cuts[1:-1].tolist()))


@dataclass(frozen=True)
class MomentSketch:
    """Integer moments of records in cells, of total order at most `order`.

    A moment has `bits` fixed-point bits s; ``rows * 2^bits < 2^62`` so that no sum overflows.
    """

    axes: tuple[Cells, ...]
    order: int
    bits: int

    @property
    def cells(self) -> tuple[int, ...]:
        """Number of cells of each axis."""
        return tuple(axis.count for axis in self.axes)

    @cached_property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """Multi-indices of total order at most p, in C order."""
        indices = itertools.product(range(self.order + 1), repeat=len(self.axes))
        return tuple(index for index in indices if sum(index) <= self.order)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state: one array of cells for each multi-index."""
        return (len(self.indices), *self.cells)

    @property
    def state_bytes(self) -> int:
        """Memory of one state."""
        return 8 * math.prod(self.shape)

    def terms(self, outputs: int) -> Terms:
        """Factors and targets of a record in a state of shape (indices, outputs, cells)."""
        return Terms(
            indices=np.array(self.indices, dtype=np.int64),
            targets=np.arange(len(self.indices)) * (outputs * math.prod(self.cells)),
            outputs=outputs,
            extents=self.cells,
            periods=tuple(axis.periods for axis in self.axes),
            edges=tuple((0.0, *axis.cuts, 1.0) for axis in self.axes),
            bits=self.bits,
            degree=self.order,
            splines=False,
        )

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        axes = [{"periods": axis.periods, "cuts": list(axis.cuts)} for axis in self.axes]
        return {"axes": axes, "order": self.order, "bits": self.bits}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> MomentSketch:
        """Read what `to_dict` wrote."""
        axes = (Cells(axis["periods"], tuple(axis["cuts"])) for axis in content["axes"])
        return cls(tuple(axes), content["order"], content["bits"])


def chebyshev_table(kernel: Kernel, k: int, cells: Cells, order: int) -> FloatArray:
    """Coefficients ``c_a(v, j)``, shape (order + 1, k + 1, cells), each within `_table_error`.

    Gauss-Chebyshev quadrature with 32 nodes, exact up to aliasing from degrees 64 - a and up.
    """
    theta = (np.arange(_NODES) + 0.5) * np.pi / _NODES
    offset = np.arange(k + 1)[:, None] / k - cells.centers
    table = np.zeros((order + 1, k + 1, cells.count))
    for angle in theta:
        values = kernel(offset - math.cos(angle) / cells.inverse_radii)
        for degree in range(order + 1):
            weight = (2 if degree else 1) * math.cos(degree * angle) / _NODES
            table[degree] += weight * values
    return table


def _table_error(kernel: Kernel, cells: Cells, order: int) -> float:
    """Bound on the error of one entry of `chebyshev_table`: rounding and aliasing.

    Raises ValueError for cells wider than two bandwidths, for which the aliasing bound is not
    proved; polynomials have no aliasing.
    """
    first = kernel.chebyshev_bound(2 * _NODES - order, cells.radius)
    if cells.radius > kernel.bandwidth and first > 0:
        raise ValueError("a cell must be at most two bandwidths wide")
    # The bounds at least halve with each degree from there on, so doubling covers the other turns.
    alias = 2 * sum(
        kernel.chebyshev_bound(2 * _NODES * turn + sign * degree, cells.radius)
        for degree in range(order + 1)
        for turn in (1, 2, 3)
        for sign in (-1, 1)
    )
    # Nodes, centers and lattice points are rounded too: at most 8 roundings of numbers up to 1,
    # twice as many for unequal cells, and an edge may be one from its kink.
    shift = (17 if kernel.kinks else 8) * UNIT_ROUNDOFF * kernel.slope
    ulps = 2 * kernel.ulps + _SUM_ULPS
    return OUTWARD * (ulps * UNIT_ROUNDOFF * kernel.peak + 2 * shift + alias)


def contract(sketch: MomentSketch, state: Int64Array, tables: Sequence[FloatArray]) -> FloatArray:
    """``sum_a sum_j prod_i c_{a_i}(v_i, j_i) state[a, j] / 2^bits`` for the tables' v.

    Shape (rows_1, .., rows_l), for tables (order + 1, rows_i, cells_i); within `contraction_error`
    of the exact sum.
    """
    partial: dict[tuple[int, ...], FloatArray] = {
        index: np.ldexp(moment.astype(np.float64), -sketch.bits)
        for index, moment in zip(sketch.indices, state, strict=True)
    }
    for table in tables:  # each step replaces the first cell axis by a last lattice axis
        terms: dict[tuple[int, ...], list[FloatArray]] = {}
        for index, values in partial.items():  # C order: of each rest the degrees from 0 up
            terms.setdefault(index[1:], []).append(values)
        partial = {rest: _summed(values, table) for rest, values in terms.items()}
    return partial[()]


def _summed(values: Sequence[FloatArray], table: FloatArray) -> FloatArray:
    """``sum_a sum_j values_a[j] table[a, :, j]``, degree by degree: see `contraction_error`."""
    flat, width = [cells.reshape(len(cells), -1) for cells in values], table.shape[1]
    total = np.empty((flat[0].shape[1], width))
    height = min(len(total), 64 * max(1, _CACHED_ENTRIES // (64 * width)))  # whole tiles of BLAS
    term = np.empty((height, width))
    for first in range(0, len(total), height):
        rows = slice(first, first + height)
        tile = total[rows]
        np.matmul(flat[0][:, rows].T, table[0].T, out=tile)
        for cells, coefficients in zip(flat[1:], table[1:], strict=False):
            tile += np.matmul(cells[:, rows].T, coefficients.T, out=term[: len(tile)])
    return total.reshape(*values[0].shape[1:], width)


def truncation_error(
    kernels: Sequence[Kernel], axes: Sequence[Cells], order: int, bits: int
) -> float:
    """Bound rho on ``|K~ - K|``, K~ the kernel that the integers and exact tables represent.

    With ``E_i(x) = sum_a e_{i,a} x^a`` for the per-axis coefficient bounds, what total-degree
    truncation drops is at most the part of ``prod_i E_i`` above order p, and each kept moment is
    rounded by less than ``2^-bits`` (half of that, and the float recurrence's own error). On an
    axis with kinks an edge may be 2^-54 from its kink (see the module), which changes the axis's
    factor by the slope times that; twice that covers the products of such changes.
    """
    product = _degree_bounds(kernels, axes, order)
    retained = product[: order + 1].sum()
    peaks = math.prod(kernel.peak for kernel in kernels)
    edges = sum(peaks * kernel.slope / kernel.peak for kernel in kernels if kernel.kinks)
    dropped = product[order + 1 :].sum() + retained * 2.0**-bits
    return OUTWARD * float(dropped + UNIT_ROUNDOFF * edges)


def _degree_bounds(kernels: Sequence[Kernel], axes: Sequence[Cells], order: int) -> FloatArray:
    """Coefficients of ``prod_i E_i``; each axis's infinite tail is lumped beyond `order`."""
    product = np.ones(1)
    for kernel, cells in zip(kernels, axes, strict=True):
        degree, tail = kernel.degree_for(1e-18, cells.radius)
        degree = max(degree, order + 1)
        bounds = [kernel.chebyshev_bound(a, cells.radius) for a in range(degree + 1)]
        product = np.convolve(product, np.array([*bounds, tail]))
    return product


def contraction_error(
    kernels: Sequence[Kernel], axes: Sequence[Cells], order: int, terms: Sequence[int]
) -> float:
    """Bound the float error of `contract` for any records, divided by their number.

    Tables may have gone through a linear map of each axis's lattice points whose rows have `terms`
    entries that sum to one in absolute value (zero terms: no map); for other rows the bound grows
    with the product of their sums. The map's product adds its own rounding.

    The absolute moments of all cells sum to at most `count` for each index, so the terms of the
    contraction sum to at most ``count * prod_i sum_a e_{i,a}`` in absolute value; a sum of D
    rounded products errs by at most ``(D + 1) 2^-53`` of that to first order, whatever the order
    of summation or fused operations, and the factor 2 covers the higher orders.
    """
    exact, perturbed, depth = 1.0, 1.0, 8
    for kernel, cells, terms_i in zip(kernels, axes, terms, strict=True):
        bound = sum(kernel.chebyshev_bound(a, cells.radius) for a in range(order + 1))
        error = (order + 1) * _table_error(kernel, cells, order)
        error += 2 * terms_i * UNIT_ROUNDOFF * (bound + error)
        exact *= bound
        perturbed *= bound + error
        depth += cells.count + order + 2
    return OUTWARD * (2 * depth * UNIT_ROUNDOFF * perturbed + (perturbed - exact))


def sketch_cost(sketch: MomentSketch, nodes: Sequence[int]) -> float:
    """Relative time: moments a record adds, slower out of cache, and the tables to contract."""
    tables = (sketch.order + 2) * sum(
        count * cells for count, cells in zip(nodes, sketch.cells, strict=True)
    )
    adding = len(sketch.indices) * (1 + sketch.state_bytes / _CACHE_BYTES)
    return adding + 8 * tables / _CACHE_BYTES


def smallest_sketch(
    kernels: Sequence[Kernel], k: Sequence[int], order: int, bits: int, tolerance: float
) -> MomentSketch | None:
    """Fewest cells (in proportion to the axes' inverse bandwidths) that meet the tolerance."""

    def sketch(density: float) -> MomentSketch:
        # Rounded up past the division's rounding, so that a cell is at most two bandwidths wide.
        axes = (
            cells_for(kernel, axis_k, OUTWARD * density / kernel.bandwidth)
            for kernel, axis_k in zip(kernels, k, strict=True)
        )
        return MomentSketch(tuple(axes), order, bits)

    def fits(density: float) -> bool:
        return truncation_error(kernels, sketch(density).axes, order, bits) <= tolerance

    low, high = 0.5, 0.5
    while not fits(high):
        low, high = high, 2 * high
        following = sketch(high)
        cuts = max(len(axis.cuts) for axis in following.axes)
        if following.state_bytes > 2 ** len(kernels) * _MAX_STATE_BYTES or cuts > _MAX_CUTS:
            return None
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    best = sketch(high)
    return best if best.state_bytes <= _MAX_STATE_BYTES else None
