"""Naive Bayes of two classes as one function on the lattice, the paper's release.

It is ``F = Pr(y|+) Pr(+) - Pr(y|-) Pr(-)``, where
``Pr(y|c) = prod_i (1/m) sum_{d in c} K_i(y_i - d_i)`` over the m records of c, ``Pr(c) = m/n``; an
empty class scores zero. F is computed from the same integer sums as one density an axis and class.

Sensitivity of the joint function
---------------------------------
Let ``P = prod_i K_i(0)``. *One more record* changes a class's score by at least ``-(l-1) P/n`` and
at most ``P/n``. With q_i the means of m kernels and v_i those of the new record, n times the change
is ``(m+1) prod_i (m q_i + v_i)/(m+1) - m prod_i q_i``, affine in each of q_i, v_i in [0, K_i(0)]:
its extremes are at corners, and in units of P these are 0 or 1. If all q_i are 1 and j of the v_i
are 0, it is ``(m+1) (m/(m+1))^j - m``, at most 1 and at least ``(m+1) (1 - l/(m+1)) - m = 1 - l``
(Bernoulli). If some q_i is 0 it is ``(m+1) prod_i q'_i``, where one factor is at most ``1/(m+1)``:
in [0, 1]. With m = 0 it is ``prod_i v_i``, in [0, 1].

*A replacement* takes a record away and adds one. Within a class its score changes by at most ``l P/
n``. From one class to the other F changes by twice ``-(l-1) P/n`` to ``P/n`` at most, as one score
counts negatively. So ``S(F) <= 2 max(1, l-1) P / n``, of which ``l P/n`` is never more; the
missing record leaves less. The paper's bound is smaller, and false: see the tests.

*Under add-or-remove-one* it is one record more or less: ``S(F) <= max(1, l-1) P / n``, n the public
normalizer of shares and sums. That is half, and so is the effective kernel's part.

F is no sum over records, so the movement of N values is bounded by N (or sqrt(N)) times S(F) alone.

Effective kernel of the joint function
--------------------------------------
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
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.approximation import KernelMixture
from dbern.data.domain import Column, Domain
from dbern.measure.accumulator import Errors, Memory, RecordAccumulator
from dbern.measure.kernel_sums import KernelSum, SumAccumulator
from dbern.measure.record_weights import ByCategory
from dbern.measure.statistic import RecordSum
from dbern.measure.vector_sums import VectorAccumulator
from dbern.reconstruct.base import (
    AnyStrategy,
    Lattice,
    LatticeStrategy,
    SensitivityBound,
    Slab,
    VectorStrategy,
)
from dbern.targets.class_sums import ClassSums
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_SLACK = 1.1  # over the peaks, for the 2 rho in them


@dataclass(frozen=True)
class NaiveBayesProduct(RecordSum):
    """F of two classes, as one function on the lattice."""

    domain: Domain
    label: Column
    kernels: tuple[Kernel, ...] = ()
    unit: float = 1.0
    name: str = field(default="score", kw_only=True)

    @cached_property
    def bias(self) -> KernelMixture:
        """A class's score is its share times a mixture of product translates: shares sum to one."""
        return KernelMixture(self.kernels)

    def function_move(self, *, added: bool) -> float:
        """``2 max(1, l - 1) prod K_i(0)``, and half of that if added."""
        replaced = OUTWARD * 2 * max(1, len(self.kernels) - 1) * _peak(self.kernels)
        return replaced / 2 if added else replaced

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> SensitivityBound:
        """N or ``sqrt(N)`` times S(F), and half of that if added; lattice values only."""
        size, function = strategy.layout.size, self.function_move(added=False)
        bound = SensitivityBound(OUTWARD * size * function, f"N S(F) = {size} x S(F)")
        if norm == 2:
            root = OUTWARD * math.sqrt(size) * function
            bound = SensitivityBound(root, f"sqrt(N) S(F) = sqrt({size}) x S(F)")
        return bound.half if added else bound

    def counter_params(self, strategy: AnyStrategy, rows: int, tolerance: float) -> dict[str, Any]:
        """Choose sums of each axis, accurate enough that E is at most `tolerance`, or nearly."""
        relative = tolerance / (_SLACK * len(self.kernels) ** 2 * _peak(self.kernels))
        axes = (
            axis_sum.counter_params(axis, rows, relative * axis_sum.kernels[0].peak)
            for axis_sum, axis in zip(self._sums, _axes(strategy), strict=True)
        )
        return {"axes": list(axes)}

    def counter(
        self, strategy: AnyStrategy, rows: int, params: Mapping[str, Any]
    ) -> NaiveBayesAccumulator:
        """Return the sums of each axis, and the counts."""
        axes = (
            axis_sum.counter(axis, rows, chosen)
            for axis_sum, axis, chosen in zip(
                self._sums, _axes(strategy), params["axes"], strict=True
            )
        )
        classes = ClassSums(self.domain, self.label, moments=False)
        counts = VectorAccumulator(classes, VectorStrategy(2), rows, classes.bits(rows))
        lattice = cast("LatticeStrategy", strategy)
        return NaiveBayesAccumulator(self, lattice, tuple(axes), counts, rows)

    @property
    def _sums(self) -> list[KernelSum]:
        weights = ByCategory(self.label)
        return [
            KernelSum(
                f"axis_{i}", self.domain.axis(i), (kernel,), weights, validity_domain=self.domain
            )
            for i, kernel in enumerate(self.kernels)
        ]


@dataclass(frozen=True)
class NaiveBayesAccumulator(RecordAccumulator):
    """Sums of each axis and class, and the classes' counts: one flat state."""

    product: NaiveBayesProduct
    strategy: LatticeStrategy
    axes: tuple[SumAccumulator, ...]
    counts: VectorAccumulator
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return self.counts.columns

    @property
    def description(self) -> str:
        """Inherited from the axes' accumulators."""
        return " and ".join(axis.description for axis in self.axes)

    @cached_property
    def errors(self) -> Errors:
        """Bound the kernel's error by E, that of each lattice value by ``2 E``.

        *Positions* as of a mixture of product translates. *Floats*: of each axis's values, and of
        their product, which is rounded ``2 l + 2`` times; with m of the n records in a class, the
        errors of its sums over n are ``m/n`` times what is stated for n: those of its means are
        what is stated. *Values*: shares sum to one, and no mean exceeds its top, the largest
        effective kernel.
        """
        of_axes = [axis.errors for axis in self.axes]
        tops = [errors.value_bound for errors in of_axes]
        position = sum(e.position * math.prod(tops) / e.value_bound for e in of_axes)
        grown = math.prod(errors.value_bound + errors.floats for errors in of_axes)
        rounding = (4 * len(tops) + 8) * UNIT_ROUNDOFF * grown
        floats = OUTWARD * (grown - math.prod(tops) + rounding)
        kernel, size = (
            self._kernel_error([errors.kernel for errors in of_axes]),
            self.strategy.layout.size,
        )
        l1, l2 = (float(OUTWARD * size ** (1 / norm)) for norm in (1, 2))
        return Errors(
            kernel=kernel,
            kernel_norms=(OUTWARD * 2 * kernel * l1, OUTWARD * 2 * kernel * l2),
            position=OUTWARD * position,
            floats=floats,
            float_norms=(OUTWARD * floats * l1, OUTWARD * floats * l2),
            value_bound=OUTWARD * math.prod(tops) + floats,
        )

    def _kernel_error(self, rhos: list[float]) -> float:
        """E, that of the *Effective kernel of the joint function* above."""
        peaks = [kernel.peak for kernel in self.product.kernels]
        grown = math.prod(peak + 2 * rho for peak, rho in zip(peaks, rhos, strict=True))
        terms = sum(rho / (peak + 2 * rho) for peak, rho in zip(peaks, rhos, strict=True))
        return OUTWARD * len(peaks) * grown * terms

    @property
    def memory(self) -> Memory:
        """Memory of one axis, as one is counted and contracted after the other."""
        memories = [part.memory for part in (*self.axes, self.counts)]
        return Memory(max(m.batch for m in memories), max(m.tables for m in memories))

    @property
    def shape(self) -> tuple[int, ...]:
        """Flat state: numbers of each axis, then the counts."""
        return (sum(math.prod(sums.shape) for sums in (*self.axes, self.counts)),)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        for accumulator, view in self._views(state):
            accumulator.add(view, records)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """F on one slab, in unit-cube units."""
        del output
        *axes, (counts, counted) = self._views(state)
        shares = counts.to_values(counted, 0, Slab(0, 0, 2))
        score = [np.zeros(()), np.zeros(())]
        for label in np.flatnonzero(shares):
            value = np.ones(())
            for i, (axis, view) in enumerate(axes):
                rows = slab if i == 0 else Slab(0, 0, self.strategy.lattice.shape[i])
                sums = axis.to_values(view, int(label), rows)
                value = np.multiply.outer(value, sums if i == 0 else sums / shares[label])
            score[label] = value
        shape = self.strategy.lattice.slab_shape(slab)
        return np.asarray(np.broadcast_to(score[1] - score[0], shape))

    def _views(self, state: Int64Array) -> list[tuple[RecordAccumulator, Int64Array]]:
        parts: list[RecordAccumulator] = [*self.axes, self.counts]
        sizes = [math.prod(part.shape) for part in parts]
        pieces = zip(parts, np.split(state, np.cumsum(sizes)[:-1].tolist()), strict=True)
        return [(part, piece.reshape(part.shape)) for part, piece in pieces]


def _peak(kernels: Sequence[Kernel]) -> float:
    return math.prod(kernel.peak for kernel in kernels)


def _axes(strategy: AnyStrategy) -> list[LatticeStrategy]:
    lattice = cast("LatticeStrategy", strategy).lattice
    return [LatticeStrategy(Lattice((k,))) for k in lattice.k]
