"""What is released of records, and how they become integers: nothing more than this.

A *component* is a family of functions on the unit cube, its *outputs*, that one record moves
together, or a vector; one calibration covers them. Components pay shares of the release's budget
(basic composition). A *statistic* is a component as integer sums over records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import BumpBound, Coordinates, Entries
from dbern.bernstein.kernels import Kernel
from dbern.bernstein.lattice import Slab
from dbern.domain import Column, Domain

WHOLE = Fraction(1)
"""The share of a component that is released alone."""


class Component(Protocol):
    """One released family of functions, before its lattice is chosen.

    Attributes
    ----------
    name : str
        Of its group in the store.
    outputs : int
        How many functions; one record moves them together as `movement` says.
    share : Fraction
        Of the release's budget.
    unit : float
        A value in data units is this times its value in unit-cube units.
    domain : Domain
        The axes it is a function of.
    kernels : tuple of Kernel
        One an axis: what its functions are made of, in unit-cube units.
    approximation : Approximation
        Bounds what a noiseless release misses.
    binned : bool
        Whether bins may be released: for sums over records, weights in [-1, 1].
    spectral : bool
        Whether spectral coordinates may be released: `movement` bounds them.
    additive : bool
        Whether F adds up over records and some attain S(F): then `lower_bound` is one.
    """

    @property
    def name(self) -> str:
        """See the class."""

    @property
    def outputs(self) -> int:
        """See the class."""

    @property
    def share(self) -> Fraction:
        """See the class."""

    @property
    def unit(self) -> float:
        """See the class."""

    @property
    def domain(self) -> Domain:
        """See the class."""

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """See the class."""

    @property
    def approximation(self) -> Approximation:
        """See the class."""

    @property
    def binned(self) -> bool:
        """See the class."""

    @property
    def spectral(self) -> bool:
        """See the class."""

    @property
    def additive(self) -> bool:
        """See the class."""

    @property
    def function_movement(self) -> float:
        """``n S(F)``, the largest move of one output at one point, rounded outward."""

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """Bound n times the l1 or l2 distance that one replaced record moves all outputs.

        In exact arithmetic; `quick` may leave out what takes long and stay a bound.
        """

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """Integer sums whose error against the exact values is at most `tolerance`, or nearly.

        Raises
        ------
        SpecError
            Where no sum of reasonable size is that accurate.
        """

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic whose `counting` this is."""


@dataclass(frozen=True)
class Vector(ABC):
    """A released vector: numbers, no function of the axes, so nothing to approximate.

    Parameters
    ----------
    name : str
        Of its group in the store.
    share : Fraction
        Of the release's budget.
    entries : tuple of str
        What the numbers are, in their order.
    """

    name: str
    share: Fraction
    entries: tuple[str, ...]

    outputs: ClassVar[int] = 1

    @property
    def features(self) -> tuple[int, float] | None:
        """Axes and constant feature of the linear functions whose weights these are, if any."""
        return None

    @property
    @abstractmethod
    def entry_movement(self) -> float:
        """n times the largest move of one entry, or of a linear function; rounded outward."""

    @abstractmethod
    def movement(self, norm: int) -> BumpBound:
        """Bound n times the l1 or l2 distance that one replaced record moves all entries."""

    @abstractmethod
    def statistic(self, n: int) -> Statistic:
        """How records become the entries."""

    @abstractmethod
    def restore(self, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic whose `counting` this is."""


class Statistic(Protocol):
    """A component as integer sums over records: what workers count and contract.

    Every implementation is public, frozen and importable on a worker. `add` is deterministic
    record by record, so states of disjoint sets of records add up exactly.

    Attributes
    ----------
    kernel_error : float
        Bound on what one record's effective contribution differs from its exact one, times n.
    position_error : float
        Bound on the change of the function by rounding of the records: accuracy, never privacy.
    float_error : float
        Bound on the float error of `finish`, per value.
    value_bound : float
        Bound on ``|finish|`` over all databases.
    """

    @property
    def coordinates(self) -> Coordinates | Entries:
        """What is released."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns read, and no others."""

    @property
    def counting(self) -> dict[str, Any]:
        """How records are counted, as JSON values."""

    @property
    def description(self) -> str:
        """How records are counted, in a few words."""

    @property
    def kernel_error(self) -> float:
        """See the class."""

    @property
    def position_error(self) -> float:
        """See the class."""

    @property
    def float_error(self) -> float:
        """See the class."""

    @property
    def value_bound(self) -> float:
        """See the class."""

    @property
    def batch_bytes(self) -> int:
        """Memory that counting one record of a batch takes."""

    @property
    def table_bytes(self) -> int:
        """Memory that `finish` takes besides state and slab."""

    def kernel_error_norm(self, norm: int) -> float:
        """Bound on what the kernel error adds to the movement, times n."""

    def float_error_norm(self, norm: int) -> float:
        """Bound on the norm of the float errors of all values of one database."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the state."""

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to a state of that shape, in place.

        Columns are 64-bit floats, NaN for null; of categories, positions in their list.
        """

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output, in unit-cube units."""
