"""Release B-spline bins.

Brackets of a kernel by the bins that are released: what a release misses, place by place.

A release of unsigned bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)`` and
``c_j = int beta_j(t) dD(t)``, so it misses ``int r_y(t) dD(t)`` with ``r_y(t) = K(y - t) - sum_j
a_j(y) beta_j(t)``. The B-splines are nonnegative and sum to one at every t. So with any ``e_j >=
sup |r_y|`` over the support of beta_j, ``|r_y(t)| <= sum_j e_j beta_j(t)``, and for **every**
database D, whatever the matrix A, the order or the rank,

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``.

The right side is small where records are few. Records of weights w in [-1, 1] obey it too with c
of the bins that count each of these records once: ``|int w r_y dD| <= int |r_y| dD``.

*All y of a public cell I.* e_j(I) is a bound over y in I. Along one axis r is sampled on a grid of
I and of each cell C of the bins. Between two grid points w apart a function f is at most the
larger of its values there and ``w^2 sup |f''| / 8 + w J / 4``, J the sum of the jumps of f'. In y
the sum ``sum_j a_j(y) beta_j(t)`` is a mixture of the a_j, so its second derivative is at most
that of the worst a_j, a polynomial that nodes enclose. In t it is a spline, whose second
derivative is ``g^2 sum_j (a_{j+2} - 2 a_{j+1} + a_j) N_j``, N_j splines of degree p - 2 that sum
to one. A grid in both directions errs by the sum of the two terms.

*More axes.* With ``kappa_j >= K`` and ``rho_j >= |r|`` on an axis for y in I and t in the support,
``prod K_i - prod (K_i - r_i)`` is at most ``prod (kappa_i + rho_i) - prod kappa_i`` in size.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from dbern.bernstein.basis import bernstein_basis, enclosing_nodes, iterated_matrix
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.strategies.approximation import AxisMap, StoredArray, lebesgue_constant, translate_error
from dbern.strategies.base import AxisStrategy, Bound, Box, Lattice, Slab
from dbern.types import FloatArray, Int64Array

DEGREES = (1, 2, 3, 5, 7)
"""Degrees of B-splines that a plan chooses from."""

CLUSTERS = 1000
"""Equal point masses at uniform places, at most: the rough part of a typical database."""

_SMOOTH_SCALE = 0.2
"""The smooth part of a typical density varies by its mean over this share of an axis."""

_TRUNCATION = 1e-9
_FEWEST_NODES, _MOST_NODES = 400, 1 << 14
_NODES_A_BANDWIDTH = 8
_FINER = 3  # nodes of the mean squares that bins are made for
_DAMPING = 1e-9  # of the mean square of a bin, added to each
_FIT_RIDGE = 1e-8  # of a coefficient's own square, beside what it does to the function
_MOST_WORK = 2e11  # multiplications of an enclosure: some ten seconds
_BLOCK = 1 << 22
_PLACES = 1 << 15


@dataclass(frozen=True)
class AxisBins(AxisMap):
    """One axis: cells, degree, and the matrix A from bins to lattice values.

    Attributes
    ----------
    packed : bytes
        A as little-endian float64 in C order, shape (k + 1, cells + degree).
    used : int
        How many leading singular vectors of A an evaluation uses; 0: all.
    """

    cells: int
    degree: int
    packed: bytes
    used: int = 0

    kind: ClassVar[str] = "binned"
    mode: ClassVar[str] = "bin"

    @property
    def rank(self) -> int:
        """How many bins there are."""
        return self.cells + self.degree

    @cached_property
    def synthesis(self) -> FloatArray:
        """A, or its best approximation of rank `used`; shape (k + 1, bins)."""
        whole = np.frombuffer(self.packed, dtype="<f8").astype(np.float64).reshape(-1, self.rank)
        if not 0 < self.used < self.rank:
            return whole
        left, sizes, right = np.linalg.svd(whole, full_matrices=False)
        kept = slice(self.used)
        return np.asarray((left[:, kept] * sizes[kept]) @ right[kept])

    @cached_property
    def gain(self) -> float:
        """Mean square over the lattice of the noise of A y, for y of independent unit noise."""
        return float(np.square(self.synthesis).sum()) / len(self.synthesis)

    @cached_property
    def largest_l2(self) -> float:
        """Bound ``max_t |beta(t)|_2``: on a cell its square is a polynomial of degree 2p."""
        nodes, factor = enclosing_nodes(2 * self.degree, oversampling=64)
        weights = np.stack(local_weights(2 * nodes - 1, self.degree))
        return float(OUTWARD * np.sqrt(factor * np.square(weights).sum(axis=0).max()))

    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times what is reconstructed of translates at t (m,); A knows the kernel."""
        del kernel
        return (matrix @ self.synthesis) @ bin_matrix(t, self.cells, self.degree).T

    def error(self, kernel: Kernel, k: int, h: int) -> float:
        """Bound what a noiseless release of order h misses of a translate, at worst.

        Of kernels with kinks the bracket is some four times smaller.
        """
        bracket = axis_bracket(kernel, k, h, self, _shape(self), _CELLS_A_BIN * self.cells)
        return min(binned_error(kernel, k, h, self), OUTWARD * float(bracket.error.max()))

    def using(self, rank: int) -> AxisBins:
        """The same bins, evaluated with `rank` singular vectors."""
        return replace(self, used=rank)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the matrix in base64."""
        packed = base64.b64encode(self.packed).decode()
        return {"cells": self.cells, "degree": self.degree, "synthesis": packed}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> AxisBins:
        """What `to_dict` wrote."""
        return cls(content["cells"], content["degree"], base64.b64decode(content["synthesis"]))

    def arrays(self) -> list[StoredArray]:
        """A, and what cells it is for."""
        facts = {"cells": self.cells, "degree": self.degree}
        return [StoredArray("synthesis", self.synthesis, ("axis", "mode"), facts)]

    @classmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> AxisBins:
        """What `arrays` wrote."""
        synthesis, facts = read("synthesis")
        return cls(facts["cells"], facts["degree"], np.asarray(synthesis).astype("<f8").tobytes())


def cell_of(positions: FloatArray, cells: int) -> tuple[Int64Array, FloatArray]:
    """Each position's cell, and its offset in it, from -1 to 1; single IEEE operations.

    Examples
    --------
    >>> cell, offset = cell_of(np.array([0.0, 0.5, 1.0]), 2)
    >>> cell.tolist(), offset.tolist()
    ([0, 1, 1], [-1.0, -1.0, 1.0])
    """
    scaled = positions * cells
    cell = np.minimum(scaled.astype(np.int64), cells - 1)
    return cell, 2.0 * (scaled - cell) - 1.0


def local_weights(offset: FloatArray, degree: int) -> list[FloatArray]:
    """Values of the degree + 1 B-splines that live on a cell, in order, at offsets in [-1, 1].

    The recurrence of Cox and de Boor on uniform knots, divided by ``degree!`` at its end: with u in
    [0, 1], ``w_r <- (u + d - r) w_{r-1} + (r + 1 - u) w_r`` for d = 1, 2, .. Nothing is subtracted
    but u from an integer that is at least one, so each step rounds by factors of ``1 +- 2^-53``, of
    which a weight gathers at most ``3 degree + 2``: weights are nonnegative, exact up to as many
    units of their own size, and as many of one in their sum.

    Examples
    --------
    >>> [float(w[0]) for w in local_weights(np.array([0.0]), 2)]
    [0.125, 0.75, 0.125]
    """
    u = (offset + 1.0) / 2.0
    weights = [np.ones_like(u)]
    for d in range(1, degree + 1):
        rising = [(u + (d - r)) * weights[r - 1] for r in range(1, d)]
        middle = [up + ((r + 1) - u) * weights[r] for r, up in enumerate(rising, start=1)]
        weights = [(1.0 - u) * weights[0], *middle, u * weights[-1]]
    return [weight / math.factorial(degree) for weight in weights]


def bin_matrix(positions: FloatArray, cells: int, degree: int) -> FloatArray:
    """``beta_j(t)`` for each position t and bin j, shape (m, cells + degree); rows sum to one.

    Examples
    --------
    >>> bin_matrix(np.array([0.25]), cells=2, degree=1).tolist()
    [[0.5, 0.5, 0.0]]
    """
    cell, offset = cell_of(positions, cells)
    values = np.zeros((len(positions), cells + degree))
    for r, weight in enumerate(local_weights(offset, degree)):
        values[np.arange(len(positions)), cell + r] = weight
    return values


@lru_cache(maxsize=8)
def prior(bandwidth: float) -> tuple[FloatArray, FloatArray]:
    """Positions (q,), fine for the bandwidth, and factors (q, r) of a typical smooth density.

    Its second moments at two positions are the product of its factors there, ``F F'``: those of the
    uniform density, varying by as much as itself over a fifth of the axis. A typical database adds
    `CLUSTERS` equal point masses at uniform places. Sums over positions are means of q terms.
    """
    count = min(_MOST_NODES, max(_FEWEST_NODES, math.ceil(_NODES_A_BANDWIDTH / bandwidth)))
    t = (np.arange(count) + 0.5) / count
    step = _SMOOTH_SCALE / 8
    centers = np.arange(-2 * _SMOOTH_SCALE, 1 + 2 * _SMOOTH_SCALE, step)
    size = math.sqrt(step / (_SMOOTH_SCALE * math.sqrt(math.pi / 2)))
    factors = size * np.exp(-(((t[:, None] - centers) / _SMOOTH_SCALE) ** 2))
    factors.setflags(write=False)
    return t, factors


@lru_cache(maxsize=256)
def axis_bins(
    kernel: Kernel, k: int, cells: int, degree: int = 2, h: int | None = None
) -> AxisBins:
    """Bins whose A has the least squared error for a point mass, its place uniform; unshrunk.

    A little damping changes next to nothing inside the domain, and keeps the ends quiet, where
    B-splines of high degree are nearly dependent. With `h` the error is that of the polynomial of
    order h (`lattice_bumps`), without that of lattice values.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> bins = axis_bins(Gaussian(0.1), k=40, cells=10)
    >>> bins.rank, bins.synthesis.shape
    (12, (41, 12))
    """
    t, bumps = lattice_bumps(kernel, k, h)
    beta = bin_matrix(t, cells, degree)
    gram = beta.T @ beta
    damped = gram + _DAMPING * np.trace(gram) / len(gram) * np.eye(len(gram))
    matrix = np.linalg.solve(damped, beta.T @ bumps.T).T
    return AxisBins(cells, degree, np.ascontiguousarray(matrix, dtype="<f8").tobytes())


@lru_cache(maxsize=8)
def lattice_bumps(kernel: Kernel, k: int, h: int | None) -> tuple[FloatArray, FloatArray]:
    """Places t (q,), and lattice values (k + 1, q) whose polynomials are near the bumps there.

    Of order h, by least squares over Chebyshev nodes in y that begin at the bumps' own values: k
    need not be as large as those would make it. Kernels with kinks, and no `h`: the values
    themselves, whose errors on the lattice are what `binned_error` bounds there.
    """
    count = _FINER * len(prior(kernel.bandwidth)[0])
    t = (np.arange(count) + 0.5) / count
    values = kernel(np.arange(k + 1)[:, None] / k - t)
    if kernel.kinks or h is None:
        return t, values
    nodes = 4 * k + 1
    y = (1 - np.cos((np.arange(nodes) + 0.5) * np.pi / nodes)) / 2
    operator = bernstein_basis(y, k) @ iterated_matrix(k, h)
    left = operator.T @ (kernel(y[:, None] - t) - operator @ values) / nodes
    square = operator.T @ operator / nodes + _FIT_RIDGE * np.eye(k + 1)
    return t, values + np.linalg.solve(square, left)


@lru_cache(maxsize=64)
def lattice_miss(kernel: Kernel, k: int, h: int) -> float:
    """The largest error of `lattice_bumps` on a grid: what no bins on that lattice improve on."""
    t, bumps = lattice_bumps(kernel, k, h)
    y = (1 - np.cos(np.linspace(0, np.pi, 2 * k + 1))) / 2
    made = bernstein_basis(y, k) @ iterated_matrix(k, h) @ bumps
    return float(np.abs(kernel(y[:, None] - t) - made).max())


@lru_cache(maxsize=256)
def binned_error(kernel: Kernel, k: int, h: int, bins: AxisBins) -> float:
    """Bound ``sup_{t,y} |K(y - t) - b(y) W_h A beta(t)|``, what a noiseless release misses.

    On a cell, K is a polynomial of degree D in t up to a proved Chebyshev tail, and beta one of
    degree p; in y, K is one of degree D' and the release one of degree k. Nodes on every cell and
    on the y axis enclose both (`enclosing_nodes`). For kernels with kinks: `_through_lattice`.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> coarse, fine = (binned_error(Gaussian(0.2), 40, 8, axis_bins(Gaussian(0.2), 40, g))
    ...                 for g in (4, 12))
    >>> fine < coarse
    True
    """
    if kernel.kinks:
        return _through_lattice(kernel, k, h, bins)
    radius = 0.5 / bins.cells
    in_cell, cell_tail = kernel.degree_for(_TRUNCATION, radius)
    degree, tail = kernel.degree_for(_TRUNCATION, radius=0.5)
    y, y_factor = enclosing_nodes(max(k, degree), oversampling=4)
    local, t_factor = enclosing_nodes(max(in_cell, bins.degree), oversampling=4)
    t = ((np.arange(bins.cells)[:, None] + local) / bins.cells).reshape(-1)
    if len(y) * len(t) * (k + 1) > _MOST_WORK:
        most = float(np.abs(bins.synthesis).max())
        return OUTWARD * (kernel.peak + lebesgue_constant(k, h) * most)
    coefficients = iterated_matrix(k, h) @ bins.synthesis @ bin_matrix(t, *_shape(bins)).T
    worst = 0.0
    for rows in np.array_split(y, max(1, len(y) * len(t) // _BLOCK)):
        error = kernel(rows[:, None] - t) - bernstein_basis(rows, k) @ coefficients
        worst = max(worst, float(np.abs(error).max()))
    in_t = t_factor * (worst + cell_tail) + cell_tail
    return OUTWARD * (y_factor * (in_t + tail) + tail)


def _through_lattice(kernel: Kernel, k: int, h: int, bins: AxisBins) -> float:
    """What the lattice misses of K, and the Lebesgue constant times what bins miss on the lattice.

    The latter is ``sup_{v,t} |K(v/k - t) - (A beta(t))_v|``. In t it has a Lipschitz constant L:
    that of K, and of ``A beta``, whose derivative is ``g sum_j (A_{j+1} - A_j) N_j`` with B-splines
    N_j of degree p - 1 that sum to one. Between places w apart it grows by at most ``L w / 2``.
    """
    matrix = bins.synthesis
    slope = kernel.slope + bins.cells * float(np.abs(np.diff(matrix, axis=1)).max())
    lattice = np.arange(k + 1)[:, None] / k
    places = np.linspace(0, 1, _PLACES + 1)
    worst = 0.0
    for t in np.array_split(places, max(1, _PLACES * (k + 1) // _BLOCK)):
        error = kernel(lattice - t) - matrix @ bin_matrix(t, *_shape(bins)).T
        worst = max(worst, float(np.abs(error).max()))
    on_lattice = worst + slope * 0.5 / _PLACES
    return OUTWARD * (translate_error(kernel, k, h) + lebesgue_constant(k, h) * on_lattice)


def _shape(bins: AxisBins) -> tuple[int, int]:
    return bins.cells, bins.degree


# --- Brackets: see the top of the module

MOST_AXES = 3
"""With more, bounds multiply beyond use, and cells are too many."""

_OVERSAMPLING = 4
_SHARE = 1 / 64  # of the largest error found, that the grid may add
_FINEST = 2e-6  # of the kernel's peak: no grid is finer than that
_COARSE = 4  # steps in a cell of the first grid
_MOST_ADDED = 3e9  # terms of r on a grid: seconds
_VALUES_AT_ONCE = 1 << 21
_MOST_CELLS = 1 << 20  # of y, on all axes together
_CELLS_A_BIN = 2
_FLOATS = 1e-12  # of the largest coefficient: far above what roundings make of it


@dataclass(frozen=True, eq=False)
class AxisBracket:
    """Bounds on one axis for y in each public cell and t in the support of each bin.

    Attributes
    ----------
    kernel, error : array (cells, bins)
        kappa, at least K(y - t); and rho, at least ``|r_y(t)|``.
    """

    kernel: FloatArray
    error: FloatArray


@lru_cache(maxsize=16)
def axis_bracket(
    kernel: Kernel, k: int, h: int, bins: AxisBins, counted: tuple[int, int], cells: int
) -> AxisBracket:
    """Bound K and what a release of `bins` misses of it, on so many equal cells of y.

    Parameters
    ----------
    counted : (int, int)
        Cells and degree of the bins that count the records; they may be others.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> bins = axis_bins(Gaussian(0.2), k=40, cells=8)
    >>> found = axis_bracket(Gaussian(0.2), 40, 8, bins, (8, 2), cells=16)
    >>> found.error.shape, bool(found.error.max() < 0.1 * found.kernel.max())
    ((16, 10), True)
    """
    coefficients = iterated_matrix(k, h) @ bins.synthesis
    in_y, in_t = _curvatures(kernel, k, coefficients, bins)
    coarse = _Grid(_COARSE, _COARSE)
    rough = float(_errors(kernel, k, coefficients, bins, cells, coarse).max())
    allowed = max(_SHARE * rough, _FINEST * kernel.peak) / 2
    kinks = kernel.slope / allowed if kernel.jumps else 0.0
    grid = _Grid(
        max(_COARSE, math.ceil(max(math.sqrt(in_y / (8 * allowed)), kinks) / cells)),
        max(_COARSE, math.ceil(max(math.sqrt(in_t / (8 * allowed)), kinks) / bins.cells)),
    ).within(_MOST_ADDED / (cells * bins.cells * (bins.degree + 1)))
    largest = _errors(kernel, k, coefficients, bins, cells, grid)
    width_y, width_t = 1 / (cells * grid.in_y), 1 / (bins.cells * grid.in_t)
    largest += (in_y * width_y**2 + in_t * width_t**2) / 8
    if kernel.jumps:
        largest += kernel.slope * (width_y + width_t) * _near_kinks(kernel, cells, bins.cells)
    largest += _FLOATS * (kernel.peak + kernel.slope + float(np.abs(coefficients).max()))
    return AxisBracket(_kernel_maxima(kernel, counted, cells), _over_supports(largest, counted))


def brackets_of(
    kernels: Sequence[Kernel],
    k: Sequence[int],
    h: Sequence[int],
    bins: Sequence[AxisBins],
    counted: Sequence[AxisBins],
) -> list[AxisBracket]:
    """Axis by axis, on public cells of half a bin or so; of the `counted` bins' records."""
    most = int(_MOST_CELLS ** (1 / len(kernels)))
    found = []
    for kernel, degree, order, own, other in zip(kernels, k, h, bins, counted, strict=True):
        cells = min(most, _CELLS_A_BIN * max(own.cells, other.cells))
        shape = (other.cells, other.degree)
        found.append(axis_bracket(kernel, degree, order, own, shape, cells))
    return found


def telescoped(axes: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """``prod (a_i + b_i) - prod a_i`` for every combination of entries of the axes; outward."""
    whole, grown = np.ones(()), np.ones(())
    for size, error in axes:
        whole = np.multiply.outer(whole, size)
        grown = np.multiply.outer(grown, size + error)
    return np.asarray(OUTWARD * (grown - whole) + 2.0**-45 * grown)


def norms(brackets: Sequence[AxisBracket], order: float) -> FloatArray:
    """Bound ``|e(I)|`` in an l_p norm for every cell, by the triangle inequality; l1 exactly."""
    axes = [(_norm(one.kernel, order), _norm(one.error, order)) for one in brackets]
    return telescoped(axes)


def _norm(rows: FloatArray, order: float) -> FloatArray:
    return np.asarray(OUTWARD * np.linalg.norm(rows, ord=order, axis=1))


@dataclass(frozen=True)
class _Grid:
    """Steps in a cell of y, and in one of the bins."""

    in_y: int
    in_t: int

    def within(self, values: float) -> _Grid:
        """The same proportions with so many values a pair of cells, or the coarsest."""
        share = min(1.0, math.sqrt(values / (self.in_y * self.in_t)))
        return _Grid(max(_COARSE, int(share * self.in_y)), max(_COARSE, int(share * self.in_t)))


def _curvatures(
    kernel: Kernel, k: int, coefficients: FloatArray, bins: AxisBins
) -> tuple[float, float]:
    """Bounds on the second derivatives of r in y and in t, off kinks and knots."""
    in_y = in_t = kernel.curvature
    if k > 1:
        nodes, factor = enclosing_nodes(k - 2, _OVERSAMPLING)
        bends = k * (k - 1) * np.diff(coefficients, n=2, axis=0)
        values = bernstein_basis(nodes, k - 2) @ bends if k > 2 else bends
        in_y += factor * float(np.abs(values).max())
    if bins.degree > 1:
        nodes, factor = enclosing_nodes(k, _OVERSAMPLING)
        bends = bernstein_basis(nodes, k) @ np.diff(coefficients, n=2, axis=1)
        in_t += bins.cells**2 * factor * float(np.abs(bends).max())
    return OUTWARD * in_y, OUTWARD * in_t


def _errors(
    kernel: Kernel, k: int, coefficients: FloatArray, bins: AxisBins, cells: int, grid: _Grid
) -> FloatArray:
    """The largest ``|r|`` on the grid, for each cell of y and each of the bins; ends included."""
    offsets = np.linspace(-1.0, 1.0, grid.in_t + 1)
    weights = np.stack(local_weights(offsets, bins.degree))
    first = np.arange(bins.cells)[:, None] + (offsets + 1) / 2
    places = first / bins.cells  # (cells of t, offsets)
    steps = np.linspace(0.0, 1.0, grid.in_y + 1)
    found = np.empty((cells, bins.cells))
    together = max(1, _VALUES_AT_ONCE // (len(steps) * bins.cells))
    for start in range(0, cells, together):
        some = np.arange(start, min(start + together, cells))
        y = np.minimum((some[:, None] + steps).reshape(-1) / cells, 1.0)
        weighed = bernstein_basis(y, k) @ coefficients
        largest = np.zeros((len(y), bins.cells))
        for offset in range(len(offsets)):
            error = kernel(y[:, None] - places[:, offset])
            for r in range(bins.degree + 1):
                error -= weights[r, offset] * weighed[:, r : r + bins.cells]
            np.maximum(largest, np.abs(error), out=largest)
        found[some] = largest.reshape(len(some), len(steps), -1).max(axis=1)
    return found


def _near_kinks(kernel: Kernel, cells: int, of_bins: int) -> FloatArray:
    """One for pairs of cells of y and of the bins whose points may be a kink's distance apart."""
    nearest, farthest = _distances(
        cells, np.arange(of_bins) / of_bins, np.arange(1, of_bins + 1) / of_bins
    )
    touched = [(nearest <= kink) & (kink <= farthest) for kink in kernel.kinks]
    return np.asarray(np.any(touched, axis=0), dtype=np.float64)


def _kernel_maxima(kernel: Kernel, counted: tuple[int, int], cells: int) -> FloatArray:
    """K at the least distance, as it falls away from its center."""
    of_bins, degree = counted
    bins = np.arange(of_bins + degree)
    low, high = np.maximum(bins - degree, 0) / of_bins, np.minimum(bins + 1, of_bins) / of_bins
    nearest, _ = _distances(cells, low, high)
    return np.asarray(OUTWARD * kernel(nearest) + _FLOATS * kernel.peak)


def _distances(cells: int, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and the largest between a cell of y and an interval, (cells, intervals)."""
    start = np.arange(cells)[:, None] / cells
    stop = start + 1 / cells
    margin = 2.0**-50
    nearest = np.maximum(np.maximum(low - stop, start - high) - margin, 0.0)
    return nearest, np.maximum(stop - low, high - start) + margin


def _over_supports(largest: FloatArray, counted: tuple[int, int]) -> FloatArray:
    """The largest over the cells that the support of each counting bin meets."""
    of_bins, degree = counted
    own = largest.shape[1]
    found = np.empty((len(largest), of_bins + degree))
    for j in range(of_bins + degree):
        first = max(j - degree, 0) * own // of_bins
        last = -(-min(j + 1, of_bins) * own // of_bins)
        found[:, j] = largest[:, first:last].max(axis=1)
    return found


# --- The strategy


@dataclass(frozen=True)
class BinnedStrategy(AxisStrategy):
    """Sums of B-spline weights, bin by bin: see `dbern.strategies.bins`.

    A record of weight w in [-1, 1] moves the bins of its output by ``w beta(t)``, and products of
    B-splines are nonnegative and sum to one. So ``|w beta(t) - w' beta(t')|_1 <= |w| + |w'| <= 2``
    in one output or in two, whatever the signs; the missing record gives half.
    """

    lattice: Lattice
    bins: tuple[AxisBins, ...]

    kind: ClassVar[str] = "binned"

    @property
    def maps(self) -> tuple[AxisBins, ...]:
        """The bins."""
        return self.bins

    @cached_property
    def layout(self) -> Box:
        """One integer for each product of B-splines."""
        return Box(tuple(axis.rank for axis in self.bins))

    @cached_property
    def lattice_gain(self) -> float:
        """Root mean square row of the synthesis, which factors over axes."""
        return math.sqrt(math.prod(axis.gain for axis in self.bins))

    def row_sums(self, axis: int) -> FloatArray:
        """Errors of single bins add up: ones."""
        return np.ones(self.bins[axis].rank)

    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, loose: bool = False
    ) -> Bound:
        """Two, for any kernel and any number of axes."""
        del kernels, signed, loose
        return Bound(2.0, "2 / n: a record's weights in the bins sum to at most one")

    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, multi_output: bool = False
    ) -> Bound:
        """``sqrt(2) max_t |beta(t)|_2``, whose entries are nonnegative; of opposite signs, twice.

        The maximum factors over axes.
        """
        del kernels, multi_output
        largest = math.prod(axis.largest_l2 for axis in self.bins)
        factor, text = (2.0, "2") if signed else (math.sqrt(2), "sqrt(2)")
        return Bound(OUTWARD * factor * largest, f"{text} max_t |beta(t)|_2 / n")

    def lattice_norm(self, h: Sequence[int]) -> float:
        """Return zero: nothing is released of lattice values."""
        del h
        return 0.0

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """``(A_1 x .. x A_l) y``, the slab's rows of A_1 only."""
        result = values
        for axis, bins in enumerate(self.bins):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, bins.synthesis[rows], axes=(0, 1))
        return result
