"""A user's function as integers: one pass gathers a shard and asks it of a block of the lattice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.components.counting import StoppedError
from dbern.components.gathering import Gathering
from dbern.components.user_functions import FUNCTION, UserFunction, load
from dbern.domain import Column
from dbern.errors import SpecError
from dbern.functions import source_digest

_MOST_BITS = 52  # of a sum, so that it is a float without error


@dataclass(frozen=True)
class BlackBoxStatistic:
    """A user's function resolved: state is the sum over shards of its lattice values.

    One pass over the files gathers one shard and asks for one block of at most `points` lattice
    points; passes are the tasks.
    """

    component: UserFunction
    coordinates: Coordinates
    shards: int
    points: int

    kernel_error = 0.0
    position_error = 0.0

    @property
    def columns(self) -> tuple[Column, ...]:
        """The function's."""
        return self.component.columns

    @property
    def counting(self) -> dict[str, Any]:
        """Shards, points of a block, and which function."""
        return {"shards": self.shards, "points": self.points, "digest": self.component.digest}

    @property
    def description(self) -> str:
        """Whom is asked of what."""
        records = f"{self.shards} shards by content" if self.shards > 1 else "all records"
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        return f"values of {self.component.function} of {records}, {passes}: a shard and block each"

    @property
    def _size(self) -> int:
        return self.coordinates.lattice.size

    @property
    def _blocks(self) -> int:
        return -(-self._size // self.points)

    @property
    def bits(self) -> int:
        """b of `black_boxes`."""
        return _MOST_BITS - math.frexp(self.shards * self._largest)[1]

    @property
    def _largest(self) -> float:
        return max(abs(self.component.low), abs(self.component.high))

    @property
    def float_error(self) -> float:
        """Half a step a shard."""
        return math.ldexp(float(self.shards), -self.bits - 1)

    @property
    def value_bound(self) -> float:
        """The bounds, a shard."""
        return OUTWARD * self.shards * self._largest + self.float_error

    def kernel_error_norm(self, norm: int) -> float:
        """None."""
        del norm
        return 0.0

    def float_error_norm(self, norm: int) -> float:
        """Of all lattice values."""
        return OUTWARD * float(self._size ** (1 / norm)) * self.float_error

    @property
    def passes(self) -> int:
        """One for each shard and block."""
        return self.shards * self._blocks

    @property
    def batch_bytes(self) -> int:
        """Columns, hashes and a few temporaries."""
        return 8 * (24 + 6 * len(self.columns))

    @property
    def gathered_bytes(self) -> int:
        """All rows: they may be equal, and then are in one shard. What f takes is its own."""
        width = len(self.columns) + 2
        return 8 * (6 * width * self.component.n + 4 * self.points * (1 + len(self.columns)))

    @property
    def table_bytes(self) -> int:
        """The lattice as floats."""
        return 16 * self._size

    @property
    def shape(self) -> tuple[int, ...]:
        """The lattice, flat."""
        return (self._size,)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Records are not added one by one."""
        raise NotImplementedError("records are gathered for a user's function")

    def gather(self, salt: bytes, index: int) -> BlackBoxPass:
        """Gather the records of one shard, for one block.

        Raises
        ------
        StoppedError
            Where the function cannot be imported here, or is not the one that was planned.
        """
        try:
            called = load(self.component.function)
        except SpecError:
            raise StoppedError("unlike", FUNCTION) from None
        if source_digest(self.component.function) != self.component.digest:
            raise StoppedError("unlike", FUNCTION)
        shard, block = divmod(index, self._blocks)
        return BlackBoxPass(self, called, salt, shard, block)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Values of one slab, exact."""
        del output
        layers = state.reshape(self.coordinates.lattice.shape)[slab.start : slab.stop]
        return np.ldexp(layers.astype(np.float64), -self.bits)

    def asked(self, called: Any, records: FloatArray, block: int) -> FloatArray:
        """What f says of a block's points, cut to the bounds, or what stands for it.

        Its errors go no further: they may hold values.

        Raises
        ------
        StoppedError
            Where it fails, and nothing stands for it.
        """
        points = self.block_points(block)
        values = np.full(len(points), np.nan)
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(called(records, points), dtype=np.float64)
            if found.shape == values.shape:
                values = found
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 -- panics of extensions are no `Exception`
            pass
        failed, failure = ~np.isfinite(values), self.component.failure
        if failed.any():
            if failure is None:
                raise StoppedError("stopped", FUNCTION)
            values = np.where(failed, failure, values)
        return np.asarray(np.clip(values, self.component.low, self.component.high))

    def values(self, called: Any, records: FloatArray) -> FloatArray:
        """All lattice values (N,) of records as they come, (n, columns): what a pass would find."""
        named = {column.name: records[:, i] for i, column in enumerate(self.columns)}
        rows = self.component.rows(named)
        rows = rows[np.lexsort(rows[:, ::-1].T)]
        blocks = range(self._blocks)
        return np.concatenate([self.asked(called, rows.copy(), block) for block in blocks])

    def block(self, block: int) -> slice:
        """Lattice points of a block, in C order."""
        return slice(block * self.points, min((block + 1) * self.points, self._size))

    def block_points(self, block: int) -> FloatArray:
        """The same in data units, (m, l)."""
        lattice, part = self.coordinates.lattice, self.block(block)
        indices = np.unravel_index(np.arange(part.start, part.stop), lattice.shape)
        axes = self.component.domain.axes
        return np.column_stack(
            [axis.at(lattice.nodes(i)[indices[i]]) for i, axis in enumerate(axes)]
        )


class BlackBoxPass:
    """One shard and one block: records in, the block's integers out."""

    def __init__(
        self, statistic: BlackBoxStatistic, called: Any, salt: bytes, shard: int, block: int
    ) -> None:
        self._statistic, self._called, self._block = statistic, called, block
        shards, rows = statistic.shards, statistic.component.rows
        self._gathering = Gathering(rows, self._solved, salt, shards, passes=shards, index=shard)
        self._asked = False

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the records of the shard."""
        self._gathering.add(records)

    def finish(self, state: Int64Array) -> None:
        """Ask, of no records too, and add the integers to `state`, in place."""
        self._gathering.finish(state)
        if not self._asked:
            state += self._solved(np.empty((0, len(self._statistic.columns))), np.empty(0))

    def _solved(self, rows: FloatArray, counts: FloatArray) -> Int64Array:
        self._asked = True
        statistic = self._statistic
        records = np.repeat(rows, counts.astype(np.int64), axis=0)
        values = statistic.asked(self._called, records, self._block)
        integers = np.zeros(statistic.shape, dtype=np.int64)
        integers[statistic.block(self._block)] = np.rint(np.ldexp(values, statistic.bits))
        return integers
