"""Worst error of a noiseless release over a class of functions: the certificate's first part.

A class is what a plan knows of its target without data: mixtures of kernel translates (densities
and other sums over records, regularized risk minimizers), declared smoothness, or balls of a
Hilbert space (`dbern.certify.balls`). Bounds are in unit-cube units.

*Stated smoothness.* The paper's three classes of functions, with explicit constants where it has
hidden ones.

On one axis the mechanism evaluates ``(P f)(y) = sum_v w_v(y) f(v/k)`` with ``w(y) = b(y) W_h``, and
the weights sum to one (Definition 5). What a class says of ``f(v/k) - f(y)`` bounds ``P f - f``:

- *Linear* (Theorem 1, iii): the operator reproduces linear functions, whatever its order.
- *Hoelder* (ii), ``|f(x) - f(y)| <= L |x - y|^gamma``: with ``d_v = |v/k - y|`` and bounds A of
  ``sum |w_v|``, B of ``sum |w_v| d_v^2``, the error is at most ``L sum_v |w_v| d_v^gamma <=
  L A^(1 - gamma/2) B^(gamma/2)`` by Hoelder's inequality. For h = 1, A = 1 and B = 1/(4k): the
  paper's constant.
- *Smooth* (i), r derivatives bounded by T: Taylor's theorem at y gives ``f(v/k) = sum_{j<r}
  f^(j)(y) (v/k - y)^j / j! + R_v``, ``|R_v| <= T d_v^r / r!``, so the error is at most
  ``T (sum_{0<j<r} |m_j| / j! + sum_v |w_v| d_v^r / r!)`` with ``m_j = sum_v w_v (v/k - y)^j``.

With the signs that they have at the largest y, all of these are polynomials of degree k + r in y,
which nodes enclose (`enclosing_nodes`). Over axes ``|f - P_1 .. P_l f| <= sum_i (prod_{j<i} A_j)
e_i``, e_i the error of axis i alone: one operator at a time, each of norm A_j.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

import numpy as np

from dbern.bernstein.basis import bernstein_basis, iterated_matrix
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.bias_envelopes import largest_errors, telescoped
from dbern.certify.translate_errors import translate_error
from dbern.errors import SpecError
from dbern.reconstruct.axis_maps import AxisMap, LinearMap, Maps
from dbern.reconstruct.bins import AxisBins
from dbern.reconstruct.series import lebesgue_constant
from dbern.types import FloatArray

_ROUNDING = 1e-11  # of the weights' moments, which are at most a few: far above their floats' error


class FunctionClass(ABC):
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

    @property
    def edge_factor(self) -> float:
        """Largest factor of errors, 1 where edges are natural (`Kernel`)."""
        return 1.0

    def stored(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> FunctionClass:
        """The class as a synopsis stores it, whose reader has no kernel of the user's."""
        del k, h, maps
        return self


@dataclass(frozen=True)
class KernelMixture(FunctionClass):
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
        return math.prod(kernel.highest for kernel in self.kernels)

    @property
    def edge_factor(self) -> float:
        """Largest factor of errors, 1 where edges are natural (`Kernel`)."""
        return math.prod(kernel.edge_factor for kernel in self.kernels)


def remedies_of(
    function_class: FunctionClass | None, perturbed: bool, lists: bool
) -> tuple[str, ...]:
    """Return what to write in a spec so that more is promised of any database.

    There is no `function_class` of numbers that make a function: where these are of a perturbed
    objective, weights promise more, and are for axes of numbers.
    """
    if function_class or not perturbed:
        return "a larger epsilon", *(function_class.remedies if function_class else ())
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


@dataclass(frozen=True)
class Linear(FunctionClass):
    """Affine functions: no approximation error."""

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Zero."""
        del k, h
        _lattice_values_only(maps)
        return 0.0


@dataclass(frozen=True)
class Holder(FunctionClass):
    """``|f(x) - f(y)| <= constant |x - y|^exponent`` in the largest coordinate, unit-cube units.

    Raises SpecError for an exponent outside (0, 1] or a constant that is not positive.
    """

    constant: float
    exponent: float
    remedies = ("another k",)

    def __post_init__(self) -> None:
        if not (0 < self.exponent <= 1 and 0 < self.constant < math.inf):
            raise SpecError(
                "target.smoothness: a Hoelder class has an exponent above 0 and at most 1 and a "
                "positive constant. Write smoothness = { holder = [1.0, 0.5] }"
            )

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``|f - B f|`` by the class *Hoelder*, axis by axis."""
        _lattice_values_only(maps)

        def axis_error(k: int, h: int) -> float:
            size, square = lebesgue_constant(k, h), absolute_moment(k, h, 2)
            share = self.exponent / 2
            return float(OUTWARD * self.constant * size ** (1 - share) * square**share)

        return _summed([axis_error(*axis) for axis in zip(k, h, strict=True)], k, h)


@dataclass(frozen=True)
class Smooth(FunctionClass):
    """Derivatives along each axis, of orders one to `order`, at most `bound`; unit-cube units.

    Raises SpecError for an order below one or a bound that is not positive.
    """

    order: int
    bound: float
    remedies = ("another k",)

    def __post_init__(self) -> None:
        if self.order < 1 or not 0 < self.bound < math.inf:
            raise SpecError(
                "target.smoothness: a smooth class has at least one derivative and a positive "
                "bound. Write smoothness = { derivatives = 4, bound = 10.0 }"
            )

    def error(self, k: Sequence[int], h: Sequence[int], maps: Maps) -> float:
        """Bound ``|f - B f|`` by Taylor's theorem (the class *Smooth*), axis by axis."""
        _lattice_values_only(maps)
        errors = [_taylor_error(*axis, self.order) for axis in zip(k, h, strict=True)]
        return _summed([OUTWARD * self.bound * error for error in errors], k, h)


def _lattice_values_only(maps: Maps) -> None:
    if any(axis is not None for axis in maps):
        raise ValueError("stated smoothness bounds releases of lattice values only")


def _summed(errors: Sequence[float], k: Sequence[int], h: Sequence[int]) -> float:
    total, norm = 0.0, 1.0
    for error, *axis in zip(errors, k, h, strict=True):
        total += norm * error
        norm *= lebesgue_constant(*axis)
    return OUTWARD * total


@lru_cache(maxsize=256)
def absolute_moment(k: int, h: int, power: int) -> float:
    """Bound ``sup_y sum_v |w_v(y)| |v/k - y|^power``; odd powers by Cauchy-Schwarz."""
    if power % 2:
        lower, upper = (absolute_moment(k, h, power + step) for step in (-1, 1))
        return OUTWARD * math.sqrt(lower * upper)
    nodes, factor = enclosing_nodes(k + power)
    weights = np.abs(bernstein_basis(nodes, k) @ iterated_matrix(k, h))
    distances = np.arange(k + 1) / k - nodes[:, None]
    return factor * float((weights * distances**power).sum(axis=1).max()) + _ROUNDING


@lru_cache(maxsize=256)
def _taylor_error(k: int, h: int, order: int) -> float:
    """Bound the error of the worst function whose derivatives are at most one."""
    rest = absolute_moment(k, h, order) / math.factorial(order)
    nodes, factor = enclosing_nodes(k + order)
    weights = bernstein_basis(nodes, k) @ iterated_matrix(k, h)
    distances = np.arange(k + 1) / k - nodes[:, None]
    moments = [
        np.abs((weights * distances**j).sum(axis=1)) / math.factorial(j) for j in range(2, order)
    ]  # the first is zero: linear functions are reproduced
    worst = float(np.sum(moments, axis=0).max()) if moments else 0.0
    return factor * worst + rest + _ROUNDING
