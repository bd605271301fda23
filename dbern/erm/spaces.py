"""Spaces of functions ``f(y) = <w, phi(y)>``, phi public, that a minimizer is chosen from.

A released function has coordinates that are a public linear map of w, so what one record does to
them is the norm of that map times what it does to w. The map is computed in floats; its error is
bounded by the norm of w, and enters the noise like every other float error.

*Linear functions* of unit-cube coordinates are released by their weights
(`dbern.erm.statistics`). Records are projected to the unit ball of unit-cube coordinates (Aldà and
Rubinstein's assumption), which bounds kappa; the function is that of all points.

*Expansions* ``f = sum_i alpha_i K(d_i, .)`` in the records of a shard. Nothing is cut: the kernel
itself is learned with, solved with the Gram matrix of each shard's records.

*Products over axes* of Laplace and Matern kernels: with c the product of the axes' integrals,
``K = c K'``, K' a product of densities, and `rkhs_sensitivity` applies as in
`dbern.erm.gaussian_features`. By stationarity the minimizer is a mixture of kernel translates.

*Any other kernel*, polynomial, arc-cosine or a user's, goes through the Gram matrix of the whole
lattice (`dbern.reconstruct.gram`); what a release misses of a ball of its Hilbert space is enclosed
(`dbern.certify.balls`). Of a user's kernel nothing is proved by us: privacy rests on its declared
supremum, and that it is positive definite.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.kernels import Kernel as Density
from dbern.bernstein.reproducing import Kernel, Linear, Stationary
from dbern.certify.approximation import FunctionClass, KernelMixture
from dbern.certify.balls import GramBall
from dbern.erm.losses import Pairs
from dbern.erm.risk import Risk
from dbern.erm.shards import STORED_FEATURES
from dbern.errors import SpecError
from dbern.reconstruct.base import Lattice, LatticeMapStrategy, SensitivityBound
from dbern.reconstruct.gram import CubeKernel, GramStrategy, rkhs_sensitivity
from dbern.types import FloatArray

MIN_SHARD_ROWS, _MAX_SHARD_ROWS = 1 << 16, 1 << 20  # of an automatic shard of features
STATIONARY = ("laplace", "matern-3/2", "matern-5/2")
"""Products over axes of these; "laplace" is Matern 1/2."""
SHARD_ROWS = 2048
"""Rows of an automatic shard: its Gram matrix takes 32 MiB, and solving is quadratic in it."""
_LINE_POINTS = 64  # on a line, where the constants of a kernel are tried


class Space(ABC):
    """Functions ``<w, phi(y)>`` of the Hilbert space of `kernel`, which is learned with."""

    kernel: Kernel

    @property
    @abstractmethod
    def radius(self) -> float:
        """Largest Euclidean norm of a record's point."""

    @property
    @abstractmethod
    def shard_rows(self) -> int:
        """Rows of an automatic shard."""

    @property
    def bound(self) -> float:
        """``sup |phi(y)|`` over the unit cube."""
        return OUTWARD * math.sqrt(self.kernel.bound(self.radius))

    @property
    def stored_params(self) -> dict[str, Any]:
        """Parameters that the plan stores, as JSON values; `with_params` reads them."""
        return {}

    def resolved(self, risk_factor: float, n: int) -> Self:  # noqa: ARG002 - where a cut is chosen
        """The space for n records; a cut of the kernel costs `risk_factor` times itself."""
        return self

    def largest_factor(self, maximum: float) -> float:
        """Largest `risk_factor` up to `maximum` that `resolved` does not refuse."""
        return maximum

    def with_params(self, params: Mapping[str, Any]) -> Self:  # noqa: ARG002 - where some is stored
        """The space that these `stored_params` are of."""
        return self

    def points(self, positions: FloatArray) -> FloatArray:
        """Points (m, l) of records at unit-cube positions, each by its own alone."""
        return positions

    def cut_error(self, risk: Risk) -> float:  # noqa: ARG002 - where the kernel is cut
        """Bound the change of the minimizer by cutting the kernel, at any point."""
        return 0.0

    @abstractmethod
    def drift(self, distance: float) -> float:
        """Bound how far a feature moves with its point, `distance` on each axis: accuracy alone."""


class FeatureMap(Space):
    """Linear functions ``w . phi(y)`` of public features phi."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of features."""

    @property
    def shard_rows(self) -> int:
        """Rows whose features are kept while a shard is solved."""
        return min(_MAX_SHARD_ROWS, max(MIN_SHARD_ROWS, STORED_FEATURES // self.size))


@dataclass(frozen=True)
class LinearFeatures(FeatureMap):
    """``w . y + w_0 constant`` in unit-cube coordinates; points are projected to the unit ball."""

    dimensions: int
    kernel: Linear
    radius = OUTWARD  # of the unit ball, and the rounding of the projection

    @property
    def bound(self) -> float:
        """``|phi|`` at the far corner of the cube."""
        return OUTWARD * math.sqrt(self.dimensions + self.kernel.constant**2)

    @property
    def size(self) -> int:
        """The coordinates, and the constant where it is not zero."""
        return self.dimensions + (self.kernel.constant > 0)

    def points(self, positions: FloatArray) -> FloatArray:
        """Divide positions by their norm where it exceeds one."""
        lengths = np.sqrt((positions * positions).sum(axis=1, keepdims=True))
        return np.asarray(positions / np.maximum(lengths, 1.0))

    def drift(self, distance: float) -> float:
        """Bound by the coordinates, which are the features, and the rounding of the projection."""
        return 2 * self.dimensions * distance


class CubeFeatures(LinearFeatures):
    """Positions as they are: nothing is projected."""

    def points(self, positions: FloatArray) -> FloatArray:
        """Positions as they are."""
        return positions


@dataclass(frozen=True)
class GramKernel(Space):
    """Expansions ``sum_i alpha_i K(d_i, .)`` of a kernel on the unit cube.

    The kernel's points are ``low + y width``, y in the unit cube. `kernels` are the axes' densities
    where the kernel is a product over axes (`product`).
    """

    kernel: Kernel
    low: tuple[float, ...]
    width: tuple[float, ...]
    kernels: tuple[Density, ...] = ()
    shard_rows = SHARD_ROWS
    largest_lattice = 1 << 14  # points that a choice may take: a record has a value at each

    @classmethod
    def product(cls, kernels: Sequence[Density]) -> GramKernel:
        """``prod_i p(|x_i - y_i| / s_i)``, one at distance zero, of the axes' densities."""
        kernel = Stationary(kernels[0].name, tuple(density.bandwidth for density in kernels))
        return cls(kernel, (0.0,) * len(kernels), (1.0,) * len(kernels), tuple(kernels))

    @cached_property
    def cube(self) -> CubeKernel:
        """The kernel as one on the unit cube."""
        return CubeKernel(self.kernel, self.low, self.width)

    @property
    def radius(self) -> float:
        """Largest norm in the cube's image."""
        return self.cube.radius

    @property
    def volume(self) -> float:
        """Constant c of the proof: a translate is ``1 / prod K'(0)`` times a density."""
        return 1 / math.prod(density.peak for density in self.kernels)

    def function_class(self, norm: float) -> FunctionClass:
        """Describe a minimizer: a mixture of translates, or where they are none a ball."""
        return KernelMixture(self.kernels) if self.kernels else GramBall(self.cube, norm)

    def points(self, positions: FloatArray) -> FloatArray:
        """Points in the kernel's coordinates."""
        return self.cube.points(positions)

    def drift(self, distance: float) -> float:
        """Bound by the Lipschitz constant; without one the function is that of rounded positions.

        Distances add over axes. Of a product ``|K_x - K_y|^2 = 2 (1 - K(x, y))``, at most twice the
        axes' slopes times the distance: near a kink features move by more than Lipschitz ones.
        """
        if self.kernels:
            slopes = (density.slope / density.peak for density in self.kernels)
            return math.sqrt(2 * distance * sum(slopes))
        lipschitz = self.cube.lipschitz
        return len(self.low) * distance * lipschitz if lipschitz < math.inf else 0.0

    def operator_norm(
        self, strategy: LatticeMapStrategy | GramStrategy, norm: int
    ) -> SensitivityBound:
        """Bound the l1 or l2 norm of the coordinates of a function of norm one.

        The rounding of the densities' peaks is far below that of the bound.
        """
        if self.kernels:
            ball = cast("LatticeMapStrategy", strategy).rkhs_sensitivity(self.kernels, norm)
            return SensitivityBound(
                OUTWARD**2 * ball.value * math.sqrt(self.volume), ball.derivation
            )
        spectrum = strategy.spectrum if isinstance(strategy, GramStrategy) else None
        return rkhs_sensitivity(self.cube, Lattice(tuple(strategy.lattice.k)), spectrum, norm)


@dataclass(frozen=True)
class UserKernel:
    """A kernel given as a function of points (m, l) and (n, l), with the constants it satisfies.

    Positive definiteness, `largest` (``sup K(x, x)`` over the public domain) and `float_error` (of
    a value of one, or of `largest` where that is more) are the author's promise: privacy rests on
    all three. `lipschitz`, infinite where it is not known, bounds ``|K_x - K_y| / |x - y|`` in the
    norm of the kernel's Hilbert space, and `curvature` the second derivative of K_y there, along
    every line: accuracy alone.
    """

    function: Pairs
    largest: float
    float_error: float = 2.0**-44
    lipschitz: float = math.inf
    curvature: float = math.inf
    fold = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.largest < math.inf and 0 <= self.float_error < math.inf):
            raise SpecError(
                "target.kernel_bound: sup K(x, x) must be positive and finite, its float error at "
                "least 0. Write them with the function."
            )

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n); no float warning may depend on records."""
        with np.errstate(all="ignore"):
            return np.asarray(self.function(x, y), dtype=np.float64)

    def refuse_steeper(self, low: Sequence[float], width: Sequence[float]) -> None:
        """Compare the stated constants with differences on lines through the middle of a box.

        Steps and bends of features are averages of their first and second derivatives.

        Raises SpecError for a constant that they exceed, by more than what floats make of them.
        """
        loose = 32 * self.error(len(low), math.inf)
        middle = np.asarray(low) + np.asarray(width) / 2
        for line in (*np.diag(width), np.asarray(width)):
            points = middle + np.linspace(-0.5, 0.5, _LINE_POINTS + 1)[:, None] * line
            distance = float(np.linalg.norm(line)) / _LINE_POINTS
            gram = self(points, points)
            for order, name in ((1, "lipschitz"), (2, "curvature")):
                gram = np.diff(np.diff(gram, axis=0), axis=1)
                size = math.sqrt(max(0.0, float(np.diag(gram).max()) - loose)) / distance**order
                if size > getattr(self, name) * (1 + 1e-9):
                    raise SpecError(
                        f"target.kernel_{name}: is {getattr(self, name):g}, and the kernel has at "
                        f"least {size:.4g}. Write the largest, or leave it out."
                    )

    def bound(self, radius: float) -> float:  # noqa: ARG002 - as declared
        """`largest`, as declared."""
        return self.largest

    def error(self, dimensions: int, radius: float) -> float:  # noqa: ARG002 - as declared
        """Float error of the largest value, or of one."""
        return self.float_error * max(1.0, self.largest)
