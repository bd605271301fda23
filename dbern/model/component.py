"""``Component``: one lattice, or one vector, and its noise law, for one or more arrays.

What is said of it is said here once: a plan holds the parts that do not need the learner's spec, a
synopsis's root holds the whole, which its writer and its readers take their facts from.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

from pydantic import Discriminator, Field, PlainSerializer, PlainValidator, Tag, model_validator

from dbern.bernstein.basis import INTERPOLATED, MOST_AXES, MOST_INTERPOLATED, MOST_K
from dbern.bernstein.oblique import Oblique
from dbern.certify.certificate import Certificate
from dbern.data.domain import MAX_NUMBER, MIN_NUMBER, FeatureShape
from dbern.model.function_classes import StoredClass
from dbern.model.strict import (
    ABSENT,
    Count,
    Granule,
    Name,
    NotNegative,
    OrdersOrLinear,
    Positive,
    PositiveDecimal,
    Steps,
    StrictModel,
    Text,
    checked,
    or_value_error,
    require,
)
from dbern.privacy.contract import Sensitivity
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import ALL_NOISE, FAMILIES, NoiseFamily, errors_of
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct import STRATEGY_KINDS, map_of, noise_families, noise_names
from dbern.reconstruct.axis_maps import AxisMap
from dbern.reconstruct.base import ArrayLayout, Lattice
from dbern.reconstruct.gram import MOST_POINTS

MOST_COEFFICIENTS = 1_000_000_000
"""Most values of one lattice, and of one vector."""
_OF_LATTICES = {"k", "h", "approximation", "oblique", "spectral"}


def _law_of(law: Any) -> NoiseLaw:
    """Return a law by its fields; others are left out."""
    if dataclasses.is_dataclass(law):
        return cast("NoiseLaw", law)
    require(isinstance(law, dict), "is no object")
    kind, ours = law.get("kind"), dict.fromkeys(family.law_kind for family in FAMILIES)
    known = isinstance(kind, str) and kind in ALL_NOISE
    require(known, f"kind is none of {', '.join(ours)}, and no installed package has it")
    family_law = or_value_error(ALL_NOISE.get, kind, "noise.law").law
    names = [field.name for field in dataclasses.fields(family_law)]
    for name in names:
        require(name in law, f"{name} is missing")
        require(name == "kind" or type(law[name]) is int, f"{name} is not an integer")
    restored: NoiseLaw = or_value_error(lambda: family_law(**{name: law[name] for name in names}))
    return restored


def _require_noise(name: str) -> None:
    """Refuse a name of noise that is neither ours nor of an installed package."""
    ours = dict.fromkeys(name for family in FAMILIES for name in noise_names(family).values())
    known = or_value_error(noise_families, name)
    require(known, f"is none of {', '.join(ours)}, and no installed package has it")


Law: TypeAlias = Annotated[NoiseLaw, PlainValidator(_law_of), PlainSerializer(dataclasses.asdict)]
"""The exact integer law of a component's noise."""


class ScaledNoise(StrictModel):
    """The noise in data units, and its exact integer law in granules of `granularity`."""

    kind: Annotated[str, checked(_require_noise)]
    scale: Positive
    granularity: Granule
    law: Law

    @classmethod
    def of(cls, family: NoiseFamily, strategy_kind: str, law: NoiseLaw, unit: float) -> Self:
        """Return that of values in some unit."""
        granularity = math.ldexp(1.0, law.granularity_exponent) * unit
        scale = law.scale * granularity
        kind = noise_names(family)[strategy_kind]
        return cls.ready()(kind=kind, scale=scale, granularity=granularity, law=law)

    @model_validator(mode="after")
    def _require_law(self) -> Self:
        laws = [family.law for family in noise_families(self.kind)]
        require(type(self.law) in laws, "law does not fit the kind")
        return self

    def require_unit(self, unit: float) -> None:
        """Refuse another granularity or scale than the law has of values in the unit."""
        granule = math.ldexp(1.0, self.law.granularity_exponent)
        computed = MIN_NUMBER <= granule <= MAX_NUMBER / 2**63
        require(computed, "noise: granularity_exponent is too small or too large")
        granularity = granule * unit
        same = math.isclose(self.granularity, granularity)
        require(same, "noise: granularity is not that of law and value_unit")
        scale = or_value_error(lambda: self.law.scale * granularity)
        require(math.isclose(self.scale, scale), "noise: scale is not that of law")

    @property
    def strategy_kind(self) -> str:
        """The kind of what carries the noise, of `STRATEGY_KINDS`; "" for what is stored."""
        kind = self.kind.partition("-")[0]
        return kind if kind in STRATEGY_KINDS else ""

    @property
    def covariance(self) -> NoiseCovariance:
        """The covariance of released values, in data units."""
        return errors_of(self.law).covariance_per_scale.scaled(self.scale)


class ScaledSensitivity(StrictModel):
    """Sensitivities in data units; `l1` or `l2`, whichever the noise is calibrated to.

    Both include every rounding between record and noise.
    """

    function: NotNegative
    l1: NotNegative | None = None
    l2: NotNegative | None = None
    derivation: tuple[Text, ...]

    @classmethod
    def of(cls, exact: Sensitivity, law: NoiseLaw, unit: float) -> Self:
        """Return that of values in some unit, with what rounding adds."""
        total = math.ldexp(law.sensitivity_in_granules, law.granularity_exponent)
        added = total / float(exact.bound) - 1
        return cls.ready()(
            function=float(exact.function) * unit,
            l1=total * unit if exact.norm == 1 else None,
            l2=total * unit if exact.norm == 2 else None,
            derivation=(
                f"Delta{exact.norm} <= {exact.derivation} = {float(exact.bound) * unit:.6g}",
                f"+ {added:.2%} for the effective kernel, float error and rounding to the grid",
            ),
        )


class StoredCertificate(StrictModel):
    """A certificate, and the sum of its parts, in data units."""

    approximation: NotNegative
    rounding: NotNegative
    noise: NotNegative
    beta: Annotated[float, Field(ge=1e-11, lt=1)]
    lower_bound: NotNegative
    lower_bound_kind: Text = ABSENT
    total: NotNegative

    @classmethod
    def of(cls, certificate: Certificate) -> Self:
        """Return what is stored of it."""
        return cls.ready()(**dataclasses.asdict(certificate), total=certificate.total)

    def restore(self) -> Certificate:
        """Return the certificate."""
        content = self.to_json()
        del content["total"]
        return Certificate(**content)

    @model_validator(mode="after")
    def _require_divisor(self) -> Self:
        require(self.total == 0 or self.total >= MIN_NUMBER, "total: is too small to divide by")
        return self


class NumericalErrors(StrictModel):
    """Bounds in unit-cube units: of a lattice value before release, of a released one but noise."""

    lattice: NotNegative
    released: NotNegative


class StoredOblique(StrictModel):
    """Coordinates that are no axes."""

    rows: tuple[tuple[float, ...], ...]
    low: tuple[float, ...]
    width: tuple[Positive, ...]

    @model_validator(mode="after")
    def _require_box(self) -> Self:
        axes = len(self.rows)
        require(all(len(row) == axes for row in self.rows), "rows are not square")
        oblique = self.restore()
        same = or_value_error(lambda: (oblique.low, oblique.width)) == (self.low, self.width)
        require(same, "low and width are not those of rows")
        return self

    def restore(self) -> Oblique:
        """Return the coordinates."""
        return Oblique(self.rows)


class StoredFeatures(StrictModel):
    """Linear functions whose weights a vector is."""

    axes: Count
    constant: NotNegative

    def restore(self) -> FeatureShape:
        """Return the columns and the constant."""
        return FeatureShape(self.axes, self.constant)


def _refuse_promise(_content: object) -> None:
    """Refuse a number that bounds what bins miss of these data, and is no part of a function."""
    require(False, "tells of the bins beside it, which this version does not read")


class _Arrays(StrictModel):
    arrays: Annotated[tuple[Name, ...], Field(min_length=1)]
    axes: tuple[Text, ...]
    share: PositiveDecimal
    value_unit: Positive
    promise: Annotated[Any, checked(_refuse_promise)] = ABSENT


class _Lattice(StrictModel):
    additive: bool = True
    oblique: StoredOblique = ABSENT
    counted_in: tuple[Name, ...] = ABSENT
    k: Steps
    h: OrdersOrLinear
    approximation: StoredClass
    spectral: Literal["lattice"] = ABSENT


class _Vector(StrictModel):
    entries: Annotated[tuple[Text, ...], Field(min_length=1)]
    features: StoredFeatures = ABSENT


class _Accuracy(StrictModel):
    noise: ScaledNoise
    sensitivity: ScaledSensitivity
    certificate: StoredCertificate
    errors: NumericalErrors


class LatticeComponent(_Accuracy, _Lattice, _Arrays):
    """One lattice and its noise law, for one or more arrays; keys in the order of FORMAT.md."""

    features: ClassVar[None] = None

    @model_validator(mode="after")
    def _require_lattice(self) -> Self:
        self.noise.require_unit(self.value_unit)
        axes, joint = len(self.axes), self.spectral is not None
        require(len(self.k) == len(self.h) == axes, "k and h need one entry for each of axes")
        require(axes <= MOST_AXES, f"axes: a lattice has at most {MOST_AXES}")
        require(
            self.interpolated or (INTERPOLATED not in self.h and max(self.k) <= MOST_K),
            f"k and h: polynomials have degrees up to {MOST_K} and orders from 1 on",
        )
        require(
            not self.interpolated or self.noise.strategy_kind == "binned",
            "h: only bins have functions that are linear between lattice values",
        )
        require(
            not self.interpolated or self.lattice.size <= MOST_INTERPOLATED,
            f"k: a function that is linear has at most {MOST_INTERPOLATED} lattice values",
        )
        require(
            self.lattice.size <= MOST_COEFFICIENTS, f"k: more than {MOST_COEFFICIENTS} coefficients"
        )
        square = self.oblique is None or len(self.oblique.rows) == axes
        require(square, "oblique: one row an axis")
        strategy_kind = self.noise.strategy_kind
        require(not joint or strategy_kind == "spectral", "spectral: the noise is of another kind")
        require(not joint or self.lattice.size <= MOST_POINTS, f"k: more than {MOST_POINTS} points")
        self.approximation.require_axes(axes)
        separable = self.approximation.separable or not strategy_kind
        fits = self.approximation.reproducing if joint else separable
        require(fits, "approximation: does not fit the noise")
        return self

    @property
    def interpolated(self) -> bool:
        """Whether its function is linear between lattice values, on all axes."""
        return set(self.h) == {INTERPOLATED}

    @property
    def lattice(self) -> Lattice:
        """Where coefficients are."""
        return Lattice(self.k)

    @property
    def axis_map(self) -> type[AxisMap] | None:
        """The map from released values to the lattice; None where these are lattice values."""
        joint = self.spectral is not None
        return map_of(self.noise.strategy_kind, self.spectral if joint else "")


class VectorComponent(_Accuracy, _Vector, _Arrays):
    """One vector and its noise law; keys in the order of FORMAT.md."""

    counted_in: ClassVar[None] = None
    oblique: ClassVar[None] = None
    axis_map: ClassVar[None] = None

    @model_validator(mode="after")
    def _require_vector(self) -> Self:
        self.noise.require_unit(self.value_unit)
        require(not self.axes, "a vector has no lattice")
        require(not self.noise.strategy_kind, "a vector has no coordinates")
        return self

    @property
    def lattice(self) -> ArrayLayout:
        """The entries."""
        return ArrayLayout((len(self.entries),))


def _kind_of(content: Any) -> str | None:
    """Tell vectors by their entries; what has keys of both is neither."""
    if not isinstance(content, dict):
        return "vector" if isinstance(content, VectorComponent) else "lattice"
    if "entries" in content:
        return None if _OF_LATTICES & set(content) else "vector"
    return "lattice"


Component: TypeAlias = Annotated[
    Annotated[LatticeComponent, Tag("lattice")] | Annotated[VectorComponent, Tag("vector")],
    Discriminator(
        _kind_of,
        custom_error_type="component",
        custom_error_message="a vector has no lattice",
    ),
]
"""A part of a release: functions of one lattice, or numbers that are none."""
