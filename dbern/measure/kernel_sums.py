"""Weighted kernel sums over records, counted exactly.

``F_o(y) = (1/n) sum_i [o_i = o] w_i K(y - d_i)``, K a product of axes. A public rule gives each
record an output o and a weight w in [-1, 1]; it decides by one record alone, with single IEEE
operations. Densities, regression sums, class sums and the closed form of the hinge are all of this
form. The axes may be some of those that a record must be valid in: one that is not is the missing
record of every sum over the same box.

Sensitivity under replace-one
-----------------------------
Let ``K_t = (K(p - t))_{p in P} >= 0`` be the contribution of a record of weight one, zero for the
missing record. Replacing a record moves the released values by ``(w K_t - w' K_t') / n``, the two
in one output or in two.

*One output, weights in [0, 1]*: pointwise, two numbers in ``[0, sup K]`` differ by at most
``sup K``: ``S(F) <= sup K / n`` and ``Delta1 <= N S(F)``. Summed, ``|w K_t - w' K_t'|_1 <=
|K_t|_1 + |K_t'|_1 <= 2 max_t sum_v K(v/k - t)``, and for a product kernel the maximum factors over
axes because every term is a product of nonnegative axis terms and the axes of t vary
independently. A maximum over pairs is a convex function of the weights: it is attained at weights
of zero (the missing record) or one.

*Divided records*: weights ``v >= 0`` in one output and ``1 - v`` in another. A norm of what a move
of two records, or of one that is added, adds to all outputs is a convex function of their v: it is
largest where each is 0 or 1, which is a record of weight one in either output. So all of this
holds as for records that are in several outputs.

*Signed weights*: ``S(F) <= 2 sup K / n``, and nothing cancels: ``Delta1 <= 2 max_t |K_t|_1 / n``,
``Delta2 <= 2 max_t |K_t|_2 / n``, attained by turning a sign. *Several outputs*: a record that
changes its output moves each by at most ``sup K / n``, and all of them together by ``(|K_t|_1 +
|K_t'|_1) / n``: ``N S(F)`` is no bound, ``2 max_t |K_t|_1 / n`` is.

Sensitivity under add-or-remove-one
-----------------------------------
One record more moves one output by ``w K_t / n``, n the public normalizer, and ``|w| <= 1``: ``S(F)
<= sup K / n``, ``Delta1 <= max_t |K_t|_1 / n`` and ``Delta2 <= max_t |K_t|_2 / n``, whatever signs
and outputs. That is half of what opposite signs can do under replace-one.

Effective kernel
----------------
Records enter through integers that represent K~ with ``|K~ - K| <= rho`` everywhere. A replacement
then moves each lattice value by at most ``2 rho / n`` more, and coordinate j of a linear map T by
``2 rho |T_j|_1 / n``: the norm of these (``2 N rho / n`` for lattice values) enters Delta. In two
outputs each moves by half of that: no more in either norm. A record added moves them by half. A
divided record is told by integers in both outputs: they move by at most twice as much, in any norm.

Integers of B-spline bins
-------------------------
A record of weight w adds ``round(2^s w beta_j(t))`` to each of the (p + 1)^l bins j that its
position t touches. That differs from ``2^s w beta_j(t)`` by half a unit for the rounding, and by
the floats that computed it: each axis's weight is exact up to ``3 p + 2`` roundings of its own size
(`dbern.bernstein.splines.local_weights`), their product with w up to ``l + 1`` more. For p <= 7 and
l <= 8 these are below 200, of 2^-53 each and of a number up to 2^s <= 2^40: below a fortieth of a
unit. So each integer is within rho = 2^-s, in units of w beta, and its sign is that of w.
Replacing a record then moves the bins by at most ``2 (p + 1)^l rho / n`` more than exact weights
would, in the l1 norm, and by ``2 (p + 1)^{l/2} rho / n`` in the l2 norm, whether it stays in its
output or not.

*Sides.* Integers of weights in [0, 1] are nonnegative, and those of one record sum to at most ``2^s
+ (p + 1)^l``. Replacing a record takes away no more than it had counted, and adds no more than the
other counts: each is ``(1 + (p + 1)^l rho) / n`` at most, in one output or in two, half of what the
l1 norm can be. So are u times as much of u rows. A record that is added moves one side by all.

*Divided records* touch ``2 (p + 1)^l`` integers in both outputs together, of which all of this
holds: their weights sum to one, exactly.

*Two scales.* ``M c`` of the bins c may be released, M >= 0 of columns that sum to one
(`dbern.reconstruct.two_scales`): of the same integers, exact here too. Nonnegative ones stay so and
keep their sum: both sides and the l1 norm of a move, rounding included, are at most those of c, the
l2 norm at most that l1 norm. A record's rounding moves a number by at most ``(p + 1)^l rho``.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.oblique import Oblique
from dbern.certify.approximation import KernelMixture
from dbern.data.domain import Column, Domain, Outside
from dbern.errors import SpecError
from dbern.measure.accumulator import Errors, Memory, RecordAccumulator
from dbern.measure.kernel_sketch import (
    MomentSketch,
    chebyshev_table,
    contract,
    contraction_error,
    sketch_cost,
    smallest_sketch,
    truncation_error,
)
from dbern.measure.record_integers import Rows, Terms, add_rows_plainly
from dbern.measure.record_weights import UNIT_WEIGHT, WEIGHTS_BYTES, RecordWeights
from dbern.measure.statistic import RecordSum
from dbern.privacy.budget import Protection
from dbern.reconstruct.base import (
    AnyStrategy,
    AxisStrategy,
    LatticeMapStrategy,
    SensitivityBound,
    Slab,
    Strategy,
)
from dbern.reconstruct.bins import BinnedStrategy
from dbern.reconstruct.two_scales import along_axis
from dbern.system import LRUCache
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_LOOPS = "dbern.measure.loops"
_FEW_ADDITIONS = 1 << 23  # at 5 to 10 ns each a small part of what numba takes to start
_additions = [0]  # of this process
_MOST_BITS = 40  # the recurrence's float error, below 2^-45, stays far below half a unit
_ONE_CELL = (0.0, 1.0)  # edges of a period that is one cell
_TABLES = LRUCache[FloatArray](max_size=16 << 20, size=lambda table: table.nbytes)
"""Tables that one slab after another is contracted with: each task has counters of its own."""


def add_rows(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to a C-contiguous `state`, in place; an IndexError for arrays that do not fit."""
    _additions[0] += len(terms.indices) * len(rows.columns[0])
    if _additions[0] > _FEW_ADDITIONS or _LOOPS in sys.modules:
        from dbern.measure import loops  # numba: half a second, and as much to be ready

        loops.add_rows_compiled(state, rows, terms)
    else:
        add_rows_plainly(state, rows, terms)


@dataclass(frozen=True)
class KernelSum(RecordSum):
    """A weighted kernel sum as a statistic (proofs in `dbern.measure.kernel_sums`).

    Parameters
    ----------
    domain : Domain
        The axes it is a function of.
    kernels : tuple of Kernel
        One an axis, in unit-cube units.
    record_weights : RecordWeights
        Each record's output and weight.
    unit : float
        A value in data units is this times its value in unit-cube units.
    output_fraction : Fraction
        Fraction of the release's budget.
    validity_domain : Domain, optional
        All axes in which a record must be valid to count, `domain` among them; by default those.
    oblique : Oblique, optional
        Map of positions in that domain to those in `domain`, whose axes are then oblique.
    counted_in : str, optional
        See `Statistic`; itself where no weight is negative.
    candidates : tuple of KernelSum
        See `Statistic`; `choices` is how many there are, of one of them.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> from dbern.data.domain import Axis
    >>> square = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    >>> density = KernelSum("density", square, (Gaussian(0.1), Gaussian(0.1)))
    >>> density.outputs, round(density.function_sensitivity, 3)
    (1, 15.915)
    """

    name: str
    domain: Domain
    kernels: tuple[Kernel, ...] = ()
    record_weights: RecordWeights = UNIT_WEIGHT
    unit: float = 1.0
    validity_domain: Domain | None = None
    oblique: Oblique | None = None
    counted_in: str | None = None
    candidates: tuple[KernelSum, ...] = ()
    choices: int = 1
    binned = True
    additive = True

    def __post_init__(self) -> None:
        """Name the sum itself as `counted_in` where no weight is negative."""
        if not self.record_weights.signed:
            object.__setattr__(self, "counted_in", self.name)

    def protected(self, protection: Protection, ids: Column | None) -> KernelSum:
        """Return the sum, and the candidates of its bins, for other neighbours."""
        candidates = tuple(candidate.protected(protection, ids) for candidate in self.candidates)
        return replace(super().protected(protection, ids), candidates=candidates)

    @property
    def outputs(self) -> int:
        """Number of outputs of the record weights."""
        return self.record_weights.outputs

    @cached_property
    def bias(self) -> KernelMixture:
        """Class of mixtures: an output is one of at most n translates over n."""
        return KernelMixture(self.kernels, choices=self.choices)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the axes and those of the weights."""
        return (self.validity_domain or self.domain).columns + self.record_weights.columns

    @property
    def divided(self) -> bool:
        """Whether each record is in two outputs; rules of other packages need not say so."""
        return bool(getattr(self.record_weights, "divided", False))

    def add(self, state: Int64Array, records: Mapping[str, FloatArray], terms: Terms) -> None:
        """Add a batch of records to `state`, in place; of divided ones the rest too."""
        rows = self.rows(records)
        add_rows(state, rows, terms)
        if self.divided and rows.weight is not None:
            output = np.zeros(len(rows.weight), np.int64) if rows.output is None else rows.output
            output, weight = output + self.outputs // 2, 1 - rows.weight
            add_rows(state, replace(rows, output=output, weight=weight), terms)

    def rows(self, records: Mapping[str, FloatArray]) -> Rows:
        """Locate a batch: axes with their bounds, outputs and weights."""
        axes = self.domain.axes
        counts, output, weight = self.record_weights(records)
        if self.validity_domain is not None:
            valid, unit = self.validity_domain.bounded(records)
            counts = valid if counts is None else valid & counts
            if self.oblique is not None:
                columns = np.zeros((len(axes), len(valid)))
                columns[:, valid] = self.oblique.positions(unit).T
                bounds = [0.0] * len(axes), [1.0] * len(axes)
                return Rows(list(columns), *bounds, True, counts, output, weight)
        return Rows(
            [records[axis.name] for axis in axes],
            [axis.low for axis in axes],
            [axis.high for axis in axes],
            self.domain.outside is Outside.CLAMP,
            counts,
            output,
            weight,
        )

    @property
    def shift(self) -> float:
        """Bound the rounding of a position, as a fraction of its axis.

        Eight roundings; oblique, those of l products, of their factors and of l sums besides, and
        the same of the points that are asked for.
        """
        return UNIT_ROUNDOFF * (8 if self.oblique is None else 24 + 4 * self.domain.dimensions)

    @property
    def row_bytes(self) -> int:
        """Memory that a record of a batch takes before it is added."""
        return WEIGHTS_BYTES + (0 if self.oblique is None else 48 * self.domain.dimensions)

    @property
    def coordinates_text(self) -> str:
        """Kind of coordinates, for a description."""
        return "" if self.oblique is None else ", in oblique coordinates"

    def function_move(self, *, added: bool) -> float:
        """``sup K``; of a record that is replaced, twice that with signs."""
        peak = OUTWARD * math.prod(kernel.peak for kernel in self.kernels)
        return 2 * peak if self.record_weights.signed and not added else peak

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> SensitivityBound:
        """Bound n times the move (*Sensitivity under replace-one*, *add-or-remove-one* above)."""
        strategy = cast("AxisStrategy", strategy)
        signed, multi_output = self.record_weights.signed or added, self.outputs > 1 and not added
        if norm == 2:
            bound = strategy.l2_sensitivity(self.kernels, signed=signed, multi_output=multi_output)
        else:
            bound = strategy.l1_sensitivity(self.kernels, signed=signed or multi_output)
            bound = replace(bound, balanced=strategy.kind == "binned" and not signed)
        return bound.half if added else bound

    def counter_params(self, strategy: AnyStrategy, rows: int, tolerance: float) -> dict[str, Any]:
        """Choose bits of bins, or the cheapest sketch whose kernel error is at most `tolerance`.

        From about a billion rows on, the integers are too short for the tolerance that the plan
        asks for; the plan then shows the larger rounding part. Raises SpecError where no sketch of
        reasonable size is that accurate.
        """
        bits = min(_MOST_BITS, 62 - rows.bit_length())
        if strategy.kind == "binned":
            return {"bits": bits}
        kernels, k = self.kernels, cast("Strategy", strategy).lattice.k
        # Rounding of the moments alone costs up to this: no sketch can do better.
        floor = 2.0 ** (1 - bits) * math.prod(4 * kernel.peak for kernel in kernels)
        tolerance = max(tolerance, floor)
        sketches = (smallest_sketch(kernels, k, order, bits, tolerance) for order in range(9))
        fitting = [sketch for sketch in sketches if sketch is not None]
        if not fitting and any(kernel.kinks for kernel in kernels):
            raise SpecError(
                f'mechanism.k: too fine for exact integer sums of kernel "{kernels[0].name}" over '
                f"{len(kernels)} axes (now {list(k)}). Write a smaller k, a larger bandwidth, "
                'noise = "binned-laplace" or kernel = "gaussian"'
            )
        if not fitting:
            raise SpecError(
                f"target.bandwidth: too narrow for exact integer sums over {len(kernels)} "
                "axes. Write a larger bandwidth or fewer axes."
            )
        shape = strategy.lattice.shape
        return min(fitting, key=lambda sketch: sketch_cost(sketch, shape)).to_dict()

    def counter(
        self, strategy: AnyStrategy, rows: int, params: Mapping[str, Any]
    ) -> SumAccumulator:
        """Return the bins, or the sketch."""
        if isinstance(strategy, BinnedStrategy):
            return BinnedSumAccumulator(self, strategy, rows, params["bits"])
        sketch, lattice = MomentSketch.from_dict(dict(params)), cast("LatticeMapStrategy", strategy)
        return KernelSumAccumulator(self, lattice, sketch, rows)


@dataclass(frozen=True)
class BinnedSumAccumulator(RecordAccumulator):
    """Bins of a kernel sum before its kernel, one array for each output.

    `bits` is s, with ``n 2^s < 2^62`` so that no sum overflows.
    """

    kernel_sum: KernelSum
    strategy: BinnedStrategy
    n: int
    bits: int

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the packed bins, megabytes where there are many: no task needs them."""
        bins = tuple(replace(axis, packed=b"") for axis in self.strategy.bins)
        values = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        return values | {"strategy": replace(self.strategy, bins=bins)}

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the sum."""
        return self.kernel_sum.columns

    @property
    def description(self) -> str:
        """Bins and degree."""
        bins = " x ".join(axis.size_text for axis in self.strategy.bins)
        text = f"{bins} bins, B-splines of degree {self.strategy.bins[0].degree}"
        return text + self.kernel_sum.coordinates_text

    @property
    def errors(self) -> Errors:
        """Bound errors (*Integers of B-spline bins* above); floats are of sums of at most one.

        *Positions*: a bin's share of a position that is a few roundings off; slopes are at most
        2 g. *Floats*: an integer as a float, and a division, of at most one; and what bins are off
        exactly. The sum of all bins of all outputs is at most one, and so is its float error
        ``3 2^-53``. No bin exceeds one, but for rounding.
        """
        rho, two_scales = 2.0**-self.bits, self.strategy.two_scales
        in_output = math.prod(axis.degree + 1 for axis in self.strategy.bins)
        touched = in_output * (1 + self.kernel_sum.divided)
        cells = sum(2 * axis.cells for axis in self.strategy.bins)
        position = OUTWARD * self.kernel_sum.shift * cells
        floats = OUTWARD * 3 * UNIT_ROUNDOFF
        record_error, root = (rho * in_output, touched) if two_scales else (rho, math.sqrt(touched))
        return Errors(
            kernel=record_error,
            kernel_norms=(OUTWARD * 2 * rho * touched, OUTWARD * 2 * rho * root),
            position=position,
            floats=OUTWARD * (3 * UNIT_ROUNDOFF + record_error + position),
            float_norms=(floats, floats),
            value_bound=1.001,
        )

    @property
    def memory(self) -> Memory:
        """Memory of the record weights; records are located and added block by block."""
        return Memory(self.kernel_sum.row_bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs, bins."""
        return (self.kernel_sum.outputs, *self.strategy.counted_shape)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        self.kernel_sum.add(state, records, self._terms)

    @cached_property
    def _terms(self) -> Terms:
        axes = self.strategy.bins
        touched = itertools.product(range(axes[0].degree + 1), repeat=len(axes))
        indices = np.array(list(touched), dtype=np.int64)
        extents = self.strategy.counted_shape
        return Terms(
            indices=indices,
            targets=np.ravel_multi_index(tuple(indices.T), extents),
            outputs=self.kernel_sum.outputs,
            extents=extents,
            periods=tuple(axis.cells for axis in axes),
            edges=(_ONE_CELL,) * len(axes),
            bits=self.bits,
            degree=axes[0].degree,
            splines=True,
        )

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Bins of one slab over n; of two scales exact quotients, each rounded once."""
        if not self.strategy.two_scales:
            integers = state[output, slab.start : slab.stop].astype(np.float64)
            return np.ldexp(integers, -self.bits) / self.n
        numerators, unit = state[output], self.n << self.bits
        for index, bins in enumerate(self.strategy.bins):
            if (axis := bins.scales) is not None:
                numerators = along_axis(axis.multiply_exactly, numerators, index)
                unit *= axis.unit
        return np.asarray(numerators[slab.start : slab.stop] / unit, np.float64)


@dataclass(frozen=True)
class KernelSumAccumulator(RecordAccumulator):
    """A kernel sum resolved to integers, which workers count and contract."""

    kernel_sum: KernelSum
    strategy: LatticeMapStrategy
    sketch: MomentSketch
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the sum."""
        return self.kernel_sum.columns

    @property
    def bits(self) -> int:
        """Fixed-point bits of the sketch."""
        return self.sketch.bits

    @property
    def description(self) -> str:
        """Cells and moments."""
        cells = " x ".join(map(str, self.sketch.cells))
        text = f"{cells} cells x {len(self.sketch.indices)} integer moments"
        return text + self.kernel_sum.coordinates_text

    @cached_property
    def errors(self) -> Errors:
        """Bound errors by those of the sketch's effective kernel.

        *Kernel*: rho bounds ``|K~ - K|``; a value's error is at most ``2 rho |T_j|_1``, and its
        norms are those of these. *Values*: none on the lattice exceeds ``sup K + rho``, plus
        everything floats can add.
        """
        sketch, kernels = self.sketch, self.kernel_sum.kernels
        rho = truncation_error(kernels, sketch.axes, sketch.order, sketch.bits)
        peak = math.prod(kernel.peak for kernel in kernels)
        slopes = sum(peak * kernel.slope / kernel.peak for kernel in kernels)
        largest = [float(self.strategy.row_sums(axis).max()) for axis in range(len(kernels))]
        row_error, outputs = self._row_error, self.kernel_sum.outputs
        l1, l2 = self._rows(1), self._rows(2)
        times = 1 + self.kernel_sum.divided
        return Errors(
            kernel=rho,
            kernel_norms=(OUTWARD * times * 2 * rho * l1, OUTWARD * times * 2 * rho * l2),
            position=OUTWARD * self.kernel_sum.shift * slopes,
            floats=row_error * math.prod(largest),
            float_norms=(
                OUTWARD * outputs * row_error * l1,
                OUTWARD * math.sqrt(outputs) * row_error * l2,
            ),
            value_bound=OUTWARD * math.prod(largest) * (1.001 * peak + rho),
        )

    @property
    def _row_error(self) -> float:
        """Bound the float error of a value whose row of the map sums to one."""
        # The division by n rounds once more, a value of at most the kernel's peak.
        division = 2 * UNIT_ROUNDOFF * math.prod(kernel.peak for kernel in self.kernel_sum.kernels)
        mapped = self.strategy.matrix(0) is not None
        terms = [nodes + 2 if mapped else 0 for nodes in self.strategy.lattice.shape]
        sketch = self.sketch
        error = contraction_error(self.kernel_sum.kernels, sketch.axes, sketch.order, terms)
        return OUTWARD * (division + error)

    def _rows(self, norm: int) -> float:
        """The norm of the row sums ``|T_j|_1``, which factors over axes."""
        axes = (self.strategy.row_sums(axis) for axis in range(len(self.kernel_sum.kernels)))
        return OUTWARD * math.prod(float((rows**norm).sum() ** (1 / norm)) for rows in axes)

    @property
    def memory(self) -> Memory:
        """Memory of the record weights and of the per-axis tables."""
        shape, cells = self.strategy.lattice.shape, self.sketch.cells
        entries = sum(nodes * count for nodes, count in zip(shape, cells, strict=True))
        return Memory(self.kernel_sum.row_bytes, tables=8 * (self.sketch.order + 2) * entries)

    @property
    def shape(self) -> tuple[int, ...]:
        """Multi-indices, outputs, cells."""
        indices, *cells = self.sketch.shape
        return (indices, self.kernel_sum.outputs, *cells)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        self.kernel_sum.add(state, records, self._terms)

    @cached_property
    def _terms(self) -> Terms:
        return self.sketch.terms(self.kernel_sum.outputs)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Coordinates of one slab, in unit-cube units."""
        order, k = self.sketch.order, self.strategy.lattice.k
        axes = zip(self.kernel_sum.kernels, k, self.sketch.axes, strict=True)
        tables = [_TABLES((*axis, order), partial(chebyshev_table, *axis, order)) for axis in axes]
        for axis, table in enumerate(tables):
            if (matrix := self.strategy.matrix(axis)) is not None:
                tables[axis] = np.matmul(matrix, table)
        tables[0] = tables[0][:, slab.start : slab.stop]
        values = contract(self.sketch, state[:, output], tables)
        values /= self.n
        return values


SumAccumulator: TypeAlias = BinnedSumAccumulator | KernelSumAccumulator
