"""Choose order and rank after release, from the released values alone: free post-processing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.blocks import Blocks, blocks_of, on_axes
from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.maps import AxisMap, axis_maps, coordinates_of, maps_of
from dbern.noise_bounds import synthesis_matrices, whole_synthesis

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3)
_MOST_NODES = 48  # along an axis
_MOST_PLACES = 1 << 20  # in the grid of nodes
_SUMS = 1 << 23  # numbers at nodes, of all the candidates of one pass (64 MiB)
_MOST_WHOLE = 1024  # nodes in all, where axes do not factor


@dataclass(frozen=True)
class Smoothing:
    """An order per axis, and how many leading components of each axis are used (None: plain)."""

    h: tuple[int, ...]
    ranks: tuple[int | None, ...]


def whole_ranks(coordinates: Coordinates) -> tuple[int | None, ...]:
    """Every released component; None for each axis of plain lattice values."""
    return tuple(None if one is None else one.rank for one in axis_maps(coordinates))


def smoothings(coordinates: Coordinates, h: Sequence[int]) -> list[Smoothing]:
    """What may be chosen: `h` and the usual orders, at some shares of the released ranks."""
    maps = axis_maps(coordinates)
    orders = dict.fromkeys([tuple(h), *((order,) * len(h) for order in ORDERS)])
    shares = (1.0,) if maps[0] is None else _SHARES
    found = (
        Smoothing(
            order,
            tuple(None if s is None else max(1, math.ceil(share * s.rank)) for s in maps),
        )
        for order, share in itertools.product(orders, shares)
    )
    return list(dict.fromkeys(found))


def smoothed(coordinates: Coordinates, smoothing: Smoothing) -> Coordinates:
    """The same release, used at the smoothing's ranks; its released values stay all of them."""
    maps = zip(maps_of(coordinates), smoothing.ranks, strict=False)  # plain: no maps
    return coordinates_of(coordinates.lattice, [_used(one, rank) for one, rank in maps])


def _used(one: AxisMap, rank: int | None) -> AxisMap:
    return one if rank is None or rank == one.rank else one.using(rank)


def select(
    released: FloatArray | Blocks, deviation: float, coordinates: Coordinates, h: Sequence[int]
) -> Smoothing:
    """The smoothing with the least estimated mean squared error over the domain.

    Mallows' Cp: with M_c the linear map of a candidate and M_0 that of the least biased one,
    ``|M_c y - M_0 y|^2 - sigma^2 |M_c - M_0|^2 + sigma^2 |M_c|^2`` is an unbiased estimate of the
    candidate's error but for the bias of M_0, because the variance sigma^2 of the noise is public.
    Norms are over Gauss nodes. Blocks are read once for as many candidates as fit in memory.

    Parameters
    ----------
    released : array or Blocks
        Released values, of the coordinates' layout.
    deviation : float
        Standard deviation of the noise, in the same unit.
    """
    candidates = smoothings(coordinates, h)
    bases = list(_bases(coordinates, candidates))
    least_biased = max(range(len(candidates)), key=lambda i: _size(candidates[i]))
    zero, variance = bases[least_biased], deviation**2
    estimates = []
    for basis, apart in zip(bases, _apart(blocks_of(released), bases, least_biased), strict=True):
        own, shared = _product(basis, basis), _product(basis, zero)
        between = own + _product(zero, zero) - 2 * shared
        estimates.append(apart - variance * between + variance * own)
    return candidates[int(np.argmin(estimates))]


def noise_deviation(deviation: float, coordinates: Coordinates, smoothing: Smoothing) -> float:
    """The root mean square of the noise of the values over the domain, from public facts alone.

    Parameters
    ----------
    deviation : float
        Standard deviation of the noise of a released value.
    """
    basis = next(_bases(coordinates, [smoothing]))
    return deviation * math.sqrt(_product(basis, basis))


def _apart(blocks: Blocks, bases: Sequence[Sequence[FloatArray]], reference: int) -> list[float]:
    """Squared distances of each map's values from those of the reference."""
    shape = [len(matrix) for matrix in bases[0]]
    together = max(1, _SUMS // math.prod(shape) - 1)
    found = []
    for start in range(0, len(bases), together):
        maps = [bases[reference], *bases[start : start + together]]
        values = [np.zeros(shape) for _ in maps]
        for place, part in blocks:
            for total, (first, *others) in zip(values, maps, strict=True):
                total += on_axes(part, [first[:, place], *others])
        found += [float(np.square(each - values[0]).sum()) for each in values[1:]]
    return found


def _size(smoothing: Smoothing) -> tuple[int, int]:
    return sum(rank or 0 for rank in smoothing.ranks), sum(smoothing.h)


def _bases(coordinates: Coordinates, candidates: Sequence[Smoothing]) -> Iterator[list[FloatArray]]:
    """Per candidate and axis, released values to values at Gauss nodes, root weights inside."""
    first, axes = whole_synthesis(coordinates), []
    share = 1 / len(coordinates.lattice.k)
    most = min(_MOST_NODES, round(_MOST_PLACES**share))
    most = most if first is None else round(_MOST_WHOLE**share)
    for k in coordinates.lattice.k:
        nodes, weights = np.polynomial.legendre.leggauss(min(k + 1, most))
        axes.append(np.sqrt(weights / 2)[:, None] * bernstein_basis((nodes + 1) / 2, k))
    for candidate in candidates:
        used = smoothed(coordinates, candidate)
        matrices = synthesis_matrices(used, candidate.h)
        bases = [axis @ matrix for axis, matrix in zip(axes, matrices, strict=True)]
        whole = whole_synthesis(used)
        yield bases if whole is None else [_apply(whole, bases).reshape(whole.shape[-1], -1).T]


def _apply(values: FloatArray, bases: Sequence[FloatArray]) -> FloatArray:
    for basis in bases:
        values = np.tensordot(values, basis, axes=(0, 1))
    return values


def _product(left: Sequence[FloatArray], right: Sequence[FloatArray]) -> float:
    """The Frobenius product of two maps, which factors over axes."""
    return math.prod(float((a * b).sum()) for a, b in zip(left, right, strict=True))
