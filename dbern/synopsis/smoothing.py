"""Smoothing and shrinking of released values, by these values alone.

*Smoothing.* Order and rank of a released lattice may be chosen after the release, among public
candidates (`select`).

*Shrinking.* The bins of a window of 3 or 5 an axis have a sum T of counts, with noise of the
public variance V. ``w^2 V + (1 - w)^2 (T^2 - V)`` estimates the risk of ``w T`` without bias, and
is least at ``w = 1 - V / T^2`` (James and Stein 1961). Each bin is multiplied by the larger
``max(0, 1 - 4 V / T^2)`` of the two windows around it, T above zero: V counts four times, as there
are many windows. Bins where nothing stands out of the noise vanish, and those with many records
stay. Small bumps may hide below the noise, so no band that holds for every database is narrower for
this (Low 1997): the function is moved by at most a share of the certificate's noise, which counts
it (`shrink_within`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dbern.bernstein.basis import INTERPOLATED
from dbern.bernstein.blocks import Blocks, apply_to_axes, apply_to_others, blocks_of
from dbern.bernstein.kernels import OUTWARD
from dbern.certify.mean_square import gauss_values, trace
from dbern.certify.noise import Enclosure, enclose
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct import strategy_of
from dbern.reconstruct.base import Strategy
from dbern.system.machine import LRUCache
from dbern.types import FloatArray

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_RANK_FRACTIONS = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3)
_SUMS = 1 << 23  # numbers at nodes, of all the candidates of one pass (64 MiB)
_REACHES, _CAUTION = (1, 2), 4.0  # bins on either side of a window's middle; times the variance
_LEAST_EMPTY = 0.4  # of the bins: from there on errors fall by 4 to 40 %
_OVERSAMPLING, _CUT, _ENCLOSING = (8, 6, 4, 3), 1e-8, 4e9  # of what encloses a movement; its work
_CHANGES = 1 << 23  # values of a movement in memory at a time (64 MiB)
_FLOAT_ERROR = 2.0**-52  # of values: rounding of a share of the movement, and of the sum
_ENCLOSURES = LRUCache[Enclosure](1 << 25, lambda nodes: sum(rows.nbytes for rows in nodes.bases))


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
    """Return the strategy at the smoothing's ranks, for the same released values."""
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
    batch_size = max(1, _SUMS // math.prod(shape) - 1)
    distances = []
    for start in range(0, len(bases), batch_size):
        maps = [bases[reference], *bases[start : start + batch_size]]
        values = [np.zeros(shape) for _ in maps]
        for layers, block in blocks:
            for total, (first, *rest) in zip(values, maps, strict=True):
                total += apply_to_axes(block, [first[:, layers], *rest])
        distances += [
            float(np.square(candidate_values - values[0]).sum()) for candidate_values in values[1:]
        ]
    return distances


def shrink(values: FloatArray, noise: NoiseCovariance) -> FloatArray:
    """Shrink noisy bins, to 0 where the windows around them do not stand out of the noise."""
    factors = np.zeros_like(values)
    for reach in _REACHES:
        sums, counts = values, np.ones_like(values)
        for axis in range(values.ndim):
            sums, counts = _window_sums(sums, reach, axis), _window_sums(counts, reach, axis)
        relative_variances = noise.variance(counts, counts) / np.square(
            np.where(sums > 0, sums, np.inf)
        )
        factors = np.maximum(factors, np.where(sums > 0, 1 - _CAUTION * relative_variances, 0.0))
    return factors * values


def shrink_within(
    values: FloatArray,
    noise: NoiseCovariance,
    strategy: Strategy,
    h: Sequence[int],
    max_distance: float,
) -> tuple[FloatArray, float, float]:
    """Move bins towards those of `shrink`; return them, their function's distance, and the share.

    The share is the largest up to 1 that moves it by at most `max_distance`; 0 where few bins
    are empty.
    """
    target = shrink(values, noise)
    if np.mean(target == 0) < _LEAST_EMPTY:
        return values, 0.0, 0.0
    for oversampling in _OVERSAMPLING:
        enclosure = _enclosure(strategy, tuple(h), oversampling)
        first, *rest = enclosure.bases
        count = math.prod(map(len, enclosure.bases))
        if count * first.shape[1] <= min(_ENCLOSING, _CHANGES * len(first)):
            break
    step, distance = target - values, 0.0
    lines = apply_to_others(step, rest).reshape(len(step), -1)
    for rows in np.array_split(first, math.ceil(count / _CHANGES)):
        changes = rows @ lines
        distance = max(distance, float(changes.max()), -float(changes.min()))
    distance = OUTWARD * (enclosure.factor * distance + enclosure.loose * float(np.abs(step).max()))
    floats = _FLOAT_ERROR * strategy.released_norm(h) * float(np.abs(values).max())
    fraction = 0.0
    if distance > 0:
        fraction = min(1.0, max(0.0, max_distance / OUTWARD**2 - floats) / distance)
    return values + fraction * step, OUTWARD * (fraction * distance + floats), fraction


def _enclosure(strategy: Strategy, h: tuple[int, ...], oversampling: int) -> Enclosure:
    """Enclose movements of a strategy's function, once for all releases of a design."""
    key = strategy, h, oversampling
    return _ENCLOSURES(key, lambda: enclose(strategy, h, oversampling, _CUT))


def _window_sums(values: FloatArray, reach: int, axis: int) -> FloatArray:
    edges = [(reach * (i == axis),) * 2 for i in range(values.ndim)]
    padded = np.pad(values, edges)
    return np.asarray(sliding_window_view(padded, 2 * reach + 1, axis).sum(axis=-1))
