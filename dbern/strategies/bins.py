"""B-spline bins, and local bounds on the error of a kernel sum that they answer.

A release of unsigned bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)`` and
``c_j = int beta_j(t) dD(t)``, so it misses ``int r_y(t) dD(t)`` with ``r_y(t) = K(y - t) - sum_j
a_j(y) beta_j(t)``. The B-splines are nonnegative and sum to one at every t. So with any ``e_j >=
sup |r_y|`` over the support of beta_j, ``|r_y(t)| <= sum_j e_j beta_j(t)``, and for **every**
database D, whatever the matrix A, the order or the rank,

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``.

The right side is small where records are few. Records of weights w in [-1, 1] obey it too with c
of the bins that count each of these records once: ``|int w r_y dD| <= int |r_y| dD``.

*All y of a public cell I.* e_j(I) is a bound over y in I. On one axis and on a box of I and a cell
of the bins, ``sum_j a_j beta_j`` is a polynomial of degree p in t, and in y one of few Chebyshev
polynomials but for a `cut`, by a bound on high derivatives of a_j. As ``|T_a| <= 1`` and the
B-splines sum to one, it is at most the largest sum of its coefficients' sizes: enough where K and
it are both small. Elsewhere, with `_steps` and `_between`: a function of one variable whose second
derivative is at most B exceeds the larger of its values at the ends of an interval of w by at most
``w^2 B / 8``. A grid errs by the sum of that in either direction.

- *Without a kink* K is a polynomial in y - t but for a proved `tail`. So r is a sum of ``c_ab T_a
  T_b`` but for the cut, the tail, and the tail times Lebesgue's constants of the nodes it is
  interpolated in. In angles it is ``c_ab cos(a theta) cos(b phi)``: B is ``sum a^2 |c_ab|``, that
  of r itself, hardly more than it is large.
- *With kinks* B is ``sup |K''|`` and ``sum |c_ab| sup |T_a''|`` of what is released, off the kinks.
  On a line of the grid the kink's own place joins the ends. On the line of a kink K is constant.

*Closer than over supports.* Whatever u_j are, let v be 0 or by how much ``|r_y|`` exceeds ``sum_j
u_j beta_j`` on a cell of the bins; as B-splines sum to one, ``e_j = u_j + max v`` over the support
of beta_j will do. With u_j the largest ``|r_y|`` within half a cell of the middle of beta_j, v is
small: e is half as large again as the least spline above ``|r_y|`` where u = 0, a tenth with it. K
itself is at most ``sum_j (max_I a_j + e_j) beta_j``, of which supports make twice too much.

*More axes.* With splines ``kappa >= K`` and ``rho >= |r|`` on an axis for y in I, of coefficients
that may be negative, ``prod K_i - prod (K_i - r_i)`` is at most ``prod (kappa_i + rho_i) - prod
kappa_i`` in size: a polynomial in K_i and ``|r_i|``, all of whose coefficients are positive.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dbern.bernstein.basis import (
    MANY,
    bernstein_mixtures,
    bin_matrix,
    bin_products,
    by_parity,
    chebyshev,
    cosines,
    enclosing_nodes,
    local_weights,
    of_parities,
    parities,
    solved_in_blocks,
    with_mirrored,
)
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.strategies.approximation import AxisMap, Limits, StoredArray, fitted_values
from dbern.strategies.base import AxisStrategy, Bound, Box, Lattice, Slab
from dbern.types import BoolArray, FloatArray, Int64Array

_FEWEST_NODES, _MOST_NODES = 1200, 3 << 14  # of the mean squares that bins are made for
_NODES_TO_FIT = 16  # a bandwidth, of those
_NODES_TOGETHER = 1 << 11  # of the first half, and as many of the other: 32 MiB where k is 1000
_AT_ENDS = 0.5  # of a cell: the weight of the place at either end
_DAMPING = 1e-9  # of the mean square of a bin, added to each


@dataclass(frozen=True)
class AxisBins(AxisMap):
    """Cells and degree of one axis, and the matrix A from bins to lattice values.

    `packed` is A as little-endian float64 in C order, shape (k + 1, cells + degree). An evaluation
    uses the leading `used` singular vectors of A; all for 0.
    """

    cells: int
    degree: int
    packed: bytes = field(repr=False)
    used: int = 0

    kind: ClassVar[str] = "binned"
    mode: ClassVar[str] = "bin"
    called: ClassVar[str] = "bins"
    stored: ClassVar = {
        "synthesis": StoredArray(
            ("axis", "mode"), limits={"cells": Limits(int, 1, 2**31), "degree": Limits(int, 0, 32)}
        )
    }

    @property
    def rank(self) -> int:
        """Number of bins."""
        return self.cells + self.degree

    @cached_property
    def synthesis(self) -> FloatArray:
        """A, or its best approximation of rank `used`; shape (k + 1, bins)."""
        whole = np.asarray(np.frombuffer(self.packed, "<f8"), np.float64).reshape(-1, self.rank)
        if not 0 < self.used < self.rank:
            return whole
        left, sizes, right = np.linalg.svd(whole, full_matrices=False)
        kept = slice(self.used)
        return np.asarray((left[:, kept] * sizes[kept]) @ right[kept])

    @cached_property
    def mirrored(self) -> bool:
        """Whether A is exactly the same in reverse, rows and columns."""
        return np.array_equal(self.synthesis, self.synthesis[::-1, ::-1])

    @cached_property
    def largest_l2(self) -> float:
        """Bound ``max_t |beta(t)|_2``: on a cell its square is a polynomial of degree 2p."""
        nodes, factor = enclosing_nodes(2 * self.degree, oversampling=64)
        weights = np.stack(local_weights(2 * nodes - 1, self.degree))
        return float(OUTWARD * np.sqrt(factor * np.square(weights).sum(axis=0).max()))

    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of translates at t (m,); A knows the kernel."""
        del kernel
        return (matrix @ self.synthesis) @ bin_matrix(t, self.cells, self.degree).T

    def pieces(self, kernel: Kernel, k: int, h: int) -> FloatArray:
        """Bounds on ``|r|`` by cell of y and piece of t; half of the cells where A is mirrored."""
        cells = min(_CELLS_A_BIN * self.cells, _enough_cells(kernel))
        whole = _Boxes.of(kernel, k, h, self, cells).whole
        return whole.reshape(len(whole), -1)

    def using(self, rank: int) -> AxisBins:
        """The same bins, evaluated with `rank` singular vectors."""
        return replace(self, used=rank)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; the matrix in base64."""
        facts = {"cells": self.cells, "degree": self.degree}
        return {**facts, "synthesis": base64.b64encode(self.packed).decode()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> AxisBins:
        """Read what `to_dict` wrote."""
        return cls(content["cells"], content["degree"], base64.b64decode(content["synthesis"]))

    def arrays(self) -> dict[str, FloatArray | Int64Array]:
        """A."""
        return {"synthesis": self.synthesis}

    @classmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> AxisBins:
        """Read what `arrays` wrote."""
        synthesis, facts = read("synthesis")
        return cls(facts["cells"], facts["degree"], np.asarray(synthesis).astype("<f8").tobytes())

    @classmethod
    def admits(cls, rank: int, nodes: int, attributes: Mapping[str, Any]) -> bool:
        """As many bins as the attributes say."""
        del nodes
        return bool(rank == attributes["cells"] + attributes["degree"])


@lru_cache(maxsize=256)
def axis_bins(
    kernel: Kernel,
    k: int,
    cells: int,
    degree: int = 2,
    h: int | None = None,
    damping: float = _DAMPING,
) -> AxisBins:
    """Bins whose A has the least squared error for a point mass at a uniform position; unshrunk.

    But for the two ends, where values are clamped to and B-splines are cut off: each weighs as much
    as `_AT_ENDS` of a cell. That costs no noise and next to nothing inside. A little damping
    changes next to nothing inside the domain, and keeps the ends quiet, where B-splines of high
    degree are nearly dependent. With `h` the error is that of the polynomial of order h
    (`lattice_bumps`), without that of lattice values. Bins without noise need no `damping`.
    """

    def values(block: MirroredBlock) -> FloatArray:
        return lattice_bumps(kernel, k, h, block)[: k // 2 + 1]

    half = bin_fit(bump_blocks(kernel), values, cells, degree, damping)
    if k % 2 == 0:
        half[-1] = (half[-1] + half[-1, ::-1]) / 2  # the middle is its own reverse
    matrix = with_mirrored(half, k + 1)
    return AxisBins(cells, degree, np.ascontiguousarray(matrix, dtype="<f8").tobytes())


@dataclass(frozen=True)
class MirroredBlock:
    """Middles of some of `count` equal parts of the unit interval, with those mirrored to them.

    They are the parts of the first half from `first` to the one before `last`.
    """

    count: int
    first: int
    last: int

    @property
    def index(self) -> Int64Array:
        """Numbers of the parts, in order; the middle one is its own mirror image."""
        near = np.arange(self.first, self.last)
        far = self.count - 1 - near[::-1]
        return np.concatenate([near, far[far > near[-1]]])

    @property
    def t(self) -> FloatArray:
        """Positions in the unit interval."""
        return np.asarray((self.index + 0.5) / self.count)

    def shares(self, cells: int) -> FloatArray:
        """Weights of the places in mean squares of bins: the two at the ends have more."""
        shares = np.ones(self.count)
        shares[[0, -1]] += _AT_ENDS * self.count / cells
        return shares[self.index]


def bin_fit(
    blocks: Sequence[MirroredBlock],
    values: Callable[[MirroredBlock], FloatArray],
    cells: int,
    degree: int,
    damping: float = _DAMPING,
) -> FloatArray:
    """Weights of bins (m, bins) nearest to functions of t, in rows, of `values` at all middles."""
    gram, right = np.zeros(()), np.zeros(())
    for block in blocks:
        products = bin_products(block.t, block.shares(cells), values(block), cells, degree)
        gram, right = gram + products[0], right + products[1]
    gram[np.diag_indices(len(gram))] += damping * np.trace(gram) / len(gram)
    if len(gram) > MANY:
        return solved_in_blocks(gram, right).T
    equations = zip(by_parity(gram), parities(right), strict=True)
    fitted: list[Any] = [np.linalg.solve(*each) for each in equations]
    return of_parities(*fitted).T


def bump_blocks(kernel: Kernel) -> list[MirroredBlock]:
    """Places of the translates that bins are fitted to, fine for the bandwidth, in blocks."""
    fine = max(_FEWEST_NODES, math.ceil(_NODES_TO_FIT / kernel.bandwidth))
    count = min(fine, _MOST_NODES)
    half = (count + 1) // 2
    starts = range(0, half, _NODES_TOGETHER)
    return [MirroredBlock(count, first, min(first + _NODES_TOGETHER, half)) for first in starts]


@lru_cache(maxsize=4)
def lattice_bumps(kernel: Kernel, k: int, h: int | None, block: MirroredBlock) -> FloatArray:
    """Lattice values (k + 1, q) whose polynomials are near the bumps at some places.

    Of order h, by least squares over Chebyshev nodes in y that begin at the bumps' own values: k
    need not be as large as those would make it. Kernels with kinks, and no `h`: the values
    themselves.
    """
    t = block.t
    half = fitted_values(kernel, k, h, t[: (len(t) + 1) // 2])
    return with_mirrored(half.T, len(t)).T


# --- Brackets

MOST_AXES = 3
"""With more, bounds multiply beyond use, and cells are too many."""

NUMBERS_TOGETHER = 1 << 22
"""Of polynomials: 32 MiB, and as many while they are made."""

_TRUNCATION, _SHARE = 1e-9, 1 / 64  # of the peak; of the largest error seen, to add in between
_COARSE, _MOST_LOCAL, _MOST_STEPS = 4, 32, 64  # steps where it is looked for; nodes; steps; a cell
_BOXES, _ROWS = 512, 64  # at a time
_MOST_CELLS, _CELLS_A_BIN, _CELLS_A_DEVIATION = 1 << 20, 2, 24  # of y, on all axes together
_FLOATS = 1e-11  # of the largest coefficient: far above what roundings make of it
_Pairs: TypeAlias = tuple[Int64Array, Int64Array]  # cells of y, and of the bins


@dataclass(frozen=True, eq=False)
class AxisBracket:
    """Coefficients of splines on one axis, for y in each public cell, at every t.

    Rows (cells, bins): of `kernel` kappa, whose spline is at least K(y - t), and of `error` rho,
    whose spline is at least ``|r_y(t)|``.
    """

    kernel: FloatArray
    error: FloatArray


@lru_cache(maxsize=16)
def axis_bracket(
    kernel: Kernel, k: int, h: int, bins: AxisBins, counted: tuple[int, int], cells: int
) -> AxisBracket:
    """Bound K and the error of a release by `bins`, on so many equal cells of y.

    `counted` has the cells and degree of the bins that count the records, which may be others.
    """
    boxes = _Boxes.of(kernel, k, h, bins, cells)
    kappa = _kernel_maxima(kernel, counted, cells)
    if counted != (bins.cells, bins.degree):
        error = _over_supports(boxes.whole.max(axis=2), counted)
        return AxisBracket(kappa, with_mirrored(error, cells))
    halves = boxes.whole.reshape(len(boxes.whole), -1)
    left = 2 * np.arange(bins.rank) - bins.degree
    left, right = (np.clip(one, 0, halves.shape[1] - 1) for one in (left, left + 1))
    about = np.maximum(halves[:, left], halves[:, right])
    error = about + _over_supports(boxes.missed(about).max(axis=2), counted)
    closer = with_mirrored(boxes.highest() + error + boxes.floats, cells)
    smaller = np.abs(closer).sum(axis=1) < kappa.sum(axis=1)
    return AxisBracket(np.where(smaller[:, None], closer, kappa), with_mirrored(error, cells))


def brackets_of(
    kernels: Sequence[Kernel],
    k: Sequence[int],
    h: Sequence[int],
    bins: Sequence[AxisBins],
    counted: Sequence[AxisBins],
    *,
    finest: bool = True,
) -> list[AxisBracket]:
    """Brackets of the axes, on public cells of about half a bin, for records in the `counted` bins.

    Not `finest`: no more cells than `_enough_cells`.
    """
    whole, found = int(_MOST_CELLS ** (1 / len(kernels))), []
    for kernel, degree, order, own, other in zip(kernels, k, h, bins, counted, strict=True):
        most = whole if finest else min(whole, _enough_cells(kernel))
        cells = min(most, _CELLS_A_BIN * max(own.cells, other.cells))
        found.append(axis_bracket(kernel, degree, order, own, (other.cells, other.degree), cells))
    return found


def _enough_cells(kernel: Kernel) -> int:
    """Number of cells of y that a plan looks at, where bins are much narrower than the kernel."""
    return math.ceil(_CELLS_A_DEVIATION / kernel.deviation)


def telescoped(axes: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """``prod (a_i + b_i) - prod a_i`` for every combination of entries of the axes; outward."""
    whole, grown = np.ones(()), np.ones(())
    for size, error in axes:
        whole = np.multiply.outer(whole, size)
        grown = np.multiply.outer(grown, size + error)
    return np.asarray(OUTWARD * (grown - whole) + 2.0**-45 * grown)


def norms(brackets: Sequence[AxisBracket], order: float) -> FloatArray:
    """Bound ``|e(I)|`` in an l_p norm for every cell, by the triangle inequality; l1 exactly."""
    axes = ((one.kernel, one.error) for one in brackets)
    sizes = [[OUTWARD * np.linalg.norm(one, order, axis=1) for one in rows] for rows in axes]
    return telescoped(sizes)


@dataclass(frozen=True, eq=False)
class _Boxes:
    """Cells of y by those of the bins; `floats` are more than roundings make of r.

    Only the first half of the cells of y where A is the same in reverse: ``r_{1-y}(1 - t)`` is
    ``r_y(t)``, as kernels, bins and the iterated basis are symmetric.
    """

    expansion: _Expansion
    floats: float

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, kernel: Kernel, k: int, h: int, bins: AxisBins, cells: int) -> _Boxes:
        (coefficients,) = BinnedStrategy(Lattice((k,)), (bins,)).matrices((h,))
        floats = _FLOATS * (kernel.peak + kernel.slope + float(np.abs(coefficients).max()))
        return cls(_Expansion.of(kernel, k, coefficients, bins, cells), floats)

    @cached_property
    def _whole_pieces(self) -> _Pieces:
        return self.expansion.pieces(range(self.expansion.rows))

    @property
    def strips(self) -> Iterator[_Pieces]:
        """Some cells of y after others: the polynomials of all may be more than memory holds."""
        expansion, rows = self.expansion, self.expansion.rows
        together = max(1, NUMBERS_TOGETHER // (expansion.count * expansion.bins.rank))
        if rows <= together:
            yield self._whole_pieces
            return
        for first in range(0, rows, together):
            yield expansion.pieces(range(first, min(first + together, rows)))

    @cached_property
    def seen(self) -> float:
        """The largest ``|r|`` at some places, in the middle of each cell of y."""
        return max(pieces.seen for pieces in self.strips)

    @cached_property
    def whole(self) -> FloatArray:
        """Bounds on ``|r|`` itself."""
        return self.missed(np.zeros((self.expansion.rows, self.expansion.bins.rank)))

    def highest(self) -> FloatArray:
        """Bound the largest ``a_j`` in each cell of y, (rows, bins)."""
        return np.concatenate([pieces.highest() for pieces in self.strips])

    def missed(self, about: FloatArray) -> FloatArray:
        """Bound by how much ``|r|`` exceeds splines of coefficients `about`, (cells, bins).

        On halves of the bins' cells, (rows, bins.cells, 2); 0 at least.
        """
        allowed = max(_SHARE * self.seen, _TRUNCATION * self.expansion.kernel.peak) / 2
        excesses = (pieces.missed(about[pieces.rows], allowed) for pieces in self.strips)
        bounds = [OUTWARD * np.maximum(excess, 0.0) + self.floats for excess in excesses]
        return np.concatenate(bounds)


def _on_cells(of: np.ufunc, rows: FloatArray, degree: int) -> FloatArray:
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
        """Number of cells of y that are looked at: see `_Boxes`."""
        return (self.cells + 1) // 2 if self.bins.mirrored else self.cells

    def pieces(self, rows: range) -> _Pieces:
        """Interpolate on these cells of y."""
        offsets, analysis = chebyshev(self.count)
        y = (np.array(rows)[:, None] + (1 + offsets) / 2) / self.cells
        values = bernstein_mixtures(y.reshape(-1), self.k, self.coefficients)
        return _Pieces(self, rows.start, analysis @ values.reshape(len(rows), self.count, -1))


@dataclass(frozen=True, eq=False)
class _Pieces:
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
        """Bound by how much ``|r|`` exceeds splines, but for roundings: see `_Boxes`."""
        kernel, bins = self.expansion.kernel, self.expansion.bins
        ends = np.arange(bins.cells + 1) / bins.cells
        nearest, farthest = _distances(self.expansion.cells, ends[:-1], ends[1:], self.rows)
        mixed = OUTWARD * _on_cells(np.maximum, self.sizes + self.expansion.cut, bins.degree)
        excess = kernel(nearest) + mixed  # |sum_j a_j beta_j| is at most a mixture of |a_j|
        touched = [(nearest <= kink) & (kink <= farthest) for kink in kernel.kinks]
        kinked = np.any([np.zeros(excess.shape, bool), *touched], axis=0)
        near = excess > allowed  # elsewhere r is as small as K and its release themselves
        excess = np.repeat(excess[:, :, None], 2, axis=2)
        excess -= _on_cells(np.minimum, about, bins.degree)[:, :, None]
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
        count, found = self.terms.shape[1], self.sizes.copy()
        steps, expansion = _COARSE * count, self.expansion
        least = _FLOATS * expansion.kernel.peak if expansion.bins.rank > MANY else -1
        places = cosines(np.linspace(0, np.pi, steps + 1), count)
        for first in range(0, len(found), _ROWS):
            rows = slice(first, first + _ROWS)
            near = np.flatnonzero(found[rows].max(axis=0) > least)  # others are as good as 0
            own = slice(near[0], near[-1] + 1)
            terms = self.terms[rows, :, own]
            bends = np.tensordot(np.arange(count) ** 2, np.abs(terms), axes=(0, 1))
            largest = np.stack([(places @ row).max(axis=0) for row in terms])
            found[rows, own] = largest + _between([np.pi], [bends], [steps])
        return np.asarray(found + self.expansion.cut)

    @cached_property
    def seen(self) -> float:
        """Largest ``|r|`` at some points, in the middle of each cell of y."""
        places = np.linspace(-1.0, 1.0, _COARSE + 1)
        middle = np.cos(np.arange(self.terms.shape[1]) * (np.pi / 2)) @ self.terms
        y = (np.arange(self.rows.start, self.rows.stop)[:, None] + 0.5) / self.expansion.cells
        largest = 0.0
        of_places = np.transpose(local_weights(places, self.expansion.bins.degree))
        for place, weights in zip(places, of_places, strict=True):
            t = (np.arange(self.expansion.bins.cells) + (1 + place) / 2) / self.expansion.bins.cells
            error = self.expansion.kernel(y - t)
            for r, weight in enumerate(weights):
                error -= weight * middle[:, r : r + self.expansion.bins.cells]
            largest = max(largest, float(np.abs(error).max()))
        return largest

    def enclosed(self, boxes: _Pairs, allowed: float, about: FloatArray) -> FloatArray:
        """Bound ``|r|`` less splines on boxes (m,) without a kink, where both are polynomials.

        On halves of the bins' cells, (m, 2).
        """
        count = self.terms.shape[1]
        terms = self._bumps(*boxes) - self._splines(self.terms, *boxes)
        squares, less = (
            np.square(np.arange(1.0 * count)),
            self._splines(about[:, None], *boxes)[:, 0],
        )
        in_t, in_y = _weighed(terms, (squares, squares**0), (squares**0, squares))
        bends = in_y, in_t + squares @ np.abs(less)
        steps = [_steps(np.pi, bend, allowed, count) for bend in bends]
        of_y, of_t = (cosines(np.linspace(0, np.pi, one + 1), count) for one in steps)
        found = (np.abs(_at(of_t, of_y, terms)) - (of_t @ less)[:, None]).max(axis=1)
        found = _halves(found)[:, ::-1] + _between((np.pi, np.pi), bends, steps)[:, None]
        lebesgue = 1 + 2 / np.pi * math.log(count)
        return np.asarray(found + self.expansion.cut + (1 + lebesgue**2) * self.expansion.tail)

    def _bumps(self, rows: Int64Array, columns: Int64Array) -> FloatArray:
        """K on boxes (m,), which depends on how far they are apart: coefficients as `_splines`."""
        apart = (self.first + rows) * self.expansion.bins.cells - columns * self.expansion.cells
        _, first, same = np.unique(apart, return_index=True, return_inverse=True)
        offsets, analysis = chebyshev(self.terms.shape[1])
        y, t = self._places(rows[first], columns[first], *[offsets[:, None]] * 2)
        return _at(analysis, analysis, self.expansion.kernel(y - t[:, None]))[:, :, same]

    def sampled(self, boxes: _Pairs, allowed: float, about: FloatArray) -> FloatArray:
        """Bound ``|r|`` less splines on boxes (m,), by a grid and by points on their kinks."""
        expansion, count = self.expansion, self.terms.shape[1]
        widths = 1 / expansion.cells, 1 / expansion.bins.cells
        terms = self._splines(self.terms, *boxes)
        less = self._splines(about[:, None], *boxes)[:, 0]
        one, first = np.ones(count), np.square(np.arange(1.0 * count))
        second = first * (first - 1) / 3
        of_y, of_t = (2 / width for width in widths)
        in_y, in_t, both = _weighed(terms, (one, second), (second, one), (first, first))
        in_y, in_t = of_y**2 * in_y, of_t**2 * (in_t + second @ np.abs(less))
        along = in_y + 2 * of_y * of_t * both + in_t
        smooth = self.expansion.kernel.curvature
        bends = smooth + in_y, np.maximum(smooth + in_t, along)
        steps = [_steps(*each, allowed, 1) for each in zip(widths, bends, strict=True)]
        on_y, on_t = (np.linspace(-1.0, 1.0, one + 1)[:, None] for one in steps)
        y, t = self._places(*boxes, on_y, on_t)
        at_y, at_t = (cosines(np.arccos(one[:, 0]), count) for one in (on_y, on_t))
        misses = np.abs(self.expansion.kernel(y - t[:, None]) - _at(at_t, at_y, terms))
        found = _halves((misses - (at_t @ less)[:, None]).max(axis=1))
        for apart in (side * kink for kink in self.expansion.kernel.kinks for side in (-1, 1)):
            for line in ((t + apart, t), (y, y - apart)):
                own = self._on_kink(boxes, terms, less, line)
                found = np.maximum(found, own[:, None])
        return np.asarray(found + _between(widths, bends, steps)[:, None] + self.expansion.cut)

    def _on_kink(self, boxes: _Pairs, terms: FloatArray, less: FloatArray, line: Any) -> FloatArray:
        """Largest value at points (q, m), or at those of the boxes (m,) next to them."""
        (rows, columns), (y, t) = boxes, line
        in_y = np.clip(2 * (y * self.expansion.cells - self.first - rows) - 1, -1.0, 1.0)
        in_t = np.clip(2 * (t * self.expansion.bins.cells - columns) - 1, -1.0, 1.0)
        y, t = self._places(rows, columns, in_y, in_t)
        of_y, of_t = (cosines(np.arccos(one.T), terms.shape[1]) for one in (in_y, in_t))
        made = (of_y @ np.moveaxis(terms, 2, 0).swapaxes(1, 2) * of_t).sum(axis=2)
        less = (of_t @ less.T[:, :, None])[:, :, 0]
        return np.asarray((np.abs(self.expansion.kernel(y - t).T - made) - less).max(axis=1))

    def _places(
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
        own = [turned[:, rows, columns + r] for r in range(self.expansion.bins.degree + 1)]
        return np.asarray(np.tensordot(weights, np.stack(own), axes=1))


def _at(of_t: FloatArray, of_y: FloatArray, terms: FloatArray) -> FloatArray:
    """Apply a matrix to t and one to y of terms by t, y and box: in that order."""
    return np.asarray(of_y @ np.tensordot(of_t, terms, axes=1))


def _weighed(terms: FloatArray, *weights: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Sums of coefficients' sizes by weights of b and of a, for each box."""
    flat = np.stack([np.multiply.outer(*one).ravel() for one in weights])
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


def _kernel_maxima(kernel: Kernel, counted: tuple[int, int], cells: int) -> FloatArray:
    """K at the least distance of each pair, its largest value there."""
    (of_bins, degree), bins = counted, np.arange(sum(counted))
    low, high = np.maximum(bins - degree, 0) / of_bins, np.minimum(bins + 1, of_bins) / of_bins
    maxima = np.empty((cells, len(bins)))
    for first in range(0, cells, _ROWS):
        rows = slice(first, first + _ROWS)
        nearest, _ = _distances(cells, low, high, rows)
        maxima[rows] = OUTWARD * kernel(nearest) + _FLOATS * kernel.peak
    return maxima


def _distances(
    cells: int, low: FloatArray, high: FloatArray, rows: slice = slice(None)
) -> tuple[FloatArray, FloatArray]:
    """The least and the largest between a cell of y and an interval, (rows, intervals)."""
    start = np.arange(cells)[rows, None] / cells
    stop = start + 1 / cells
    margin = 2.0**-50
    nearest = np.maximum(np.maximum(low - stop, start - high) - margin, 0.0)
    return nearest, np.maximum(stop - low, high - start) + margin


def _over_supports(largest: FloatArray, counted: tuple[int, int]) -> FloatArray:
    """Largest value over the cells that the support of each counting bin meets."""
    (of_bins, degree), own = counted, largest.shape[1]
    found = np.empty((len(largest), of_bins + degree))
    for j in range(of_bins + degree):
        first = max(j - degree, 0) * own // of_bins
        last = -(-min(j + 1, of_bins) * own // of_bins)
        found[:, j] = largest[:, first:last].max(axis=1)
    return found


# --- The strategy


@dataclass(frozen=True)
class BinnedStrategy(AxisStrategy):
    """Sums of B-spline weights, bin by bin.

    A record of weight w in [-1, 1] moves the bins of its output by ``w beta(t)``, and products of
    B-splines are nonnegative and sum to one. So ``|w beta(t) - w' beta(t')|_1 <= |w| + |w'| <= 2``
    in one output or in two, whatever the signs; the missing record gives half.
    """

    lattice: Lattice
    bins: tuple[AxisBins, ...]

    kind: ClassVar[str] = "binned"

    @property
    def maps(self) -> tuple[AxisBins, ...]:
        """The axes' bins."""
        return self.bins

    @cached_property
    def layout(self) -> Box:
        """One integer for each product of B-splines."""
        return Box(tuple(axis.rank for axis in self.bins))

    def row_sums(self, axis: int) -> FloatArray:
        """Ones: errors of single bins add up."""
        return np.ones(self.bins[axis].rank)

    def l1_sensitivity(self, kernels: Sequence[Kernel], *, signed: bool = False) -> Bound:
        """Two, for any kernel and any number of axes."""
        del kernels, signed
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
        """Zero: no lattice values are released."""
        del h
        return 0.0

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """``(A_1 x .. x A_l) y``, the slab's rows of A_1 only."""
        result = values
        for axis, bins in enumerate(self.bins):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, bins.synthesis[rows], axes=(0, 1))
        return result
