"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dbern.certify.certificate import Certificate, combine_certificates
from dbern.certify.lower_bounds import LowerBound
from dbern.combination.base import Combination
from dbern.data.footers import Footer, read_footers
from dbern.data.frames import Frame, frame_of
from dbern.data.sources import discover
from dbern.errors import SpecError, withhold_texts
from dbern.measure.counters import Counters
from dbern.measure.statistic import Statistic
from dbern.model.component import StoredCertificate
from dbern.planning.choice import best_design
from dbern.planning.component_plan import (
    Design,
    PlannedComponent,
    plan_component,
    refuse_long_metadata,
    refuse_unreadable,
)
from dbern.planning.cost import cost
from dbern.planning.forecast import forecast_errors, notes_of
from dbern.planning.release_plan import ReleasePlan, plan_title
from dbern.planning.resolved import ResolvedSpec, public_rows
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.contract import require_one_charge
from dbern.system import is_url, one_thread


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


def footers(
    spec: ReleaseSpec, frame: Frame | None = None, paths: Sequence[str] | None = None
) -> tuple[Footer, ...]:
    """Read the footers of the spec's files, or of these paths, their columns checked.

    Of a frame they are those of its spool.
    """
    if frame is not None:
        return frame.footers if spec.normalizer is None else ()
    if paths is None:
        paths = [path for source in spec.sources for path in discover(source)]
    return read_footers(paths, spec.columns)


def plan_files(spec: ReleaseSpec, files: Sequence[Footer]) -> ReleasePlan:
    """Plan a release of files whose footers are known (none: ``data.n`` alone)."""
    with one_thread():  # matrices are small: threads that wait for them take the cores
        return _planned(ResolvedSpec.of(spec, public_rows(spec, files)), files)


def _planned(resolved: ResolvedSpec, files: Sequence[Footer]) -> ReleasePlan:
    spec, n = resolved.spec, resolved.n
    _refuse_choices(resolved)
    designs: dict[str, Design] = {}
    for_window = resolved.for_window
    for statistic in for_window.statistics:
        designs[statistic.name] = best_design(statistic, for_window)
    parts = [
        plan_component(statistic, designs[statistic.name], resolved)
        for statistic in resolved.statistics
    ]
    components = tuple(part.planned for part in parts)
    refuse_long_metadata(spec, components)
    certificate = whole_certificate(spec.combination, components)
    with refuse_unreadable():
        StoredCertificate.of(certificate)
    accumulators, unit = [part.accumulator for part in parts], spec.protection.unit
    counters = Counters.of(accumulators, spec.records, unit, n, admits=spec.enforces_nights)
    return ReleasePlan(
        name=spec.release.name,
        dataset=spec.budget.dataset,
        charge=resolved.charge,
        n=n,
        protection=spec.protection,
        calibration="paper" if spec.families[0].by_function else "tight",
        components=components,
        certificate=certificate,
        cost=cost(counters, n, _public_files(spec, files), remote=is_url(spec.data.source or "")),
        notes=tuple(notes_of(parts, resolved)),
        outlook=forecast_errors(parts, resolved),
        title=plan_title(spec),
    )


def _refuse_choices(resolved: ResolvedSpec) -> None:
    """Refuse a charge that is not one, and choices that what is released leaves no room for."""
    spec, statistics = resolved.spec, resolved.statistics
    kind, noise, usual = spec.learner.kind, spec.mechanism.noise, spec.families[0]
    # A negative one would hide a fraction.
    if any(statistic.objective_fraction < 0 for statistic in statistics):
        raise SpecError(f'target.kind: "{kind}" spends less than 0. Write objective_fraction >= 0')
    fractions = [
        (
            statistic.name,
            statistic.outputs,
            statistic.output_fraction + statistic.objective_fraction,
        )
        for statistic in statistics
    ]
    require_one_charge(kind, fractions)  # for n rows it may be another statistic
    if spec.combination.arrays_of_rows > 1 and len(statistics) > 1:
        raise SpecError(
            f'target.kind: "{kind}" takes a {spec.combination.kind} of several statistics, whose '
            "noise differs. In the learner, write one with all of its arrays as outputs"
        )
    if resolved.questions and not counts_rows(spec, statistics):
        raise SpecError(
            f'mechanism.questions: "{kind}" counts no rows here. Leave it out, or '
            'write kind = "kernel-density", with a bandwidth in place of a covariance'
        )
    numbers_alone = all(statistic.entries for statistic in statistics)
    if numbers_alone and (noise not in ("auto", usual.lattice_name) or usual.by_function):
        raise SpecError(
            f'mechanism.noise, mechanism.calibration: "{kind}" releases numbers as '
            'they are. Write noise = "auto" and calibration = "tight"'
        )


def counts_rows(spec: ReleaseSpec, statistics: Sequence[Statistic]) -> bool:
    """Return whether bins of a release may count rows in boxes, so that questions can be asked."""
    counting = any(
        statistic.unsigned and statistic.oblique is None
        for statistic in statistics
        if statistic.domain.names == spec.domain.names
    )
    return counting and spec.combination.counts_rows


def whole_certificate(
    combination: Combination, components: Sequence[PlannedComponent]
) -> Certificate:
    """Return the certificate of the function that planned statistics make."""
    errors = [planned.certificate for planned in components for _ in range(planned.outputs)]
    first, alone = components[0].certificate, len(components) == 1
    lower_bound = LowerBound(first.lower_bound, first.lower_bound_kind) if alone else LowerBound()
    return combine_certificates(combination, errors, lower_bound)


def _public_files(spec: ReleaseSpec, files: Sequence[Footer]) -> Sequence[Footer]:
    """Public facts of the files: where the number of rows is private, their count alone."""
    if spec.protection.private_rows:
        return [Footer(file.path, 0, ()) for file in files]
    return files
