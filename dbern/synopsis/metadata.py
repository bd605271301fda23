"""What the metadata of a synopsis may say, checked by one strict model before it is used.

A synopsis may come from a stranger, so nothing is used before this model has looked at it: types,
ranges, finite numbers, closed lists, and whether the parts fit each other. Keys that are not known
are left out, as FORMAT.md promises to later minor versions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from dbern.bernstein.basis import MOST_H, MOST_K
from dbern.bernstein.kernels import KERNELS
from dbern.bernstein.oblique import Oblique
from dbern.combination import KINDS
from dbern.data.domain import Axis
from dbern.errors import DbernError, IntegrityError, printable
from dbern.privacy.budget import exact
from dbern.privacy.calibration import EXPONENTS
from dbern.privacy.laplace import MAX_SCALE
from dbern.strategies.bias import GramBall, approximation_of
from dbern.strategies.gram import MOST_POINTS

# --- The parts of the attributes of a synopsis's root


FORMAT, FORMAT_VERSION = "dbern-synopsis", 1

_NOISES = (
    *("laplace", "spectral-laplace", "binned-laplace", "laplace-advanced"),
    *("discrete-gaussian", "spectral-gaussian", "binned-gaussian"),
)
_LARGEST = 1e300  # of a number that is computed with: sums of a few stay finite
_LEAST_FLOOR = 1e-100  # of what is divided by, squared
_MOST_ROWS = 10**15
_PLAIN = re.compile(r"(?!__|\.)[^/\\\x00-\x1f]+")  # one plain part of a path in a store
ABSENT: Any = None  # a key that may be left out; where it is written it is no null

Model = TypeVar("Model", bound=BaseModel)


class Facts(BaseModel):
    """Strict: a type is never guessed. Keys that are not known are left out."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)

    def states(self, key: str) -> bool:
        """Whether a key that may be left out is there."""
        return key in self.model_fields_set


def checked(model: type[Model], text: bytes, where: str, name: str) -> Model:
    """What an object's JSON says, by its model.

    Parameters
    ----------
    where, name : str
        The store and the object, for errors.

    Raises
    ------
    IntegrityError
        Naming the object and the key.
    """
    try:
        found = model.model_validate_json(text)
        json.loads(text, parse_constant=_refused, parse_float=_finite)  # of every other key, too
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise damaged(where, name, key, problem["msg"]) from None
    except (ValueError, RecursionError) as error:
        raise damaged(where, name, "", str(error)) from None
    return found


def damaged(where: str, name: str, key: str, why: str) -> IntegrityError:
    """The error for an object that says what no release says."""
    key = f"{printable(key)}: " if key else ""
    return IntegrityError(
        f"{where}: {name} is damaged: {key}{why}; copy the synopsis again, or ask whoever "
        "published it"
    )


def _refused(constant: str) -> float:
    raise ValueError(f"holds {constant}, which is no finite number")


def _finite(text: str) -> float:
    return found if math.isfinite(found := float(text)) else _refused("an overflow")


def made(make: Callable[..., Any], *given: Any) -> Any:
    """What the rest of the package makes of it; its refusals are those of the model."""
    try:
        return make(*given)
    except (DbernError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ValueError(str(error).partition(";")[0]) from None


def require(holds: object, why: str) -> None:
    """Refuse within a model what does not hold."""
    if not holds:
        raise ValueError(why)


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Refuse what is not listed."""

    def listed(name: str) -> str:
        require(name in names, f"is none of {', '.join(names)}")
        return name

    return listed


def _plain(name: str) -> str:
    require(_PLAIN.fullmatch(name), "is no plain name")
    return name


def number(text: str) -> float:
    """An exact decimal or fraction as a float.

    Raises
    ------
    ValueError
        For anything else, or what no float holds.
    """
    return float(made(lambda: float(exact(text, "value"))))


def _number(text: str) -> str:
    number(text)
    return text


def _above_zero(text: str) -> str:
    require(number(text) > 0, "must be above 0")
    return text


Text = Annotated[str, StringConstraints(max_length=10_000)]
Name = Annotated[str, StringConstraints(max_length=255), AfterValidator(_plain)]
Exact = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_number)]
Share = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_above_zero)]
_Category = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | Text
Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
NotNegative = Annotated[float, Field(ge=0, le=_LARGEST)]
Granule = Annotated[float, Field(ge=1e-305, le=1e150)]  # of which values are up to 2^63
Count = Annotated[int, Field(ge=1, le=_MOST_ROWS)]
Lattice = Annotated[list[Annotated[int, Field(ge=1, le=MOST_K)]], Field(min_length=1)]
Orders = Annotated[list[Annotated[int, Field(ge=1, le=MOST_H)]], Field(min_length=1)]


class _Axis(Facts):
    name: Name
    low: float
    high: float
    unit: Literal["days since 1970-01-01", "seconds since 1970-01-01"] = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _Axis:
        axis = made(Axis.from_dict, self.model_dump(exclude_unset=True))
        if axis.unit is not None:
            for end in (axis.low, axis.high):
                made(axis.unit.text, end)
        return self


class _Filter(Facts):
    column: Text
    values: list[_Category]


class DomainFacts(Facts):
    """The box of the bounds, and which rows count."""

    axes: Annotated[list[_Axis], Field(min_length=1)]
    outside: Literal["drop", "clamp"]
    volume: Positive | None
    filter: _Filter = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> DomainFacts:
        require(len({axis.name for axis in self.axes}) == len(self.axes), "an axis is there twice")
        return self


class TargetFacts(BaseModel):
    """The learner's parameters, which are shown and never computed with, and the rows."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)
    kind: Text
    n: Count = ABSENT
    normalizer: Count = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> TargetFacts:
        require((self.n is None) != (self.normalizer is None), "needs n or normalizer")
        return self


class CombineFacts(Facts):
    """How the arrays make the function."""

    kind: Annotated[str, AfterValidator(one_of(KINDS))]
    classes: list[_Category] = ABSENT
    low: float = ABSENT
    high: float = ABSENT
    peaks: list[Positive] = ABSENT
    floors: list[NotNegative] = ABSENT
    constant: NotNegative = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> CombineFacts:
        ranged = self.kind in ("ratio", "response")
        require((self.low is None, self.high is None) == (not ranged,) * 2, "low and high")
        require(not ranged or self.low < self.high, "low must be below high")
        count, several = len(set(self.classes or ())), self.kind in ("stack", "one-vs-rest")
        allowed = count == 0 if ranged else count >= 1 if several else count in (0, 2)
        allowed = count >= 2 if self.bayes else allowed
        divided = self.kind == "gaussian-naive-bayes" and min(self.floors or [1]) < _LEAST_FLOOR
        require(not divided, "floors: must be above 0")
        require(allowed and count == len(self.classes or ()), "classes do not fit the kind")
        return self

    @property
    def bayes(self) -> bool:
        """Whether it makes scores of classes."""
        return self.kind.endswith("naive-bayes")


class RandomFacts(Facts):
    """Where the guarantee is random differential privacy only."""

    guarantee: Text = ABSENT
    gamma: Share
    distribution: Text
    samples: Count
    order: Count
    seed: Annotated[int, Field(ge=0)]


class CertificateFacts(Facts):
    """A bound on the error."""

    approximation: NotNegative
    rounding: NotNegative
    noise: NotNegative
    total: NotNegative
    beta: Annotated[float, Field(gt=0, lt=1)]
    lower_bound: NotNegative
    lower_bound_kind: Text = ABSENT


class _Laplace(Facts):
    kind: Literal["laplace"]
    scale: Annotated[int, Field(ge=1, le=MAX_SCALE)]
    granularity_exponent: Annotated[int, Field(ge=EXPONENTS.start, lt=EXPONENTS.stop)]
    l1_sensitivity_granules: Annotated[int, Field(ge=0)]


class _Gaussian(Facts):
    kind: Literal["discrete-gaussian"]
    sigma: Annotated[int, Field(ge=1, le=MAX_SCALE)]
    granularity_exponent: Annotated[int, Field(ge=EXPONENTS.start, lt=EXPONENTS.stop)]
    l2_sensitivity_granules_squared: Annotated[int, Field(ge=0)]


class NoiseFacts(Facts):
    """What was added, and its exact law."""

    kind: Annotated[str, AfterValidator(one_of(_NOISES))]
    scale: Positive
    granularity: Granule
    law: Annotated[_Laplace | _Gaussian, Field(discriminator="kind")]

    @model_validator(mode="after")
    def _is_one(self) -> NoiseFacts:
        gaussian = self.kind.endswith("gaussian")
        require(gaussian == isinstance(self.law, _Gaussian), "law does not fit the kind")
        return self


class SensitivityFacts(Facts):
    """What the noise was calibrated to."""

    function: NotNegative
    l1: NotNegative | None = None
    l2: NotNegative | None = None
    derivation: list[Text]


class ErrorsFacts(Facts):
    """Bounds on what is off besides the noise."""

    lattice: NotNegative
    released: NotNegative


class ObliqueFacts(Facts):
    """Coordinates that are no axes."""

    rows: list[list[float]]
    low: list[float]
    width: list[Positive]

    @model_validator(mode="after")
    def _is_one(self) -> ObliqueFacts:
        axes = len(self.rows)
        require(all(len(row) == axes for row in self.rows), "rows are not square")
        facts = self.model_dump()
        same = made(lambda: Oblique.from_dict(facts).to_dict()) == facts
        require(same, "low and width are not those of rows")
        return self


class FeaturesFacts(Facts):
    """Of what a vector holds the weights."""

    axes: Count
    constant: NotNegative


# --- The classes of functions that a synopsis's certificate may speak of, as its metadata has them

_NARROWEST, _WIDEST = 9e-5, 1.1e4  # bandwidths, with room for roundings
_MOST_DERIVATIVES = 100


class _Bump(Facts):
    name: Annotated[str, AfterValidator(one_of(KERNELS))]
    bandwidth: Annotated[float, Field(ge=_NARROWEST, le=_WIDEST)]


class FunctionClass(Facts):
    """The class of functions of a certificate, whose constants `approximation_of` checks too."""

    @model_validator(mode="after")
    def _is_one(self) -> FunctionClass:
        found = made(approximation_of, self.model_dump(by_alias=True, exclude_unset=True))
        if isinstance(found, GramBall):
            require(math.isfinite(made(lambda: found.cube.largest)), "the kernel overflows")
        return self


class MixtureClass(FunctionClass):
    """Mixtures of kernel bumps."""

    name: Literal["mixture of bumps"] = Field(alias="class")
    kernels: list[_Bump]
    attained: bool = ABSENT


class LinearClass(FunctionClass):
    """Affine functions."""

    name: Literal["linear"] = Field(alias="class")


class HolderClass(FunctionClass):
    """Functions of a stated exponent."""

    name: Literal["holder"] = Field(alias="class")
    constant: Positive
    exponent: Positive


class SmoothClass(FunctionClass):
    """Functions with bounded derivatives."""

    name: Literal["smooth"] = Field(alias="class")
    order: Annotated[int, Field(ge=1, le=_MOST_DERIVATIVES)]
    bound: Positive


class _Polynomial(Facts):
    name: Literal["polynomial"]
    degree: Count
    scale: Positive
    constant: NotNegative


class _ArcCosine(Facts):
    name: Literal["arc-cosine"]
    constant: NotNegative


class BallClass(FunctionClass):
    """A ball of one of our kernels."""

    name: Literal["reproducing ball"] = Field(alias="class")
    kernel: Annotated[_Polynomial | _ArcCosine, Field(discriminator="name")]
    low: list[float]
    width: list[Positive]
    radius: NotNegative


class _Planned(Facts):
    k: Lattice
    h: Orders
    rank: Annotated[int, Field(ge=0)]
    error: NotNegative


class StatedClass(FunctionClass):
    """A ball of a user's kernel."""

    name: Literal["stated ball"] = Field(alias="class")
    size: NotNegative
    planned: _Planned


# --- The attributes of a synopsis's root as one checked whole

MOST_COEFFICIENTS = 1_000_000_000
"""Most values of one lattice, and of one vector."""

_MOST_LATTICE_AXES = 6
_LEAST_EPSILON, _MOST_EPSILON = 1e-9, 1e12
_LEARNED = ("linear", "sigmoid", "response", "stack", "one-vs-rest")  # of linear functions

_Class = Annotated[
    MixtureClass | LinearClass | HolderClass | SmoothClass | BallClass | StatedClass,
    Field(discriminator="name"),
]


class Component(Facts):
    """One lattice, or one vector, and its noise law, for one or more arrays."""

    arrays: Annotated[list[Name], Field(min_length=1)]
    axes: list[Text]
    share: Share
    value_unit: Positive
    spectral: Literal["lattice"] = ABSENT
    k: Lattice = ABSENT
    h: Orders = ABSENT
    oblique: ObliqueFacts = ABSENT
    entries: Annotated[list[Text], Field(min_length=1)] = ABSENT
    features: FeaturesFacts = ABSENT
    additive: bool = ABSENT
    counted_in: list[Name] = ABSENT
    sensitivity: SensitivityFacts
    noise: NoiseFacts
    certificate: CertificateFacts
    approximation: _Class = ABSENT
    errors: ErrorsFacts

    @model_validator(mode="after")
    def _is_one(self) -> Component:
        if self.vector:
            of_lattices = ("k", "h", "approximation", "oblique", "spectral")
            apart = not self.axes and not any(map(self.states, of_lattices))
            require(apart, "a vector has no lattice")
            require(not self.family, "a vector has no coordinates")
        else:
            needed = all(map(self.states, ("k", "h", "approximation")))
            require(needed, "needs k, h and approximation, or entries")
            self._require_lattice()
        return self

    def _require_lattice(self) -> None:
        axes = len(self.axes)
        require(len(self.k) == len(self.h) == axes, "k and h need one entry for each of axes")
        require(axes <= _MOST_LATTICE_AXES, f"axes: a lattice has at most {_MOST_LATTICE_AXES}")
        require(self.size <= MOST_COEFFICIENTS, f"k: more than {MOST_COEFFICIENTS} coefficients")
        require(
            not self.states("oblique") or len(self.oblique.rows) == axes, "oblique: one row an axis"
        )
        whole = self.states("spectral")
        require(not whole or self.family == "spectral", "spectral: the noise is of another kind")
        require(not whole or self.size <= MOST_POINTS, f"k: more than {MOST_POINTS} points")
        kind = self.approximation
        if isinstance(kind, MixtureClass):
            require(len(kind.kernels) == axes, "approximation: one kernel an axis")
        elif isinstance(kind, BallClass):
            both = len(kind.low) == len(kind.width) == axes
            require(both, "approximation: low and width need one entry an axis")
        ball = isinstance(kind, BallClass | StatedClass)
        fits = ball if whole else isinstance(kind, MixtureClass) or not self.family
        require(fits, "approximation: does not fit the noise")

    @property
    def vector(self) -> bool:
        """Whether it is so many numbers, and no function."""
        return self.states("entries")

    @property
    def family(self) -> str:
        """What carries the noise: "spectral", "binned", or "" where that is what is stored."""
        family = self.noise.kind.partition("-")[0]
        return family if family in ("spectral", "binned") else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the coefficients."""
        return (len(self.entries),) if self.vector else tuple(k + 1 for k in self.k)

    @property
    def size(self) -> int:
        """How many coefficients there are."""
        return math.prod(self.shape)


class Released(Facts):
    """The attributes of the root."""

    format: Literal["dbern-synopsis"]
    format_version: Literal[1]
    dbern_version: Text
    release_id: Text
    name: Text
    created: Text
    dataset: Text = ABSENT
    ledger_id: Text = ABSENT
    combine: CombineFacts
    domain: DomainFacts
    target: TargetFacts
    components: Annotated[list[Component], Field(min_length=1)]
    epsilon: Share
    delta: Exact
    rho: Share | None = ABSENT
    neighbors: Literal["replace-one", "add-or-remove-one"]
    unit: Text
    random_dp: RandomFacts = ABSENT
    certificate: CertificateFacts
    expected_error: NotNegative = ABSENT
    post_processing: Literal["never stored"] = ABSENT  # readers say what they did, no store

    @model_validator(mode="after")
    def _is_one(self) -> Released:
        epsilon, delta = number(self.epsilon), number(self.delta)
        within = _LEAST_EPSILON <= epsilon <= _MOST_EPSILON
        require(within, f"epsilon: not from {_LEAST_EPSILON:g} to {_MOST_EPSILON:g}")
        require(0 <= delta < 1, "delta: not from 0 to below 1")
        names = [name for one in self.components for name in one.arrays]
        require(len(set(names)) == len(names), "components: an array is there twice")
        domain = [axis.name for axis in self.domain.axes]
        for one in self.components:
            known = len(set(one.axes)) == len(one.axes) and set(one.axes) <= set(domain)
            require(known, "components: axes that are none of the domain's, or twice")
            counted = one.counted_in if one.states("counted_in") else one.arrays
            fits = len(counted) == len(one.arrays) and set(counted) <= set(names)
            require(fits, "components: counted_in names an array that is not there")
        self._require_parts(domain)
        return self

    def _require_parts(self, domain: list[str]) -> None:
        """What `combine` makes the function of has to be there: so many functions and vectors."""
        combine, parts = self.combine, [one for one in self.components for _ in one.arrays]
        functions = sum(not one.vector for one in parts)
        vector = parts[-1].size if parts[-1].vector and functions == len(parts) - 1 else 0
        axes, labels = len(domain), len(combine.classes or ())
        if combine.bayes:
            fits = len(combine.peaks or ()) == len(combine.floors or ()) == axes
            if combine.kind == "naive-bayes":
                fits &= (functions, vector) == (axes * labels, labels)
                own = [[name] for name in domain for _ in range(labels)]
                fits &= [one.axes for one in parts[:-1]] == own
            else:
                fits &= (functions, vector) == (0, labels * (1 + 2 * axes))
        elif combine.states("constant"):
            columns = labels if combine.kind in ("stack", "one-vs-rest") else 1
            weights = columns * (axes + (combine.constant > 0))
            fits = combine.kind in _LEARNED and (functions, vector) == (0, weights)
        elif combine.kind in ("stack", "one-vs-rest", "ratio"):
            columns = 2 if combine.kind == "ratio" else labels
            fits = functions == len(parts) == columns
        else:
            fits = not parts[0].vector
        require(fits, f"combine: {combine.kind} is not made of such components")
        for one in parts:
            if one.states("features"):
                constant = (one.features.axes, one.features.constant)
                require(constant == (axes, combine.constant), "features: are not those of combine")


class _Root(Facts):
    """``zarr.json`` of the root group."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: Released


def released_of(text: bytes, where: str, name: str) -> Released:
    """The attributes of the root group.

    Parameters
    ----------
    text : bytes
        Of its ``zarr.json``.
    where, name : str
        The store and the object, for errors.

    Raises
    ------
    IntegrityError
        For anything but what FORMAT.md describes.
    """
    return checked(_Root, text, where, name).attributes


def as_dict(released: Released) -> dict[str, Any]:
    """The attributes as plain values, those that the store states and no others."""
    return released.model_dump(by_alias=True, exclude_unset=True)


def lattices(released: Released) -> Iterator[tuple[str, Component]]:
    """Each released array's group below the root, and its component."""
    for one in released.components:
        for name in one.arrays:
            yield f"components/{name}", one
