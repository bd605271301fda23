"""What is released of the lattice values psi: themselves, or spectral coordinates ``T psi``.

Either way the released integers carry independent noise of one scale, so what matters is how far
one record can move them in the l1 norm (Laplace) or the l2 norm (Kernel); and either way lattice
coefficients follow by a public linear map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Box, Lattice, Layout, Slab
from dbern.bernstein.spectrum import AxisSpectrum

_PAIRWISE_WORK = 2e9
_TAIL = 1e-9


@dataclass(frozen=True)
class BumpBound:
    """A bound on ``sup_{t,t'} |T (K_t - K_t')|_1``, null record included, and how it was got."""

    value: float
    derivation: str

    @property
    def half(self) -> BumpBound:
        """Of a bound on twice what is wanted."""
        return BumpBound(self.value / 2, f"1/2 x {self.derivation}")


class Coordinates(Protocol):
    """A public linear map of lattice values, one matrix per axis."""

    @property
    def lattice(self) -> Lattice:
        """Where the function is evaluated."""

    @property
    def layout(self) -> Layout:
        """Shape and slabs of the released integers."""

    @property
    def lattice_gain(self) -> float:
        """Root mean square noise of a lattice value for noise of unit size on released values."""

    def matrix(self, axis: int) -> FloatArray | None:
        """The axis's matrix (d, k + 1); None for the identity."""

    def row_sums(self, axis: int) -> FloatArray:
        """``sum_v |T_jv|`` of the axis's matrix, rounded outward; shape (d,)."""

    def bump_bound(
        self, kernels: Sequence[Kernel], *, apart: bool = False, quick: bool = False
    ) -> BumpBound:
        """Bound the l1 distance that replacing one kernel bump by another makes.

        `apart`: the two may have opposite signs or go to different outputs, so nothing cancels.
        `quick` leaves out what takes long: still a bound, up to an eighth larger.
        """

    def bump_bound_l2(
        self, kernels: Sequence[Kernel], *, signed: bool = False, several: bool = False
    ) -> BumpBound:
        """The same in the l2 norm: of opposite signs, or of bumps that may be in two outputs."""

    def ball_bound(self, kernels: Sequence[Kernel], norm: int) -> BumpBound:
        """Bound the l1 or l2 norm of what a function of norm one has for released values.

        The norm of the function is that of the product kernel's Hilbert space.
        """

    def to_lattice(self, values: FloatArray, slab: Slab) -> FloatArray:
        """Lattice coefficients of one slab of the lattice, from all released values."""


@dataclass(frozen=True)
class Entries:
    """A vector of so many numbers, released as they are: nothing is derived from them."""

    count: int

    @property
    def layout(self) -> Box:
        """One integer an entry."""
        return Box((self.count,))

    @property
    def lattice(self) -> Box:
        """What is stored is what is released."""
        return self.layout


@dataclass(frozen=True)
class PlainCoordinates:
    """The lattice values themselves (Algorithm 1 of the paper)."""

    lattice: Lattice

    @property
    def layout(self) -> Layout:
        """The lattice's own."""
        return self.lattice

    @property
    def lattice_gain(self) -> float:
        """One."""
        return 1.0

    def matrix(self, axis: int) -> FloatArray | None:
        """The identity."""
        del axis
        return None

    def row_sums(self, axis: int) -> FloatArray:
        """Ones."""
        return np.ones(self.lattice.shape[axis])

    def bump_bound(
        self, kernels: Sequence[Kernel], *, apart: bool = False, quick: bool = False
    ) -> BumpBound:
        """``min(2 max_t sum_v K(v/k - t), N sup K)``; the proof is in `dbern.components.sums`.

        The second holds only where both bumps are nonnegative and in one output.
        """
        del quick
        sums = [kernel.lattice_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        twice = OUTWARD * 2 * math.prod(sums)
        printed = OUTWARD * self.lattice.size * math.prod(kernel.peak for kernel in kernels)
        if printed <= twice and not apart:
            return BumpBound(printed, f"N S(F) = {self.lattice.size} x sup K / n")
        factors = " x ".join(f"{value:.6g}" for value in sums)
        return BumpBound(twice, f"2 max_t sum_v K(v/k - t) / n = 2 x {factors} / n")

    def bump_bound_l2(
        self, kernels: Sequence[Kernel], *, signed: bool = False, several: bool = False
    ) -> BumpBound:
        """``min(sqrt(2) max_t |K_t|_2, sqrt(N) sup K)``, where bumps are nonnegative.

        ``|K_t - K_t'|_2^2 = |K_t|_2^2 + |K_t'|_2^2 - 2 <K_t, K_t'>``; the null record gives less,
        and different outputs have no product. The second term is the move of one output alone: it
        is no bound where a record may move two. Of opposite signs, ``2 max_t |K_t|_2``.
        """
        sums = [kernel.square_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        if signed:
            twice = OUTWARD * 2 * math.sqrt(math.prod(sums))
            return BumpBound(twice, "2 max_t (sum_v K(v/k - t)^2)^{1/2} / n")
        root = OUTWARD * math.sqrt(2 * math.prod(sums))
        peak = math.prod(kernel.peak for kernel in kernels)
        printed = OUTWARD * math.sqrt(self.lattice.size) * peak
        if printed <= root and not several:
            return BumpBound(printed, f"sqrt(N) S(F) = sqrt({self.lattice.size}) x sup K / n")
        return BumpBound(root, "sqrt(2) max_t (sum_v K(v/k - t)^2)^{1/2} / n")

    def ball_bound(self, kernels: Sequence[Kernel], norm: int) -> BumpBound:
        """``(sum |G|)^{1/2}`` or ``lambda_max(G)^{1/2}``, G the Gram matrix of the lattice.

        For signs s, ``sum_v s_v f(p_v) = <f, sum_v s_v K_v> <= |f| (s'Gs)^{1/2}``, and ``|psi|_2``
        is at most the norm of the evaluation operator. Both factor over axes; the largest
        eigenvalue is at most the largest row sum, of nonnegative entries here.
        """
        grams = []
        for kernel, k in zip(kernels, self.lattice.k, strict=True):
            nodes = np.arange(k + 1) / k
            grams.append(np.abs(kernel(nodes[:, None] - nodes)))
        if norm == 1:
            total = math.prod(float(gram.sum()) for gram in grams)
            return BumpBound(OUTWARD * math.sqrt(total), "(sum |G|)^{1/2}")
        largest = math.prod(float(gram.sum(axis=1).max()) for gram in grams)
        return BumpBound(OUTWARD * math.sqrt(largest), "lambda_max(G)^{1/2}")

    def to_lattice(self, values: FloatArray, slab: Slab) -> FloatArray:
        """The values themselves."""
        return values[slab.start : slab.stop]


@dataclass(frozen=True)
class SpectralCoordinates:
    """``y = (T_1 x .. x T_l) psi`` with the stored matrices of `AxisSpectrum`.

    With the orthonormal coordinates ``x_j = w_j y_j`` of a bump difference, ``|x|_2^2 <= prod_i
    gram_norm_i |phi_t - phi_t'|^2 <= prod_i gram_norm_i 2 K(0)`` because ``<phi_t, phi_t'> =
    K(t - t') >= 0``; a null record gives half. Cauchy-Schwarz: ``|y|_1 = sum_j |x_j| / w_j <=
    |x|_2 (sum_j w_j^{-2})^{1/2}``, and the sum over the box of indices factors over axes. For the
    l2 norm the weights are one, and ``|x|_2`` is the bound.
    """

    lattice: Lattice
    spectra: tuple[AxisSpectrum, ...]

    @cached_property
    def layout(self) -> Layout:
        """One integer for each combination of the axes' eigenvectors."""
        return Box(tuple(spectrum.rank for spectrum in self.spectra))

    @cached_property
    def lattice_gain(self) -> float:
        """``(sum_j mu_j^{2a} / N)^{1/2}``: the columns of A have squared norms mu^{2a}."""
        energy = math.prod(float(spectrum.energies.sum()) for spectrum in self.spectra)
        return math.sqrt(energy / self.lattice.size)

    def matrix(self, axis: int) -> FloatArray | None:
        """The stored T of the axis."""
        return self.spectra[axis].analysis

    def row_sums(self, axis: int) -> FloatArray:
        """``sum_v |T_jv|``."""
        return self.spectra[axis].row_sums

    def bump_bound(
        self, kernels: Sequence[Kernel], *, apart: bool = False, quick: bool = False
    ) -> BumpBound:
        """The smaller of Cauchy-Schwarz and, on one axis, the enclosed pairwise maximum.

        `apart`: ``|y(t)|_1 + |y(t')|_1``, and ``|y(t)|_1`` factors over axes.
        """
        size = OUTWARD * math.sqrt(math.prod(kernel.peak for kernel in kernels))
        ball = size * self.ball_bound(kernels, 1).value
        if apart:
            bound = BumpBound(OUTWARD * 2 * ball, "2 K(0)^{1/2} (sum_j mu_j^{1/2})^{1/2} / n")
        else:
            bound = BumpBound(
                OUTWARD * math.sqrt(2) * ball, "sqrt(2 K(0)) (sum_j mu_j^{1/2})^{1/2} / n"
            )
        kinked = any(kernel.kinks for kernel in kernels)
        if quick or kinked or (len(self.spectra) > 1 and not apart):
            return bound
        axes = zip(self.spectra, kernels, self.lattice.k, strict=True)
        if apart:
            enclosed = [_enclosed_bound(*axis, pairs=False) for axis in axes]
            twice = OUTWARD * 2 * math.prod(value or math.inf for value in enclosed)
            found = BumpBound(twice, "2 max_t sum_j |y_j(t)| / n, enclosed")
        else:
            value = _enclosed_bound(*next(axes), pairs=True)
            found = BumpBound(
                value or math.inf, "max_{t,t'} sum_j |y_j(t) - y_j(t')| / n, enclosed"
            )
        return found if found.value < bound.value else bound

    def bump_bound_l2(
        self, kernels: Sequence[Kernel], *, signed: bool = False, several: bool = False
    ) -> BumpBound:
        """``sqrt(2 K(0))`` (of opposite signs: twice ``K(0)^{1/2}``) times the matrix's norm.

        In two outputs ``|x|^2 + |x'|^2`` is at most that too.
        """
        del several
        peak = math.prod(kernel.peak for kernel in kernels)
        radius = math.sqrt((4 if signed else 2) * peak) * self.ball_bound(kernels, 2).value
        return BumpBound(OUTWARD * radius, "2 K(0)^{1/2} / n" if signed else "sqrt(2 K(0)) / n")

    def ball_bound(self, kernels: Sequence[Kernel], norm: int) -> BumpBound:
        """``|x|_2 <= gram_norm^{1/2} |f|``; for the l1 norm times ``(sum_j w_j^{-2})^{1/2}``.

        The l2 norm is that of orthonormal coordinates only.
        """
        gram = math.prod(s.gram_norm(g) for s, g in zip(self.spectra, kernels, strict=True))
        if norm == 1:
            spread = math.prod(float((s.weights**-2.0).sum()) for s in self.spectra)
            return BumpBound(OUTWARD * math.sqrt(gram * spread), "(sum_j mu_j^{1/2})^{1/2}")
        if any(spectrum.weighting != 0.5 for spectrum in self.spectra):
            raise ValueError("the l2 bound is proved for orthonormal coordinates")
        return BumpBound(OUTWARD * math.sqrt(gram), "one")

    def to_lattice(self, values: FloatArray, slab: Slab) -> FloatArray:
        """``(A_1 x .. x A_l) y``, the slab's rows of A_1 only."""
        result = values
        for axis, spectrum in enumerate(self.spectra):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, spectrum.synthesis[rows], axes=(0, 1))
        return result


def _enclosed_bound(spectrum: AxisSpectrum, kernel: Kernel, k: int, *, pairs: bool) -> float | None:
    """Enclose ``sup_t sum_j |y_j(t)|``, or with `pairs` ``sup_{t,t'} sum_j |y_j(t) - y_j(t')|``.

    For kernels without kinks.
    Up to a proved tail each ``y_j(t) = sum_v T_jv K(v/k - t)`` is a polynomial of degree D in t.
    For fixed signs the sum is a polynomial of degree D in t and in t', so nodes enclose it
    (`enclosing_nodes`) for the maximising signs too. None where that is too much work.
    """
    degree, tail = kernel.degree_for(_TAIL, radius=0.5)
    nodes, factor = enclosing_nodes(degree, oversampling=16)
    if len(nodes) ** 2 * spectrum.rank > _PAIRWISE_WORK:
        return None
    lattice = np.arange(k + 1) / k
    features = spectrum.analysis @ kernel(lattice[:, None] - nodes)
    best = float(np.abs(features).sum(axis=0).max())  # the null record
    for column in range(len(nodes) if pairs else 0):
        apart = features[:, column + 1 :] - features[:, column, None]
        best = max(best, float(np.abs(apart).sum(axis=0).max(initial=0.0)))
    total = float(spectrum.row_sums.sum())
    # Rounding of a feature: K within 16 ulps of the peak, lattice points and nodes (whose cosine
    # has an angle up to pi) within 8 of one, and a product of k + 1 terms.
    rounding = (k + 20) * kernel.peak + 12 * kernel.slope
    loose = 2 * total * (tail + rounding * 2.0**-53)
    return OUTWARD * (factor**2 * (best + loose) + loose)
