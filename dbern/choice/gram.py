"""What "auto" means for a kernel that is no product over axes: predictions from its Gram matrix.

As in `dbern.choice`, but for expansions ``sum_i alpha_i K(d_i, .)`` with ``sum |alpha_i| <= 1`` in
units of C M: the worst database is as bad as the ball that the certificate speaks of, a typical one
has 64 clusters of random signs at random positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.bins import CLUSTERS
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates
from dbern.bernstein.gram import CubeKernel, GramCoordinates, LatticeSpectrum, lattice_spectrum
from dbern.bernstein.gram_bias import GramBall, Released
from dbern.bernstein.lattice import Lattice
from dbern.choice.prediction import unit_noise
from dbern.choice.problem import Candidate, Problem

_RESOLUTIONS = {1: (4, 8, 16, 32, 64), 2: (3, 5, 8, 12, 18, 26), 3: (2, 3, 5, 8)}
_ORDERS = (1, 2, 4, 8, 16)
_SPECTRAL = {1: (32, 96), 2: (12, 26), 3: (5, 9)}
_SPECTRAL_ORDERS = (8, 32)
_THRESHOLDS = tuple(10.0**-step for step in range(1, 9))
_GRID = {1: 129, 2: 19, 3: 8}
_LARGEST_K = 1000


def gram_candidates(family: str, problem: Problem, cube: CubeKernel) -> Iterator[Candidate]:
    """Releases of lattice values (""), or of spectral coordinates; of bins there are none."""
    if family == "":
        for k in _resolutions(problem, _RESOLUTIONS[cube.dimensions]):
            for h in problem.orders(_ORDERS):
                yield _candidate(problem, cube, PlainCoordinates(Lattice(k)), h)
    elif family == "spectral":
        yield from _spectral(problem, cube)


def _spectral(problem: Problem, cube: CubeKernel) -> Iterator[Candidate]:
    weighting = 0.5 if problem.gaussian else 0.25
    for k in _resolutions(problem, _SPECTRAL[cube.dimensions]):
        lattice, seen = Lattice(k), set()
        full = _full(cube, lattice, weighting)
        for threshold in _THRESHOLDS:
            rank = max(1, sum(level > threshold * full.levels[0] for level in full.levels))
            if rank not in seen:
                seen.add(rank)
                coordinates = GramCoordinates(lattice, full.cut(rank))
                for h in problem.orders(_SPECTRAL_ORDERS):
                    yield _candidate(problem, cube, coordinates, h)


@lru_cache(maxsize=4)
def _full(cube: CubeKernel, lattice: Lattice, weighting: float) -> LatticeSpectrum:
    return lattice_spectrum(cube, lattice, lattice.size, weighting)


def _resolutions(problem: Problem, usual: tuple[int, ...]) -> list[tuple[int, ...]]:
    if problem.k is not None:
        return [problem.k]
    return [(min(k, _LARGEST_K),) * problem.component.domain.dimensions for k in usual]


def _candidate(
    problem: Problem, cube: CubeKernel, coordinates: Coordinates, h: tuple[int, ...]
) -> Candidate:
    """Predict the errors of one way to release."""
    if problem.advanced:
        values = problem.component.outputs * coordinates.layout.size
        bound = problem.component.function_movement * math.sqrt(values)
    else:
        norm = 2 if problem.gaussian else 1
        bound = problem.component.movement(coordinates, norm, quick=True).value
    noise = bound / problem.n * problem.noise_ratio * unit_noise(coordinates, h, problem.gaussian)
    spectrum = coordinates.spectrum if isinstance(coordinates, GramCoordinates) else None
    farthest, rough = _errors(cube, coordinates.lattice.k, h, spectrum)
    ball = problem.component.approximation
    worst = farthest * (ball.radius if isinstance(ball, GramBall) else 1.0)
    typical = worst if problem.certified else rough / math.sqrt(min(CLUSTERS, problem.n))
    return Candidate(coordinates, h, noise, typical, worst, problem.certified)


@lru_cache(maxsize=512)
def _errors(
    cube: CubeKernel, k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> tuple[float, float]:
    """On a grid: the largest error of a function of norm one, and the mean square over bumps."""
    grid = _grid(cube.dimensions)
    released, points = Released(cube, k, h, spectrum), cube.points(grid)
    apart = cube.kernel(points, points) - released.weights(grid) @ released.features(grid).T
    rough = math.sqrt(float(np.square(apart).mean(axis=1).max()))
    return float(released.errors(grid).max()), rough


def _grid(axes: int) -> FloatArray:
    """Points off the lattice's, and the corners."""
    t = (1 - np.cos(np.linspace(0, np.pi, _GRID[axes]))) / 2
    return np.stack(np.meshgrid(*[t] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
