"""Candidates for kernels that are not products over axes.

Errors are predicted from the Gram matrix of the lattice, for expansions ``sum_i alpha_i K(d_i, .)``
with ``sum |alpha_i| <= 1`` in units of C M: the worst database is as bad as the ball that the
certificate speaks of, a typical one has 64 clusters of random signs at random positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dbern.certify.balls import GramBall, ReleaseOperator
from dbern.planning.predicted import largest_of_grid
from dbern.planning.search import LARGEST_K, MIN_POINT_MASS, Candidate, Search
from dbern.reconstruct.base import Lattice, LatticeStrategy, Strategy
from dbern.reconstruct.gram import CubeKernel, GramStrategy, LatticeSpectrum, lattice_spectrum
from dbern.types import FloatArray

_LATTICE_K = {1: (4, 8, 16, 32, 64), 2: (3, 5, 8, 12, 18, 26), 3: (2, 3, 5, 8)}
_LATTICE_ORDERS = (1, 2, 4, 8, 16)
_SPECTRAL_K = {1: (32, 96), 2: (12, 26), 3: (5, 9)}
_SPECTRAL_ORDERS = (8, 32)
_THRESHOLDS = tuple(10.0**-step for step in range(1, 9))
_GRID_POINTS = {1: 129, 2: 19, 3: 8}  # of an axis, by axes
_SIGNED_CLUSTERS = 64


def gram_candidates(strategy_kind: str, search: Search, cube: CubeKernel) -> Iterator[Candidate]:
    """Yield releases of lattice values (""), or of spectral coordinates; bins have none."""
    if strategy_kind == "":
        for k in _lengths(search, _LATTICE_K[cube.dimensions]):
            for h in search.orders(_LATTICE_ORDERS):
                yield _candidate(search, cube, LatticeStrategy(Lattice(k)), h)
    elif strategy_kind == "spectral":
        yield from _spectral_candidates(search, cube)


def _spectral_candidates(search: Search, cube: CubeKernel) -> Iterator[Candidate]:
    for k in _lengths(search, _SPECTRAL_K[cube.dimensions]):
        lattice, ranks = Lattice(k), set()
        spectrum = lattice_spectrum(cube, lattice, lattice.size, search.family.eigenvalue_exponent)
        for threshold in _THRESHOLDS:
            rank = max(
                1, sum(mu > threshold * spectrum.eigenvalues[0] for mu in spectrum.eigenvalues)
            )
            if rank not in ranks:
                ranks.add(rank)
                strategy = GramStrategy(lattice, spectrum.cut(rank))
                for h in search.orders(_SPECTRAL_ORDERS):
                    yield _candidate(search, cube, strategy, h)


def _lengths(search: Search, usual: tuple[int, ...]) -> list[tuple[int, ...]]:
    if search.k is not None:
        return [search.k]
    return [(min(k, LARGEST_K),) * search.statistic.domain.dimensions for k in usual]


def _candidate(
    search: Search, cube: CubeKernel, strategy: Strategy, h: tuple[int, ...]
) -> Candidate:
    """Predict the errors of a design."""
    spectrum = strategy.spectrum if isinstance(strategy, GramStrategy) else None
    noise, farthest, rough = _errors(cube, strategy.lattice.k, h, spectrum)
    deviation = search.family.covariance(strategy.layout.size).deviation
    noise *= deviation * search.sensitivity(strategy) / search.n * search.noise_ratio
    ball = search.statistic.function_class
    worst = farthest * (ball.radius if isinstance(ball, GramBall) else 1.0)
    typical = worst if search.certified else rough / math.sqrt(min(_SIGNED_CLUSTERS, search.n))
    return Candidate(strategy, h, noise, typical, worst, search.certified, MIN_POINT_MASS)


@lru_cache(maxsize=512)
def _errors(
    cube: CubeKernel, k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum | None
) -> tuple[float, float, float]:
    """On a grid: noise of unit deviation, the largest error of a function of norm one, and bumps'.

    Of bumps the mean square over them.
    """
    grid, bumps = _grid(cube)
    released = ReleaseOperator(cube, k, h, spectrum)
    weights = released.weights(grid)
    axes = [_GRID_POINTS[cube.dimensions]] * cube.dimensions
    noise = largest_of_grid(weights.reshape(*axes, -1))
    differences = bumps - weights @ released.features(grid).T
    rough = math.sqrt(float(np.square(differences).mean(axis=1).max()))
    return noise, float(released.errors(grid).max()), rough


@lru_cache(maxsize=4)
def _grid(cube: CubeKernel) -> tuple[FloatArray, FloatArray]:
    """Points off the lattice's, and the corners; and the kernel of any two."""
    axes = cube.dimensions
    t = (1 - np.cos(np.linspace(0, np.pi, _GRID_POINTS[axes]))) / 2
    grid = np.stack(np.meshgrid(*[t] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    points = cube.points(grid)
    return grid, np.asarray(cube.kernel(points, points))
