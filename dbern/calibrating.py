"""From what a record can do to the exact function to the noise that is planned for it."""

from __future__ import annotations

import math
from fractions import Fraction

from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.maps import family_of
from dbern.components.base import Component, Statistic, Vector
from dbern.plans import PlannedNoise, PlannedSensitivity
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import GaussianNoise, calibrate_gaussian, calibrate_laplace
from dbern.privacy.mechanism import Noise
from dbern.privacy.sensitivity import Sensitivity
from dbern.privacy.zcdp import rho_for
from dbern.spec import ADVANCED, ReleaseSpec

KINDS = (
    {"": "laplace", "spectral": "spectral-laplace", "binned": "binned-laplace"},
    {"": "discrete-gaussian", "spectral": "spectral-gaussian", "binned": "binned-gaussian"},
)
"""Noise on lattice values, on spectral coordinates and on bins: Laplace, Gaussian."""

_SHARE = 0.01  # of the noise that the effective kernel may cost


def share_of_budget(spec: ReleaseSpec, component: Component | Vector) -> Budget:
    """The component's share of the budget: shares sum to one, and budgets compose by adding."""
    return Budget(spec.charge.epsilon * component.share, spec.charge.delta * component.share)


def calibration_of(spec: ReleaseSpec) -> str:
    """ "paper" or "tight"; advanced composition starts from the paper's."""
    return "paper" if spec.advanced else spec.mechanism.calibration


def exact_sensitivity(
    component: Component, coordinates: Coordinates, n: int, calibration: str, norm: int
) -> Sensitivity:
    """Sensitivities of the exact function, before any rounding."""
    function = Fraction(component.function_movement) / n
    if calibration == "paper":
        values = component.outputs * coordinates.lattice.size
        return Sensitivity(function, values * function, f"c N S(F) = {values} x S(F)")
    bound = component.movement(coordinates, norm)
    return Sensitivity(function, Fraction(bound.value) / n, bound.derivation, norm)


def noise_ratio(spec: ReleaseSpec, charge: Budget) -> float:
    """Scale of the noise for sensitivity one; by advanced composition, over ``sqrt(N)``."""
    if spec.advanced:
        return 2 * math.sqrt(-2 * math.log(charge.delta)) / float(charge.epsilon)
    if charge.delta:
        return 1 / math.sqrt(2 * float(rho_for(charge.epsilon, charge.delta)))
    return 1 / float(charge.epsilon)


def tolerance(exact: Sensitivity, coordinates: Coordinates, n: int, ratio: float) -> float:
    """Kernel error allowed: 1 % of the sensitivity, and 1 % of a lattice value's noise."""
    axes = (coordinates.row_sums(axis) for axis in range(len(coordinates.lattice.k)))
    rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
    bound = float(exact.bound)
    return _SHARE * min(bound * n / (2 * rows), bound * ratio * coordinates.lattice_gain)


def calibrate(
    exact: Sensitivity, outputs: int, statistic: Statistic, n: int, charge: Budget
) -> Noise:
    """The noise for the effective kernel, computed in floats and rounded to the grid."""
    norm, size = exact.norm, outputs * statistic.coordinates.layout.size
    moved = exact.bound + Fraction(statistic.kernel_error_norm(norm)) / n
    floats, bound = Fraction(statistic.float_error_norm(norm)), Fraction(statistic.value_bound)
    if norm == 2:
        return calibrate_gaussian(moved, floats, size, charge.epsilon, charge.delta, bound)
    return calibrate_laplace(moved, floats / size, size, charge.epsilon, bound)


def calibrate_advanced(
    exact: Sensitivity, outputs: int, statistic: Statistic, n: int, charge: Budget
) -> Noise:
    """The same by advanced composition, from the largest move of one value."""
    size = outputs * statistic.coordinates.layout.size
    moved = exact.function + 2 * Fraction(statistic.kernel_error) / n
    eta, bound = Fraction(statistic.float_error), Fraction(statistic.value_bound)
    return calibrate_advanced_laplace(moved, eta, size, charge.epsilon, charge.delta, bound)


def planned_sensitivity(exact: Sensitivity, law: Noise, unit: float) -> PlannedSensitivity:
    """What the plan says of it, in units of values, with what rounding adds."""
    if isinstance(law, GaussianNoise):
        granules = math.sqrt(law.l2_sensitivity_granules_squared)
    else:
        granules = float(law.l1_sensitivity_granules)
    total = math.ldexp(granules, law.granularity_exponent)
    share = total / float(exact.bound) - 1
    return PlannedSensitivity(
        function=float(exact.function) * unit,
        l1=total * unit if exact.norm == 1 else None,
        l2=total * unit if exact.norm == 2 else None,
        derivation=(
            f"Delta{exact.norm} <= {exact.derivation} = {float(exact.bound) * unit:.6g}",
            f"+ {share:.2%} for the effective kernel, float error and rounding to the grid",
        ),
    )


def planned_noise(
    spec: ReleaseSpec, coordinates: Coordinates, law: Noise, unit: float
) -> PlannedNoise:
    """What the plan says of the noise, in units of values."""
    granularity = math.ldexp(1.0, law.granularity_exponent) * unit
    kind = KINDS[isinstance(law, GaussianNoise)][family_of(coordinates)]
    kind = ADVANCED if spec.advanced else kind
    return PlannedNoise(kind, scale_of(law) * granularity, granularity, law)


def scale_of(law: Noise) -> int:
    """Granules: of a Gaussian, sigma."""
    return law.sigma if isinstance(law, GaussianNoise) else law.scale
