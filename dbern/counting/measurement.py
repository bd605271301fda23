"""Released quantities of records, and how they become integers.

A *measurement* is a family of functions on the unit cube, its *outputs*, that one record moves
together, or a vector; one calibration covers them. Measurements pay fractions of the release's
budget (basic composition). An *accumulator* is a measurement as integer sums over records.

Measurements where the number of rows is private: add-or-remove neighbours, units of many rows.

Sums are divided by a public normalizer n in place of the number of rows, which appears nowhere.

*A record added or removed.* A measurement says what that moves: `added_sensitivity`.

*A unit of u rows.* At most u rows of a unit are counted, chosen by the unit's own rows alone
(`dbern.counting.passes`), so a unit that is replaced, or added or removed, changes at most u of
the counted records, each to another one or to the missing record, or from it. A chain of u
databases, each a record further, and the triangle inequality: u times what one record moves. It is
attained by u equal rows, wherever one record attains its bound.

*The most rows.* Integers must not overflow, and floats err in proportion to what they hold, on
every database. So accumulators are resolved for `most_rows`, m, a public power of two: their bounds
hold for any number of rows up to that, values being over m. Division by m is exact; values times m
(exact too) are then divided by n instead, which rounds once, as the accumulator's bound for its own
division allows. Errors over m become errors over n times ``m / n``. More rows are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.oblique import Oblique
from dbern.counting.passes import Accumulator, Errors, Memory, Pass
from dbern.data.domain import Column, Domain
from dbern.errors import SpecError
from dbern.privacy.budget import Budget, Protection
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.strategies.base import Bound, Entries, Slab, Strategy
from dbern.strategies.bias import Approximation
from dbern.strategies.gram import CubeKernel
from dbern.types import FloatArray, Int64Array

# --- Measurements


WHOLE = Fraction(1)
"""The budget fraction of a measurement that is released alone."""

Moved: TypeAlias = Callable[[Any, int], Bound]
Counted: TypeAlias = Callable[[Any, int, float], Accumulator]
Restored: TypeAlias = Callable[[Any, int, Mapping[str, Any]], Accumulator]


@dataclass(frozen=True)
class Measurement:
    """One released family of functions, or a vector, before its strategy is chosen.

    Parameters
    ----------
    name : str
        Of its group in the store.
    domain : Domain
        The axes it is a function of; of a vector, those in which a record must be valid.
    sensitivity : callable
        Of (strategy, norm): bounds n times the l1 or l2 distance that one replaced record moves all
        outputs, in exact arithmetic.
    accumulator : callable
        Of (strategy, n, tolerance): integer sums whose error against the exact values is at most
        the tolerance, or nearly; raises `SpecError` where no sum of reasonable size is.
    restore : callable
        Of (strategy, n, counting): the accumulator whose `counting` that is.
    function_sensitivity : float
        ``n S(F)``, the largest move of one output at one point, or of one entry, rounded outward.
    bias : Approximation, optional
        Bounds what a noiseless release misses; None of a vector, and before `for_rows`.
    kernels : tuple of Kernel
        One an axis: what its functions are made of, in unit-cube units.
    entries : tuple of str
        Of a vector, what the numbers are, in their order.
    features : (int, float), optional
        Axes and constant feature of the linear functions whose weights these are, if any.
    outputs : int
        How many functions; one record moves them together as `sensitivity` says.
    extent : (float, float), optional
        The least and the largest value of an output, in data units; None where no more is known
        than its bias says.
    fraction : Fraction
        Of the release's budget: what the noise that is added to its values spends.
    spent : Fraction
        Of the budget too: what noise spends that enters before its values are computed.
    unit : float
        A value in data units is this times its value in unit-cube units.
    oblique : Oblique, optional
        The oblique coordinates that `domain` has.
    binned : bool
        Whether bins may be released: for sums over records, weights in [-1, 1].
    spectral : bool
        Whether spectral coordinates may be released: of functions that a solver finds.
    additive : bool
        Whether F adds up over records and some attain S(F): then `lower_bound` is one.
    counted_in : str, optional
        Of a sum of kernels over records the measurement of the release, of as many outputs, that
        adds each of its records, at the same place, with a weight that is at least as large as the
        size of its own: itself where no weight is negative.
    linear : bool
        Whether its values at the corners of the cube are all there is to release.
    cube : CubeKernel, optional
        Its kernel, where that is no product of densities.
    largest_lattice : float
        Most points of a lattice that is chosen, where values are costly.
    added_sensitivity, added_function_sensitivity : callable, float
        The same for a record that is added or removed, over any normalizer n; None where nothing is
        proved. The accumulator's `kernel_norms` are then at least twice what the kernel error adds
        to it, and `floats` has room for the rounding of a division by n.
    protected : callable, optional
        Of (protection, ids): its own form for other neighbours; records that meet are chosen by
        `ids` where a unit is wider than a row.
    for_rows : callable, optional
        Of (n): the measurement resolved for a public number of rows, before it is planned.
    for_charge : callable, optional
        Of (n, charge): the same, where what is measured depends on the charge.
    candidates : tuple of Measurement
        One of which the released bins choose, by `dbern.releasing.publish`: of the same bins, with
        other kernels. Itself is that whose bins are fine enough for all.
    notes : tuple of str
        What a plan says of it.
    for_lattice : callable, optional
        Of (strategy): the measurement with what is estimated of it; then k must be stated.
    one_lattice : bool
        Whether what is known of its sensitivity is known for one lattice: then too.
    random : callable, optional
        Of (charge): what it buys where the sensitivity is an estimate.
    """

    name: str
    domain: Domain
    sensitivity: Moved = field(compare=False, repr=False)
    accumulator: Counted = field(compare=False, repr=False)
    restore: Restored = field(compare=False, repr=False)
    function_sensitivity: float = math.nan
    bias: Approximation | None = None
    kernels: tuple[Kernel, ...] = ()
    entries: tuple[str, ...] = ()
    features: tuple[float, ...] | None = None
    outputs: int = 1
    extent: tuple[float, float] | None = None
    fraction: Fraction = WHOLE
    spent: Fraction = Fraction(0)
    unit: float = 1.0
    oblique: Oblique | None = None
    binned: bool = False
    spectral: bool = False
    additive: bool = False
    counted_in: str | None = None
    linear: bool = False
    cube: CubeKernel | None = None
    largest_lattice: float = math.inf
    added_sensitivity: Moved | None = field(default=None, compare=False, repr=False)
    added_function_sensitivity: float = math.nan
    protected: Callable[[Protection, Column | None], Measurement] | None = field(
        default=None, compare=False, repr=False
    )
    for_rows: Callable[[int], Measurement] | None = field(default=None, compare=False, repr=False)
    for_charge: Callable[[int, Budget], Measurement] | None = field(
        default=None, compare=False, repr=False
    )
    candidates: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    for_lattice: Callable[[Any], Measurement] | None = field(
        default=None, compare=False, repr=False
    )
    one_lattice: bool = False
    random: Callable[[Budget], RandomPrivacy] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def kernel_sum(self) -> bool:
        """Whether it adds up kernels over records, with weights in [-1, 1]."""
        return self.additive and self.binned

    @property
    def unsigned(self) -> bool:
        """Whether it is a sum of kernels, and no weight is negative."""
        return self.counted_in == self.name

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value of an output, in data units; infinite if not known."""
        top = self.unit * getattr(self.bias, "highest", math.inf)
        return self.extent or (0.0 if self.unsigned else -top, top)

    @property
    def approximation(self) -> Approximation:
        """The bias, of a function that is resolved."""
        if self.bias is None:
            raise SpecError(
                f'target.kind: the measurement "{self.name}" states no bias; in the learner, write '
                "bias=KernelMixture(kernels), or the class that its functions are in"
            )
        return self.bias


def for_rows(measurement: Measurement, n: int) -> Measurement:
    """The measurement as it is planned for n rows."""
    return measurement.for_rows(n) if measurement.for_rows else measurement


def for_lattice(measurement: Measurement, strategy: Strategy | Entries) -> Measurement:
    """The measurement as it is released with a strategy."""
    return measurement.for_lattice(strategy) if measurement.for_lattice else measurement


def require_counted(measurements: Sequence[Measurement]) -> None:
    """Refuse, by a SpecError, sums whose records are counted in nothing that is released."""
    outputs = {one.name: one.outputs for one in measurements}
    for one in measurements:
        if one.counted_in is not None and outputs.get(one.counted_in) != one.outputs:
            raise SpecError(
                f'target.kind: the records of "{one.name}" are counted in "{one.counted_in}", '
                f"which is no measurement of {one.outputs} outputs; in the learner, write the name "
                "of one, or counted_in=None"
            )


def random_privacy(measurements: Sequence[Measurement], charge: Budget) -> RandomPrivacy | None:
    """The guarantee of a charge, if the sensitivity of a measurement is an estimate.

    Raises SpecError for more than one estimate: each fails for a gamma of its own.
    """
    found = [one.random(charge) for one in measurements if one.random]
    if len(found) > 1:
        raise SpecError(
            f"target.kind: {len(found)} measurements have an estimated sensitivity, and random "
            "differential privacy is proved for one; in the learner, state the others' bounds"
        )
    return found[0] if found else None


# --- Measurements where the number of rows is private

_LEAST_MOST = 1 << 32
_TIMES = 8


def most_rows(normalizer: int) -> int:
    """The most rows there can be where their number is private: a public power of two."""
    return max(_LEAST_MOST, _TIMES << normalizer.bit_length())


def protect(
    measurement: Measurement, protection: Protection, ids: Column | None = None
) -> Measurement:
    """Return the measurement for these neighbours; itself where rows are replaced.

    Raises SpecError where nothing is proved about it.
    """
    if not protection.private_rows:
        return measurement
    if measurement.protected is not None:
        return measurement.protected(protection, ids)
    if measurement.added_sensitivity is None or measurement.for_lattice is not None:
        key = "unit" if protection.unit.column is not None else "neighbors"
        raise SpecError(
            f"data.{key}: nothing is proved for this target with it. Write neighbors = "
            '"replace-one" and unit = "row", or a target.kind that sums over records, such as '
            '"kernel-density"'
        )
    moved, function = measurement.sensitivity, measurement.function_sensitivity
    if protection.added:
        moved, function = measurement.added_sensitivity, measurement.added_function_sensitivity

    def sensitivity(strategy: Any, norm: int) -> Bound:
        return _rows(moved(strategy, norm), protection)

    def accumulator(strategy: Any, n: int, tolerance: float) -> Accumulator:
        one = measurement.accumulator(strategy, most_rows(n), tolerance)
        return NormalizedAccumulator(one, strategy, protection, n)

    def restore(strategy: Any, n: int, counting: Mapping[str, Any]) -> Accumulator:
        one = measurement.restore(strategy, most_rows(n), counting)
        return NormalizedAccumulator(one, strategy, protection, n)

    def resolved(n: int) -> Measurement:
        return protect(for_rows(measurement, n), protection, ids)

    charged = measurement.for_charge

    def planned(n: int, charge: Budget) -> Measurement:
        return protect(measurement if charged is None else charged(n, charge), protection, ids)

    return replace(
        measurement,
        sensitivity=sensitivity,
        function_sensitivity=OUTWARD * protection.unit.max_contributions * function,
        accumulator=accumulator,
        restore=restore,
        added_sensitivity=None,
        added_function_sensitivity=math.nan,
        for_rows=resolved if measurement.for_rows else None,
        for_charge=planned if charged else None,
        candidates=tuple(protect(one, protection, ids) for one in measurement.candidates),
    )


def _rows(bound: Bound, protection: Protection) -> Bound:
    rows = protection.unit.max_contributions
    if rows == 1:
        return bound
    text = f"{rows} rows x {bound.derivation}"
    return Bound(OUTWARD * rows * bound.value, text, bound.sides)


@dataclass(frozen=True)
class DerivedAccumulator(Accumulator):
    """An accumulator that counts like another and finishes differently."""

    inner: Accumulator

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
    def counting(self) -> dict[str, Any]:
        """Inherited from the accumulator."""
        return self.inner.counting

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

    def begin(self, state: Int64Array, salt: bytes, index: int) -> Pass:
        """Begin a pass of the accumulator."""
        return self.inner.begin(state, salt, index)


@dataclass(frozen=True)
class NormalizedAccumulator(DerivedAccumulator):
    """An accumulator for the most rows, m, whose values are over the normalizer n instead."""

    strategy: Strategy | Entries
    protection: Protection
    n: int

    @property
    def errors(self) -> Errors:
        """Bound errors of a replaced record, or half of it for each row of a unit.

        Norms are over all databases.

        Errors of one value are those for at most as many records as the normalizer: accuracy alone.
        """
        one, rows = self.inner.errors, self.protection.unit.max_contributions
        scale, added = OUTWARD * most_rows(self.n) / self.n, self.protection.added
        l1, l2 = (OUTWARD * rows * (norm / 2 if added else norm) for norm in one.kernel_norms)
        floats_l1, floats_l2 = (OUTWARD * scale * norm for norm in one.float_norms)
        return replace(
            one,
            kernel_norms=(l1, l2),
            float_norms=(floats_l1, floats_l2),
            value_bound=OUTWARD * scale * one.value_bound,
        )

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Values over the normalizer."""
        return self.inner.finish(state, output, slab) * float(most_rows(self.n)) / self.n
