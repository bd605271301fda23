"""Values of a user's function at lattice points, as integers.

A value is rounded to a multiple of ``2^-b``, by half of that at most; sums over m shards are exact
integers below ``2^52`` and so are floats again without error: eta is ``m 2^-(b+1)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.learn.user_functions import FUNCTION, UserFunction, load
from dbern.measure.accumulator import Errors, Memory, StoppedError
from dbern.measure.gathered import GatheredAccumulator
from dbern.reconstruct.base import LatticeStrategy, Slab
from dbern.types import FloatArray, Int64Array

_MAX_BITS = 52  # of a sum, so that it is a float without error


@dataclass(frozen=True)
class BlackBoxAccumulator(GatheredAccumulator):
    """A user's function resolved: state is the sum over shards of its lattice values.

    One pass over the files gathers one shard and asks for one block of at most `points` lattice
    points; passes are the tasks.
    """

    user: UserFunction
    strategy: LatticeStrategy
    num_shards: int
    points: int
    solves_empty = True

    @property
    def content(self) -> UserFunction:
        """The function's records, in data units."""
        return self.user

    @property
    def description(self) -> str:
        """Records, and passes over them."""
        records = f"{self.shards} shards by content" if self.shards > 1 else "all records"
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        return f"values of {self.user.function} of {records}, {passes}: a shard and block each"

    @property
    def _size(self) -> int:
        return self.strategy.lattice.size

    @property
    def _blocks(self) -> int:
        return -(-self._size // self.points)

    @property
    def bits(self) -> int:
        """b: a value is rounded to a multiple of ``2^-b``."""
        return _MAX_BITS - math.frexp(self.shards * self._largest)[1]

    @property
    def _largest(self) -> float:
        return max(abs(self.user.low), abs(self.user.high))

    @property
    def errors(self) -> Errors:
        """Half a step a shard, and values within their bounds."""
        floats = math.ldexp(float(self.shards), -self.bits - 1)
        l1, l2 = (OUTWARD * float(self._size ** (1 / norm)) * floats for norm in (1, 2))
        largest = OUTWARD * self.shards * self._largest + floats
        return Errors(0.0, (0.0, 0.0), 0.0, floats, (l1, l2), largest)

    @property
    def shards(self) -> int:
        """Shards, of which each is called for by itself."""
        return self.num_shards

    @property
    def passes(self) -> int:
        """One for each shard and block."""
        return self.shards * self._blocks

    @property
    def memory(self) -> Memory:
        """Memory of columns, hashes and the lattice as floats, and of all rows, maybe in one shard.

        Memory of the user's function is not counted.
        """
        columns = len(self.columns)
        gathered = 6 * (columns + 2) * self.user.n + 4 * self.points * (1 + columns)
        return Memory(8 * (24 + 6 * columns), tables=16 * self._size, gathered=8 * gathered)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lattice, flat."""
        return (self._size,)

    @property
    def sources(self) -> tuple[tuple[str, str, str], ...]:
        """The function."""
        return ((FUNCTION, self.user.function, self.user.digest),)

    def split(self, index: int) -> tuple[int, int, int]:
        """One shard and one block for each pass."""
        return self.shards, *divmod(index, self._blocks)

    def solved(self, rows: FloatArray, counts: FloatArray, block: int) -> Int64Array:
        """Values of f at a block's points, for no records too."""
        records = np.repeat(rows, counts.astype(np.int64), axis=0)
        values = self.call(load(self.user.function), records, block)
        integers = np.zeros(self.shape, dtype=np.int64)
        integers[self.block(block)] = np.rint(np.ldexp(values, self.bits))
        return integers

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Exact values of one slab."""
        del output
        layers = state.reshape(self.strategy.lattice.shape)[slab.start : slab.stop]
        return np.ldexp(layers.astype(np.float64), -self.bits)

    def call(self, function: Any, records: FloatArray, block: int) -> FloatArray:
        """Values of f at a block's points, cut to the bounds, or their replacement where f fails.

        Errors of f go no further: they may hold values. Raises StoppedError where nothing replaces
        them.
        """
        points = self.block_points(block)
        values = np.full(len(points), np.nan)
        try:
            with np.errstate(all="ignore"):
                returned = np.asarray(function(records, points), dtype=np.float64)
            if returned.shape == values.shape:
                values = returned
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 -- panics of extensions are no `Exception`
            pass
        failed, failure = ~np.isfinite(values), self.user.failure
        if failed.any():
            if failure is None:
                raise StoppedError("stopped", FUNCTION)
            values = np.where(failed, failure, values)
        return np.asarray(np.clip(values, self.user.low, self.user.high))

    def values(self, function: Any, records: FloatArray) -> FloatArray:
        """All lattice values (N,) of records as they come, (n, columns), like a pass."""
        named = {column.name: records[:, i] for i, column in enumerate(self.columns)}
        rows = self.user.rows(named)
        rows = rows[np.lexsort(rows[:, ::-1].T)]
        blocks = range(self._blocks)
        return np.concatenate([self.call(function, rows.copy(), block) for block in blocks])

    def block(self, block: int) -> slice:
        """Lattice points of a block, in C order."""
        return slice(block * self.points, min((block + 1) * self.points, self._size))

    def block_points(self, block: int) -> FloatArray:
        """Lattice points of a block in data units, (m, l)."""
        lattice, block_slice = self.strategy.lattice, self.block(block)
        indices = np.unravel_index(np.arange(block_slice.start, block_slice.stop), lattice.shape)
        axes = self.user.function_domain.axes
        return np.column_stack(
            [axis.at(lattice.nodes(i)[indices[i]]) for i, axis in enumerate(axes)]
        )
