"""What is known before choosing, and one candidate with its predicted errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dbern.bernstein.bins import CLUSTERS
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.maps import BinnedCoordinates
from dbern.bernstein.moments import cells_for
from dbern.choice.prediction import (
    Reference,
    reference_error,
    typical_error,
    unit_noise,
    worst_error,
)
from dbern.components.base import Component
from dbern.errors import SpecError

_PAIRWISE_GAIN = 0.9  # about what the enclosed pairwise maximum saves on one axis
_KINKED_RESOLUTIONS = (16.0, 24.0)  # besides: kinks are approximated slowly
_LARGEST_KINKED_K = 500  # of these: matrices beyond take seconds
_WORST_SHARE = 0.01  # of databases
_FEW_AXES = 3  # with more, products over axes are large: fewer of them are tried
_COARSEST = 0.8  # lattice steps a deviation


@dataclass(frozen=True)
class Candidate:
    """One way to release, and its predicted errors in unit-cube units."""

    coordinates: Coordinates
    h: tuple[int, ...]
    noise: float
    approximation: float
    worst: float
    certified: bool

    @property
    def error(self) -> float:
        """The predicted sup error.

        The worst database adds its error to that of the noise. A typical one's is random and has
        nothing to do with the noise: squares add. One database in a hundred is taken for the worst,
        so that nearly the same typical error is not bought with a certificate many times wider.
        """
        if self.certified:
            return self.noise + self.worst
        return math.hypot(self.noise, self.approximation) + _WORST_SHARE * self.worst


@dataclass(frozen=True)
class Problem:
    """What is known before choosing; `k` and `h` where the spec gives them.

    `noise_ratio` is the scale of the noise for sensitivity one; by `advanced` composition it
    meets the largest move of one value times the root of the number of values.
    """

    component: Component
    n: int
    gaussian: bool
    advanced: bool
    noise_ratio: float
    k: tuple[int, ...] | None
    h: tuple[int, ...] | None
    certified: bool
    reference: Reference | None
    largest_k: int
    largest_lattice: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The component's."""
        return self.component.kernels

    @property
    def kinked(self) -> bool:
        """Whether any kernel has a kink."""
        return any(kernel.kinks for kernel in self.kernels)

    def lattices(self, resolutions: Sequence[float]) -> list[Lattice]:
        """Lattices worth a look: the given one, or some steps to a deviation on every axis."""
        if self.k is not None:
            return [Lattice(self.k)]
        each = [self._resolved(steps) for steps in resolutions]
        if self.kinked:
            finer = map(self._resolved, _KINKED_RESOLUTIONS)
            each += [k for k in finer if max(k) <= _LARGEST_KINKED_K]
        lattices = [Lattice(k) for k in dict.fromkeys(each)]
        fitting = [one for one in lattices if self._size(one) <= self.largest_lattice]
        steps = resolutions[0]
        # Cells that kinks make necessary are the limit, or points where there are many axes.
        while (self.kinked or self.many_axes) and not fitting:
            steps /= 1.25
            lattices = [Lattice(self._resolved(steps))]
            fitting = [one for one in lattices if self._size(one) <= self.largest_lattice]
            if self.many_axes and not self.kinked and steps < _COARSEST and not fitting:
                raise self.too_narrow(f"{lattices[0].size} lattice points")
        return fitting or lattices[:1]

    @property
    def many_axes(self) -> bool:
        """Whether what is tried must be few, and what fits is the limit."""
        return len(self.kernels) > _FEW_AXES

    def too_narrow(self, least: str) -> SpecError:
        """The refusal of what would take more than is chosen from."""
        return SpecError(
            f"target.bandwidth: too narrow for {len(self.kernels)} axes: at least {least}, more "
            f"than the {self.largest_lattice} that are chosen from; write a larger bandwidth, "
            "fewer axes, or k in [mechanism]"
        )

    def _resolved(self, steps: float) -> tuple[int, ...]:
        most = self.largest_k
        return tuple(min(most, max(1, math.ceil(steps / g.deviation))) for g in self.kernels)

    def _size(self, lattice: Lattice) -> int:
        """Lattice points, or the cells that kinks make necessary and the moments they hold."""
        axes = (cells_for(*axis, 0.0) for axis in zip(self.kernels, lattice.k, strict=True))
        moments = 1 << (len(self.kernels) - 1)
        return max(lattice.size, moments * math.prod(cells.count for cells in axes))

    def orders(self, usual: Sequence[int]) -> list[tuple[int, ...]]:
        """The given order, or the usual ones on every axis."""
        axes = self.component.domain.dimensions
        return [self.h] if self.h is not None else [(h,) * axes for h in usual]

    def candidate(self, coordinates: Coordinates, h: tuple[int, ...]) -> Candidate:
        """Predict the errors of one way to release."""
        noise = self.noise(coordinates, h)
        worst = worst_error(self.kernels, coordinates, h)
        typical = worst if self.certified else self.bias(coordinates, h)
        return Candidate(coordinates, h, noise, typical, worst, self.certified)

    def noise(self, coordinates: Coordinates, h: tuple[int, ...]) -> float:
        """Predict the mean sup of the noise."""
        norm = 2 if self.gaussian else 1
        if self.advanced:
            values = self.component.outputs * coordinates.layout.size
            bound = self.component.function_movement * math.sqrt(values)
        else:
            bound = self.component.movement(coordinates, norm, quick=True).value
        one = len(self.kernels) == norm == 1 and not self.kinked
        if isinstance(coordinates, SpectralCoordinates) and one:
            bound *= _PAIRWISE_GAIN
        return bound / self.n * self.noise_ratio * unit_noise(coordinates, h, self.gaussian)

    @property
    def ridge(self) -> float:
        """Variance of the noise of one bin, as each of the axes' share in their product."""
        moved = self.component.movement(BinnedCoordinates(Lattice(()), ()), 1).value
        scale = moved / self.n * self.noise_ratio
        return float((scale if self.gaussian else math.sqrt(2) * scale) ** (2 / len(self.kernels)))

    def lattice_error(self, lattice: Lattice, h: tuple[int, ...]) -> float:
        """What the lattice alone misses, as the objective counts it."""
        plain = PlainCoordinates(lattice)
        worst = worst_error(self.kernels, plain, h)
        return worst if self.certified else self.bias(plain, h) + _WORST_SHARE * worst

    def bias(self, coordinates: Coordinates, h: tuple[int, ...]) -> float:
        """Approximation error of the typical database."""
        rough, smooth = typical_error(self.kernels, coordinates, h)
        if self.reference is None:
            return math.sqrt(rough / min(CLUSTERS, self.n) + smooth)
        known = reference_error(self.kernels, coordinates, h, self.reference)
        return known + math.sqrt(rough / self.n)
