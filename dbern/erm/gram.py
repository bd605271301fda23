"""Spaces whose functions are expansions in the records: exact kernels, no features.

``f = sum_i alpha_i K(d_i, .)``. Nothing is cut: what is learned with is the kernel itself, solved
with the Gram matrix of each shard's records (`dbern.erm.measurement`).

*Products over axes* of Laplace and Matern kernels: with c the product of the axes' integrals,
``K = c K'``, K' a product of densities, in whose Hilbert space norms are ``sqrt(c)`` times as
large. A strategy's `rkhs_sensitivity` bounds what a function of norm one can have for released
values, and by stationarity the minimizer is a mixture of kernel translates.

*Any other kernel*, polynomial, arc-cosine or a user's, goes through the Gram matrix of the whole
lattice (`dbern.strategies.gram`); what a release misses of a ball of its Hilbert space is enclosed
(`dbern.strategies.bias`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.kernels import Kernel as Density
from dbern.bernstein.reproducing import Kernel, Stationary
from dbern.erm.risk import Risk
from dbern.strategies.base import Bound, Lattice, LatticeMapStrategy, Strategy
from dbern.strategies.bias import GramBall, KernelMixture
from dbern.strategies.gram import CubeKernel, GramStrategy, rkhs_sensitivity
from dbern.types import FloatArray

SHARD_ROWS = 2048
"""Of an automatic shard: its Gram matrix takes 32 MiB, and solving is quadratic in it."""

MOST_VALUES = 1 << 14
"""Lattice points that a choice may take: every record has a kernel value at each."""

STATIONARY = ("laplace", "matern-3/2", "matern-5/2")
"""Products over axes of these; "laplace" is Matern 1/2."""


class _Expansions:
    """What all of them share: positions as they are, and no features."""

    shard_rows = SHARD_ROWS
    largest_lattice = MOST_VALUES

    @property
    def counting(self) -> dict[str, Any]:
        """Nothing to store."""
        return {}

    def cut_error(self, risk: Risk) -> float:
        """Nothing is cut."""
        del risk
        return 0.0


@dataclass(frozen=True)
class ProductSpace(_Expansions):
    """``prod_i p(|x_i - y_i| / s_i)`` for a profile p, by the densities of its axes.

    Examples
    --------
    >>> from dbern.bernstein.kernels import kernel_of
    >>> space = ProductSpace((kernel_of("laplace", 0.25),))
    >>> round(space.volume, 9), round(space.reach, 9)
    (0.5, 1.0)
    """

    kernels: tuple[Density, ...]

    @property
    def dimensions(self) -> int:
        """Axes."""
        return len(self.kernels)

    @cached_property
    def kernel(self) -> Stationary:
        """One at distance zero."""
        return Stationary(self.kernels[0].name, tuple(one.bandwidth for one in self.kernels))

    @property
    def radius(self) -> float:
        """Of the unit cube."""
        return OUTWARD * math.sqrt(self.dimensions)

    @property
    def reach(self) -> float:
        """kappa."""
        return OUTWARD

    @property
    def volume(self) -> float:
        """``1 / prod K'(0)``."""
        return 1 / math.prod(one.peak for one in self.kernels)

    def approximation(self, norm: float) -> KernelMixture:  # noqa: ARG002 - of the expansion's weights
        """A minimizer is ``sum_i alpha_i K(d_i, .)`` with ``sum |alpha_i| <= C M``."""
        return KernelMixture(self.kernels)

    def resolved(self, risk_factor: float, n: int) -> ProductSpace:
        """Itself."""
        del risk_factor, n
        return self

    def restored(self, counting: Mapping[str, Any]) -> ProductSpace:
        """Itself."""
        del counting
        return self

    def points(self, positions: FloatArray) -> FloatArray:
        """Where they are."""
        return positions

    def nodes(self, axes: Sequence[FloatArray]) -> list[FloatArray]:
        """Where they are."""
        return list(axes)

    def drift(self, distance: float) -> float:
        """``|K_x - K_y|^2 = 2 (1 - K(x, y))``, at most twice the axes' slopes times the distance.

        Rounded positions may move by more than a Lipschitz feature would, near a kink.
        """
        return math.sqrt(2 * distance * sum(one.slope / one.peak for one in self.kernels))

    def gain(self, strategy: LatticeMapStrategy, norm: int) -> Bound:
        """See the module; the peaks' rounding is far below that of the bound."""
        ball = strategy.rkhs_sensitivity(self.kernels, norm)
        return Bound(OUTWARD**2 * ball.value * math.sqrt(self.volume), ball.derivation)


@dataclass(frozen=True)
class GramSpace(_Expansions):
    """Any reproducing kernel on the unit cube.

    Examples
    --------
    >>> from dbern.bernstein.reproducing import ArcCosine
    >>> space = GramSpace(CubeKernel(ArcCosine(1.0), (-1.0, -1.0), (2.0, 2.0)))
    >>> round(space.reach**2, 9)
    3.0
    """

    cube: CubeKernel
    kernels: tuple[Density, ...] = ()
    volume = 1.0

    @property
    def dimensions(self) -> int:
        """Axes."""
        return self.cube.dimensions

    @property
    def kernel(self) -> Kernel:
        """As it is."""
        return self.cube.kernel

    @property
    def radius(self) -> float:
        """Of the cube's image."""
        return self.cube.radius

    @property
    def reach(self) -> float:
        """kappa."""
        return OUTWARD * math.sqrt(self.cube.largest)

    def approximation(self, norm: float) -> GramBall:
        """A ball: only the norm is known."""
        return GramBall(self.cube, norm)

    def resolved(self, risk_factor: float, n: int) -> GramSpace:
        """Itself."""
        del risk_factor, n
        return self

    def restored(self, counting: Mapping[str, Any]) -> GramSpace:
        """Itself."""
        del counting
        return self

    def points(self, positions: FloatArray) -> FloatArray:
        """In the kernel's coordinates."""
        return self.cube.points(positions)

    def nodes(self, axes: Sequence[FloatArray]) -> list[FloatArray]:
        """In the kernel's coordinates."""
        return self.cube.along(axes)

    def drift(self, distance: float) -> float:
        """By the Lipschitz constant; the function is that of rounded positions where there is none.

        Distances add over axes.
        """
        lipschitz = self.cube.lipschitz
        return self.dimensions * distance * lipschitz if lipschitz < math.inf else 0.0

    def gain(self, strategy: Strategy, norm: int) -> Bound:
        """See `dbern.strategies.gram`."""
        spectrum = strategy.spectrum if isinstance(strategy, GramStrategy) else None
        return rkhs_sensitivity(self.cube, Lattice(tuple(strategy.lattice.k)), spectrum, norm)
