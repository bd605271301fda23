"""Worst-case distance of the released polynomial of a kernel translate from the translate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, bernstein_basis, iterated_matrix, iterated_parts
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.parity import by_parity, of_parities, parities
from dbern.types import FloatArray, Int64Array

_ENCLOSING = 8  # oversampling
CUT = 1e-5  # of a polynomial's size, left out to enclose the rest at fewer nodes
_ROUNDING = 1e-11  # of the coefficients' sizes: far above their floats' error
_TRUNCATION = 1e-6
_ROWS = 512
_WORK = 2e10
_SQUARES = 32  # a side of the domain, to begin with
_PARTS = 8  # a side of a square, at most
_LINES, _TOGETHER = 64, 16  # lines of squares in t, in y, that share a product
_SQUARES_WORK = 1.4e9  # products, a hundred more for each point: under a second
_SQUARES_CUT = 1e-8  # of a polynomial's size, left out
_RELATIVE_GAP = 0.02
_ABSOLUTE_GAP = 1e-5  # of the peak


class Limits(NamedTuple):
    """Type, least and most that a value of JSON may be; unless it is `needed`, it may be absent."""

    kind: type
    least: Any
    most: Any
    needed: bool = True


@dataclass(frozen=True)
class StoredArray:
    """One array of a map, as synopses hold it and readers, who may have a stranger's, demand it.

    Dimensions are "mode" and "axis", numbers "int64" or "float64". Its attributes are fields of the
    map, within limits.
    """

    dimensions: tuple[str, ...]
    numbers: str = "float64"
    limits: Mapping[str, Limits] = field(default_factory=dict)


class AxisMap(ABC):
    """Released values of one axis, or of the whole lattice, where these are not lattice values."""

    kind: ClassVar[str]
    mode: ClassVar[str] = "mode"
    """What a released value of it is called."""
    of: ClassVar[str] = ""
    """ "lattice" for the map of a whole lattice."""
    called: ClassVar[str] = "values"
    """What plans call the values that are released."""
    stored: ClassVar[Mapping[str, StoredArray]]
    """The arrays that synopses hold, by name."""
    used: int

    def __getstate__(self) -> dict[str, Any]:
        """Leave out tables that follow from the fields: they are made again where they are used."""
        return {one.name: getattr(self, one.name) for one in fields(cast(Any, self))}

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of released values."""

    @property
    def size_text(self) -> str:
        """Number of released values in words."""
        return str(self.rank)

    @property
    @abstractmethod
    def synthesis(self) -> FloatArray:
        """Matrix from released to lattice values, shape (k + 1, rank)."""

    @abstractmethod
    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of kernel translates at t (m,), without noise."""

    @abstractmethod
    def using(self, rank: int) -> Self:
        """The same released values, evaluated with the leading `rank` vectors alone."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""

    @abstractmethod
    def arrays(self) -> dict[str, FloatArray | Int64Array]:
        """The values of its `stored` arrays."""

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of one of its arrays."""
        return {key: getattr(self, key) for key in self.stored[name].limits}

    @classmethod
    @abstractmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> Self:
        """Restore what `arrays` wrote; `read` gives values and attributes of a name."""

    @classmethod
    @abstractmethod
    def admits(cls, rank: int, nodes: int, axes: int, attributes: Mapping[str, Any]) -> bool:
        """Whether so many values are released of one of `axes`, of so many nodes."""

    @classmethod
    def candidates(cls, search: Any) -> Iterator[Any]:
        """Designs that release it, for a plan to weigh; `search` is a `DesignSearch` of planning.

        Strategies that have none here have them there.
        """
        del search
        return iter(())


Maps: TypeAlias = Sequence[AxisMap | None]
"""One for each axis, or one for all; None for lattice values."""


class LinearMap(AxisMap):
    """A map of the axis's lattice values."""

    @property
    @abstractmethod
    def analysis(self) -> FloatArray:
        """Matrix from lattice values to released ones, shape (rank, k + 1)."""

    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of kernel translates at t (m,), without noise."""
        lattice = _lattice_values(kernel, matrix.shape[1] - 1, t)
        return matrix @ self.synthesis @ self.analysis @ lattice


TRANSLATES_TOGETHER = 1 << 12
"""64 MiB of lattice values or bins where there are two thousand."""


def _lattice_values(kernel: Kernel, k: int, t: FloatArray) -> FloatArray:
    return kernel(np.arange(k + 1)[:, None] / k - t)


def released_translates(
    kernel: Kernel, rows: FloatArray, axis: AxisMap | None, t: FloatArray
) -> FloatArray:
    """Noiseless release (n, m) of translates at t (m,), by rows of the iterated basis."""
    made = []
    for first in range(0, len(t), TRANSLATES_TOGETHER):
        block = t[first : first + TRANSLATES_TOGETHER]
        if axis is None:
            made.append(rows @ _lattice_values(kernel, rows.shape[1] - 1, block))
        else:
            made.append(axis.translates(rows, kernel, block))
    return np.concatenate(made, axis=1)


@lru_cache(maxsize=4)
def synthesis_matrix(k: int, h: int, axis: AxisMap | None) -> FloatArray:
    """Matrix from an axis's released values to coefficients of the Bernstein basis."""
    if axis is None:
        matrix = iterated_matrix(k, h)
    elif h == INTERPOLATED:
        matrix = axis.synthesis.copy()
    else:
        matrix = iterated_matrix(k, h) @ axis.synthesis
    matrix.setflags(write=False)
    return np.asarray(matrix)


def _evaluation_matrix(k: int, h: int, spectrum: LinearMap | None = None) -> FloatArray:
    """Matrix from one axis's lattice values to the coefficients of the Bernstein basis.

    ``W_h`` for the lattice values themselves, ``W_h A T`` where only a spectrum is released.
    """
    matrix = iterated_matrix(k, h)
    return matrix if spectrum is None else matrix @ spectrum.synthesis @ spectrum.analysis


@dataclass(frozen=True, eq=False)
class Series:
    """``b(y) M`` in Chebyshev polynomials of y, cut where hardly anything is left of them.

    `coefficients` (degree + 1, columns) are those of ``cos(a theta)``, ``y = (1 - cos theta) / 2``;
    `norm` and `tail` bound ``sup_y sum_j |(b(y) M)_j|``, and that of what is cut off.
    """

    coefficients: FloatArray
    norm: float
    tail: float

    @classmethod
    def of(cls, k: int, matrix: FloatArray, cut: float = CUT, mirrored: bool = False) -> Series:
        """Interpolate in k + 1 nodes, where ``b(y) M`` is exact but for rounding.

        What is left out is `cut` times the norm, or hardly more. By parity: half of the work.
        `mirrored`: M is half of a matrix that is the same in reverse, and is cut where that is.
        """
        of_even, of_odd = _cosines(k + 1, k)
        basis = by_parity(bernstein_basis((1 - of_odd[:, 0]) / 2, k), k + 1)
        even, odd = (one @ part for one, part in zip(basis, parities(matrix), strict=True))
        values, half = of_parities(even, odd), len(odd)
        of_even[:half] *= math.sqrt(2)
        coefficients = np.empty((k + 1, matrix.shape[1]))
        coefficients[::2] = of_even.T @ even * (2 / (k + 1))
        coefficients[1::2] = of_odd[:half].T @ odd * (math.sqrt(8) / (k + 1))
        coefficients[0] /= 2
        tails = np.cumsum(np.abs(coefficients).sum(axis=1)[::-1])[::-1]  # of degree a and beyond
        norm, largest = float(tails[0]), _sizes(values, mirrored).max() / (1 + mirrored)
        degree = max(1, int(np.argmax(np.append(tails, 0.0) <= cut * largest)) - 1)
        left_out = float(tails[degree + 1]) if degree < k else 0.0
        return cls(coefficients[: degree + 1], norm, left_out + _ROUNDING * norm)

    def at_nodes(self, oversampling: int) -> tuple[FloatArray, float]:
        """Values (nodes, columns) of the cut series, and the factor of `enclosing_nodes`."""
        degree = len(self.coefficients) - 1
        nodes, factor = enclosing_nodes(degree, oversampling)
        return _at_nodes(self.coefficients, len(nodes)), factor

    def at_finer_nodes(self, oversampling: int, finer: int) -> FloatArray:
        """Values (angles, columns), so many angles to a step between nodes of `at_nodes`.

        From a step before the first node to a step after the last: mirrored at the ends.
        """
        degree = len(self.coefficients) - 1
        steps = finer * oversampling * max(degree, 1)  # in half a turn
        turns = 2 * np.arange(-finer, steps + 1) + finer
        angles = turns[:, None] * np.arange(degree + 1) % (4 * steps)
        return np.asarray(np.cos(angles * (np.pi / (2 * steps))) @ self.coefficients)

    def sup_norm(self, oversampling: int = 8) -> float:
        """Bound ``sup_y sum_j |(b(y) M)_j|``: with its largest signs that is a polynomial."""
        values, factor = self.at_nodes(oversampling)
        return factor * float(np.abs(values).sum(axis=1).max()) * (1 + 1e-9) + self.tail


@dataclass(frozen=True, eq=False)
class Hats:
    """A function of y that is linear between k + 1 nodes, as a `Series` is used.

    `matrix` (k + 1, columns) are its values there. It is nowhere larger, so the nodes enclose it.
    """

    matrix: FloatArray
    tail: ClassVar[float] = 0.0

    @cached_property
    def norm(self) -> float:
        """``sup_y sum_j |(hats(y) M)_j|``, convex between nodes; rounded outward."""
        return OUTWARD * float(np.abs(self.matrix).sum(axis=1).max())

    def at_nodes(self, oversampling: int) -> tuple[FloatArray, float]:
        """Values at the nodes, and one; no oversampling is needed."""
        del oversampling
        return self.matrix, 1.0

    def sup_norm(self) -> float:
        """The norm."""
        return self.norm


def bent(
    axes: Sequence[Series | Hats], oversampling: int
) -> Iterator[tuple[float, list[FloatArray]]]:
    """Yield, axis by axis, the excess of a polynomial over its values at nodes.

    A weight, and bases of values (nodes, columns) of which the weight times the largest is the
    axis's part. In angles the nodes of `at_nodes` are ``w = pi / M`` apart on an axis, mirrored at
    its ends. Linear interpolation between them, axis by axis, is nowhere above them, and misses at
    most ``w^2 / 8`` times the largest second derivative along each axis: of smooth ones far less
    than the square of the degree times their size. That is a polynomial of the same degrees in all
    axes, as ``cos(a theta)'' = -a^2 cos(a theta)``, so nodes enclose it.
    """
    values, factors = zip(*[one.at_nodes(_ENCLOSING) for one in axes], strict=True)
    for turn, (one, rows) in enumerate(zip(axes, values, strict=True)):
        if isinstance(one, Hats):
            continue  # nowhere above its nodes
        degree = len(one.coefficients) - 1
        squares = np.arange(degree + 1.0)[:, None] ** 2
        own = _at_nodes(squares * one.coefficients, len(rows))
        width = math.pi / (oversampling * degree)
        yield width**2 / 8 * math.prod(factors), [*values[:turn], own, *values[turn + 1 :]]


def _cosines(nodes: int, degree: int) -> tuple[FloatArray, FloatArray]:
    """``cos(a theta)`` of even and odd a at the first half of so many nodes, of exact turns."""
    turns = (2 * np.arange((nodes + 1) // 2)[:, None] + 1) * np.arange(degree + 1) % (4 * nodes)
    even, odd = (np.cos(own * (np.pi / (2 * nodes))) for own in (turns[:, ::2], turns[:, 1::2]))
    return even, odd


def _at_nodes(coefficients: FloatArray, nodes: int) -> FloatArray:
    parts = _cosines(nodes, len(coefficients) - 1)
    even, odd = parts[0] @ coefficients[::2], parts[1] @ coefficients[1::2]
    return np.concatenate([even + odd, (even - odd)[: nodes // 2][::-1]])


def _sizes(values: FloatArray, mirrored: bool) -> FloatArray:
    """Sums of sizes over columns; `mirrored`: with those of the other half, at nodes in reverse."""
    sizes = np.asarray(np.abs(values).sum(axis=1))
    return sizes + sizes[::-1] if mirrored else sizes


@lru_cache(maxsize=16)
def released_series(k: int, h: int, axis: AxisMap | None, cut: float = CUT) -> Series | Hats:
    """Series that multiplies an axis's released values, or hats."""
    if h == INTERPOLATED:
        return Hats(synthesis_matrix(k, h, axis))
    return Series.of(k, synthesis_matrix(k, h, axis), cut)


@lru_cache(maxsize=256)
def lebesgue_constant(k: int, h: int, spectrum: LinearMap | None = None) -> float:
    """Bound the sup of the axis's polynomial by the largest lattice value, within 2 %."""
    if h == INTERPOLATED and spectrum is None:
        return 1.0  # hats are from zero to one, and sum to one
    matrix = _evaluation_matrix(k, h, spectrum)
    if spectrum is not None:
        return Series.of(k, matrix).sup_norm()
    half = matrix[:, : k // 2 + 1].copy()  # others have the same values at 1 - y
    half[:, k - k // 2 :] /= 2
    series = Series.of(k, half, mirrored=True)
    values, factor = series.at_nodes(_ENCLOSING)
    return factor * float(_sizes(values, True).max()) * (1 + 1e-9) + 2 * series.tail


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
        boxed = _boxed_error(kernel, k, _evaluation_matrix(k, h, spectrum), norm)
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
    worst = _largest_error(kernel, k, _evaluation_matrix(k, h, spectrum), y, t)
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
        whole, *part = np.nonzero(bounds > best + gap)
        squares = squares[whole] + side * np.transpose(part)
        enough_at = max(2 * gap / first, math.sqrt(8 * gap / second))
        each = len(squares) * (len(series.coefficients) + 100)
        affordable = math.sqrt((_SQUARES_WORK - work) / max(each, 1)) - 1
        parts = math.floor(min(affordable, max(2.0, min(_PARTS, side / enough_at + 1))))
        work += each * (parts + 1) ** 2
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
    own = series.coefficients @ _lattice_values(kernel, k, t[(t >= 0.0) & (t <= 0.5)])
    values, factor = replace(series, coefficients=own).at_nodes(4)
    between = kernel.curvature * series.norm / (8 * k**2)
    return 1.001 * (factor * float(np.abs(values).max()) + series.tail * kernel.peak + between)


def _derivative_bound(k: int, matrix: FloatArray, sizes: Sequence[float]) -> float:
    """Bound a derivative of ``b(y) M f`` on the unit interval, for all lattice values f such that
    differences of order i are at most ``sizes[i]``; the derivative is of the last of these orders.

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


def _binomials(numbers: Int64Array, few: int) -> FloatArray:
    """``C(n, few)``, zero for negative n; scipy's would take a tenth of a second to import."""
    factors = ((numbers - i) / (i + 1) for i in range(few))
    return math.prod(factors, start=(numbers >= 0).astype(np.float64))


def _corner_errors(
    kernel: Kernel, k: int, series: Series, squares: FloatArray, side: float, parts: int
) -> tuple[FloatArray, FloatArray]:
    """Divide each square, given by its low (y, t), in both variables into so many parts.

    Returns the squares (m, 2) in another order, and the largest ``|E|`` at the corners of their
    parts, (m, parts in y, parts in t).
    """
    steps = np.arange(parts + 1)[:, None] * (side / parts)
    reach = getattr(kernel, "reach", 1.0)  # beyond is less than a series' roundings
    every_square, every_corner = [], []
    for some in _split(squares, 1, _LINES):
        t = np.unique(some[:, 1])
        ends = k * (t[0] - reach), k * (t[-1] + side + reach)
        near = np.arange(max(0, math.floor(ends[0])), min(k, math.ceil(ends[1])) + 1)
        bumps = kernel(near[:, None] / k - (t + steps).ravel())
        coefficients = series.coefficients[:, near[0] : near[-1] + 1] @ bumps
        coefficients = coefficients.reshape(-1, parts + 1, len(t))
        for few in _split(some, 0, _TOGETHER):
            y, y_index = np.unique(few[:, 0], return_inverse=True)
            own, t_index = np.unique(np.searchsorted(t, few[:, 1]), return_inverse=True)
            y_lines = (y + steps).ravel()
            angles = np.arccos(1 - 2 * np.minimum(y_lines, 1.0))
            basis = np.cos(angles[:, None] * np.arange(len(coefficients)))
            released = basis @ coefficients[:, :, own].reshape(len(coefficients), -1)
            errors = kernel(y_lines[:, None] - (t[own] + steps).ravel())
            errors -= released
            errors = np.abs(errors, out=errors).reshape(parts + 1, len(y), parts + 1, len(own))
            errors = np.maximum(errors[1:], errors[:-1])
            errors = np.maximum(errors[:, :, 1:], errors[:, :, :-1])
            every_corner.append(errors[:, y_index, :, t_index])
            every_square.append(few)
    return np.concatenate(every_square), np.concatenate(every_corner)


def _split(squares: FloatArray, column: int, most: int) -> Iterator[FloatArray]:
    """Split squares by one of their numbers, in parts of at most `most`."""
    squares = squares[np.argsort(squares[:, column], kind="stable")]
    starts = np.flatnonzero(np.diff(squares[:, column], prepend=-1.0))
    yield from np.split(squares, starts[most::most])


# --- Lattice values whose polynomials are near a kernel

_SPARE_NODES = 400  # beside one for each value: polynomials of order h vary less
_BUMPS_TRIED = 33  # of the first half, the middle among them
_FIT_RIDGE = 1e-8  # of a value's own square, beside what it does to the function


@lru_cache(maxsize=64)
def lattice_miss(kernel: Kernel, k: int, h: int) -> float:
    """Largest error of `fitted_values` on a grid: no bins there improve on it.

    Polynomials in Bernstein form are coarsest in the middle: there they miss most.
    """
    t = np.linspace(0.0, 0.5, _BUMPS_TRIED)
    y = (1 - np.cos(np.linspace(0, np.pi, 2 * k + 1))) / 2  # symmetric with t about the middle
    bases, totals = by_parity(bernstein_basis(y[: k + 1], k), len(y)), iterated_parts(k, h)
    fitted = zip(bases, totals, parities(fitted_values(kernel, k, h, t)), strict=True)
    made = of_parities(*[basis @ (total @ values) for basis, total, values in fitted])
    return float(np.abs(kernel(y[:, None] - t) - made).max())


def fitted_values(kernel: Kernel, k: int, h: int | None, t: FloatArray) -> FloatArray:
    """Lattice values (k + 1, q) whose polynomial of order h is near the kernel at t.

    Kernels with kinks, no `h`, and functions linear between nodes: the kernel's own values there.
    """
    values = kernel(np.arange(k + 1)[:, None] / k - t)
    if kernel.kinks or h is None or h == INTERPOLATED:
        return values
    y, *parts = _normal_equations(k, h)
    pairs = zip(parts, parities(kernel(y[:, None] - t)), parities(values), strict=True)
    fitted = [
        own + np.linalg.solve(square, operator.T @ (wanted - operator @ own) / len(y))
        for (operator, square), wanted, own in pairs
    ]
    return of_parities(*fitted)


@lru_cache(maxsize=4)
def _normal_equations(k: int, h: int) -> tuple[Any, ...]:
    """Nodes, and for even and for odd values the iterated basis there and the matrix to solve."""
    nodes = min(4 * k, k + _SPARE_NODES) + 1
    y = (1 - np.cos((np.arange(nodes) + 0.5) * np.pi / nodes)) / 2
    half = bernstein_basis(y[: (nodes + 1) // 2], k)
    pairs = zip(by_parity(half, nodes), iterated_parts(k, h), strict=True)
    operators = [basis @ total for basis, total in pairs]
    ridges = [_FIT_RIDGE * np.eye(operator.shape[1]) for operator in operators]
    squares = [one.T @ one / nodes + ridge for one, ridge in zip(operators, ridges, strict=True)]
    return y, *zip(operators, squares, strict=True)
