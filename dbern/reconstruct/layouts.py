"""Arrays of released integers: the lattice of the mechanism, other shapes, and their slabs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

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
