"""Arrays that are never whole in memory, block by block, and matrices along axes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dbern.types import FloatArray


@dataclass(frozen=True)
class Blocks(ABC):
    """An array of `shape`, cut along its first axis; each pass over it reads one block at a time.

    A block has so many `layers`, the last one fewer.
    """

    shape: tuple[int, ...]
    layers: int

    @abstractmethod
    def read(self, index: int) -> FloatArray:
        """Return a block."""

    @property
    def slices(self) -> list[slice]:
        """The layers of each block, in order."""
        starts = range(0, self.shape[0], self.layers)
        return [slice(start, min(start + self.layers, self.shape[0])) for start in starts]

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Each block's layers and its values."""
        for index, layers in enumerate(self.slices):
            yield layers, self.read(index)


@dataclass(frozen=True)
class ArrayBlocks(Blocks):
    """An array in memory."""

    values: FloatArray

    def read(self, index: int) -> FloatArray:
        """Return a block of the array."""
        return self.values[self.slices[index]]


def blocks_of(values: FloatArray | Blocks) -> Blocks:
    """Wrap an array in memory as one block; blocks stay as they are."""
    if isinstance(values, Blocks):
        return values
    return ArrayBlocks(values.shape, max(1, len(values)), values)


def apply_to_axes(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Apply one matrix (m, n) to each axis, the first one last: for blocks of few layers."""
    first, *others = matrices
    return np.tensordot(first, apply_to_others(values, others), axes=(1, 0))


def apply_to_others(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Apply one matrix (m, n) to each axis but the first."""
    for matrix in matrices:  # each moves the second axis to the end
        values = np.tensordot(values, matrix, axes=(1, 1))
    return values
