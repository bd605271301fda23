"""What a learner is to the plan, to the engine and to a record: nothing more than this.

A learner releases one or more *components*. Each component is a family of functions on the unit
cube, its *outputs*, that one record moves together; one calibration covers them. Components pay
shares of the release's budget (basic composition), and a public combination makes the function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.kernels import KERNELS, Kernel
from dbern.bernstein.lattice import Slab
from dbern.combination import Combination
from dbern.complaints import explain
from dbern.domain import Column, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.sections import Section

Lengths = Annotated[
    tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(strict=False)
]
"""Positive and finite, one an axis, in data units; TOML has them as a list."""


def _known_kernel(name: str) -> str:
    if name not in KERNELS:
        others = ", ".join(f'"{one}"' for one in KERNELS if one != "gaussian")
        raise SpecError(
            f'target.kernel: "{name}" is unknown; write kernel = "gaussian", or one of {others}'
        )
    return name


KernelName = Annotated[str, AfterValidator(_known_kernel)]
"""One of `KERNELS`."""


class Learner(Section, ABC):
    """A target's public parameters, by keyword only; subclasses declare them as fields.

    Raises
    ------
    SpecError
        For a parameter that is missing, unknown, of the wrong type or out of range; it names the
        key of ``[target]`` and says what to write.
    """

    kind: ClassVar[str]
    uses: ClassVar[tuple[str, ...]] = ()
    """Of label, response and group: what it can use."""

    def __init__(self, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise SpecError("\n".join(explain(error, type(self), "target."))) from None

    def get_params(self) -> dict[str, Any]:
        """Constructor parameters by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    @classmethod
    def from_params(cls, parameters: Mapping[str, Any]) -> Self:
        """The learner with these parameters."""
        return cls(**parameters)

    @abstractmethod
    def components(self, schema: RecordSchema) -> tuple[Component, ...]:
        """What is released of records of this schema.

        Raises
        ------
        SpecError
            Where the schema lacks what the learner needs, or the parameters do not fit it.
        """

    def combination(self, schema: RecordSchema) -> Combination:
        """How the components make the function."""
        del schema
        return Combination()


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
    def coordinates(self) -> Coordinates:
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


@dataclass(frozen=True)
class Counters:
    """All components' statistics as one: states are flat and add up.

    Where there is a `filter`, they get the null record for every record whose value of that column
    is not one of its categories.
    """

    parts: tuple[Statistic, ...]
    filter: Column | None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that a part reads, once."""
        return tuple(dict.fromkeys(column for part in self.parts for column in part.columns))

    @property
    def state_bytes(self) -> int:
        """Memory of one state."""
        return 8 * sum(_sizes(self.parts))

    def empty(self) -> Int64Array:
        """The state of no records."""
        return np.zeros(sum(_sizes(self.parts)), dtype=np.int64)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        for part, own in zip(self.parts, self._views(state), strict=True):
            part.add(own, records)

    def finish(self, state: Int64Array, part: int, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab of one output of one part."""
        return self.parts[part].finish(self._views(state)[part], output, slab)

    def _views(self, state: Int64Array) -> list[Int64Array]:
        ends = np.cumsum(_sizes(self.parts)).tolist()
        pieces = np.split(state, ends[:-1])
        return [own.reshape(part.shape) for own, part in zip(pieces, self.parts, strict=True)]


def _sizes(parts: Sequence[Statistic]) -> list[int]:
    return [int(np.prod(part.shape)) for part in parts]
