"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product of axis kernels.

Sensitivity under replace-one
-----------------------------
Let ``K_t = (K(p - t))_{p in P} >= 0`` be a record's contribution, zero for the null record.
Replacing t by t' moves the lattice values by ``(K_t - K_t') / n``. Pointwise, two numbers in
``[0, sup K]`` differ by at most ``sup K``: ``S(F) <= sup K / n`` and ``Delta1 <= N S(F)``. Summed,
``|K_t - K_t'|_1 <= |K_t|_1 + |K_t'|_1 <= 2 max_t sum_v K(v/k - t)``, and for a product kernel the
maximum factors over axes because every term is a product of nonnegative axis terms and the axes
of t vary independently. The null record gives half of that or less.

Effective kernel
----------------
Records enter through integers that represent K~ with ``|K~ - K| <= rho`` everywhere. A replacement
then moves each lattice value by at most ``2 rho / n`` more, and coordinate j of a linear map T by
``2 rho |T_j|_1 / n``: the norm of these (``2 N rho / n`` for lattice values) enters Delta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.kernels import KERNELS, OUTWARD, Kernel, kernel_of
from dbern.bernstein.lattice import Slab
from dbern.bernstein.moments import (
    UNIT_ROUNDOFF,
    MomentSketch,
    cells_for,
    chebyshev_table,
    contract,
    contraction_error,
    mapped_table,
    truncation_error,
)
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.privacy.sensitivity import Sensitivity

_NARROWEST, _WIDEST = 1e-4, 1e4
_LARGEST_STATE = 1 << 28
_MOST_BITS = 40  # the recurrence's float error, below 2^-45, stays far below half a unit
_CACHE_BYTES = 1 << 22
_MOST_CUTS = 1000  # of a period of cells: plans list them


@dataclass(frozen=True, kw_only=True)
class KernelDensity:
    """Density of the records over the axes, smoothed by a product kernel.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, or an unknown kernel.

    Examples
    --------
    >>> KernelDensity(bandwidth=(0.5, 0.5)).get_params()
    {'bandwidth': (0.5, 0.5), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "kernel-density"

    bandwidth: tuple[float, ...]
    kernel: str = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", tuple(float(b) for b in self.bandwidth))
        if not all(math.isfinite(b) and b > 0 for b in self.bandwidth):
            raise SpecError(
                "target.bandwidth: must be positive and finite; write bandwidth = [0.5, 0.5], "
                "one standard deviation, length scale or half-width per axis in data units"
            )
        if self.kernel not in KERNELS:
            others = ", ".join(f'"{name}"' for name in KERNELS if name != "gaussian")
            raise SpecError(
                f'target.kernel: "{self.kernel}" is unknown; write kernel = "gaussian", '
                f"or one of {others}"
            )

    def get_params(self) -> dict[str, Any]:
        """Constructor parameters by name."""
        return {"bandwidth": self.bandwidth, "kernel": self.kernel}

    def kernels(self, domain: Domain) -> tuple[Kernel, ...]:
        """Axis kernels in unit-cube units."""
        if len(self.bandwidth) != domain.dimensions:
            raise SpecError(
                f"target.bandwidth: has {len(self.bandwidth)} entries for {domain.dimensions} "
                f"axes; write one for each of {', '.join(domain.names)}"
            )
        shares = [b / axis.width for b, axis in zip(self.bandwidth, domain.axes, strict=True)]
        if not all(_NARROWEST <= share <= _WIDEST for share in shares):
            raise SpecError(
                f"target.bandwidth: must be from {_NARROWEST:g} to {_WIDEST:g} times the width of "
                "its axis; write a bandwidth nearer to the bounds' scale"
            )
        return tuple(kernel_of(self.kernel, share) for share in shares)

    def sensitivity(
        self, domain: Domain, coordinates: Coordinates, n: int, calibration: str, norm: int = 1
    ) -> Sensitivity:
        """Bounds for exact kernels under replace-one; see the proof at the top of this module."""
        kernels = self.kernels(domain)
        function = Fraction(OUTWARD * math.prod(kernel.peak for kernel in kernels)) / n
        if calibration == "paper":
            size = coordinates.lattice.size
            return Sensitivity(function, size * function, f"N S(F) = {size} x sup K / n")
        measure = coordinates.bump_bound if norm == 1 else coordinates.bump_bound_l2
        bound = measure(kernels)
        return Sensitivity(function, Fraction(bound.value) / n, bound.derivation, norm)

    def statistic(
        self, domain: Domain, coordinates: Coordinates, n: int, tolerance: float
    ) -> DensityStatistic:
        """The cheapest integer sketch whose kernel error is at most `tolerance`, or nearly.

        From about a billion rows on, the integers are too short for the tolerance the plan asks
        for; the plan then shows the larger rounding part.

        Raises
        ------
        SpecError
            Where no sketch of reasonable size is that accurate.
        """
        kernels = self.kernels(domain)
        bits = min(_MOST_BITS, 62 - n.bit_length())
        # Rounding of the moments alone costs up to this: no sketch can do better.
        floor = 2.0 ** (1 - bits) * math.prod(4 * kernel.peak for kernel in kernels)
        tolerance = max(tolerance, floor)
        k = coordinates.lattice.k
        sketches = (_smallest_sketch(kernels, k, order, bits, tolerance) for order in range(9))
        found = [sketch for sketch in sketches if sketch is not None]
        if not found and any(kernel.kinks for kernel in kernels):
            raise SpecError(
                f'mechanism.k: too fine for exact integer sums of kernel "{self.kernel}" over '
                f"{domain.dimensions} axes (now {list(k)}); write a smaller k, a larger bandwidth "
                'or kernel = "gaussian"'
            )
        if not found:
            raise SpecError(
                f"target.bandwidth: too narrow for exact integer sums over {domain.dimensions} "
                f"axes; write a larger bandwidth (now {list(self.bandwidth)}) or fewer axes"
            )
        best = min(found, key=lambda sketch: _cost(sketch, coordinates.lattice.shape))
        return DensityStatistic(domain, kernels, coordinates, best, n)


def _cost(sketch: MomentSketch, nodes: Sequence[int]) -> float:
    """Relative time: moments a record adds, slower out of cache, and the tables to contract."""
    tables = (sketch.order + 2) * sum(
        count * cells for count, cells in zip(nodes, sketch.cells, strict=True)
    )
    adding = len(sketch.indices) * (1 + sketch.state_bytes / _CACHE_BYTES)
    return adding + 8 * tables / _CACHE_BYTES


def _smallest_sketch(
    kernels: Sequence[Kernel], k: Sequence[int], order: int, bits: int, tolerance: float
) -> MomentSketch | None:
    """Fewest cells (in proportion to the axes' inverse bandwidths) that meet the tolerance."""

    def sketch(density: float) -> MomentSketch:
        # Rounded up past the division's rounding, so that a cell is at most two bandwidths wide.
        axes = (
            cells_for(kernel, each, OUTWARD * density / kernel.bandwidth)
            for kernel, each in zip(kernels, k, strict=True)
        )
        return MomentSketch(tuple(axes), order, bits)

    def fits(density: float) -> bool:
        return truncation_error(kernels, sketch(density).axes, order, bits) <= tolerance

    low, high = 0.5, 0.5
    while not fits(high):
        low, high = high, 2 * high
        following = sketch(high)
        cuts = max(len(axis.cuts) for axis in following.axes)
        if following.state_bytes > 2 ** len(kernels) * _LARGEST_STATE or cuts > _MOST_CUTS:
            return None
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    best = sketch(high)
    return best if best.state_bytes <= _LARGEST_STATE else None


@dataclass(frozen=True)
class DensityStatistic:
    """A kernel density resolved to integers: what workers count and contract."""

    domain: Domain
    kernels: tuple[Kernel, ...]
    coordinates: Coordinates
    sketch: MomentSketch
    n: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The axes' columns."""
        return self.domain.names

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
        return OUTWARD * self._row_error * self._rows(norm)

    def _rows(self, norm: int) -> float:
        """The norm of the row sums ``|T_j|_1``, which factors over axes."""
        axes = (self.coordinates.row_sums(axis) for axis in range(len(self.kernels)))
        return OUTWARD * math.prod(float((rows**norm).sum() ** (1 / norm)) for rows in axes)

    @property
    def position_error(self) -> float:
        """Bound on the change of F by rounding positions: accuracy only, never privacy."""
        peaks = math.prod(kernel.peak for kernel in self.kernels)
        shift = 8 * UNIT_ROUNDOFF
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
    def state_bytes(self) -> int:
        """Memory of one state."""
        return self.sketch.state_bytes

    def empty(self) -> Int64Array:
        """The state of no records."""
        return self.sketch.empty()

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        self.sketch.add(state, self.domain.bounded(records))

    def finish(self, state: Int64Array, slab: Slab) -> FloatArray:
        """Coordinates of one slab, in unit-cube units."""
        tables = [
            mapped_table(
                chebyshev_table(kernel, self.coordinates.lattice.k[axis], cells, self.sketch.order),
                self.coordinates.matrix(axis),
            )
            for axis, (kernel, cells) in enumerate(zip(self.kernels, self.sketch.axes, strict=True))
        ]
        tables[0] = tables[0][:, slab.start : slab.stop]
        return contract(self.sketch, state, tables) / self.n
