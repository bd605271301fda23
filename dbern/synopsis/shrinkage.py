"""Released bins are shrunk where nothing stands out of their noise.

What bins hold of a window of 3 or 5 an axis is a sum T of counts, with noise of the public variance
V. ``w^2 V + (1 - w)^2 (T^2 - V)`` estimates the risk of ``w T`` without bias, and is least at
``w = 1 - V / T^2`` (James and Stein 1961). Each bin is multiplied by the larger
``max(0, 1 - 4 V / T^2)`` of the two windows around it, T above zero: V counts four times, as there
are many windows. Bins where nothing stands out of the noise vanish, and those with many records
stay. Small bumps may hide below the noise, so no band that holds for every database is narrower for
this (Low 1997): the function is moved by at most a share of the certificate's noise, which counts
it (`shrunk_within`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dbern.bernstein.blocks import on_others
from dbern.bernstein.kernels import OUTWARD
from dbern.certify.noise_quantile import Enclosure, enclose
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct.base import Strategy
from dbern.system.cache import LRUCache
from dbern.types import FloatArray

_REACHES, _CAUTION = (1, 2), 4.0  # bins on either side of a window's middle; times the variance
_LEAST_EMPTY = 0.4  # of the bins: from there on errors fall by 4 to 40 %
_OVERSAMPLING, _CUT, _ENCLOSING = (8, 6, 4, 3), 1e-8, 4e9  # of what encloses a movement; its work
_CHANGES = 1 << 23  # values of a movement in memory at a time (64 MiB)
_ADDED = 2.0**-52  # of values: rounding of a share of the movement, and of the sum

_ENCLOSURES = LRUCache[Enclosure](1 << 25, lambda nodes: sum(rows.nbytes for rows in nodes.bases))


def shrunk(values: FloatArray, noise: NoiseCovariance) -> FloatArray:
    """Return noisy bins less what does not stand out of the noise, by the windows around each."""
    factors = np.zeros_like(values)
    for reach in _REACHES:
        sums, counts = values, np.ones_like(values)
        for axis in range(values.ndim):
            sums, counts = _windowed(sums, reach, axis), _windowed(counts, reach, axis)
        relative_variances = noise.variance(counts, counts) / np.square(
            np.where(sums > 0, sums, np.inf)
        )
        factors = np.maximum(factors, np.where(sums > 0, 1 - _CAUTION * relative_variances, 0.0))
    return factors * values


def shrunk_within(
    values: FloatArray,
    noise: NoiseCovariance,
    strategy: Strategy,
    h: Sequence[int],
    max_distance: float,
) -> tuple[FloatArray, float, float]:
    """Return bins moved towards `shrunk` ones, how far their function is moved, and by what share.

    The share is the largest up to 1 that moves it by at most `max_distance`; 0 where few bins
    are empty.
    """
    target = shrunk(values, noise)
    if np.mean(target == 0) < _LEAST_EMPTY:
        return values, 0.0, 0.0
    for oversampling in _OVERSAMPLING:
        nodes = _enclosure(strategy, tuple(h), oversampling)
        first, *rest = nodes.bases
        count = math.prod(map(len, nodes.bases))
        if count * first.shape[1] <= min(_ENCLOSING, _CHANGES * len(first)):
            break
    step, distance = target - values, 0.0
    lines = on_others(step, rest).reshape(len(step), -1)
    for rows in np.array_split(first, math.ceil(count / _CHANGES)):
        changes = rows @ lines
        distance = max(distance, float(changes.max()), -float(changes.min()))
    distance = OUTWARD * (nodes.factor * distance + nodes.loose * float(np.abs(step).max()))
    floats = _ADDED * strategy.released_norm(h) * float(np.abs(values).max())
    fraction = 0.0
    if distance > 0:
        fraction = min(1.0, max(0.0, max_distance / OUTWARD**2 - floats) / distance)
    return values + fraction * step, OUTWARD * (fraction * distance + floats), fraction


def _enclosure(strategy: Strategy, h: tuple[int, ...], oversampling: int) -> Enclosure:
    """Enclose movements of a strategy's function, once for all releases of a design."""
    key = strategy, h, oversampling
    return _ENCLOSURES(key, lambda: enclose(strategy, h, oversampling, _CUT))


def _windowed(values: FloatArray, reach: int, axis: int) -> FloatArray:
    edges = [(reach * (i == axis),) * 2 for i in range(values.ndim)]
    padded = np.pad(values, edges)
    return np.asarray(sliding_window_view(padded, 2 * reach + 1, axis).sum(axis=-1))
