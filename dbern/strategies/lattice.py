"""Release the lattice values themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.strategies.approximation import lebesgue_constant
from dbern.strategies.base import Bound, Lattice, LatticeMapStrategy, Layout, Slab
from dbern.types import FloatArray

_PAIRWISE_WORK = 2e9


@dataclass(frozen=True)
class LatticeStrategy(LatticeMapStrategy):
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

    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, loose: bool = False
    ) -> Bound:
        """``min(2 max_t sum_v K(v/k - t), N sup K)``; the proof is in `dbern.counting.kernel_sums`.

        The second holds only where both bumps are nonnegative and in one output.
        """
        del loose
        sums = [kernel.lattice_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        twice = OUTWARD * 2 * math.prod(sums)
        printed = OUTWARD * self.lattice.size * math.prod(kernel.peak for kernel in kernels)
        if printed <= twice and not signed:
            return Bound(printed, f"N S(F) = {self.lattice.size} x sup K / n")
        factors = " x ".join(f"{value:.6g}" for value in sums)
        return Bound(twice, f"2 max_t sum_v K(v/k - t) / n = 2 x {factors} / n")

    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, multi_output: bool = False
    ) -> Bound:
        """``min(sqrt(2) max_t |K_t|_2, sqrt(N) sup K)``, where bumps are nonnegative.

        ``|K_t - K_t'|_2^2 = |K_t|_2^2 + |K_t'|_2^2 - 2 <K_t, K_t'>``; the missing record gives
        less, and different outputs have no product. The second term is the move of one output
        alone: it is no bound where a record may move two. Of opposite signs, ``2 max_t |K_t|_2``.
        """
        sums = [kernel.square_sum(k) for kernel, k in zip(kernels, self.lattice.k, strict=True)]
        if signed:
            twice = OUTWARD * 2 * math.sqrt(math.prod(sums))
            return Bound(twice, "2 max_t (sum_v K(v/k - t)^2)^{1/2} / n")
        root = OUTWARD * math.sqrt(2 * math.prod(sums))
        peak = math.prod(kernel.peak for kernel in kernels)
        printed = OUTWARD * math.sqrt(self.lattice.size) * peak
        if printed <= root and not multi_output:
            return Bound(printed, f"sqrt(N) S(F) = sqrt({self.lattice.size}) x sup K / n")
        return Bound(root, "sqrt(2) max_t (sum_v K(v/k - t)^2)^{1/2} / n")

    def rkhs_sensitivity(self, kernels: Sequence[Kernel], norm: int) -> Bound:
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
            return Bound(OUTWARD * math.sqrt(total), "(sum |G|)^{1/2}")
        largest = math.prod(float(gram.sum(axis=1).max()) for gram in grams)
        return Bound(OUTWARD * math.sqrt(largest), "lambda_max(G)^{1/2}")

    def lattice_norm(self, h: Sequence[int]) -> float:
        """See `Strategy`; it factors over axes."""
        axes = zip(self.lattice.k, h, strict=True)
        return OUTWARD * math.prod(lebesgue_constant(*axis) for axis in axes)

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
        """The values themselves."""
        return values[slab.start : slab.stop]
