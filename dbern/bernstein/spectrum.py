"""Per-axis eigenvectors of a kernel's Gram matrix on the lattice, as stored public matrices.

With ``G = U diag(mu) U'`` the weighted analysis matrix is ``T ~ mu^{-a} U'`` and the synthesis
matrix ``A = U mu^{a}``, so that ``A T`` is the projection on the kept eigenvectors. Coordinates
``T psi`` carry independent noise of *one* scale. For Laplace noise a = 1/4: the weights that
minimise the summed variance, ``mu^{-1/4}`` in orthonormal coordinates, are inside T. For Gaussian
noise a = 1/2: it is isotropic in orthonormal coordinates.

In floats T is what is stored, not what was meant. Its entries are therefore multiples of a power
of two, kept as integers, and every bound is proved for exactly this matrix; A may be anything,
because synthesis is post-processing.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.kernels import OUTWARD, Kernel

_BITS = 40  # of the largest entry of T
_LEAST_EIGENVALUE = 1e-9  # of the largest: below about 1e-13 eigenpairs are rounding noise
UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class AxisSpectrum:
    """One axis: stored analysis integers, their power of two, and the eigenvalues.

    Attributes
    ----------
    packed : bytes
        The integers of T as little-endian int64 in C order: ``T = integers * 2^exponent``.
    exponent : int
    levels : tuple of float
        The kept eigenvalues, decreasing: public constants that fix weights and synthesis.
    weighting : float
        The power a of the eigenvalues.
    used : int
        How many leading eigenvectors an evaluation uses; 0: all. Never stored.
    """

    packed: bytes
    exponent: int
    levels: tuple[float, ...]
    weighting: float = 0.25
    used: int = 0

    @property
    def rank(self) -> int:
        """Eigenvectors kept, d."""
        return len(self.levels)

    @cached_property
    def integers(self) -> Int64Array:
        """The stored integers, shape (d, k + 1)."""
        return np.frombuffer(self.packed, dtype="<i8").astype(np.int64).reshape(self.rank, -1)

    @cached_property
    def eigenvalues(self) -> FloatArray:
        """`levels` as an array, shape (d,)."""
        return np.array(self.levels)

    @cached_property
    def analysis(self) -> FloatArray:
        """T, exact in 64-bit floats; shape (d, k + 1)."""
        return np.ldexp(self.integers.astype(np.float64), self.exponent)

    @cached_property
    def synthesis(self) -> FloatArray:
        """A = ``T' mu^{2a}``, zero for eigenvectors not in use; shape (k + 1, d)."""
        kept = np.arange(self.rank) < (self.used or self.rank)
        return np.asarray(self.analysis.T * (self.energies * kept))

    @cached_property
    def energies(self) -> FloatArray:
        """``mu^{2a}``: squared norms of the columns of A."""
        return np.asarray(self.eigenvalues ** (2 * self.weighting))

    @cached_property
    def row_sums(self) -> FloatArray:
        """``sum_v |T_jv|`` for each j, rounded outward."""
        return np.asarray(OUTWARD * np.abs(self.analysis).sum(axis=1))

    def gram_norm(self, kernel: Kernel) -> float:
        """Bound the largest eigenvalue of ``S G S'``, ``S = diag(w) T`` the orthonormal analysis.

        It is one but for rounding: for a record's feature vector phi of the kernel's Hilbert space
        ``|S (K(v/k - t))_v|^2 <= gram_norm |phi|^2``. Gershgorin's row sums bound the eigenvalue,
        plus the error of computing them: G within a few ulps of the peak and of the slope (the
        lattice points are rounded), and two float products.
        """
        k = self.integers.shape[1] - 1
        nodes = np.arange(k + 1) / k
        gram = kernel(nodes[:, None] - nodes)
        plain = self.weights[:, None] * self.analysis
        product = plain @ gram @ plain.T
        ulps = (kernel.ulps + 4) * kernel.peak + 4 * kernel.slope + 4 * (k + 3) * gram
        error = UNIT_ROUNDOFF * (np.abs(plain) @ ulps @ np.abs(plain).T)
        return OUTWARD * float((np.abs(product) + 2 * error).sum(axis=1).max())

    @cached_property
    def weights(self) -> FloatArray:
        """``w_j = mu_j^{a - 1/2}``: how much more noise the orthonormal coordinate j carries."""
        return np.asarray(self.eigenvalues ** (self.weighting - 0.5))

    def cut(self, rank: int) -> Self:
        """The leading `rank` eigenvectors alone."""
        width = self.integers.shape[1]
        return replace(self, packed=self.packed[: 8 * width * rank], levels=self.levels[:rank])

    def using(self, rank: int) -> Self:
        """The same released values, evaluated with the leading `rank` eigenvectors alone."""
        return replace(self, used=rank)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; the integers in base64."""
        packed = base64.b64encode(self.packed).decode()
        return {
            "integers": packed,
            "exponent": self.exponent,
            "eigenvalues": list(self.levels),
            "weighting": self.weighting,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """What `to_dict` wrote."""
        packed = base64.b64decode(content["integers"])
        levels = tuple(content["eigenvalues"])
        return cls(packed, content["exponent"], levels, content["weighting"])


def axis_spectrum(kernel: Kernel, k: int, rank: int, weighting: float = 0.25) -> AxisSpectrum:
    """The leading eigenvectors of the axis's Gram matrix, at most `rank` of them.

    Eigenvalues below 1e-9 of the largest are left out whatever `rank` says.

    Examples
    --------
    >>> from dbern.bernstein.kernels import Gaussian
    >>> spectrum = axis_spectrum(Gaussian(0.2), k=20, rank=5)
    >>> spectrum.analysis.shape, bool(spectrum.gram_norm(Gaussian(0.2)) < 1.001)
    ((5, 21), True)
    """
    nodes = np.arange(k + 1) / k
    values, vectors = np.linalg.eigh(kernel(nodes[:, None] - nodes))
    return AxisSpectrum(*quantised(values[::-1], vectors[:, ::-1], rank, weighting), weighting)


def quantised(
    values: FloatArray, vectors: FloatArray, rank: int, weighting: float
) -> tuple[bytes, int, tuple[float, ...]]:
    """The stored integers of ``mu^{-a} U'``, their exponent, and the eigenvalues kept.

    Of eigenvalues in decreasing order and their vectors, in columns.
    """
    kept = min(rank, int((values > _LEAST_EIGENVALUE * values[0]).sum()))
    eigenvalues = values[:kept]
    meant = eigenvalues[:, None] ** -weighting * vectors[:, :kept].T
    exponent = int(np.frexp(np.abs(meant).max())[1]) - _BITS
    integers = np.rint(np.ldexp(meant, -exponent)).astype("<i8")
    return integers.tobytes(), exponent, tuple(eigenvalues.tolist())
