"""What every strategy has in common: the lattice, its slabs, and the bounds on one record's move.

What is released of the lattice values psi: themselves, or spectral coordinates ``T psi``.

Either way the released integers carry independent noise of one scale, so what matters is how far
one record can move them in the l1 norm (Laplace) or the l2 norm (Kernel); and either way lattice
coefficients follow by a public linear map.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.types import FloatArray

# --- The lattice of the mechanism and its cut into slabs


SLAB_COEFFICIENTS = 1 << 20
"""Most coefficients in a slab where one layer of the first axis is no longer than that (8 MiB)."""


@dataclass(frozen=True)
class Slab:
    """Layers ``start`` to ``stop`` of the first axis, whole in every other: C-contiguous."""

    index: int
    start: int
    stop: int


class Layout(ABC):
    """How an array of released integers is cut: slabs of whole layers of the first axis."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    def size(self) -> int:
        """How many integers there are."""
        return math.prod(self.shape)

    @property
    def layer(self) -> int:
        """How many integers one layer of the first axis holds."""
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
class Box(Layout):
    """An array of `extent`, one released integer an entry."""

    extent: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent."""
        return self.extent


@dataclass(frozen=True)
class Lattice(Layout):
    """``P = {0, 1/k_1, .., 1} x .. x {0, 1/k_l, .., 1}`` (Algorithm 1, line 1).

    Examples
    --------
    >>> lattice = Lattice((4, 2))
    >>> lattice.shape, lattice.size, lattice.nodes(1).tolist()
    ((5, 3), 15, [0.0, 0.5, 1.0])
    """

    k: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(k_1 + 1, .., k_l + 1)``; its product is N."""
        return tuple(k + 1 for k in self.k)

    def nodes(self, axis: int) -> FloatArray:
        """Lattice positions of one axis in unit-cube units, shape (k + 1,)."""
        return np.arange(self.k[axis] + 1) / self.k[axis]


# --- What is released of the lattice values psi


@dataclass(frozen=True)
class Bound:
    """A bound on ``sup_{t,t'} |T (K_t - K_t')|_1``, null record included, and how it was got."""

    value: float
    derivation: str

    @property
    def half(self) -> Bound:
        """Of a bound on twice what is wanted."""
        return Bound(self.value / 2, f"1/2 x {self.derivation}")


class Strategy(Protocol):
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

    def l1_sensitivity(
        self, kernels: Sequence[Kernel], *, apart: bool = False, quick: bool = False
    ) -> Bound:
        """Bound the l1 distance that replacing one kernel bump by another makes.

        `apart`: the two may have opposite signs or go to different outputs, so nothing cancels.
        `quick` leaves out what takes long: still a bound, up to an eighth larger.
        """

    def l2_sensitivity(
        self, kernels: Sequence[Kernel], *, signed: bool = False, several: bool = False
    ) -> Bound:
        """The same in the l2 norm: of opposite signs, or of bumps that may be in two outputs."""

    def rkhs_sensitivity(self, kernels: Sequence[Kernel], norm: int) -> Bound:
        """Bound the l1 or l2 norm of what a function of norm one has for released values.

        The norm of the function is that of the product kernel's Hilbert space.
        """

    def reconstruct(self, values: FloatArray, slab: Slab) -> FloatArray:
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
