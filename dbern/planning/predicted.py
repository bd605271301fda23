"""Predicted errors of one way to release, on grids: its noise, typical and worst databases.

They are in unit-cube units; `dbern.planning.choose` compares them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.basis import bin_matrix, iterated_basis, with_mirrored
from dbern.bernstein.kernels import Kernel
from dbern.certificate import noise_sups
from dbern.privacy.accuracy import independent_draws, public_stream
from dbern.privacy.families import NoiseFamily
from dbern.strategies.approximation import AxisMap, released_translates
from dbern.strategies.base import Strategy
from dbern.strategies.bins import MirroredBlock, bin_fit, bump_blocks, lattice_bumps
from dbern.types import FloatArray

_DRAWS = 128
_PLANNING_SAMPLES = 200_000
_MOST_DRAWN = 6_000_000  # which a plan chooses from
_SHARED, _MOST_ROUNDED = 1 << 16, 16
_UNIT_SCALE = 1 << 20
_GRID_POINTS = 10_000
_FIT_POINTS = 129

CLUSTERS = 1000
"""Equal point masses at uniform places, at most: the rough part of a typical database."""

_SMOOTH_SCALE = 0.2
"""The smooth part of a typical density varies by its mean over this share of an axis."""

_FEWEST_PLACES, _MOST_PLACES, _PLACES_A_BANDWIDTH = 400, 1 << 14, 8

Reference: TypeAlias = Callable[[FloatArray], FloatArray]
"""A public density, up to a factor: points (m, l) of the unit cube to values (m,)."""


def unit_noise(strategy: Strategy, h: tuple[int, ...], family: NoiseFamily, values: int) -> float:
    """Estimate the mean sup norm of the noise at scale one, on a coarse grid under a public key.

    Of more than `_MOST_DRAWN` values as many numbers as points are drawn, with the same covariance
    there: triangular, so that values at the corners are single numbers as before.
    """
    points = grid_points(len(h), {1: 129, 2: 49, 3: 25})
    maps = strategy.axis_maps if strategy.whole is None else (None,) * len(h)
    axes = zip(strategy.lattice.k, h, maps, strict=True)
    bases = [released_rows(*axis, points) for axis in axes]
    starts = itertools.count()

    def shared(law: Any, size: int, draws: int, _: object) -> FloatArray:
        blocks = -(-size * draws // _SHARED)
        if blocks <= _MOST_ROUNDED:  # then few numbers of them
            blocks = 1 << (blocks - 1).bit_length()
        return _drawn(law, next(starts), blocks)[: size * draws].reshape(size, draws)

    size = strategy.layout.size
    if size > _MOST_DRAWN:
        bases = [np.asarray(np.linalg.qr(one.T)[1].T, np.float64) for one in bases]
        size = math.prod(rows.shape[1] for rows in bases)
    draw = family.predicted(_UNIT_SCALE, values, shared)
    draws = max(4, min(_DRAWS, _PLANNING_SAMPLES // size))
    sups = noise_sups(bases, draw, draws, "planning", strategy.whole)
    return float(sups.mean()) / _UNIT_SCALE


@lru_cache(maxsize=8)
def _drawn(law: Any, start: int, blocks: int) -> FloatArray:
    """Blocks of numbers that candidates share: fewer of them are a prefix."""
    return independent_draws(law, blocks * _SHARED, 1, public_stream("planning", start)).ravel()


def typical_error(
    kernels: Sequence[Kernel], strategy: Strategy, h: tuple[int, ...]
) -> tuple[float, float]:
    """Return the largest mean squared errors over y, for one point mass and for the smooth part.

    Second moments of bump and release, ``E K K - 2 E K P + E P P``, multiply over axes.
    """
    points = grid_points(len(kernels), {1: 129, 2: 33, 3: 13})
    moments = np.ones((2, 3, 1))
    for axis in zip(kernels, strategy.lattice.k, h, strategy.axis_maps, strict=True):
        own = _axis_moments(*axis, points)
        moments = (moments[..., None] * own[:, :, None, :]).reshape(2, 3, -1)
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
    parts = [(one @ factors / len(t), other @ factors / len(t)) for one, other in pairs]
    return np.array([rough, [(one * other).sum(axis=1) for one, other in parts]])


@lru_cache(maxsize=8)
def _prior(bandwidth: float) -> tuple[FloatArray, FloatArray]:
    """Positions (q,), fine for the bandwidth, and factors (q, r) of a typical smooth density.

    Its second moments at two positions are the product of its factors there, ``F F'``: those of the
    uniform density, varying by as much as itself over a fifth of the axis. A typical database adds
    `CLUSTERS` equal point masses at uniform places. Sums over positions are means of q terms.
    """
    count = min(_MOST_PLACES, max(_FEWEST_PLACES, math.ceil(_PLACES_A_BANDWIDTH / bandwidth)))
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
    points = grid_points(len(kernels), {1: 201, 2: 61, 3: 25})
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
    bumps, t, half = _places(kernel)
    errors = bumps - released_translates(kernel, _rows(k, h, len(t))[half], axis, t)
    return float(bumps.max()), float(np.abs(errors).max())


@lru_cache(maxsize=8)
def _places(kernel: Kernel) -> tuple[FloatArray, FloatArray, slice]:
    """Bumps at half of the places y, (y, t), and the places."""
    t = np.linspace(0, 1, min(161, max(33, math.ceil(4 / kernel.bandwidth))))
    half = slice(len(t) // 2 + 1)  # symmetric under (y, t) -> (1 - y, 1 - t)
    return kernel(t[half, None] - t), t, half


@dataclass(frozen=True, eq=False)
class Fit:
    """Bins of one axis before their matrix is made, and their errors, on grids.

    `rows` (points, bins) multiply the bins at points of y, crowded at the ends. `bump` is the
    largest kernel value, and `error` what the bins miss of it at worst.
    """

    rows: FloatArray
    bump: float
    error: float


@lru_cache(maxsize=256)
def fit(kernel: Kernel, k: int, h: int, cells: int, degree: int) -> Fit:
    """Fit bins to a lattice's polynomials at some points alone; k = 0: to the kernel itself."""
    bumps, t, _ = _places(kernel)
    rows = bin_fit(bump_blocks(kernel), partial(_fitted, kernel, k, h), cells, degree)
    own = rows[_FIT_POINTS:] @ bin_matrix(t, cells, degree).T
    return Fit(rows[:_FIT_POINTS], float(bumps.max()), float(np.abs(bumps - own).max()))


@lru_cache(maxsize=16)
def _fitted(kernel: Kernel, k: int, h: int, block: MirroredBlock) -> FloatArray:
    """Values that bins are fitted to, at points that are crowded at the ends and at `_places`."""
    _, t, half = _places(kernel)
    if k == 0:
        y = np.concatenate([(1 - np.cos(np.linspace(0, np.pi, _FIT_POINTS))) / 2, t[half]])
        return kernel(y[:, None] - block.t)
    rows = _rows(k, h, _FIT_POINTS, crowded=True), _rows(k, h, len(t))[half]
    return np.asarray(np.vstack(rows) @ lattice_bumps(kernel, k, h, block))


@lru_cache(maxsize=1024)
def largest_row(k: int, h: int, axis: AxisMap | None) -> float:
    """Return the largest norm over y, on a grid, of the row that multiplies released values."""
    return float(np.linalg.norm(released_rows(k, h, axis, 129), axis=1).max())


@lru_cache(maxsize=64)
def released_rows(k: int, h: int, axis: AxisMap | None, points: int) -> FloatArray:
    """Return the rows that multiply released values at points of y, crowded at the ends."""
    rows = _rows(k, h, points, crowded=True)
    return rows if axis is None else rows @ axis.synthesis


def grid_points(axes: int, usual: Mapping[int, int]) -> int:
    """Return points an axis of a coarse grid over the cube: as usual, or ten thousand in all."""
    return usual.get(axes) or math.floor(_GRID_POINTS ** (1 / axes))
