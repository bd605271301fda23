"""Scale of the noise: a statistic's sensitivity, and the law that epsilon calibrates to it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dbern.measure.accumulator import Accumulator
from dbern.measure.statistic import Statistic
from dbern.planning.resolved import ResolvedSpec
from dbern.privacy.contract import Contract, FloatBounds, Sensitivity
from dbern.privacy.families import NoiseFamily
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.base import AnyStrategy, Strategy

_MAX_KERNEL_ERROR = 0.01  # fraction of the noise that the effective kernel may cost


def calibrate_noise(
    exact: Sensitivity,
    statistic: Statistic,
    accumulator: Accumulator,
    family: NoiseFamily,
    resolved: ResolvedSpec,
) -> NoiseLaw:
    """Calibrate the noise of a statistic to its sensitivity and its fraction of the charge."""
    # The fraction that was checked to add up: what a statistic becomes cannot spend more.
    fraction = statistic.output_fraction
    of_values = exact.of_each() if family.norm == math.inf else exact
    contract = _contract(of_values, statistic.outputs, accumulator, resolved.n, fraction)
    return family.calibrate(contract.repeated(*resolved.spec.repeats), resolved.charge)


def sensitivity_and_params(
    statistic: Statistic, strategy: AnyStrategy, family: NoiseFamily, resolved: ResolvedSpec
) -> tuple[Sensitivity, dict[str, Any]]:
    """Return the sensitivities of the exact function, and how records become integers.

    The kernel's error is at most 1 % of the sensitivity and of a lattice value's noise. Raises
    SpecError where no sum of reasonable size is that accurate.
    """
    n, tolerance = resolved.n, 0.0
    exact = _exact_sensitivity(statistic, strategy, family, n)
    if isinstance(strategy, Strategy):
        ratio = family.predicted_scale(resolved.charge.part(statistic.output_fraction))
        if family.norm == math.inf:  # over the root of the number of values, all of which move
            ratio /= math.sqrt(statistic.outputs * strategy.layout.size)
        axes = (strategy.row_sums(axis) for axis in range(len(strategy.lattice.k)))
        rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
        largest = float(exact.bound)
        tolerance = _MAX_KERNEL_ERROR * min(largest * n / (2 * rows), largest * ratio)
    return exact, statistic.params(strategy, n, tolerance)


def _exact_sensitivity(
    statistic: Statistic, strategy: AnyStrategy, family: NoiseFamily, n: int
) -> Sensitivity:
    function, norm = statistic.function_sensitivity, int(family.values_norm)
    if family.by_function:
        return Sensitivity.paper(n, function, statistic.outputs * strategy.lattice.size)
    moved = statistic.sensitivity(strategy, norm)
    exact = Sensitivity.over(n, function, moved.value, moved.derivation, norm)
    return replace(exact, balanced=family.balanced and moved.balanced)


def _contract(
    exact: Sensitivity, outputs: int, accumulator: Accumulator, n: int, fraction: Fraction
) -> Contract:
    """Return the contract with the noise: for effective kernels, computed in floats."""
    errors = accumulator.errors
    if exact.norm == math.inf:
        bounds = FloatBounds(2 * errors.kernel, errors.floats, errors.value_bound)
    else:
        norm = int(exact.norm) - 1
        bounds = FloatBounds(
            errors.kernel_norms[norm], errors.float_norms[norm], errors.value_bound
        )
    size = outputs * accumulator.strategy.layout.size
    return Contract.of(exact, n, bounds, size=size, fraction=fraction)
