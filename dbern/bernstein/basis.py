"""Bernstein basis, iterated Bernstein operator (Definitions 3 to 6 of the paper), uniform
B-splines, and large arrays block by block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.types import FloatArray, Int64Array

# --- Bernstein basis and iterated Bernstein operator (Definitions 3 to 6 of the paper)


_OVERSAMPLING = 8
_FEW = 32  # points, for which steps of Python would take longer than the products

MANY = 256
"""Rows, or bins, of which each has to do with its neighbours alone."""
_POINTS_TOGETHER, _NOTHING, _BLOCK = 1024, 1e-22, 64

MOST_K = 1000
"""Largest degree: beyond, ``2^-k`` underflows."""

MOST_AXES = 8
"""Most axes of a lattice."""

MOST_H = 10_000
"""Largest order: up to it and any degree `iterated_matrix` keeps constants to 1e-9.

Its roundings grow with the order: at 1e12 it keeps one digit, at 1e18 none.
"""

INTERPOLATED = 0
"""Order of a function that is linear, axis by axis, between its lattice values.

It has no iterated operator: its coefficients are its lattice values, its basis are hats. So it is
nowhere larger than its largest lattice value, and k may be as large as a narrow kernel needs.
"""

MOST_INTERPOLATED_K = 4096
"""Largest k of a function that is linear between its lattice values."""

MOST_INTERPOLATED = 1 << 22
"""Most lattice values of such a function: it is held in memory (32 MiB)."""


def bernstein_basis(y: FloatArray, k: int) -> FloatArray:
    """Evaluate ``b_{v,k}(y) = C(k,v) y^v (1-y)^(k-v)`` for all v.

    Rows of the result (m, k + 1) are nonnegative and sum to one, accurate to about ``2 k``
    roundings; degrees above 1000 raise a ValueError. The recurrence over v starts at the nearer end
    of the interval, where ``(1-y)^k >= 2^-1000`` cannot underflow; it takes two products a value
    where powers or logarithms take many more.
    """
    if not 1 <= k <= MOST_K:
        raise ValueError(f"degree {k} is not from 1 to {MOST_K}")
    y = np.asarray(y, dtype=np.float64)
    far = y > 0.5
    near = np.where(far, 1.0 - y, y)  # exact: b_{v,k}(y) = b_{k-v,k}(1-y)
    odds = near / (1.0 - near)
    first = np.power(1.0 - near, k)
    if len(y) <= _FEW:  # the same products in the same order, without a step of Python for each
        factors = np.empty((2 * k + 1, len(y)))
        factors[0], factors[1::2] = first, odds
        factors[2::2] = _ratios(k)
        basis = np.ascontiguousarray(np.multiply.accumulate(factors, axis=0)[::2])
    else:
        basis = np.empty((k + 1, len(y)))
        basis[0] = first
        for v in range(k):
            np.multiply(basis[v], odds, out=basis[v + 1])
            basis[v + 1] *= (k - v) / (v + 1)
    basis[:, far] = basis[::-1, far]
    return basis.T


def bernstein_mixtures(y: FloatArray, k: int, coefficients: FloatArray) -> FloatArray:
    """Evaluate ``b(y) M`` at increasing y (m,) for coefficients M (k + 1, q), shape (m, q).

    Of more rows than `MANY`, those whose weight at nearby points is below 1e-22 are left out: 1e-19
    of the largest coefficient together, far less than the roundings of the others.
    """
    if k < MANY:
        return np.asarray(bernstein_basis(y, k) @ coefficients)
    found = np.empty((len(y), coefficients.shape[1]))
    for first in range(0, len(y), _POINTS_TOGETHER):
        some = slice(first, first + _POINTS_TOGETHER)
        basis = bernstein_basis(y[some], k)
        near = np.flatnonzero(basis.max(axis=0) > _NOTHING)
        own = slice(near[0], near[-1] + 1)
        np.matmul(basis[:, own], coefficients[own], out=found[some])
    return found


@lru_cache(maxsize=32)
def _ratios(k: int) -> FloatArray:
    return np.asarray((np.arange(k, 0, -1) / np.arange(1, k + 1))[:, None])


@lru_cache(maxsize=32)
def iterated_matrix(k: int, h: int) -> FloatArray:
    """``W_h = sum_{i<h} (I - M)^i`` with ``M_{jv} = b_{v,k}(j/k)``, shape (k + 1, k + 1).

    The iterated basis is ``b^(h)(y) = b(y) W_h``, so the order enters the coefficients once and
    evaluation costs the same for every h. The eigenvalues of ``I - M`` lie in [0, 1): the sum is
    stable where the alternating one of Definition 5 cancels. The identity where `INTERPOLATED`.
    """
    total = np.eye(k + 1) if h == INTERPOLATED else _unfolded(*iterated_parts(k, h))
    total.setflags(write=False)
    return total


@lru_cache(maxsize=32)
def iterated_parts(k: int, h: int) -> tuple[FloatArray, FloatArray]:
    """``W_h`` by parity (`by_parity`): a quarter of the work."""
    if h == 1:
        return np.eye(k // 2 + 1), np.eye((k + 1) // 2)
    if h % 2:
        before = zip(iterated_parts(k, h - 1), _step(k, h - 1), strict=True)
        even, odd = (total + power for total, power in before)
    else:
        before = zip(iterated_parts(k, h // 2), _step(k, h // 2), strict=True)
        even, odd = (total + power @ total for total, power in before)
    return even, odd


@lru_cache(maxsize=8)
def _step(k: int, power: int) -> tuple[FloatArray, FloatArray]:
    if power == 1:
        nodes = np.arange(k + 1) / k
        return by_parity(np.eye(k + 1) - bernstein_basis(nodes, k))
    halves = _step(k, power // 2), _step(k, power - power // 2)
    even, odd = (one @ other for one, other in zip(*halves, strict=True))
    return even, odd


def by_parity(matrix: FloatArray, count: int = 0) -> tuple[FloatArray, FloatArray]:
    """Parts on even and odd vectors of a matrix that is the same in reverse, rows and columns.

    It mixes neither kind with the other, so products, sums, inverses and transposes are those of
    the two parts, in orthonormal coordinates (`parities`). With `count` given, `matrix` is the
    first half of as many rows.
    """
    count, columns = count or len(matrix), matrix.shape[1] // 2
    rows = count // 2
    top = matrix[: count - rows]
    first, last = top[:, :columns], top[:, ::-1][:, :columns]
    middle = math.sqrt(2) * top[:, columns : matrix.shape[1] - columns]
    even = np.concatenate([first + last, middle], axis=1)
    even[rows:] /= math.sqrt(2)
    return even, (first - last)[:rows]


def with_mirrored(rows: FloatArray, count: int) -> FloatArray:
    """Complete the first half of `count` rows by the same rows in reverse."""
    return np.concatenate([rows, rows[: count - len(rows)][::-1, ::-1]])


def _unfolded(even: FloatArray, odd: FloatArray) -> FloatArray:
    rows, columns = odd.shape
    top, own = np.empty((len(even), even.shape[1] + columns)), even[:, :columns].copy()
    own[rows:] *= math.sqrt(2)
    top[:, :columns], top[:, ::-1][:, :columns] = own / 2, own / 2
    top[:rows, :columns] += odd / 2
    top[:rows, ::-1][:, :columns] -= odd / 2
    top[:rows, columns : even.shape[1]] = even[:rows, columns:] / math.sqrt(2)
    top[rows:, columns : even.shape[1]] = even[rows:, columns:]
    return with_mirrored(top, len(even) + rows)


def parities(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Even and odd parts of values (m, ..) in reverse, in orthonormal coordinates."""
    half = len(values) // 2
    first, last = values[:half], values[::-1][:half]
    middle = values[half : len(values) - half]
    even = np.concatenate([(first + last) / math.sqrt(2), middle])
    return even, (first - last) / math.sqrt(2)


def of_parities(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Merge two parts into the values (m, ..): the inverse of `parities`."""
    half = len(odd)
    first, last = even[:half] + odd, even[:half] - odd
    return np.concatenate([first / math.sqrt(2), even[half:], last[::-1] / math.sqrt(2)])


def iterated_basis(y: FloatArray, k: int, h: int) -> FloatArray:
    """Evaluate the iterated basis ``b^(h)_{v,k}(y)``, shape (m, k + 1); rows sum to one."""
    basis = coefficient_basis(y, k, h)
    return basis if h == INTERPOLATED else np.asarray(basis @ iterated_matrix(k, h))


def coefficient_basis(y: FloatArray, k: int, h: int) -> FloatArray:
    """Evaluate what multiplies coefficients at y, (m, k + 1): the Bernstein basis, or hats."""
    return bin_matrix(y, k, 1) if h == INTERPOLATED else bernstein_basis(y, k)


def iterate(coefficients: FloatArray, h: Sequence[int]) -> FloatArray:
    """Apply ``W_h`` along every axis: the plain Bernstein form of the iterated polynomial."""
    result = np.asarray(coefficients, dtype=np.float64)
    if set(h) == {INTERPOLATED}:
        return result
    for order in h:  # each step moves the first axis to the end
        matrix = iterated_matrix(result.shape[0] - 1, order)
        result = np.tensordot(result, matrix, axes=(0, 1))
    return np.ascontiguousarray(result)


def enclosing_nodes(degree: int, oversampling: int = _OVERSAMPLING) -> tuple[FloatArray, float]:
    """Nodes y and a factor c with ``max |p| <= c max |p(y)|`` for every p of that degree.

    Ehlich and Zeller (1964): with M Chebyshev nodes and degree below M, c is
    ``1 / cos(pi degree / 2M)``; M is `oversampling` times the degree.
    """
    count = oversampling * max(degree, 1)
    nodes = (1 - np.cos((np.arange(count) + 0.5) * np.pi / count)) / 2
    return nodes, 1 / math.cos(math.pi * degree / (2 * count))


# --- Arrays that are never whole in memory


@dataclass(frozen=True)
class Blocks:
    """An array of `shape`, cut along its first axis; each pass over it reads one block at a time.

    ``read(index)`` returns a block of `layers` layers, the last one fewer.
    """

    shape: tuple[int, ...]
    layers: int
    read: Callable[[int], FloatArray]

    @property
    def places(self) -> list[slice]:
        """The layers of each block, in order."""
        starts = range(0, self.shape[0], self.layers)
        return [slice(start, min(start + self.layers, self.shape[0])) for start in starts]

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Each block's layers and its values."""
        for index, place in enumerate(self.places):
            yield place, self.read(index)


def blocks_of(values: FloatArray | Blocks) -> Blocks:
    """Wrap an array in memory as one block; blocks stay as they are."""
    if isinstance(values, Blocks):
        return values
    return Blocks(values.shape, max(1, len(values)), lambda _index: values)


def on_axes(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Apply one matrix (m, n) to each axis, the first one last: for blocks of few layers."""
    first, *others = matrices
    return np.tensordot(first, on_others(values, others), axes=(1, 0))


def on_others(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Apply one matrix (m, n) to each axis but the first."""
    for matrix in matrices:  # each moves the second axis to the end
        values = np.tensordot(values, matrix, axes=(1, 1))
    return values


# --- Uniform B-splines on the unit interval


def _cell_of(positions: FloatArray, cells: int) -> tuple[Int64Array, FloatArray]:
    """Cells of the positions, and offsets in them from -1 to 1; single IEEE operations."""
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
    """
    u = (offset + 1.0) / 2.0
    weights = [np.ones_like(u)]
    for d in range(1, degree + 1):
        rising = [(u + (d - r)) * weights[r - 1] for r in range(1, d)]
        middle = [up + ((r + 1) - u) * weights[r] for r, up in enumerate(rising, start=1)]
        weights = [(1.0 - u) * weights[0], *middle, u * weights[-1]]
    return [weight / math.factorial(degree) for weight in weights]


def bin_matrix(positions: FloatArray, cells: int, degree: int) -> FloatArray:
    """``beta_j(t)`` for each position t and bin j, shape (m, cells + degree); rows sum to one."""
    cell, offset = _cell_of(positions, cells)
    values = np.zeros((len(positions), cells + degree))
    for r, weight in enumerate(local_weights(offset, degree)):
        values[np.arange(len(positions)), cell + r] = weight
    return values


_CELLS_TOGETHER = 32


def bin_products(
    positions: FloatArray, shares: FloatArray, values: FloatArray, cells: int, degree: int
) -> tuple[FloatArray, FloatArray]:
    """Sums over positions in order, by their shares, of ``beta beta'`` and ``beta f'``.

    Returns (bins, bins) and (bins, m), for values (m, positions) of functions f. A cell meets
    ``degree + 1`` bins: some cells at a time, few of the products are zero.
    """
    cell, offset = _cell_of(positions, cells)
    weights = np.stack(local_weights(offset, degree), axis=1)
    of_bins = np.zeros((cells + degree, cells + degree))
    of_values = np.zeros((cells + degree, len(values)))
    for first in range(0, cells, _CELLS_TOGETHER):
        own = slice(*np.searchsorted(cell, [first, first + _CELLS_TOGETHER]))
        bins = slice(first, min(first + _CELLS_TOGETHER, cells) + degree)
        beta = np.zeros((own.stop - own.start, bins.stop - first))
        columns = (cell[own] - first)[:, None] + np.arange(degree + 1)
        np.put_along_axis(beta, columns, weights[own], axis=1)
        left = beta.T * shares[own]
        of_bins[bins, bins] += left @ beta
        of_values[bins] += left @ values[:, own].T
    return of_bins, of_values


def chebyshev(count: int) -> tuple[FloatArray, FloatArray]:
    """Nodes in [-1, 1], and the map from values there to coefficients of T_0, T_1, .."""
    angles = (np.arange(count) + 0.5) * np.pi / count
    analysis = cosines(angles, count).T * (2 / count)
    analysis[0] /= 2
    return np.cos(angles), analysis


def cosines(angles: FloatArray, count: int) -> FloatArray:
    """Return ``T_a(cos theta)`` of Chebyshev polynomials T_0, T_1, .., shape (.., count)."""
    return np.cos(angles[..., None] * np.arange(count))


def solved_in_blocks(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve equations of bins (n, n) for right sides (n, m), some bins at a time.

    `matrix` is positive definite and couples no bins that are more than 64 apart, as `bin_products`
    of degrees below that.
    """
    later: list[tuple[FloatArray, FloatArray]] = []
    for first in range(0, len(matrix), _BLOCK):
        own, after = slice(first, first + _BLOCK), slice(first + _BLOCK, first + 2 * _BLOCK)
        block, values = matrix[own, own], right[own]
        if later:
            before = matrix[own, first - _BLOCK : first]
            block, values = block - before @ later[-1][0], values - before @ later[-1][1]
        known = np.hstack([matrix[own, after], values])
        found = np.asarray(np.linalg.solve(block, known), np.float64)
        later.append((found[:, : -right.shape[1]], found[:, -right.shape[1] :]))
    solved = [later[-1][1]]
    for coupled, known in later[-2::-1]:
        solved.append(known - coupled @ solved[-1])
    return np.concatenate(solved[::-1])
