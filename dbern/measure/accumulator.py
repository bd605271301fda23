"""Accumulators: a statistic as integer sums over records, and the values that follow from them.

An accumulator is public, and its state is exact: any order of records, any partition of them and
any number of workers give the same integers.

*Private rows.* Where the number of rows is private, sums are over a public normalizer n instead.
*The most rows.* Integers must not overflow, and floats err in proportion to what they hold, on
every database. So accumulators are resolved for `most_rows`, m, a public power of two: their bounds
hold for any number of rows up to that, values being over m. Division by m is exact; values times m
(exact too) are then divided by n instead, which rounds once, as the accumulator's bound for its own
division allows. Errors over m become errors over n times ``m / n``. More rows are refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dbern.bernstein.kernels import OUTWARD
from dbern.data.domain import Column
from dbern.privacy.budget import Protection
from dbern.reconstruct.base import AnyStrategy, Slab
from dbern.types import FloatArray, Int64Array

_MIN_MOST_ROWS = 1 << 32
_ROWS_PER_NORMALIZER = 8


class StoppedError(Exception):
    """Counting cannot go on, for a reason that reveals nothing: its code and a public location."""

    def __init__(self, failure: str, location: str) -> None:
        super().__init__(failure)
        self.failure, self.location = failure, location


@dataclass(frozen=True)
class Errors:
    """Bounds on the errors of an accumulator's values.

    `kernel` bounds the difference of one record's effective and exact contribution, times n, and
    `kernel_norms` what that adds to the l1 and l2 sensitivities, times n. `position` bounds the
    change of the function by rounding of the records: accuracy, never privacy. `floats` bounds the
    float error of a value, `float_norms` the l1 and l2 norms of those of all values of one
    database, `value_bound` the largest size of a value over all databases.
    """

    kernel: float
    kernel_norms: tuple[float, float]
    position: float
    floats: float
    float_norms: tuple[float, float]
    value_bound: float


@dataclass(frozen=True)
class Memory:
    """Memory in bytes: of one record of a batch, of `to_values`'s tables, and of a pass."""

    batch: int
    tables: int = 0
    gathered: int = 0


class Pass(ABC):
    """One pass of an accumulator over records, on one worker."""

    @property
    def surveys(self) -> bool:
        """Whether it sees all records once before any is added: they are read twice."""
        return False

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Look at a batch before any is added."""
        del records

    @abstractmethod
    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records.

        Columns are 64-bit floats, NaN for missing; of categories, positions in their list.
        """

    @abstractmethod
    def finish(self) -> None:
        """Add what is left of the pass to the state."""


class Accumulator(ABC):
    """Integer sums over records, and the values that follow from them.

    Every implementation is public, frozen and importable on a worker. States of disjoint sets of
    records add up exactly, and so do those of different passes. Which records a pass keeps depends
    on their content and on the salt alone.
    """

    strategy: AnyStrategy

    @property
    def passes(self) -> int:
        """Number of passes over all records; 0 where each record is added by itself."""
        return 0

    @property
    def shards(self) -> int:
        """Number of shards where records meet, which may be of whole units; else 0."""
        return 0

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Columns read, and no others."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Way of counting records, in a few words, for plans."""

    @property
    @abstractmethod
    def errors(self) -> Errors:
        """Bounds on the errors of its values."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Memory that counting takes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the state."""

    @property
    def keyed(self) -> bool:
        """Whether it draws noise of its own before its values are computed, by `with_key`'s key.

        Then it counts in the releasing process alone.
        """
        return False

    def with_key(self, key: bytes) -> Accumulator:  # noqa: ARG002 - where it is keyed
        """Return the accumulator with the release's key."""
        return self

    @abstractmethod
    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin a pass that adds to a state of that shape, in place."""

    @abstractmethod
    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output, in unit-cube units."""


class RecordAccumulator(Accumulator):
    """An accumulator that adds each record by itself: `add` is deterministic record by record."""

    @abstractmethod
    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to a state, in place."""

    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin to add records, each by itself."""
        del salt, index
        return _RecordPass(self, state)


@dataclass(frozen=True)
class _RecordPass(Pass):
    accumulator: RecordAccumulator
    state: Int64Array

    def add(self, records: Mapping[str, FloatArray]) -> None:
        self.accumulator.add(self.state, records)

    def finish(self) -> None:
        pass


def most_rows(normalizer: int) -> int:
    """Return the most rows there can be where their number is private: a public power of two."""
    return max(_MIN_MOST_ROWS, _ROWS_PER_NORMALIZER << normalizer.bit_length())


@dataclass(frozen=True)
class NormalizedAccumulator(Accumulator):
    """An accumulator for the most rows, m, whose values are over the normalizer n instead.

    It counts like `inner`, and finishes differently.
    """

    inner: Accumulator
    strategy: AnyStrategy
    protection: Protection
    n: int

    @property
    def passes(self) -> int:
        """Inherited from the accumulator."""
        return self.inner.passes

    @property
    def shards(self) -> int:
        """Inherited from the accumulator."""
        return self.inner.shards

    @property
    def columns(self) -> tuple[Column, ...]:
        """Inherited from the accumulator."""
        return self.inner.columns

    @property
    def description(self) -> str:
        """Inherited from the accumulator."""
        return self.inner.description

    @property
    def memory(self) -> Memory:
        """Inherited from the accumulator."""
        return self.inner.memory

    @property
    def shape(self) -> tuple[int, ...]:
        """Inherited from the accumulator."""
        return self.inner.shape

    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin a pass of the accumulator."""
        return self.inner.start_pass(state, salt, index)

    @property
    def errors(self) -> Errors:
        """Bound errors of a replaced record, or half of it for each row of a unit.

        Norms are over all databases.

        Errors of one value are those for at most as many records as the normalizer: accuracy alone.
        """
        errors, rows = self.inner.errors, self.protection.unit.max_contributions
        scale, added = OUTWARD * most_rows(self.n) / self.n, self.protection.added
        l1, l2 = (OUTWARD * rows * (norm / 2 if added else norm) for norm in errors.kernel_norms)
        floats_l1, floats_l2 = (OUTWARD * scale * norm for norm in errors.float_norms)
        return replace(
            errors,
            kernel_norms=(l1, l2),
            float_norms=(floats_l1, floats_l2),
            value_bound=OUTWARD * scale * errors.value_bound,
        )

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Values over the normalizer."""
        return self.inner.to_values(state, output, slab) * float(most_rows(self.n)) / self.n
