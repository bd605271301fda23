"""Answers for a steward before the choice: which plans there are, and what an error costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from dbern.errors import SpecError
from dbern.measure.measurement import Measurement
from dbern.planning.best_candidate import candidates_of, preferred
from dbern.planning.best_design import allowed_strategies, errs_less, make_search
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.measurement_plan import Design, plan_measurement
from dbern.planning.planner import footers, plan_files
from dbern.planning.plans import ReleasePlan
from dbern.planning.rows import BoundSpec, public_rows
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.families import ADVANCED, PAPER, NoiseFamily
from dbern.reconstruct import noise_names
from dbern.system import Progress, one_thread, silent

_NUM_BISECTIONS = 14
_MAX_OPTIONS = 20  # certified, each as a plan is: a fraction of a second
Aim: TypeAlias = Literal["expected", "these-data", "any-database"]
"""Which error is aimed at."""

_MIN_EPSILON, _MAX_EPSILON = Fraction(1, 10**4), Fraction(10**4)
_DIGITS = 3


@dataclass(frozen=True)
class Option:
    """One row of the trade-off: the certificate of a plan with these k, h, noise and rank.

    All errors are in data units. `predicted` is what the plan's choice makes small
    (`dbern.planning.best_candidate`); `error` is the sum of the certificate's parts.
    """

    noise_kind: str
    k: tuple[int, ...]
    h: tuple[int, ...]
    values: int
    predicted: float
    noise: float
    approximation: float
    rounding: float
    error: float


def tradeoff(spec: ReleaseSpec) -> list[Option]:
    """Return the best order for each lattice and rank of the first component.

    The first is what the plan chooses, the others follow by their predicted error. Each is
    certified as the plan certifies it. At most `_MAX_OPTIONS`; no record is read.
    """
    with one_thread():  # as plans do
        return _tradeoff(spec)


def _tradeoff(spec: ReleaseSpec) -> list[Option]:
    _refuse_advanced(spec)
    files = footers(spec)
    if PAPER in spec.families:
        raise SpecError('mechanism.calibration: the trade-off is that of "tight". Write "tight"')
    bound = BoundSpec.of(spec, public_rows(spec, files))
    spec, measurement = bound.spec, bound.measurements[0]
    if measurement.entries or measurement.linear:
        raise SpecError(
            f'target.kind: "{spec.learner.kind}" leaves no k, h or rank to choose. '
            "Leave out --table."
        )
    options = []
    for noise, family, estimate in _rows(measurement, bound)[:_MAX_OPTIONS]:
        candidate = make_search(measurement, bound, family).with_matrices(estimate)
        strategy, h = candidate.strategy, candidate.h
        planned = plan_measurement(measurement, Design(strategy, h, family), bound).planned
        certificate, predicted = planned.certificate, candidate.error * measurement.unit
        errors = (
            certificate.noise, certificate.approximation, certificate.rounding, certificate.total
        )  # fmt: skip
        size = strategy.layout.size
        options.append(Option(noise, strategy.lattice.k, h, size, predicted, *errors))
    return options


def _rows(
    measurement: Measurement, bound: BoundSpec
) -> list[tuple[str, NoiseFamily, CandidateDesign]]:
    """Return the best candidate of each noise, lattice and rank: the plan's, then by error."""
    choice: CandidateDesign | None = None
    rows = []
    for family in bound.spec.families:
        search, names = make_search(measurement, bound, family), noise_names(family)
        kinds = allowed_strategies(family, measurement, bound)
        candidates = [candidate for kind in kinds for candidate in candidates_of(kind, search)]
        rows += [(names[candidate.strategy.kind], family, candidate) for candidate in candidates]
        if candidates and errs_less(best := preferred(candidates, search), choice):
            choice = best
    rows.sort(key=lambda row: (row[2] is not choice, row[2].error))
    distinct: dict[tuple[str, tuple[int, ...], int], tuple[str, NoiseFamily, CandidateDesign]] = {}
    for row in rows:
        strategy = row[2].strategy
        distinct.setdefault((row[0], strategy.lattice.k, strategy.layout.size), row)
    return list(distinct.values())


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
    _refuse_advanced(spec)
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


def _refuse_advanced(spec: ReleaseSpec) -> None:
    if ADVANCED in spec.families:
        raise SpecError(
            'mechanism.noise: "laplace-advanced" is kept for comparison with a plan; to choose, '
            'write noise = "auto"'
        )


def _rounded(value: float) -> Fraction:
    return Fraction(f"{value:.{_DIGITS - 1}e}")
