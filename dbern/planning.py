"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from dbern.bernstein.coordinates import Coordinates, PlainCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.maps import family_of, maps_of
from dbern.certificate import ErrorModel, combined, entries_bound, lower_bound
from dbern.choice import CANDIDATES, Problem, require_positive_definite
from dbern.errors import SpecError
from dbern.plans import (
    PlannedComponent,
    PlannedNoise,
    PlannedSensitivity,
    ReleasePlan,
)
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import GaussianNoise, calibrate_gaussian, calibrate_laplace
from dbern.privacy.mechanism import Noise
from dbern.privacy.sensitivity import Sensitivity
from dbern.privacy.zcdp import rho_for
from dbern.records import FileFacts, discover, read_footers
from dbern.spec import ADVANCED, ReleaseSpec
from dbern.targets.base import Component, Statistic, Vector, for_rows, is_linear
from dbern.targets.counting import Counters
from dbern.targets.protected import most_rows
from dbern.workers import cost

KINDS = (
    {"": "laplace", "spectral": "spectral-laplace", "binned": "binned-laplace"},
    {"": "discrete-gaussian", "spectral": "spectral-gaussian", "binned": "binned-gaussian"},
)
"""Noise on lattice values, on spectral coordinates and on bins: Laplace, Gaussian."""

_ORDERS: tuple[Literal["k", "h"], ...] = ("k", "h")
_PAPER_H = 2
_LARGEST_PAPER_K = 64
_LARGEST_AUTO_K = 1000
_LARGEST_AUTO_LATTICE = 1_000_000
_SHARE = 0.01  # of the noise that the effective kernel may cost
_LARGEST_LATTICE = 50_000_000


def plan(spec: ReleaseSpec) -> ReleasePlan:
    """Plan a release from the spec, the schema and the row counts; no record is read.

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work; the message says what to write.
    """
    return plan_files(spec, footers(spec))


def footers(spec: ReleaseSpec) -> tuple[FileFacts, ...]:
    """What the footers of the spec's files say, their columns checked.

    Raises
    ------
    SpecError
        For files or columns that cannot be used.
    """
    return read_footers(discover(spec.source), spec.columns)


def plan_files(spec: ReleaseSpec, files: Sequence[FileFacts]) -> ReleasePlan:
    """Plan a release of files whose footers are known (none: ``data.n`` alone)."""
    n = public_rows(spec, files)
    at_once = sum(component.outputs for component in spec.components)
    resolved = [
        _vector(spec, component, n, at_once)
        if isinstance(component, Vector)
        else _component(spec, for_rows(component, n), n, at_once)
        for component in spec.components
    ]
    planned = tuple(component for component, _ in resolved)
    parts = [statistic for _, statistic in resolved]
    counters = Counters.of(parts, spec.records, spec.protection.unit, n)
    errors = [one.certificate for one in planned for _ in range(one.outputs)]
    least = planned[0].certificate.lower_bound if len(planned) == 1 else 0.0
    return ReleasePlan(
        name=spec.release.name,
        dataset=spec.budget.dataset,
        charge=spec.charge,
        n=n,
        protection=spec.protection,
        calibration=_calibration(spec),
        components=planned,
        certificate=combined(spec.combination, errors, least),
        cost=cost(counters, n),
        notes=spec.learner.notes(n),
    )


def _component(
    spec: ReleaseSpec, component: Component, n: int, at_once: int
) -> tuple[PlannedComponent, Statistic]:
    """Resolve one component; its certificate holds together with those of `at_once` arrays."""
    charge, norm = _charge(spec, component), 2 if spec.gaussian else 1
    coordinates, h = _choose(spec, component, n)
    exact = _exact(component, coordinates, n, _calibration(spec), norm)
    ratio = _noise_ratio(spec, charge)
    if spec.advanced:  # that starts from S times the root of the values, and here is S times them
        ratio /= math.sqrt(component.outputs * coordinates.layout.size)
    statistic = component.statistic(coordinates, n, _tolerance(exact, coordinates, n, ratio))
    calibrate = _calibrate_advanced if spec.advanced else _calibrate
    law = calibrate(exact, component.outputs, statistic, n, charge)
    model = ErrorModel(
        approximation=component.approximation,
        coordinates=coordinates,
        law=law,
        lattice_error=statistic.kernel_error + statistic.position_error,
        released_error=statistic.float_error + math.ldexp(0.5, law.granularity_exponent),
        unit=component.unit,
    )
    least = _lower_bound(spec, component, n)
    planned = PlannedComponent(
        name=component.name,
        outputs=component.outputs,
        k=coordinates.lattice.k,
        h=h,
        maps=maps_of(coordinates),
        counting=statistic.counting,
        description=statistic.description,
        sensitivity=_sensitivity(exact, law, component.unit),
        noise=_noise(spec, coordinates, law, component.unit),
        certificate=model.bound(h, spec.beta, at_once, least),
        approximation=component.approximation.to_dict(),
        unit=component.unit,
        lattice_error=model.lattice_error,
        released_error=model.released_error,
    )
    return planned, statistic


def _vector(
    spec: ReleaseSpec, vector: Vector, n: int, at_once: int
) -> tuple[PlannedComponent, Statistic]:
    """Resolve a vector: there is nothing to choose. By basic composition, whatever the others."""
    norm, statistic = 2 if spec.gaussian else 1, vector.statistic(n)
    bound = vector.movement(norm)
    function, moved = (Fraction(one) / n for one in (vector.entry_movement, bound.value))
    exact = Sensitivity(function, moved, bound.derivation, norm)
    law = _calibrate(exact, vector.outputs, statistic, n, _charge(spec, vector))
    lattice_error = statistic.kernel_error + statistic.position_error
    released_error = statistic.float_error + math.ldexp(0.5, law.granularity_exponent)
    error = lattice_error + released_error
    granularity = math.ldexp(1.0, law.granularity_exponent)
    planned = PlannedComponent(
        name=vector.name,
        outputs=vector.outputs,
        k=(),
        h=(),
        maps=(),
        counting=statistic.counting,
        description=statistic.description,
        sensitivity=_sensitivity(exact, law, 1.0),
        noise=PlannedNoise(KINDS[spec.gaussian][""], _scale(law) * granularity, granularity, law),
        certificate=entries_bound(law, len(vector.entries), error, spec.beta, at_once),
        approximation={},
        unit=1.0,
        lattice_error=lattice_error,
        released_error=released_error,
        entries=vector.entries,
    )
    return planned, statistic


def _charge(spec: ReleaseSpec, component: Component | Vector) -> Budget:
    """The component's share of the budget: shares sum to one, and budgets compose by adding."""
    return Budget(spec.charge.epsilon * component.share, spec.charge.delta * component.share)


def _calibration(spec: ReleaseSpec) -> str:
    return "paper" if spec.advanced else spec.mechanism.calibration


def _exact(
    component: Component, coordinates: Coordinates, n: int, calibration: str, norm: int
) -> Sensitivity:
    """Sensitivities of the exact function, before any rounding."""
    function = Fraction(component.function_movement) / n
    if calibration == "paper":
        values = component.outputs * coordinates.lattice.size
        return Sensitivity(function, values * function, f"c N S(F) = {values} x S(F)")
    bound = component.movement(coordinates, norm)
    return Sensitivity(function, Fraction(bound.value) / n, bound.derivation, norm)


def public_rows(spec: ReleaseSpec, files: Sequence[FileFacts]) -> int:
    """What sums are divided by: the spec's normalizer, or the public number of rows.

    Raises
    ------
    SpecError
        Where spec and footers disagree on that, or there are no rows, or too many.
    """
    counted = sum(file.rows for file in files)
    if spec.normalizer is not None:
        if counted > most_rows(spec.normalizer):
            raise SpecError(
                f"data.source: more than {most_rows(spec.normalizer)} rows are not available with "
                f'normalizer = "{spec.normalizer}"; write a larger one, or split the source'
            )
        return spec.normalizer
    stated = spec.data.n
    if files and stated is not None and stated != counted:
        raise SpecError(
            f"data.n: the spec says {stated} rows and the files hold {counted}; "
            f"write n = {counted}, or leave it out"
        )
    if not files and stated is None:
        raise SpecError("data.n: is missing; write n = 2000000, the public number of rows")
    n = stated if stated is not None else counted
    if n == 0:
        raise SpecError("data.source: the files hold no rows; write a source with at least one row")
    if n.bit_length() > 45:
        raise SpecError(
            "data.source: more than 2^45 rows are not available in this version; split the source"
        )
    return n


def _choose(spec: ReleaseSpec, component: Component, n: int) -> tuple[Coordinates, tuple[int, ...]]:
    """What the spec says, and the smallest predicted error over what it leaves open."""
    mechanism = spec.mechanism
    if is_linear(component):
        return _corners(spec, component)
    k, h = _given_k(spec, component), spec.per_axis("h", component.domain)
    if mechanism.calibration == "paper":
        h = h or (_PAPER_H,) * component.domain.dimensions
        k = k or _paper_k(spec, component, n, max(h))
    kinds = KINDS[spec.gaussian]
    plain_only = mechanism.calibration == "paper" or mechanism.noise in (kinds[""], ADVANCED)
    if k is not None and h is not None and plain_only:
        return PlainCoordinates(Lattice(k)), h
    problem = replace(problem_of(spec, component, n), k=k, h=h)
    families = (
        [""]
        if plain_only
        else [family for family, kind in kinds.items() if mechanism.noise in ("auto", kind)]
    )
    if mechanism.noise == kinds["spectral"]:
        require_positive_definite(problem.kernels)
    found = [one for family in families for one in CANDIDATES[family](problem)]
    if not found:
        raise SpecError(
            f'mechanism.noise: "{mechanism.noise}" is not for what target.kind = '
            f'"{spec.learner.kind}" releases; write noise = "{kinds[""]}" or "auto"'
        )
    chosen = min(found, key=lambda candidate: candidate.error)
    return chosen.coordinates, chosen.h


def _corners(spec: ReleaseSpec, component: Component) -> tuple[Coordinates, tuple[int, ...]]:
    """A linear function is its values at the corners."""
    ones = (1,) * component.domain.dimensions
    for key in _ORDERS:
        if spec.per_axis(key, component.domain) not in (None, ones):
            raise SpecError(f"mechanism.{key}: a linear function needs 1, no more; leave it out")
    if spec.mechanism.noise not in ("auto", KINDS[spec.gaussian][""], ADVANCED):
        raise SpecError('mechanism.noise: is not for a linear function; write noise = "auto"')
    return PlainCoordinates(Lattice(ones)), ones


def problem_of(spec: ReleaseSpec, component: Component, n: int) -> Problem:
    """What the choice of k, h, noise and rank starts from."""
    protection = spec.protection
    return Problem(
        component=for_rows(component, n),
        n=n,
        bins_moved=(1 if protection.added else 2) * protection.unit.max_contributions,
        gaussian=spec.gaussian,
        advanced=spec.advanced,
        noise_ratio=_noise_ratio(spec, _charge(spec, component)),
        k=_given_k(spec, component),
        h=spec.per_axis("h", component.domain),
        certified=spec.mechanism.objective == "certified",
        reference=spec.reference,
        largest_k=_LARGEST_AUTO_K,
        largest_lattice=_LARGEST_AUTO_LATTICE,
    )


def _given_k(spec: ReleaseSpec, component: Component) -> tuple[int, ...] | None:
    k = spec.per_axis("k", component.domain)
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version; write a smaller k"
        )
    return k


def _noise_ratio(spec: ReleaseSpec, charge: Budget) -> float:
    """Scale of the noise for sensitivity one; by advanced composition, over ``sqrt(N)``."""
    if spec.advanced:
        return 2 * math.sqrt(-2 * math.log(charge.delta)) / float(charge.epsilon)
    if charge.delta:
        return 1 / math.sqrt(2 * float(rho_for(charge.epsilon, charge.delta)))
    return 1 / float(charge.epsilon)


def _paper_k(spec: ReleaseSpec, component: Component, n: int, h: int) -> tuple[int, ...]:
    """The choice that proves Theorem 1, its constants set to one."""
    dimensions = component.domain.dimensions
    epsilon = float(_charge(spec, component).epsilon)
    ratio = epsilon * n / (component.function_movement * math.log(1 / spec.beta))
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _tolerance(exact: Sensitivity, coordinates: Coordinates, n: int, noise_ratio: float) -> float:
    """Kernel error allowed: 1 % of the sensitivity, and 1 % of a lattice value's noise."""
    axes = (coordinates.row_sums(axis) for axis in range(len(coordinates.lattice.k)))
    rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
    bound = float(exact.bound)
    return _SHARE * min(bound * n / (2 * rows), bound * noise_ratio * coordinates.lattice_gain)


def _calibrate(
    exact: Sensitivity, outputs: int, statistic: Statistic, n: int, charge: Budget
) -> Noise:
    """The noise for the effective kernel, computed in floats and rounded to the grid."""
    norm, size = exact.norm, outputs * statistic.coordinates.layout.size
    moved = exact.bound + Fraction(statistic.kernel_error_norm(norm)) / n
    floats, bound = Fraction(statistic.float_error_norm(norm)), Fraction(statistic.value_bound)
    if norm == 2:
        return calibrate_gaussian(moved, floats, size, charge.epsilon, charge.delta, bound)
    return calibrate_laplace(moved, floats / size, size, charge.epsilon, bound)


def _calibrate_advanced(
    exact: Sensitivity, outputs: int, statistic: Statistic, n: int, charge: Budget
) -> Noise:
    """The same by advanced composition, from the largest move of one value."""
    size = outputs * statistic.coordinates.layout.size
    moved = exact.function + 2 * Fraction(statistic.kernel_error) / n
    eta, bound = Fraction(statistic.float_error), Fraction(statistic.value_bound)
    return calibrate_advanced_laplace(moved, eta, size, charge.epsilon, charge.delta, bound)


def _sensitivity(exact: Sensitivity, law: Noise, unit: float) -> PlannedSensitivity:
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


def _noise(spec: ReleaseSpec, coordinates: Coordinates, law: Noise, unit: float) -> PlannedNoise:
    granularity = math.ldexp(1.0, law.granularity_exponent) * unit
    kind = KINDS[isinstance(law, GaussianNoise)][family_of(coordinates)]
    kind = ADVANCED if spec.advanced else kind
    return PlannedNoise(kind, _scale(law) * granularity, granularity, law)


def _scale(law: Noise) -> int:
    return law.sigma if isinstance(law, GaussianNoise) else law.scale


def _lower_bound(spec: ReleaseSpec, component: Component, n: int) -> float:
    """Known for sums over records, which attain their sensitivity record by record."""
    if not component.additive:
        return 0.0
    function = component.function_movement * component.unit / n
    charge = spec.charge
    return lower_bound(function, float(charge.epsilon), float(spec.beta), n, float(charge.delta))
