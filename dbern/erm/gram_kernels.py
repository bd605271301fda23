"""Expansions ``f = sum_i alpha_i K(d_i, .)`` in the records of a shard.

Nothing is cut: the kernel itself is learned with, solved with the Gram matrix of each shard's
records.

*Products over axes* of Laplace and Matern kernels: with c the product of the axes' integrals,
``K = c K'``, K' a product of densities, and `rkhs_sensitivity` applies as in
`dbern.erm.gaussian_features`. By stationarity the minimizer is a mixture of kernel translates.

*Any other kernel*, polynomial, arc-cosine or a user's, goes through the Gram matrix of the whole
lattice (`dbern.reconstruct.gram`); what a release misses of a ball of its Hilbert space is enclosed
(`dbern.certify.balls`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.kernels import Kernel as Density
from dbern.bernstein.reproducing import Kernel, Stationary
from dbern.certify.approximation import Approximation, KernelMixture
from dbern.certify.balls import GramBall
from dbern.erm.spaces import Space
from dbern.reconstruct.base import Bound, Lattice, LatticeMapStrategy
from dbern.reconstruct.gram import CubeKernel, GramStrategy, rkhs_sensitivity
from dbern.types import FloatArray

STATIONARY = ("laplace", "matern-3/2", "matern-5/2")
"""Products over axes of these; "laplace" is Matern 1/2."""

SHARD_ROWS = 2048
"""Rows of an automatic shard: its Gram matrix takes 32 MiB, and solving is quadratic in it."""

MAX_LATTICE_POINTS = 1 << 14
"""Most lattice points that a choice may take: every record has a kernel value at each."""


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
    largest_lattice = MAX_LATTICE_POINTS

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

    def approximation(self, norm: float) -> Approximation:
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

    def operator_norm(self, strategy: LatticeMapStrategy | GramStrategy, norm: int) -> Bound:
        """Bound the l1 or l2 norm of the coordinates of a function of norm one.

        The rounding of the densities' peaks is far below that of the bound.
        """
        if self.kernels:
            ball = cast("LatticeMapStrategy", strategy).rkhs_sensitivity(self.kernels, norm)
            return Bound(OUTWARD**2 * ball.value * math.sqrt(self.volume), ball.derivation)
        spectrum = strategy.spectrum if isinstance(strategy, GramStrategy) else None
        return rkhs_sensitivity(self.cube, Lattice(tuple(strategy.lattice.k)), spectrum, norm)
