"""Order and rank of a released lattice: the candidates, and the choice by released values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.basis import INTERPOLATED
from dbern.bernstein.blocks import Blocks, blocks_of, on_axes
from dbern.certify.mean_squares import gauss_values, trace
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct import strategy_of
from dbern.reconstruct.base import Strategy
from dbern.types import FloatArray

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_RANK_FRACTIONS = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3)
_SUMS = 1 << 23  # numbers at nodes, of all the candidates of one pass (64 MiB)


@dataclass(frozen=True)
class Smoothing:
    """An order per axis, and how many leading components of each axis are used (None: plain).

    `raw`: of the bins as they were released, where the lattice is of shrunk ones.
    """

    h: tuple[int, ...]
    ranks: tuple[int | None, ...]
    raw: bool = False


def full_ranks(strategy: Strategy) -> tuple[int | None, ...]:
    """Return how many components each axis has; None for plain lattice values."""
    return tuple(None if axis_map is None else axis_map.rank for axis_map in strategy.axis_maps)


def smoothings(strategy: Strategy, h: Sequence[int]) -> list[Smoothing]:
    """Return the public candidates: `h` and the usual orders, at some shares of the ranks."""
    maps = strategy.axis_maps
    orders = dict.fromkeys([tuple(h), *((order,) * len(h) for order in ORDERS)])
    if set(h) == {INTERPOLATED}:  # which has no others
        orders = dict.fromkeys([tuple(h)])
    fractions = (1.0,) if maps[0] is None else _RANK_FRACTIONS
    candidates = (
        Smoothing(
            order,
            tuple(
                None if axis_map is None else max(1, math.ceil(fraction * axis_map.rank))
                for axis_map in maps
            ),
        )
        for order, fraction in itertools.product(orders, fractions)
    )
    return list(dict.fromkeys(candidates))


def smoothed(strategy: Strategy, smoothing: Smoothing) -> Strategy:
    """Return the same release, used at the smoothing's ranks; all its values stay."""
    maps = zip(strategy.maps, smoothing.ranks, strict=False)  # plain: no maps
    used = [
        axis_map if rank is None or rank == axis_map.rank else axis_map.using(rank)
        for axis_map, rank in maps
    ]
    return strategy_of(strategy.lattice, used)


def select(
    released: FloatArray | Blocks, noise: NoiseCovariance, strategy: Strategy, h: Sequence[int]
) -> Smoothing:
    """Return the smoothing with the least estimated mean squared error over the domain.

    Mallows' Cp: with M_c the linear map of a candidate and M_0 that of the least biased one,
    ``|M_c y - M_0 y|^2 - tr (M_c - M_0) S (M_c - M_0)' + tr M_c S M_c'`` is an unbiased estimate of
    the candidate's error but for the bias of M_0, because the covariance S of the noise is public.
    Norms are over Gauss nodes. Blocks are read once for as many candidates as fit in memory.
    """
    candidates = smoothings(strategy, h)
    bases = [gauss_values(smoothed(strategy, candidate), candidate.h) for candidate in candidates]
    sizes = [
        (sum(rank or 0 for rank in candidate.ranks), sum(candidate.h)) for candidate in candidates
    ]
    least_biased = sizes.index(max(sizes))
    reference, variance, c = bases[least_biased], noise.deviation**2, noise.correlation
    estimates = []
    for basis, distance in zip(
        bases, _squared_distances(blocks_of(released), bases, least_biased), strict=True
    ):
        variance_trace, cross_trace = trace(basis, basis, c), trace(basis, reference, c)
        difference_trace = variance_trace + trace(reference, reference, c) - 2 * cross_trace
        estimates.append(distance - variance * difference_trace + variance * variance_trace)
    return candidates[int(np.argmin(estimates))]


def _squared_distances(
    blocks: Blocks, bases: Sequence[Sequence[FloatArray]], reference: int
) -> list[float]:
    shape = [len(matrix) for matrix in bases[0]]
    together = max(1, _SUMS // math.prod(shape) - 1)
    distances = []
    for start in range(0, len(bases), together):
        maps = [bases[reference], *bases[start : start + together]]
        values = [np.zeros(shape) for _ in maps]
        for layers, block in blocks:
            for total, (first, *rest) in zip(values, maps, strict=True):
                total += on_axes(block, [first[:, layers], *rest])
        distances += [
            float(np.square(candidate_values - values[0]).sum()) for candidate_values in values[1:]
        ]
    return distances
