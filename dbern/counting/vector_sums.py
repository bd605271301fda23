"""Sums over records of a vector of bounded numbers, counted exactly.

A record adds integers, its numbers in units of ``2^-s`` (`RecordFeatures.sums`); a missing record
adds nothing. The sums are exact in any order; division by n and the noise come after. What a record
can move, and what its integers are off by, is proved where its features are: moments of numbers
(`dbern.targets.least_squares`), sums by class (`dbern.targets.naive_bayes`) and coefficients of
curves (`dbern.targets.functional_mean`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.counting.measurement import WHOLE, Measurement
from dbern.counting.passes import Errors, Memory, RecordAccumulator
from dbern.data.domain import Column, Domain
from dbern.strategies.base import Bound, Entries, Slab
from dbern.types import FloatArray, Int64Array


class RecordFeatures(ABC):
    """Public map from a record to bounded numbers; frozen and importable.

    Sensitivities are n times those of the sums over n, of exact numbers.
    """

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """Columns it reads."""

    @property
    @abstractmethod
    def entries(self) -> tuple[str, ...]:
        """Names of the numbers."""

    @property
    def size(self) -> int:
        """Number of numbers."""
        return len(self.entries)

    @property
    def unit(self) -> float:
        """Value of a number of one."""
        return 1.0

    @property
    def description(self) -> str:
        """Way of counting, for plans."""
        return f"{self.size} exact integer sums"

    @abstractmethod
    def sensitivity(self, norm: int) -> Bound:
        """Bound the l1 or l2 distance that one replaced record moves all numbers."""

    @abstractmethod
    def added_sensitivity(self, norm: int) -> Bound:
        """Bound the distance that a record moves them that is added or removed."""

    @property
    @abstractmethod
    def function_sensitivity(self) -> float:
        """Largest move of one number by a replaced record, or of the function that they make."""

    @property
    @abstractmethod
    def added_function_sensitivity(self) -> float:
        """The same by a record that is added or removed."""

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


def vector_sum(
    name: str,
    domain: Domain,
    record_features: RecordFeatures,
    fraction: Fraction = WHOLE,
    features: tuple[float, ...] | None = None,
) -> Measurement:
    """Sums of features over n as a measurement; `features` as of `Measurement`."""

    def restore(strategy: Entries, n: int, counting: Mapping[str, Any]) -> VectorAccumulator:
        return VectorAccumulator(record_features, strategy, n, counting["bits"])

    return Measurement(
        name,
        domain,
        sensitivity=lambda _, norm: record_features.sensitivity(norm),
        accumulator=lambda strategy, n, _: vector_accumulator(record_features, strategy, n),
        restore=restore,
        function_sensitivity=record_features.function_sensitivity,
        entries=record_features.entries,
        features=features,
        fraction=fraction,
        added_sensitivity=lambda _, norm: record_features.added_sensitivity(norm),
        added_function_sensitivity=record_features.added_function_sensitivity,
    )


def vector_accumulator(
    record_features: RecordFeatures, strategy: Entries, n: int
) -> VectorAccumulator:
    """Resolve features for n records: of as many bits as never overflow."""
    return VectorAccumulator(record_features, strategy, n, record_features.bits(n))


@dataclass(frozen=True)
class VectorAccumulator(RecordAccumulator):
    """Exact integer sums of features, added up by workers."""

    record_features: RecordFeatures
    strategy: Entries
    n: int
    bits: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the features."""
        return self.record_features.columns

    @property
    def counting(self) -> dict[str, Any]:
        """The fixed-point bits."""
        return {"bits": self.bits}

    @property
    def description(self) -> str:
        """Description of the features."""
        return self.record_features.description

    @property
    def errors(self) -> Errors:
        """Errors of the features."""
        return self.record_features.errors(self.bits)

    @property
    def memory(self) -> Memory:
        """Memory of the features."""
        return self.record_features.memory

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers."""
        return (self.record_features.size,)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        state += self.record_features.sums(records, self.bits)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Sums of one slab over n."""
        del output
        part = state[slab.start : slab.stop].astype(np.float64) * self.record_features.unit
        return np.ldexp(part, -self.bits) / self.n
