"""What "auto" means: k, h, noise and rank with the smallest predicted error, no record read.

The predicted error is the mean sup of the noise plus the approximation error, either of the worst
database ("certified") or of a typical one. Typical is a sample of the public reference density
that the spec names; without one, 128 equal clusters narrower than the kernel at uniformly random
positions: rough enough that real structure is not smoothed away, far from the worst case, where
all records are one point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.approximation import evaluation_matrix
from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.moments import cells_for
from dbern.bernstein.spectrum import AxisSpectrum, axis_spectrum
from dbern.certificate import noise_sups, spectra_of, synthesis_matrices
from dbern.errors import SpecError
from dbern.privacy.calibration import GaussianNoise, LaplaceNoise

CLUSTERS = 128
_DRAWS = 32
_PLANNING_SAMPLES = 200_000
_PAIRWISE_GAIN = 0.9  # about what the enclosed pairwise maximum saves on one axis
_PLAIN_RESOLUTIONS = (0.8, 1.2, 1.6, 2.0, 3.0, 4.0)  # lattice steps a deviation
_PLAIN_ORDERS = (1, 2, 4, 8, 16, 24)
_SPECTRAL_RESOLUTIONS = (2.0, 3.0, 4.0, 6.0, 8.0)
_KINKED_RESOLUTIONS = (12.0, 16.0, 24.0)  # besides: kinks are approximated slowly
_LARGEST_KINKED_K = 500  # of these: matrices beyond take seconds
_SPECTRAL_ORDERS = (8, 24)
_THRESHOLDS = tuple(10.0 ** (-0.5 * step) for step in range(1, 14))
_GAUSSIAN_THRESHOLDS = 6  # orthonormal coordinates divide rounding errors by mu^{1/2}
_NEGLIGIBLE = 0.1  # of the noise: a finer lattice than that needs is work for nothing
_UNIT_SCALE = 1 << 20


Reference: TypeAlias = Callable[[FloatArray], FloatArray]
"""A public density, up to a factor: points (m, l) of the unit cube to values (m,)."""


@dataclass(frozen=True)
class Candidate:
    """One way to release, and its predicted errors in unit-cube units."""

    coordinates: Coordinates
    h: tuple[int, ...]
    noise: float
    approximation: float

    @property
    def error(self) -> float:
        """The predicted sup error."""
        return self.noise + self.approximation


@dataclass(frozen=True)
class Problem:
    """What is known before choosing; `k` and `h` where the spec gives them.

    `noise_ratio` is the scale of the noise for sensitivity one.
    """

    kernels: tuple[Kernel, ...]
    n: int
    gaussian: bool
    noise_ratio: float
    k: tuple[int, ...] | None
    h: tuple[int, ...] | None
    certified: bool
    reference: Reference | None
    largest_k: int
    largest_lattice: int

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
        while self.kinked and not fitting:  # cells that kinks make necessary are the limit
            steps /= 1.25
            lattices = [Lattice(self._resolved(steps))]
            fitting = [one for one in lattices if self._size(one) <= self.largest_lattice]
        return fitting or lattices[:1]

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
        return [self.h] if self.h is not None else [(h,) * len(self.kernels) for h in usual]

    def candidate(self, coordinates: Coordinates, h: tuple[int, ...]) -> Candidate:
        """Predict the errors of one way to release."""
        if self.gaussian:
            bound = coordinates.bump_bound_l2(self.kernels).value
        else:
            bound = coordinates.bump_bound(self.kernels, quick=True).value
            one = len(self.kernels) == 1 and not self.kinked
            if isinstance(coordinates, SpectralCoordinates) and one:
                bound *= _PAIRWISE_GAIN
        noise = bound / self.n * self.noise_ratio * _unit_noise(coordinates, h, self.gaussian)
        return Candidate(coordinates, h, noise, self.bias(coordinates, h))

    def bias(self, coordinates: Coordinates, h: tuple[int, ...]) -> float:
        """Approximation error of the worst or the typical database."""
        if self.certified:
            return _bump_size(self.kernels, coordinates, h, certified=True)
        typical = _bump_size(self.kernels, coordinates, h, certified=False)
        if self.reference is None:
            return typical / math.sqrt(min(CLUSTERS, self.n))
        smooth = _reference_error(self.kernels, coordinates, h, self.reference)
        return smooth + typical / math.sqrt(self.n)


def plain_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of the lattice values themselves: noise grows with k."""
    best = math.inf
    for lattice in problem.lattices(_PLAIN_RESOLUTIONS):
        found = [
            problem.candidate(PlainCoordinates(lattice), h) for h in problem.orders(_PLAIN_ORDERS)
        ]
        yield from found
        best = min(best, *(candidate.error for candidate in found))
        if problem.kinked and min(candidate.noise for candidate in found) > best:
            break  # finer lattices, of which there are many, are noisier still


def spectral_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of spectral coordinates: noise does not grow with k, so one fine lattice will do.

    Ranks follow eigenvalue thresholds, so one number covers axes of different bandwidths. There
    are none for a kernel that is not positive definite; see `require_positive_definite`.
    """
    if not all(kernel.positive_definite for kernel in problem.kernels):
        return
    orders = problem.orders(_SPECTRAL_ORDERS)
    for lattice in problem.lattices(_SPECTRAL_RESOLUTIONS):
        weighting = 0.5 if problem.gaussian else 0.25
        full = _spectra(problem.kernels, lattice.k, weighting)
        middle = problem.candidate(_cut(lattice, full, _THRESHOLDS[6]), orders[-1])
        plain = problem.bias(PlainCoordinates(lattice), orders[-1])
        if plain <= _NEGLIGIBLE * middle.noise:
            break
    seen = set()
    for threshold in _THRESHOLDS[: _GAUSSIAN_THRESHOLDS if problem.gaussian else None]:
        coordinates = _cut(lattice, full, threshold)
        if coordinates.layout.shape not in seen:
            seen.add(coordinates.layout.shape)
            yield from (problem.candidate(coordinates, h) for h in orders)


def require_positive_definite(kernels: Sequence[Kernel]) -> None:
    """Refuse spectral noise where Gram matrices are no covariances.

    Raises
    ------
    SpecError
        For a kernel that is not positive definite.

    Examples
    --------
    >>> from dbern.bernstein.kernels import kernel_of
    >>> require_positive_definite([kernel_of("triangle", 0.1), kernel_of("laplace", 0.1)])
    """
    for kernel in kernels:
        if not kernel.positive_definite:
            raise SpecError(
                f'target.kernel: "{kernel.name}" is not positive definite, so there is no spectral '
                'noise for it; write kernel = "triangle" or "gaussian", or noise = "auto" in '
                "[mechanism]"
            )


def _spectra(kernels: Sequence[Kernel], k: Sequence[int], weighting: float) -> list[AxisSpectrum]:
    return [
        axis_spectrum(kernel, each, each + 1, weighting)
        for kernel, each in zip(kernels, k, strict=True)
    ]


def _cut(lattice: Lattice, full: Sequence[AxisSpectrum], threshold: float) -> SpectralCoordinates:
    """Keep the eigenvalues above `threshold` times the axis's largest."""
    ranks = [max(1, sum(level > threshold * one.levels[0] for level in one.levels)) for one in full]
    return SpectralCoordinates(
        lattice, tuple(one.cut(rank) for one, rank in zip(full, ranks, strict=True))
    )


def _unit_noise(coordinates: Coordinates, h: tuple[int, ...], gaussian: bool) -> float:
    """Mean sup norm of the noise at scale one, on a coarse grid under a public key."""
    points = {1: 129, 2: 49, 3: 25}[len(h)]
    y = (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    bases = [
        bernstein_basis(y, k) @ matrix
        for k, matrix in zip(coordinates.lattice.k, synthesis_matrices(coordinates, h), strict=True)
    ]
    law = GaussianNoise(_UNIT_SCALE, 0, 1) if gaussian else LaplaceNoise(_UNIT_SCALE, 0, 1)
    draws = max(4, min(_DRAWS, _PLANNING_SAMPLES // coordinates.layout.size))
    return float(noise_sups(bases, law, draws, label="planning").mean()) / _UNIT_SCALE


def _reference_error(
    kernels: Sequence[Kernel],
    coordinates: Coordinates,
    h: tuple[int, ...],
    reference: Reference,
) -> float:
    """Sup error, on a grid, of what is released for the smoothed reference density itself."""
    points = {1: 201, 2: 61, 3: 25}[len(kernels)]
    t = (np.arange(points) + 0.5) / points
    cube = np.stack(np.meshgrid(*[t] * len(kernels), indexing="ij"), axis=-1)
    weights = np.asarray(reference(cube.reshape(-1, len(kernels))), dtype=np.float64)
    smooth = released = (weights / weights.sum()).reshape(cube.shape[:-1])
    for kernel, k, order, spectrum in zip(
        kernels, coordinates.lattice.k, h, spectra_of(coordinates), strict=True
    ):
        lattice = kernel(np.arange(k + 1)[:, None] / k - t)
        evaluated = bernstein_basis(t, k) @ evaluation_matrix(k, order, spectrum) @ lattice
        smooth = np.tensordot(smooth, kernel(t[:, None] - t), axes=(0, 1))
        released = np.tensordot(released, evaluated, axes=(0, 1))
    return float(np.abs(smooth - released).max())


def _bump_size(
    kernels: Sequence[Kernel], coordinates: Coordinates, h: tuple[int, ...], *, certified: bool
) -> float:
    """Sup over y of the bump error: at the worst position, or root mean square over positions.

    For a product of axes the error telescopes; positions are uniform and independent over axes.
    """
    grown = plain = 1.0
    for kernel, k, order, spectrum in zip(
        kernels, coordinates.lattice.k, h, spectra_of(coordinates), strict=True
    ):
        bump, error = _axis_sizes(kernel, k, order, spectrum, certified)
        grown *= bump + error
        plain *= bump
    return grown - plain


@lru_cache(maxsize=1024)
def _axis_sizes(
    kernel: Kernel, k: int, h: int, spectrum: AxisSpectrum | None, certified: bool
) -> tuple[float, float]:
    """Sup over y of a bump and of its error, at the worst or the typical position."""
    points = min(161, max(33, math.ceil(4 / kernel.bandwidth)))
    t = np.linspace(0, 1, points)
    y = t[: points // 2 + 1]  # symmetric under (y, t) -> (1 - y, 1 - t)
    bumps = kernel(y[:, None] - t)
    lattice = kernel(np.arange(k + 1)[:, None] / k - t)
    errors = bumps - bernstein_basis(y, k) @ evaluation_matrix(k, h, spectrum) @ lattice
    if certified:
        return float(bumps.max()), float(np.abs(errors).max())
    bump, error = (np.sqrt(np.square(values).mean(axis=1).max()) for values in (bumps, errors))
    return float(bump), float(error)
