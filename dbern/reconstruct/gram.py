"""Release through the Gram matrix of the whole lattice: kernels that are no products over axes.

With G the Gram matrix of a reproducing kernel K on the N lattice points p, a function f of its
Hilbert space has lattice values ``psi_v = <f, K_v>``, and for a vector s of signs
``s . psi = <f, sum_v s_v K_v> <= |f| (s'Gs)^{1/2}``. Hence

- ``|psi|_1 <= |f| max_s (s'Gs)^{1/2} <= |f| (sum |G|)^{1/2}``, *never* ``(sum G)^{1/2}``, which
  the maximum over signs exceeds where entries are negative;
- ``|psi|_2 <= |f| rho^{1/2}`` with rho the largest eigenvalue of |G|, at least that of G; by
  Collatz and Wielandt ``rho <= max_v (|G| x)_v / x_v`` for any positive x;
- for a stored matrix T and ``S = diag(w) T``: ``|S psi|_2 <= |f| lambda_max(S G S')^{1/2}``, which
  is proved for the T that is stored: S G S' is computed in floats, every error is bounded entry by
  entry, and ``lambda_max <= min(max row sum, 1 + |S G S' - 1|_F)``.

G here is that of the computed kernel, each entry within the kernel's stated float error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dbern.bernstein.basis import bernstein_basis, iterated_matrix
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import Kernel, LipschitzKernel, Polynomial, box_radius
from dbern.errors import SpecError
from dbern.reconstruct.base import Lattice, SensitivityBound, Slab, Strategy
from dbern.reconstruct.spectral import AxisSpectrum
from dbern.types import UNIT_ROUNDOFF, FloatArray

MOST_POINTS = 4096
"""Lattice points whose Gram matrix is decomposed: 128 MiB, and a minute of work."""

_MOST_PLAIN = 1 << 14
_MOST_RANK = 512
_ROWS = 512
_PERRON_STEPS = 8
_NUMBERS = 1 << 18


@dataclass(frozen=True)
class CubeKernel:
    """A reproducing kernel of points ``low + y width``, y in the unit cube."""

    kernel: Kernel
    low: tuple[float, ...]
    width: tuple[float, ...]

    @property
    def dimensions(self) -> int:
        """Number of axes."""
        return len(self.low)

    @property
    def radius(self) -> float:
        """Largest Euclidean norm of a point."""
        high = [low + width for low, width in zip(self.low, self.width, strict=True)]
        return box_radius(self.low, high)

    @property
    def largest(self) -> float:
        """``sup K(x, x)``."""
        return self.kernel.bound(self.radius)

    @property
    def error(self) -> float:
        """Float error of a value."""
        return self.kernel.error(self.dimensions, self.radius)

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant of a feature, per unit of the cube on any axis; infinite if unknown.

        For ``(x.y/s^2 + c)^p``: the square root of ``d^2 K / de de'`` on the diagonal, ``p b^{p-1}
        / s^2 + p (p-1) b^{p-2} (z.e)^2 / s^4``, b the largest base.
        """
        kernel, widest = self.kernel, max(self.width)
        if isinstance(kernel, Polynomial):
            p, s, r = kernel.degree, kernel.scale, self.radius
            b = (r / s) ** 2 + kernel.constant
            square = p * b ** (p - 1) / s**2 + p * (p - 1) * b ** max(p - 2, 0) * r**2 / s**4
            return OUTWARD * widest * math.sqrt(square)
        return widest * kernel.lipschitz if isinstance(kernel, LipschitzKernel) else math.inf

    def points(self, positions: FloatArray) -> FloatArray:
        """Points (m, l) of unit-cube positions."""
        return np.asarray(self.low + positions * np.array(self.width))

    def axes(self, lattice: Lattice) -> list[FloatArray]:
        """Coordinates of the lattice points, axis by axis."""
        return self.along([lattice.nodes(axis) for axis in range(self.dimensions)])

    def along(self, axes: Sequence[FloatArray]) -> list[FloatArray]:
        """Coordinates of unit-cube positions, axis by axis."""
        triples = zip(self.low, axes, self.width, strict=True)
        return [np.asarray(low + positions * width) for low, positions, width in triples]

    def lattice_points(self, lattice: Lattice) -> FloatArray:
        """All lattice points (N, l) in C order."""
        grid = np.stack(np.meshgrid(*self.axes(lattice), indexing="ij"), axis=-1)
        return grid.reshape(-1, self.dimensions)

    @lru_cache(maxsize=2)  # noqa: B019 - few cubes are kept
    def gram(self, lattice: Lattice) -> FloatArray:
        """G, in floats."""
        points = self.lattice_points(lattice)
        blocks = [self.kernel(points[i : i + _ROWS], points) for i in range(0, len(points), _ROWS)]
        gram = np.concatenate(blocks)
        gram.setflags(write=False)
        return gram


@dataclass(frozen=True)
class LatticeSpectrum(AxisSpectrum):
    """Stored T of the whole lattice: N columns, in C order; fields as in `AxisSpectrum`."""

    of: ClassVar[str] = "lattice"

    @lru_cache(maxsize=64)  # noqa: B019 - few spectra are kept
    def norm(self, cube: CubeKernel, lattice: Lattice) -> float:
        """Bound ``lambda_max(S G S')`` for ``S = diag(w) T``, as proved above."""
        plain = self.weights[:, None] * self.analysis
        product = plain @ cube.gram(lattice) @ plain.T
        rows = np.abs(plain).sum(axis=1)
        # An entry sums N^2 terms in two products: 2 (N + 4) u relative to those of |S| |G| |S|'.
        entry = cube.error + 2 * (lattice.size + 4) * UNIT_ROUNDOFF * (cube.largest + cube.error)
        loose = 1.01 * entry * np.outer(rows, rows) + 8 * UNIT_ROUNDOFF * np.abs(product)
        gershgorin = (np.abs(product) + loose).sum(axis=1).max()
        distance = np.linalg.norm(np.abs(product - np.eye(len(product))) + loose)
        return OUTWARD * float(min(gershgorin, 1 + distance))

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; the integers in base64."""
        return {**super().to_dict(), "of": "lattice"}


@lru_cache(maxsize=4)
def lattice_spectrum(
    cube: CubeKernel, lattice: Lattice, rank: int, weighting: float = 0.25
) -> LatticeSpectrum:
    """The leading eigenvectors of the lattice's Gram matrix, at most `rank` and 512 of them.

    Raises SpecError for a lattice of more than 4096 points.
    """
    if lattice.size > MOST_POINTS:
        each = math.floor(MOST_POINTS ** (1 / cube.dimensions)) - 1
        raise SpecError(
            f"mechanism.k: {lattice.size} lattice points, more than the {MOST_POINTS} whose Gram "
            f"matrix is decomposed for spectral noise. Write k = {each} or less, or noise = "
            '"laplace" (with a delta "discrete-gaussian")'
        )
    return LatticeSpectrum.of_gram(cube.gram(lattice), min(rank, _MOST_RANK), weighting)


@dataclass(frozen=True)
class GramStrategy(Strategy):
    """``y = T psi`` with the stored T of a `LatticeSpectrum`."""

    lattice: Lattice
    spectrum: LatticeSpectrum

    kind: ClassVar[str] = "spectral"

    @property
    def maps(self) -> tuple[LatticeSpectrum, ...]:
        """The one map of all axes."""
        return (self.spectrum,)

    def row_sums(self, axis: int) -> FloatArray:
        """``sum_v |T_jv|``: all of T stands for the first axis."""
        return self.spectrum.row_sums if axis == 0 else np.ones(1)

    def lattice_norm(self, h: Sequence[int]) -> float:
        """Bound the sup of the release of lattice values of at most one."""
        return OUTWARD * analysed_norm(self.lattice.k, tuple(h), self.spectrum)

    def released_norm(self, h: Sequence[int]) -> float:
        """Bound the sup of the polynomial of released values of at most one."""
        return OUTWARD * lattice_sup_norm(self.lattice.k, h, self.spectrum.synthesis)

    def matrices(self, h: Sequence[int]) -> list[FloatArray]:
        """Matrices of the axes from lattice values; `joint_synthesis` comes first."""
        return [iterated_matrix(*axis) for axis in zip(self.lattice.k, h, strict=True)]

    @property
    def joint_synthesis(self) -> FloatArray:
        """A, by lattice points."""
        return self.spectrum.synthesis.reshape(*self.lattice.shape, -1)

    def measure(self, values: FloatArray, slab: Slab) -> FloatArray:
        """Released values of one slab, from all lattice values."""
        rows = slice(slab.start, slab.stop)
        return np.asarray(self.spectrum.analysis[rows] @ values.ravel())

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """``A y``, the slab's rows of A only."""
        rows = slice(slab.start * self.lattice.layer, slab.stop * self.lattice.layer)
        layers = self.spectrum.synthesis[rows] @ values
        return np.asarray(layers.reshape(self.lattice.slab_shape(slab)))


def rkhs_sensitivity(
    cube: CubeKernel, lattice: Lattice, spectrum: LatticeSpectrum | None, norm: int
) -> SensitivityBound:
    """Bound the l1 or l2 norm of the released values of a function of norm one.

    Without a spectrum these are the lattice values. Raises SpecError for more of them than a Gram
    matrix is computed for.
    """
    if spectrum is None:
        return _plain_bound(cube, lattice, norm)
    gram = spectrum.norm(cube, lattice)
    if norm == 1:
        spread = float((spectrum.weights**-2.0).sum())
        text = "lambda_max(SGS')^{1/2} (sum_j mu_j^{1/2})^{1/2}"
        return SensitivityBound(OUTWARD * math.sqrt(gram * spread), text)
    if spectrum.weighting != 0.5:
        raise ValueError("the l2 bound is proved for orthonormal coordinates")
    return SensitivityBound(OUTWARD * math.sqrt(gram), "lambda_max(TGT')^{1/2}")


@lru_cache(maxsize=64)
def _plain_bound(cube: CubeKernel, lattice: Lattice, norm: int) -> SensitivityBound:
    if lattice.size > _MOST_PLAIN:
        raise SpecError(
            f"mechanism.k: {lattice.size} lattice points, more than the {_MOST_PLAIN} whose Gram "
            "matrix is computed for this kernel. Write a smaller k."
        )
    points, size = cube.lattice_points(lattice), lattice.size
    stored = _absolute(cube, points, slice(None)) if size <= MOST_POINTS else None

    def times(x: FloatArray) -> FloatArray:
        if stored is not None:
            return np.asarray(stored @ x)
        parts = range(0, size, _ROWS)
        return np.concatenate([_absolute(cube, points, slice(i, i + _ROWS)) @ x for i in parts])

    sums = times(np.ones(size))
    largest, x = float(sums.max()), sums
    for _ in range(_PERRON_STEPS if stored is not None else 1):
        x = np.maximum(x / x.max(), 1e-6)
        following = times(x)
        largest, x = min(largest, float((following / x).max())), following
    rounding = OUTWARD * (1 + 4 * size * UNIT_ROUNDOFF)
    if norm == 2:
        return SensitivityBound(rounding * math.sqrt(largest), "lambda_max(|G|)^{1/2}")
    return SensitivityBound(rounding * math.sqrt(float(sums.sum())), "(sum |G|)^{1/2}")


def _absolute(cube: CubeKernel, points: FloatArray, rows: slice) -> FloatArray:
    """Bounds on the entries of |G|."""
    return np.asarray(np.abs(cube.kernel(points[rows], points)) + cube.error)


@lru_cache(maxsize=16)
def analysed_norm(k: tuple[int, ...], h: tuple[int, ...], spectrum: LatticeSpectrum) -> float:
    """Bound the sup of the release of lattice values of at most one."""
    return lattice_sup_norm(k, h, spectrum.synthesis @ spectrum.analysis)


def lattice_sup_norm(k: Sequence[int], h: Sequence[int], matrix: FloatArray) -> float:
    """Bound ``max_y sum_j |(b(y) (W_h x .. x W_h) M)_j|`` for M of N rows, in C order.

    With the signs of the maximum the sum is a polynomial in each coordinate: nodes enclose it.
    """
    oversampling = 4 if len(matrix) * matrix.shape[1] < 1 << 20 else 2
    bases, factor = [], 1.0
    for degree, order in zip(k, h, strict=True):
        nodes, axis_factor = enclosing_nodes(degree, oversampling)
        bases.append(bernstein_basis(nodes, degree) @ iterated_matrix(degree, order))
        factor *= axis_factor
    together = max(1, _NUMBERS // math.prod(len(basis) for basis in bases))
    total: FloatArray | float = 0.0
    for first in range(0, matrix.shape[1], together):
        part = matrix[:, first : first + together]
        values = part.reshape(*(degree + 1 for degree in k), part.shape[1])
        for basis in bases:  # each step moves the first axis to the end
            values = np.tensordot(values, basis, axes=(0, 1))
        total = total + np.abs(values).sum(axis=0)
    return factor * float(np.max(total)) * (1 + 1e-9)
