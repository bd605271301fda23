"""Predicted errors of one way to release: of the noise, of a typical and of the worst database.

In unit-cube units, on grids, for kernels that are products over axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.bins import prior
from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.maps import AxisMap, axis_maps, released_bumps
from dbern.noise_bounds import noise_sups, synthesis_matrices, whole_synthesis
from dbern.privacy.calibration import GaussianNoise, LaplaceNoise

_DRAWS = 128
_PLANNING_SAMPLES = 200_000
_UNIT_SCALE = 1 << 20
_GRID_POINTS = 10_000

Reference: TypeAlias = Callable[[FloatArray], FloatArray]
"""A public density, up to a factor: points (m, l) of the unit cube to values (m,)."""


def unit_noise(coordinates: Coordinates, h: tuple[int, ...], gaussian: bool) -> float:
    """Mean sup norm of the noise at scale one, on a coarse grid under a public key."""
    points = _points(len(h), {1: 129, 2: 49, 3: 25})
    y = (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    bases = [
        bernstein_basis(y, k) @ matrix
        for k, matrix in zip(coordinates.lattice.k, synthesis_matrices(coordinates, h), strict=True)
    ]
    law = GaussianNoise(_UNIT_SCALE, 0, 1) if gaussian else LaplaceNoise(_UNIT_SCALE, 0, 1)
    draws = max(4, min(_DRAWS, _PLANNING_SAMPLES // coordinates.layout.size))
    sups, _ = noise_sups(bases, law, draws, "planning", whole_synthesis(coordinates))
    return float(sups.mean()) / _UNIT_SCALE


def typical_error(
    kernels: Sequence[Kernel], coordinates: Coordinates, h: tuple[int, ...]
) -> tuple[float, float]:
    """Largest mean squared errors over y, for one point mass and for the smooth part of the prior.

    Second moments of bump and release, ``E K K - 2 E K P + E P P``, multiply over axes.
    """
    points = _points(len(kernels), {1: 129, 2: 33, 3: 13})
    moments = np.ones((2, 3, 1))
    for axis in zip(kernels, coordinates.lattice.k, h, axis_maps(coordinates), strict=True):
        own = _axis_moments(*axis, points)
        moments = (moments[..., None] * own[:, :, None, :]).reshape(2, 3, -1)
    rough, smooth = moments[:, 0] - 2 * moments[:, 1] + moments[:, 2]
    return max(0.0, float(rough.max())), max(0.0, float(smooth.max()))


@lru_cache(maxsize=256)
def _axis_moments(kernel: Kernel, k: int, h: int, axis: AxisMap | None, points: int) -> FloatArray:
    """``E K K``, ``E K P`` and ``E P P`` at points of y, rough and smooth part: (2, 3, points)."""
    t, factors = prior(kernel.bandwidth)
    y = np.linspace(0, 1, points)
    bumps = kernel(y[:, None] - t)
    released = bernstein_basis(y, k) @ released_bumps(kernel, k, h, axis, t)
    pairs = ((bumps, bumps), (bumps, released), (released, released))
    rough = [(one * other).mean(axis=1) for one, other in pairs]
    parts = [(one @ factors / len(t), other @ factors / len(t)) for one, other in pairs]
    return np.array([rough, [(one * other).sum(axis=1) for one, other in parts]])


def reference_error(
    kernels: Sequence[Kernel],
    coordinates: Coordinates,
    h: tuple[int, ...],
    reference: Reference,
) -> float:
    """Sup error, on a grid, of what is released for the smoothed reference density itself."""
    points = _points(len(kernels), {1: 201, 2: 61, 3: 25})
    t = (np.arange(points) + 0.5) / points
    cube = np.stack(np.meshgrid(*[t] * len(kernels), indexing="ij"), axis=-1)
    weights = np.asarray(reference(cube.reshape(-1, len(kernels))), dtype=np.float64)
    smooth = released = (weights / weights.sum()).reshape(cube.shape[:-1])
    for kernel, k, order, spectrum in zip(
        kernels, coordinates.lattice.k, h, axis_maps(coordinates), strict=True
    ):
        evaluated = bernstein_basis(t, k) @ released_bumps(kernel, k, order, spectrum, t)
        smooth = np.tensordot(smooth, kernel(t[:, None] - t), axes=(0, 1))
        released = np.tensordot(released, evaluated, axes=(0, 1))
    return float(np.abs(smooth - released).max())


def worst_error(kernels: Sequence[Kernel], coordinates: Coordinates, h: tuple[int, ...]) -> float:
    """Sup error of the worst bump, on a grid; for a product of axes it telescopes."""
    grown = plain = 1.0
    for axis in zip(kernels, coordinates.lattice.k, h, axis_maps(coordinates), strict=True):
        bump, error = _axis_worst(*axis)
        grown *= bump + error
        plain *= bump
    return grown - plain


@lru_cache(maxsize=1024)
def _axis_worst(kernel: Kernel, k: int, h: int, axis: AxisMap | None) -> tuple[float, float]:
    points = min(161, max(33, math.ceil(4 / kernel.bandwidth)))
    t = np.linspace(0, 1, points)
    y = t[: points // 2 + 1]  # symmetric under (y, t) -> (1 - y, 1 - t)
    bumps = kernel(y[:, None] - t)
    errors = bumps - bernstein_basis(y, k) @ released_bumps(kernel, k, h, axis, t)
    return float(bumps.max()), float(np.abs(errors).max())


def _points(axes: int, usual: Mapping[int, int]) -> int:
    """Points an axis of a coarse grid over the cube: as usual, or some ten thousand in all."""
    return usual.get(axes) or math.floor(_GRID_POINTS ** (1 / axes))
