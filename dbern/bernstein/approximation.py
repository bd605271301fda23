"""How far an iterated Bernstein polynomial is from a kernel bump, at worst."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import (
    bernstein_basis,
    enclosing_nodes,
    iterated_matrix,
    lebesgue_constant,
)
from dbern.bernstein.kernels import OUTWARD, Gaussian

_TRUNCATION = 1e-6


@lru_cache(maxsize=64)
def bump_error(kernel: Gaussian, k: int, h: int) -> float:
    """Bound ``sup_{t,y} |K(y - t) - B^(h)_k K(. - t)(y)|`` over the unit square, outward.

    In each variable K is a polynomial of degree D up to a proved Chebyshev tail; the difference is
    then a polynomial of degree max(k, D) in y and D in t, which oversampled Chebyshev nodes
    enclose (`enclosing_nodes`). The tails enter once for K and once through the operator.

    Examples
    --------
    >>> wide, narrow = (bump_error(Gaussian(b), 20, 4) for b in (0.3, 0.1))
    >>> wide < narrow
    True
    """
    degree, tail = kernel.degree_for(_TRUNCATION, radius=0.5)
    y, y_factor = enclosing_nodes(max(k, degree))
    t, t_factor = enclosing_nodes(degree)
    y = y[: (len(y) + 1) // 2]  # symmetric under (y, t) -> (1 - y, 1 - t)
    lattice = iterated_matrix(k, h) @ kernel(np.arange(k + 1)[:, None] / k - t)
    worst = 0.0
    for first in range(0, len(y), 512):
        part = y[first : first + 512]
        error = kernel(part[:, None] - t) - bernstein_basis(part, k) @ lattice
        worst = max(worst, float(np.abs(error).max()))
    tails = (2 + lebesgue_constant(k, h)) * tail
    return OUTWARD * (y_factor * t_factor * (worst + tails) + tails)
