"""What a noiseless release misses of a function, at worst over a class of functions.

A class is what a plan knows of its target without data: mixtures of kernel bumps (densities and
other sums over records, regularized risk minimizers), balls of a Hilbert space (`gram_bias`), or
stated smoothness (`smoothness`).
Bounds are in unit-cube units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dbern.bernstein.approximation import bump_error
from dbern.bernstein.bins import AxisBins, binned_error
from dbern.bernstein.gram_bias import GramBall, StatedBall
from dbern.bernstein.kernels import OUTWARD, Kernel, kernel_of
from dbern.bernstein.maps import AxisMap, Maps
from dbern.bernstein.smoothness import Holder, Linear, Smooth


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
    return Bumps(kernels, content.get("attained", True))


def _bump_error(kernel: Kernel, k: int, h: int, axis: AxisMap | None) -> float:
    if isinstance(axis, AxisBins):
        return binned_error(kernel, k, h, axis)
    return bump_error(kernel, k, h, axis)


def _telescoped(sizes: Sequence[float], errors: Sequence[float]) -> float:
    """``prod (s_i + a_i) - prod s_i``, rounded outward."""
    grown = math.prod(size + error for size, error in zip(sizes, errors, strict=True))
    return OUTWARD * (grown - math.prod(sizes)) + 2.0**-45 * grown
