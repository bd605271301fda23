"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import ValidationError

from dbern.certificate import Certificate, ErrorModel, combined, vector_bound, with_silence
from dbern.combination.base import Combination
from dbern.components.component import ScaledNoise, ScaledSensitivity, StoredCertificate
from dbern.components.function_classes import FunctionClass, stored_class
from dbern.counting.measurement import Measurement, most_rows, random_privacy
from dbern.counting.passes import Accumulator, Counters
from dbern.data.domain import OTHER_UNITS, Domain
from dbern.data.frames import Frame, frame_of
from dbern.data.parquet import FileFacts, discover, read_footers
from dbern.data.storage import MOST_METADATA
from dbern.errors import SpecError, withhold_texts
from dbern.planning.asked import Questions
from dbern.planning.choose import Candidate, Problem, chosen
from dbern.planning.plans import (
    PlannedMeasurement,
    ReleasePlan,
    cost,
    outlook_of,
    released_component,
    spec_for_rows,
)
from dbern.planning.predicted import Reference
from dbern.planning.spec import ReleaseSpec
from dbern.planning.tuning import offers, tune_notes
from dbern.privacy.budget import Budget
from dbern.privacy.contract import Contract, Sensitivity, require_one_charge
from dbern.privacy.families import LAPLACE, PAPER, NoiseFamily, named
from dbern.privacy.mechanism import Noise
from dbern.strategies import STRATEGY_KINDS, noise_names
from dbern.strategies.base import Entries, Lattice, LatticeStrategy, Strategy
from dbern.strategies.bins import AxisBins, BinnedStrategy, axis_bins
from dbern.strategies.limits import LowerBound, strongest_bound
from dbern.system import is_url, one_thread
from dbern.targets.base import Way
from dbern.targets.density import unit_notes
from dbern.types import FloatArray

# --- Plan a release


_PAPER_H, _LARGEST_PAPER_K = 2, 64
_WORTH = 0.01  # of the error: what another law has to gain, or the usual one is taken
_ORDERS: tuple[Literal["k", "h"], ...] = ("k", "h")
_LARGEST_AUTO_K = 1000
_LARGEST_AUTO_LATTICE, _LARGEST_OF_MANY_AXES = 1_000_000, 6_000_000  # the second from 7 axes on
_LARGEST_LATTICE = 1_000_000_000
_OBJECTS_OF_ARRAY, _OBJECTS_OF_AXIS = 6, 6  # groups, metadata and matrices, at most
_BYTES_OF_OBJECT, _BYTES_OF_TEXT = 200, 16  # in a manifest; beside a text in a list
_NAMES = ("arrays", "axes", "entries", "counted_in")  # keys of a component that hold texts


def plan(spec: ReleaseSpec | str | Path, *, data: Any = None) -> ReleasePlan:
    """Plan a release from the spec, the schema and the row counts; no record is read.

    Parameters
    ----------
    spec : ReleaseSpec, or the path of its file
    data : table, optional
        As of `dbern.release`; asked for its columns and its number of rows alone.

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work; the message says what to write.
    """
    spec = ReleaseSpec.of(spec)
    with withhold_texts():
        frame = frame_for(spec, data)
        planned = plan_files(spec, footers(spec, frame))
        refuse_passes(spec, planned, frame)
        return planned


def refuse_passes(spec: ReleaseSpec, planned: ReleasePlan, frame: Frame | None) -> None:
    """Refuse a Dask frame whose partitions cannot be counted each by itself."""
    if frame is not None and frame.partitions and planned.counters(spec).passes:
        raise SpecError(
            f"data: {spec.learner.kind}, or units of several rows, take passes over all records, "
            "and partitions of a Dask frame are counted each by itself. Write Parquet files "
            "(frame.to_parquet) and name them in data.source."
        )


def frame_for(spec: ReleaseSpec, data: Any) -> Frame | None:
    """Return the columns that a spec reads of a table that was given in place of files.

    Raises SpecError where the spec names files too, or the table or its columns cannot be used.
    """
    if data is None:
        return None
    if spec.data.source is not None:
        raise SpecError(
            "data.source: names files, and a table was given too. Leave out data.source or data=."
        )
    return frame_of(data, spec.columns)


def footers(spec: ReleaseSpec, frame: Frame | None = None) -> tuple[FileFacts, ...]:
    """Read the footers of the spec's files, their columns checked; or those of a frame's spool."""
    if frame is not None:
        return frame.facts if spec.normalizer is None else ()
    return read_footers(discover(spec.source), spec.columns)


def plan_files(spec: ReleaseSpec, files: Sequence[FileFacts]) -> ReleasePlan:
    """Plan a release of files whose footers are known (none: ``data.n`` alone)."""
    with one_thread():  # matrices are small: threads that wait for them take the cores
        return _planned(spec, files)


def _planned(spec: ReleaseSpec, files: Sequence[FileFacts]) -> ReleasePlan:
    n = public_rows(spec, files)
    spec = spec_for_rows(spec, n)
    measurements = [resolved(one, n, spec) for one in spec.components]
    if any(one.spent < 0 for one in measurements):  # it would hide a fraction in the sum
        raise SpecError(f'target.kind: "{spec.learner.kind}" spends less than 0. Write spent >= 0')
    spent = [(one.name, one.outputs, one.fraction + one.spent) for one in measurements]
    require_one_charge(spec.learner.kind, spent)  # for n rows it may be another measurement
    settings = Settings.of(spec, n, sum(one.outputs for one in measurements))
    _refuse_questions(spec, measurements, settings)
    if all(one.entries for one in measurements):
        _refuse_choices(settings)
    chosen_ways = {one.name: choose(one, settings) for one in measurements}
    chosen_ways = {one.name: _as_counted(one, chosen_ways) for one in measurements}
    found = [plan_measurement(one, settings, *chosen_ways[one.name]) for one in measurements]
    functions = [one for one, _ in found]
    if spec.tune:
        how = choose, plan_measurement, problem_of
        found += offers(measurements[0], found[0], settings, *how)
    planned = tuple(one for one, _ in found)
    _refuse_unreadable(spec, planned)
    others = [[one] for one in planned[len(functions) :] if not one.promise]
    counters = Counters.of([one for _, one in found], spec.records, spec.protection.unit, n)
    ways = [
        Way(one, *chosen_ways[one.name][:2], plan.noise.law)
        for one, plan in zip(measurements, functions, strict=True)
    ]
    return ReleasePlan(
        name=spec.release.name,
        dataset=spec.budget.dataset,
        charge=settings.charge,
        n=n,
        protection=spec.protection,
        calibration="paper" if settings.family.by_function else "tight",
        components=planned,
        certificate=_largest_certificate(spec.combination, [functions, *others]),
        cost=cost(counters, n, _listed(spec, files), remote=is_url(spec.data.source or "")),
        notes=(
            *_notes(spec, n, ways),
            *_choice_notes(measurements, functions, settings),
            *tune_notes(spec.tune, planned),
            *_without_delta(measurements, settings, chosen_ways),
        ),
        random_dp=random_privacy(spec.components, spec.charge),
        outlook=outlook_of(
            list(zip(measurements, functions, strict=True)),
            spec.combination,
            spec.domain,
            lambda one: problem_of(one, settings, chosen_ways[one.name][2]),
            planned[len(functions) : len(functions) + 1],
        ),
    )


def _largest_certificate(
    combination: Combination, choices: Sequence[Sequence[PlannedMeasurement]]
) -> Certificate:
    """Return that of the whole function, with whichever of the bins that may be chosen."""
    certificates = [whole_certificate(combination, functions) for functions in choices]
    largest = max(certificates, key=lambda certificate: certificate.total)
    with _unreadable_refused():
        StoredCertificate.of(largest)
    return largest


@contextmanager
def _unreadable_refused() -> Iterator[None]:
    """Refuse what no reader takes of a component or a certificate: numbers, or names."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        if where.partition(".")[0] not in _NAMES:
            raise SpecError(OTHER_UNITS) from None
        raise SpecError(
            f"target.kind: a name that is released cannot be stored ({where}: {problem['msg']}). "
            "Write a plain name, or a shorter one"
        ) from None


def _refuse_unreadable(spec: ReleaseSpec, components: Sequence[PlannedMeasurement]) -> None:
    """Refuse metadata that are longer than readers take."""
    objects = size = 0
    for planned in components:
        axes = len(planned.k)
        slabs = -(-planned.lattice.shape[0] // planned.lattice.slab_layers)
        objects += len(planned.arrays) * (_OBJECTS_OF_ARRAY + _OBJECTS_OF_AXIS * axes + slabs)
        size += sum(len(text.encode()) for text in (*planned.arrays, *planned.entries))
        size += _BYTES_OF_TEXT * (len(planned.arrays) + len(planned.entries))
    size += sum(
        len(str(value).encode()) + _BYTES_OF_TEXT
        for values in (spec.combination.classes, *(axis.categories for axis in spec.domain.lists))
        for value in values
    )
    if max(objects * _BYTES_OF_OBJECT, size) > MOST_METADATA:
        raise SpecError(
            f"target: a release of so many classes, groups or values would have {objects} objects "
            f"and names of {size >> 10} KiB, more than a reader takes. List fewer of them, or "
            "release them by several specs"
        )


def _notes(spec: ReleaseSpec, n: int, ways: Sequence[Way]) -> Iterator[str]:
    yield from spec.learner.notes(n)
    for way in ways:
        yield from way.measurement.notes
    yield from spec.learner.predictions(spec.records, n, ways)
    yield from unit_notes(spec.domain, spec.learner)
    for axis in spec.domain.lists:
        many = len(axis.categories)
        yield f"{axis.name}: {many} listed values; a record with another counts as missing"


def _choice_notes(
    measurements: Sequence[Measurement], planned: Sequence[PlannedMeasurement], settings: Settings
) -> Iterator[str]:
    for one, plan in zip(measurements, planned, strict=True):
        if one.candidates:
            widest = with_kernels(plan, one.candidates[-1], settings).certificate.total
            told = "bins and promises of this plan are for the narrowest bandwidth; a release has "
            yield f"{told}those of what it chooses, of the widest {widest:.3g} for any database"


def whole_certificate(
    combination: Combination, planned: Sequence[PlannedMeasurement]
) -> Certificate:
    """Return the certificate of the function that planned measurements make."""
    errors = [one.certificate for one in planned for _ in range(one.outputs)]
    first, alone = planned[0].certificate, len(planned) == 1
    least = LowerBound(first.lower_bound, first.lower_bound_kind) if alone else LowerBound()
    return combined(combination, errors, least)


def resolved(measurement: Measurement, n: int, spec: ReleaseSpec) -> Measurement:
    """Bind a spec's measurement to n rows and, where it depends on that, the spec's charge."""
    return measurement.bind(n, spec.charge)


def counts_rows(spec: ReleaseSpec, measurements: Sequence[Measurement]) -> bool:
    """Return whether bins of a release may count rows in boxes, so that questions can be asked."""
    whole = (one for one in measurements if one.domain.names == spec.domain.names)
    counting = any(one.unsigned and one.oblique is None for one in whole)
    return counting and spec.combination.counts_rows


def _refuse_questions(
    spec: ReleaseSpec, measurements: Sequence[Measurement], settings: Settings
) -> None:
    if settings.questions and not counts_rows(spec, measurements):
        raise SpecError(
            f'mechanism.questions: "{spec.learner.kind}" counts no rows here. Leave it out, or '
            'write kind = "kernel-density", with a bandwidth in place of a covariance'
        )


def _listed(spec: ReleaseSpec, files: Sequence[FileFacts]) -> Sequence[FileFacts]:
    """Public facts of the files: where the number of rows is private, their count alone."""
    if spec.protection.private_rows:
        return [FileFacts(file.path, 0, ()) for file in files]
    return files


@dataclass(frozen=True)
class Settings:
    """Public choices of a spec that the plan of a measurement depends on.

    `axes` has k and h by axis, None where the plan is to choose. `at_once` counts the arrays whose
    certificates hold together, and `unit_rows` bounds the rows of a unit. `questions` are those
    that bins answer beside the function. `tune` is the share of the budget that a promise for the
    data at hand pays, `crowd` the share of the records that are taken to be in one place, if not
    the usual one. `density`: noise is silenced where nothing stands out of it.
    """

    families: tuple[NoiseFamily, ...]
    charge: Budget
    beta: Fraction
    n: int
    at_once: int
    unit_rows: int
    kind: str
    noise: str
    axes: Mapping[str, Mapping[str, int] | None]
    certified: bool
    reference: Reference | None
    questions: Questions | None = None
    tune: Fraction = Fraction(0)
    crowd: float | None = None
    density: bool = False

    @classmethod
    def of(cls, spec: ReleaseSpec, n: int, at_once: int) -> Settings:
        """Return the settings of a spec."""
        names, both = spec.domain.names, {key: spec.per_axis(key) for key in _ORDERS}
        asked = spec.mechanism.questions
        return cls(
            families=spec.families,
            charge=spec.charge,
            beta=spec.beta,
            n=n,
            at_once=at_once,
            unit_rows=spec.protection.unit.max_contributions,
            kind=spec.learner.kind,
            noise=spec.mechanism.noise,
            axes={
                key: None if values is None else dict(zip(names, values, strict=True))
                for key, values in both.items()
            },
            certified=spec.mechanism.objective == "certified",
            reference=spec.reference,
            questions=Questions.of(asked) if asked else None,
            tune=spec.tune,
            density=spec.combination.meaning({"kind": spec.learner.kind}) == "density",
        )

    @property
    def family(self) -> NoiseFamily:
        """Noise of vectors and lattice values."""
        return self.families[0]

    def per_axis(self, key: str, domain: Domain) -> tuple[int, ...] | None:
        """Return k or h for each axis of a domain; None where the plan is to choose."""
        values = self.axes[key]
        return None if values is None else tuple(values[name] for name in domain.names)


@_unreadable_refused()
def plan_measurement(
    measurement: Measurement,
    settings: Settings,
    strategy: Any,
    h: tuple[int, ...],
    family: NoiseFamily,
) -> tuple[PlannedMeasurement, Accumulator]:
    """Plan one measurement, made for n rows by `bind`, with strategy, order and noise given."""
    n, charge = settings.n, settings.charge
    if measurement.entries and family.by_function:
        family = LAPLACE  # what the paper says is of functions: a vector's moves are bounded
    fraction, measurement = measurement.fraction, measurement.for_lattice(strategy)
    exact, params = _counted(measurement, settings, strategy, family)
    accumulator = measurement.restore(strategy, n, params)
    promised = exact.of_each() if family.norm == math.inf else exact
    contract = _contract_of(promised, measurement.outputs, accumulator, n, fraction)
    law = family.calibrate(contract, charge)
    errors, unit = accumulator.errors, measurement.unit
    lattice_error = errors.kernel + errors.position
    released_error = errors.floats + math.ldexp(0.5, law.granularity_exponent)
    facts = (measurement, strategy, h, law, lattice_error, released_error)
    approximation, certificate, most_silenced = _certified(*facts, settings)
    planned = PlannedMeasurement.ready()(
        name=measurement.name,
        outputs=measurement.outputs,
        k=() if measurement.entries else strategy.lattice.k,
        h=h,
        maps=strategy.maps,
        counting=params,
        description=accumulator.description,
        sensitivity=ScaledSensitivity.of(exact, law, unit),
        noise=ScaledNoise.of(family, strategy.kind, law, unit),
        certificate=certificate,
        approximation=approximation,
        unit=unit,
        lattice_error=lattice_error,
        released_error=released_error,
        entries=measurement.entries,
    )
    if most_silenced:  # else it is left out
        planned = planned.model_copy(update={"most_silenced": most_silenced})
    released_component(measurement, planned)  # refuses what no reader takes
    return planned, accumulator


def with_kernels(
    planned: PlannedMeasurement, candidate: Measurement, settings: Settings
) -> PlannedMeasurement:
    """Return the plan of the same bins, with the kernels of one of their candidates."""
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    axes = zip(candidate.kernels, planned.k, maps, planned.h, strict=True)
    bins = tuple(axis_bins(kernel, k, one.cells, one.degree, h) for kernel, k, one, h in axes)
    strategy = BinnedStrategy(Lattice(planned.k), bins)
    errors = planned.lattice_error, planned.released_error
    approximation, certificate, most_silenced = _certified(
        candidate, strategy, planned.h, planned.noise.law, *errors, settings
    )
    function = candidate.function_sensitivity / settings.n * planned.unit
    return planned.model_copy(
        update={
            "maps": bins,
            "sensitivity": planned.sensitivity.model_copy(update={"function": function}),
            "certificate": certificate,
            "approximation": approximation,
            "most_silenced": most_silenced,
        }
    )


def _certified(
    measurement: Measurement,
    strategy: Any,
    h: tuple[int, ...],
    law: Noise,
    lattice_error: float,
    released_error: float,
    settings: Settings,
) -> tuple[FunctionClass | None, Certificate, float]:
    """Facts of the bias, certificate, and how far silencing noise may move the function."""
    beta, at_once = settings.beta, settings.at_once
    if measurement.entries:
        count, error = len(measurement.entries), lattice_error + released_error
        return None, vector_bound(law, count, measurement.features, error, beta, at_once), 0.0
    bias, unit = measurement.approximation, measurement.unit
    model = ErrorModel(bias, strategy, law, lattice_error, released_error, unit)
    least = _lower_bound(measurement, settings)
    stored = stored_class(bias.stored(strategy.lattice.k, h, strategy.axis_maps))
    sure = model.bound(h, beta, at_once, least)
    silent = settings.density and measurement.unsigned
    return stored, *(with_silence(sure, strategy) if silent else (sure, 0.0))


def public_rows(spec: ReleaseSpec, files: Sequence[FileFacts]) -> int:
    """Return the divisor of sums: the spec's normalizer, or the public number of rows.

    Raises SpecError where spec and footers disagree on that, or there are no rows, or too many.
    """
    counted = sum(file.rows for file in files)
    if spec.normalizer is not None:
        if counted > most_rows(spec.normalizer):
            raise SpecError(
                f"data.source: more than {most_rows(spec.normalizer)} rows are not available with "
                f'normalizer = "{spec.normalizer}". Write a larger one, or split the source.'
            )
        return spec.normalizer
    stated = spec.data.n
    if files and stated is not None and stated != counted:
        raise SpecError(
            f"data.n: the spec says {stated} rows and there are {counted}. "
            f"Write n = {counted}, or leave it out."
        )
    if not files and stated is None:
        raise SpecError(
            "data.n: is missing. Write n = 2000000, the public number of rows, which nothing else "
            "tells before they are read."
        )
    n = stated if stated is not None else counted
    if n == 0:
        raise SpecError("data.source: there are no rows. Write a source with at least one row.")
    if n.bit_length() > 45:
        raise SpecError(
            "data.source: more than 2^45 rows are not available in this version. Split the source."
        )
    return n


def choose(
    measurement: Measurement, settings: Settings
) -> tuple[Strategy | Entries, tuple[int, ...], NoiseFamily]:
    """Choose strategy, orders and noise: the spec's, or of the smallest predicted error."""
    family, noise = settings.family, settings.noise
    if measurement.entries:
        return Entries(len(measurement.entries)), (), family
    if measurement.linear:
        return *_corners(measurement, settings), family
    k, h = _given_k(measurement, settings), settings.per_axis("h", measurement.domain)
    if not any(released_kinds(one, measurement, settings) for one in settings.families):
        _refuse_bins(measurement, settings)
    if family is PAPER:
        h = h or (_PAPER_H,) * measurement.domain.dimensions
        k = k or _paper_k(measurement, settings, max(h))
    plain_only = noise == family.plain or not family.others
    if k is not None and h is not None and plain_only:
        return LatticeStrategy(Lattice(k)), h, family
    best: Candidate | None = None
    uncounted: SpecError | None = None
    for one in settings.families:
        problem = replace(problem_of(measurement, settings, one), k=k, h=h)
        kinds = [""] if plain_only else released_kinds(one, measurement, settings)
        candidate, refusal = _countable(kinds, problem, settings)
        if candidate and errs_less(candidate, best):
            best, family = candidate, one
        uncounted = uncounted or refusal
    if best is None and uncounted is not None:
        raise uncounted
    if best is None:
        raise SpecError(
            f'mechanism.noise: "{noise}" is not for what target.kind = "{settings.kind}" releases. '
            f'Write noise = "{family.plain}" or "auto"'
        )
    return best.strategy, best.h, family


def errs_less(candidate: Candidate, usual: Candidate | None) -> bool:
    """Return whether a later law's candidate errs less than an earlier one's, if there is one."""
    return usual is None or (1 + _WORTH) * candidate.error < usual.error


def _countable(
    kinds: Sequence[str], problem: Problem, settings: Settings
) -> tuple[Candidate | None, SpecError | None]:
    """Return the least predicted error of what can be counted, and why less of it cannot.

    Bins always can. Of lattices that are too fine, coarser ones are tried, where k is open.
    """
    best, refusal = chosen(kinds, problem), None
    coarsest = Lattice((1,) * problem.measurement.domain.dimensions)
    while best is not None and (why := _uncounted(best.strategy, problem, settings)):
        refusal = refusal or why
        finest = problem.cells(best.strategy.lattice) - 1
        coarser = problem.k is None and problem.cells(coarsest) <= finest
        best = chosen(kinds, replace(problem, largest_lattice=finest)) if coarser else None
        if best is not None and problem.cells(best.strategy.lattice) > finest:
            best = None  # the coarsest that is worth a look
    return best, refusal


def _uncounted(strategy: Strategy, problem: Problem, settings: Settings) -> SpecError | None:
    """Return why a sum of kernels over records cannot be counted for a strategy, if it cannot."""
    measurement = problem.measurement
    if strategy.kind == "binned" or not measurement.kernels:
        return None
    try:
        _counted(measurement.for_lattice(strategy), settings, strategy, problem.family)
    except SpecError as error:
        return error
    return None


def _refuse_bins(measurement: Measurement, settings: Settings) -> None:
    """Name the key that needs the bins that a noise, or the paper's calibration, has not."""
    what, other = "shares and quantiles are told by bins", "leave out questions"
    if settings.tune:
        what, other = "a promise for these data is told by bins", 'write tune = "0"'
    if measurement.candidates:
        what, other = "bins choose a bandwidth", 'write numbers in place of bandwidth = "auto"'
    raise SpecError(
        f'mechanism.noise, mechanism.calibration: {what}, and "{settings.noise}" has none here. '
        f'Write noise = "auto" and calibration = "tight", or {other}'
    )


def _asked_of(measurement: Measurement, settings: Settings) -> Questions | None:
    """Questions that its bins are to answer about rows, where they count them on all axes."""
    return settings.questions if measurement.unsigned else None


def released_kinds(family: NoiseFamily, measurement: Measurement, settings: Settings) -> list[str]:
    """Return what may be released with a family: by "auto" bins, where there are any."""
    names = noise_names(family)
    named = [kind for kind, name in names.items() if settings.noise in ("auto", name)]
    counts = "binned" in named and measurement.binned  # lattice values err more: only by name
    needed = measurement.candidates or _asked_of(measurement, settings) or settings.tune
    return [kind for kind in named if kind == "binned" or not (counts or needed)]


def _as_counted(
    measurement: Measurement, ways: Mapping[str, tuple[Any, tuple[int, ...], NoiseFamily]]
) -> tuple[Any, tuple[int, ...], NoiseFamily]:
    """Give a ratio's numerator the bins of its denominator, so that both can be queried jointly.

    Either choice errs nearly as little, and noise and sensitivity are those of what is taken.
    """
    strategy, h, family = own = ways[measurement.name]
    counted, order, _ = ways.get(measurement.counted_in or "", own)
    alike = not measurement.entries and strategy.kind == counted.kind == "binned"
    return (counted, order, family) if alike else (strategy, h, family)


def _without_delta(
    measurements: Sequence[Measurement],
    settings: Settings,
    ways: Mapping[str, tuple[Any, tuple[int, ...], NoiseFamily]],
) -> tuple[str, ...]:
    """Note where noise that needs no delta errs less.

    It is not taken: an account that composes in zCDP charges some twenty times as much for it, and
    a plan does not know the account.
    """
    one, *others = measurements
    usual = one.kernels and not (one.candidates or settings.questions or settings.tune)
    usual = usual and settings.noise == "auto"
    if others or not usual or not settings.charge.delta:
        return ()
    strategy, h, family = ways[one.name]
    ours = best = problem_of(one, settings, family).candidate(strategy, h)
    pure = replace(settings, charge=Budget(settings.charge.epsilon))
    for noise in named("auto", STRATEGY_KINDS, with_delta=False):
        problem = replace(problem_of(one, pure, noise), h=settings.per_axis("h", one.domain))
        found, _ = _countable(released_kinds(noise, one, pure), problem, pure)
        if found is not None:
            candidate = problem.candidate(found.strategy, found.h)
            best = candidate if errs_less(candidate, best) else best
    if best is ours:
        return ()
    return (
        f"noise that needs no delta is predicted to err by {one.unit * best.expected:.3g}, this "
        f'plan by {one.unit * ours.expected:.3g}. Write delta = "0" in [budget], unless the '
        "account is in zCDP",
    )


def _corners(measurement: Measurement, settings: Settings) -> tuple[Strategy, tuple[int, ...]]:
    """Return the lattice of corners: a linear function is its values there."""
    domain = measurement.domain
    ones = (1,) * domain.dimensions
    if {settings.per_axis(key, domain) for key in _ORDERS} - {None, ones}:
        raise SpecError("mechanism.k, mechanism.h: a linear function needs 1. Leave them out.")
    if settings.noise not in ("auto", settings.family.plain):
        raise SpecError('mechanism.noise: is not for a linear function. Write noise = "auto"')
    return LatticeStrategy(Lattice(ones)), ones


def _refuse_choices(settings: Settings) -> None:
    """Refuse a chosen noise or calibration: numbers that are released as they are leave none."""
    plain = settings.noise in ("auto", settings.family.plain)
    if not plain or settings.family.by_function:
        raise SpecError(
            f'mechanism.noise, mechanism.calibration: "{settings.kind}" releases numbers as '
            'they are. Write noise = "auto" and calibration = "tight"'
        )


def problem_of(
    measurement: Measurement, settings: Settings, noise: NoiseFamily | None = None
) -> Problem:
    """Return the public facts that the choice of k, h and rank starts from."""
    family = noise or settings.family
    k = _given_k(measurement, settings)
    if k is not None:
        measurement = measurement.for_lattice(LatticeStrategy(Lattice(k)))
    many = measurement.domain.dimensions > 6
    largest = _LARGEST_OF_MANY_AXES if many else _LARGEST_AUTO_LATTICE
    return Problem(
        measurement=measurement,
        n=settings.n,
        family=family,
        noise_ratio=family.ratio(settings.charge.part(measurement.fraction)),
        k=k,
        h=settings.per_axis("h", measurement.domain),
        certified=settings.certified,
        reference=_reference(measurement, settings.reference),
        largest_k=_LARGEST_AUTO_K,
        largest_lattice=int(min(largest, measurement.largest_lattice)),
        questions=_asked_of(measurement, settings),
        crowd=settings.crowd,
    )


def _reference(measurement: Measurement, density: Reference | None) -> Reference | None:
    oblique = measurement.oblique
    if density is None or oblique is None:
        return density

    def over_the_box(positions: FloatArray) -> FloatArray:
        points, inside = oblique.points(positions)
        values = np.zeros(len(points))
        values[inside] = density(points[inside])
        return values

    return over_the_box


def _given_k(measurement: Measurement, settings: Settings) -> tuple[int, ...] | None:
    k = settings.per_axis("k", measurement.domain)
    if k is None and measurement.one_lattice:
        raise SpecError(
            "mechanism.k: is missing, and what the target states of its sensitivity is for one "
            "lattice. Write k = 20"
        )
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version. Write a smaller k."
        )
    return k


def _paper_k(measurement: Measurement, settings: Settings, h: int) -> tuple[int, ...]:
    """Choice of k that proves Theorem 1, its constants set to one."""
    dimensions = measurement.domain.dimensions
    epsilon = float(settings.charge.part(measurement.fraction).epsilon)
    certain = math.log(1 / settings.beta)
    ratio = epsilon * settings.n / (measurement.function_sensitivity * certain)
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _lower_bound(measurement: Measurement, settings: Settings) -> LowerBound:
    """Lower bound for sums over records, which attain their sensitivity record by record."""
    if not measurement.additive:
        return LowerBound()
    n, charge, rows = settings.n, settings.charge, settings.unit_rows
    function = measurement.function_sensitivity * measurement.unit / n
    known = measurement.unsigned and measurement.oblique is None
    kernels = measurement.kernels if known else ()
    epsilon, delta = float(charge.epsilon), float(charge.delta)
    return strongest_bound(function, epsilon, float(settings.beta), n, delta, rows, kernels)


# --- From what a record can do to the exact function to the noise that is planned for it

_SHARE = 0.01  # of the noise that the effective kernel may cost


def _counted(
    measurement: Measurement, settings: Settings, strategy: Strategy, family: NoiseFamily
) -> tuple[Sensitivity, dict[str, Any]]:
    """Return the sensitivities of the exact function, and how records become integers."""
    n = settings.n
    exact = _exact_sensitivity(measurement, strategy, n, family)
    allowed = 0.0
    if not measurement.entries:
        ratio = family.ratio(settings.charge.part(measurement.fraction))
        if family.norm == math.inf:  # over the root of the number of values, all of which move
            ratio /= math.sqrt(measurement.outputs * strategy.layout.size)
        allowed = tolerance(exact, strategy, n, ratio)
    return exact, measurement.params(strategy, n, allowed)


def _exact_sensitivity(
    measurement: Measurement, strategy: Any, n: int, family: NoiseFamily
) -> Sensitivity:
    function, norm = measurement.function_sensitivity, int(family.values_norm)
    if family.by_function:
        return Sensitivity.paper(n, function, measurement.outputs * strategy.lattice.size)
    bound = measurement.sensitivity(strategy, norm)
    exact = Sensitivity.over(n, function, bound.value, bound.derivation, norm)
    return replace(exact, sides=family.sides and bound.sides)


def tolerance(exact: Sensitivity, strategy: Any, n: int, ratio: float) -> float:
    """Return the kernel error allowed: 1 % of the sensitivity and of a lattice value's noise."""
    axes = (strategy.row_sums(axis) for axis in range(len(strategy.lattice.k)))
    rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
    bound = float(exact.bound)
    return _SHARE * min(bound * n / (2 * rows), bound * ratio)


def _contract_of(
    exact: Sensitivity, outputs: int, accumulator: Accumulator, n: int, fraction: Fraction
) -> Contract:
    """Contract with the noise: for effective kernels, computed in floats; n of the release."""
    found = accumulator.errors
    if exact.norm == math.inf:
        errors = 2 * found.kernel, found.floats
    else:
        norm = int(exact.norm) - 1
        errors = found.kernel_norms[norm], found.float_norms[norm]
    size = outputs * accumulator.strategy.layout.size
    return Contract.of(exact, n, *errors, found.value_bound, size=size, fraction=fraction)
