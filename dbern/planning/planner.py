"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from dbern.certificate import ErrorModel, LowerBound, combined, strongest_bound, vector_bound
from dbern.counting.kernel_sums import oblique_of
from dbern.counting.measurement import (
    Component,
    Statistic,
    Vector,
    for_lattice,
    for_rows,
    is_linear,
    largest_lattice,
    most_rows,
    needs_lattice,
    random_privacy,
)
from dbern.counting.passes import Counters
from dbern.data.discovery import discover
from dbern.data.objects import is_url
from dbern.data.parquet import FileFacts, read_footers
from dbern.errors import SpecError
from dbern.planning.choose import (
    Candidate,
    Problem,
    Reference,
    candidates,
    require_positive_definite,
)
from dbern.planning.outlook import outlook_of
from dbern.planning.plans import (
    KINDS,
    PlannedComponent,
    PlannedNoise,
    ReleasePlan,
    calibration_of,
    contract_of,
    cost,
    exact_sensitivity,
    noise_ratio,
    planned_noise,
    planned_sensitivity,
    scale_of,
    tolerance,
)
from dbern.planning.spec import ADVANCED, ReleaseSpec
from dbern.privacy.contract import Sensitivity, law_of, require_one_charge
from dbern.strategies.base import Coordinates, Lattice
from dbern.strategies.bias import Approximation, GramBall
from dbern.strategies.lattice import PlainCoordinates
from dbern.strategies.maps import axis_maps, maps_of
from dbern.system import Progress, silent
from dbern.targets.bandwidths import unit_notes
from dbern.targets.base import counts_all_of, kernel_sum_of
from dbern.types import FloatArray

# --- Plan a release


_PAPER_H, _LARGEST_PAPER_K = 2, 64
_ORDERS: tuple[Literal["k", "h"], ...] = ("k", "h")
_LARGEST_AUTO_K = 1000
_LARGEST_AUTO_LATTICE = 1_000_000
_LARGEST_LATTICE = 1_000_000_000


def plan(spec: ReleaseSpec | str | Path) -> ReleasePlan:
    """Plan a release from the spec, the schema and the row counts; no record is read.

    Parameters
    ----------
    spec : ReleaseSpec, or the path of its file

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work; the message says what to write.
    """
    spec = ReleaseSpec.of(spec)
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
    components = [for_rows(component, n) for component in spec.components]
    spent = [(one.name, one.outputs, one.share) for one in components]
    require_one_charge(spec.learner.kind, spent)  # for n rows it may be another component
    if all(isinstance(component, Vector) for component in components):
        _refuse_choices(spec)
    at_once = sum(component.outputs for component in components)
    resolved = [
        _vector(spec, component, n, at_once)
        if isinstance(component, Vector)
        else _component(spec, component, n, at_once)
        for component in components
    ]
    planned = tuple(component for component, _ in resolved)
    parts = [statistic for _, statistic in resolved]
    counters = Counters.of(parts, spec.records, spec.protection.unit, n)
    errors = [one.certificate for one in planned for _ in range(one.outputs)]
    first, alone = planned[0].certificate, len(planned) == 1
    least = LowerBound(first.lower_bound, first.lower_bound_kind) if alone else LowerBound()
    return ReleasePlan(
        name=spec.release.name,
        dataset=spec.budget.dataset,
        charge=spec.charge,
        n=n,
        protection=spec.protection,
        calibration=calibration_of(spec),
        components=planned,
        certificate=combined(spec.combination, errors, least),
        cost=cost(counters, n, _listed(spec, files), remote=is_url(spec.source)),
        notes=(*spec.learner.notes(n), *unit_notes(spec.domain, spec.learner)),
        random_dp=random_privacy(spec.components, spec.charge),
        outlook=outlook_of(
            list(zip(components, planned, strict=True)),
            spec.combination,
            spec.domain,
            lambda component: problem_of(spec, component, n),
        ),
    )


def _listed(spec: ReleaseSpec, files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """What of the files is public: where the number of rows is private, no more than how many."""
    if spec.protection.private_rows:
        return [FileFacts(file.path, 0, ()) for file in files]
    return files


def _component(
    spec: ReleaseSpec, component: Component, n: int, at_once: int
) -> tuple[PlannedComponent, Statistic]:
    """Resolve one component; its certificate holds together with those of `at_once` arrays."""
    return resolved(spec, component, n, at_once, *_choose(spec, component, n))


def resolved(
    spec: ReleaseSpec,
    component: Component,
    n: int,
    at_once: int,
    coordinates: Coordinates,
    h: tuple[int, ...],
) -> tuple[PlannedComponent, Statistic]:
    """Plan one component, made for n rows by `for_rows`, with the coordinates and order given."""
    fraction, norm = component.share, 2 if spec.gaussian else 1
    component = for_lattice(component, coordinates)
    exact = exact_sensitivity(component, coordinates, n, calibration_of(spec), norm)
    ratio = noise_ratio(spec, spec.charge.part(fraction))
    if spec.advanced:  # that starts from S times the root of the values, and here is S times them
        ratio /= math.sqrt(component.outputs * coordinates.layout.size)
    statistic = component.statistic(coordinates, n, tolerance(exact, coordinates, n, ratio))
    promised = exact.of_each() if spec.advanced else exact
    law = law_of(contract_of(promised, component.outputs, statistic, n, fraction), spec.charge)
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
        sensitivity=planned_sensitivity(exact, law, component.unit),
        noise=planned_noise(spec, coordinates, law, component.unit),
        certificate=model.bound(h, spec.beta, at_once, least),
        approximation=_stored(component.approximation, coordinates, h).to_dict(),
        unit=component.unit,
        lattice_error=model.lattice_error,
        released_error=model.released_error,
    )
    return planned, statistic


def _stored(
    approximation: Approximation, coordinates: Coordinates, h: tuple[int, ...]
) -> Approximation:
    """What a reader can bound it by, who has no kernel of the user's."""
    if isinstance(approximation, GramBall):
        return approximation.stored(coordinates.lattice.k, h, axis_maps(coordinates))
    return approximation


def _vector(
    spec: ReleaseSpec, vector: Vector, n: int, at_once: int
) -> tuple[PlannedComponent, Statistic]:
    """Resolve a vector: there is nothing to choose. By basic composition, whatever the others."""
    norm, statistic = 2 if spec.gaussian else 1, vector.statistic(n)
    bound = vector.movement(norm)
    exact = Sensitivity.over(n, vector.entry_movement, bound.value, bound.derivation, norm)
    law = law_of(contract_of(exact, 1, statistic, n, vector.share), spec.charge)
    lattice_error = statistic.kernel_error + statistic.position_error
    released_error = statistic.float_error + math.ldexp(0.5, law.granularity_exponent)
    granularity = math.ldexp(1.0, law.granularity_exponent)
    count, error = len(vector.entries), lattice_error + released_error
    certificate = vector_bound(law, count, vector.features, error, spec.beta, at_once)
    planned = PlannedComponent(
        name=vector.name,
        outputs=1,
        k=(),
        h=(),
        maps=(),
        counting=statistic.counting,
        description=statistic.description,
        sensitivity=planned_sensitivity(exact, law, 1.0),
        noise=PlannedNoise(KINDS[spec.gaussian][""], scale_of(law) * granularity, granularity, law),
        certificate=certificate,
        approximation={},
        unit=1.0,
        lattice_error=lattice_error,
        released_error=released_error,
        entries=vector.entries,
    )
    return planned, statistic


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
    found = [one for family in families for one in candidates(family, problem)]
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
    if {spec.per_axis("k", component.domain), spec.per_axis("h", component.domain)} - {None, ones}:
        raise SpecError("mechanism.k, mechanism.h: a linear function needs 1; leave them out")
    if spec.mechanism.noise not in ("auto", KINDS[spec.gaussian][""], ADVANCED):
        raise SpecError('mechanism.noise: is not for a linear function; write noise = "auto"')
    return PlainCoordinates(Lattice(ones)), ones


def _refuse_choices(spec: ReleaseSpec) -> None:
    """Numbers that are released as they are leave no noise to choose; k and h have no use."""
    plain = spec.mechanism.noise in ("auto", KINDS[spec.gaussian][""])
    if not plain or spec.mechanism.calibration == "paper":
        raise SpecError(
            f'mechanism.noise, mechanism.calibration: "{spec.learner.kind}" releases numbers as '
            'they are; write noise = "auto" and calibration = "tight"'
        )


def problem_of(spec: ReleaseSpec, component: Component, n: int) -> Problem:
    """What the choice of k, h, noise and rank starts from."""
    component, k = for_rows(component, n), _given_k(spec, component)
    if k is not None:
        component = for_lattice(component, PlainCoordinates(Lattice(k)))
    return Problem(
        component=component,
        n=n,
        gaussian=spec.gaussian,
        advanced=spec.advanced,
        noise_ratio=noise_ratio(spec, spec.charge.part(component.share)),
        k=k,
        h=spec.per_axis("h", component.domain),
        certified=spec.mechanism.objective == "certified",
        reference=_reference(spec, component),
        largest_k=_LARGEST_AUTO_K,
        largest_lattice=int(min(_LARGEST_AUTO_LATTICE, largest_lattice(component))),
    )


def _reference(spec: ReleaseSpec, component: Component) -> Reference | None:
    """The public reference density over the component's cube."""
    density, oblique = spec.reference, oblique_of(component)
    if density is None or oblique is None:
        return density

    def over_the_box(positions: FloatArray) -> FloatArray:
        points, inside = oblique.points(positions)
        values = np.zeros(len(points))
        values[inside] = density(points[inside])
        return values

    return over_the_box


def _given_k(spec: ReleaseSpec, component: Component) -> tuple[int, ...] | None:
    k = spec.per_axis("k", component.domain)
    if k is None and needs_lattice(component):
        raise SpecError(
            "mechanism.k: is missing, and what the target states of its sensitivity is for one "
            "lattice; write k = 20"
        )
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version; write a smaller k"
        )
    return k


def _paper_k(spec: ReleaseSpec, component: Component, n: int, h: int) -> tuple[int, ...]:
    """The choice that proves Theorem 1, its constants set to one."""
    dimensions = component.domain.dimensions
    epsilon = float(spec.charge.part(component.share).epsilon)
    ratio = epsilon * n / (component.function_movement * math.log(1 / spec.beta))
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _lower_bound(spec: ReleaseSpec, component: Component, n: int) -> LowerBound:
    """Known for sums over records, which attain their sensitivity record by record."""
    if not component.additive:
        return LowerBound()
    function, summed = component.function_movement * component.unit / n, kernel_sum_of(component)
    unsigned = summed is not None and counts_all_of(summed, summed) and summed.oblique is None
    kernels = summed.kernels if summed and unsigned else ()
    charge, rows = spec.charge, spec.protection.unit.max_contributions
    epsilon, delta = float(charge.epsilon), float(charge.delta)
    return strongest_bound(function, epsilon, float(spec.beta), n, delta, rows, kernels)


# --- What a steward asks before choosing

_STEPS = 14
_MOST_OPTIONS = 20  # certified, each as a plan is: a fraction of a second
Aim: TypeAlias = Literal["expected", "these-data", "any-database"]
"""Which error is aimed at."""

_LEAST, _MOST = Fraction(1, 10**4), Fraction(10**4)
_DIGITS = 3


@dataclass(frozen=True)
class Option:
    """One row of the trade-off: what a plan with these k, h, noise and rank certifies.

    Attributes
    ----------
    predicted : float
        The error in data units that the plan's choice makes small (see `dbern.planning.choose`).
    noise, approximation, rounding : float
        Parts of the certificate of this component, in data units.
    error : float
        Their sum.
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
    """The best order for each lattice and rank of the first component, least predicted error first.

    The first is what the plan chooses, and each is certified as the plan certifies it. At most
    `_MOST_OPTIONS`; no record is read.

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work.
    """
    _refuse_advanced(spec)
    files = footers(spec)
    if spec.mechanism.calibration == "paper":
        raise SpecError('mechanism.calibration: the trade-off is that of "tight"; write "tight"')
    component, n = spec.components[0], public_rows(spec, files)
    if isinstance(component, Vector) or is_linear(component):
        raise SpecError(
            f'target.kind: "{spec.learner.kind}" leaves no k, h or rank to choose; '
            "leave out --table"
        )
    problem = problem_of(spec, component, n)
    best: dict[tuple[str, tuple[int, ...], int], Candidate] = {}
    for family, kind in KINDS[spec.gaussian].items():
        if spec.mechanism.noise not in ("auto", kind):
            continue
        for candidate in candidates(family, problem):
            coordinates = candidate.coordinates
            key = (kind, coordinates.lattice.k, coordinates.layout.size)
            if key not in best or candidate.error < best[key].error:
                best[key] = candidate
    at_once, sized = sum(one.outputs for one in spec.components), for_rows(component, n)
    options = []
    for (kind, k, values), one in sorted(best.items(), key=_predicted)[:_MOST_OPTIONS]:
        planned, _ = resolved(spec, sized, n, at_once, one.coordinates, one.h)
        sure, predicted = planned.certificate, one.error * problem.component.unit
        parts = (sure.noise, sure.approximation, sure.rounding, sure.total)
        options.append(Option(kind, k, one.h, values, predicted, *parts))
    return options


def _predicted(item: tuple[object, Candidate]) -> float:
    return item[1].error


def smallest_epsilon(
    spec: ReleaseSpec, error: float, progress: Progress = silent, about: Aim = "any-database"
) -> tuple[Fraction, ReleasePlan]:
    """The smallest epsilon, to three digits, for which an error is at most `error` in data units.

    Bisection on a logarithmic scale over plans; the error falls as epsilon grows but for the
    choice's own steps, so the answer keeps what it says though a slightly smaller one might too.

    Parameters
    ----------
    about : "expected", "these-data" or "any-database"
        Which error: what is expected of typical data, the band of evenly spread records, or the
        certificate. For the last, plans have ``objective = "certified"``.

    Raises
    ------
    SpecError
        Where no epsilon reaches the error, or the learner's plan does not tell it.
    """
    _refuse_advanced(spec)
    files = footers(spec)

    def planned(epsilon: Fraction) -> ReleasePlan:
        if about == "any-database":
            return plan_files(spec.certified_at(epsilon), files)
        return plan_files(spec.changed({"budget": {"epsilon": str(epsilon)}}), files)

    low, high = _LEAST, _MOST
    best = planned(high)
    reached = _aimed(best, about)
    if not error >= reached:
        raise SpecError(
            f"--target-error: {error:g} is below {reached:.3g}, which even epsilon "
            f"{high} certifies; write a larger error, a larger bandwidth, or a larger mechanism.k"
        )
    for step in range(_STEPS):
        middle = _rounded(float(low * high) ** 0.5)
        candidate = planned(middle)
        if _aimed(candidate, about) <= error:
            high, best = middle, candidate
        else:
            low = middle
        progress("searching epsilon", step + 1, _STEPS)
    return high, best


def _aimed(planned: ReleasePlan, about: Aim) -> float:
    ahead = planned.outlook
    found = {"expected": ahead.expected, "these-data": ahead.these_data}
    error = found.get(about, planned.certificate.total)
    if error is None:
        raise SpecError(
            f'--of: "{about}" is not told by this plan; leave it out, or write "any-database"'
        )
    return error


def _refuse_advanced(spec: ReleaseSpec) -> None:
    if spec.advanced:
        raise SpecError(
            'mechanism.noise: "laplace-advanced" is kept for comparison with a plan; to choose, '
            'write noise = "auto"'
        )


def _rounded(value: float) -> Fraction:
    return Fraction(f"{value:.{_DIGITS - 1}e}")
