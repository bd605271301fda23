"""Predicted errors of a design, in closed form: of noise, of databases, and of questions.

*Functions.* The noise, a typical and the worst database err on grids, in unit-cube units;
`dbern.planning.choice` compares them.

*Questions about the rows*, shares of boxes and quantiles. The answer about released bins
(`dbern.ask`) is as wide as the rows between a sharp edge's minorant and majorant,
`GAPS` cells, and the noise of the bins under the weight. Both are predicted here for rows that are
spread evenly, at 95 %. Narrow cells make the first small and the second large, in proportion to the
root of their number; a density wants wide ones. On one axis bins of two scales serve both
(`dbern.reconstruct.two_scales`), on more one array in between, or two scales shares alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from dbern.bernstein.basis import iterated_basis, with_mirrored
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.splines import bin_matrix
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct.axis_maps import AxisMap, released_translates
from dbern.reconstruct.base import Strategy
from dbern.reconstruct.bins import AxisBins, MirroredBlock, bin_fit, bump_blocks, lattice_bumps
from dbern.system.texts import percent
from dbern.types import FloatArray

_RISES = 0.5  # that are expected above the height at which the sup is taken to be
_MIN_HEIGHT, _MAX_HEIGHT, _BISECTIONS = math.sqrt(2 / math.pi), 10.0, 13  # in deviations
_TINY = 1e-9  # of a length, below which there is no direction
_GRID_POINTS = 10_000
_NOISE_POINTS = 129  # of an axis
CLUSTERS = 1000
"""Equal point masses at uniform points, at most: the rough part of a typical database."""
_SMOOTH_SCALE = 0.2
"""The smooth part of a typical density varies by its mean over this fraction of an axis."""
_UNEVEN_POINTS = 60
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples meet the nodes of no number of cells
_MIN_POSITIONS, _MAX_POSITIONS, _POSITIONS_A_BANDWIDTH = 400, 1 << 14, 8
Reference: TypeAlias = Callable[[FloatArray], FloatArray]
"""A public density, up to a factor: points (m, l) of the unit cube to values (m,)."""
GAPS = {1: 1.49, 2: 1.66, 3: 1.80, 5: 2.03, 7: 2.25}
"""Cells between a step's splines, by their degree: on average over where it is."""
NOISE_DEVIATIONS = 1.96
"""Deviations of the noise on either side."""
FINER = {1: (6.0, 9.0, 13.0, 20.0, 30.0, 45.0), 2: (6.0, 9.0, 13.0, 20.0, 30.0, 45.0)}
"""Cells a deviation, by degree, that only edges are worth."""
_NAMES = {"mass": "a share", "cdf": "a share up to a value", "quantile": "a quantile"}


def largest_noise(noise: NoiseCovariance, rows: Sequence[FloatArray]) -> float:
    """Predict the mean sup of noise that rows of every axis weigh, products over axes.

    Rows are those of `half_rows`: the noise is as large at either side of an axis's middle.
    """
    step = {1: 1, 2: 4, 3: 8}.get(len(rows), 32)
    squares = reduce(np.multiply.outer, [np.square(axis[::step]).sum(axis=1) for axis in rows])
    sums = reduce(np.multiply.outer, [axis[::step].sum(axis=1) for axis in rows])
    deviations = np.sqrt(np.maximum(0.0, noise.variance(squares, sums)))
    ends, lengths = [], []
    for weights in rows:
        reached = np.append(0.0, np.cumsum(_angles(weights, 0)))[::step]
        ends.append(2.0 * (np.arange(len(reached)) == 0))
        lengths.append(2 * _nearest_angles(reached))
    return _expected_maximum(deviations, np.ix_(*ends), np.ix_(*lengths))


def largest_of_grid(weights: FloatArray) -> float:
    """Predict the same for noise of deviation one; weights (points of axes .., values)."""
    ends, lengths = [], []
    for axis, points in enumerate(weights.shape[:-1]):
        angles = np.moveaxis(_angles(weights, axis), axis, 0)
        reached = np.concatenate([np.zeros((1, *angles.shape[1:])), np.cumsum(angles, axis=0)])
        ends.append(1.0 * np.isin(np.arange(points), (0, points - 1)))
        lengths.append(np.moveaxis(_nearest_angles(reached), 0, axis))
    return _expected_maximum(np.linalg.norm(weights, axis=-1), np.ix_(*ends), lengths)


def _angles(weights: FloatArray, axis: int) -> FloatArray:
    """Between the weights of neighboring points: how far the noise turns from one to the next."""
    lengths = np.linalg.norm(weights, axis=-1, keepdims=True)
    chords = np.linalg.norm(np.diff(weights / np.maximum(lengths, _TINY), axis=axis), axis=-1)
    return np.asarray(2 * np.arcsin(np.minimum(1.0, chords / 2)))


def _nearest_angles(reached: FloatArray) -> FloatArray:
    """Give every point what is nearer to it than to the next ones, along the first axis."""
    bounds = np.concatenate([reached[:1], (reached[1:] + reached[:-1]) / 2, reached[-1:]])
    return np.diff(bounds, axis=0)


def _expected_maximum(
    deviations: FloatArray, ends: Sequence[FloatArray], lengths: Sequence[FloatArray]
) -> float:
    """Approximate the mean sup of a normal field, within a fifth also for Laplace noise.

    By Rice's formula it is expected to rise above u at ``sum P(|N| > u / deviation)`` points, each
    weighed by ``ends + length u / (deviation sqrt(2 pi))`` of every axis (Adler, Taylor 2007,
    chapter 11: a box's corners, edges and faces, of a deviation that varies slowly). The sup is
    taken to be where that is one half, at least the mean size of the largest.

    `ends` and `lengths` are arrays by axis, of points: how many ends are there, and the angle that
    the noise turns by.
    """
    largest = float(deviations.max())
    if not largest > 0:
        return 0.0
    positive = np.maximum(deviations, _TINY * largest)
    low, high = _MIN_HEIGHT * largest, _MAX_HEIGHT * largest
    for _ in range(_BISECTIONS):
        height = (low + high) / 2
        heights = height / positive
        # Within a sixth of P(|N| > heights), from zero on.
        rises = np.exp(-np.square(heights) / 2) / np.sqrt(1 + np.pi / 2 * np.square(heights))
        for corners, angles in zip(ends, lengths, strict=True):
            rises = rises * (corners + heights * angles / math.sqrt(2 * math.pi))
        low, high = (height, high) if rises.sum() > _RISES else (low, height)
    return (low + high) / 2


def typical_error(
    kernels: Sequence[Kernel], strategy: Strategy, h: tuple[int, ...]
) -> tuple[float, float]:
    """Return the largest mean squared errors over y, for one point mass and for the smooth part.

    Second moments of bump and release, ``E K K - 2 E K P + E P P``, multiply over axes.
    """
    points = _grid_points(len(kernels), {1: 129, 2: 33, 3: 13})
    moments = np.ones((2, 3, 1))
    for axis in zip(kernels, strategy.lattice.k, h, strategy.axis_maps, strict=True):
        axis_moments = _axis_moments(*axis, points)
        moments = (moments[..., None] * axis_moments[:, :, None, :]).reshape(2, 3, -1)
    rough, smooth = moments[:, 0] - 2 * moments[:, 1] + moments[:, 2]
    return max(0.0, float(rough.max())), max(0.0, float(smooth.max()))


@lru_cache(maxsize=256)
def _axis_moments(kernel: Kernel, k: int, h: int, axis: AxisMap | None, points: int) -> FloatArray:
    """``E K K``, ``E K P`` and ``E P P`` at points of y, rough and smooth part: (2, 3, points)."""
    t, factors = _prior(kernel.bandwidth)
    bumps = _bumps(kernel, points)
    released = released_translates(kernel, _rows(k, h, points), axis, t)
    pairs = ((bumps, bumps), (bumps, released), (released, released))
    rough = [np.einsum("ij,ij->i", *pair) / len(t) for pair in pairs]
    means = [(first @ factors / len(t), second @ factors / len(t)) for first, second in pairs]
    return np.array([rough, [(first * second).sum(axis=1) for first, second in means]])


@lru_cache(maxsize=8)
def _prior(bandwidth: float) -> tuple[FloatArray, FloatArray]:
    """Positions (q,), fine for the bandwidth, and factors (q, r) of a typical smooth density.

    Its second moments at two positions are the product of its factors there, ``F F'``: those of the
    uniform density, varying by as much as itself over a fifth of the axis. A typical database adds
    `CLUSTERS` equal point masses at uniform points. Sums over positions are means of q terms.
    """
    count = min(_MAX_POSITIONS, max(_MIN_POSITIONS, math.ceil(_POSITIONS_A_BANDWIDTH / bandwidth)))
    t = (np.arange(count) + 0.5) / count
    step = _SMOOTH_SCALE / 8
    centers = np.arange(-2 * _SMOOTH_SCALE, 1 + 2 * _SMOOTH_SCALE, step)
    size = math.sqrt(step / (_SMOOTH_SCALE * math.sqrt(math.pi / 2)))
    factors = size * np.exp(-(((t[:, None] - centers) / _SMOOTH_SCALE) ** 2))
    factors.setflags(write=False)
    return t, factors


@lru_cache(maxsize=8)
def _bumps(kernel: Kernel, points: int) -> FloatArray:
    return kernel(np.linspace(0, 1, points)[:, None] - _prior(kernel.bandwidth)[0])


@lru_cache(maxsize=32)
def _rows(k: int, h: int, points: int, *, crowded: bool = False) -> FloatArray:
    y = np.linspace(0, 1, points)[: (points + 1) // 2]  # the others are these in reverse
    half = iterated_basis((1 - np.cos(np.pi * y)) / 2 if crowded else y, k, h)
    return with_mirrored(half, points)


def reference_error(
    kernels: Sequence[Kernel], strategy: Strategy, h: tuple[int, ...], reference: Reference
) -> float:
    """Return the sup error, on a grid, of the release of the smoothed reference density itself."""
    points = _grid_points(len(kernels), {1: 201, 2: 61, 3: 25})
    t = (np.arange(points) + 0.5) / points
    cube = np.stack(np.meshgrid(*[t] * len(kernels), indexing="ij"), axis=-1)
    weights = np.asarray(reference(cube.reshape(-1, len(kernels))), dtype=np.float64)
    smooth = released = (weights / weights.sum()).reshape(cube.shape[:-1])
    for kernel, k, order, spectrum in zip(
        kernels, strategy.lattice.k, h, strategy.axis_maps, strict=True
    ):
        evaluated = released_translates(kernel, iterated_basis(t, k, order), spectrum, t)
        smooth = np.tensordot(smooth, kernel(t[:, None] - t), axes=(0, 1))
        released = np.tensordot(released, evaluated, axes=(0, 1))
    return float(np.abs(smooth - released).max())


def worst_error(kernels: Sequence[Kernel], strategy: Strategy, h: tuple[int, ...]) -> float:
    """Return the sup error of the worst bump, on a grid; for a product of axes it telescopes."""
    grown = plain = 1.0
    for axis in zip(kernels, strategy.lattice.k, h, strategy.axis_maps, strict=True):
        bump, error = _axis_worst(*axis)
        grown *= bump + error
        plain *= bump
    return grown - plain


@lru_cache(maxsize=1024)
def _axis_worst(kernel: Kernel, k: int, h: int, axis: AxisMap | None) -> tuple[float, float]:
    bumps, _, t = _points(kernel)
    errors = bumps - released_translates(kernel, _rows_at_points(kernel, k, h), axis, t)
    return float(bumps.max()), float(np.abs(errors).max())


@lru_cache(maxsize=8)
def _points(kernel: Kernel) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bumps (y, t) at points y, those points, and positions t.

    Points are those of the first half: what errs is symmetric under (y, t) -> (1 - y, 1 - t). Where
    a slope jumps, bins err within a cell of it, and hardly where it is at one of their nodes: so
    points are spread unevenly, whatever the number of cells, and kinks are seen at each from some
    of the positions.
    """
    t = np.linspace(0, 1, min(161, max(33, math.ceil(4 / kernel.bandwidth))))
    y = t[: len(t) // 2 + 1]
    if kernel.jumps:
        index = np.arange(_UNEVEN_POINTS)
        y = np.append(0.0, (index + index * _GOLDEN % 1) / (2 * _UNEVEN_POINTS))
        at_kinks = [y + side * kink for kink in (0.0, *kernel.kinks) for side in (-1, 1)]
        t = np.unique(np.clip(np.concatenate([t, *at_kinks]), 0.0, 1.0))
    return kernel(y[:, None] - t), y, t


@lru_cache(maxsize=32)
def _rows_at_points(kernel: Kernel, k: int, h: int) -> FloatArray:
    _, y, t = _points(kernel)
    return iterated_basis(y, k, h) if kernel.jumps else _rows(k, h, len(t))[: len(y)]


@dataclass(frozen=True, eq=False)
class Fit:
    """Bins of one axis before their matrix is made, and their errors on grids.

    `rows` (points, bins) multiply the bins at points of y, as of `half_rows`; `bump` is the largest
    kernel value, `error` the most that the bins miss of it.
    """

    rows: FloatArray
    bump: float
    error: float


@lru_cache(maxsize=256)
def fit(kernel: Kernel, k: int, h: int, cells: int, degree: int) -> Fit:
    """Fit bins to a lattice's polynomials at some points alone; k = 0: to the kernel itself."""
    bumps, _, t = _points(kernel)
    rows = bin_fit(bump_blocks(kernel), partial(_fitted, kernel, k, h), cells, degree)
    half = _NOISE_POINTS // 2 + 1
    fitted = rows[half:] @ bin_matrix(t, cells, degree).T
    return Fit(rows[:half], float(bumps.max()), float(np.abs(bumps - fitted).max()))


@lru_cache(maxsize=16)
def _fitted(kernel: Kernel, k: int, h: int, block: MirroredBlock) -> FloatArray:
    """Targets of the fit of bins, at the points of `half_rows` and at `_points`."""
    _, points, _ = _points(kernel)
    if k == 0:
        y = (1 - np.cos(np.linspace(0, np.pi / 2, _NOISE_POINTS // 2 + 1))) / 2
        return kernel(np.concatenate([y, points])[:, None] - block.t)
    rows = half_rows(k, h, None), _rows_at_points(kernel, k, h)
    return np.asarray(np.vstack(rows) @ lattice_bumps(kernel, k, h, block))


@lru_cache(maxsize=64)
def half_rows(k: int, h: int, axis: AxisMap | None) -> FloatArray:
    """Return what multiplies an axis's released values at points of y, to its middle."""
    rows = _rows(k, h, _NOISE_POINTS, crowded=True)[: _NOISE_POINTS // 2 + 1]
    return rows if axis is None else rows @ axis.synthesis


def _grid_points(axes: int, usual: Mapping[int, int]) -> int:
    """Return points an axis of a coarse grid over the cube: as usual, or ten thousand in all."""
    return usual.get(axes) or math.floor(_GRID_POINTS ** (1 / axes))


@dataclass(frozen=True)
class Questions:
    """Questions that a release is to answer: of "density", "mass", "cdf" and "quantile"."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Questions | None:
        """Return the questions of a spec; None where only the function is asked for."""
        distinct = tuple(dict.fromkeys(names))
        return None if distinct == ("density",) else cls(distinct)

    def widths(
        self,
        axes: Sequence[AxisBins],
        noise: NoiseCovariance,
        density: float,
        exact: Sequence[bool] = (),
    ) -> dict[str, float]:
        """Predict the width of each question's interval in shares; the density's error is given.

        `noise` is the covariance of the bins, in shares of the rows. Axes that are `exact` (none
        where it is empty) have a bin for each value that rows are rounded to: edges cost nothing.
        """
        gaps = [
            0.0 if no_edges else GAPS[bins.degree] / bins.cells
            for bins, no_edges in zip_longest(axes, exact)
        ]

        def width(edges: float, fractions: Sequence[float]) -> float:
            square, total = _weight_sums(axes, fractions)
            return edges + 2 * NOISE_DEVIATIONS * math.sqrt(
                max(0.0, float(noise.variance(square, total)))
            )

        count = len(axes)
        step = max(width(max(gaps), row) for row in 1.0 - 0.5 * np.eye(count))
        box = width(sum(2 * gap for gap in gaps) / 2 ** (count - 1), [0.5] * count)
        widths = {"density": density, "mass": box, "cdf": step, "quantile": step}
        return {name: widths[name] for name in self.names}


def _weight_sums(axes: Sequence[AxisBins], fractions: Sequence[float]) -> FloatArray:
    """Return the sum of squares and the sum of the weights of rows that are spread evenly.

    They are those in a fraction of each axis, which multiply: the first ones of it, and of two
    scales those up to anywhere in a wide cell.
    """
    sums = np.ones(2)
    for bins, fraction in zip(axes, fractions, strict=True):
        of_axis = np.full((2, 1), fraction * bins.count)
        if bins.scales is not None:
            ends = round(fraction * bins.cells) + np.arange(bins.times)
            steps = np.asarray(np.arange(bins.count) < ends[:, None], dtype=np.float64)
            weights = bins.on_released(steps if fraction < 1 else np.ones((1, bins.count)))
            of_axis = np.stack([np.square(weights).sum(axis=1), weights.sum(axis=1)])
        sums *= of_axis.mean(axis=1)
    return sums


@dataclass(frozen=True)
class BinQuestions:
    """Questions put to bins whose noise is known; `exact` axes as of `Questions.widths`."""

    questions: Questions
    bins: tuple[AxisBins, ...]
    noise: NoiseCovariance
    exact: tuple[bool, ...] = ()

    def widths(self, density: float) -> dict[str, float]:
        """Predict the width of each question's interval in shares, by the density's error."""
        return self.questions.widths(self.bins, self.noise, density, self.exact)


USUAL = Questions(("density", "mass", "quantile"))
"""What a release is asked where its spec names nothing."""


def mean_width(widths: Mapping[str, float]) -> float:
    """Return the geometric mean, so that no unit counts for more than another."""
    distinct = {name.replace("quantile", "cdf"): width for name, width in widths.items()}
    return math.prod(distinct.values()) ** (1 / len(distinct))


def width_text(name: str, width: float, unit: str) -> str:
    """Write a question's predicted width."""
    if name == "density":
        return f"density: off by about {width:.3g}{unit}"
    of = "an axis" if name == "quantile" else "the rows"
    return f"{_NAMES[name]}: an interval of about {percent(width, 2)} of {of}"
