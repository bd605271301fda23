"""Release B-spline bins."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from dbern.bernstein.basis import (
    bernstein_basis,
    enclosing_nodes,
    iterated_basis,
    iterated_matrix,
)
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.strategies.approximation import AxisMap, StoredArray
from dbern.strategies.base import AxisStrategy, Bound, Box, Lattice, Slab
from dbern.strategies.brackets import largest_missed
from dbern.strategies.splines import Synthesis, bin_matrix, local_weights
from dbern.types import FloatArray

DEGREES = (1, 2, 3, 5, 7)
"""Degrees of B-splines that a plan chooses from."""

CLUSTERS = 1000
"""Equal point masses at uniform places, at most: the rough part of a typical database."""

_SMOOTH_SCALE = 0.2
"""The smooth part of a typical density varies by its mean over this share of an axis."""

_FEWEST_NODES, _MOST_NODES = 400, 1 << 14
_NODES_A_BANDWIDTH = 8
_FINER = 3  # nodes of the mean squares that bins are made for
_NODES_TO_FIT = 16  # a bandwidth, of those
_NODES_TO_MISS = 2  # a bandwidth, of half of the domain
_SPARE_NODES = 400  # of lattice values' fit, beside one for each: polynomials of order h vary less
_AT_ENDS = 0.5  # of a cell: the weight of the place at either end
_DAMPING = 1e-9  # of the mean square of a bin, added to each
_FIT_RIDGE = 1e-8  # of a coefficient's own square, beside what it does to the function


@dataclass(frozen=True)
class AxisBins(Synthesis, AxisMap):
    """One axis of bins."""

    kind: ClassVar[str] = "binned"
    mode: ClassVar[str] = "bin"

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
        """Bound what a noiseless release of order h misses of a translate, at worst."""
        return largest_missed(kernel, k, h, self)

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

    But for the two ends, where values are clamped to and B-splines are cut off: each weighs as much
    as `_AT_ENDS` of a cell. That costs no noise and next to nothing inside. A little damping
    changes next to nothing inside the domain, and keeps the ends quiet, where B-splines of high
    degree are nearly dependent. With `h` the error is that of the polynomial of order h
    (`lattice_bumps`), without that of lattice values.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> bins = axis_bins(Gaussian(0.1), k=40, cells=10)
    >>> bins.rank, bins.synthesis.shape
    (12, (41, 12))
    """
    matrix = bin_fit(lattice_bumps(kernel, k, h)[1], cells, degree)
    return AxisBins(cells, degree, np.ascontiguousarray(matrix, dtype="<f8").tobytes())


def bin_fit(values: FloatArray, cells: int, degree: int) -> FloatArray:
    """Weights of bins (m, bins) nearest to functions of t, in rows, at all of `bump_places`."""
    beta = bin_matrix(_middles(values.shape[1]), cells, degree)
    left = beta.T.copy()
    left[:, [0, -1]] *= 1 + _AT_ENDS * values.shape[1] / cells
    gram = left @ beta
    damped = gram + _DAMPING * np.trace(gram) / len(gram) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(damped, left @ values.T).T)


def bump_places(kernel: Kernel) -> FloatArray:
    """Places (q,) of the translates that bins are fitted to, fine for the bandwidth."""
    count = max(_FINER * _FEWEST_NODES, math.ceil(_NODES_TO_FIT / kernel.bandwidth))
    return _middles(min(count, _FINER * _MOST_NODES))


def _middles(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


@lru_cache(maxsize=8)
def lattice_bumps(kernel: Kernel, k: int, h: int | None) -> tuple[FloatArray, FloatArray]:
    """Places t (q,), and lattice values (k + 1, q) whose polynomials are near the bumps there.

    Of order h, by least squares over Chebyshev nodes in y that begin at the bumps' own values: k
    need not be as large as those would make it. Kernels with kinks, and no `h`: the values
    themselves.
    """
    t = bump_places(kernel)
    return t, _fitted(kernel, k, h, t)


@lru_cache(maxsize=64)
def lattice_miss(kernel: Kernel, k: int, h: int) -> float:
    """The largest error of `lattice_bumps` on a grid: what no bins on that lattice improve on."""
    t = np.linspace(0.0, 0.5, math.ceil(_NODES_TO_MISS / kernel.bandwidth) + _NODES_TO_FIT)
    y = (1 - np.cos(np.linspace(0, np.pi, 2 * k + 1))) / 2  # symmetric with t about the middle
    made = bernstein_basis(y, k) @ (iterated_matrix(k, h) @ _fitted(kernel, k, h, t))
    return float(np.abs(kernel(y[:, None] - t) - made).max())


def _fitted(kernel: Kernel, k: int, h: int | None, t: FloatArray) -> FloatArray:
    values = kernel(np.arange(k + 1)[:, None] / k - t)
    if kernel.kinks or h is None:
        return values
    y, operator, square = _normal_equations(k, h)
    left = operator.T @ (kernel(y[:, None] - t) - operator @ values) / len(y)
    return values + np.linalg.solve(square, left)


@lru_cache(maxsize=4)
def _normal_equations(k: int, h: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes, the iterated basis there, and the matrix of least squares."""
    nodes = min(4 * k, k + _SPARE_NODES) + 1
    y = (1 - np.cos((np.arange(nodes) + 0.5) * np.pi / nodes)) / 2
    operator = iterated_basis(y, k, h)
    return y, operator, operator.T @ operator / nodes + _FIT_RIDGE * np.eye(k + 1)


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
