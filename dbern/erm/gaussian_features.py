"""The Gaussian kernel cut to finitely many features: all records at once, no Gram matrix.

Features of one axis: ``phi(x) = T K_x``, ``K_x`` the kernel at the lattice points and T the stored
analysis matrix ``~ mu^(-1/2) U'`` of its Gram matrix G (`dbern.reconstruct.spectral`); of l axes:
all products. The kernel learned with is ``K_d(x, y) = phi(x) . phi(y)``, positive definite by form,
whatever T is. ``kappa^2`` is the product over axes of ``lambda_max(T G T')``, about 1: K_x is the
value of ``sum_v c_v K_v`` against the feature of x, so ``|T K_x|^2 <= lambda_max(T G T') K(x, x)``.

A linear function ``w . phi`` is determined by its values on the lattice, and up to the rounding of
T its d weights are the spectral coordinates ``T psi`` of these values.

Theorem (cost of the cut). Let ``|K - K_d| <= delta`` on the cube, and let the minimizers of a risk
of total weight c with K and with K_d have values f and f_d. Then ``|f_d - f| <= c M delta
(1 + kappa sqrt(c Λ)/2)`` everywhere, Λ the loss's curvature. Proof. ``f_d = sum_i alpha_i
K_d(x_i, .)`` with ``alpha_i = -a_i L'(f_d(x_i))``, ``sum |alpha_i| <= c M``. Let w~ have the same
coefficients with K: its values differ from f_d by at most ``e = c M delta``, so w~ is stationary
for K but for errors e of its predictions, and by the certificates of `dbern.erm.risk`
``|w~ - w*| <= e sqrt(c Λ)/2``; add ``|f_d - <w~, phi>| <= e``.

Delta. The difference of the kernels is ``<(1 - A) phi_x, phi_y>`` with A of norm at most
``1 + t``, ``t = lambda_max(T G T') - 1``; it is at most ``sup_x D(x, x) + 2 t``,
``D(x, x) = 1 - |phi(x)|^2`` (Cauchy-Schwarz for ``|1 - A|``, which is ``1 - A`` but for t), and for
products of factors at most 1 + t the axes' differences add up, times the bounds of the others.

Released coordinates. The norm of f in the kernel's own Hilbert space is
``(w' T G T' w)^{1/2} <= lambda_max(T G T')^{1/2} |w|``, as f is ``sum_v (T'w)_v K_v``. How large
the coordinates of a function of norm one can be, `rkhs_sensitivity` bounds. It speaks of
densities ``K / c``, c the product of their ``b sqrt(2 pi)``, in whose Hilbert space norms are
``sqrt(c)`` times as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dbern.bernstein import kernels as densities
from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.bernstein.kernels import Kernel as Density
from dbern.bernstein.reproducing import rowwise_products
from dbern.certify.approximation import FunctionClass, KernelMixture
from dbern.erm.risk import Risk
from dbern.erm.spaces import FeatureMap
from dbern.errors import SpecError
from dbern.reconstruct.base import LatticeMapStrategy, SensitivityBound, Slab
from dbern.reconstruct.spectral import AxisSpectrum, axis_spectrum
from dbern.types import UNIT_ROUNDOFF, FloatArray

_MAX_FEATURES = 4096
_STEPS_PER_BANDWIDTH = 6  # lattice steps of the features a bandwidth
_CUT_FRACTION = 0.2  # of C M / n: a tenth of the sensitivity, far below any noise
_MIN_BANDWIDTH = 0.01  # of an axis: eigenvectors of a lattice finer than that take long
_EIGENVALUE_THRESHOLDS = (1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)  # of the largest eigenvalue
_MAX_CUT = 0.01  # of C M: a kernel that needs more features than there may be is refused


@dataclass(frozen=True)
class ProjectedGaussian:
    """``phi(x) . phi(y)`` for points of the unit cube; made by `on_lattice`.

    `scales` are standard deviations per axis, in unit-cube units; `spectra` are T of each axis, for
    the density with that standard deviation, with weighting 1/2, and none before the cut is chosen.
    """

    scales: tuple[float, ...]
    spectra: tuple[AxisSpectrum, ...] = ()

    @classmethod
    def on_lattice(
        cls, scales: Sequence[float], k: Sequence[int], rank: Sequence[int]
    ) -> ProjectedGaussian:
        """The kernel on the leading eigenvectors of each axis's k + 1 lattice points."""
        axes = zip(scales, k, rank, strict=True)
        spectra = tuple(axis_spectrum(densities.Gaussian(b), n, d, 0.5) for b, n, d in axes)
        return cls(tuple(scales), spectra)

    @cached_property
    def _maps(self) -> tuple[FloatArray, ...]:
        """``sqrt(peak) T'`` of each axis: T belongs to the density, peak times this kernel."""
        pairs = zip(self.scales, self.spectra, strict=True)
        return tuple(np.asarray(s.analysis.T * math.sqrt(_peak(b))) for b, s in pairs)

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n)."""
        return np.asarray(self.features(x) @ self.features(y).T)

    def features(self, x: FloatArray) -> FloatArray:
        """Products (m, d_1 .. d_l) of the axes' features, the last axis fastest."""
        return rowwise_products([self.along_axis(i, x[:, i]) for i in range(len(self.scales))])

    def along_axis(self, axis: int, x: FloatArray) -> FloatArray:
        """Features (m, d_axis) of one axis at coordinates (m,)."""
        table = self._maps[axis]
        z = (x[:, None] - np.arange(len(table)) / (len(table) - 1)) / self.scales[axis]
        z *= z
        z *= -0.5
        return np.asarray(np.exp(np.maximum(z, -700.0)) @ table)

    @cached_property
    def _norms(self) -> tuple[float, ...]:
        """``lambda_max(T G T')`` of each axis, bounded."""
        pairs = zip(self.scales, self.spectra, strict=True)
        return tuple(max(1.0, s.gram_norm(densities.Gaussian(b))) for b, s in pairs)

    def bound(self, radius: float) -> float:  # noqa: ARG002 - the same on the whole cube
        """Bound ``kappa^2``, before the cut is chosen that of the kernel itself."""
        return OUTWARD * math.prod(self._norms) if self.spectra else OUTWARD

    def error(self, dimensions: int, radius: float) -> float:  # noqa: ARG002 - the cube's
        """Bound the float error of K_d: of both points' features, and of their product."""
        count = math.prod(spectrum.rank for spectrum in self.spectra)
        product = (count + 2) * UNIT_ROUNDOFF * self.bound(radius)
        return OUTWARD * (2.01 * math.sqrt(self.bound(radius)) * self.feature_error + product)

    @cached_property
    def feature_error(self) -> float:
        """Float error of a point's features, in the Euclidean norm.

        On an axis every kernel value errs by ``EXP_ULPS + 8`` units, the product by one per term,
        of at most the row sums of the map; the axes' relative errors add up, and products round.
        """
        relative = 0.0
        for table in self._maps:
            rows = np.abs(table).sum(axis=0)
            ulps = (EXP_ULPS + 12 + len(table)) * UNIT_ROUNDOFF
            relative += ulps * float(np.linalg.norm(rows)) + 2 * UNIT_ROUNDOFF
        return 1.01 * relative * math.sqrt(self.bound(1.0))

    def feature_errors(self, axis: int) -> FloatArray:
        """Bound the float error of each feature (d,) of one axis, from those of kernel values."""
        table = self._maps[axis]
        rows = np.abs(table).sum(axis=0)
        return np.asarray(rows * ((EXP_ULPS + 12 + len(table)) * UNIT_ROUNDOFF))

    def feature_sups(self, axis: int) -> FloatArray:
        """Bound each feature (d,) of one axis over the unit interval, as `cut` is bounded."""
        x, factor, error = self._enclosing(axis)
        rows = np.abs(self._maps[axis]).sum(axis=0)
        slack = rows * error + self.feature_errors(axis)
        largest = np.abs(self.along_axis(axis, x)).max(axis=0) + slack
        return np.asarray(OUTWARD * (largest * factor + slack))

    def _enclosing(self, axis: int) -> tuple[FloatArray, float, float]:
        """Points that bound polynomials of twice a kernel's degree, a factor and an error.

        The kernel at each lattice point is a polynomial of that degree up to the error.
        """
        density = densities.Gaussian(self.scales[axis])
        degree, error = density.degree_for(1e-15, 0.5)
        nodes = 8 * degree
        x = 0.5 + 0.5 * np.cos((2 * np.arange(nodes) + 1) * (math.pi / (2 * nodes)))
        return x, 1 / math.cos(math.pi * 2 * degree / (2 * nodes)), error / density.peak

    @cached_property
    def cut(self) -> float:
        """Bound delta on ``|K - K_d|`` over the cube (*Delta* above)."""
        axes = [self._axis_cut(axis) for axis in range(len(self.scales))]
        return OUTWARD * self.bound(1.0) * sum(axes)

    def _axis_cut(self, axis: int) -> float:
        # 1 - |phi|^2 is within `tail` of a polynomial, bounded by its values at Chebyshev nodes
        # (Ehlich and Zeller): the kernel at each lattice point is expanded on the unit interval.
        x, factor, error = self._enclosing(axis)
        rows = float(np.linalg.norm(np.abs(self._maps[axis]).sum(axis=0)))
        square = np.square(self.along_axis(axis, x)).sum(axis=1)
        tail = 3 * rows * error + 3 * self.feature_error
        largest = float(np.abs(1 - square).max()) + tail
        defect = largest * factor + tail
        return defect + 2 * (self._norms[axis] - 1)

    def cut_error(self, risk: Risk) -> float:
        """Bound the change of the minimizer by the cut, at any point (*cost of the cut* above)."""
        total = risk.bounds.max_weight
        amplified = 1 + math.sqrt(total * risk.loss.curvature) / 2
        return OUTWARD * total * risk.bounds.slope * self.cut * amplified


def _peak(bandwidth: float) -> float:
    return 1 / (bandwidth * math.sqrt(2 * math.pi))


@dataclass(frozen=True)
class GaussianFeatures(FeatureMap):
    """The Gaussian kernel ``exp(-|x - y|^2 / (2 s^2))`` by features, s per axis."""

    kernel: ProjectedGaussian
    largest_lattice = 1_000_000  # points that a choice may take: values are cheap
    cube = None  # nothing is released through a Gram matrix

    @property
    def radius(self) -> float:
        """Largest norm in the unit cube."""
        return OUTWARD * math.sqrt(len(self.kernel.scales))

    @property
    def volume(self) -> float:
        """Constant c of the proof: a translate is ``prod b sqrt(2 pi)`` times a density."""
        return math.prod(scale * math.sqrt(2 * math.pi) for scale in self.kernel.scales)

    @property
    def kernels(self) -> tuple[Density, ...]:
        """Densities, one an axis."""
        return tuple(densities.Gaussian(scale) for scale in self.kernel.scales)

    @property
    def size(self) -> int:
        """Products of the axes' features."""
        return math.prod(spectrum.rank for spectrum in self.kernel.spectra)

    @property
    def stored_params(self) -> dict[str, Any]:
        """The stored matrices."""
        return {"features": [spectrum.to_dict() for spectrum in self.kernel.spectra]}

    def resolved(self, risk_factor: float, n: int) -> GaussianFeatures:
        """Cut the kernel for a tenth of the sensitivity, or to as many features as there may be.

        Raises SpecError for a kernel too narrow for any number of features that is allowed.
        """
        scales = self.kernel.scales
        projected = _projection(scales, min(_CUT_FRACTION / n, _MAX_CUT) / risk_factor)
        if projected is None or projected.cut * risk_factor > _MAX_CUT:
            raise SpecError(
                f"target.length_scale: too short for {_MAX_FEATURES} features over "
                f"{len(scales)} axes. Write a larger length_scale."
            )
        return replace(self, kernel=projected)

    def largest_factor(self, maximum: float) -> float:
        """Largest factor up to `maximum` that the most features are enough for."""
        kernel = _projection(self.kernel.scales, _MAX_CUT / maximum)
        return 0.0 if kernel is None else min(maximum, 0.99 * _MAX_CUT / kernel.cut)

    def with_params(self, params: Mapping[str, Any]) -> GaussianFeatures:
        """The space with the stored matrices."""
        spectra = tuple(AxisSpectrum.from_dict(axis) for axis in params["features"])
        return replace(self, kernel=ProjectedGaussian(self.kernel.scales, spectra))

    def function_class(self, norm: float) -> FunctionClass:  # noqa: ARG002 - of the expansion
        """Describe a minimizer: ``sum_i alpha_i K(d_i, .)`` with ``sum |alpha_i| <= C M``.

        By stationarity ``alpha_i = -a_i L'_i`` in each shard, and the mean over shards weighs the
        records by C/n each.
        """
        return KernelMixture(self.kernels)

    def drift(self, distance: float) -> float:
        """Bound by the Lipschitz constant of Gaussian features."""
        slopes = [kernel.slope / kernel.peak for kernel in self.kernels]
        return distance * sum(slopes) * (1 + max(slopes))

    def cut_error(self, risk: Risk) -> float:
        """Bound the cost of the cut, by the theorem above, in the mean over shards.

        It is convex in a shard's weight and zero at 0: largest with all records in one shard.
        """
        return self.kernel.cut_error(risk) / risk.shards

    def operator_norm(self, strategy: LatticeMapStrategy, norm: int) -> SensitivityBound:
        """Bound the l1 or l2 norm of the coordinates of a function with weights of norm one."""
        ball = strategy.rkhs_sensitivity(self.kernels, norm)
        return SensitivityBound(
            OUTWARD * ball.value * self.bound * math.sqrt(self.volume), ball.derivation
        )

    def values(self, weights: FloatArray, strategy: LatticeMapStrategy, slab: Slab) -> FloatArray:
        """Coordinates of one slab, axis by axis, for weights (size,)."""
        result = weights.reshape([spectrum.rank for spectrum in self.kernel.spectra])
        for axis in range(len(self.kernel.scales)):
            table = self.kernel.along_axis(axis, strategy.lattice.nodes(axis))
            matrix = strategy.matrix(axis)
            table = table if matrix is None else matrix @ table
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, table[rows], axes=(0, 1))
        return result

    def value_error(self, strategy: LatticeMapStrategy, mass: float, rest: float) -> float:
        """Bound the float error of a value whose row of T sums to one.

        For weights ``sum_i alpha_i phi(d_i)``, ``sum |alpha_i|`` at most `mass`, and a remainder of
        norm at most `rest`.

        *Remainder.* Terms sum to at most ``|phi| |w|``; per axis there is one product over features
        and one over lattice points, and the factor 2 is for higher orders. *Mass.* A weight is at
        most `mass` times the product of the axes' ``s_j = sup |phi_j|``, and s_j is small exactly
        where T_j is large and phi_j is far from its float: with errors e_j the terms sum to
        ``prod_axes sum_j s_j (s_j + e_j)``, of which ``prod_axes sum_j s_j^2`` is exact.
        """
        depth = sum(spectrum.rank + 4 for spectrum in self.kernel.spectra)
        depth += sum(nodes + 4 for nodes in strategy.lattice.shape)
        rounding = 2 * depth * UNIT_ROUNDOFF
        norms = 1.01 * self.kernel.feature_error + rounding * self.bound
        exact = grown = 1.0
        for axis in range(len(self.kernel.scales)):
            sup, error = self.kernel.feature_sups(axis), self.kernel.feature_errors(axis)
            exact *= float((sup * sup).sum())
            grown *= float((sup * (sup + error)).sum())
        terms = 1.01 * (grown - exact) + 4 * UNIT_ROUNDOFF * grown + rounding * grown
        return OUTWARD * (mass * terms + rest * norms)


@lru_cache(maxsize=64)
def _projection(scales: tuple[float, ...], max_cut: float) -> ProjectedGaussian | None:
    """The fewest features whose cut is at most `max_cut`, or the best that are allowed."""
    best = None
    if min(scales) < _MIN_BANDWIDTH or math.prod(max(1.0, 0.5 / b) for b in scales) > _MAX_FEATURES:
        return None
    k = [max(8, math.ceil(_STEPS_PER_BANDWIDTH / scale)) for scale in scales]
    full = ProjectedGaussian.on_lattice(scales, k, [count + 1 for count in k])
    for threshold in _EIGENVALUE_THRESHOLDS:
        rank = [
            sum(mu > threshold * s.eigenvalues[0] for mu in s.eigenvalues) for s in full.spectra
        ]
        if math.prod(rank) > _MAX_FEATURES:
            return best
        cut = tuple(s.cut(d) for s, d in zip(full.spectra, rank, strict=True))
        kernel = ProjectedGaussian(scales, cut)
        if best is None or kernel.cut < best.cut:
            best = kernel
        if best.cut <= max_cut:
            return best
    return best
