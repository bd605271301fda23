"""Sums over records of a vector of bounded numbers, counted exactly.

A record adds integers, its numbers in units of ``2^-s`` (`VectorSum.sums`); a missing record adds
nothing. The sums are exact in any order; division by n and the noise come after. How far a record
moves them, and how far its integers are off, is proved in the files of the numbers: moments
(`dbern.learn.moment_sums`) and sums by class (`dbern.targets.class_sums`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dbern.data.domain import Column
from dbern.measure.accumulator import Errors, Memory, RecordAccumulator
from dbern.measure.statistic import RecordSum
from dbern.reconstruct.base import AnyStrategy, Slab, VectorStrategy
from dbern.types import FloatArray, Int64Array


@dataclass(frozen=True, kw_only=True)
class VectorSum(RecordSum):
    """Sums of a record's numbers, the entries, over n."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Columns that its numbers are made of."""

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.entries)

    @property
    def description(self) -> str:
        """Way of counting, for plans."""
        return f"{self.size} exact integer sums"

    @abstractmethod
    def bits(self, n: int) -> int:
        """Fixed-point bits s with which no sum of n records overflows."""

    @abstractmethod
    def sums(self, records: Mapping[str, FloatArray], bits: int) -> Int64Array:
        """Integer sums (size,) of a batch, record by record the same."""

    @abstractmethod
    def errors(self, bits: int) -> Errors:
        """Bounds on the errors of the sums over n."""

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Memory that a batch takes."""

    def counter_params(self, strategy: AnyStrategy, rows: int, tolerance: float) -> dict[str, Any]:
        """Choose as many bits as never overflow, whatever the tolerance."""
        del strategy, tolerance
        return {"bits": self.bits(rows)}

    def counter(
        self, strategy: AnyStrategy, rows: int, params: Mapping[str, Any]
    ) -> VectorAccumulator:
        """Return the integer sums with the bits that `counter_params` has chosen."""
        return VectorAccumulator(self, cast("VectorStrategy", strategy), rows, params["bits"])


@dataclass(frozen=True)
class VectorAccumulator(RecordAccumulator):
    """Exact integer sums of numbers, added up by workers."""

    vector: VectorSum
    strategy: VectorStrategy
    n: int
    bits: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the numbers."""
        return self.vector.columns

    @property
    def description(self) -> str:
        """Description of the numbers."""
        return self.vector.description

    @property
    def errors(self) -> Errors:
        """Errors of the numbers."""
        return self.vector.errors(self.bits)

    @property
    def memory(self) -> Memory:
        """Memory of the numbers."""
        return self.vector.memory

    @property
    def shape(self) -> tuple[int, ...]:
        """The entries."""
        return (self.vector.size,)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        state += self.vector.sums(records, self.bits)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Sums of one slab over n."""
        del output
        integers = state[slab.start : slab.stop].astype(np.float64)
        return np.ldexp(integers, -self.bits) / self.n
