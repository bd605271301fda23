"""What the engine and the plan know of a learner: nothing more than this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.lattice import Slab


@runtime_checkable
class Statistic(Protocol):
    """A target that is a function of integer sums over records.

    Every implementation is public, frozen and importable on a worker. `add` is deterministic
    record by record, so states of disjoint sets of records add up exactly.

    Attributes
    ----------
    kernel_error : float
        Bound on what one record's effective contribution differs from its exact one, times n.
    float_error : float
        Bound on the float error of `finish`, per value.
    value_bound : float
        Bound on ``|finish|`` over all databases.
    state_bytes : int
        Memory of one state.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns read, and no others."""

    @property
    def kernel_error(self) -> float:
        """See the class."""

    @property
    def float_error(self) -> float:
        """See the class."""

    @property
    def value_bound(self) -> float:
        """See the class."""

    @property
    def state_bytes(self) -> int:
        """See the class."""

    def empty(self) -> Int64Array:
        """The state of no records."""

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records, columns as 64-bit floats with NaN for null, in place."""

    def finish(self, state: Int64Array, slab: Slab) -> FloatArray:
        """Lattice values of one slab, in unit-cube units."""
