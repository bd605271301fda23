"""Base of every strategy: what is released of a function, and bounds on one record's move.

Of the lattice values psi of a solved function they themselves are released, or spectral coordinates
``T psi``; of a sum over records they themselves, or bins. Released integers carry noise of one
scale, so what matters is how far one record can move them in the l1 norm (Laplace) or the l2 norm
(Gaussian); and lattice coefficients follow by a public linear map.

Released integers are arrays, a lattice or another shape, and are worked on slab by slab.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.reconstruct.axis_maps import AxisMap, synthesis_matrix
from dbern.reconstruct.series import lebesgue_constant, released_sup_norm
from dbern.types import FloatArray

SLAB_COEFFICIENTS = 1 << 20
"""Most coefficients in a slab where one layer of the first axis is no longer than that (8 MiB)."""


@dataclass(frozen=True)
class Slab:
    """Layers ``start`` to ``stop`` of the first axis, whole in every other: C-contiguous."""

    index: int
    start: int
    stop: int


class Layout(ABC):
    """Cut an array of released integers into slabs of whole layers of the first axis."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    def size(self) -> int:
        """Number of integers."""
        return math.prod(self.shape)

    @property
    def layer(self) -> int:
        """Number of integers in one layer of the first axis."""
        return math.prod(self.shape[1:])

    @property
    def slab_layers(self) -> int:
        """Layers of every slab but the last."""
        return min(self.shape[0], max(1, SLAB_COEFFICIENTS // self.layer))

    def slabs(self) -> Iterator[Slab]:
        """The slabs in order: the unit of staging, of noise and of one zarr shard."""
        for index, start in enumerate(range(0, self.shape[0], self.slab_layers)):
            yield Slab(index, start, min(start + self.slab_layers, self.shape[0]))

    def slab_shape(self, slab: Slab) -> tuple[int, ...]:
        """Shape of the slab's array."""
        return (slab.stop - slab.start, *self.shape[1:])


@dataclass(frozen=True)
class ArrayLayout(Layout):
    """An array of `extent`, one released integer an entry."""

    extent: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent."""
        return self.extent


@dataclass(frozen=True)
class Lattice(Layout):
    """``P = {0, 1/k_1, .., 1} x .. x {0, 1/k_l, .., 1}`` (Algorithm 1, line 1)."""

    k: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(k_1 + 1, .., k_l + 1)``; its product is N."""
        return tuple(k + 1 for k in self.k)

    def nodes(self, axis: int) -> FloatArray:
        """Lattice positions of one axis in unit-cube units, shape (k + 1,)."""
        return np.arange(self.k[axis] + 1) / self.k[axis]


@dataclass(frozen=True)
class SensitivityBound:
    """A bound, such as on ``sup_{t,t'} |T (K_t - K_t')|_1``, and its derivation.

    With `balanced`, a move adds to released values, and takes from them, at most half of `value`
    each; of what is counted in integers, half of what their rounding adds, too.
    """

    value: float
    derivation: str
    balanced: bool = False

    @property
    def half(self) -> SensitivityBound:
        """Half of a bound on twice the quantity."""
        return SensitivityBound(self.value / 2, f"1/2 x {self.derivation}")


class Strategy(ABC):
    """Released values in place of the lattice values, and the map from one to the other.

    `kind` is "" where lattice values are released, and stored, else the prefix of its noise's
    names. The function is evaluated on `lattice`; `layout` has the shape and slabs of the released
    integers. `maps` are the stored maps of the axes, or the one of the whole lattice; none for
    lattice values.
    """

    kind: ClassVar[str] = ""
    lattice: Lattice

    @property
    def layout(self) -> Layout:
        """Shape and slabs of the released integers: one for each product of the axes' values."""
        return ArrayLayout(tuple(axis.rank for axis in self.maps))

    @property
    def maps(self) -> tuple[AxisMap, ...]:
        """Stored maps of the axes, or of the whole lattice."""
        return ()

    @property
    def axis_maps(self) -> Sequence[AxisMap | None]:
        """Maps by axis; None for each axis of lattice values."""
        return self.maps or (None,) * len(self.lattice.k)

    @abstractmethod
    def row_sums(self, axis: int) -> FloatArray:
        """``sum_v |T_jv|`` of the axis's matrix, rounded outward; shape (d,)."""

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """Lattice coefficients of one slab of the lattice, from all released values."""
        result = values
        for axis, axis_map in enumerate(self.maps):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, axis_map.synthesis[rows], axes=(0, 1))
        return result

    @abstractmethod
    def lattice_norm(self, h: Sequence[int]) -> float:
        """Bound the polynomial's sup, by the largest error of a lattice value before release."""

    def matrices(self, h: Sequence[int]) -> list[FloatArray]:
        """Matrices of the axes, from released values to coefficients of the Bernstein basis."""
        axes = zip(self.lattice.k, h, self.axis_maps, strict=True)
        return [synthesis_matrix(*axis) for axis in axes]

    @property
    def joint_synthesis(self) -> FloatArray | None:
        """Map from released to lattice values, (k_1 + 1, .., k_l + 1, d); None where axes factor.

        It comes before `matrices`, which then take lattice values.
        """
        return None

    def released_norm(self, h: Sequence[int]) -> float:
        """Bound the sup of the polynomial by the largest error of a released value."""
        axes = zip(self.lattice.k, h, self.axis_maps, strict=True)
        return OUTWARD * math.prod(released_sup_norm(*axis) for axis in axes)


class AxisStrategy(Strategy):
    """A strategy whose axes factor: one map an axis, and bounds on what kernel translates move."""

    @abstractmethod
    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False
    ) -> SensitivityBound:
        """Bound the l1 distance that replacing one kernel translate by another makes.

        `signed`: the two may have opposite signs or go to different outputs, so nothing cancels.
        """

    @abstractmethod
    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, multi_output: bool = False
    ) -> SensitivityBound:
        """Bound the same in the l2 norm, of opposite signs, or where they may be in two outputs."""


class LatticeMapStrategy(Strategy):
    """A public linear map of lattice values, one matrix an axis."""

    @abstractmethod
    def matrix(self, axis: int) -> FloatArray | None:
        """Matrix (d, k + 1) of the axis; None for the identity."""

    @abstractmethod
    def rkhs_sensitivity(self, kernels: Sequence[Kernel], norm: int) -> SensitivityBound:
        """Bound the l1 or l2 norm of the released values of a function of norm one.

        The norm of the function is that of the product kernel's Hilbert space.
        """

    def lattice_norm(self, h: Sequence[int]) -> float:
        """Product over axes of the bounds of `lebesgue_constant`."""
        axes = zip(self.lattice.k, h, self.axis_maps, strict=True)
        return OUTWARD * math.prod(lebesgue_constant(*axis) for axis in axes)

    def measure(self, values: FloatArray, slab: Slab) -> FloatArray:
        """Released values of one slab, from all lattice values."""
        result = values
        for axis in range(values.ndim):  # each step moves the first axis to the end
            matrix, rows = self.matrix(axis), slice(slab.start, slab.stop)
            if matrix is None:
                result = np.moveaxis(result[rows] if axis == 0 else result, 0, -1)
            elif axis == 0:
                result = np.moveaxis(np.tensordot(matrix[rows], result, (1, 0)), 0, -1)
            else:
                result = np.tensordot(result, matrix, axes=(0, 1))
        return np.ascontiguousarray(result)


@dataclass(frozen=True)
class LatticeStrategy(AxisStrategy, LatticeMapStrategy):
    """The lattice values themselves (Algorithm 1 of the paper)."""

    lattice: Lattice

    @property
    def layout(self) -> Layout:
        """The lattice."""
        return self.lattice

    def matrix(self, axis: int) -> FloatArray | None:
        """Return None: the identity."""
        del axis
        return None

    def row_sums(self, axis: int) -> FloatArray:
        """Ones: rows of the identity."""
        return np.ones(self.lattice.shape[axis])

    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False
    ) -> SensitivityBound:
        """``min(2 max_t sum_v K(v/k - t), N sup K)``; the proof is in `dbern.measure.kernel_sums`.

        The second holds only where both translates are nonnegative and in one output.
        """
        sums = [kernel.lattice_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        twice = OUTWARD * 2 * math.prod(sums)
        printed = OUTWARD * self.lattice.size * math.prod(kernel.peak for kernel in kernels)
        if printed <= twice and not signed:
            return SensitivityBound(printed, f"N S(F) = {self.lattice.size} x sup K / n")
        factors = " x ".join(f"{value:.6g}" for value in sums)
        return SensitivityBound(twice, f"2 max_t sum_v K(v/k - t) / n = 2 x {factors} / n")

    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, multi_output: bool = False
    ) -> SensitivityBound:
        """``min(sqrt(2) max_t |K_t|_2, sqrt(N) sup K)``, where translates are nonnegative.

        ``|K_t - K_t'|_2^2 = |K_t|_2^2 + |K_t'|_2^2 - 2 <K_t, K_t'>``; the missing record gives
        less, and different outputs have no product. The second term is the move of one output
        alone: it is no bound where a record may move two. Of opposite signs, ``2 max_t |K_t|_2``.
        """
        sums = [kernel.square_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        if signed:
            twice = OUTWARD * 2 * math.sqrt(math.prod(sums))
            return SensitivityBound(twice, "2 max_t (sum_v K(v/k - t)^2)^{1/2} / n")
        root = OUTWARD * math.sqrt(2 * math.prod(sums))
        peak = math.prod(kernel.peak for kernel in kernels)
        printed = OUTWARD * math.sqrt(self.lattice.size) * peak
        if printed <= root and not multi_output:
            return SensitivityBound(
                printed, f"sqrt(N) S(F) = sqrt({self.lattice.size}) x sup K / n"
            )
        return SensitivityBound(root, "sqrt(2) max_t (sum_v K(v/k - t)^2)^{1/2} / n")

    def rkhs_sensitivity(self, kernels: Sequence[Kernel], norm: int) -> SensitivityBound:
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
            return SensitivityBound(OUTWARD * math.sqrt(total), "(sum |G|)^{1/2}")
        largest = math.prod(float(gram.sum(axis=1).max()) for gram in grams)
        return SensitivityBound(OUTWARD * math.sqrt(largest), "lambda_max(G)^{1/2}")

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """The values themselves."""
        return values[slab.start : slab.stop]


@dataclass(frozen=True)
class VectorStrategy:
    """A vector of numbers that are released as they are."""

    count: int
    kind: ClassVar[str] = ""
    maps: ClassVar[tuple[AxisMap, ...]] = ()

    @property
    def layout(self) -> ArrayLayout:
        """One integer an entry."""
        return ArrayLayout((self.count,))

    @property
    def lattice(self) -> ArrayLayout:
        """Stored entries: the released ones."""
        return self.layout

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """The entries of one slab."""
        return values[slab.start : slab.stop]


AnyStrategy: TypeAlias = Strategy | VectorStrategy
"""Released form of a statistic: coordinates of a lattice, or numbers as they are."""
