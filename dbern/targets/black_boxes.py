"""A user's function of records and points as a measurement.

Let A be the function *as it is computed*: f of the bounded records in sorted order, floats and all,
each value cut to the public bounds, a failure replaced by the stated constant. Released is

- by default ``F_D = A(D)``, of all records that count, gathered in one place;
- with ``separable``, ``F_D = sum_s A(D_s)``, D_s the records of shard s, a keyed hash of content.
  For a function that adds up over records this is the same but for the cuts.

Stated sensitivity under replace-one
------------------------------------
A stated sensitivity is taken at its word.
The user states s, the largest change of a value of f when one record is added, removed or replaced
(a missing record is not there, so all three are replacements), of any number of records up to n;
for one lattice optionally ``l1``, the largest sum of such changes. Cutting to an interval changes
no difference of values for the larger.

*All records*: ``S(F) <= s``. *Shards*: a record's shard follows from its content, so a replaced one
leaves a shard and enters another, or both are one: ``S(F) <= 2 s``, and the same for l1, whether or
not f adds up. Every shard is asked, those of no records too. With N lattice points::

    Delta1 <= min(N S, l1),    Delta2 <= min(sqrt(N) S, sqrt(S l1)),

the last because ``|x|_2^2 <= |x|_inf |x|_1``. A failure that depends on a record is outside this
proof, and so is all that f does besides returning values.

Estimated sensitivity
---------------------
Distances of made-up neighbours, for random differential privacy: the theorem and what it is worth
are in `dbern.privacy.random_privacy`. Distances are those of the function as it is computed, cut to
its bounds, on the lattice that is released.

From floats to integers
-----------------------
A value is rounded to a multiple of ``2^-b``, by half of that at most; sums over m shards are exact
integers below ``2^52`` and so are floats again without error: eta is ``m 2^-(b+1)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.counting.gathered import GatheredAccumulator
from dbern.counting.measurement import Measurement
from dbern.counting.passes import Errors, Memory, StoppedError
from dbern.data.domain import Column, Domain, RecordSchema
from dbern.errors import IntegrityError, SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.keystream import KeyStream
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.random_privacy import RandomPrivacy, order_statistic
from dbern.strategies.base import AnyStrategy, Bound, LatticeStrategy, Slab
from dbern.strategies.bias import Approximation
from dbern.strategies.smoothness import Linear
from dbern.system import named_function
from dbern.types import FloatArray, Int64Array

# --- A user's function of records and points


FUNCTION: Final = "target.function"


@dataclass(frozen=True)
class Range:
    """Range of a column's values; `whole` for positions in a list."""

    low: float
    high: float
    whole: bool = False


def load(name: str) -> Callable[..., Any]:
    """The function that a spec names; a SpecError where it cannot be imported."""
    return named_function(name, FUNCTION, "of records (n, columns) and points (m, l)")


@dataclass(frozen=True)
class UserFunction:
    """A function, the records it is called with and its bounds.

    `function` is ``module:name``, `digest` that of its module's text. The columns of `schema` are
    those of the function's records: axes, then label, response and group as far as there are some;
    of categories the position in their list. Values have the public bounds `low` and `high`;
    `failure` replaces a value where the function fails, None stops the release. `points` is the
    domain of the points that it is asked at, where that is not the records'. `n` is the public
    number of rows, 0 before a plan.
    """

    function: str
    digest: str
    schema: RecordSchema
    low: float
    high: float
    failure: float | None
    points: Domain | None = field(default=None, kw_only=True)
    n: int = field(default=0, kw_only=True)

    @property
    def domain(self) -> Domain:
        """Axes of the records."""
        return self.schema.domain

    @property
    def function_domain(self) -> Domain:
        """Axes of the points."""
        return self.points or self.schema.domain

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column of a record."""
        schema = self.schema
        response = schema.response.column if schema.response else None
        others = (one for one in (schema.label, response, schema.group) if one)
        return (*schema.domain.columns, *others)

    def rows(self, records: Mapping[str, FloatArray]) -> FloatArray:
        """Records that count (m', columns), in data units."""
        kept, _ = self.domain.bounded(records)
        values = [records[column.name] for column in self.columns]
        kept &= np.isfinite(values).all(axis=0)
        low, high = zip(*((one.low, one.high) for one in self.ranges), strict=True)
        # Adding 0.0 makes one zero of two, here as in the hash.
        return np.clip(np.column_stack(values)[kept], low, high) + 0.0

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Ranges of the columns' values."""
        found = [Range(axis.low, axis.high) for axis in self.domain.axes]
        for column in self.columns[len(found) :]:
            response = self.schema.response
            if column.categories or response is None:
                found.append(Range(0.0, len(column.categories) - 1.0, whole=True))
            else:
                found.append(Range(response.low, response.high))
        return tuple(found)


# --- Records of no one

_POINTS = 3


def _uniform_records(ranges: Sequence[Range], rows: int, stream: KeyStream) -> FloatArray:
    """Independent records (rows, columns), uniform over their public ranges."""
    columns = []
    shares = uniform(stream, rows * len(ranges)).reshape(rows, len(ranges))
    for share, one in zip(shares.T, ranges, strict=True):
        if one.whole:
            columns.append(np.floor(share * (one.high + 1)))
        else:
            columns.append(np.clip(one.low + share * (one.high - one.low), one.low, one.high))
    return np.column_stack(columns)


@lru_cache(maxsize=16)
def _try_out(
    function: str, ranges: tuple[Range, ...], axes: tuple[tuple[float, float], ...], rows: int
) -> None:
    """Call a function once, with made-up records and a few points, within bounds of their `axes`.

    Raises SpecError for a function that raises, or does not return one number a point.
    """
    records = _uniform_records(ranges, rows, public_stream("trial of a function", 0))
    share = np.linspace(0, 1, _POINTS)[:, None]
    ends = np.array(axes)
    points = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
    called = load(function)
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(called(records, points), dtype=np.float64)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it may fail in any way
        shapes = f"records {(rows, len(ranges))} and points {points.shape}"
        raise SpecError(
            f"{FUNCTION}: fails on made-up records ({type(error).__name__}). It gets {shapes}. "
            "Mend it."
        ) from None
    if values.shape != (_POINTS,):
        raise SpecError(
            f"{FUNCTION}: returns shape {values.shape} for {_POINTS} points; return one number a "
            f"point, shape ({_POINTS},)"
        )


# --- A user's function as integers

_MOST_BITS = 52  # of a sum, so that it is a float without error


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
        return _MOST_BITS - math.frexp(self.shards * self._largest)[1]

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
        values = self.asked(load(self.user.function), records, block)
        integers = np.zeros(self.shape, dtype=np.int64)
        integers[self.block(block)] = np.rint(np.ldexp(values, self.bits))
        return integers

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Exact values of one slab."""
        del output
        layers = state.reshape(self.strategy.lattice.shape)[slab.start : slab.stop]
        return np.ldexp(layers.astype(np.float64), -self.bits)

    def asked(self, called: Any, records: FloatArray, block: int) -> FloatArray:
        """Values of f at a block's points, cut to the bounds, or their replacement where f fails.

        Errors of f go no further: they may hold values. Raises StoppedError where nothing replaces
        them.
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
        failed, failure = ~np.isfinite(values), self.user.failure
        if failed.any():
            if failure is None:
                raise StoppedError("stopped", FUNCTION)
            values = np.where(failed, failure, values)
        return np.asarray(np.clip(values, self.user.low, self.user.high))

    def values(self, called: Any, records: FloatArray) -> FloatArray:
        """All lattice values (N,) of records as they come, (n, columns), like a pass."""
        named = {column.name: records[:, i] for i, column in enumerate(self.columns)}
        rows = self.user.rows(named)
        rows = rows[np.lexsort(rows[:, ::-1].T)]
        blocks = range(self._blocks)
        return np.concatenate([self.asked(called, rows.copy(), block) for block in blocks])

    def block(self, block: int) -> slice:
        """Lattice points of a block, in C order."""
        return slice(block * self.points, min((block + 1) * self.points, self._size))

    def block_points(self, block: int) -> FloatArray:
        """Lattice points of a block in data units, (m, l)."""
        lattice, part = self.strategy.lattice, self.block(block)
        indices = np.unravel_index(np.arange(part.start, part.stop), lattice.shape)
        axes = self.user.function_domain.axes
        return np.column_stack(
            [axis.at(lattice.nodes(i)[indices[i]]) for i, axis in enumerate(axes)]
        )


# --- The sensitivity sampler

UNIFORM = "uniform"
_KEY = "target.sensitivity.distribution"


@dataclass(frozen=True)
class Sampling:
    """Parameters of an estimated sensitivity.

    `distribution` P is "uniform", or ``module:name`` of a function ``(rows, uniform) -> (rows,
    columns)``, where ``uniform(count)`` gives independent numbers in [0, 1), its only source of
    randomness. `gamma` is the fraction of neighbours that may be left out; `samples` pairs follow
    from the public `seed`.
    """

    distribution: str
    gamma: Fraction
    samples: int
    seed: int

    @property
    def order(self) -> int:
        """Rank of the distance, among the sorted ones, that is used."""
        return order_statistic(self.samples, self.gamma)

    def guarantee(self, budget: Budget) -> RandomPrivacy:
        """Guarantee of noise for the sampled distance."""
        return RandomPrivacy(
            budget, self.gamma, self.distribution, self.samples, self.order, self.seed
        )


def load_distribution(name: str) -> Callable[..., Any]:
    """The public distribution that a spec names; a SpecError where it cannot be imported."""
    return named_function(name, _KEY, "of (rows, uniform)")


@lru_cache(maxsize=16)
def _sampled_distances(
    accumulator: BlackBoxAccumulator, sampling: Sampling
) -> tuple[float, float, float]:
    """Order statistics of the sup, l1 and l2 distances of neighbours' lattice values, each alone.

    Raises SpecError where the distribution or the function fails.
    """
    user = accumulator.user
    called = load(user.function)
    found = np.empty((sampling.samples, 3))
    for pair in range(sampling.samples):
        records = _drawn(accumulator, sampling, user.n + 1, pair)
        try:
            one = accumulator.values(called, np.delete(records, -1, axis=0))
            other = accumulator.values(called, np.delete(records, -2, axis=0))
        except StoppedError:
            raise SpecError(
                f"{FUNCTION}: fails on records drawn from {sampling.distribution}. Mend it, or "
                f"write on_failure = {user.low}"
            ) from None
        apart = np.abs(one - other)
        found[pair] = apart.max(), apart.sum(), np.sqrt((apart**2).sum())
    sup, l1, l2 = (OUTWARD * np.sort(found, axis=0)[sampling.order - 1]).tolist()
    return sup, l1, l2


def _drawn(
    accumulator: BlackBoxAccumulator, sampling: Sampling, rows: int, pair: int
) -> FloatArray:
    """Records (rows, columns) of one pair: the last two are its difference."""
    stream = public_stream(f"sensitivity sampler, seed {sampling.seed}", pair)
    ranges = accumulator.user.ranges
    if sampling.distribution == UNIFORM:
        return _uniform_records(ranges, rows, stream)
    draw = load_distribution(sampling.distribution)
    try:
        records = np.asarray(draw(rows, partial(uniform, stream)), dtype=np.float64)
    except Exception as error:  # noqa: BLE001 -- another's function may fail in any way
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" fails ({type(error).__name__}). Mend it: it takes '
            "(rows, uniform) and returns (rows, columns)"
        ) from None
    if records.shape != (rows, len(ranges)):
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" gives shape {records.shape}; return '
            f"({rows}, {len(ranges)})"
        )
    return records


# --- A user's function of records and points as a measurement

SHARD_ROWS = 1 << 18
"""Rows of a shard, about."""

_MOST_POINTS, _FEWEST_POINTS = 1 << 16, 64  # of one call
_CALLS = 16  # to share out
_TRIAL_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class BlackBox(Measurement):
    """A user's function before its lattice is chosen.

    `smoothness` is the class of F, in values as they are and positions in the unit cube. `stated`
    is s, NaN where `sampling` estimates it; `l1_sensitivity` is l1, for one lattice. With
    `separable` it is called for shards. `sampled` are the distances of `_sampled_distances`, for
    one lattice.
    """

    name: str = "oracle"
    user: UserFunction
    smoothness: Approximation
    stated: float
    sampling: Sampling | None
    l1_sensitivity: float | None
    separable: bool = False
    sampled: tuple[float, float, float] | None = None

    @property
    def bias(self) -> Approximation:
        """The class of F."""
        return self.smoothness

    @property
    def linear(self) -> bool:
        """Whether F is linear."""
        return self.smoothness == Linear()

    @property
    def extent(self) -> tuple[float, float]:
        """The bounds, once a shard."""
        shards = self._shards(self.user.n)
        return shards * self.user.low, shards * self.user.high

    @property
    def one_lattice(self) -> bool:
        """Whether an estimate, or what is stated of sums, is for one lattice."""
        return bool(self.sampling) or self.l1_sensitivity is not None

    def bind(self, n: int, charge: Budget) -> BlackBox:
        """Return the measurement for n records."""
        del charge
        return replace(self, user=replace(self.user, n=n))

    def random_guarantee(self, charge: Budget) -> RandomPrivacy | None:
        """Guarantee of the charge, of an estimate."""
        return self.sampling.guarantee(charge) if self.sampling else None

    def for_lattice(self, strategy: AnyStrategy) -> BlackBox:
        """Return the measurement with its sensitivities sampled for a lattice."""
        if self.sampling is None:
            return self
        accumulator = self.accumulator(strategy, self.user.n, 0.0)
        return replace(self, sampled=_sampled_distances(accumulator, self.sampling))

    def _shards(self, n: int) -> int:
        return -(-n // SHARD_ROWS) if self.separable else 1

    @property
    def _twice(self) -> int:
        return 2 if self.separable else 1

    @property
    def function_sensitivity(self) -> float:
        """``n s``, or twice that; of an estimate that of lattice values, once it is made."""
        if self.sampling:
            return OUTWARD * self.user.n * (self.sampled[0] if self.sampled else math.nan)
        return OUTWARD * self.user.n * self._twice * self.stated

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """Bound n times the sensitivity, proved if stated, else estimated (`random_privacy`)."""
        if self.sampling:
            moved = (self.sampled or self.for_lattice(strategy).sampled or ())[norm]
            order, samples = self.sampling.order, self.sampling.samples
            text = f"distance {order} of {samples} sampled, an estimate"
            return Bound(OUTWARD * self.user.n * moved, text)
        size, text = strategy.lattice.size, "stated S(F)"
        value = OUTWARD * size ** (1 / norm) * self.function_sensitivity
        bound = Bound(value, f"{'N' if norm == 1 else 'sqrt(N)'} S(F) = {size} points, {text}")
        if self.l1_sensitivity is None:
            return bound
        value = OUTWARD * self.user.n * self._twice * self.l1_sensitivity
        text = "as stated"
        if norm == 2:
            value, text = OUTWARD * math.sqrt(value * self.function_sensitivity), "sqrt(S(F) l1)"
        return min(bound, Bound(value, text), key=lambda one: one.value)

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose shards and points of a block; refuse a function that fails on made-up records."""
        del tolerance
        user = self.user
        axes = tuple((axis.low, axis.high) for axis in user.function_domain.axes)
        _try_out(user.function, user.ranges, axes, min(n, _TRIAL_ROWS))
        shards = self._shards(n)
        share = -(-strategy.lattice.size * shards // _CALLS)
        points = min(_MOST_POINTS, max(_FEWEST_POINTS, share))
        return {"shards": shards, "points": points, "digest": user.digest}

    def restore(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> BlackBoxAccumulator:
        """Return values at the lattice points; another function raises an IntegrityError."""
        if params["digest"] != self.user.digest:
            raise IntegrityError(f"{FUNCTION}: its module is not the one that was planned with")
        user, lattice = replace(self.user, n=n), cast("LatticeStrategy", strategy)
        return BlackBoxAccumulator(user, lattice, params["shards"], params["points"])
