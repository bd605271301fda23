"""Weighted kernel sums ``F_o(y) = (1/n) sum_i [o_i = o] w_i K(y - d_i)``, K a product of axes.

A public rule gives each record an output o and a weight w in [-1, 1]. Densities, regression sums,
class sums and the closed form of the hinge are all of this form. The axes may be some of those that
a record must be valid in: one that is not is the null record of every sum over the same box.

Sensitivity under replace-one
-----------------------------
Let ``K_t = (K(p - t))_{p in P} >= 0`` be the contribution of a record of weight one, zero for the
null record. Replacing a record moves the released values by ``(w K_t - w' K_t') / n``, the two in
one output or in two.

*One output, weights in [0, 1]*: pointwise, two numbers in ``[0, sup K]`` differ by at most
``sup K``: ``S(F) <= sup K / n`` and ``Delta1 <= N S(F)``. Summed, ``|w K_t - w' K_t'|_1 <=
|K_t|_1 + |K_t'|_1 <= 2 max_t sum_v K(v/k - t)``, and for a product kernel the maximum factors over
axes because every term is a product of nonnegative axis terms and the axes of t vary
independently. A maximum over pairs is a convex function of the weights: it is attained at weights
of zero (the null record) or one.

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
outputs each moves by half of that: no more in either norm. A record added moves them by half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bias import Bumps
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.counting import add_rows
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Slab
from dbern.bernstein.maps import BinnedCoordinates
from dbern.bernstein.moments import (
    UNIT_ROUNDOFF,
    MomentSketch,
    chebyshev_table,
    contract,
    contraction_error,
    mapped_table,
    truncation_error,
)
from dbern.bernstein.rows import Terms
from dbern.components.base import WHOLE, Statistic
from dbern.components.binned import BinnedSumStatistic
from dbern.components.sketches import sketch_cost, smallest_sketch
from dbern.components.weighings import ALIKE, Summands, Weighing
from dbern.domain import Column, Domain
from dbern.errors import SpecError
from dbern.oblique import Oblique

_MOST_BITS = 40  # the recurrence's float error, below 2^-45, stays far below half a unit


@dataclass(frozen=True)
class KernelSum:
    """A weighted kernel sum as a component: see the top of the module.

    Parameters
    ----------
    domain : Domain
        The axes it is a function of.
    box : Domain, optional
        All axes in which a record must be valid to count, `domain` among them; by default those.
    oblique : Oblique, optional
        From positions in the box to those in `domain`, whose axes are then oblique.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> from dbern.domain import Axis
    >>> square = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    >>> density = KernelSum("density", square, (Gaussian(0.1), Gaussian(0.1)))
    >>> density.outputs, round(density.function_movement, 3)
    (1, 15.915)
    """

    name: str
    domain: Domain
    kernels: tuple[Kernel, ...]
    weighing: Weighing = ALIKE
    unit: float = 1.0
    share: Fraction = WHOLE
    box: Domain | None = None
    oblique: Oblique | None = None

    @property
    def outputs(self) -> int:
        """As many as the weighing has."""
        return self.weighing.outputs

    @property
    def approximation(self) -> Bumps:
        """An output is a mixture of at most n bumps over n."""
        return Bumps(self.kernels)

    @property
    def function_movement(self) -> float:
        """``sup K``, twice that with signs."""
        peak = OUTWARD * math.prod(kernel.peak for kernel in self.kernels)
        return 2 * peak if self.weighing.signed else peak

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """See the proof at the top of this module."""
        signed = self.weighing.signed
        if norm == 2:
            return coordinates.bump_bound_l2(self.kernels, signed=signed, several=self.outputs > 1)
        apart = signed or self.outputs > 1
        return coordinates.bump_bound(self.kernels, apart=apart, quick=quick)

    @property
    def added_function_movement(self) -> float:
        """``sup K``."""
        return OUTWARD * math.prod(kernel.peak for kernel in self.kernels)

    def added_movement(
        self, coordinates: Coordinates, norm: int, *, quick: bool = False
    ) -> BumpBound:
        """See the proof at the top of this module."""
        if norm == 2:
            return coordinates.bump_bound_l2(self.kernels, signed=True).half
        return coordinates.bump_bound(self.kernels, apart=True, quick=quick).half

    @property
    def binned(self) -> bool:
        """A sum over records may be binned first and smoothed after the noise."""
        return True

    @property
    def spectral(self) -> bool:
        """Bumps are bounded in spectral coordinates."""
        return True

    @property
    def additive(self) -> bool:
        """It is a sum over records, and two bumps attain S(F)."""
        return True

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """The bins, or the cheapest sketch whose kernel error is at most `tolerance`, or nearly.

        From about a billion rows on, the integers are too short for the tolerance the plan asks
        for; the plan then shows the larger rounding part.

        Raises
        ------
        SpecError
            Where no sketch of reasonable size is that accurate.
        """
        kernels = self.kernels
        bits = min(_MOST_BITS, 62 - n.bit_length())
        if isinstance(coordinates, BinnedCoordinates):
            return BinnedSumStatistic(self.summands, coordinates, n, bits)
        # Rounding of the moments alone costs up to this: no sketch can do better.
        floor = 2.0 ** (1 - bits) * math.prod(4 * kernel.peak for kernel in kernels)
        tolerance = max(tolerance, floor)
        k = coordinates.lattice.k
        sketches = (smallest_sketch(kernels, k, order, bits, tolerance) for order in range(9))
        found = [sketch for sketch in sketches if sketch is not None]
        if not found and any(kernel.kinks for kernel in kernels):
            raise SpecError(
                f'mechanism.k: too fine for exact integer sums of kernel "{kernels[0].name}" over '
                f"{len(kernels)} axes (now {list(k)}); write a smaller k, a larger bandwidth, "
                'noise = "binned-laplace" or kernel = "gaussian"'
            )
        if not found:
            raise SpecError(
                f"target.bandwidth: too narrow for exact integer sums over {len(kernels)} "
                "axes; write a larger bandwidth or fewer axes"
            )
        best = min(found, key=lambda sketch: sketch_cost(sketch, coordinates.lattice.shape))
        return KernelSumStatistic(self.summands, kernels, coordinates, best, n)

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic that a plan has chosen."""
        if isinstance(coordinates, BinnedCoordinates):
            return BinnedSumStatistic(self.summands, coordinates, n, counting["bits"])
        sketch = MomentSketch.from_dict(dict(counting))
        return KernelSumStatistic(self.summands, self.kernels, coordinates, sketch, n)

    @property
    def summands(self) -> Summands:
        """What of each record is added up."""
        return Summands(self.domain, self.weighing, self.box, self.oblique)


@dataclass(frozen=True)
class KernelSumStatistic:
    """A kernel sum resolved to integers: what workers count and contract."""

    summands: Summands
    kernels: tuple[Kernel, ...]
    coordinates: Coordinates
    sketch: MomentSketch
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The summands'."""
        return self.summands.columns

    @property
    def counting(self) -> dict[str, Any]:
        """The sketch."""
        return self.sketch.to_dict()

    @property
    def description(self) -> str:
        """Cells and moments."""
        cells = " x ".join(map(str, self.sketch.cells))
        text = f"{cells} cells x {len(self.sketch.indices)} integer moments"
        return text + self.summands.coordinates_text

    @cached_property
    def kernel_error(self) -> float:
        """Bound rho on ``|K~ - K|``."""
        return truncation_error(self.kernels, self.sketch.axes, self.sketch.order, self.sketch.bits)

    @cached_property
    def float_error(self) -> float:
        """Bound on the float error of any one coordinate."""
        return self._row_error * math.prod(
            float(self.coordinates.row_sums(axis).max()) for axis in range(len(self.kernels))
        )

    @cached_property
    def _row_error(self) -> float:
        """Bound on the float error of a coordinate whose row of the map sums to one."""
        # The division by n rounds once more, a value of at most the kernel's peak.
        division = 2 * UNIT_ROUNDOFF * math.prod(kernel.peak for kernel in self.kernels)
        mapped = self.coordinates.matrix(0) is not None
        terms = [nodes + 2 if mapped else 0 for nodes in self.coordinates.lattice.shape]
        sketch = self.sketch
        error = contraction_error(self.kernels, sketch.axes, sketch.order, terms)
        return OUTWARD * (division + error)

    def kernel_error_norm(self, norm: int) -> float:
        """Bound on what the kernel error adds to the sensitivity, times n.

        A coordinate's error is at most ``2 rho |T_j|_1``; this is the norm of these.
        """
        return OUTWARD * 2 * self.kernel_error * self._rows(norm)

    def float_error_norm(self, norm: int) -> float:
        """Bound on the norm of the float errors of all coordinates of one database."""
        outputs = math.sqrt(self.summands.outputs) if norm == 2 else self.summands.outputs
        return OUTWARD * outputs * self._row_error * self._rows(norm)

    def _rows(self, norm: int) -> float:
        """The norm of the row sums ``|T_j|_1``, which factors over axes."""
        axes = (self.coordinates.row_sums(axis) for axis in range(len(self.kernels)))
        return OUTWARD * math.prod(float((rows**norm).sum() ** (1 / norm)) for rows in axes)

    @property
    def position_error(self) -> float:
        """Bound on the change of F by rounding positions: accuracy only, never privacy."""
        peaks = math.prod(kernel.peak for kernel in self.kernels)
        shift = self.summands.shift
        return OUTWARD * shift * sum(peaks * kernel.slope / kernel.peak for kernel in self.kernels)

    @property
    def value_bound(self) -> float:
        """No lattice value exceeds ``sup K + rho``, plus everything floats can add."""
        peak = math.prod(kernel.peak for kernel in self.kernels)
        norm = math.prod(
            float(self.coordinates.row_sums(axis).max()) for axis in range(len(self.kernels))
        )
        return OUTWARD * norm * (1.001 * peak + self.kernel_error)

    @property
    def batch_bytes(self) -> int:
        """What the weighing makes; records are located and added block by block."""
        return self.summands.row_bytes

    @property
    def table_bytes(self) -> int:
        """The per-axis tables."""
        shape, cells = self.coordinates.lattice.shape, self.sketch.cells
        entries = sum(nodes * count for nodes, count in zip(shape, cells, strict=True))
        return 8 * (self.sketch.order + 2) * entries

    @property
    def shape(self) -> tuple[int, ...]:
        """Multi-indices, outputs, cells."""
        indices, *cells = self.sketch.shape
        return (indices, self.summands.outputs, *cells)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        add_rows(state, self.summands.rows(records), self._terms)

    @cached_property
    def _terms(self) -> Terms:
        return self.sketch.terms(self.summands.outputs)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Coordinates of one slab, in unit-cube units."""
        tables = [
            mapped_table(
                chebyshev_table(kernel, self.coordinates.lattice.k[axis], cells, self.sketch.order),
                self.coordinates.matrix(axis),
            )
            for axis, (kernel, cells) in enumerate(zip(self.kernels, self.sketch.axes, strict=True))
        ]
        tables[0] = tables[0][:, slab.start : slab.stop]
        return contract(self.sketch, state[:, output], tables) / self.n


def oblique_of(component: object) -> Oblique | None:
    """The oblique coordinates of a component, where it has some."""
    return component.oblique if isinstance(component, KernelSum) else None
