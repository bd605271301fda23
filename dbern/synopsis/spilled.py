"""Coefficients of a large lattice in a temporary file, where an operation needs all of an axis."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.blocks import Blocks, on_others
from dbern.bernstein.shapes import isotonic, most_moved
from dbern.errors import EnvironmentRefusedError, ReleaseError

_BLOCK_VALUES = 1 << 20  # numbers of a block in memory: 8 MiB


class Spilled:
    """An array in a temporary file, gone through by layers of the first axis or by lines along it.

    The file has no name, and goes with this object or its process. It holds what follows from
    released values: nothing that is not public.

    Parameters
    ----------
    shape : tuple of int
        Of the array; its numbers take 8 bytes each.

    Raises
    ------
    ReleaseError
        From `write` and `along`, where the file cannot be written.

    Examples
    --------
    >>> array = Spilled((2, 3))
    >>> array.write(0, np.arange(6.0).reshape(2, 3))
    >>> array.along(0, lambda lines: lines - lines.mean(axis=0))
    >>> [part.tolist() for _, part in array.blocks]
    [[[-1.5, -1.5, -1.5], [1.5, 1.5, 1.5]]]
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._layer = math.prod(self.shape[1:])
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- closed by the finalizer
        self._file = file.fileno()
        weakref.finalize(self, file.close)

    @property
    def blocks(self) -> Blocks:
        """The array by layers."""
        layers = max(1, _BLOCK_VALUES // self._layer)

        def read(index: int) -> FloatArray:
            start, stop = index * layers, min((index + 1) * layers, self.shape[0])
            found = self._get(start * self._layer, (stop - start) * self._layer)
            return found.reshape(-1, *self.shape[1:])

        return Blocks(self.shape, layers, read)

    def write(self, start: int, values: FloatArray) -> None:
        """Write layers from `start` on."""
        self._put(start * self._layer, values)

    def along(self, axis: int, change: Callable[[FloatArray], FloatArray]) -> None:
        """Change all lines along an axis; `change` gets and gives arrays with that axis whole."""
        if axis > 0:
            for place, part in self.blocks:
                self.write(place.start, change(part))
            return
        width = max(1, _BLOCK_VALUES // self.shape[0])
        for first in range(0, self._layer, width):
            starts = range(first, math.prod(self.shape), self._layer)
            count = min(width, self._layer - first)
            lines = change(np.stack([self._get(start, count) for start in starts]))
            for start, row in zip(starts, lines, strict=True):
                self._put(start, row)

    def extremes(self) -> tuple[float, float]:
        """The least and the largest number."""
        found = [(float(part.min()), float(part.max())) for _, part in self.blocks]
        least, largest = zip(*found, strict=True)
        return min(least), max(largest)

    def _get(self, first: int, count: int) -> FloatArray:
        return np.frombuffer(os.pread(self._file, 8 * count, 8 * first))

    def _put(self, first: int, values: FloatArray) -> None:
        data, done = np.ascontiguousarray(values).data.cast("B"), 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], 8 * first + done)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ReleaseError(
                f"{tempfile.gettempdir()}: a temporary file cannot be written ({why}); free some "
                "space, or set TMPDIR to another folder"
            ) from None


def coefficients(stored: Blocks, matrices: Sequence[FloatArray]) -> Spilled:
    """Each axis's matrix (k_i + 1, d_i) applied to stored values (d_1, .., d_l).

    A lattice's shards are gone through once for all axes but the first, and the file by lines for
    that; of stored values in one block, which are in memory, the file is made layer by layer.

    Raises
    ------
    EnvironmentRefusedError
        Before anything is read, where there is no room for the temporary file.
    ReleaseError
        Where it cannot be written.
    """
    first, *others = matrices
    shape = [len(matrix) for matrix in matrices]
    _check_room(8 * math.prod(shape))
    found = Spilled(shape)
    if len(stored.places) == 1:
        values = stored.read(0)
        for place in found.blocks.places:
            part = np.tensordot(first[place], values, axes=(1, 0))
            found.write(place.start, on_others(part, others))
        return found
    for place, part in stored:
        found.write(place.start, on_others(part, others))
    found.along(0, lambda lines: np.asarray(first @ lines))
    return found


def make_monotone(bernstein: Spilled, axis: int, sign: int) -> float:
    """Make coefficients monotone along an axis where they are; returns the most they moved.

    As `monotone` does with as many, without a higher degree: the range of the change is that of
    its coefficients.
    """
    low, high, largest = 0.0, 0.0, 0.0

    def change(lines: FloatArray) -> FloatArray:
        nonlocal low, high, largest
        found = sign * isotonic(sign * lines, axis)
        moved = found - lines
        low, high = min(low, float(moved.min())), max(high, float(moved.max()))
        largest = max(largest, float(np.abs(lines).max()))
        return np.asarray(found)

    bernstein.along(axis, change)
    return most_moved((low, high), largest)


def _check_room(wanted: int) -> None:
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise EnvironmentRefusedError(
            f"the shapes of so large a lattice need a temporary file of {wanted >> 20} MiB, and "
            f"there is no folder for it ({why}); set TMPDIR to one that can be written"
        ) from None
    if free < wanted:
        raise EnvironmentRefusedError(
            f"the shapes of so large a lattice are made in a temporary file of {wanted >> 20} MiB, "
            f"and {folder} has {free >> 20} MiB free; free some space, set TMPDIR to another "
            "folder, or ask the synopsis itself"
        )
