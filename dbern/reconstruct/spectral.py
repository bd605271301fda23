"""Release spectral coordinates: per-axis eigenvectors of a kernel's Gram matrix on the lattice.

They are for functions that a solver finds: of those, the norm in the kernel's Hilbert space is
known, and nothing that a record adds to bins.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.reconstruct.axis_maps import Limits, LinearMap, StoredArray
from dbern.reconstruct.base import Lattice, LatticeMapStrategy, SensitivityBound
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array


@dataclass(frozen=True)
class SpectralStrategy(LatticeMapStrategy):
    """``y = (T_1 x .. x T_l) psi`` with the stored matrices of `AxisSpectrum`.

    With the orthonormal coordinates ``x_j = w_j y_j`` of a function f, ``|x|_2^2 <= prod_i
    gram_norm_i |f|^2``. Cauchy-Schwarz: ``|y|_1 = sum_j |x_j| / w_j <= |x|_2 (sum_j
    w_j^{-2})^{1/2}``, and the sum over the box of indices factors over axes. For the l2 norm the
    weights are one, and ``|x|_2`` is the bound.
    """

    lattice: Lattice
    spectra: tuple[AxisSpectrum, ...]

    kind: ClassVar[str] = "spectral"

    @property
    def maps(self) -> tuple[AxisSpectrum, ...]:
        """The axes' spectra."""
        return self.spectra

    def matrix(self, axis: int) -> FloatArray | None:
        """The stored T of the axis."""
        return self.spectra[axis].analysis

    def row_sums(self, axis: int) -> FloatArray:
        """``sum_v |T_jv|``."""
        return self.spectra[axis].row_sums

    def rkhs_sensitivity(self, kernels: Sequence[Kernel], norm: int) -> SensitivityBound:
        """``|x|_2 <= gram_norm^{1/2} |f|``; for the l1 norm times ``(sum_j w_j^{-2})^{1/2}``.

        The l2 norm is that of orthonormal coordinates only.
        """
        gram = math.prod(s.gram_norm(g) for s, g in zip(self.spectra, kernels, strict=True))
        if norm == 1:
            spread = math.prod(float((s.weights**-2.0).sum()) for s in self.spectra)
            return SensitivityBound(OUTWARD * math.sqrt(gram * spread), "(sum_j mu_j^{1/2})^{1/2}")
        if any(spectrum.weighting != 0.5 for spectrum in self.spectra):
            raise ValueError("the l2 bound is proved for orthonormal coordinates")
        return SensitivityBound(OUTWARD * math.sqrt(gram), "one")


_BITS = 40  # of the largest entry of T
_POWERS = Limits(float, math.ulp(0.0), 1.0)
_MIN_RELATIVE_EIGENVALUE = 1e-9  # of the largest: below about 1e-13 eigenpairs are rounding noise


@dataclass(frozen=True)
class AxisSpectrum(LinearMap):
    """Stored analysis integers of one axis, their power of two, and the eigenvalues.

    `packed` has the integers of T as little-endian int64 in C order: ``T = integers * 2^exponent``.
    `eigenvalues` are those kept, decreasing: public constants that fix weights and synthesis.
    `weighting` is the power a of the eigenvalues. An evaluation uses the leading `used`
    eigenvectors, all for 0; that is never stored.
    """

    packed: bytes = field(repr=False)
    exponent: int
    eigenvalues: tuple[float, ...]
    weighting: float = 0.25
    used: int = 0

    kind: ClassVar[str] = "spectral"
    called: ClassVar[str] = "spectral coordinates"
    stored: ClassVar = {
        "analysis": StoredArray(
            ("mode", "axis"), "int64", {"exponent": Limits(int, -1000, 250), "weighting": _POWERS}
        ),
        "eigenvalues": StoredArray(("mode",)),
    }

    @classmethod
    def of_gram(cls, gram: FloatArray, rank: int, weighting: float) -> Self:
        """Round ``mu^{-a} U'`` of the leading eigenvectors of a Gram matrix to integers."""
        values, vectors = np.linalg.eigh(gram)
        values = values[::-1]
        rank = min(rank, int((values > _MIN_RELATIVE_EIGENVALUE * values[0]).sum()))
        eigenvalues = values[:rank]
        analysis = eigenvalues[:, None] ** -weighting * vectors[:, ::-1][:, :rank].T
        exponent = int(np.frexp(np.abs(analysis).max())[1]) - _BITS
        integers = np.rint(np.ldexp(analysis, -exponent)).astype("<i8")
        return cls(integers.tobytes(), exponent, tuple(eigenvalues.tolist()), weighting)

    @property
    def rank(self) -> int:
        """Number of eigenvectors, d."""
        return len(self.eigenvalues)

    @cached_property
    def integers(self) -> Int64Array:
        """The stored integers, shape (d, k + 1)."""
        return np.frombuffer(self.packed, dtype="<i8").astype(np.int64).reshape(self.rank, -1)

    @cached_property
    def analysis(self) -> FloatArray:
        """T, exact in 64-bit floats; shape (d, k + 1)."""
        return self.integers.astype(np.float64) * 2.0**self.exponent

    @cached_property
    def synthesis(self) -> FloatArray:
        """A = ``T' mu^{2a}``, zero for eigenvectors not in use; shape (k + 1, d)."""
        in_use = np.arange(self.rank) < (self.used or self.rank)
        return np.asarray(self.analysis.T * (self.energies * in_use))

    @cached_property
    def energies(self) -> FloatArray:
        """``mu^{2a}``: squared norms of the columns of A."""
        return np.array(self.eigenvalues) ** (2 * self.weighting)

    @cached_property
    def row_sums(self) -> FloatArray:
        """``sum_v |T_jv|`` for each j, rounded outward."""
        return np.asarray(OUTWARD * np.abs(self.analysis).sum(axis=1))

    @lru_cache(maxsize=32)  # noqa: B019 - few spectra are kept
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
        return np.array(self.eigenvalues) ** (self.weighting - 0.5)

    def cut(self, rank: int) -> Self:
        """The leading `rank` eigenvectors alone."""
        width = self.integers.shape[1]
        return replace(
            self, packed=self.packed[: 8 * width * rank], eigenvalues=self.eigenvalues[:rank]
        )

    def using(self, rank: int) -> Self:
        """The same released values, evaluated with the leading `rank` eigenvectors alone."""
        return replace(self, used=rank)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values; the integers in base64."""
        packed = base64.b64encode(self.packed).decode()
        return {
            "integers": packed,
            "exponent": self.exponent,
            "eigenvalues": list(self.eigenvalues),
            "weighting": self.weighting,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        packed = base64.b64decode(content["integers"])
        eigenvalues = tuple(content["eigenvalues"])
        return cls(packed, content["exponent"], eigenvalues, content["weighting"])

    def arrays(self) -> dict[str, FloatArray | Int64Array]:
        """The integers of T, and the eigenvalues."""
        return {"analysis": self.integers, "eigenvalues": np.array(self.eigenvalues)}

    @classmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> Self:
        """Read what `arrays` wrote."""
        analysis, attributes = read("analysis")
        eigenvalues = tuple(read("eigenvalues")[0].tolist())
        packed = np.asarray(analysis).astype("<i8").tobytes()
        return cls(packed, attributes["exponent"], eigenvalues, attributes["weighting"])

    @classmethod
    def admits(cls, rank: int, nodes: int, axes: int, attributes: Mapping[str, Any]) -> bool:
        """Return whether there are at most as many eigenvectors as nodes."""
        del axes, attributes
        return rank <= nodes


@lru_cache(maxsize=8)
def axis_spectrum(kernel: Kernel, k: int, rank: int, weighting: float = 0.25) -> AxisSpectrum:
    """The leading eigenvectors of the axis's Gram matrix, at most `rank` of them.

    Eigenvalues below 1e-9 of the largest are left out whatever `rank` says.
    """
    nodes = np.arange(k + 1) / k
    return AxisSpectrum.of_gram(kernel(nodes[:, None] - nodes), rank, weighting)
