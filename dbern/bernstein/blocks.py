"""Arrays that are never whole in memory: blocks of layers of the first axis, read when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dbern.arrays import FloatArray


@dataclass(frozen=True)
class Blocks:
    """An array cut along its first axis; each pass over it reads one block at a time.

    Parameters
    ----------
    shape : tuple of int
        Of the whole array.
    layers : int
        Layers of the first axis in every block but the last.
    read : callable
        From the index of a block to its values.

    Examples
    --------
    >>> whole = np.arange(6.0).reshape(3, 2)
    >>> two = Blocks((3, 2), 2, lambda index: whole[2 * index : 2 * index + 2])
    >>> [(layers, part.tolist()) for layers, part in two]
    [(slice(0, 2, None), [[0.0, 1.0], [2.0, 3.0]]), (slice(2, 3, None), [[4.0, 5.0]])]
    >>> two.contracted([np.ones((1, 3)), np.eye(2)]).tolist()
    [[6.0, 9.0]]
    """

    shape: tuple[int, ...]
    layers: int
    read: Callable[[int], FloatArray]

    @property
    def places(self) -> list[slice]:
        """The layers of each block, in order."""
        starts = range(0, self.shape[0], self.layers)
        return [slice(start, min(start + self.layers, self.shape[0])) for start in starts]

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Each block's layers and its values."""
        for index, place in enumerate(self.places):
            yield place, self.read(index)

    def contracted(self, matrices: Sequence[FloatArray]) -> FloatArray:
        """One matrix (m, n) applied to each axis: shape (m_1, .., m_l), in one pass.

        The first axis goes first, so m_1 layers are in memory: for few of them.
        """
        first, *others = matrices
        total = np.zeros((len(first), *self.shape[1:]))
        for place, part in self:
            total += np.tensordot(first[:, place], part, axes=(1, 0))
        return on_others(total, others)


def blocks_of(values: FloatArray | Blocks) -> Blocks:
    """An array in memory as its one block; blocks as they are."""
    if isinstance(values, Blocks):
        return values
    return Blocks(values.shape, max(1, len(values)), lambda _index: values)


def on_axes(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """One matrix (m, n) applied to each axis, the first one last: for blocks of few layers.

    Examples
    --------
    >>> on_axes(np.array([[1.0, 2.0]]), [np.array([[1.0], [10.0]]), np.array([[1.0, 1.0]])])
    array([[ 3.],
           [30.]])
    """
    first, *others = matrices
    return np.tensordot(first, on_others(values, others), axes=(1, 0))


def on_others(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """One matrix (m, n) applied to each axis but the first.

    Examples
    --------
    >>> on_others(np.array([[1.0, 2.0]]), [np.array([[1.0, 1.0], [1.0, -1.0]])]).tolist()
    [[3.0, -1.0]]
    """
    for matrix in matrices:  # each moves the second axis to the end
        values = np.tensordot(values, matrix, axes=(1, 1))
    return values
