"""The largest error of a release of bins on boxes: y in a public cell, t in a cell of the bins.

The release answers ``sum_j a_j(y) c_j`` and so misses ``int r_y(t) dD(t)`` of the records D, with
``r_y(t) = K(y - t) - sum_j a_j(y) beta_j(t)`` (`dbern.reconstruct.bins`).

On one axis and on a box of a cell of y and one of the bins, ``sum_j a_j beta_j`` is a polynomial of
degree p in t, and in y one of few Chebyshev polynomials but for a `cut`, by a bound on high
derivatives of a_j. As ``|T_a| <= 1`` and the B-splines sum to one, it is at most the largest sum of
its coefficients' sizes: enough where K and it are both small. Elsewhere, with `_steps` and
`_between`: a function of one variable whose second derivative is at most B exceeds the larger of
its values at the ends of an interval of w by at most ``w^2 B / 8``. A grid errs by the sum of that
in either direction.

- *Without a kink* K is a polynomial in y - t but for a proved `tail`. So r is a sum of ``c_ab T_a
  T_b`` but for the cut, the tail, and the tail times Lebesgue's constants of the nodes it is
  interpolated in. In angles it is ``c_ab cos(a theta) cos(b phi)``: B is ``sum a^2 |c_ab|``, that
  of r itself, hardly more than it is large.
- *With kinks* B is ``sup |K''|`` and ``sum |c_ab| sup |T_a''|`` of what is released, off the kinks.
  On a line of the grid the kink's own point joins the ends. On the line of a kink K is constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.basis import MANY, bernstein_mixtures
from dbern.bernstein.chebyshev import chebyshev, cosines
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.splines import local_weights
from dbern.reconstruct.axis_maps import synthesis_matrix
from dbern.reconstruct.bins import AxisBins
from dbern.types import BoolArray, FloatArray, Int64Array

NUMBERS_TOGETHER = 1 << 22
"""Numbers of polynomials in memory: 32 MiB, and as many while they are made."""

ROWS = 64
"""Cells of y at a time."""

FLOATS = 1e-11
"""A share of the largest coefficient, far above what roundings make of it."""

_TRUNCATION, _SHARE = 1e-9, 1 / 64  # of the peak; of the largest error seen, to add in between
_COARSE, _MOST_LOCAL, _MOST_STEPS = 4, 32, 64  # steps where it is looked for; nodes; steps; a cell
_BOXES = 512  # at a time
_MARGIN = 2.0**-50  # of a distance: more than it rounds by
_Pairs: TypeAlias = tuple[Int64Array, Int64Array]  # cells of y, and of the bins


@dataclass(frozen=True, eq=False)
class BinErrors:
    """Bounds on ``|r|`` by cells of y and of the bins; `floats` are more than roundings make of r.

    Only the first half of the cells of y where A is the same in reverse: ``r_{1-y}(1 - t)`` is
    ``r_y(t)``, as kernels, bins and the iterated basis are symmetric.
    """

    expansion: _Expansion
    floats: float

    @classmethod
    def of(cls, kernel: Kernel, k: int, h: int, bins: AxisBins, cells: int) -> BinErrors:
        """Prepare the bounds for the order-h release by bins, on so many equal cells of y."""
        coefficients = synthesis_matrix(k, h, bins)
        floats = FLOATS * (kernel.peak + kernel.slope + float(np.abs(coefficients).max()))
        return cls(_Expansion.of(kernel, k, coefficients, bins, cells), floats)

    @cached_property
    def _whole_strip(self) -> _Strip:
        return self.expansion.strip(range(self.expansion.rows))

    @property
    def strips(self) -> Iterator[_Strip]:
        """Some cells of y after others: the polynomials of all may be more than memory holds."""
        expansion, rows = self.expansion, self.expansion.rows
        together = max(1, NUMBERS_TOGETHER // (expansion.count * expansion.bins.rank))
        if rows <= together:
            yield self._whole_strip
            return
        for first in range(0, rows, together):
            yield expansion.strip(range(first, min(first + together, rows)))

    @cached_property
    def seen(self) -> float:
        """The largest ``|r|`` at some points, in the middle of each cell of y."""
        return max(strip.seen for strip in self.strips)

    @cached_property
    def bounds(self) -> FloatArray:
        """Bounds on ``|r|`` itself."""
        return self.missed(np.zeros((self.expansion.rows, self.expansion.bins.rank)))

    def highest(self) -> FloatArray:
        """Bound the largest ``a_j`` in each cell of y, (rows, bins)."""
        return np.concatenate([strip.highest() for strip in self.strips])

    def missed(self, about: FloatArray) -> FloatArray:
        """Bound by how much ``|r|`` exceeds splines of coefficients `about`, (cells, bins).

        On halves of the bins' cells, (rows, bins.cells, 2); 0 at least.
        """
        allowed = max(_SHARE * self.seen, _TRUNCATION * self.expansion.kernel.peak) / 2
        excesses = (strip.missed(about[strip.rows], allowed) for strip in self.strips)
        bounds = [OUTWARD * np.maximum(excess, 0.0) + self.floats for excess in excesses]
        return np.concatenate(bounds)


def on_cells(of: np.ufunc, rows: FloatArray, degree: int) -> FloatArray:
    """Largest or least of the bins (.., bins) that live on each cell."""
    last = rows.shape[1] - degree
    return np.asarray(reduce(of, (rows[:, r : r + last] for r in range(degree + 1))))


def _blocks(chosen: BoolArray, count: int) -> Iterator[_Pairs]:
    """Cells of y, of `count`, and of the bins, some pairs at a time: those as far apart."""
    rows, columns = np.nonzero(chosen)
    order = np.argsort(rows * chosen.shape[1] - columns * count, kind="stable")
    rows, columns = rows[order], columns[order]
    for first in range(0, len(rows), _BOXES):
        yield rows[first : first + _BOXES], columns[first : first + _BOXES]


@dataclass(frozen=True, eq=False)
class _Expansion:
    """Chebyshev polynomials of `count` terms in place of all a_j on a cell of y.

    They miss any a_j by at most `cut`; `tail` is what polynomials of their degree miss of K on a
    box without kinks.
    """

    kernel: Kernel
    k: int
    coefficients: FloatArray
    bins: AxisBins
    cells: int
    count: int
    cut: float
    tail: float

    @classmethod
    def of(
        cls, kernel: Kernel, k: int, coefficients: FloatArray, bins: AxisBins, cells: int
    ) -> _Expansion:
        """Choose the fewest nodes that miss next to nothing, `_MOST_LOCAL` at most.

        In m nodes ``2 (w / 4)^m sup |f^(m)| / m!`` is missed of f on an interval of w; a derivative
        of a_j is a mixture of its coefficients.
        """
        radius, most = 0.5 / cells + 0.5 / bins.cells, _TRUNCATION * kernel.peak
        degree, tail = kernel.degree_for(_TRUNCATION, radius)  # 8 and more: boxes may want less
        while degree > 1 and (more := tail + kernel.chebyshev_bound(degree, radius)) <= most:
            degree, tail = degree - 1, OUTWARD * more
        if degree >= _MOST_LOCAL:
            degree, tail = 0, math.inf
        differences = np.diff(coefficients, n=max(degree, bins.degree), axis=0)
        for count in range(max(degree, bins.degree) + 1, _MOST_LOCAL + 1):
            differences = np.diff(differences, axis=0)
            shares = ((k - i) / (4 * cells * (i + 1)) for i in range(count))
            cut = OUTWARD * 2 * float(np.abs(differences).max(initial=0.0)) * math.prod(shares)
            if cut <= most:
                break
        return cls(kernel, k, coefficients, bins, cells, count, cut, tail)

    @property
    def rows(self) -> int:
        """Number of cells of y that are looked at: see `BinErrors`."""
        return (self.cells + 1) // 2 if self.bins.mirrored else self.cells

    def strip(self, rows: range) -> _Strip:
        """Interpolate on these cells of y."""
        offsets, analysis = chebyshev(self.count)
        y = (np.array(rows)[:, None] + (1 + offsets) / 2) / self.cells
        values = bernstein_mixtures(y.reshape(-1), self.k, self.coefficients)
        return _Strip(self, rows.start, analysis @ values.reshape(len(rows), self.count, -1))


@dataclass(frozen=True, eq=False)
class _Strip:
    """Polynomials in place of all a_j on some cells of y, and what is bounded by them there.

    Rows of their coefficients, `terms` (rows, nodes, bins), count from the cell `first`.
    """

    expansion: _Expansion
    first: int
    terms: FloatArray

    @property
    def rows(self) -> slice:
        """The cells of y that these are."""
        return slice(self.first, self.first + len(self.terms))

    def missed(self, about: FloatArray, allowed: float) -> FloatArray:
        """Bound by how much ``|r|`` exceeds splines, but for roundings: see `BinErrors`."""
        kernel, bins = self.expansion.kernel, self.expansion.bins
        ends = np.arange(bins.cells + 1) / bins.cells
        start = np.arange(self.rows.start, self.rows.stop)[:, None] / self.expansion.cells
        stop = start + 1 / self.expansion.cells
        nearest, farthest = distances(start, stop, ends[:-1], ends[1:])
        mixed = OUTWARD * on_cells(np.maximum, self.sizes + self.expansion.cut, bins.degree)
        excess = (
            kernel.largest(nearest, farthest) + mixed
        )  # |sum_j a_j beta_j| is at most a mixture of |a_j|
        touched = [(nearest <= kink) & (kink <= farthest) for kink in kernel.kinks]
        kinked = np.any([np.zeros(excess.shape, bool), *touched], axis=0)
        near = excess > allowed  # elsewhere r is as small as K and its release themselves
        excess = np.repeat(excess[:, :, None], 2, axis=2)
        excess -= on_cells(np.minimum, about, bins.degree)[:, :, None]
        for bound, chosen in ((self.enclosed, near & ~kinked), (self.sampled, near & kinked)):
            for boxes in _blocks(chosen, self.expansion.rows):
                excess[boxes] = np.minimum(excess[boxes], bound(boxes, allowed, about))
        return excess

    @cached_property
    def sizes(self) -> FloatArray:
        """Bound ``|a_j|`` in each cell of y, (rows, bins), but for `cut`."""
        return np.asarray(np.abs(self.terms).sum(axis=1))

    def highest(self) -> FloatArray:
        """The largest ``a_j`` in each cell of y, (rows, bins), or little more."""
        count, highest = self.terms.shape[1], self.sizes.copy()
        steps, expansion = _COARSE * count, self.expansion
        least = FLOATS * expansion.kernel.peak if expansion.bins.rank > MANY else -1
        grid = cosines(np.linspace(0, np.pi, steps + 1), count)
        for first in range(0, len(highest), ROWS):
            rows = slice(first, first + ROWS)
            near = np.flatnonzero(highest[rows].max(axis=0) > least)  # others are as good as 0
            columns = slice(near[0], near[-1] + 1)
            terms = self.terms[rows, :, columns]
            bends = np.tensordot(np.arange(count) ** 2, np.abs(terms), axes=(0, 1))
            largest = np.stack([(grid @ row).max(axis=0) for row in terms])
            highest[rows, columns] = largest + _between([np.pi], [bends], [steps])
        return np.asarray(highest + self.expansion.cut)

    @cached_property
    def seen(self) -> float:
        """Largest ``|r|`` at some points, in the middle of each cell of y."""
        offsets, bins = np.linspace(-1.0, 1.0, _COARSE + 1), self.expansion.bins
        middle = np.cos(np.arange(self.terms.shape[1]) * (np.pi / 2)) @ self.terms
        y = (np.arange(self.rows.start, self.rows.stop)[:, None] + 0.5) / self.expansion.cells
        largest = 0.0
        splines = np.transpose(local_weights(offsets, bins.degree))
        for offset, weights in zip(offsets, splines, strict=True):
            t = (np.arange(bins.cells) + (1 + offset) / 2) / bins.cells
            error = self.expansion.kernel(y - t)
            for r, weight in enumerate(weights):
                error -= weight * middle[:, r : r + bins.cells]
            largest = max(largest, float(np.abs(error).max()))
        return largest

    def enclosed(self, boxes: _Pairs, allowed: float, about: FloatArray) -> FloatArray:
        """Bound ``|r|`` less splines on boxes (m,) without a kink, where both are polynomials.

        On halves of the bins' cells, (m, 2).
        """
        count = self.terms.shape[1]
        terms = self._bumps(*boxes) - self._splines(self.terms, *boxes)
        squares, less = np.arange(1.0 * count) ** 2, self._splines(about[:, None], *boxes)[:, 0]
        in_t, in_y = _weighed(terms, (squares, squares**0), (squares**0, squares))
        bends = in_y, in_t + squares @ np.abs(less)
        steps = [_steps(np.pi, bend, allowed, count) for bend in bends]
        of_y, of_t = (cosines(np.linspace(0, np.pi, parts + 1), count) for parts in steps)
        excess = (np.abs(_at(of_t, of_y, terms)) - (of_t @ less)[:, None]).max(axis=1)
        excess = _halves(excess)[:, ::-1] + _between((np.pi, np.pi), bends, steps)[:, None]
        lebesgue = 1 + 2 / np.pi * math.log(count)
        return np.asarray(excess + self.expansion.cut + (1 + lebesgue**2) * self.expansion.tail)

    def _bumps(self, rows: Int64Array, columns: Int64Array) -> FloatArray:
        """K on boxes (m,), which depends on how far they lie apart: coefficients as `_splines`."""
        expansion = self.expansion
        difference = (self.first + rows) * expansion.bins.cells - columns * expansion.cells
        _, first, same = np.unique(difference, return_index=True, return_inverse=True)
        offsets, analysis = chebyshev(self.terms.shape[1])
        y, t = self._points(rows[first], columns[first], *[offsets[:, None]] * 2)
        return _at(analysis, analysis, expansion.kernel(y - t[:, None]))[:, :, same]

    def sampled(self, boxes: _Pairs, allowed: float, about: FloatArray) -> FloatArray:
        """Bound ``|r|`` less splines on boxes (m,), by a grid and by points on their kinks."""
        expansion, count = self.expansion, self.terms.shape[1]
        widths = 1 / expansion.cells, 1 / expansion.bins.cells
        terms = self._splines(self.terms, *boxes)
        less = self._splines(about[:, None], *boxes)[:, 0]
        zeroth, first = np.ones(count), np.square(np.arange(1.0 * count))
        second = first * (first - 1) / 3
        of_y, of_t = (2 / width for width in widths)
        in_y, in_t, both = _weighed(terms, (zeroth, second), (second, zeroth), (first, first))
        in_y, in_t = of_y**2 * in_y, of_t**2 * (in_t + second @ np.abs(less))
        along = in_y + 2 * of_y * of_t * both + in_t
        smooth = self.expansion.kernel.curvature
        bends = smooth + in_y, np.maximum(smooth + in_t, along)
        steps = [_steps(*each, allowed, 1) for each in zip(widths, bends, strict=True)]
        on_y, on_t = (np.linspace(-1.0, 1.0, parts + 1)[:, None] for parts in steps)
        y, t = self._points(*boxes, on_y, on_t)
        at_y, at_t = (cosines(np.arccos(on_axis[:, 0]), count) for on_axis in (on_y, on_t))
        misses = np.abs(self.expansion.kernel(y - t[:, None]) - _at(at_t, at_y, terms))
        excess = _halves((misses - (at_t @ less)[:, None]).max(axis=1))
        for distance in (side * kink for kink in self.expansion.kernel.kinks for side in (-1, 1)):
            for line in ((t + distance, t), (y, y - distance)):
                on_kink = self._on_kink(boxes, terms, less, line)
                excess = np.maximum(excess, on_kink[:, None])
        return np.asarray(excess + _between(widths, bends, steps)[:, None] + self.expansion.cut)

    def _on_kink(self, boxes: _Pairs, terms: FloatArray, less: FloatArray, line: Any) -> FloatArray:
        """Largest value at points (q, m), or at those of the boxes (m,) next to them."""
        (rows, columns), (y, t) = boxes, line
        in_y = np.clip(2 * (y * self.expansion.cells - self.first - rows) - 1, -1.0, 1.0)
        in_t = np.clip(2 * (t * self.expansion.bins.cells - columns) - 1, -1.0, 1.0)
        y, t = self._points(rows, columns, in_y, in_t)
        of_y, of_t = (cosines(np.arccos(offsets.T), terms.shape[1]) for offsets in (in_y, in_t))
        made = (of_y @ np.moveaxis(terms, 2, 0).swapaxes(1, 2) * of_t).sum(axis=2)
        less = (of_t @ less.T[:, :, None])[:, :, 0]
        return np.asarray((np.abs(self.expansion.kernel(y - t).T - made) - less).max(axis=1))

    def _points(
        self, rows: Int64Array, columns: Int64Array, in_y: FloatArray, in_t: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Positions in y and t of offsets in [-1, 1] from the middle of cells, (q, m) or (q, 1)."""
        y = (self.first + rows + (1 + in_y) / 2) / self.expansion.cells
        return y, (columns + (1 + in_t) / 2) / self.expansion.bins.cells

    def _splines(self, terms: FloatArray, rows: Int64Array, columns: Int64Array) -> FloatArray:
        """``sum_j a_j beta_j`` on boxes (m,): coefficients of ``T_b T_a``, b of t: (nodes, .., m).

        `terms` (cells, .., bins) are those of the a_j in y.
        """
        offsets, analysis = chebyshev(self.terms.shape[1])
        weights = analysis @ np.transpose(local_weights(offsets, self.expansion.bins.degree))
        turned = terms.transpose(1, 0, 2)
        local = [turned[:, rows, columns + r] for r in range(self.expansion.bins.degree + 1)]
        return np.asarray(np.tensordot(weights, np.stack(local), axes=1))


def _at(of_t: FloatArray, of_y: FloatArray, terms: FloatArray) -> FloatArray:
    """Apply a matrix to t and one to y of terms by t, y and box: in that order."""
    return np.asarray(of_y @ np.tensordot(of_t, terms, axes=1))


def _weighed(terms: FloatArray, *weights: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Sums of coefficients' sizes by weights of b and of a, for each box."""
    flat = np.stack([np.multiply.outer(*pair).ravel() for pair in weights])
    return np.asarray(flat @ np.abs(terms).reshape(-1, terms.shape[2]))


def _halves(values: FloatArray) -> FloatArray:
    """The largest of each half of values (2 q + 1, m), whose middle is in both: (m, 2)."""
    middle = len(values) // 2
    return np.stack([values[: middle + 1].max(axis=0), values[middle:].max(axis=0)], axis=1)


def _steps(width: float, bends: FloatArray, allowed: float, least: int) -> int:
    """Even number of parts of a width, the least with at most `allowed` between their ends."""
    parts = width * math.sqrt(float(bends.max()) / (8 * allowed))
    return 2 * math.ceil(min(max(parts, least), _MOST_STEPS) / 2)


def _between(
    widths: Sequence[float], bends: Sequence[FloatArray], steps: Sequence[int]
) -> FloatArray:
    """Bound the excess of functions (m,) over their values on a grid by second derivatives."""
    axes = zip(widths, bends, steps, strict=True)
    return sum(((width / parts) ** 2 / 8 * bend for width, bend, parts in axes), start=np.zeros(()))


def distances(
    start: FloatArray, stop: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bound the least and the largest distance of intervals of y from those of t, roundings too."""
    nearest = np.maximum(np.maximum(low - stop, start - high) - _MARGIN, 0.0)
    return nearest, np.maximum(stop - low, high - start) + _MARGIN
