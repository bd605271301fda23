"""The largest error of a release of bins that is linear between lattice values, on boxes.

As in `bin_errors`, ``r_y(t) = K(y - t) - sum_j a_j(y) beta_j(t)``; but the a_j are linear between
the nodes ``v / k``, and so is what is released of any record. For y on the step from v to v + 1,

    ``r_y = (K(y - t) - L(y)) + ((1 - s) r_v(t) + s r_{v+1}(t))``,

L the line through K at the two nodes, s the share of the step. So ``|r_y|`` is at most what lines
miss of K, and the larger of ``|r_v|`` and ``|r_{v+1}|``, functions of t alone. No polynomial of
high degree stands between, so a kink costs what a step is wide.

- *Lines.* With w a step and D a Lipschitz constant, lines miss at most ``D w / 2``. Where
  ``|K''| <= C`` off the kinks, and K' jumps by J in all inside, they miss at most ``C w^2 / 8 + J w
  / 4``: K is a function whose derivative is continuous and has slope C at most, and ``J (y -
  kink)_+``. As K is positive and decreases from its center, they miss no more than its value at the
  least distance.
- *In t* ``|r_v| - sum_j u_j beta_j`` is at most the larger of its values at the ends of an interval
  of w plus the same: with C that of K and of the splines' second derivatives, which are second
  differences of coefficients times the square of the number of cells, mixed.
- *Far off* ``|r_y|`` is at most K at the least distance plus the largest ``|a_j|`` of the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.splines import local_weights
from dbern.certify.bin_errors import FLOATS, ROWS, distances, on_cells
from dbern.reconstruct.bins import AxisBins
from dbern.types import BoolArray, FloatArray, Int64Array

_NEAR = 1e-4  # of the peak: where K and its release are smaller, they are bounded by their sizes
_PARTS = 16  # of half a cell of the bins
_FEW_PARTS = 4  # of those without a kink


@dataclass(frozen=True, eq=False)
class InterpolatedErrors:
    """Bounds on ``|r|`` by equal cells of y and cells of the bins, as those of `BinErrors`."""

    kernel: Kernel
    bins: AxisBins
    cells: int

    @property
    def k(self) -> int:
        """Number of steps between lattice values."""
        return len(self.bins.synthesis) - 1

    @property
    def rows(self) -> int:
        """Number of cells of y that are looked at: half of them where A is the same in reverse."""
        return (self.cells + 1) // 2 if self.bins.mirrored else self.cells

    @cached_property
    def floats(self) -> float:
        """More than roundings make of r."""
        largest = float(np.abs(self.bins.synthesis).max())
        return FLOATS * (self.kernel.peak + self.kernel.slope + largest)

    @cached_property
    def bounds(self) -> FloatArray:
        """Bounds on ``|r|`` itself."""
        return self.missed(np.zeros((self.rows, self.bins.rank)))

    def highest(self) -> FloatArray:
        """Return the largest ``a_j`` in each cell of y, (rows, bins)."""
        return np.asarray(self.bins.synthesis[self._nodes(range(self.rows))].max(axis=1))

    def missed(self, about: FloatArray) -> FloatArray:
        """Bound by how much ``|r|`` exceeds splines of coefficients `about`, (cells, bins).

        On halves of the bins' cells, (rows, bins.cells, 2); 0 at least.
        """
        excesses = []
        for first in range(0, self.rows, ROWS):
            rows = range(first, min(first + ROWS, self.rows))
            excesses.append(self._missed(rows, about[rows.start : rows.stop]))
        return OUTWARD * np.maximum(np.concatenate(excesses), 0.0) + self.floats

    def _nodes(self, rows: range) -> Int64Array:
        """Nodes of all steps that each cell of y meets, (rows, nodes); the last one repeated."""
        cells = np.array(rows)
        first, last = cells * self.k // self.cells, -(-(cells + 1) * self.k // self.cells)
        count = int((last - first).max()) + 1
        return np.asarray(np.minimum(first[:, None] + np.arange(count), last[:, None]))

    def _missed(self, rows: range, about: FloatArray) -> FloatArray:
        nodes, degree, count = self._nodes(rows), self.bins.degree, self.bins.cells
        edges = np.arange(2 * count + 1) / (2 * count)
        low, high = edges[:-1].reshape(count, 2), edges[1:].reshape(count, 2)
        start, stop = (nodes[:, end, None, None] / self.k for end in (0, -1))
        nearest, farthest = distances(start, stop, low, high)
        sizes = np.abs(self.bins.synthesis[nodes]).max(axis=1)
        reached = self.kernel.largest(nearest, farthest)
        excess = reached + on_cells(np.maximum, sizes, degree)[:, :, None]
        lines = np.minimum(self._missed_by_lines(nearest, farthest, 1 / self.k), reached)
        near = np.flatnonzero((excess > _NEAR * self.kernel.peak).any(axis=(0, 2)))
        excess -= on_cells(np.minimum, about, degree)[:, :, None]
        if len(near):
            some = slice(near[0], near[-1] + 1)
            at_nodes = self._missed_at_nodes(nodes, about, some)
            excess[:, some] = np.minimum(excess[:, some], at_nodes + lines[:, some])
        return excess

    def _missed_by_lines(
        self, nearest: FloatArray, farthest: FloatArray, width: float
    ) -> FloatArray:
        """Bound what a line between two points, `width` apart, misses of K at such distances."""
        kernel = self.kernel
        missed = np.full(nearest.shape, kernel.curvature * width**2 / 8)
        if kernel.jumps:
            for kink in kernel.kinks:
                jump = kernel.slope * (2 if kink == 0 else 1)
                sides = np.where(nearest == 0, 2 if kink > 0 else 1, 1)  # of the center
                missed += ((nearest <= kink) & (kink <= farthest)) * sides * jump * width / 4
        return np.asarray(OUTWARD * np.minimum(missed, kernel.slope * width / 2))

    def _missed_at_nodes(self, nodes: Int64Array, about: FloatArray, some: slice) -> FloatArray:
        """Bound by how much the largest ``|r_v|`` of some nodes exceeds splines, (rows, cells, 2).

        Where a slope jumps, cells without a kink are looked at in few parts.
        """
        order, columns = self.bins.degree + 1, np.arange(some.start, some.stop)
        last, jumps = some.stop + self.bins.degree, self.kernel.jumps
        less = sliding_window_view(about[:, some.start : last], order, axis=1)
        excess = np.full((len(nodes), len(columns), 2), -np.inf)
        for node in nodes.T:
            y = node[:, None] / self.k
            matrix = sliding_window_view(
                self.bins.synthesis[node, some.start : last], order, axis=1
            )
            at_node = self._missed_at(y, columns, matrix, less, _FEW_PARTS if jumps else _PARTS)
            if jumps:
                kinked = self._with_kinks(y, columns)
                row, cell = np.nonzero(kinked)
                at_node[kinked] = self._missed_at(
                    y[row, 0], columns[cell], matrix[kinked], less[kinked], _PARTS
                )
            excess = np.maximum(excess, at_node)
        return excess

    def _missed_at(
        self, y: FloatArray, column: Int64Array, matrix: FloatArray, less: FloatArray, parts: int
    ) -> FloatArray:
        """Bound by how much ``|r|`` at nodes y exceeds splines on halves of cells, (.., 2).

        By places on so many parts of each half; coefficients (.., degree + 1) of a cell's splines.
        """
        offsets = np.linspace(-1.0, 1.0, 2 * parts + 1)
        weights = np.stack(local_weights(offsets, self.bins.degree))
        y = y[..., None]
        t = (column[..., None] + (1 + offsets) / 2) / self.bins.cells
        missed = np.abs(self.kernel(y - t) - _splines(matrix, weights)) - _splines(less, weights)
        middle = missed[..., : parts + 1].max(axis=-1), missed[..., parts:].max(axis=-1)
        edges = t[..., ::parts]
        nearest, farthest = distances(y, y, edges[..., :-1], edges[..., 1:])
        width = 1 / (2 * self.bins.cells * parts)
        between = self._missed_by_lines(nearest, farthest, width)
        between += ((self._bends(less) + self._bends(matrix)) * width**2 / 8)[..., None]
        return np.asarray(np.stack(middle, axis=-1) + between)

    def _with_kinks(self, y: FloatArray, column: Int64Array) -> BoolArray:
        """Return in which cells there may be a kink seen from y."""
        cells = column / self.bins.cells, (column + 1) / self.bins.cells
        nearest, farthest = distances(y, y, *cells)
        kinks = [(nearest <= kink) & (kink <= farthest) for kink in self.kernel.kinks]
        return np.asarray(np.any(kinks, axis=0))

    def _bends(self, coefficients: FloatArray) -> FloatArray:
        """Bound splines' second derivatives by the coefficients on a cell, (.., degree + 1)."""
        if self.bins.degree < 2:
            return np.zeros(coefficients.shape[:-1])
        second = np.abs(np.diff(coefficients, n=2, axis=-1)) * self.bins.cells**2
        return np.asarray(OUTWARD * second.max(axis=-1))


def _splines(coefficients: FloatArray, weights: FloatArray) -> FloatArray:
    """Values (.., q) of splines at q places of a cell, by their coefficients there."""
    return np.asarray(sum(coefficients[..., r, None] * row for r, row in enumerate(weights)))
