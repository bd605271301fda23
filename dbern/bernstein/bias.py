"""What a noiseless release misses of a function, at worst over a class of functions.

A class is what a plan knows of its target without data: mixtures of kernel bumps (densities and
other sums over records), or a ball of the kernel's Hilbert space (regularised risk minimisers).
Bounds are in unit-cube units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from dbern.bernstein.approximation import bump_error, evaluation_matrix, lebesgue_constant
from dbern.bernstein.basis import bernstein_basis, enclosing_nodes
from dbern.bernstein.bins import AxisBins, binned_error
from dbern.bernstein.gram_bias import GramBall, StatedBall
from dbern.bernstein.kernels import OUTWARD, Kernel, kernel_of
from dbern.bernstein.maps import AxisMap, Maps
from dbern.bernstein.smoothness import Holder, Linear, Smooth
from dbern.bernstein.spectrum import AxisSpectrum

_TRUNCATION = 1e-12


class Approximation(Protocol):
    """A class of functions, and the sup error of its worst member."""

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``sup_y |f(y) - (B f)(y)|`` over the class, B the noiseless release."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `approximation_of` reads them back."""


@dataclass(frozen=True)
class Bumps:
    """Mixtures ``sum_i w_i K(. - t_i)`` with ``sum |w_i| <= 1``; point masses attain the bound.

    Not `attained`: those of a learner that has no point masses.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> rough, fine = (Bumps((Gaussian(0.2),)).error([20], [h], [None]) for h in (1, 4))
    >>> fine < rough
    True
    """

    kernels: tuple[Kernel, ...]
    attained: bool = True

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Telescoped one axis at a time: ``prod (s_i + a_i) - prod s_i``.

        s_i are the axes' suprema and a_i their errors. A mixture errs by at most its worst bump.
        """
        errors = [_bump_error(*axis) for axis in zip(self.kernels, k, h, maps, strict=True)]
        return _telescoped([kernel.peak for kernel in self.kernels], errors)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        content = {"class": "mixture of bumps", "kernels": _listed(self.kernels)}
        return content if self.attained else {**content, "attained": False}


@dataclass(frozen=True)
class Ball:
    """Functions of norm at most `radius` in the Hilbert space of the product kernel.

    ``|f(y) - (B f)(y)| = |<f, K_y - sum_v b_v(y) K_v>| <= |f| |K_y - sum_v b_v(y) K_v|``, and the
    last norm telescopes over axes like a product of functions. The kernel is the product of the
    axis kernels, densities as they are: its diagonal is the product of their peaks.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> near, far = (Ball((Gaussian(0.3),), 1.0).error([k], [4], [None]) for k in (20, 5))
    >>> near < far
    True
    """

    kernels: tuple[Kernel, ...]
    radius: float

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """See the class."""
        spectra = [None if isinstance(one, AxisBins) else one for one in maps]
        if spectra != list(maps):
            raise ValueError("bins hold sums over records, not values of a function")
        errors = [feature_error(*axis) for axis in zip(self.kernels, k, h, spectra, strict=True)]
        sizes = [math.sqrt(kernel.peak) for kernel in self.kernels]
        return OUTWARD * self.radius * _telescoped(sizes, errors)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"class": "ball", "kernels": _listed(self.kernels), "radius": self.radius}


def _listed(kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
    return [{"name": kernel.name, "bandwidth": kernel.bandwidth} for kernel in kernels]


def approximation_of(content: Mapping[str, Any]) -> Approximation:
    """The class of functions that `to_dict` wrote."""
    if content["class"] == "linear":
        return Linear()
    if content["class"] == "holder":
        return Holder(content["constant"], content["exponent"])
    if content["class"] == "smooth":
        return Smooth(content["order"], content["bound"])
    if content["class"] == "reproducing ball":
        return GramBall.from_dict(content)
    if content["class"] == "stated ball":
        return StatedBall.from_dict(content)
    kernels = tuple(kernel_of(one["name"], one["bandwidth"]) for one in content["kernels"])
    if content["class"] == "ball":
        return Ball(kernels, content["radius"])
    return Bumps(kernels, content.get("attained", True))


def _bump_error(kernel: Kernel, k: int, h: int, axis: AxisMap | None) -> float:
    if isinstance(axis, AxisBins):
        return binned_error(kernel, k, h, axis)
    return bump_error(kernel, k, h, axis)


def _telescoped(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """``prod (s_i + a_i) - prod s_i``, rounded outward."""
    grown = math.prod(size + error for size, error in zip(sizes, errors, strict=True))
    return OUTWARD * (grown - math.prod(sizes)) + 2.0**-45 * grown


@lru_cache(maxsize=256)
def feature_error(kernel: Kernel, k: int, h: int, spectrum: AxisSpectrum | None = None) -> float:
    """Bound ``sup_y |K_y - sum_v b_v(y) K_v|`` in the norm of the axis kernel's Hilbert space.

    Its square ``K(0) - 2 b M (K(v/k - y))_v + b M G M' b'`` is, up to a proved Chebyshev tail of
    K, a polynomial of degree ``max(2 k, k + D)`` in y, which nodes enclose (`enclosing_nodes`).
    For kernels without kinks.

    Raises
    ------
    ValueError
        For a kernel with kinks.
    """
    if kernel.kinks:
        raise ValueError("the enclosure is proved for smooth kernels")
    norm = lebesgue_constant(k, h, spectrum)
    degree, tail = kernel.degree_for(_TRUNCATION, radius=0.5)
    nodes, factor = enclosing_nodes(max(2 * k, k + degree), oversampling=4)
    lattice = np.arange(k + 1) / k
    gram = kernel(lattice[:, None] - lattice)
    worst = 0.0
    for part in np.array_split(nodes, max(1, len(nodes) // 1024)):
        weights = bernstein_basis(part, k) @ evaluation_matrix(k, h, spectrum)
        cross = kernel(part[:, None] - lattice)
        squares = kernel.peak - 2 * (weights * cross).sum(axis=1)
        squares += ((weights @ gram) * weights).sum(axis=1)
        worst = max(worst, float(np.abs(squares).max()))
    # Each product sums k + 1 terms of at most `norm` times the peak; doubled for higher orders.
    rounding = 2 * (4 * (k + 32) * 2.0**-53) * (1 + norm) ** 2 * (kernel.peak + kernel.slope)
    loose = 2 * norm * tail
    return OUTWARD * math.sqrt(factor * (worst + rounding + loose) + loose)
