"""Search for the smallest epsilon whose plan reaches an error."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, TypeAlias

from dbern.errors import SpecError
from dbern.planning.planner import footers, plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.families import ADVANCED
from dbern.system import Progress, silent

_NUM_BISECTIONS = 14
Aim: TypeAlias = Literal["expected", "these-data", "any-database"]
"""Which error is aimed at."""
_MIN_EPSILON, _MAX_EPSILON = Fraction(1, 10**4), Fraction(10**4)
_DIGITS = 3


def smallest_epsilon(
    spec: ReleaseSpec, error: float, progress: Progress = silent, about: Aim = "any-database"
) -> tuple[Fraction, ReleasePlan]:
    """Return the smallest epsilon, to three digits, whose error is at most `error`, and its plan.

    Bisection on a logarithmic scale over plans; the error falls as epsilon grows but for the
    choice's own steps, so the answer keeps what it says though a slightly smaller one might too.
    The error, in data units, is "expected" of typical data, the band of evenly spread records
    ("these-data"), or the certificate, for which plans have ``objective = "certified"``. Raises
    SpecError where no epsilon reaches the error, or the learner's plan does not tell it.
    """
    if ADVANCED in spec.families:
        raise SpecError(
            'mechanism.noise: "laplace-advanced" is kept for comparison with a plan; to choose, '
            'write noise = "auto"'
        )
    if spec.learner.get_params().get("bandwidth") == "auto":
        raise SpecError(
            '--target-error: with bandwidth = "auto" a larger epsilon offers narrower bandwidths, '
            "of larger errors. Write numbers in place of it"
        )
    files = footers(spec)

    def planned(epsilon: Fraction) -> ReleasePlan:
        if about == "any-database":
            return plan_files(spec.certified_at(epsilon), files)
        return plan_files(spec.changed({"budget": {"epsilon": str(epsilon)}}), files)

    low, high = _MIN_EPSILON, _MAX_EPSILON
    best = planned(high)
    reached = _error_of(best, about)
    if reached is None:
        raise SpecError(
            f'--of: "{about}" is not told by this plan. Leave it out, or write "any-database"'
        )
    if best.promises.pointwise and about == "any-database":
        raise SpecError(
            "--target-error: of quotients and least squares some databases leave all values open, "
            "whatever epsilon is. Release, and read interval() or regression()"
        )
    if not error >= reached:
        widths = [key for key in ("bandwidth", "length_scale") if hasattr(spec.learner, key)]
        larger = [f"target.{key}" for key in widths] + ["mechanism.k"] * best.on_lattice
        raise SpecError(
            f"--target-error: {error:g} is below {reached:.3g}, which even epsilon {high} "
            f"certifies. Write a larger {', or a larger '.join(['error', *larger])}."
        )
    for step in range(_NUM_BISECTIONS):
        middle = _rounded(float(low * high) ** 0.5)
        candidate = planned(middle)
        if (_error_of(candidate, about) or math.inf) <= error:  # not told where noise hides it
            high, best = middle, candidate
        else:
            low = middle
        progress("searching epsilon", step + 1, _NUM_BISECTIONS)
    return high, best


def _error_of(planned: ReleasePlan, about: Aim) -> float | None:
    forecast = planned.outlook
    errors = {"expected": forecast.expected, "these-data": forecast.these_data}
    return errors.get(about, planned.certificate.total)


def _rounded(value: float) -> Fraction:
    return Fraction(f"{value:.{_DIGITS - 1}e}")
