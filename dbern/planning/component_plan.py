"""Plan a component: how a statistic is counted, its noise and its certificate.

Names or numbers that no reader takes are refused here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import ConfigDict, PlainSerializer, PlainValidator, ValidationError

from dbern.certify.certificate import Certificate, ErrorModel, vector_bound, with_shrinkage
from dbern.certify.lower_bounds import GroupPrivacy, LowerBound, strongest_bound
from dbern.data.domain import OTHER_UNITS
from dbern.data.storage import MOST_METADATA
from dbern.errors import SpecError
from dbern.measure.accumulator import Accumulator
from dbern.measure.statistic import Statistic
from dbern.model.component import (
    Component,
    LatticeComponent,
    NumericalErrors,
    ScaledNoise,
    ScaledSensitivity,
    StoredCertificate,
    VectorComponent,
)
from dbern.model.function_classes import StoredClass, read_class, stored_class
from dbern.model.strict import StrictModel
from dbern.planning.noise_scale import calibrate_noise, sensitivity_and_params
from dbern.planning.resolved import ResolvedSpec
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import decimal_text
from dbern.privacy.contract import array_names
from dbern.privacy.families import LAPLACE, NoiseFamily, family_of
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct import map_from_dict, map_to_dict, strategy_of
from dbern.reconstruct.axis_maps import AxisMap
from dbern.reconstruct.base import AnyStrategy, ArrayLayout, Lattice, Strategy, VectorStrategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy, axis_bins

_OBJECTS_OF_ARRAY, _OBJECTS_OF_AXIS = 6, 6  # groups, metadata and matrices, at most
_BYTES_OF_OBJECT, _BYTES_OF_TEXT = 200, 16  # in a manifest; beside a text in a list
_NAMES = ("arrays", "axes", "entries", "counted_in")  # keys of a component that hold texts


def _map_of(content: Any) -> AxisMap:
    return content if isinstance(content, AxisMap) else map_from_dict(content)


def _class_of(content: Any) -> StoredClass | None:
    if content is None or isinstance(content, StrictModel):
        return cast("StoredClass | None", content)
    return None if content == {} else read_class(content)


def _certificate_of(content: Any) -> Certificate:
    if isinstance(content, Certificate):
        return content
    return StoredCertificate.from_json(content).restore()


class _PlannedArrays(StrictModel):
    """Arrays of a component and how they are released; of a vector k, h and maps are empty."""

    model_config = ConfigDict(extra="forbid")

    name: str
    outputs: int
    k: tuple[int, ...]
    h: tuple[int, ...]
    maps: tuple[Annotated[AxisMap, PlainValidator(_map_of), PlainSerializer(map_to_dict)], ...]
    entries: tuple[str, ...]

    @property
    def lattice(self) -> Lattice | ArrayLayout:
        """The lattice of coefficients, or the entries."""
        return self.strategy.lattice

    @property
    def strategy(self) -> Strategy | VectorStrategy:
        """Released form of the lattice values, or the entries."""
        if self.entries:
            return VectorStrategy(len(self.entries))
        return strategy_of(Lattice(self.k), self.maps)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the released arrays, in the order of the outputs."""
        return array_names(self.name, self.outputs)


class _PlannedErrors(StrictModel):
    """Certificate of a component, and the bounds that it is made of."""

    model_config = ConfigDict(extra="forbid")

    certificate: Annotated[
        Certificate,
        PlainValidator(_certificate_of),
        PlainSerializer(lambda certificate: StoredCertificate.of(certificate).to_json()),
    ]
    approximation: Annotated[
        StoredClass | None,
        PlainValidator(_class_of),
        PlainSerializer(lambda stored: stored.to_json() if stored else {}),
    ]
    lattice_error: float
    released_error: float
    most_silenced: float = 0.0

    @property
    def errors(self) -> NumericalErrors:
        """Bounds of numerical errors, in unit-cube units."""
        return NumericalErrors(lattice=self.lattice_error, released=self.released_error)


class PlannedComponent(_PlannedErrors, _PlannedArrays):
    """Plan of one component, as it is stored.

    `outputs` counts the released arrays of one lattice, which one record moves together. `counting`
    is how records become integers, as the accumulator gave it, and `description` the same in words.
    `unit` converts unit-cube values to data units. `lattice_error` and `released_error` bound, in
    unit-cube units, the error of a lattice value before release, and of a released one but for its
    noise. `entries` name the numbers of a vector. `most_silenced`, in data units, bounds how far
    shrinking bins may move the function: it is in the certificate's noise.
    """

    counting: dict[str, Any]
    description: str
    sensitivity: ScaledSensitivity
    noise: ScaledNoise
    unit: float


def released_component(statistic: Statistic, planned: PlannedComponent) -> Component:
    """Return the component that readers of the release see."""
    content: dict[str, Any] = {
        "arrays": planned.arrays,
        "share": decimal_text(statistic.output_fraction),
        "value_unit": planned.unit,
        "noise": planned.noise,
        "sensitivity": planned.sensitivity,
        "certificate": StoredCertificate.of(planned.certificate),
        "errors": planned.errors,
    }
    if planned.entries:
        if statistic.features is not None:
            content["features"] = statistic.features._asdict()
        content |= {"axes": (), "entries": planned.entries}
        return VectorComponent.ready().model_validate(content)
    if statistic.oblique is not None:
        oblique = statistic.oblique
        content["oblique"] = {"rows": oblique.rows, "low": oblique.low, "width": oblique.width}
    if statistic.counted_in is not None:
        content["counted_in"] = array_names(statistic.counted_in, statistic.outputs)
    if any(axis_map.of == "lattice" for axis_map in planned.maps):
        content["spectral"] = "lattice"
    content |= {"axes": statistic.domain.names, "additive": statistic.additive}
    content |= {"k": planned.k, "h": planned.h, "approximation": planned.approximation}
    return LatticeComponent.ready().model_validate(content)


@contextmanager
def refuse_unreadable() -> Iterator[None]:
    """Refuse numbers and names of a component or a certificate that no reader takes."""
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


def refuse_long_metadata(spec: ReleaseSpec, components: Sequence[PlannedComponent]) -> None:
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
        for values in (
            spec.combination.classes,
            *(axis.categories for axis in spec.domain.categorical),
        )
        for value in values
    )
    if max(objects * _BYTES_OF_OBJECT, size) > MOST_METADATA:
        raise SpecError(
            f"target: a release of so many classes, groups or values would have {objects} objects "
            f"and names of {size >> 10} KiB, more than a reader takes. List fewer of them, or "
            "release them by several specs"
        )


@dataclass(frozen=True)
class Design:
    """Strategy, order on each axis and noise by which a statistic is released."""

    strategy: AnyStrategy
    h: tuple[int, ...]
    family: NoiseFamily


@dataclass(frozen=True)
class PlannedPart:
    """A statistic that is bound to the rows, with its design, plan and accumulator."""

    statistic: Statistic
    design: Design
    planned: PlannedComponent
    accumulator: Accumulator


@refuse_unreadable()
def plan_component(statistic: Statistic, design: Design, resolved: ResolvedSpec) -> PlannedPart:
    """Plan a statistic that is bound to the rows."""
    n, strategy, h, family = resolved.n, design.strategy, design.h, design.family
    if statistic.entries and family.by_function:
        family = LAPLACE  # the paper's calibration is for functions: a vector's moves are bounded
    exact, params = sensitivity_and_params(statistic, strategy, family, resolved)
    accumulator = statistic.from_params(strategy, n, params)
    law = calibrate_noise(exact, statistic, accumulator, family, resolved)
    errors, unit = accumulator.errors, statistic.unit
    numerical = NumericalErrors(
        lattice=errors.kernel + errors.position,
        released=errors.floats + math.ldexp(0.5, law.granularity_exponent),
    )
    approximation, certificate, max_shrunk_distance = _certify(
        statistic, design, law, numerical, resolved
    )
    planned = PlannedComponent.ready()(
        name=statistic.name,
        outputs=statistic.outputs,
        k=strategy.lattice.k if isinstance(strategy, Strategy) else (),
        h=h,
        maps=strategy.maps,
        counting=params,
        description=accumulator.description,
        sensitivity=ScaledSensitivity.of(exact.repeated(*resolved.spec.repeats), law, unit),
        noise=ScaledNoise.of(family, strategy.kind, law, unit),
        certificate=certificate,
        approximation=approximation,
        unit=unit,
        lattice_error=numerical.lattice,
        released_error=numerical.released,
        entries=statistic.entries,
    )
    if max_shrunk_distance:  # else it is left out
        planned = planned.model_copy(update={"most_silenced": max_shrunk_distance})
    released_component(statistic, planned)  # refuses what no reader takes
    return PlannedPart(statistic, design, planned, accumulator)


def with_kernels(
    planned: PlannedComponent, candidate: Statistic, resolved: ResolvedSpec
) -> PlannedComponent:
    """Return the plan of the same bins, with the kernels of one of their candidates."""
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    axes = zip(candidate.kernels, planned.k, maps, planned.h, strict=True)
    bins = tuple(
        axis_bins(kernel, k, axis.cells, axis.degree, order).on_two_scales(axis.times, axis.parts)
        for kernel, k, axis, order in axes
    )
    design = Design(
        BinnedStrategy(Lattice(planned.k), bins), planned.h, family_of(planned.noise.law)
    )
    approximation, certificate, max_shrunk_distance = _certify(
        candidate, design, planned.noise.law, planned.errors, resolved
    )
    function = candidate.function_sensitivity / resolved.n * planned.unit
    return planned.model_copy(
        update={
            "maps": bins,
            "sensitivity": planned.sensitivity.model_copy(update={"function": function}),
            "certificate": certificate,
            "approximation": approximation,
            "most_silenced": max_shrunk_distance,
        }
    )


def _certify(
    statistic: Statistic,
    design: Design,
    law: NoiseLaw,
    errors: NumericalErrors,
    resolved: ResolvedSpec,
) -> tuple[StoredClass | None, Certificate, float]:
    """Bound the error of a release: its class, certificate, and how far shrinking may move it."""
    beta, num_outputs, strategy = resolved.spec.beta, resolved.num_outputs, design.strategy
    if not isinstance(strategy, Strategy):
        features, count = statistic.features, len(statistic.entries)
        error = errors.lattice + errors.released
        return None, vector_bound(law, count, features, error, beta, num_outputs), 0.0
    bias = statistic.function_class
    stored = stored_class(bias.stored(strategy.lattice.k, design.h, strategy.axis_maps))
    model = ErrorModel(bias, strategy, law, errors.lattice, errors.released, statistic.unit)
    certificate = model.certificate(design.h, beta, num_outputs, _lower_bound(statistic, resolved))
    meaning = resolved.spec.combination.meaning({"kind": resolved.spec.learner.kind})
    if meaning != "density" or not statistic.unsigned:
        return stored, certificate, 0.0
    return stored, *with_shrinkage(certificate, strategy)


def _lower_bound(statistic: Statistic, resolved: ResolvedSpec) -> LowerBound:
    """Bound from below the error of sums over records, which attain their sensitivity."""
    if not statistic.additive or any(kernel.edges == "periodic" for kernel in statistic.kernels):
        return LowerBound()
    spec, charge, n = resolved.spec, resolved.charge, resolved.n
    function = statistic.function_sensitivity * statistic.unit / n
    plain = statistic.unsigned and statistic.oblique is None
    kernels, rows = statistic.kernels if plain else (), spec.protection.unit.max_contributions
    privacy = GroupPrivacy(float(charge.epsilon), float(spec.beta), n, float(charge.delta), rows)
    return strongest_bound(function, privacy, kernels)
