"""Plan a measurement by its design: how it is counted, its noise and its certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from dbern.certify.certificate import Certificate, ErrorModel, vector_bound, with_shrinkage
from dbern.certify.lower_bounds import GroupPrivacy, LowerBound, strongest_bound
from dbern.measure.accumulator import Accumulator
from dbern.measure.statistic import Measurement
from dbern.model.component import ScaledNoise, ScaledSensitivity
from dbern.model.function_classes import FunctionClass, stored_class
from dbern.planning.metadata_limits import refuse_unreadable
from dbern.planning.noise_scale import noise_law, sensitivity_and_params
from dbern.planning.plans import PlannedMeasurement, released_component
from dbern.planning.rows import BoundSpec
from dbern.privacy.families import LAPLACE, NoiseFamily, family_of
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.base import AnyStrategy, Lattice, Strategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy, axis_bins


@dataclass(frozen=True)
class Design:
    """Strategy, order on each axis and noise by which a measurement is released."""

    strategy: AnyStrategy
    h: tuple[int, ...]
    family: NoiseFamily


@dataclass(frozen=True)
class PlannedPart:
    """A measurement, bound to the rows, its design, what is planned of it, and what counts it."""

    measurement: Measurement
    design: Design
    planned: PlannedMeasurement
    accumulator: Accumulator


@refuse_unreadable()
def plan_measurement(measurement: Measurement, design: Design, bound: BoundSpec) -> PlannedPart:
    """Plan a measurement that is bound to the rows."""
    n, strategy, h, family = bound.n, design.strategy, design.h, design.family
    if measurement.entries and family.by_function:
        family = LAPLACE  # what the paper says is of functions: a vector's moves are bounded
    exact, params = sensitivity_and_params(measurement, strategy, family, bound)
    accumulator = measurement.from_params(strategy, n, params)
    law = noise_law(exact, measurement, accumulator, family, bound)
    errors, unit = accumulator.errors, measurement.unit
    lattice_error = errors.kernel + errors.position
    released_error = errors.floats + math.ldexp(0.5, law.granularity_exponent)
    approximation, certificate, max_shrunk_distance = _certified(
        measurement, design, law, (lattice_error, released_error), bound
    )
    planned = PlannedMeasurement.ready()(
        name=measurement.name,
        outputs=measurement.outputs,
        k=strategy.lattice.k if isinstance(strategy, Strategy) else (),
        h=h,
        maps=strategy.maps,
        counting=params,
        description=accumulator.description,
        sensitivity=ScaledSensitivity.of(exact.repeated(*bound.spec.repeats), law, unit),
        noise=ScaledNoise.of(family, strategy.kind, law, unit),
        certificate=certificate,
        approximation=approximation,
        unit=unit,
        lattice_error=lattice_error,
        released_error=released_error,
        entries=measurement.entries,
    )
    if max_shrunk_distance:  # else it is left out
        planned = planned.model_copy(update={"most_silenced": max_shrunk_distance})
    released_component(measurement, planned)  # refuses what no reader takes
    return PlannedPart(measurement, design, planned, accumulator)


def with_kernels(
    planned: PlannedMeasurement, candidate: Measurement, bound: BoundSpec
) -> PlannedMeasurement:
    """Return the plan of the same bins, with the kernels of one of their candidates."""
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    axes = zip(candidate.kernels, planned.k, maps, planned.h, strict=True)
    bins = tuple(
        axis_bins(kernel, k, axis.cells, axis.degree, order).in_levels(axis.times, axis.parts)
        for kernel, k, axis, order in axes
    )
    design = Design(
        BinnedStrategy(Lattice(planned.k), bins), planned.h, family_of(planned.noise.law)
    )
    errors = planned.lattice_error, planned.released_error
    approximation, certificate, max_shrunk_distance = _certified(
        candidate, design, planned.noise.law, errors, bound
    )
    function = candidate.function_sensitivity / bound.n * planned.unit
    return planned.model_copy(
        update={
            "maps": bins,
            "sensitivity": planned.sensitivity.model_copy(update={"function": function}),
            "certificate": certificate,
            "approximation": approximation,
            "most_silenced": max_shrunk_distance,
        }
    )


def _certified(
    measurement: Measurement,
    design: Design,
    law: NoiseLaw,
    errors: tuple[float, float],
    bound: BoundSpec,
) -> tuple[FunctionClass | None, Certificate, float]:
    """Bound the error of a release: its class, certificate, and how far shrinking may move it.

    `errors` are those of a lattice value before release, and of a released one but for its noise.
    """
    beta, num_outputs, strategy = bound.spec.beta, bound.num_outputs, design.strategy
    if not isinstance(strategy, Strategy):
        features, count = measurement.features, len(measurement.entries)
        return None, vector_bound(law, count, features, sum(errors), beta, num_outputs), 0.0
    bias = measurement.approximation
    stored = stored_class(bias.stored(strategy.lattice.k, design.h, strategy.axis_maps))
    model = ErrorModel(bias, strategy, law, *errors, measurement.unit)
    certificate = model.bound(design.h, beta, num_outputs, _lower_bound(measurement, bound))
    meaning = bound.spec.combination.meaning({"kind": bound.spec.learner.kind})
    if meaning != "density" or not measurement.unsigned:
        return stored, certificate, 0.0
    return stored, *with_shrinkage(certificate, strategy)


def _lower_bound(measurement: Measurement, bound: BoundSpec) -> LowerBound:
    """Bound from below what sums over records err by, which attain their sensitivity."""
    if not measurement.additive:
        return LowerBound()
    spec, charge, n = bound.spec, bound.charge, bound.n
    function = measurement.function_sensitivity * measurement.unit / n
    plain = measurement.unsigned and measurement.oblique is None
    kernels, rows = measurement.kernels if plain else (), spec.protection.unit.max_contributions
    privacy = GroupPrivacy(float(charge.epsilon), float(spec.beta), n, float(charge.delta), rows)
    return strongest_bound(function, privacy, kernels)
