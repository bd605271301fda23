"""Worst error of a noiseless release, over a class of functions; here, over mixtures of kernels.

A class is what a plan knows of its target without data: mixtures of kernel translates (densities
and other sums over records, regularized risk minimizers), balls of a Hilbert space
(`dbern.certify.balls`), or declared smoothness (`dbern.certify.smoothness`). Bounds are in
unit-cube units.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.bias_envelopes import largest_errors, telescoped
from dbern.certify.translate_errors import translate_error
from dbern.reconstruct.axis_maps import AxisMap, LinearMap, Maps
from dbern.reconstruct.bins import AxisBins
from dbern.types import FloatArray


class Approximation(ABC):
    """A class of functions, and the sup error of its worst member.

    `choices`: the release chose it from so many classes by looking at its noisy values, so that the
    bound is one on all of them at once. `remedies`: parts of a spec that, besides a larger epsilon,
    make the bound smaller.
    """

    choices: int = 1
    remedies: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``sup_y |f(y) - (B f)(y)|`` over the class, B the noiseless release."""

    @property
    def highest(self) -> float:
        """Bound any value's size; infinite where nothing is known."""
        return math.inf

    def stored(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> Approximation:
        """The class as a synopsis stores it, whose reader has no kernel of the user's."""
        del k, h, maps
        return self


@dataclass(frozen=True)
class KernelMixture(Approximation):
    """Mixtures ``sum_i w_i K(. - t_i)`` with ``sum |w_i| <= 1``; point masses attain the bound.

    With a `gap`, of sums over one axis: ``sum |w_i|`` of the t_i in any interval is at most its
    length and `gap`, so none is a point mass (`dbern.learn.gaps`).
    """

    kernels: tuple[Kernel, ...]
    gap: float = 0.0
    choices: int = 1
    remedies = "wider kernels", 'objective = "certified"'

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Telescoped one axis at a time: ``prod (s_i + a_i) - prod s_i``.

        s_i are the axes' suprema and a_i their errors. A mixture errs by its worst at most.
        """
        axes = zip(self.kernels, k, h, maps, strict=True)
        errors = [_translate_error(*axis, self.gap) for axis in axes]
        peaks = (kernel.peak for kernel in self.kernels)
        return float(telescoped(zip(peaks, errors, strict=True)))

    @property
    def highest(self) -> float:
        """Bound any value's size."""
        return math.prod(kernel.peak for kernel in self.kernels)


def remedies_of(
    approximation: Approximation | None, perturbed: bool, lists: bool
) -> tuple[str, ...]:
    """Return what to write in a spec so that more is promised of any database.

    There is no `approximation` of numbers that make a function: where these are of a perturbed
    objective, weights promise more, and are for axes of numbers.
    """
    if approximation or not perturbed:
        return "a larger epsilon", *(approximation.remedies if approximation else ())
    return () if lists else ('method = "weights" under target',)


def _translate_error(kernel: Kernel, k: int, h: int, axis: AxisMap | None, gap: float) -> float:
    if isinstance(axis, AxisBins):
        pieces = largest_errors(kernel, k, h, axis.narrow)
        return _spread_error(pieces, gap) if gap else float(pieces.max())
    return translate_error(kernel, k, h, cast(LinearMap | None, axis))


def _spread_error(pieces: FloatArray, gap: float) -> float:
    """Bound the error for a measure v of at most ``length + gap`` on any interval, and 1.

    Let R bound the error for a translate, by `pieces` for each cell of y. Where it exceeds s are
    q(s) intervals of length L(s) in all, so that ``int R d|v| = int_0^oo |v|(R > s) ds <= int L(s)
    + gap q(s) ds``: the mean of R and `gap` times the sum of its rises, from 0 at the start; and at
    most ``max R``.
    """
    rises = np.diff(pieces, axis=1, prepend=0.0).clip(0.0).sum(axis=1)
    errors = np.minimum(pieces.mean(axis=1) + gap * rises, pieces.max(axis=1))
    return float(OUTWARD * errors.max())
