"""What the metadata of a synopsis may say, checked by one strict model before it is used.

A synopsis may come from a stranger, so nothing is used before this model has looked at it: types,
ranges, finite numbers, closed lists, and whether the parts fit each other. Keys that are not known
are left out, as FORMAT.md promises to later minor versions.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from threading import Lock
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from dbern.bernstein.basis import MOST_AXES, MOST_H, MOST_K
from dbern.bernstein.kernels import KERNELS
from dbern.bernstein.oblique import Oblique
from dbern.combination import BAYES, GAUSSIAN_BAYES, KERNEL_BAYES, KINDS, LEAST_SQUARES, RANGED
from dbern.data.domain import (
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_TITLE,
    LONGEST_UNITS,
    MAX_NUMBER,
    MIN_NUMBER,
    MOST_VALUES,
    Axis,
)
from dbern.errors import DbernError, IntegrityError, printable
from dbern.privacy.budget import PrivacyUnit, exact
from dbern.privacy.families import FAMILIES, family_of, noise_law
from dbern.strategies import STRATEGY_KINDS, noise_names
from dbern.strategies.bias import approximation_of
from dbern.strategies.gram import MOST_POINTS
from dbern.strategies.moments import MOST_COLUMNS, MOST_NUMBERS, Moments

# --- The parts of the attributes of a synopsis's root


FORMAT, FORMAT_VERSION = "dbern-synopsis", 1

_LAWS = {one.law.kind: one.law for one in FAMILIES}
_NOISES = tuple(dict.fromkeys(name for one in FAMILIES for name in noise_names(one).values()))
_LEAST_FLOOR = 1e-100  # of what is divided by, squared
_MOST_ROWS = 10**15
_PLAIN = re.compile(r"(?!__|\.)[^/\\\x00-\x1f]+")  # one plain part of a path in a store
_LONG_NUMBER = re.compile(r"\d+\.\d{20,}|\d{20,}(\.\d+)?")  # a limit of floats, as pydantic says it
ABSENT: Any = None  # a key that may be left out; where it is written it is no null

_BUILDING = Lock()

Model = TypeVar("Model", bound=BaseModel)


class Facts(BaseModel):
    """Strict: a type is never guessed. Keys that are not known are left out."""

    model_config = ConfigDict(
        strict=True, extra="ignore", allow_inf_nan=False, frozen=True, defer_build=True
    )

    def declares(self, key: str) -> bool:
        """Whether a key that may be left out is there."""
        return key in self.model_fields_set


def checked(model: type[Model], text: bytes, where: str, name: str) -> Model:
    """Read an object's JSON by its model.

    `where`, `name`: the store and the object, for errors. Raises IntegrityError naming the object
    and the key.
    """
    with _BUILDING:  # by itself a deferred build is for one thread
        model.model_rebuild()
    try:
        found = model.model_validate_json(text)
        json.dumps(json.loads(text), allow_nan=False)  # in every other key, too
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"]))
        why = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):g}", problem["msg"])
        raise damaged(where, name, key, why) from None
    except (ValueError, RecursionError) as error:
        raise damaged(where, name, "", str(error)) from None
    return found


def damaged(where: str, name: str, key: str, why: str) -> IntegrityError:
    """Return the error for an object that says what no release says."""
    key = f"{printable(key)}: " if key else ""
    return IntegrityError(
        f"{where}: {name} is damaged: {key}{why}. Copy the synopsis again, or ask whoever "
        "published it"
    )


def made(make: Callable[..., Any], *given: Any) -> Any:
    """Call what the rest of the package checks by; its errors become those of the model."""
    try:
        return make(*given)
    except (DbernError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ValueError(re.split(r"[;.] ", str(error))[0]) from None  # without the advice


def require(holds: object, why: str) -> None:
    """Refuse within a model what does not hold."""
    if not holds:
        raise ValueError(why)


def _one_of(names: Collection[str]) -> Callable[[str], str]:
    """Refuse what is not listed."""

    def listed(name: str) -> str:
        require(name in names, f"is none of {', '.join(names)}")
        return name

    return listed


def _plain(name: str) -> str:
    require(_PLAIN.fullmatch(name), "is not a plain name")
    return name


def number(text: str) -> float:
    """Return an exact decimal or fraction as a float.

    Raises ValueError for anything else, or what no float holds.
    """
    return float(made(lambda: float(exact(text, "value"))))


def _number(text: str) -> str:
    number(text)
    return text


def _unit(text: str) -> str:
    made(PrivacyUnit.shown, text)
    return text


def _above_zero(text: str) -> str:
    require(number(text) >= MIN_NUMBER, f"must be above 0, and at least {MIN_NUMBER:g}")
    return text


Text = Annotated[str, StringConstraints(max_length=10_000)]
Name = Annotated[str, StringConstraints(max_length=255), AfterValidator(_plain)]
Exact = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_number)]
Share = Annotated[str, StringConstraints(max_length=4000), AfterValidator(_above_zero)]
_Category = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | Text
Positive = Annotated[float, Field(ge=MIN_NUMBER, le=MAX_NUMBER)]
_NotNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
_Value = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Lengths = Annotated[list[Positive], Field(min_length=1)]
_Extent = Annotated[list[_Value], Field(min_length=2, max_length=2)]
Granule = Annotated[float, Field(ge=MIN_NUMBER, le=MAX_NUMBER / 2**63)]  # of values
Count = Annotated[int, Field(ge=1, le=_MOST_ROWS)]
Lattice = Annotated[list[Annotated[int, Field(ge=1, le=MOST_K)]], Field(min_length=1)]
_Orders = Annotated[list[Annotated[int, Field(ge=1, le=MOST_H)]], Field(min_length=1)]


class _Axis(Facts):
    name: Name
    low: float
    high: float
    unit: Literal["days since 1970-01-01", "seconds since 1970-01-01"] = ABSENT
    values: list[_Category] = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _Axis:
        axis = made(Axis.from_dict, self.model_dump(exclude_unset=True))
        require((axis.low, axis.high) == (self.low, self.high), "low and high are not of values")
        require(axis.unit is None or not axis.categories, "values have no unit")
        if axis.unit is not None:
            for end in (axis.low, axis.high):
                made(axis.unit.text, end)
        return self


class _Filter(Facts):
    column: Text
    values: list[_Category]


class _DomainFacts(Facts):
    axes: Annotated[list[_Axis], Field(min_length=1)]
    outside: Literal["drop", "clamp"]
    volume: Annotated[float, Field(ge=0)] | None  # for other readers: it is the axes' product
    filter: _Filter = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _DomainFacts:
        require(len({axis.name for axis in self.axes}) == len(self.axes), "an axis is there twice")
        return self


class _TargetFacts(Facts):
    """The learner's parameters, which are shown and never computed with, and the rows."""

    model_config = ConfigDict(extra="allow")
    kind: Text
    n: Count = ABSENT
    normalizer: Count = ABSENT
    chosen_of: Annotated[list[_Lengths], Field(min_length=1)] = ABSENT
    bandwidth: Any = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _TargetFacts:
        require((self.n is None) != (self.normalizer is None), "needs n or normalizer")
        chosen = not self.declares("chosen_of") or self.declares("bandwidth")
        require(chosen, "chosen_of: needs the bandwidth that was chosen")
        return self


class _CombineFacts(Facts):
    kind: Annotated[str, AfterValidator(_one_of(KINDS))]
    classes: list[_Category] = ABSENT
    low: _Value = ABSENT
    high: _Value = ABSENT
    peaks: list[Positive] = ABSENT
    floors: list[_NotNegative] = ABSENT
    lists: list[Annotated[int, Field(ge=2, le=MOST_VALUES)]] = ABSENT
    grid: Annotated[int, Field(ge=2, le=4096)] = ABSENT
    degree: Annotated[int, Field(ge=0, le=63)] = ABSENT
    squares: Literal["centred"] = ABSENT
    constant: _NotNegative = ABSENT
    response: Text = ABSENT
    weight: Annotated[int, Field(ge=1, le=MOST_NUMBERS**2)] = ABSENT
    products: Literal["weighted"] = ABSENT
    ridge: Positive = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _CombineFacts:
        ranged, solved = self.kind in RANGED, self.kind == LEAST_SQUARES
        stated = self.declares("response"), self.declares("weight")
        require(stated == (solved, solved), "response and weight")
        for name in ("ridge", "products"):
            require(solved or not self.declares(name), f"{name}: is not of this kind")
        require((self.low is None, self.high is None) == (not ranged,) * 2, "low and high")
        ordered = not ranged or self.high - self.low >= MIN_NUMBER
        require(ordered, "low must be below high")
        both = self.declares("grid"), self.declares("degree")
        require(both[0] == both[1] or (solved and self.degree == 2), "grid and degree")
        require(not both[0] or self.degree**2 < 4 * self.grid, "degree: too large for the grid")
        gaussian = self.kind == GAUSSIAN_BAYES
        require(gaussian or not self.declares("squares"), "squares: is not of this kind")
        count, several = len(set(self.classes or ())), self.kind in ("stack", "one-vs-rest")
        allowed = count == 0 if ranged else count >= 1 if several else count in (0, 2)
        allowed = count >= 2 if self.bayes else allowed
        divided = gaussian and min(self.floors or [1]) < _LEAST_FLOOR
        require(not divided, "floors: must be above 0")
        require(math.prod(self.peaks or ()) <= MAX_NUMBER, "peaks: their product is too large")
        require(allowed and count == len(self.classes or ()), "classes do not fit the kind")
        return self

    @property
    def bayes(self) -> bool:
        return self.kind in BAYES


_Column = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]


class _ColumnsFacts(Facts):
    """Which columns have a role; the others are axes."""

    response: _Column = ABSENT
    label: _Column = ABSENT
    group: _Column = ABSENT


class _RandomFacts(Facts):
    guarantee: Text = ABSENT
    gamma: Share
    distribution: Text
    samples: Count
    order: Count
    seed: Annotated[int, Field(ge=0)]


class _CertificateFacts(Facts):
    approximation: _NotNegative
    rounding: _NotNegative
    noise: _NotNegative
    total: _NotNegative
    beta: Annotated[float, Field(ge=1e-11, lt=1)]
    lower_bound: _NotNegative
    lower_bound_kind: Text = ABSENT

    @model_validator(mode="after")
    def _is_one(self) -> _CertificateFacts:
        require(self.total == 0 or self.total >= MIN_NUMBER, "total: is too small to divide by")
        return self


def _law(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a known law; others are left out."""
    kind = fields.get("kind")
    require(isinstance(kind, str) and kind in _LAWS, f"kind is none of {', '.join(_LAWS)}")
    names = [one.name for one in dataclasses.fields(_LAWS[str(kind)])]
    for name in names:
        require(name in fields, f"{name} is missing")
        require(name == "kind" or type(fields[name]) is int, f"{name} is not an integer")
    given = {name: fields[name] for name in names}
    made(noise_law, given)
    return given


class _NoiseFacts(Facts):
    kind: Annotated[str, AfterValidator(_one_of(_NOISES))]
    scale: Positive
    granularity: Granule
    law: Annotated[dict[str, Any], AfterValidator(_law)]

    @model_validator(mode="after")
    def _is_one(self) -> _NoiseFacts:
        laws = [one.law.kind for one in FAMILIES if self.kind in noise_names(one).values()]
        require(self.law["kind"] in laws, "law does not fit the kind")
        return self


class _SensitivityFacts(Facts):
    function: _NotNegative
    l1: _NotNegative | None = None
    l2: _NotNegative | None = None
    derivation: list[Text]


class _ErrorsFacts(Facts):
    lattice: _NotNegative
    released: _NotNegative


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


class PromiseFacts(Facts):
    """How an error of arrays follows from a number that is released beside them."""

    of: Annotated[list[Name], Field(min_length=1)]
    factor: _NotNegative
    rest: _NotNegative
    least: _NotNegative = ABSENT


class _FeaturesFacts(Facts):
    axes: Count
    constant: _NotNegative
    grid: Count = ABSENT


# --- The classes of functions that a synopsis's certificate may speak of, as its metadata has them

_NARROWEST, _WIDEST = 9e-5, 1.1e4  # bandwidths, with room for roundings
_MOST_DERIVATIVES = 100
_MOST_CHOICES = 10_000


class _KernelFacts(Facts):
    name: Annotated[str, AfterValidator(_one_of(KERNELS))]
    bandwidth: Annotated[float, Field(ge=_NARROWEST, le=_WIDEST)]


class _FunctionClass(Facts):
    """The class of functions of a certificate, whose constants `approximation_of` checks too."""

    ball: ClassVar[bool] = False
    """Whether the lattice may be released whole, through its kernel matrix."""
    family: ClassVar[bool] = False
    """Whether each axis may be released in coordinates of its own."""

    @model_validator(mode="after")
    def _is_one(self) -> _FunctionClass:
        found = made(approximation_of, self.model_dump(by_alias=True, exclude_unset=True))
        cube = getattr(found, "cube", None)
        overflows = cube is not None and not math.isfinite(made(lambda: cube.largest))
        require(not overflows, "the kernel overflows")
        return self

    def require_axes(self, axes: int) -> None:
        """Refuse facts that are not of so many axes."""


class _MixtureClass(_FunctionClass):
    family: ClassVar[bool] = True
    name: Literal["mixture of bumps", "chosen mixture of bumps"] = Field(alias="class")
    kernels: list[_KernelFacts]
    attained: bool = ABSENT
    gap: Annotated[float, Field(gt=0, le=1)] = ABSENT
    choices: Annotated[int, Field(ge=2, le=_MOST_CHOICES)] = ABSENT

    def require_axes(self, axes: int) -> None:
        require(len(self.kernels) == axes, "approximation: one kernel an axis")
        chosen = self.name == "chosen mixture of bumps"
        require(chosen == self.declares("choices"), "approximation: choices are of a chosen one")


class _LinearClass(_FunctionClass):
    name: Literal["linear"] = Field(alias="class")


class _HolderClass(_FunctionClass):
    name: Literal["holder"] = Field(alias="class")
    constant: Positive
    exponent: Positive


class _SmoothClass(_FunctionClass):
    name: Literal["smooth"] = Field(alias="class")
    order: Annotated[int, Field(ge=1, le=_MOST_DERIVATIVES)]
    bound: Positive


class _Polynomial(Facts):
    name: Literal["polynomial"]
    degree: Count
    scale: Positive
    constant: _NotNegative


class _ArcCosine(Facts):
    name: Literal["arc-cosine"]
    constant: _NotNegative


class _BallClass(_FunctionClass):
    ball: ClassVar[bool] = True
    name: Literal["reproducing ball"] = Field(alias="class")
    kernel: Annotated[_Polynomial | _ArcCosine, Field(discriminator="name")]
    low: list[float]
    width: list[Positive]
    radius: _NotNegative

    def require_axes(self, axes: int) -> None:
        both = len(self.low) == len(self.width) == axes
        require(both, "approximation: low and width need one entry an axis")


class _Planned(Facts):
    k: Lattice
    h: _Orders
    rank: Annotated[int, Field(ge=0)]
    error: _NotNegative


class _DeclaredClass(_FunctionClass):
    ball: ClassVar[bool] = True
    name: Literal["stated ball"] = Field(alias="class")
    size: _NotNegative
    planned: _Planned


# --- The attributes of a synopsis's root as one checked whole

MOST_COEFFICIENTS = 1_000_000_000
"""Most values of one lattice, and of one vector."""

_LEAST_EPSILON, _MOST_EPSILON = 1e-9, 1e12
_LEARNED = ("linear", "sigmoid", "response", "stack", "one-vs-rest")  # of linear functions

_Class = Annotated[
    _MixtureClass | _LinearClass | _HolderClass | _SmoothClass | _BallClass | _DeclaredClass,
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
    h: _Orders = ABSENT
    oblique: ObliqueFacts = ABSENT
    entries: Annotated[list[Text], Field(min_length=1)] = ABSENT
    features: _FeaturesFacts = ABSENT
    promise: PromiseFacts = ABSENT
    additive: bool = ABSENT
    counted_in: list[Name] = ABSENT
    sensitivity: _SensitivityFacts
    noise: _NoiseFacts
    certificate: _CertificateFacts
    approximation: _Class = ABSENT
    errors: _ErrorsFacts

    @model_validator(mode="after")
    def _is_one(self) -> Component:
        self._require_noise()
        if self.vector:
            of_lattices = ("k", "h", "approximation", "oblique", "spectral")
            apart = not self.axes and not any(map(self.declares, of_lattices))
            require(apart, "a vector has no lattice")
            require(not self.family, "a vector has no coordinates")
            one = len(self.entries) == len(self.arrays) == 1
            require(one or not self.declares("promise"), "promise: is of one number")
        else:
            needed = all(map(self.declares, ("k", "h", "approximation")))
            require(needed, "needs k, h and approximation, or entries")
            require(not self.declares("promise"), "promise: is of one number")
            self._require_lattice()
        return self

    def _require_noise(self) -> None:
        law = noise_law(self.noise.law)
        granule = math.ldexp(1.0, law.granularity_exponent)
        computed = MIN_NUMBER <= granule <= MAX_NUMBER / 2**63
        require(computed, "noise: granularity_exponent is too small or too large")
        granularity = granule * self.value_unit
        same = math.isclose(self.noise.granularity, granularity)
        require(same, "noise: granularity is not that of law and value_unit")
        scale = made(lambda: family_of(law).scale(law) * granularity)
        require(math.isclose(self.noise.scale, scale), "noise: scale is not that of law")

    def _require_lattice(self) -> None:
        axes = len(self.axes)
        require(len(self.k) == len(self.h) == axes, "k and h need one entry for each of axes")
        require(axes <= MOST_AXES, f"axes: a lattice has at most {MOST_AXES}")
        require(self.size <= MOST_COEFFICIENTS, f"k: more than {MOST_COEFFICIENTS} coefficients")
        require(
            not self.declares("oblique") or len(self.oblique.rows) == axes,
            "oblique: one row an axis",
        )
        whole = self.declares("spectral")
        require(not whole or self.family == "spectral", "spectral: the noise is of another kind")
        require(not whole or self.size <= MOST_POINTS, f"k: more than {MOST_POINTS} points")
        kind = self.approximation
        kind.require_axes(axes)
        fits = kind.ball if whole else kind.family or not self.family
        require(fits, "approximation: does not fit the noise")

    @property
    def vector(self) -> bool:
        """Whether it is so many numbers, and no function."""
        return self.declares("entries")

    @property
    def family(self) -> str:
        """What carries the noise, of `STRATEGY_KINDS`; or "" where that is what is stored."""
        family = self.noise.kind.partition("-")[0]
        return family if family in STRATEGY_KINDS else ""

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
    title: Annotated[str, StringConstraints(max_length=LONGEST_TITLE)] = ABSENT
    description: Annotated[str, StringConstraints(max_length=LONGEST_DESCRIPTION)] = ABSENT
    columns: _ColumnsFacts = ABSENT
    units: dict[_Column, Annotated[str, StringConstraints(max_length=LONGEST_UNITS)]] = ABSENT
    created: Text
    dataset: Text = ABSENT
    ledger_id: Text = ABSENT
    combine: _CombineFacts
    domain: _DomainFacts
    target: _TargetFacts
    components: Annotated[list[Component], Field(min_length=1)]
    epsilon: Share
    delta: Exact
    rho: Share | None = ABSENT
    neighbors: Literal["replace-one", "add-or-remove-one"]
    unit: Annotated[Text, AfterValidator(_unit)]
    random_dp: _RandomFacts = ABSENT
    certificate: _CertificateFacts
    expected_error: _NotNegative = ABSENT
    extent: _Extent = ABSENT
    post_processing: Literal["never stored"] = ABSENT  # readers say what they did, no store

    @model_validator(mode="after")
    def _is_one(self) -> Released:
        epsilon, delta = number(self.epsilon), number(self.delta)
        within = _LEAST_EPSILON <= epsilon <= _MOST_EPSILON
        require(within, f"epsilon: not from {_LEAST_EPSILON:g} to {_MOST_EPSILON:g}")
        require(0 <= delta < 1, "delta: not from 0 to below 1")
        ordered = not self.declares("extent") or self.extent[0] < self.extent[1]
        require(ordered, "extent: the least value is not below the largest")
        names = [name for one in self.components for name in one.arrays]
        require(len(set(names)) == len(names), "components: an array is there twice")
        domain = [axis.name for axis in self.domain.axes]
        volume = math.prod(axis.high - axis.low for axis in self.domain.axes)
        divides = any(len(component.axes) == len(domain) for component in self.components)
        computed = MIN_NUMBER <= volume <= MAX_NUMBER or not divides
        require(computed, "domain: its volume is too small or too large")
        for one in self.components:
            known = len(set(one.axes)) == len(one.axes) and set(one.axes) <= set(domain)
            require(known, "components: axes that are none of the domain's, or twice")
            counted = one.counted_in if one.declares("counted_in") else one.arrays
            fits = len(counted) == len(one.arrays) and set(counted) <= set(names)
            require(fits, "components: counted_in names an array that is not there")
            told = one.promise.of if one.declares("promise") else ()
            fits = set(told) <= {name for each in self.functions for name in each.arrays}
            require(fits, "components: promise names an array that is not there")
        require(self.functions, "components: there is no function")
        self._require_parts(domain)
        return self

    @property
    def functions(self) -> list[Component]:
        """Return those that the function is made of."""
        return [one for one in self.components if not one.declares("promise")]

    def _require_parts(self, domain: list[str]) -> None:
        """What `combine` makes the function of has to be there: so many functions and vectors."""
        combine, parts = self.combine, [one for one in self.functions for _ in one.arrays]
        functions = sum(not one.vector for one in parts)
        vector = parts[-1].size if parts[-1].vector and functions == len(parts) - 1 else 0
        blocks = tuple(len(axis.values) for axis in self.domain.axes if axis.declares("values"))
        axes, labels = len(domain) - len(blocks), len(combine.classes or ())
        if combine.bayes:
            fits = len(combine.peaks or ()) == len(combine.floors or ()) == axes
            fits &= tuple(combine.lists or ()) == blocks
            if combine.kind == KERNEL_BAYES:
                fits &= (functions, vector) == (axes * labels, labels * (1 + sum(blocks)))
                numbers = [one.name for one in self.domain.axes if not one.declares("values")]
                own = [[name] for name in numbers for _ in range(labels)]
                fits &= [one.axes for one in parts[:-1]] == own
            else:
                fits &= (functions, vector) == (0, labels * (1 + 2 * axes + sum(blocks)))
        elif combine.kind == LEAST_SQUARES:
            if combine.declares("degree"):
                fits = tuple(combine.lists or ()) == blocks
                require(fits, "combine: lists are not those of the axes")
                axes += axes * (axes + 1) // 2
            size = made(lambda: Moments(axes + 1, combine.weight, blocks).size)
            fits = (functions, vector, combine.constant) == (0, size, 1.0)
            fits &= axes < MOST_NUMBERS and combine.response not in domain
            fits &= axes + sum(blocks) < MOST_COLUMNS or not blocks
        elif combine.declares("grid"):
            fits = (functions, vector, combine.kind) == (0, combine.degree + 1, "response")
            fits &= axes == 1 and not blocks and parts[0].declares("features")
        elif combine.declares("constant"):
            columns = labels if combine.kind in ("stack", "one-vs-rest") else 1
            weights = columns * (axes + sum(blocks) + (combine.constant > 0))
            fits = combine.kind in _LEARNED and (functions, vector) == (0, weights)
        elif combine.kind in ("stack", "one-vs-rest", "ratio"):
            columns = 2 if combine.kind == "ratio" else labels
            fits = functions == len(parts) == columns
        else:
            fits = not parts[0].vector
        require(fits, f"combine: {combine.kind} is not made of such components")
        for one in parts:
            if one.declares("features"):
                found = (one.features.axes, one.features.constant, one.features.grid)
                same = (axes + sum(blocks), combine.constant or 0.0, combine.grid)
                require(found == same, "features: are not those of combine")


class Root(Facts):
    """``zarr.json`` of the root group."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: Released

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes as plain values: those that the store has, and no others."""
        return dict(self.model_dump(by_alias=True, exclude_unset=True)["attributes"])


def lattices(released: Released) -> Iterator[tuple[str, Component]]:
    """Return each released array's group below the root, and its component."""
    for one in released.components:
        for name in one.arrays:
            yield f"components/{name}", one
