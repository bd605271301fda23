"""Bins and finer ones of the same records, and what tells how far they differ, at public nodes.

R, g, T, W, f and l are those of `dbern.planning.bias_statistic`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np

from dbern.bernstein.basis import MOST_K, bernstein_basis
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.splines import bin_matrix, local_weights
from dbern.errors import SpecError
from dbern.reconstruct.bins import BinnedStrategy, axis_bins
from dbern.reconstruct.layouts import Lattice
from dbern.reconstruct.series import Series
from dbern.types import UNIT_ROUNDOFF, FloatArray

_MAX_NODES = 1 << 24
_OVERSAMPLING = (8, 4, 3, 2)
_OVERSAMPLING_OF_CELL = 4  # nodes over the degree and one, in a cell, where g is bounded
_DAMPING = 1e-13  # of the mean square of a bin
_CUT = 1e-11  # of the norm: what nodes leave to a tail
_SPREAD = 64  # points in a cell, to average a bin over
_FLOATS = 1e-11  # of the coefficients' norm: far above what roundings make of them


def _refinement(cells: int, degree: int, times: int) -> FloatArray:
    """Matrix R from finer bins to bins, (cells + degree, times cells + degree)."""
    ones = [np.ones(times)] * (degree + 1)
    coefficients = reduce(np.convolve, ones) / float(times**degree)
    matrix = np.zeros((cells + degree, times * cells + degree))
    for j in range(cells + degree):
        first = times * j - (times - 1) * degree
        inside = slice(max(0, -first), min(len(coefficients), matrix.shape[1] - first))
        matrix[j, first + inside.start : first + inside.stop] = coefficients[inside]
    return matrix


@dataclass(frozen=True)
class FinerBins:
    """A release of bins beside one of finer bins, at public nodes.

    Both are of the same degrees and order; `finer` has `times` as many cells.
    """

    bins: BinnedStrategy
    finer: BinnedStrategy
    h: tuple[int, ...]

    @classmethod
    def of(
        cls,
        kernels: Sequence[Kernel],
        bins: BinnedStrategy,
        h: tuple[int, ...],
        refinement: tuple[int, int],
    ) -> Self:
        """Make bins finer, and the lattice that evaluates them."""
        times, lattice_times = refinement
        k = tuple(min(MOST_K, lattice_times * length) for length in bins.lattice.k)
        axes = zip(kernels, k, bins.bins, h, strict=True)
        finer = tuple(
            axis_bins(kernel, n, times * axis.cells, axis.degree, order, _DAMPING)
            for kernel, n, axis, order in axes
        )
        return cls(bins, BinnedStrategy(Lattice(k), finer), h)

    @cached_property
    def _degrees(self) -> list[tuple[int, float, float]]:
        """Degree of both in y by axis, and what its nodes leave to tails."""
        degrees = []
        for k, n, matrix, finer_matrix in zip(
            self.bins.lattice.k, self.finer.lattice.k,
            self.bins.matrices(self.h), self.finer.matrices(self.h), strict=True,
        ):  # fmt: skip
            series, finer_series = Series.of(k, matrix, _CUT), Series.of(n, finer_matrix, _CUT)
            degree = max(len(series.coefficients), len(finer_series.coefficients)) - 1
            degrees.append((degree, series.tail, finer_series.tail))
        return degrees

    @cached_property
    def _oversampling(self) -> int:
        for factor in _OVERSAMPLING:
            if math.prod(factor * degree for degree, *_ in self._degrees) <= _MAX_NODES:
                return factor
        raise SpecError(
            f"mechanism.tune: a promise for these data needs more than {_MAX_NODES} places here. "
            'Write tune = "0", or a larger bandwidth'
        )

    @cached_property
    def bases(self) -> list[tuple[FloatArray, FloatArray]]:
        """Return by axis the maps from finer bins to values at nodes: of the release's, of all."""
        bases = []
        matrices = zip(self.bins.matrices(self.h), self.finer.matrices(self.h), strict=True)
        for axis, (matrix, finer_matrix) in enumerate(matrices):
            bins, finer = self.bins.bins[axis], self.finer.bins[axis]
            y, _ = enclosing_nodes(self._degrees[axis][0], self._oversampling)
            refined = matrix @ _refinement(bins.cells, bins.degree, finer.cells // bins.cells)
            k, n = self.bins.lattice.k[axis], self.finer.lattice.k[axis]
            bases.append((bernstein_basis(y, k) @ refined, bernstein_basis(y, n) @ finer_matrix))
        return bases

    @property
    def factor(self) -> float:
        """Factor f of the nodes' enclosure."""
        degrees = [degree for degree, *_ in self._degrees]
        return OUTWARD * math.prod(enclosing_nodes(d, self._oversampling)[1] for d in degrees)

    @property
    def loose(self) -> float:
        """Error that tails and floats add to the values at nodes, of bins that sum to one at most.

        So on an axis nothing is above the largest of the bins' own functions, at nodes times f.
        """
        cut = 0.0
        for side in (0, 1):
            norm = grown = 1.0
            for (degree, *tails), pair in zip(self._degrees, self.bases, strict=True):
                factor = enclosing_nodes(degree, self._oversampling)[1]
                size = factor * (float(np.abs(pair[side]).max()) + tails[side]) + tails[side]
                norm, grown = norm * size, grown * (size + 2 * tails[side])
            cut += grown - norm
        return OUTWARD * ((1 + self.factor) * cut + self.factor * _FLOATS * self.largest)

    @cached_property
    def largest(self) -> float:
        """Bound of ``max_i |g_i|`` at every node: the norms of both."""
        norms = [
            math.prod(float(np.abs(basis).max()) for basis in bases)
            for bases in zip(*self.bases, strict=True)
        ]
        return OUTWARD * sum(norms)

    @cached_property
    def bound(self) -> float:
        """Bound W: by axis g is a polynomial of the bins' degree in t on each cell.

        Its values at enclosing nodes there bound it, and over axes ``|prod (b_i + g_i) - prod b_i|
        <= prod (kappa_i + rho_i) - prod kappa_i`` with ``|b_i| <= kappa_i``, ``|g_i| <= rho_i``.
        """
        grown = norm = 1.0
        for (basis, finer_basis), bins in zip(self.bases, self.finer.bins, strict=True):
            difference = _sup(basis - finer_basis, bins.degree)
            size = _sup(finer_basis, bins.degree)
            grown, norm = grown * (size + difference), norm * size
        return OUTWARD * (grown - norm) + _FLOATS * self.largest

    def largest_difference(self, bins: FloatArray) -> float:
        """Return T of one output's finer bins."""
        largest = 0.0
        for nodes in self._node_slices():
            values = [bins, bins]
            for axis, pair in enumerate(self.bases):
                bases = [basis[nodes] if axis == 0 else basis for basis in pair]
                values = [
                    np.tensordot(array, basis, axes=(0, 1))
                    for array, basis in zip(values, bases, strict=True)
                ]
            largest = max(largest, float(np.abs(values[0] - values[1]).max()))
        return largest

    def evenly_spread(self) -> float:
        """Return T of evenly spread records."""
        bins: Any = 1.0
        for axis in self.finer.bins:
            t = (np.arange(_SPREAD * axis.cells) + 0.5) / (_SPREAD * axis.cells)
            bins = np.multiply.outer(bins, bin_matrix(t, axis.cells, axis.degree).mean(axis=0))
        return self.largest_difference(np.asarray(bins))

    def _node_slices(self) -> Iterator[slice]:
        """Split the nodes of the first axis, few enough at a time."""
        nodes_of_first = math.prod(len(basis) for basis, _ in self.bases[1:])
        step = max(1, (1 << 20) // max(1, nodes_of_first))
        for start in range(0, len(self.bases[0][0]), step):
            yield slice(start, start + step)

    @property
    def contraction(self) -> float:
        """Bound on the float error of T, of bins whose sizes sum to one."""
        terms = sum(bins.rank + 3 for bins in self.finer.bins)
        return OUTWARD * 2 * UNIT_ROUNDOFF * terms * self.largest


def _sup(coefficients: FloatArray, degree: int) -> float:
    """Bound ``|sum_i c_i beta_i(t)|`` of all rows (m, cells + degree), everywhere."""
    nodes, factor = enclosing_nodes(max(1, degree), _OVERSAMPLING_OF_CELL)
    weights = local_weights(2 * nodes - 1, degree)
    cells = coefficients.shape[1] - degree
    largest = 0.0
    for node_weights in np.transpose(weights):
        values = sum(w * coefficients[:, r : r + cells] for r, w in enumerate(node_weights))
        largest = max(largest, float(np.abs(values).max()))
    return OUTWARD * factor * largest + _FLOATS * float(np.abs(coefficients).max())
