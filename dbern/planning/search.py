"""Search for a design: the public facts that it starts from, and a candidate's predicted errors.

For kernels that are products over axes, the errors of the noise, of a typical and of the worst
database are predicted on grids, in unit-cube units (`dbern.planning.predicted`).

The predicted error is the mean sup of the noise with the approximation error, either of the worst
database ("certified") or of a typical one: a sample of the public reference density that the spec
names; without one some of the records at one point, and the others in up to a thousand equal
clusters narrower than the kernel at uniformly random positions and a smooth density that varies by
its size over a fifth of an axis. All of it is in closed form: nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dbern.bernstein.kernels import Kernel
from dbern.data.resolution import Multiples
from dbern.measure.kernel_sketch import cells_for
from dbern.measure.statistic import Statistic
from dbern.planning.predicted import (
    CLUSTERS,
    BinQuestions,
    Questions,
    Reference,
    fit,
    half_rows,
    largest_noise,
    mean_width,
    reference_error,
    typical_error,
    worst_error,
)
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import NoiseFamily
from dbern.reconstruct.base import Lattice, LatticeStrategy, Strategy
from dbern.reconstruct.bins import BinnedStrategy, axis_bins, lattice_miss

POINT_MASS = 0.12
"""Fraction of the records taken to be at one point: promises grow with what that misses."""
MIN_POINT_MASS = 0.01
"""The same where a public density says where records are, signs are random, or, of a kernel whose
slope jumps, there are more axes than one."""
_EXPECTED_POINT_MASS = 0.07
FEW_AXES = 3
"""With more, products over axes are large: fewer candidates are tried."""
LARGEST_K = 1000
"""Most steps of an axis that are chosen."""
_POINT_MASS_OF_BINS = {1: 0.18, 2: 0.15}  # by axes: the fewer, the less noise finer cells cost


@dataclass(frozen=True)
class Candidate:
    """Strategy and orders of a release, and their predicted errors in unit-cube units.

    `noise` is the mean sup of the noise, `approximation` the error of a typical database, `worst`
    that of the worst, of which `lattice_error` is there whatever the bins. `questions` are those
    that its bins are to answer beside the function.
    """

    strategy: Strategy
    h: tuple[int, ...]
    noise: float
    approximation: float
    worst: float
    certified: bool
    point_mass: float = POINT_MASS
    lattice_error: float = 0.0
    questions: BinQuestions | None = None

    @property
    def two_scales(self) -> bool:
        """Whether its bins have two scales."""
        return isinstance(self.strategy, BinnedStrategy) and self.strategy.two_scales

    @property
    def error(self) -> float:
        """Predicted sup error; with questions its mean with their predicted widths."""
        sup_error = self.sup_error
        return sup_error if self.questions is None else mean_width(self.questions.widths(sup_error))

    @property
    def sup_error(self) -> float:
        """Predicted sup error of the function.

        Certified, the worst database adds its error to that of the noise. A typical one's has
        nothing to do with the noise: squares add. Real records crowd: where none says where they
        are, some are taken to be at one point, which errs as the worst database does, but for what
        no choice of bins changes. To choose, more are taken to be there than are expected: bands
        about the data at hand are as wide as records might miss inside the cells they are in, and a
        little more noise makes them much narrower.
        """
        if self.certified:
            return self.promise
        crowded = self.point_mass * max(0.0, self.worst - self.lattice_error)
        return math.hypot(self.noise, self.approximation, crowded)

    @property
    def promise(self) -> float:
        """Predicted error for any database."""
        return self.noise + self.worst

    @property
    def expected(self) -> float:
        """Predicted sup error of typical data."""
        return replace(self, point_mass=min(self.point_mass, _EXPECTED_POINT_MASS)).sup_error


@dataclass(frozen=True)
class Search:
    """Public facts that the search for a design starts from; `k` and `h` where the spec gives them.

    `noise_ratio` is the scale of the noise for sensitivity one. For noise that is calibrated to the
    largest move of a value, that is the move times the root of the number of values. `most_values`
    limits bins and lattice points. `two_scales`: bins of two scales may be released.
    """

    statistic: Statistic
    n: int
    family: NoiseFamily
    noise_ratio: float
    k: tuple[int, ...] | None
    h: tuple[int, ...] | None
    certified: bool
    reference: Reference | None
    most_values: int
    questions: Questions | None = None
    two_scales: bool = False

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of the statistic."""
        return self.statistic.kernels

    def point_mass(self, strategy_kind: str) -> float:
        """Return the fraction of the records at one point, by what is released."""
        if self.reference is not None:
            return MIN_POINT_MASS
        # Where a slope jumps, what bins miss halves as their cells do, and noise doubles with them
        # on two axes: fine cells are paid by whoever has no crowd, and rows that share a value on
        # an axis are seldom at one point of several. Of 13 real and made densities 12 % is best on
        # one axis, where anything from 5 to 15 does as well, and 1 % on more, .6 to 1.5.
        if self.jumps and strategy_kind == "binned" and len(self.kernels) > 1:
            return MIN_POINT_MASS
        # Kinks are approximated slowly: finer cells gain less.
        if strategy_kind != "binned" or self.kinked:
            return POINT_MASS
        return _POINT_MASS_OF_BINS.get(len(self.kernels), POINT_MASS)

    @property
    def kinked(self) -> bool:
        """Whether any kernel has a kink."""
        return any(kernel.kinks for kernel in self.kernels)

    @property
    def jumps(self) -> bool:
        """Whether the slope of any kernel jumps, on few axes: its function may be interpolated."""
        return not self.many_axes and any(kernel.jumps for kernel in self.kernels)

    @property
    def many_axes(self) -> bool:
        """Whether few candidates must do, because their size is the limit."""
        return len(self.kernels) > FEW_AXES

    @property
    def multiples(self) -> tuple[Multiples | None, ...]:
        """Multiples that rows are rounded to, by axis."""
        return tuple(axis.multiples for axis in self.statistic.domain.axes)

    def resolve(self, steps: float) -> tuple[int, ...]:
        """Return the lattice of so many steps a deviation on every axis."""
        lengths = (max(1, math.ceil(steps / kernel.deviation)) for kernel in self.kernels)
        return tuple(min(LARGEST_K, length) for length in lengths)

    def lattices(self, resolutions: Sequence[float]) -> list[Lattice]:
        """Return the stated lattice, or one for each number of steps a deviation."""
        if self.k is not None:
            return [Lattice(self.k)]
        return [Lattice(k) for k in dict.fromkeys(map(self.resolve, resolutions))]

    def cells(self, lattice: Lattice) -> int:
        """Lattice points, or the cells that kinks make necessary and the moments they hold."""
        axes = (cells_for(*axis, 0.0) for axis in zip(self.kernels, lattice.k, strict=True))
        moments = 1 << (len(self.kernels) - 1)
        return max(lattice.size, moments * math.prod(cells.count for cells in axes))

    def admits(self, strategy: BinnedStrategy) -> bool:
        """Return whether the noise is for such bins."""
        if self._num_values(strategy) > self.family.max_values:
            return False
        return not self.family.balanced or self.statistic.sensitivity(strategy, 1).balanced

    def orders(self, usual: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the stated order, or the usual ones on every axis."""
        axes = self.statistic.domain.dimensions
        return [self.h] if self.h is not None else [(h,) * axes for h in usual]

    def candidate(self, strategy: Strategy, h: tuple[int, ...]) -> Candidate:
        """Predict the errors of a design."""
        worst = worst_error(self.kernels, strategy, h)
        typical = worst if self.certified else self.bias(strategy, h)
        return Candidate(
            strategy, h, self.noise(strategy, h), typical, worst, self.certified,
            self.point_mass(strategy.kind), questions=self._bin_questions(strategy),
        )  # fmt: skip

    def estimate(
        self, strategy: BinnedStrategy, k: Sequence[int], h: tuple[int, ...], lattice_error: float
    ) -> Candidate:
        """Predict the errors of bins to be made, but for that of a typical database.

        Fitted to the lattice of `k`, of all 0 to the kernel itself.
        """
        axes = zip(self.kernels, k, h, strategy.bins, strict=True)
        fits = [
            fit(kernel, steps, order, bins.cells, bins.degree)
            for kernel, steps, order, bins in axes
        ]
        pairs = zip(strategy.bins, fits, strict=True)
        noise = largest_noise(
            self._noise_of(strategy), [bins.on_released(axis.rows) for bins, axis in pairs]
        )
        grown = math.prod(axis.bump + axis.error for axis in fits)
        worst = grown - math.prod(axis.bump for axis in fits)
        return Candidate(
            strategy, h, noise, 0.0, worst, self.certified,
            self.point_mass(strategy.kind), lattice_error, self._bin_questions(strategy),
        )  # fmt: skip

    def with_matrices(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the matrices of its bins, which estimates do without."""
        strategy = candidate.strategy
        if not isinstance(strategy, BinnedStrategy) or strategy.bins[0].packed:
            return candidate
        axes = zip(self.kernels, strategy.lattice.k, strategy.bins, candidate.h, strict=True)
        bins = tuple(
            axis_bins(kernel, k, axis.cells, axis.degree, h).on_two_scales(axis.times, axis.parts)
            for kernel, k, axis, h in axes
        )
        return replace(candidate, strategy=BinnedStrategy(strategy.lattice, bins))

    def ask(self, strategy: BinnedStrategy, questions: Questions) -> BinQuestions:
        """Put questions to bins, with the noise that they would have."""
        exact = tuple(
            multiples is not None and multiples.bins(bins.cells, bins.degree) is not None
            for multiples, bins in zip(self.multiples, strategy.bins, strict=True)
        )
        return BinQuestions(questions, strategy.bins, self._noise_of(strategy), exact)

    def _bin_questions(self, strategy: Strategy) -> BinQuestions | None:
        if self.questions is None or not isinstance(strategy, BinnedStrategy):
            return None
        return self.ask(strategy, self.questions)

    def noise(self, strategy: Strategy, h: tuple[int, ...]) -> float:
        """Predict the mean sup of the noise."""
        axes = zip(strategy.lattice.k, h, strategy.axis_maps, strict=True)
        return largest_noise(self._noise_of(strategy), [half_rows(*axis) for axis in axes])

    def _noise_of(self, strategy: Strategy) -> NoiseCovariance:
        """Return the covariance of an output's noise; of divided records that of two outputs' sum.

        Their sum is of whole records, as what is missed of typical data is.
        """
        scale = self.sensitivity(strategy) / self.n * self.noise_ratio
        covariance = self.family.covariance(self._num_values(strategy)).scaled(scale)
        return covariance.of_sum(1 + self.statistic.divided)

    def sensitivity(self, strategy: Strategy) -> float:
        """Return n times the sensitivity that the noise's scale is in proportion to."""
        if self.family.norm == math.inf:
            return self.statistic.function_sensitivity * math.sqrt(self._num_values(strategy))
        return self.statistic.sensitivity(strategy, int(self.family.norm)).value

    def _num_values(self, strategy: Strategy) -> int:
        return self.statistic.outputs * strategy.layout.size

    def lattice_error(self, lattice: Lattice, h: tuple[int, ...]) -> float:
        """Return the error of the lattice alone, as the objective counts it."""
        lattice_values = LatticeStrategy(lattice)
        worst = worst_error(self.kernels, lattice_values, h)
        if self.certified:
            return worst
        return self.bias(lattice_values, h) + self.point_mass("") * worst

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
        expected = reference_error(self.kernels, strategy, h, self.reference)
        return expected + math.sqrt(rough / self.n)
