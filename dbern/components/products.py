"""Naive Bayes as one function on the lattice: ``F = Pr(y|+) Pr(+) - Pr(y|-) Pr(-)``.

``Pr(y|c) = prod_i (1/m) sum_{d in c} K_i(y_i - d_i)`` over the m records of c, ``Pr(c) = m/n``; an
empty class scores zero. F is computed from the same integer sums as one density an axis and class.

Sensitivity under replace-one
-----------------------------
Let ``P = prod_i K_i(0)``. *One more record* changes a class's score by at least ``-(l-1) P/n`` and
at most ``P/n``. With q_i the means of m kernels and v_i those of the new record, n times the change
is ``(m+1) prod_i (m q_i + v_i)/(m+1) - m prod_i q_i``, affine in each of q_i, v_i in [0, K_i(0)]:
its extremes are at corners, and in units of P these are 0 or 1. If all q_i are 1 and j of the v_i
are 0, it is ``(m+1) (m/(m+1))^j - m``, at most 1 and at least ``(m+1) (1 - l/(m+1)) - m = 1 - l``
(Bernoulli). If some q_i is 0 it is ``(m+1) prod_i q'_i``, where one factor is at most ``1/(m+1)``:
in [0, 1]. With m = 0 it is ``prod_i v_i``, in [0, 1].

*A replacement* takes a record away and adds one. Within a class its score changes by at most ``l P/
n``. From one class to the other F changes by twice ``-(l-1) P/n`` to ``P/n`` at most, as one score
counts negatively. So ``S(F) <= 2 max(1, l-1) P / n``, of which ``l P/n`` is never more; the null
record leaves less. The paper's bound is smaller, and false: see the tests.

*Under add-or-remove-one* it is one record more or less: ``S(F) <= max(1, l-1) P / n``, n the public
normalizer of shares and sums. That is half, and so is the effective kernel's part.

F is no sum over records, so the movement of N values is bounded by N (or sqrt(N)) times S(F) alone.

Effective kernel
----------------
The integers represent ``K~_i`` with ``|K~_i - K_i| <= rho_i``. The derivative of the change above
by v_i is ``prod_{j != i} q'_j``; that by q_i is ``m (prod_{j != i} q'_j - prod_{j != i} q_j)``, and
``|q'_j - q_j| = |v_j - q_j|/(m+1) <= (K_j(0) + 2 rho_j)/(m+1)``, so telescoped at most ``(l-1)
prod_{j != i} (K_j(0) + 2 rho_j)``. One more record hence changes F~ by at most

    ``E/n,   E = l sum_i rho_i prod_{j != i} (K_j(0) + 2 rho_j)``

more than F, a replacement by ``2E/n``. And ``|F~ - F| <= prod (K_i(0) + rho_i) - P <= E``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bias import Bumps
from dbern.bernstein.coordinates import BumpBound, Coordinates, PlainCoordinates
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Lattice, Slab
from dbern.components.base import Statistic
from dbern.components.sums import KernelSum
from dbern.components.vectors import ClassSums
from dbern.components.weighings import ByCategory
from dbern.domain import Column, Domain

_ULP = 2.0**-53
_SLACK = 1.1  # over the peaks, for the 2 rho in them


@dataclass(frozen=True)
class NaiveBayesProduct:
    """F of two classes as a component: see the top of the module."""

    name: str
    domain: Domain
    kernels: tuple[Kernel, ...]
    label: Column
    unit: float = 1.0
    share: Fraction = Fraction(1)
    outputs: int = 1
    binned: bool = False
    spectral: bool = False
    additive: bool = False

    @property
    def approximation(self) -> Bumps:
        """A class's score is its share times a mixture of product bumps; shares sum to one."""
        return Bumps(self.kernels)

    @property
    def function_movement(self) -> float:
        """``2 max(1, l - 1) prod K_i(0)``."""
        return OUTWARD * 2 * max(1, len(self.kernels) - 1) * _peak(self.kernels)

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """N or ``sqrt(N)`` times S(F); lattice values only."""
        del quick
        if not isinstance(coordinates, PlainCoordinates):
            raise NotImplementedError("this function is released by its lattice values only")
        size, function = coordinates.layout.size, self.function_movement
        if norm == 1:
            return BumpBound(OUTWARD * size * function, f"N S(F) = {size} x S(F)")
        root = OUTWARD * math.sqrt(size) * function
        return BumpBound(root, f"sqrt(N) S(F) = sqrt({size}) x S(F)")

    @property
    def added_function_movement(self) -> float:
        """``max(1, l - 1) prod K_i(0)``."""
        return self.function_movement / 2

    def added_movement(
        self, coordinates: Coordinates, norm: int, *, quick: bool = False
    ) -> BumpBound:
        """N or ``sqrt(N)`` times half of what a replacement does."""
        return self.movement(coordinates, norm, quick=quick).half

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """Sums of each axis, accurate enough that E is at most `tolerance`, or nearly."""
        each = tolerance / (_SLACK * len(self.kernels) ** 2 * _peak(self.kernels))
        axes = [
            one.statistic(own, n, each * one.kernels[0].peak)
            for one, own in zip(self._sums, _axes(coordinates), strict=True)
        ]
        return self._statistic(coordinates, n, axes)

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic that a plan has chosen."""
        axes = [
            one.restore(own, n, facts)
            for one, own, facts in zip(
                self._sums, _axes(coordinates), counting["axes"], strict=True
            )
        ]
        return self._statistic(coordinates, n, axes)

    def _statistic(
        self, coordinates: Coordinates, n: int, axes: Sequence[Statistic]
    ) -> NaiveBayesStatistic:
        counts = ClassSums.of(self.domain, self.label, moments=False).statistic(n)
        return NaiveBayesStatistic(self, coordinates, tuple(axes), counts, n)

    @property
    def _sums(self) -> list[KernelSum]:
        return [
            KernelSum(
                self.name, self.domain.axis(i), (kernel,), ByCategory(self.label), box=self.domain
            )
            for i, kernel in enumerate(self.kernels)
        ]


@dataclass(frozen=True)
class NaiveBayesStatistic:
    """Sums of each axis and class, and the classes' counts: one flat state."""

    component: NaiveBayesProduct
    coordinates: Coordinates
    axes: tuple[Statistic, ...]
    counts: Statistic
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return self.counts.columns

    @property
    def counting(self) -> dict[str, Any]:
        """That of each axis."""
        return {"axes": [one.counting for one in self.axes]}

    @property
    def description(self) -> str:
        """That of each axis."""
        return " and ".join(one.description for one in self.axes)

    @cached_property
    def kernel_error(self) -> float:
        """E, at the top of the module."""
        peaks = [kernel.peak for kernel in self.component.kernels]
        rhos = [one.kernel_error for one in self.axes]
        grown = math.prod(peak + 2 * rho for peak, rho in zip(peaks, rhos, strict=True))
        terms = sum(rho / (peak + 2 * rho) for peak, rho in zip(peaks, rhos, strict=True))
        return OUTWARD * len(peaks) * grown * terms

    @property
    def position_error(self) -> float:
        """As that of a mixture of product bumps."""
        peaks = self._tops
        return OUTWARD * sum(
            one.position_error * math.prod(peaks) / peak
            for one, peak in zip(self.axes, peaks, strict=True)
        )

    @property
    def float_error(self) -> float:
        """Of each axis's values, and of their product, which is rounded ``2 l + 2`` times.

        With m of the n records in a class, the errors of its sums over n are ``m/n`` times what is
        stated for n: those of its means are what is stated.
        """
        tops = self._tops
        errors = [one.float_error for one in self.axes]
        grown = math.prod(top + error for top, error in zip(tops, errors, strict=True))
        rounding = (4 * len(tops) + 8) * _ULP * grown
        return OUTWARD * (grown - math.prod(tops) + rounding)

    @property
    def value_bound(self) -> float:
        """Shares sum to one, and no mean exceeds its top."""
        return OUTWARD * math.prod(self._tops) + self.float_error

    @property
    def _tops(self) -> list[float]:
        """The largest effective kernels."""
        return [one.value_bound for one in self.axes]

    def kernel_error_norm(self, norm: int) -> float:
        """``2 E`` for each lattice value."""
        return OUTWARD * 2 * self.kernel_error * self._spread(norm)

    def float_error_norm(self, norm: int) -> float:
        """That of one value, for each."""
        return OUTWARD * self.float_error * self._spread(norm)

    def _spread(self, norm: int) -> float:
        return float(OUTWARD * self.coordinates.layout.size ** (1 / norm))

    @property
    def batch_bytes(self) -> int:
        """One axis is counted after the other."""
        return max(one.batch_bytes for one in (*self.axes, self.counts))

    @property
    def table_bytes(self) -> int:
        """One axis is contracted after the other."""
        return max(one.table_bytes for one in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """One number after the other: of each axis, and of the counts."""
        return (sum(math.prod(one.shape) for one in (*self.axes, self.counts)),)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        for one, own in self._views(state):
            one.add(own, records)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """F on one slab, in unit-cube units."""
        del output
        *axes, (counts, counted) = self._views(state)
        shares = counts.finish(counted, 0, Slab(0, 0, 2))
        score = [np.zeros(()), np.zeros(())]
        for label in np.flatnonzero(shares):
            value = np.ones(())
            for i, (one, own) in enumerate(axes):
                rows = slab if i == 0 else Slab(0, 0, self.coordinates.lattice.shape[i])
                sums = one.finish(own, int(label), rows)
                value = np.multiply.outer(value, sums if i == 0 else sums / shares[label])
            score[label] = value
        shape = self.coordinates.lattice.slab_shape(slab)
        return np.asarray(np.broadcast_to(score[1] - score[0], shape))

    def _views(self, state: Int64Array) -> list[tuple[Statistic, Int64Array]]:
        parts = [*self.axes, self.counts]
        ends = np.cumsum([math.prod(one.shape) for one in parts])[:-1].tolist()
        pieces = np.split(state, ends)
        return [(one, own.reshape(one.shape)) for one, own in zip(parts, pieces, strict=True)]


def _peak(kernels: Sequence[Kernel]) -> float:
    return math.prod(kernel.peak for kernel in kernels)


def _axes(coordinates: Coordinates) -> list[PlainCoordinates]:
    """The lattice of each axis."""
    return [PlainCoordinates(Lattice((k,))) for k in coordinates.lattice.k]
