"""Released quantities of records, and how they become integers.

A *statistic* is a family of functions on the unit cube, its *outputs*, that one record moves
together, or a vector; one calibration covers them. Statistics pay fractions of the release's
budget (basic composition). An *accumulator* is a statistic as integer sums over records.

*Private rows* (`dbern.measure.accumulator`). Their number is private with add-or-remove neighbours
or units of many rows. A `RecordSum` bounds what a record moves that is added or removed: `move`.

*A unit of u rows.* At most u rows of a unit are counted, chosen by the unit's own rows alone
(`dbern.measure.unit_bounding`), so a unit that is replaced, or added or removed, changes at most u
of the counted records, each to another one or to the missing record, or from it. A chain of u
databases, each a record further, and the triangle inequality: u times what one record moves. It is
attained by u equal rows, wherever one record attains its bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Self

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.oblique import Oblique
from dbern.certify.approximation import FunctionClass
from dbern.data.domain import Column, Domain, FeatureShape
from dbern.errors import SpecError
from dbern.measure.accumulator import Accumulator, NormalizedAccumulator, most_rows
from dbern.privacy.budget import Budget, Protection
from dbern.reconstruct.base import AnyStrategy, SensitivityBound
from dbern.reconstruct.gram import CubeKernel

WHOLE = Fraction(1)
"""The budget fraction of a statistic that is released alone."""


@dataclass(frozen=True, kw_only=True)
class Statistic(ABC):
    """One released family of functions, or a vector, before its strategy is chosen.

    It bounds how far a record moves it, and chooses how records become integers. All other
    properties have a usual value, which a kind of statistic overrides; a field that takes the place
    of a property needs a default.

    Parameters
    ----------
    name : str
        Name of its group in the store.
    domain : Domain
        The axes it is a function of; of a vector, those in which a record must be valid.
    output_fraction : Fraction
        Fraction of the release's budget that the noise added to its values spends.
    notes : tuple of str
        Sentences that a plan says of it.
    """

    name: str
    domain: Domain
    output_fraction: Fraction = WHOLE
    notes: tuple[str, ...] = ()

    # How far a record moves it, and how records become integers

    @property
    @abstractmethod
    def function_sensitivity(self) -> float:
        """``n S(F)``, the largest move of one output at one point, or of one entry, from above."""

    @abstractmethod
    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound n times the l1 or l2 distance of all outputs of neighbours, in exact arithmetic."""

    @abstractmethod
    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose integer sums whose error is at most the tolerance, or nearly, as JSON values.

        Raises SpecError where no sum of reasonable size is that accurate.
        """

    @abstractmethod
    def from_params(self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]) -> Accumulator:
        """Return the integer sums that `params` has chosen."""

    def accumulator(self, strategy: AnyStrategy, n: int, tolerance: float) -> Accumulator:
        """Choose integer sums and return them."""
        return self.from_params(strategy, n, self.params(strategy, n, tolerance))

    def protected(self, protection: Protection, ids: Column | None) -> Statistic:  # noqa: ARG002
        """Return the statistic for other neighbours.

        Records that meet are chosen by `ids` where a unit is wider than a row. Raises SpecError
        where nothing is proved of it.
        """
        if not protection.private_rows:
            return self
        key = "unit" if protection.unit.column is not None else "neighbors"
        raise SpecError(
            f"data.{key}: nothing is proved for this target with it. Write neighbors = "
            '"replace-one" and unit = "row", or a target.kind that sums over records, such as '
            '"kernel-density"'
        )

    def bind(self, n: int, charge: Budget) -> Statistic:  # noqa: ARG002 - usually it is the same
        """Return the statistic for a public number of rows and a charge, before it is planned."""
        return self

    # What is released

    objective_fraction = Fraction(0)
    """Budget fraction of noise that enters before its values are computed."""
    binned = False
    """Whether bins may be released: what it adds up are kernels with weights in [-1, 1]."""
    spectral = False
    """Whether spectral coordinates may be released: of functions that a solver finds."""
    additive = False
    """Whether it adds up kernels over records: a lower bound of the error is known then."""

    @property
    def outputs(self) -> int:
        """Number of functions; one record moves them together as `sensitivity` says."""
        return 1

    @property
    def divided(self) -> bool:
        """Whether each record is in two outputs: sums of two of them are of whole records."""
        return False

    @property
    def bias(self) -> FunctionClass | None:
        """Class of its functions, which bounds what a noiseless release misses.

        None of a vector, and before `bind`. Of a `Linear` function only the values at the corners
        of the cube are released.
        """
        return None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of its functions, one an axis, in unit-cube units."""
        return ()

    @property
    def unit(self) -> float:
        """Value in data units of a value of one in unit-cube units."""
        return 1.0

    @property
    def oblique(self) -> Oblique | None:
        """Oblique coordinates that `domain` has."""
        return None

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the numbers of a vector, in their order."""
        return ()

    @property
    def features(self) -> FeatureShape | None:
        """Axes and constant feature of the linear functions whose weights these are, if any."""
        return None

    @property
    def extent(self) -> tuple[float, float] | None:
        """Bounds of an output, in data units; None where no more is known than its bias says."""
        return None

    @property
    def counted_in(self) -> str | None:
        """Name of the statistic that dominates a sum of kernels over records, if any.

        It has as many outputs, and adds each record at the same place with a weight that is at
        least as large as the size of this one's: itself where no weight is negative.
        """
        return None

    @property
    def candidates(self) -> tuple[Statistic, ...]:
        """Statistics of which the released bins choose one (`dbern.run.publish`).

        They have the same bins and other kernels; itself is that whose bins are fine enough for
        all.
        """
        return ()

    @property
    def chooses(self) -> bool:
        """Whether there are candidates once it is bound."""
        return bool(self.candidates)

    @property
    def cube(self) -> CubeKernel | None:
        """Kernel of the unit cube, where that is no product of densities."""
        return None

    @property
    def largest_lattice(self) -> float:
        """Largest size of a lattice that is chosen, where values are costly."""
        return math.inf

    @property
    def one_lattice(self) -> bool:
        """Whether its sensitivity is known for one lattice, whose k must then be stated."""
        return False

    # What follows

    @property
    def unsigned(self) -> bool:
        """Whether it is a sum of kernels, and no weight is negative."""
        return self.counted_in == self.name

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value of an output, in data units; infinite if not known."""
        highest = self.unit * (math.inf if self.bias is None else self.bias.highest)
        return self.extent or (0.0 if self.unsigned else -highest, highest)

    @property
    def function_class(self) -> FunctionClass:
        """The bias, of a function that is resolved."""
        if self.bias is None:
            raise SpecError(
                f'target.kind: the statistic "{self.name}" states no bias. In its class, write '
                "the property bias: KernelMixture(kernels), or the class that its functions are in"
            )
        return self.bias


@dataclass(frozen=True, kw_only=True)
class RecordSum(Statistic):
    """A statistic with a proof of how far one record more moves it, for all neighbours.

    Nothing else knows of neighbours: sensitivities and accumulators are made for the `protection`
    here (*A unit of u rows* above). Subclasses bound what one record moves, and resolve a `counter`
    for any number of rows. Its `kernel_norms` are at least twice what the kernel error adds to the
    move of an added record, and `floats` has room for the rounding of a division by the normalizer.
    """

    protection: Protection = field(default_factory=Protection)

    @abstractmethod
    def function_move(self, *, added: bool) -> float:
        """`function_sensitivity` for one record that is replaced, or added or removed."""

    @abstractmethod
    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> SensitivityBound:
        """Bound `sensitivity` for one record that is replaced; or added or removed, for any n."""

    @abstractmethod
    def counter_params(self, strategy: AnyStrategy, rows: int, tolerance: float) -> dict[str, Any]:
        """Choose integer sums of at most so many records, as `params`."""

    @abstractmethod
    def counter(self, strategy: AnyStrategy, rows: int, params: Mapping[str, Any]) -> Accumulator:
        """Return the integer sums that `counter_params` has chosen."""

    def protected(self, protection: Protection, ids: Column | None) -> Self:  # noqa: ARG002
        """Return the statistic for other neighbours."""
        return replace(self, protection=protection)

    @property
    def function_sensitivity(self) -> float:
        """`function_sensitivity` for neighbours."""
        protection = self.protection
        record = self.function_move(added=protection.added)
        if not protection.private_rows:
            return record
        return OUTWARD * protection.unit.max_contributions * record

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound the distance of neighbours: of as many records as a unit has rows."""
        bound = self.move(strategy, norm, added=self.protection.added)
        rows = self.protection.unit.max_contributions
        if rows == 1:
            return bound
        text = f"{rows} rows x {bound.derivation}"
        return SensitivityBound(OUTWARD * rows * bound.value, text, bound.balanced)

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose integer sums of n rows, or of the most rows where their number is private."""
        rows = most_rows(n) if self.protection.private_rows else n
        return self.counter_params(strategy, rows, tolerance)

    def from_params(self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]) -> Accumulator:
        """Return the integer sums that `params` has chosen, over n."""
        if not self.protection.private_rows:
            return self.counter(strategy, n, params)
        counter = self.counter(strategy, most_rows(n), params)
        return NormalizedAccumulator(counter, strategy, self.protection, n)


def require_counted(statistics: Sequence[Statistic]) -> None:
    """Refuse, by a SpecError, sums whose records are counted in nothing that is released."""
    outputs = {statistic.name: statistic.outputs for statistic in statistics}
    for statistic in statistics:
        name, count = statistic.counted_in, statistic.outputs
        if name is not None and outputs.get(name) != count:
            raise SpecError(
                f'target.kind: the records of "{statistic.name}" are counted in "{name}", '
                f"which is no statistic of {count} outputs; in the learner, write the name "
                "of one, or counted_in=None"
            )
