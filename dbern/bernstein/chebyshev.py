"""Chebyshev polynomials: nodes and coefficients, and bounds of a polynomial by its values there."""

from __future__ import annotations

import math

import numpy as np

from dbern.types import FloatArray

_OVERSAMPLING = 8


def chebyshev(count: int) -> tuple[FloatArray, FloatArray]:
    """Nodes in [-1, 1], and the map from values there to coefficients of T_0, T_1, .."""
    angles = (np.arange(count) + 0.5) * np.pi / count
    analysis = cosines(angles, count).T * (2 / count)
    analysis[0] /= 2
    return np.cos(angles), analysis


def cosines(angles: FloatArray, count: int) -> FloatArray:
    """Return ``T_a(cos theta)`` of Chebyshev polynomials T_0, T_1, .., shape (.., count)."""
    return np.cos(angles[..., None] * np.arange(count))


def enclosing_nodes(degree: int, oversampling: int = _OVERSAMPLING) -> tuple[FloatArray, float]:
    """Nodes y and a factor c with ``max |p| <= c max |p(y)|`` for every p of that degree.

    Ehlich and Zeller (1964): with M Chebyshev nodes and degree below M, c is
    ``1 / cos(pi degree / 2M)``; M is `oversampling` times the degree.
    """
    count = oversampling * max(degree, 1)
    nodes = (1 - np.cos((np.arange(count) + 0.5) * np.pi / count)) / 2
    return nodes, 1 / math.cos(math.pi * degree / (2 * count))
