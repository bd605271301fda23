"""Choose k, h, noise and rank by the smallest predicted error, without reading a record.

For kernels that are products over axes, the errors of the noise, of a typical and of the worst
database are predicted on grids, in unit-cube units. For other kernels they are predicted from the
Gram matrix of the lattice, for expansions ``sum_i alpha_i K(d_i, .)`` with ``sum |alpha_i|
<= 1`` in units of C M: the worst database is as bad as the ball that the certificate speaks of, a
typical one has 64 clusters of random signs at random positions.

The predicted error is the mean sup of the noise with the approximation error, either of the worst
database ("certified") or of a typical one: a sample of the public reference density that the spec
names; without one some of the records in one place, and the others in up to a thousand equal
clusters narrower than the kernel at uniformly random positions and a smooth density that varies by
its size over a fifth of an axis.

All of it is in closed form: nothing is simulated. Bins are chosen by their noise and the worst
database alone, before their matrices are made: beside what a crowd errs by, the rest of a typical
database hardly tells bins apart.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, MOST_INTERPOLATED
from dbern.bernstein.kernels import Kernel
from dbern.certify.balls import GramBall, Released
from dbern.data.resolution import Multiples
from dbern.errors import SpecError
from dbern.measure.measurement import Measurement
from dbern.measure.moments import cells_for
from dbern.planning.asked import FINER, USUAL, Questions, mean_width
from dbern.planning.predicted import (
    CLUSTERS,
    Reference,
    fit,
    half_rows,
    largest_noise,
    largest_of_grid,
    reference_error,
    typical_error,
    worst_error,
)
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import NoiseFamily
from dbern.reconstruct import STRATEGIES
from dbern.reconstruct.base import LatticeStrategy, Strategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy, axis_bins
from dbern.reconstruct.fitted_values import lattice_miss
from dbern.reconstruct.gram import CubeKernel, GramStrategy, LatticeSpectrum, lattice_spectrum
from dbern.reconstruct.layouts import Lattice
from dbern.reconstruct.spectral import AxisSpectrum, SpectralStrategy, axis_spectrum
from dbern.types import FloatArray

# --- What is known before choosing, and one candidate with its predicted errors

_KINKED_RESOLUTIONS = (16.0, 24.0)  # besides: kinks are approximated slowly
_LARGEST_K = 1000
_LARGEST_KINKED_K = 500  # of these: matrices beyond take seconds
_POINT_MASS = 0.12  # of the records, taken to be in one place: promises grow with what that misses
_POINT_MASS_OF_BINS = {1: 0.18, 2: 0.15}  # by axes: the fewer, the less noise finer cells cost
_EXPECTED_POINT_MASS = 0.07
_LEAST_POINT_MASS = 0.01  # where a public density says where records are, or signs are random
_FEW_AXES = 3  # with more, products over axes are large: fewer of them are tried
_COARSEST = 0.8  # lattice steps a deviation
_COARSEST_TRIED = 2.0 / 1.25**5  # of many axes
_EXACTLY = 1e-9  # of a width: what is written as the least is taken, however it is rounded
_MOST_FACTORS = 20_000  # beyond any bandwidth that a spec takes
_LEAST_STEPS = 2.0  # of those on the finest lattice: with fewer, most of a bump is missed


@dataclass(frozen=True)
class Candidate:
    """One way to release, and its predicted errors in unit-cube units."""

    strategy: Strategy
    h: tuple[int, ...]
    noise: float
    approximation: float
    worst: float
    certified: bool
    point_mass: float = _POINT_MASS
    missed: float = 0.0  # of the worst, whatever the bins: by the lattice
    widths: Callable[[float], dict[str, float]] | None = None  # of what else is asked

    @property
    def levels(self) -> bool:
        """Whether it is of bins of two levels."""
        bins = self.strategy.bins if isinstance(self.strategy, BinnedStrategy) else ()
        return any(axis.levels is not None for axis in bins)

    @property
    def error(self) -> float:
        """Predicted sup error; where more is asked, the mean of it all."""
        own = self.sup_error
        return own if self.widths is None else mean_width(self.widths(own))

    @property
    def sup_error(self) -> float:
        """Predicted sup error of the function.

        Certified, the worst database adds its error to that of the noise. A typical one's has
        nothing to do with the noise: squares add. Real records crowd: where none says where they
        are, some are taken to be in one place, which errs as the worst database does, but for what
        no choice of bins changes. To choose, more are taken to be there than are expected: bands
        about the data at hand are as wide as records might miss inside the cells they are in, and a
        little more noise makes them much narrower.
        """
        if self.certified:
            return self.noise + self.worst
        crowded = self.point_mass * max(0.0, self.worst - self.missed)
        return math.hypot(self.noise, self.approximation, crowded)

    @property
    def figures(self) -> tuple[float, float, float]:
        """Its noise, its expected error, and what it promises any database."""
        return self.noise, self.expected, self.promise

    @property
    def promise(self) -> float:
        """Predicted error for any database."""
        return self.noise + self.worst

    @property
    def expected(self) -> float:
        """Predicted sup error of typical data."""
        return replace(self, point_mass=min(self.point_mass, _EXPECTED_POINT_MASS)).sup_error


@dataclass(frozen=True)
class Problem:
    """Public facts that the choice starts from; `k` and `h` where the spec gives them.

    `noise_ratio` is the scale of the noise for sensitivity one; where that is of any one value, it
    meets the largest move of one times the root of the number of values. `levels`: bins of two
    levels may be released.
    """

    measurement: Measurement
    n: int
    family: NoiseFamily
    noise_ratio: float
    k: tuple[int, ...] | None
    h: tuple[int, ...] | None
    certified: bool
    reference: Reference | None
    largest_lattice: int
    questions: Questions | None = None
    levels: bool = False

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of the measurement."""
        return self.measurement.kernels

    def point_mass(self, kind: str) -> float:
        """Return the share of the records in one place, by what is released."""
        if self.reference is not None:
            return _LEAST_POINT_MASS
        if kind != "binned" or self.kinked:  # kinks are approximated slowly: finer cells gain less
            return _POINT_MASS
        return _POINT_MASS_OF_BINS.get(len(self.kernels), _POINT_MASS)

    @property
    def kinked(self) -> bool:
        """Whether any kernel has a kink."""
        return any(kernel.kinks for kernel in self.kernels)

    @property
    def narrow(self) -> bool:
        """Whether no polynomial is fine enough for a kernel, where k and the order are open."""
        if self.k or self.h or self.many_axes:
            return False
        steps, most = _FINE_RESOLUTIONS[-1], _LARGEST_K
        if self.kinked:
            steps, most = _KINKED_RESOLUTIONS[0], _LARGEST_KINKED_K
        return any(steps / kernel.deviation > most for kernel in self.kernels)

    def lattices(self, resolutions: Sequence[float], *, counted: bool = True) -> list[Lattice]:
        """Return the lattices to try: the given one, or some steps to a deviation on every axis.

        Unless their values are `counted`, kinks limit those of two steps and more alone.
        """
        if self.k is not None:
            return [Lattice(self.k)]
        needed = max(_LEAST_STEPS / kernel.deviation for kernel in self.kernels)
        if needed > _LARGEST_K * (1 + _EXACTLY):
            raise self.too_narrow(f"k = {math.ceil(needed)}", _LARGEST_K, steps=True)
        each = [self._resolved(steps) for steps in resolutions]
        if self.kinked:
            finer = map(self._resolved, _KINKED_RESOLUTIONS)
            each += [k for k in finer if max(k) <= _LARGEST_KINKED_K]
        lattices = [Lattice(k) for k in dict.fromkeys(each)]
        fitting = [one for one in lattices if self.cells(one) <= self.largest_lattice]
        steps, size = resolutions[0], self.cells if counted else lambda lattice: lattice.size
        # Cells that kinks make necessary are the limit, or points where there are many axes.
        while (self.kinked or self.many_axes) and not fitting:
            steps /= 1.25
            lattices = [Lattice(self._resolved(steps))]
            fitting = [one for one in lattices if size(one) <= self.largest_lattice]
            if self.many_axes and not self.kinked and steps < _COARSEST and not fitting:
                least = f"{lattices[0].size} lattice points"
                raise self.too_narrow(least, self.largest_lattice)
        return fitting or lattices[:1]

    @property
    def many_axes(self) -> bool:
        """Whether few candidates must do, because their size is the limit."""
        return len(self.kernels) > _FEW_AXES

    def too_narrow(self, least: str, most: int, *, steps: bool = False) -> SpecError:
        """Make the error for kernels that take more points or steps than are chosen from."""
        factors = 1.001 ** np.arange(_MOST_FACTORS)
        fits = bisect_left(
            factors, True, hi=_MOST_FACTORS - 1, key=lambda one: self._wider(one)._fits
        )
        axes, domain = len(self.kernels), self.measurement.domain.axes
        pairs = zip(self._wider(factors[fits]).kernels, domain, strict=True)
        widths = ", ".join(_rounded_up(one.bandwidth * axis.width) for one, axis in pairs)
        wider = f"at least [{widths}]" if self.measurement.oblique is None else "a larger one"
        others = f"{', fewer axes,' * (axes > 1)} or k in [mechanism]"
        if steps:  # fewer axes are of no help, nor is a k that is larger
            others = f", or k = {most} in [mechanism], which misses most of a narrow peak"
        return SpecError(
            "target.bandwidth (of machines target.length_scale): too narrow for "
            f"{axes} ax{'e' if axes > 1 else 'i'}s: at least {least}, more than the {most} that "
            f"are chosen from. Write {wider}{others}"
        )

    def _wider(self, factor: float) -> Problem:
        """Return the same problem of wider kernels, of which a lattice resolves each."""
        least = _LEAST_STEPS / _LARGEST_K
        own = ((one, max(factor, least / one.deviation)) for one in self.kernels)
        kernels = tuple(replace(one, bandwidth=one.bandwidth * times) for one, times in own)
        return _WiderProblem(**vars(self), wider_kernels=kernels)

    @property
    def _fits(self) -> bool:
        bins = min(grid.size for grid in _grids(self)) if self.measurement.binned else 1
        few = self.kinked or not self.many_axes
        points = 1 if few else Lattice(self._resolved(_COARSEST_TRIED)).size
        return max(bins, points) <= self.largest_lattice

    def _resolved(self, steps: float) -> tuple[int, ...]:
        most = _LARGEST_K
        return tuple(min(most, max(1, math.ceil(steps / g.deviation))) for g in self.kernels)

    def cells(self, lattice: Lattice) -> int:
        """Lattice points, or the cells that kinks make necessary and the moments they hold."""
        axes = (cells_for(*axis, 0.0) for axis in zip(self.kernels, lattice.k, strict=True))
        moments = 1 << (len(self.kernels) - 1)
        return max(lattice.size, moments * math.prod(cells.count for cells in axes))

    def admits(self, strategy: BinnedStrategy) -> bool:
        """Return whether the noise is for such bins."""
        if self._values(strategy) > self.family.max_values:
            return False
        return not self.family.balanced or self.measurement.sensitivity(strategy, 1).balanced

    def orders(self, usual: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the given order, or the usual ones on every axis."""
        axes = self.measurement.domain.dimensions
        return [self.h] if self.h is not None else [(h,) * axes for h in usual]

    def candidate(self, strategy: Strategy, h: tuple[int, ...]) -> Candidate:
        """Predict the errors of a design."""
        worst = worst_error(self.kernels, strategy, h)
        typical = worst if self.certified else self.bias(strategy, h)
        noise, given = self.noise(strategy, h), self._given(strategy, 0.0)
        return Candidate(strategy, h, noise, typical, worst, *given)

    def noise(self, strategy: Strategy, h: tuple[int, ...]) -> float:
        """Predict the mean sup of the noise."""
        axes = zip(strategy.lattice.k, h, strategy.axis_maps, strict=True)
        return largest_noise(self._noise_of(strategy), [half_rows(*axis) for axis in axes])

    def _values(self, strategy: Strategy) -> int:
        return self.measurement.outputs * strategy.layout.size

    def estimate(
        self, strategy: BinnedStrategy, k: Sequence[int], h: tuple[int, ...], missed: float
    ) -> Candidate:
        """Predict the errors of bins to be made, but for that of a typical database.

        Fitted to the lattice of `k`, of all 0 to the kernel itself.
        """
        axes = zip(self.kernels, k, h, strategy.bins, strict=True)
        fits = [fit(kernel, each, one, own.cells, own.degree) for kernel, each, one, own in axes]
        pairs = zip(strategy.bins, fits, strict=True)
        rows = [axis.on_released(fitted.rows) for axis, fitted in pairs]
        noise = largest_noise(self._noise_of(strategy), rows)
        grown, plain = (
            math.prod(one.bump + one.error for one in fits),
            math.prod(one.bump for one in fits),
        )
        return Candidate(strategy, h, noise, 0.0, grown - plain, *self._given(strategy, missed))

    def made(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the matrices of its bins, which estimates do without."""
        strategy = candidate.strategy
        if not isinstance(strategy, BinnedStrategy) or strategy.bins[0].packed:
            return candidate
        axes = zip(self.kernels, strategy.lattice.k, strategy.bins, candidate.h, strict=True)
        bins = tuple(
            axis_bins(kernel, k, axis.cells, axis.degree, h).in_levels(axis.times, axis.parts)
            for kernel, k, axis, h in axes
        )
        return replace(candidate, strategy=BinnedStrategy(strategy.lattice, bins))

    def _given(self, strategy: Strategy, missed: float) -> tuple[Any, ...]:
        asked = None if self.questions is None else self.widths(strategy, self.questions)
        return self.certified, self.point_mass(strategy.kind), missed, asked

    def widths(self, strategy: Any, questions: Questions) -> Callable[[float], dict[str, float]]:
        """Return the predicted widths of questions of bins, by the density's error."""
        exact = [
            axis is not None and axis.bins(own.cells, own.degree) is not None
            for axis, own in zip(self.multiples, strategy.bins, strict=True)
        ]
        return partial(questions.widths, strategy.bins, self._noise_of(strategy), exact=exact)

    @property
    def multiples(self) -> tuple[Multiples | None, ...]:
        """Multiples that rows are rounded to, by axis."""
        return tuple(axis.multiples for axis in self.measurement.domain.axes)

    def _noise_of(self, strategy: Strategy) -> NoiseCovariance:
        return self.family.covariance(self._values(strategy)).scaled(self._scale(strategy))

    def _scale(self, strategy: Strategy) -> float:
        return self.moved(strategy) / self.n * self.noise_ratio

    def moved(self, strategy: Strategy) -> float:
        """Return n times the sensitivity that the noise's scale is in proportion to."""
        if self.family.norm == math.inf:
            return self.measurement.function_sensitivity * math.sqrt(self._values(strategy))
        return self.measurement.sensitivity(strategy, int(self.family.norm)).value

    def lattice_error(self, lattice: Lattice, h: tuple[int, ...]) -> float:
        """Return the error of the lattice alone, as the objective counts it."""
        plain = LatticeStrategy(lattice)
        worst = worst_error(self.kernels, plain, h)
        return worst if self.certified else self.bias(plain, h) + self.point_mass("") * worst

    def fitted_error(self, lattice: Lattice, h: tuple[int, ...]) -> float:
        """Return the worst database's error where lattice values are fitted, as those of bins."""
        if self.kinked:
            return worst_error(self.kernels, LatticeStrategy(lattice), h)
        axes = zip(self.kernels, lattice.k, h, strict=True)
        grown = math.prod(axis[0].peak + lattice_miss(*axis) for axis in axes)
        return grown - math.prod(kernel.peak for kernel in self.kernels)

    def bias(self, strategy: Strategy, h: tuple[int, ...]) -> float:
        """Return the approximation error of the typical database."""
        rough, smooth = typical_error(self.kernels, strategy, h)
        if self.reference is None:
            return math.sqrt(rough / min(CLUSTERS, self.n) + smooth)
        known = reference_error(self.kernels, strategy, h, self.reference)
        return known + math.sqrt(rough / self.n)


@dataclass(frozen=True)
class _WiderProblem(Problem):
    """The same problem of wider kernels, which says how wide they must be."""

    wider_kernels: tuple[Kernel, ...] = ()

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The wider kernels."""
        return self.wider_kernels


def _rounded_up(width: float) -> str:
    digit = 10.0 ** (math.floor(math.log10(width)) - 2)
    return f"{math.ceil(width / digit * (1 - _EXACTLY)) * digit:.3g}"


# --- Candidates for functions that are known by a class alone

_STATED_K = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # where no kernel says how fine
_STATED_ORDERS = (1, 2, 4, 8)


def _stated_candidates(problem: Problem) -> Iterator[Candidate]:
    """Lattice values of a function of which a class is known: its worst member is the typical."""
    axes, best = problem.measurement.domain.dimensions, math.inf
    for k in [problem.k] if problem.k is not None else [(k,) * axes for k in _STATED_K]:
        strategy = LatticeStrategy(Lattice(k))
        if best < math.inf and strategy.layout.size > problem.largest_lattice:
            break
        found = []
        for h in problem.orders(_STATED_ORDERS):
            error = problem.measurement.approximation.error(k, h, (None,) * axes)
            noise = problem.noise(strategy, h)
            found.append(Candidate(strategy, h, noise, error, error, problem.certified))
        yield from found
        if min(candidate.noise for candidate in found) > best:
            break  # noise grows with k
        best = min(best, *(candidate.error for candidate in found))


# --- Candidates for kernels that are products over axes

_PLAIN_RESOLUTIONS = (0.8, 1.2, 1.6, 2.0, 3.0, 4.0)  # lattice steps a deviation
_PLAIN_ORDERS = (1, 2, 4, 8, 16, 24)
_FINE_RESOLUTIONS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
USUAL_ORDER = 48
"""Order of the polynomials that are made of bins."""

_FINE_ORDERS = (8, USUAL_ORDER)
_THRESHOLDS = tuple(10.0 ** (-0.5 * step) for step in range(1, 14))
_GAUSSIAN_THRESHOLDS = 6  # orthonormal coordinates divide rounding errors by mu^{1/2}
_NEGLIGIBLE = 0.1  # of the noise: a finer lattice than that needs is work for nothing
BIN_RESOLUTIONS = {  # cells a deviation, by degree
    1: (2.0, 3.0, 4.0),
    2: (0.4, 0.55, 0.65, 0.75, 0.85, 1.0, 1.15, 1.3, 1.5, 1.7, 1.95, 2.2, 2.6, 3.0, 4.0),
    3: (0.75, 0.85, 1.0, 1.1, 1.25, 1.35, 1.5, 1.75, 2.0),
    5: (1.25, 1.5, 2.0),
    7: (1.25, 1.5, 1.75, 2.0, 2.5),
}
_LEVELS = (  # degree, wide cells a deviation, narrow cells a wide one, parts of a record
    *((2, 1.25, 4, 12), (2, 1.25, 8, 8), (2, 1.25, 8, 12), (2, 1.25, 16, 8), (2, 1.25, 16, 12)),
    *((3, 1.25, 4, 20), (3, 1.25, 8, 12), (3, 1.25, 8, 20)),
)
_NEAR = 1.3  # times the least estimate without it: where a public density is looked at
_MOST_TERMS = 512  # that a record adds to: more of them is slower than a release should be
_OF_THREE_AXES = {5: (1.75,)}  # besides: degree 7 adds a record to 512 bins, this one to 216
_WORTH = 0.03  # of the error: what is gained by a higher degree, or it is not taken
_ALIKE, _EXPECTED_ALIKE = 0.02, 0.05  # of the errors: so near bins differ by their promise
_WIDER = 0.15  # of errors and of noise: what narrower shares and quantiles may cost
_MOST_CELLS, _MOST_NARROW = 2000, 512  # of one level, and of two
_MOST_STEPS = 2000  # of an axis: more takes more memory than it gains
_FEW_ORDERS, _FEW_RESOLUTIONS = (2, 8), 3


def _plain_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of the lattice values themselves: noise grows with k."""
    best, few = math.inf, problem.many_axes
    orders = problem.orders(_FEW_ORDERS if few else _PLAIN_ORDERS)
    lattices = problem.lattices(_PLAIN_RESOLUTIONS[: _FEW_RESOLUTIONS if few else None])
    for lattice in lattices:
        found = [problem.candidate(LatticeStrategy(lattice), h) for h in orders]
        yield from found
        best = min(best, *(candidate.error for candidate in found))
        if min(candidate.noise for candidate in found) > best:
            break  # finer lattices are noisier still


def _spectral_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of spectral coordinates: noise does not grow with k, so one fine lattice will do.

    Ranks follow eigenvalue thresholds, so one number covers axes of different bandwidths.
    """
    if not problem.measurement.spectral:
        return
    orders = problem.orders(_FINE_ORDERS)
    lattices = problem.lattices(_FINE_RESOLUTIONS)
    for lattice in lattices:
        weighting = problem.family.eigenvalue_exponent
        full = _spectra(problem.kernels, lattice.k, weighting)
        middle = problem.noise(_cut(lattice, full, _THRESHOLDS[6]), orders[-1])
        if problem.lattice_error(lattice, orders[-1]) <= _NEGLIGIBLE * middle:
            break
    seen = set()
    for threshold in _THRESHOLDS[: _GAUSSIAN_THRESHOLDS if problem.family.norm == 2 else None]:
        strategy = _cut(lattice, full, threshold)
        if strategy.layout.shape not in seen:
            seen.add(strategy.layout.shape)
            yield from (problem.candidate(strategy, h) for h in orders)


def _binned_candidates(problem: Problem) -> Iterator[Candidate]:
    """Releases of bins: the noise of one bin is that of a count, whatever the kernel.

    Nothing is shrunk: nearly dependent bins at the ends of the domain are damped. Higher degrees
    cost time: they are given where they gain `_WORTH`.
    """
    if not problem.measurement.binned:
        return
    fitting = _fitting_bins(problem)
    lattice, order, missed = _function_of_bins(problem, fitting)
    designs = [(grid, _planned(grid, lattice)) for grid in fitting]
    estimates = {
        grid: problem.estimate(bins, lattice.k, order, missed)
        for grid, bins in designs
        if problem.admits(bins)
    }
    if problem.reference is not None:
        estimates = _with_bias(problem, estimates)
    yield from (candidate for candidate in estimates.values() if candidate.levels)
    least = math.inf
    single = {grid: candidate for grid, candidate in estimates.items() if not candidate.levels}
    for degree in BIN_RESOLUTIONS:
        alike = [candidate for grid, candidate in single.items() if grid.degree == degree]
        best = min((candidate.error for candidate in alike), default=math.inf)
        if (1 + _WORTH) * best <= least:
            yield from alike
            least = best


def _function_of_bins(
    problem: Problem, fitting: Sequence[_Grid]
) -> tuple[Lattice, tuple[int, ...], float]:
    """Find the lattice of the bins' function, its order, and what it misses whatever the bins.

    The coarsest that misses a tenth of the noise, or the finest. Where polynomials of no degree
    resolve a kernel that is narrow, the function is linear between lattice values.
    """
    order = problem.orders(_FINE_ORDERS)[-1]
    lattices = problem.lattices(_FINE_RESOLUTIONS, counted=False)
    single = [grid for grid in fitting if grid.levels == (1, 1)]
    usual = min(single, key=lambda each: (each.degree != 3, abs(each.resolution - 1.5)))
    itself = (0,) * len(order)
    noise = problem.estimate(_planned(usual, lattices[-1]), itself, order, 0.0).noise
    allowed = _NEGLIGIBLE * noise / (1.0 if problem.certified else problem.point_mass("binned"))

    def fine(lattice: Lattice) -> bool:
        return problem.fitted_error(lattice, order) <= allowed

    if problem.narrow and not fine(lattices[-1]):
        return _interpolated_lattice(problem, allowed), (INTERPOLATED,) * len(order), 0.0
    if max(lattices[-1].k) == _LARGEST_K and not fine(lattices[-1]):
        lattice = lattices[-1]  # none of them is
    else:
        lattice = lattices[bisect_left(lattices, True, hi=len(lattices) - 1, key=fine)]
    # Kinks are missed by bins, too, and by more.
    return lattice, order, 0.0 if problem.kinked else problem.fitted_error(lattice, order)


def _interpolated_lattice(problem: Problem, allowed: float) -> Lattice:
    """Return steps between which lines miss at most so much of the kernels, or the finest.

    Of each axis they miss an equal share. Steps are hundredths of an axis, or parts of them: the
    kinks of rows that are rounded to hundredths are at lattice values.
    """
    kernels = problem.kernels
    peaks = math.prod(kernel.peak for kernel in kernels)
    most = min(_MOST_STEPS, math.floor(MOST_INTERPOLATED ** (1 / len(kernels))) - 1)
    steps = []
    for kernel in kernels:
        missed = allowed / peaks * kernel.peak / len(kernels)
        needed = math.sqrt(kernel.curvature / (8 * missed))
        needed = max(needed, kernel.slope / (2 * missed) if kernel.jumps else 0.0)
        needed = max(needed, _LEAST_STEPS / kernel.deviation)
        steps.append(min(most, 100 * math.ceil(needed / 100)))
    return Lattice(tuple(steps))


def _with_bias(problem: Problem, estimates: dict[_Grid, Candidate]) -> dict[_Grid, Candidate]:
    """Add what bins miss of the public density that a spec names: it varies as no prior says."""
    among = _NEAR * min((candidate.error for candidate in estimates.values()), default=math.inf)
    near = {
        grid: problem.made(candidate)
        for grid, candidate in estimates.items()
        if candidate.error <= among
    }
    return {
        grid: replace(candidate, approximation=problem.bias(candidate.strategy, candidate.h))
        for grid, candidate in near.items()
    }


@dataclass(frozen=True)
class _Grid:
    degree: int
    resolution: float
    cells: tuple[int, ...]
    levels: tuple[int, int] = (1, 1)

    @property
    def size(self) -> int:
        return math.prod(cells + self.degree for cells in self.cells)


def _fitting_bins(problem: Problem) -> list[_Grid]:
    """Grids whose bins are few enough, by degree and cells a deviation."""
    grids = _grids(problem)
    fitting = [grid for grid in grids if grid.size <= problem.largest_lattice]
    if not fitting:
        least = f"{min(grid.size for grid in grids)} bins"
        raise problem.too_narrow(least, problem.largest_lattice)
    return sorted(fitting, key=lambda grid: (grid.degree, grid.resolution))


def _grids(problem: Problem) -> list[_Grid]:
    kernels, grids = problem.kernels, {}
    for degree, usual in BIN_RESOLUTIONS.items():
        resolutions = usual + (FINER.get(degree, ()) if problem.questions else ())
        if len(kernels) == _FEW_AXES:
            resolutions += _OF_THREE_AXES.get(degree, ())
        if degree == 2 or (degree + 1) ** len(kernels) <= _MOST_TERMS:
            for each in reversed(resolutions):  # of those with the same cells the coarsest
                grid = _Grid(degree, each, tuple(_cells(kernels, each)))
                grids[degree, grid.cells] = grid
    exact = _grids_of_multiples(problem) if problem.questions else ()
    single = grids | {(grid.degree, grid.cells): grid for grid in exact}
    return [*single.values(), *(_grids_of_levels(problem) if problem.levels else ())]


def _grids_of_levels(problem: Problem) -> Iterator[_Grid]:
    """Yield bins of two levels of an axis, the wide ones as for the function alone, or hardly."""
    (kernel,) = problem.kernels
    for degree, resolution, *levels in _LEVELS:
        times, parts = levels
        cells = times * math.ceil(resolution / kernel.deviation)
        if cells <= _MOST_NARROW:
            yield _Grid(degree, resolution, (cells,), (times, parts))


def _grids_of_multiples(problem: Problem) -> Iterator[_Grid]:
    """Yield bins of degree 1 with a node at each multiple, of some axes or of all that have them.

    Shares of rows that are rounded to these have no edges.
    """
    choices = [(0,) if axis is None else (axis.count, 0) for axis in problem.multiples]
    for nodes in itertools.product(*choices):
        for resolution in (*BIN_RESOLUTIONS[1], *FINER[1]) if any(nodes) else ():
            usual = _cells(problem.kernels, resolution)
            cells = tuple(node or cell for node, cell in zip(nodes, usual, strict=True))
            if max(cells) <= _MOST_CELLS:
                yield _Grid(1, resolution, cells)


def _planned(grid: _Grid, lattice: Lattice) -> BinnedStrategy:
    """Bins without matrices, which neither values nor sensitivities depend on."""
    times, parts = grid.levels
    bins = (AxisBins(cells, grid.degree, b"", times=times, parts=parts) for cells in grid.cells)
    return BinnedStrategy(lattice, tuple(bins))


def _cells(kernels: Sequence[Kernel], resolution: float) -> list[int]:
    return [min(_MOST_CELLS, math.ceil(resolution / kernel.deviation)) for kernel in kernels]


def _spectra(kernels: Sequence[Kernel], k: Sequence[int], weighting: float) -> list[AxisSpectrum]:
    return [
        axis_spectrum(kernel, each, each + 1, weighting)
        for kernel, each in zip(kernels, k, strict=True)
    ]


def _cut(lattice: Lattice, full: Sequence[AxisSpectrum], threshold: float) -> SpectralStrategy:
    ranks = [max(1, sum(level > threshold * one.levels[0] for level in one.levels)) for one in full]
    return SpectralStrategy(
        lattice, tuple(one.cut(rank) for one, rank in zip(full, ranks, strict=True))
    )


CANDIDATES = {"binned": _binned_candidates, "spectral": _spectral_candidates, "": _plain_candidates}
CANDIDATES |= {one.kind: one.candidates for one in STRATEGIES if one.kind not in CANDIDATES}
"""By what is released, in the order in which they are tried: what wins most often goes first."""


# --- Candidates for kernels that are not products over axes

_RESOLUTIONS = {1: (4, 8, 16, 32, 64), 2: (3, 5, 8, 12, 18, 26), 3: (2, 3, 5, 8)}
_ORDERS = (1, 2, 4, 8, 16)
_SPECTRAL = {1: (32, 96), 2: (12, 26), 3: (5, 9)}
_GRAM_ORDERS = (8, 32)
_GRAM_THRESHOLDS = tuple(10.0**-step for step in range(1, 9))
_GRID = {1: 129, 2: 19, 3: 8}
_SIGNED_CLUSTERS = 64


def _gram_candidates(family: str, problem: Problem, cube: CubeKernel) -> Iterator[Candidate]:
    """Releases of lattice values (""), or of spectral coordinates; bins have none."""
    if family == "":
        for k in _resolutions(problem, _RESOLUTIONS[cube.dimensions]):
            for h in problem.orders(_ORDERS):
                yield _candidate(problem, cube, LatticeStrategy(Lattice(k)), h)
    elif family == "spectral":
        yield from _spectral(problem, cube)


def _spectral(problem: Problem, cube: CubeKernel) -> Iterator[Candidate]:
    weighting = problem.family.eigenvalue_exponent
    for k in _resolutions(problem, _SPECTRAL[cube.dimensions]):
        lattice, seen = Lattice(k), set()
        full = lattice_spectrum(cube, lattice, lattice.size, weighting)
        for threshold in _GRAM_THRESHOLDS:
            rank = max(1, sum(level > threshold * full.levels[0] for level in full.levels))
            if rank not in seen:
                seen.add(rank)
                strategy = GramStrategy(lattice, full.cut(rank))
                for h in problem.orders(_GRAM_ORDERS):
                    yield _candidate(problem, cube, strategy, h)


def _resolutions(problem: Problem, usual: tuple[int, ...]) -> list[tuple[int, ...]]:
    if problem.k is not None:
        return [problem.k]
    return [(min(k, _LARGEST_K),) * problem.measurement.domain.dimensions for k in usual]


def _candidate(
    problem: Problem, cube: CubeKernel, strategy: Strategy, h: tuple[int, ...]
) -> Candidate:
    """Predict the errors of a design."""
    spectrum = strategy.spectrum if isinstance(strategy, GramStrategy) else None
    noise, farthest, rough = _errors(cube, strategy.lattice.k, h, spectrum)
    deviation = problem.family.covariance(strategy.layout.size).deviation
    noise *= deviation * problem.moved(strategy) / problem.n * problem.noise_ratio
    ball = problem.measurement.approximation
    worst = farthest * (ball.radius if isinstance(ball, GramBall) else 1.0)
    typical = worst if problem.certified else rough / math.sqrt(min(_SIGNED_CLUSTERS, problem.n))
    least = _LEAST_POINT_MASS
    return Candidate(strategy, h, noise, typical, worst, problem.certified, least)


@lru_cache(maxsize=512)
def _errors(
    cube: CubeKernel, k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> tuple[float, float, float]:
    """On a grid: noise of unit deviation, the largest error of a function of norm one, and bumps'.

    Of bumps the mean square over them.
    """
    grid, bumps = _grid(cube)
    released = Released(cube, k, h, spectrum)
    weights = released.weights(grid)
    noise = largest_of_grid(weights.reshape(*[_GRID[cube.dimensions]] * cube.dimensions, -1))
    apart = bumps - weights @ released.features(grid).T
    rough = math.sqrt(float(np.square(apart).mean(axis=1).max()))
    return noise, float(released.errors(grid).max()), rough


@lru_cache(maxsize=4)
def _grid(cube: CubeKernel) -> tuple[FloatArray, FloatArray]:
    """Points off the lattice's, and the corners; and the kernel of any two."""
    axes = cube.dimensions
    t = (1 - np.cos(np.linspace(0, np.pi, _GRID[axes]))) / 2
    grid = np.stack(np.meshgrid(*[t] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    points = cube.points(grid)
    return grid, np.asarray(cube.kernel(points, points))


# --- Every candidate of a strategy


def candidates(family: str, problem: Problem) -> Iterator[Candidate]:
    """Yield releases of lattice values (""), of spectral coordinates or of bins."""
    cube = problem.measurement.cube
    if cube is not None:
        yield from _gram_candidates(family, problem, cube)
    elif family == "" and not problem.kernels:
        yield from _stated_candidates(problem)
    else:
        yield from CANDIDATES[family](problem)


def chosen(families: Iterable[str], problem: Problem) -> Candidate | None:
    """Return the candidate that a plan takes; None where there are none."""
    found = [
        candidate
        for family in sorted(families, key=list(CANDIDATES).index)
        for candidate in candidates(family, problem)
    ]
    return problem.made(preferred(found, problem)) if found else None


def preferred(found: Sequence[Candidate], problem: Problem) -> Candidate:
    """Return the candidate of least predicted error, or of bins that err alike the surest.

    Where nothing is asked, shares and quantiles are one more weight for bins of two levels: of
    those whose noise and expected error are at most `_WIDER` above those that typical data have
    with the best of one level, and whose promise is above that of what is taken else by as much,
    and of that itself, the one with the least mean of error and widths.

    Of bins whose errors are within `_ALIKE` of the least, and expected ones within
    `_EXPECTED_ALIKE`, those are taken that promise any database most, where they are all that is
    released. Beside other numbers another promise is read: what these data make bins miss, or what
    a quotient or a product is at a point.
    """
    if problem.levels and not problem.certified and problem.questions is None:
        single = [candidate for candidate in found if not candidate.levels]
        usual = preferred(single, replace(problem, levels=False))
        typical = min(single, key=lambda candidate: candidate.expected)
        limits = (1 + _WIDER) * np.array([typical.noise, typical.expected, usual.promise])
        levels = [candidate for candidate in found if candidate.levels]
        near = [bins for bins in levels if np.less_equal(bins.figures, limits).all()]

        def width(candidate: Candidate) -> float:
            return mean_width(problem.widths(candidate.strategy, USUAL)(candidate.error))

        return min((usual, *near), key=width) if near else usual
    best = min(found, key=lambda candidate: candidate.error)
    shared = problem.measurement.output_fraction != 1
    if shared or problem.questions is not None or best.strategy.kind != "binned":
        return best
    alike = (
        candidate
        for candidate in found
        if candidate.strategy.kind == "binned"
        and candidate.error <= (1 + _ALIKE) * best.error
        and candidate.expected <= (1 + _EXPECTED_ALIKE) * best.expected
    )
    return min(alike, key=lambda candidate: candidate.noise + candidate.worst)
