"""The contract between a statistic and its noise: all that privacy needs to know, exactly.

A learner proves bounds, in floats that are rounded outward; a `Contract` holds them as fractions,
and `law_of` makes the noise of it and of the charge alone. So the noise of a release is (epsilon,
delta)-DP for the share of the charge that the contract names, if its bounds hold; nothing else of
learners, records or plans is used. A float is a fraction, so nothing is rounded here.

Basic composition: what all statistics of a release spend together is its charge, once
(`require_one_charge`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from dbern.errors import SpecError
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import calibrate_gaussian, calibrate_k_norm, calibrate_laplace
from dbern.privacy.noise_law import NoiseLaw

Calibrated: TypeAlias = Callable[[Fraction, Fraction, int, Budget, Fraction], NoiseLaw]
"""A calibration: ``(moved, float_error, size, budget, value_bound)`` become a law.

`moved` is what a neighbour moves, kernels included; `float_error` is the norm of the float errors
of all values of one database together, of each value for norm infinity; `size` is the number of
integers, `budget` this statistic's part of the charge, `value_bound` a bound on each ``|value|``.
"""


def _exact_bound(value: float | Fraction) -> Fraction:
    """Read a bound as the fraction it is: the one place where a float becomes part of a guarantee.

    Raises SpecError for NaN, an infinity and numbers below 0, which bound nothing.
    """
    if not 0 <= value < math.inf:
        raise SpecError(
            f"target: a bound of {value} was given for what noise is calibrated to. State a "
            "finite number, not below 0"
        )
    return Fraction(value)


@dataclass(frozen=True)
class Sensitivity:
    """Bounds on how far one privacy unit moves the exact values, proved, in unit-cube units.

    `function` is ``S(F) = sup_y sup_{D~D'} |F_D(y) - F_D'(y)|`` (Definition 2 of the paper).
    `bound` is the largest distance of the released values of two neighbouring databases in the
    norm, for exact kernels, before any rounding; `derivation` is how it was obtained, for the plan,
    the manifest and an auditor. `norm` is 1 for Laplace noise, 2 for Gaussian noise, infinity for
    Laplace by advanced composition. `balanced`: what a move adds and what it takes away are at most
    half of `bound` each, and half of what kernels add to it; noise of the K-norm law is then
    calibrated to that half.
    """

    function: Fraction
    bound: Fraction
    derivation: str
    norm: float
    balanced: bool = False

    @classmethod
    def over(
        cls, n: int, function: float, bound: float, derivation: str, norm: float
    ) -> Sensitivity:
        """The sensitivity of sums over n, of which function and values move by so much."""
        return cls(_exact_bound(function) / n, _exact_bound(bound) / n, derivation, norm)

    @classmethod
    def paper(cls, n: int, function: float, values: int) -> Sensitivity:
        """The paper's l1 bound: each of so many values moves by S(F)."""
        each = _exact_bound(function) / n
        return cls(each, values * each, f"c N S(F) = {values} x S(F)", 1)

    def repeated(self, levels: int, nights: int) -> Sensitivity:
        """The sensitivity of several releases, as a stream's, that a unit is in, as one vector.

        A unit is in at most `nights` releases of each of `levels`, or in fewer with more of its
        rows. So it moves their values by at most ``levels nights`` times as much in the l1 norm,
        and ``sqrt(levels) nights`` times in the l2 norm: by the triangle inequality within a level,
        and levels are other coordinates. Noise of the K-norm law is drawn for one release, so it
        has no use for sides.
        """
        if levels == nights == 1:
            return self
        times = nights * (_root_above(levels) if self.norm == 2 else Fraction(levels))
        text = f"{levels} levels x {nights} nights x {self.derivation}"
        return replace(self, bound=times * self.bound, derivation=text, balanced=False)

    def of_each(self) -> Sensitivity:
        """The sensitivity of any one value: S(F), in the largest norm."""
        return Sensitivity(self.function, self.function, self.derivation, math.inf)


@dataclass(frozen=True)
class FloatBounds:
    """Bounds of a `Contract` as a learner proves them, in floats rounded outward.

    `kernel_error` is that of sums over n records, n times what it adds to the sensitivity.
    """

    kernel_error: float
    float_error: float
    value_bound: float


@dataclass(frozen=True)
class Contract:
    """Bounds on the integers that a statistic releases, for every two neighbours.

    `kernel_error` is what effective kernels add to the `sensitivity` of the exact values, in its
    norm, in which `float_error` bounds the float errors of all values of one database.
    `value_bound` bounds every ``|value|``, over all databases. `size` counts the released integers
    of all outputs. `fraction` of the release's budget is above 0 and at most 1.
    """

    sensitivity: Sensitivity
    kernel_error: Fraction
    float_error: Fraction
    value_bound: Fraction
    size: int
    fraction: Fraction

    def __post_init__(self) -> None:
        if self.sensitivity.norm not in (1, 2, math.inf):
            raise SpecError(f"noise: no law is calibrated to the norm {self.sensitivity.norm}")
        if self.size < 1 or not _is_fraction(self.fraction):
            raise SpecError("noise: a contract is for at least one value and a fraction up to 1")

    @classmethod
    def of(
        cls, sensitivity: Sensitivity, n: int, bounds: FloatBounds, *, size: int, fraction: Fraction
    ) -> Contract:
        """The contract of sums over n, exactly: the bounds become fractions."""
        errors = _exact_bound(bounds.kernel_error) / n, _exact_bound(bounds.float_error)
        return cls(sensitivity, *errors, _exact_bound(bounds.value_bound), size, fraction)

    def repeated(self, levels: int, nights: int) -> Contract:
        """The contract of all releases together that hold the same unit (`Sensitivity.repeated`).

        Float errors are those of the values that differ; what does not hold the unit is the same
        numbers for both neighbours.
        """
        if levels == nights == 1:
            return self
        moved = self.sensitivity.repeated(levels, nights)
        return replace(
            self,
            sensitivity=moved,
            kernel_error=self.kernel_error * moved.bound / self.sensitivity.bound,
            float_error=levels * nights * self.float_error,
            size=levels * nights * self.size,
        )


def law_of(contract: Contract, charge: Budget, calibrated: Calibrated | None = None) -> NoiseLaw:
    """Noise that makes the contract's integers private for its fraction of the charge.

    `calibrated` is that of another law; unless it is given, the norm decides which of ours it is.
    """
    moved = contract.sensitivity.bound + contract.kernel_error
    eta, size, bound = contract.float_error, contract.size, contract.value_bound
    budget, norm = charge.part(contract.fraction), contract.sensitivity.norm
    if calibrated is not None:
        return calibrated(moved, eta, size, budget, bound)
    if norm == 1 and contract.sensitivity.balanced:
        return calibrate_k_norm(moved / 2, eta / size, size, budget.epsilon, bound)
    if norm == 1:
        return calibrate_laplace(moved, eta / size, size, budget.epsilon, bound)
    ours = calibrate_gaussian if norm == 2 else calibrate_advanced_laplace
    return ours(moved, eta, size, budget.epsilon, budget.delta, bound)


def _root_above(number: int) -> Fraction:
    """Return a fraction that is at least the square root, by less than ``2^-40``."""
    return Fraction(math.isqrt(number << 80) + 1, 1 << 40)


def array_names(name: str, outputs: int) -> tuple[str, ...]:
    """Name the released arrays of a component: name, or name_0, name_1, .. of its outputs."""
    if outputs == 1:
        return (name,)
    return tuple(f"{name}_{output}" for output in range(outputs))


def _is_fraction(value: object) -> bool:
    return isinstance(value, Fraction | int) and 0 < value <= 1


def require_one_charge(kind: str, parts: Sequence[tuple[str, int, Fraction]]) -> None:
    """Refuse statistics that together spend more than the charge, or whose arrays meet.

    A statistic whose fraction of the budget is s is epsilon s, delta s private, so all of them
    are (epsilon, delta)-DP exactly where the fractions add up to at most one. They are exact, so
    that this sum is. Center and noise of an array are found by its name: two of one name would get
    one center, and the noise of two laws.

    `kind`, for the error, is the learner's; `parts` are each statistic's name, outputs and budget
    fraction.
    """
    for name, _, fraction in parts:
        if not _is_fraction(fraction):
            raise SpecError(
                f'target.kind: "{kind}" gives its statistic "{name}" the fraction '
                f"{fraction!r} of the budget, which must be a Fraction above 0 and at most 1; "
                'in the learner, write fraction=Fraction("0.5")'
            )
    total = sum((Fraction(fraction) for _, _, fraction in parts), Fraction(0))
    if total > 1:
        raise SpecError(
            f'target.kind: the fractions of the statistics of "{kind}" add up to {total} of the '
            f"budget, more than 1; in the learner, write fraction=Fraction(1, {len(parts)}) for "
            "each, or others that add up to at most 1"
        )
    counted = Counter(array for name, outputs, _ in parts for array in array_names(name, outputs))
    repeated = [name for name, times in counted.items() if times > 1]
    if repeated:
        raise SpecError(
            f'target.kind: "{kind}" releases more than one array named "{repeated[0]}"; in the '
            "learner, give each statistic a name of its own (outputs add _0, _1, .. to it)"
        )
