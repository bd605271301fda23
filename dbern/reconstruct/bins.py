"""B-spline bins: what of the records is counted, and how a polynomial is made of it.

A release of unsigned bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)`` and
``c_j = int beta_j(t) dD(t)``. The B-splines beta_j are nonnegative and sum to one at every t. What
such a release misses is bounded in `bin_errors` and `bias_envelopes`.

Lattice values whose polynomials are near a kernel are fitted by least squares at Chebyshev nodes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from dbern.bernstein.basis import (
    INTERPOLATED,
    MANY,
    bernstein_basis,
    by_parity,
    iterated_parts,
    of_parities,
    parities,
    with_mirrored,
)
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.splines import bin_matrix, bin_products, local_weights, solve_in_blocks
from dbern.reconstruct.axis_maps import AxisMap, Limits, StoredArray
from dbern.reconstruct.base import AxisStrategy, Lattice, SensitivityBound
from dbern.reconstruct.two_scales import MOST_NARROW, TwoScales
from dbern.types import FloatArray, Int64Array

_FEWEST_NODES, _MOST_NODES = 1200, 3 << 14  # of the mean squares that bins are made for
_NODES_TO_FIT = 16  # a bandwidth, of those
_NODES_TOGETHER = 1 << 11  # of the first half, and as many of the other: 32 MiB where k is 1000
_AT_ENDS = 0.5  # of a cell: the weight of the place at either end
_AT_VERY_ENDS = 2.0  # the same of the ends themselves
_NOTHING = 1e-13  # of the peak
_DAMPING = 1e-9  # of the mean square of a bin, added to each
_ALIKE = 1e-13  # of the largest entry
two_scales_of = lru_cache(maxsize=3)(TwoScales)  # each keeps its matrices
_SPARE_NODES = 400  # beside one for each value: polynomials of order h vary less
_BUMPS_TRIED = 33  # of the first half, the middle among them
_FIT_RIDGE = 1e-8  # of a value's own square, beside what it does to the function


@dataclass(frozen=True)
class AxisBins(AxisMap):
    """Cells and degree of one axis, and the matrix A from bins to lattice values.

    `packed` is A as little-endian float64 in C order, shape (k + 1, cells + degree). An evaluation
    uses the leading `used` singular vectors of A; all for 0. With `times` and `parts`, bins of two
    `scales` are released: A multiplies those, and ``A M`` is the matrix of the narrow ones.
    """

    cells: int
    degree: int
    packed: bytes = field(repr=False)
    used: int = 0
    times: int = 1
    parts: int = 1

    kind: ClassVar[str] = "binned"
    mode: ClassVar[str] = "bin"
    called: ClassVar[str] = "bins"
    stored: ClassVar = {
        "synthesis": StoredArray(
            ("axis", "mode"),
            limits={
                "cells": Limits(int, 1, 2**31),
                "degree": Limits(int, 0, 32),
                "times": Limits(int, 2, 2**10, needed=False),
                "parts": Limits(int, 2, 2**10, needed=False),
            },
        )
    }

    @property
    def count(self) -> int:
        """Number of bins, of two scales the narrow ones."""
        return self.cells + self.degree

    @property
    def rank(self) -> int:
        """Number of released bins."""
        return self.count if self.scales is None else self.scales.count

    @property
    def size_text(self) -> str:
        """Number of released bins in words, of two scales of both."""
        if self.scales is None:
            return str(self.count)
        return f"{self.scales.wide} wide and {self.count} narrow"

    @property
    def scales(self) -> TwoScales | None:
        """Both scales; None where there is one."""
        if self.times == 1:
            return None
        return two_scales_of(self.cells, self.degree, self.times, self.parts)

    @cached_property
    def synthesis(self) -> FloatArray:
        """A, or its best approximation of rank `used`; shape (k + 1, bins)."""
        whole = np.asarray(np.frombuffer(self.packed, "<f8"), np.float64).reshape(-1, self.rank)
        if not 0 < self.used < self.rank:
            return whole
        left, sizes, right = np.linalg.svd(whole, full_matrices=False)
        leading = slice(self.used)
        return np.asarray((left[:, leading] * sizes[leading]) @ right[leading])

    @cached_property
    def narrow(self) -> AxisBins:
        """The bins of one scale that it is exactly the same function of, but for noise.

        What is the same in reverse, but for roundings of a product, is made so: they are far below
        what a bound on errors adds for those of a matrix (`bin_errors.FLOATS`).
        """
        return self if self.scales is None else _narrow_bins(self, self.scales)

    def on_two_scales(self, times: int, parts: int) -> AxisBins:
        """The same function of two scales, read from these with the least noise."""
        if times == 1:
            return self
        made = replace(self, times=times, parts=parts)
        matrix = made.on_released(self.synthesis)
        return replace(made, packed=np.ascontiguousarray(matrix, "<f8").tobytes())

    def on_released(self, weights: FloatArray) -> FloatArray:
        """Return weights of what is released that are those (.., bins) of the bins."""
        return weights if self.scales is None else self.scales.on_released(weights)

    @cached_property
    def mirrored(self) -> bool:
        """Whether A is exactly the same in reverse, rows and columns."""
        return np.array_equal(self.synthesis, self.synthesis[::-1, ::-1])

    @cached_property
    def largest_l2(self) -> float:
        """Bound ``max_t |beta(t)|_2``: on a cell its square is a polynomial of degree 2p.

        Of two scales it is at most that of their parts: squares add.
        """
        nodes, factor = enclosing_nodes(2 * self.degree, oversampling=64)
        weights = np.stack(local_weights(2 * nodes - 1, self.degree))
        part = 1 / self.parts
        size = factor * np.square(weights).sum(axis=0).max()
        return float(OUTWARD * np.sqrt(size) * math.hypot(part, 1 - part))

    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of translates at t (m,); A knows the kernel."""
        del kernel
        return (matrix @ self.narrow.synthesis) @ bin_matrix(t, self.cells, self.degree).T

    def using(self, rank: int) -> AxisBins:
        """The same bins, evaluated with `rank` singular vectors."""
        return replace(self, used=rank)

    @property
    def _numbers(self) -> dict[str, int]:
        scales = {} if self.scales is None else {"times": self.times, "parts": self.parts}
        return {"cells": self.cells, "degree": self.degree, **scales}

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of A."""
        del name
        return self._numbers

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; the matrix in base64."""
        return {**self._numbers, "synthesis": base64.b64encode(self.packed).decode()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> AxisBins:
        """Read what `to_dict` wrote."""
        return cls._of(content, base64.b64decode(content["synthesis"]))

    @classmethod
    def _of(cls, numbers: Mapping[str, Any], packed: bytes) -> AxisBins:
        times, parts = numbers.get("times", 1), numbers.get("parts", 1)
        return cls(numbers["cells"], numbers["degree"], packed, times=times, parts=parts)

    def arrays(self) -> dict[str, FloatArray | Int64Array]:
        """A."""
        return {"synthesis": self.synthesis}

    @classmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> AxisBins:
        """Read what `arrays` wrote."""
        synthesis, attributes = read("synthesis")
        return cls._of(attributes, np.asarray(synthesis).astype("<f8").tobytes())

    @classmethod
    def admits(cls, rank: int, nodes: int, axes: int, attributes: Mapping[str, Any]) -> bool:
        """Return whether attributes say as many bins, of two scales at most so many."""
        del nodes, axes
        stated = {"times", "parts"} & set(attributes)
        if stated and (len(stated) == 1 or attributes["cells"] > MOST_NARROW):
            return False
        return bool(rank == cls._of(attributes, b"").rank)


@lru_cache(maxsize=4)
def _narrow_bins(bins: AxisBins, scales: TwoScales) -> AxisBins:
    """Make `AxisBins.narrow` of two scales, once for all releases of a design."""
    matrix = scales.on_bins(bins.synthesis)
    reverse = matrix[::-1, ::-1]
    if np.allclose(matrix, reverse, rtol=0, atol=_ALIKE * np.abs(matrix).max()):
        matrix = (matrix + reverse) / 2
    return AxisBins(bins.cells, bins.degree, np.ascontiguousarray(matrix, "<f8").tobytes())


@lru_cache(maxsize=256)
def axis_bins(
    kernel: Kernel,
    k: int,
    cells: int,
    degree: int = 2,
    h: int | None = None,
) -> AxisBins:
    """Bins whose A has the least squared error for a point mass at a uniform position; unshrunk.

    But for the two ends, where values are clamped to and B-splines are cut off: each weighs as much
    as `_AT_ENDS` of a cell, or `_AT_VERY_ENDS` where the kernel's slope jumps. That costs no noise
    and next to nothing inside. A little damping changes next to nothing inside the domain, and
    keeps the ends quiet, where B-splines of high degree are nearly dependent. With `h` the error is
    that of the polynomial of order h (`lattice_bumps`), without that of lattice values.
    """

    def values(block: MirroredBlock) -> FloatArray:
        return lattice_bumps(kernel, k, h, block)[: k // 2 + 1]

    half = bin_fit(bump_blocks(kernel), values, cells, degree)
    if k % 2 == 0:
        half[-1] = (half[-1] + half[-1, ::-1]) / 2  # the middle is its own reverse
    if h == INTERPOLATED:  # what is far below roundings takes no room in a store
        half[np.abs(half) < _NOTHING * kernel.peak] = 0.0
    matrix = with_mirrored(half, k + 1)
    return AxisBins(cells, degree, np.ascontiguousarray(matrix, dtype="<f8").tobytes())


@dataclass(frozen=True)
class MirroredBlock:
    """Middles of some of `count` equal parts of the unit interval, with those mirrored to them.

    They are the parts of the first half from `first` to the one before `last`. With `ends` the
    first and the last place are the ends of the interval, in place of middles beside them.
    """

    count: int
    first: int
    last: int
    ends: bool = False

    @property
    def index(self) -> Int64Array:
        """Numbers of the parts, in order; the middle one is its own mirror image."""
        near = np.arange(self.first, self.last)
        far = self.count - 1 - near[::-1]
        return np.concatenate([near, far[far > near[-1]]])

    @property
    def t(self) -> FloatArray:
        """Positions in the unit interval."""
        t = np.asarray((self.index + 0.5) / self.count)
        if self.ends:
            t[self.index == 0], t[self.index == self.count - 1] = 0.0, 1.0
        return t

    def shares(self, cells: int) -> FloatArray:
        """Weights of the places in mean squares of bins: the two at the ends have more."""
        shares = np.ones(self.count)
        shares[[0, -1]] += (_AT_VERY_ENDS if self.ends else _AT_ENDS) * self.count / cells
        return shares[self.index]


def bin_fit(
    blocks: Sequence[MirroredBlock],
    values: Callable[[MirroredBlock], FloatArray],
    cells: int,
    degree: int,
) -> FloatArray:
    """Weights of bins (m, bins) nearest to functions of t, in rows, of `values` at all places."""
    gram, right = np.zeros(()), np.zeros(())
    for block in blocks:
        products = bin_products(block.t, block.shares(cells), values(block), cells, degree)
        gram, right = gram + products[0], right + products[1]
    gram[np.diag_indices(len(gram))] += _DAMPING * np.trace(gram) / len(gram)
    if len(gram) > MANY:
        return solve_in_blocks(gram, right).T
    equations = zip(by_parity(gram), parities(right), strict=True)
    fitted: list[Any] = [np.linalg.solve(*pair) for pair in equations]
    return of_parities(*fitted).T


def bump_blocks(kernel: Kernel) -> list[MirroredBlock]:
    """Places of the translates that bins are fitted to, fine for the bandwidth, in blocks.

    Where a slope jumps, the ends are among them: a place beside does not tell what clamped values
    miss.
    """
    fine = max(_FEWEST_NODES, math.ceil(_NODES_TO_FIT / kernel.bandwidth))
    count = min(fine, _MOST_NODES)
    half = (count + 1) // 2
    starts = range(0, half, _NODES_TOGETHER)
    return [
        MirroredBlock(count, first, min(first + _NODES_TOGETHER, half), kernel.jumps)
        for first in starts
    ]


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


@dataclass(frozen=True)
class BinnedStrategy(AxisStrategy):
    """Sums of B-spline weights, bin by bin.

    A record of weight w in [-1, 1] moves the bins of its output by ``w beta(t)``, and products of
    B-splines are nonnegative and sum to one, those of two scales too. So ``|w beta(t) - w'
    beta(t')|_1 <= |w| + |w'| <= 2`` in one output or in two, whatever the signs; the missing record
    gives half.
    """

    lattice: Lattice
    bins: tuple[AxisBins, ...]

    kind: ClassVar[str] = "binned"

    @property
    def maps(self) -> tuple[AxisBins, ...]:
        """The axes' bins."""
        return self.bins

    @property
    def two_scales(self) -> bool:
        """Whether any axis has two."""
        return any(axis.scales for axis in self.bins)

    @property
    def counted_shape(self) -> tuple[int, ...]:
        """Shape of the bins that records are counted in: of an axis with scales the narrow ones."""
        return tuple(axis.count for axis in self.bins)

    def total(self, released: Iterable[Int64Array]) -> float:
        """Return the sum of all bins, of the slabs of released integers."""
        integers, factor = np.concatenate([*released]).reshape(self.layout.shape), 1.0
        for index, axis in enumerate(self.bins):
            if axis.scales is not None:  # wide ones count most of each record, in few numbers
                integers = integers.take(range(axis.scales.wide), index)
                factor *= axis.parts / (axis.parts - 1)
        return float(factor * sum(integers.ravel().tolist()))

    def row_sums(self, axis: int) -> FloatArray:
        """Ones: errors of single bins add up."""
        return np.ones(self.bins[axis].rank)

    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False
    ) -> SensitivityBound:
        """Two, for any kernel and any number of axes."""
        del kernels, signed
        return SensitivityBound(2.0, "2 / n: a record's weights in the bins sum to at most one")

    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, multi_output: bool = False
    ) -> SensitivityBound:
        """``sqrt(2) max_t |beta(t)|_2``, whose entries are nonnegative; of opposite signs, twice.

        The maximum factors over axes.
        """
        del kernels, multi_output
        largest = math.prod(axis.largest_l2 for axis in self.bins)
        factor, text = (2.0, "2") if signed else (math.sqrt(2), "sqrt(2)")
        return SensitivityBound(OUTWARD * factor * largest, f"{text} max_t |beta(t)|_2 / n")

    def lattice_norm(self, h: Sequence[int]) -> float:
        """Zero: no lattice values are released."""
        del h
        return 0.0


@lru_cache(maxsize=64)
def lattice_miss(kernel: Kernel, k: int, h: int) -> float:
    """Largest error of `fitted_values` on a grid: no bins there improve on it.

    Polynomials in Bernstein form are coarsest in the middle: there they miss most.
    """
    t = np.linspace(0.0, 0.5, _BUMPS_TRIED)
    y = (1 - np.cos(np.linspace(0, np.pi, 2 * k + 1))) / 2  # symmetric with t about the middle
    bases, totals = by_parity(bernstein_basis(y[: k + 1], k), len(y)), iterated_parts(k, h)
    fitted = zip(bases, totals, parities(fitted_values(kernel, k, h, t)), strict=True)
    released = of_parities(*[basis @ (total @ values) for basis, total, values in fitted])
    return float(np.abs(kernel(y[:, None] - t) - released).max())


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
        start + np.linalg.solve(square, operator.T @ (target - operator @ start) / len(y))
        for (operator, square), target, start in pairs
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
    squares = [
        operator.T @ operator / nodes + ridge
        for operator, ridge in zip(operators, ridges, strict=True)
    ]
    return y, *zip(operators, squares, strict=True)
