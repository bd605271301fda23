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
then moves each lattice value by at most ``2 rho / n`` more: ``2 N rho / n`` enters Delta1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.kernels import OUTWARD, Gaussian
from dbern.bernstein.lattice import Lattice, Slab
from dbern.bernstein.moments import (
    UNIT_ROUNDOFF,
    MomentSketch,
    chebyshev_table,
    contract,
    contraction_error,
    truncation_error,
)
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.privacy.sensitivity import Sensitivity

_LARGEST_STATE = 1 << 28
_CACHE_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class KernelDensity:
    """Density of the records over the axes, smoothed by a Gaussian kernel.

    Parameters
    ----------
    bandwidth : sequence of float
        Standard deviation of the kernel per axis, in data units.
    kernel : str
        ``"gaussian"``.

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
                "one standard deviation per axis in data units"
            )
        if self.kernel != "gaussian":
            raise SpecError(
                f'target.kernel: "{self.kernel}" is not available in this version; '
                'write kernel = "gaussian"'
            )

    def get_params(self) -> dict[str, Any]:
        """Constructor parameters by name."""
        return {"bandwidth": self.bandwidth, "kernel": self.kernel}

    def kernels(self, domain: Domain) -> tuple[Gaussian, ...]:
        """Axis kernels in unit-cube units."""
        if len(self.bandwidth) != domain.dimensions:
            raise SpecError(
                f"target.bandwidth: has {len(self.bandwidth)} entries for {domain.dimensions} "
                f"axes; write one for each of {', '.join(domain.names)}"
            )
        widths = (axis.width for axis in domain.axes)
        return tuple(Gaussian(b / width) for b, width in zip(self.bandwidth, widths, strict=True))

    def sensitivity(
        self, domain: Domain, lattice: Lattice, n: int, calibration: str
    ) -> Sensitivity:
        """Bounds for exact kernels under replace-one; see the proof at the top of this module."""
        kernels = self.kernels(domain)
        peak = OUTWARD * math.prod(kernel.peak for kernel in kernels)
        function = Fraction(peak) / n
        printed = lattice.size * function
        if calibration == "paper":
            return Sensitivity(function, printed, f"N S(F) = {lattice.size} x sup K / n")
        sums = [kernel.lattice_sum(k) for kernel, k in zip(kernels, lattice.k, strict=True)]
        tight = 2 * Fraction(OUTWARD * math.prod(sums)) / n
        if printed <= tight:
            return Sensitivity(
                function, printed, f"N S(F) = {lattice.size} x sup K / n, below 2 max_t |K_t|_1 / n"
            )
        factors = " x ".join(f"{value:.6g}" for value in sums)
        return Sensitivity(function, tight, f"2 max_t sum_v K(v/k - t) / n = 2 x {factors} / {n}")

    def statistic(
        self, domain: Domain, lattice: Lattice, n: int, tolerance: float
    ) -> DensityStatistic:
        """The cheapest integer sketch whose kernel error is at most `tolerance`.

        Raises
        ------
        SpecError
            Where no sketch of reasonable size is that accurate.
        """
        kernels = self.kernels(domain)
        bits = min(28, 62 - n.bit_length())
        sketches = (_smallest_sketch(kernels, order, bits, tolerance) for order in range(9))
        found = [sketch for sketch in sketches if sketch is not None]
        if not found:
            raise SpecError(
                f"target.bandwidth: too narrow for exact integer sums over {domain.dimensions} "
                f"axes; write a larger bandwidth (now {list(self.bandwidth)}) or fewer axes"
            )
        best = min(found, key=lambda s: len(s.indices) * (1 + s.state_bytes / _CACHE_BYTES))
        return DensityStatistic(domain, kernels, lattice, best, n)


def _smallest_sketch(
    kernels: Sequence[Gaussian], order: int, bits: int, tolerance: float
) -> MomentSketch | None:
    """Fewest cells (proportional to the axes' inverse bandwidths) that meet the tolerance."""

    def sketch(density: float) -> MomentSketch:
        cells = tuple(max(1, math.ceil(density / kernel.bandwidth)) for kernel in kernels)
        return MomentSketch(cells, order, bits)

    def fits(density: float) -> bool:
        return truncation_error(kernels, sketch(density).cells, order, bits) <= tolerance

    low, high = 0.5, 0.5
    while not fits(high):
        low, high = high, 2 * high
        if sketch(high).state_bytes > 2 ** len(kernels) * _LARGEST_STATE:
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
    kernels: tuple[Gaussian, ...]
    lattice: Lattice
    sketch: MomentSketch
    n: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The axes' columns."""
        return self.domain.names

    @cached_property
    def kernel_error(self) -> float:
        """Bound rho on ``|K~ - K|``."""
        return truncation_error(
            self.kernels, self.sketch.cells, self.sketch.order, self.sketch.bits
        )

    @cached_property
    def float_error(self) -> float:
        """Bound eta on the float error of one lattice value."""
        # One more rounding for the division by n, of a value at most `value_bound`.
        division = 2 * UNIT_ROUNDOFF * self.value_bound
        return OUTWARD * division + contraction_error(
            self.kernels, self.sketch.cells, self.sketch.order, self.n
        )

    @property
    def position_error(self) -> float:
        """Bound on the change of F by rounding positions: accuracy only, never privacy."""
        peaks = math.prod(kernel.peak for kernel in self.kernels)
        shift = 8 * UNIT_ROUNDOFF
        return OUTWARD * shift * sum(peaks * kernel.slope / kernel.peak for kernel in self.kernels)

    @property
    def value_bound(self) -> float:
        """No value exceeds ``sup K + rho``, plus everything floats can add."""
        peak = math.prod(kernel.peak for kernel in self.kernels)
        return OUTWARD * (1.001 * peak + self.kernel_error)

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
        """Lattice values of one slab, in unit-cube units."""
        tables = [
            chebyshev_table(kernel, k, cells, self.sketch.order)
            for kernel, k, cells in zip(
                self.kernels, self.lattice.k, self.sketch.cells, strict=True
            )
        ]
        tables[0] = tables[0][:, slab.start : slab.stop]
        return contract(self.sketch, state, tables) / self.n
