"""From what a record can do to the exact function to the contract with the noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dbern.counting.measurement import Measurement
from dbern.counting.passes import Accumulator
from dbern.privacy.contract import Contract, Sensitivity
from dbern.privacy.families import NoiseFamily

_SHARE = 0.01  # of the noise that the effective kernel may cost


def exact_sensitivity(
    measurement: Measurement, strategy: Any, n: int, family: NoiseFamily
) -> Sensitivity:
    """Return the sensitivities of the exact function, before any rounding."""
    function, norm = measurement.function_sensitivity, int(family.values_norm)
    if family.by_function:
        return Sensitivity.paper(n, function, measurement.outputs * strategy.lattice.size)
    bound = measurement.sensitivity(strategy, norm, False)
    exact = Sensitivity.over(n, function, bound.value, bound.derivation, norm)
    return replace(exact, sides=family.sides and bound.sides)


def tolerance(exact: Sensitivity, strategy: Any, n: int, ratio: float) -> float:
    """Kernel error allowed: 1 % of the sensitivity, and 1 % of a lattice value's noise."""
    axes = (strategy.row_sums(axis) for axis in range(len(strategy.lattice.k)))
    rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
    bound, gain = float(exact.bound), float(strategy.lattice_gain)
    return _SHARE * min(bound * n / (2 * rows), bound * ratio * gain)


def contract_of(
    exact: Sensitivity, outputs: int, accumulator: Accumulator, n: int, fraction: Fraction
) -> Contract:
    """What crosses to the noise: for effective kernels, computed in floats; n of the release."""
    found = accumulator.errors
    if exact.norm == math.inf:
        errors = 2 * found.kernel, found.floats
    else:
        norm = int(exact.norm) - 1
        errors = found.kernel_norms[norm], found.float_norms[norm]
    size = outputs * accumulator.strategy.layout.size
    return Contract.of(exact, n, *errors, found.value_bound, size=size, fraction=fraction)
