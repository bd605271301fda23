"""Mean square of a released function's noise over the whole domain, at Gauss nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from dbern.bernstein.basis import coefficient_basis
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct.base import Strategy
from dbern.types import FloatArray

_MOST_AXIS_NODES = 48
_MOST_GRID_NODES = 1 << 20
_MOST_WHOLE_NODES = 1024  # in all, where axes do not factor


def gauss_values(strategy: Strategy, h: Sequence[int]) -> list[FloatArray]:
    """Return maps from released values to values at nodes, axis by axis or one for all axes.

    Rows are times the roots of the nodes' weights.
    """
    lattice, joint = strategy.lattice.k, strategy.joint_synthesis
    nodes = _MOST_GRID_NODES if joint is None else _MOST_WHOLE_NODES
    most = round(nodes ** (1 / len(lattice)))
    most = min(_MOST_AXIS_NODES, most) if joint is None else most
    axes = zip(lattice, h, strategy.matrices(h), strict=True)
    bases = [_gauss_basis(k, order, min(k + 1, most)) @ matrix for k, order, matrix in axes]
    if joint is None:
        return bases
    values = joint
    for basis in bases:
        values = np.tensordot(values, basis, axes=(0, 1))
    return [values.reshape(joint.shape[-1], -1).T]


@lru_cache(maxsize=16)
def _gauss_basis(k: int, h: int, count: int) -> FloatArray:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return np.asarray(np.sqrt(weights / 2)[:, None] * coefficient_basis((nodes + 1) / 2, k, h))


def trace(left: Sequence[FloatArray], right: Sequence[FloatArray], correlation: float) -> float:
    """Return ``tr L S R'``, S with ones on its diagonal and the correlation elsewhere."""
    independent = math.prod(float((a * b).sum()) for a, b in zip(left, right, strict=True))
    if correlation == 0:
        return independent
    sums = ((a.sum(axis=1), b.sum(axis=1)) for a, b in zip(left, right, strict=True))
    return (1 - correlation) * independent + correlation * math.prod(float(a @ b) for a, b in sums)


def values_at_nodes(strategy: Strategy, h: Sequence[int], released: Any) -> FloatArray:
    """Return a function's values at the nodes, (nodes,), times the roots of the nodes' weights."""
    values = np.asarray(released, np.float64)
    for basis in gauss_values(strategy, h):
        values = np.tensordot(values, basis, axes=(0, 1))
    return values.ravel()


def noise_at_nodes(strategy: Strategy, h: Sequence[int], noise: NoiseCovariance) -> FloatArray:
    """Return the shares of the nodes, (nodes,), in the square of `typical_noise`."""
    squares, sums = np.ones(()), np.ones(())
    for basis in gauss_values(strategy, h):
        squares = np.multiply.outer(squares, np.square(basis).sum(axis=1))
        sums = np.multiply.outer(sums, basis.sum(axis=1))
    variances = replace(noise, deviation=1.0).variance(squares, sums).ravel()
    return np.asarray(variances / variances.sum())


def typical_noise(strategy: Strategy, h: Sequence[int], noise: NoiseCovariance) -> float:
    """Return the root mean square, over the domain, of the noise of values."""
    basis = gauss_values(strategy, h)
    return noise.deviation * math.sqrt(trace(basis, basis, noise.correlation))
