"""What the metadata of a synopsis may say: one strict model of the attributes of its root.

A synopsis may come from a stranger, so nothing is used before this model has looked at it: types,
ranges, finite numbers, closed lists, and whether the parts fit each other. Keys that are not known
are left out, as FORMAT.md promises to later minor versions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
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
from dbern.combination import KINDS
from dbern.domain import Axis
from dbern.errors import DbernError, IntegrityError, printable
from dbern.oblique import Oblique
from dbern.privacy.budget import exact
from dbern.privacy.calibration import EXPONENTS
from dbern.privacy.laplace import MAX_SCALE

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
