"""A user's function of records and points as a statistic.

Let A be the function *as it is computed*: f of the bounded records in sorted order, floats and all,
each value cut to the public bounds, a failure replaced by the stated constant. Released is

- by default ``F_D = A(D)``, of all records that count, gathered in one place;
- with ``separable``, ``F_D = sum_s A(D_s)``, D_s the records of shard s, a keyed hash of content.
  For a function that adds up over records this is the same but for the cuts.

Stated sensitivity under replace-one
------------------------------------
A stated sensitivity is taken at its word. The user states s, the largest change of a value of f
when one record is added, removed or replaced (a missing record is not there, so all three are
replacements), of any number of records up to n; for one lattice optionally ``l1``, the largest sum
of such changes. Cutting to an interval changes no difference of values for the larger.

*All records*: ``S(F) <= s``. *Shards*: a record's shard follows from its content, so a replaced one
leaves a shard and enters another, or both are one: ``S(F) <= 2 s``, and the same for l1, whether or
not f adds up. Every shard is asked, those of no records too. With N lattice points::

    Delta1 <= min(N S, l1),    Delta2 <= min(sqrt(N) S, sqrt(S l1)),

the last because ``|x|_2^2 <= |x|_inf |x|_1``. A failure that depends on a record is outside this
proof, and so is all that f does besides returning values.

Integers
--------
A value is rounded to a multiple of ``2^-b``, by half of that at most; sums over m shards are exact
integers below ``2^52`` and so are floats again without error: eta is ``m 2^-(b+1)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.certify.approximation import FunctionClass
from dbern.errors import IntegrityError
from dbern.learn.user_functions import FUNCTION, UserFunction, load_function, try_out
from dbern.measure.accumulator import Errors, Memory, StoppedError
from dbern.measure.gathered import GatheredAccumulator
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, LatticeStrategy, SensitivityBound, Slab
from dbern.types import FloatArray, Int64Array

SHARD_ROWS = 1 << 18
"""Rows of a shard, about."""
_MAX_POINTS, _MIN_POINTS = 1 << 16, 64  # of one call
_TARGET_CALLS = 16  # to share out
_TRIAL_ROWS = 1000
_MAX_BITS = 52  # of a sum, so that it is a float without error


@dataclass(frozen=True, kw_only=True)
class BlackBox(Statistic):
    """A user's function before its lattice is chosen.

    `smoothness` is the class of F, in values as they are and positions in the unit cube. `stated`
    is s; `l1_sensitivity` is l1, for one lattice. With `separable` it is called for shards.
    """

    name: str = "oracle"
    user: UserFunction
    smoothness: FunctionClass
    stated: float
    l1_sensitivity: float | None
    separable: bool = False

    @property
    def bias(self) -> FunctionClass:
        """The class of F."""
        return self.smoothness

    @property
    def extent(self) -> tuple[float, float]:
        """The bounds, once a shard."""
        shards = self._shards(self.user.n)
        return shards * self.user.low, shards * self.user.high

    @property
    def one_lattice(self) -> bool:
        """Whether what is stated of sums is for one lattice."""
        return self.l1_sensitivity is not None

    def bind(self, n: int, charge: Budget) -> BlackBox:
        """Return the statistic for n records."""
        del charge
        return replace(self, user=replace(self.user, n=n))

    def _shards(self, n: int) -> int:
        return -(-n // SHARD_ROWS) if self.separable else 1

    @property
    def _affected_shards(self) -> int:
        return 2 if self.separable else 1

    @property
    def function_sensitivity(self) -> float:
        """``n s``, or twice that."""
        return OUTWARD * self.user.n * self._affected_shards * self.stated

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound n times the sensitivity, by what is stated."""
        size, text = strategy.lattice.size, "stated S(F)"
        value = OUTWARD * size ** (1 / norm) * self.function_sensitivity
        bound = SensitivityBound(
            value, f"{'N' if norm == 1 else 'sqrt(N)'} S(F) = {size} points, {text}"
        )
        if self.l1_sensitivity is None:
            return bound
        value = OUTWARD * self.user.n * self._affected_shards * self.l1_sensitivity
        text = "as stated"
        if norm == 2:
            value, text = OUTWARD * math.sqrt(value * self.function_sensitivity), "sqrt(S(F) l1)"
        return min(bound, SensitivityBound(value, text), key=lambda bound: bound.value)

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose shards and points of a block; refuse a function that fails on made-up records."""
        del tolerance
        user = self.user
        axes = tuple((axis.low, axis.high) for axis in user.function_domain.axes)
        try_out(user.function, user.ranges, axes, min(n, _TRIAL_ROWS))
        shards = self._shards(n)
        points_a_call = -(-strategy.lattice.size * shards // _TARGET_CALLS)
        points = min(_MAX_POINTS, max(_MIN_POINTS, points_a_call))
        return {"shards": shards, "points": points, "digest": user.digest}

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> BlackBoxAccumulator:
        """Return values at the lattice points; another function raises an IntegrityError."""
        if params["digest"] != self.user.digest:
            raise IntegrityError(f"{FUNCTION}: its module is not the one that was planned with")
        user, lattice = replace(self.user, n=n), cast("LatticeStrategy", strategy)
        return BlackBoxAccumulator(user, lattice, params["shards"], params["points"])


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
        values = self.call(load_function(self.user.function), records, block)
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
