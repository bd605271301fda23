"""The Gaussian kernel cut to finitely many features: all records at once, no Gram matrix.

Features of one axis: ``phi(x) = T K_x``, ``K_x`` the kernel at the lattice points and T the stored
analysis matrix ``~ mu^(-1/2) U'`` of its Gram matrix G (`dbern.bernstein.spectrum`); of l axes: all
products. The kernel learned with is ``K_d(x, y) = phi(x) . phi(y)``, positive definite by form,
whatever T is. ``kappa^2`` is the product over axes of ``lambda_max(T G T')``, about 1: K_x is the
value of ``sum_v c_v K_v`` against the feature of x, so ``|T K_x|^2 <= lambda_max(T G T') K(x, x)``.

A linear function ``w . phi`` is determined by its values on the lattice, and up to the rounding of
T its d weights are the spectral coordinates ``T psi`` of these values.

Theorem (cost of the cut). Let ``|K - K_d| <= delta`` on the cube, and let the minimizers of a risk
of total weight c with K and with K_d have values f and f_d. Then ``|f_d - f| <= c M delta
(1 + kappa sqrt(c Λ)/2)`` everywhere, Λ the loss's curvature. Proof. ``f_d = sum_i alpha_i
K_d(x_i, .)`` with ``alpha_i = -a_i L'(f_d(x_i))``, ``sum |alpha_i| <= c M``. Let w~ have the same
coefficients with K: its values differ from f_d by at most ``e = c M delta``, so w~ is stationary
for K but for errors e of its predictions, and by the certificates of `dbern.learning.rounding`
``|w~ - w*| <= e sqrt(c Λ)/2``; add ``|f_d - <w~, phi>| <= e``.

Delta. The difference of the kernels is ``<(1 - A) phi_x, phi_y>`` with A of norm at most
``1 + t``, ``t = lambda_max(T G T') - 1``; it is at most ``sup_x D(x, x) + 2 t``,
``D(x, x) = 1 - |phi(x)|^2`` (Cauchy-Schwarz for ``|1 - A|``, which is ``1 - A`` but for t), and for
products of factors at most 1 + t the axes' differences add up, times the bounds of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein import kernels as densities
from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.bernstein.spectrum import UNIT_ROUNDOFF, AxisSpectrum, axis_spectrum
from dbern.learning.risk import Risk


@dataclass(frozen=True)
class ProjectedGaussian:
    """``phi(x) . phi(y)`` for points of the unit cube; use `project_gaussian`.

    Attributes
    ----------
    scales : tuple of float
        Standard deviations per axis, in unit-cube units.
    spectra : tuple of AxisSpectrum
        T of each axis, for the density with that standard deviation, with weighting 1/2.

    Examples
    --------
    >>> kernel = project_gaussian([0.3], k=[20], rank=[8])
    >>> kernel.features(np.array([[0.5], [0.6]])).shape
    (2, 8)
    >>> bool(abs(kernel(np.array([[0.5]]), np.array([[0.6]])) - np.exp(-1 / 18)) < 1e-5)
    True
    """

    scales: tuple[float, ...]
    spectra: tuple[AxisSpectrum, ...]

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
        result = self.along_axis(0, x[:, 0])
        for axis in range(1, len(self.scales)):
            factor = self.along_axis(axis, x[:, axis])
            size = result.shape[1] * factor.shape[1]
            result = (result[:, :, None] * factor[:, None, :]).reshape(len(x), size)
        return result

    def along_axis(self, axis: int, x: FloatArray) -> FloatArray:
        """The features (m, d_axis) of one axis at coordinates (m,)."""
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
        """``kappa^2``."""
        return OUTWARD * math.prod(self._norms)

    def error(self, dimensions: int, radius: float) -> float:  # noqa: ARG002 - the cube's
        """Float error of K_d: of both points' features, and of their product."""
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
        """Float error of each feature (d,) of one axis: that of every kernel value, weighed."""
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
        """Points whose largest value bounds a polynomial of twice a kernel's degree, by a factor.

        The kernel at each lattice point is a polynomial of that degree up to the error.
        """
        density = densities.Gaussian(self.scales[axis])
        degree, error = density.degree_for(1e-15, 0.5)
        nodes = 8 * degree
        x = 0.5 + 0.5 * np.cos((2 * np.arange(nodes) + 1) * (math.pi / (2 * nodes)))
        return x, 1 / math.cos(math.pi * 2 * degree / (2 * nodes)), error / density.peak

    @cached_property
    def cut(self) -> float:
        """Bound delta on ``|K - K_d|`` over the cube; see the module."""
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
        """The theorem's bound on what the cut changes of the minimizer, at any point."""
        total = risk.most_weight
        amplified = 1 + math.sqrt(total * risk.loss.curvature) / 2
        return OUTWARD * total * risk.slope * self.cut * amplified


def project_gaussian(
    scales: Sequence[float], k: Sequence[int], rank: Sequence[int]
) -> ProjectedGaussian:
    """The Gaussian kernel on the leading eigenvectors of each axis's lattice of k + 1 points.

    Examples
    --------
    >>> coarse, fine = (project_gaussian([0.3, 0.3], [20, 20], [d, d]) for d in (6, 10))
    >>> fine.cut < 1e-2 * coarse.cut
    True
    """
    axes = zip(scales, k, rank, strict=True)
    spectra = tuple(axis_spectrum(densities.Gaussian(b), n, d, 0.5) for b, n, d in axes)
    return ProjectedGaussian(tuple(scales), spectra)


def _peak(bandwidth: float) -> float:
    return 1 / (bandwidth * math.sqrt(2 * math.pi))
