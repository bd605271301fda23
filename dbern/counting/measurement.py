"""What is released of records, and how they become integers.

A *component* is a family of functions on the unit cube, its *outputs*, that one record moves
together, or a vector; one calibration covers them. Components pay shares of the release's budget
(basic composition). A *statistic* is a component as integer sums over records.

Components where the number of rows is private: add-or-remove neighbours, units of many rows.

Sums are divided by a public normalizer n in place of the number of rows, which appears nowhere.

*A record added or removed.* A component says what that moves: `AddedComponent`, `AddedVector`.

*A unit of u rows.* At most u rows of a unit are counted, chosen by the unit's own rows alone
(`dbern.counting.passes`), so a unit that is replaced, or added or removed, changes at most u of
the counted records, each to another one or to the null record, or from it. A chain of u databases,
each a record further, and the triangle inequality: u times what one record moves. It is attained by
u equal rows, wherever one record attains its bound.

*The most rows.* Integers must not overflow, and floats err in proportion to what they hold, on
every database. So statistics are resolved for `most_rows`, m, a public power of two: their bounds
hold for any number of rows up to that, values being over m. Division by m is exact; values times m
(exact too) are then divided by n instead, which rounds once, as the statistic's bound for its own
division allows. Errors over m become errors over n times ``m / n``. More rows are refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.data.domain import Column, Domain
from dbern.errors import SpecError
from dbern.privacy.budget import Budget, Protection
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.strategies.base import Bound, Entries, Slab, Strategy
from dbern.strategies.bias import Approximation
from dbern.strategies.gram import CubeKernel
from dbern.types import FloatArray, Int64Array

# --- Components, vectors and statistics


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
    def function_sensitivity(self) -> float:
        """``n S(F)``, the largest move of one output at one point, rounded outward."""

    def sensitivity(self, strategy: Strategy, norm: int, *, quick: bool = False) -> Bound:
        """Bound n times the l1 or l2 distance that one replaced record moves all outputs.

        In exact arithmetic; `quick` may leave out what takes long and stay a bound.
        """

    def accumulator(self, strategy: Strategy, n: int, tolerance: float) -> Accumulator:
        """Integer sums whose error against the exact values is at most `tolerance`, or nearly.

        Raises
        ------
        SpecError
            Where no sum of reasonable size is that accurate.
        """

    def restore(self, strategy: Strategy, n: int, counting: Mapping[str, Any]) -> Accumulator:
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
    def function_sensitivity(self) -> float:
        """n times the largest move of one entry, or of a linear function; rounded outward."""

    @abstractmethod
    def sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that one replaced record moves all entries."""

    @abstractmethod
    def accumulator(self, n: int) -> Accumulator:
        """How records become the entries."""

    @abstractmethod
    def restore(self, n: int, counting: Mapping[str, Any]) -> Accumulator:
        """The statistic whose `counting` this is."""


class Accumulator(Protocol):
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
    def strategy(self) -> Strategy | Entries:
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


# --- What some components can and others need not


@runtime_checkable
class Sized(Protocol):
    """A component or vector that is resolved for a public number of rows before it is planned."""

    def for_rows(self, n: int) -> Self:
        """The same for n rows."""


Released = TypeVar("Released", bound=Component | Vector)


def for_rows(component: Released, n: int) -> Released:
    """The component or vector as it is planned for n rows."""
    return component.for_rows(n) if isinstance(component, Sized) else component


@runtime_checkable
class LinearComponent(Protocol):
    """A component whose functions may be linear: one cell and one iteration reproduce them."""

    @property
    def linear(self) -> bool:
        """Whether they are."""


@runtime_checkable
class OneLatticeComponent(Protocol):
    """A component that may know its sensitivity for one lattice only: then k must be stated."""

    @property
    def one_lattice(self) -> bool:
        """Whether it does."""

    def for_lattice(self, strategy: Strategy) -> Component:
        """The component for a lattice: what is estimated of it, is now."""

    def random(self, charge: Budget) -> RandomPrivacy | None:
        """What a charge buys where its sensitivity is an estimate; None where it is a bound."""


def is_linear(component: Component) -> bool:
    """Whether its values at the corners of the cube are all there is to release."""
    return isinstance(component, LinearComponent) and component.linear


def for_lattice(component: Component, strategy: Strategy) -> Component:
    """The component as it is released on a lattice."""
    if isinstance(component, OneLatticeComponent):
        return component.for_lattice(strategy)
    return component


def random_privacy(
    components: Sequence[Component | Vector], charge: Budget
) -> RandomPrivacy | None:
    """What a charge buys, if the sensitivity of a component is an estimate.

    Raises
    ------
    SpecError
        Where there is more than one: each estimate fails for a gamma of its own.
    """
    asked = (one for one in components if isinstance(one, OneLatticeComponent))
    found = [one for one in (one.random(charge) for one in asked) if one is not None]
    if len(found) > 1:
        raise SpecError(
            f"target.kind: {len(found)} components have an estimated sensitivity, and random "
            "differential privacy is proved for one; in the learner, state the others' bounds"
        )
    return found[0] if found else None


def needs_lattice(component: Component) -> bool:
    """Whether the spec must state k: what is known of it is known for one lattice."""
    return isinstance(component, OneLatticeComponent) and component.one_lattice


@runtime_checkable
class CostlyComponent(Protocol):
    """A component whose values cost so much that fine lattices are not chosen for it."""

    @property
    def largest_lattice(self) -> int:
        """Most points of a lattice that is chosen."""


def largest_lattice(component: Component) -> float:
    """Most points of a lattice that is chosen for it."""
    return component.largest_lattice if isinstance(component, CostlyComponent) else math.inf


@runtime_checkable
class GramComponent(Protocol):
    """A component that may be released through the Gram matrix of the whole lattice."""

    @property
    def cube(self) -> CubeKernel | None:
        """Its kernel, where it is no product of densities."""


def cube_of(component: Component) -> CubeKernel | None:
    """The kernel, where it is no product of the axes' densities."""
    return component.cube if isinstance(component, GramComponent) else None


# --- Components where the number of rows is private

_LEAST_MOST = 1 << 32
_TIMES = 8


def most_rows(normalizer: int) -> int:
    """The most rows there can be where their number is private: a public power of two.

    Examples
    --------
    >>> most_rows(1000) == 2**32, most_rows(2**40) == 2**44
    (True, True)
    """
    return max(_LEAST_MOST, _TIMES << normalizer.bit_length())


@runtime_checkable
class AddedComponent(Protocol):
    """A component over any normalizer n that knows what one record more or less does.

    Its statistic's `kernel_error_norm` is at least twice what the kernel error adds to that, and
    its `float_error` has room for the rounding of a division by n.
    """

    @property
    def added_function_sensitivity(self) -> float:
        """n times the largest move of one output at one point, rounded outward."""

    def added_sensitivity(self, strategy: Strategy, norm: int, *, quick: bool = False) -> Bound:
        """Bound n times the l1 or l2 distance that it moves all outputs; as `movement`."""


@runtime_checkable
class AddedVector(Protocol):
    """A vector that knows the same."""

    @property
    def added_function_sensitivity(self) -> float:
        """n times the largest move of one entry, rounded outward."""

    def added_sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that it moves all entries."""


@runtime_checkable
class ProtectableComponent(Protocol):
    """A component that has its own form for other neighbours."""

    def protected(self, protection: Protection, ids: Column | None) -> Component | Vector:
        """That form; records that meet are chosen by `ids` where a unit is wider than a row."""


def protected(
    component: Component | Vector, protection: Protection, ids: Column | None
) -> Component | Vector:
    """The component for these neighbours; itself where rows are replaced.

    Raises
    ------
    SpecError
        Where nothing is proved about it.
    """
    if not protection.private_rows:
        return component
    if isinstance(component, ProtectableComponent):
        return component.protected(protection, ids)
    if isinstance(component, Vector):
        if isinstance(component, AddedVector):
            return ProtectedVector.of(component, protection)
    elif isinstance(component, AddedComponent):
        return ProtectedComponent(component, protection)
    key = "unit" if protection.unit.column is not None else "neighbors"
    raise SpecError(
        f'data.{key}: nothing is proved for this target with it; write neighbors = "replace-one" '
        'and unit = "row", or a target.kind that sums over records, such as "kernel-density"'
    )


def _rows(bound: Bound, protection: Protection) -> Bound:
    rows = protection.unit.max_contributions
    if rows == 1:
        return bound
    return Bound(OUTWARD * rows * bound.value, f"{rows} rows x {bound.derivation}")


@dataclass(frozen=True)
class ProtectedComponent:
    """A component with the movements of other neighbours: see the top of the module."""

    component: Component
    protection: Protection

    @property
    def name(self) -> str:
        """The component's, as all that does not depend on neighbours."""
        return self.component.name

    @property
    def outputs(self) -> int:
        """The component's."""
        return self.component.outputs

    @property
    def share(self) -> Fraction:
        """The component's."""
        return self.component.share

    @property
    def unit(self) -> float:
        """The component's."""
        return self.component.unit

    @property
    def domain(self) -> Domain:
        """The component's."""
        return self.component.domain

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The component's."""
        return self.component.kernels

    @property
    def approximation(self) -> Approximation:
        """The component's: for at most as many records as the normalizer."""
        return self.component.approximation

    @property
    def binned(self) -> bool:
        """The component's."""
        return self.component.binned

    @property
    def spectral(self) -> bool:
        """Never: floats for the most rows would cost more than these coordinates save."""
        return False

    @property
    def additive(self) -> bool:
        """The component's."""
        return self.component.additive

    @property
    def function_sensitivity(self) -> float:
        """That of a unit."""
        one = self.component.function_sensitivity
        if self.protection.added and isinstance(self.component, AddedComponent):
            one = self.component.added_function_sensitivity
        return OUTWARD * self.protection.unit.max_contributions * one

    def sensitivity(self, strategy: Strategy, norm: int, *, quick: bool = False) -> Bound:
        """That of a unit."""
        bound = self.component.sensitivity
        if self.protection.added and isinstance(self.component, AddedComponent):
            bound = self.component.added_sensitivity
        return _rows(bound(strategy, norm, quick=quick), self.protection)

    def accumulator(self, strategy: Strategy, n: int, tolerance: float) -> Accumulator:
        """The component's for the most rows, over n."""
        one = self.component.accumulator(strategy, most_rows(n), tolerance)
        return ProtectedStatistic(one, self.protection, n)

    def restore(self, strategy: Strategy, n: int, counting: Mapping[str, Any]) -> Accumulator:
        """The statistic that a plan has chosen."""
        one = self.component.restore(strategy, most_rows(n), counting)
        return ProtectedStatistic(one, self.protection, n)


@dataclass(frozen=True)
class ProtectedVector(Vector):
    """A vector with the movements of other neighbours: see the top of the module."""

    vector: Vector
    protection: Protection

    @classmethod
    def of(cls, vector: Vector, protection: Protection) -> Self:
        """The same entries."""
        return cls(vector.name, vector.share, vector.entries, vector, protection)

    @property
    def function_sensitivity(self) -> float:
        """That of a unit."""
        one = self.vector.function_sensitivity
        if self.protection.added and isinstance(self.vector, AddedVector):
            one = self.vector.added_function_sensitivity
        return OUTWARD * self.protection.unit.max_contributions * one

    def sensitivity(self, norm: int) -> Bound:
        """That of a unit."""
        bound = self.vector.sensitivity
        if self.protection.added and isinstance(self.vector, AddedVector):
            bound = self.vector.added_sensitivity
        return _rows(bound(norm), self.protection)

    def accumulator(self, n: int) -> Accumulator:
        """The vector's for the most rows, over n."""
        return ProtectedStatistic(self.vector.accumulator(most_rows(n)), self.protection, n)

    def restore(self, n: int, counting: Mapping[str, Any]) -> Accumulator:
        """The statistic that a plan has chosen."""
        one = self.vector.restore(most_rows(n), counting)
        return ProtectedStatistic(one, self.protection, n)


@dataclass(frozen=True)
class ProtectedStatistic:
    """A statistic for the most rows, m, whose values are over the normalizer n instead."""

    accumulator: Accumulator
    protection: Protection
    n: int

    @property
    def _most(self) -> int:
        return most_rows(self.n)

    @property
    def _scale(self) -> float:
        return OUTWARD * self._most / self.n

    @property
    def strategy(self) -> Strategy | Entries:
        """What is released."""
        return self.accumulator.strategy

    @property
    def columns(self) -> tuple[Column, ...]:
        """The statistic's."""
        return self.accumulator.columns

    @property
    def counting(self) -> dict[str, Any]:
        """The statistic's."""
        return self.accumulator.counting

    @property
    def description(self) -> str:
        """The statistic's."""
        return self.accumulator.description

    @property
    def kernel_error(self) -> float:
        """Of one record."""
        return self.accumulator.kernel_error

    @property
    def position_error(self) -> float:
        """For at most as many records as the normalizer."""
        return self.accumulator.position_error

    @property
    def float_error(self) -> float:
        """For at most as many records as the normalizer: accuracy alone."""
        return self.accumulator.float_error

    @property
    def value_bound(self) -> float:
        """``m / n`` times that of values over m."""
        return OUTWARD * self._scale * self.accumulator.value_bound

    @property
    def batch_bytes(self) -> int:
        """The statistic's."""
        return self.accumulator.batch_bytes

    @property
    def table_bytes(self) -> int:
        """The statistic's."""
        return self.accumulator.table_bytes

    def kernel_error_norm(self, norm: int) -> float:
        """Of a replaced record or half of it for each row of a unit."""
        one = self.accumulator.kernel_error_norm(norm)
        rows = self.protection.unit.max_contributions
        return OUTWARD * rows * (one / 2 if self.protection.added else one)

    def float_error_norm(self, norm: int) -> float:
        """``m / n`` times that of values over m."""
        return OUTWARD * self._scale * self.accumulator.float_error_norm(norm)

    @property
    def shape(self) -> tuple[int, ...]:
        """The statistic's."""
        return self.accumulator.shape

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        self.accumulator.add(state, records)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Values over n."""
        return self.accumulator.finish(state, output, slab) * float(self._most) / self.n
