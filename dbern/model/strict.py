"""Strict models of JSON that a stranger may have written, and types of its numbers and names.

A model checks everything before it is used: types, ranges, finite numbers, closed lists, and
whether the parts fit each other. Unknown keys are left out, as FORMAT.md promises to later minor
versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from dbern.bernstein.basis import INTERPOLATED, MOST_H, MOST_INTERPOLATED_K, MOST_K
from dbern.data.domain import LONGEST_TEXT, MAX_NUMBER, MIN_NUMBER, PLAIN_NAME
from dbern.errors import DbernError, IntegrityError, printable
from dbern.privacy.budget import exact

ABSENT: Any = None  # a key that may be left out; where it is written it is no null
_MOST_ROWS = 10**15
_LONG_NUMBER = re.compile(r"\d+\.\d{20,}|\d{20,}(\.\d+)?")  # a limit of floats, as pydantic says it
_BUILDING = Lock()
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Positive = Annotated[float, Field(ge=MIN_NUMBER, le=MAX_NUMBER)]
NotNegative = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
Granule = Annotated[float, Field(ge=MIN_NUMBER, le=MAX_NUMBER / 2**63)]  # of values
Count = Annotated[int, Field(ge=1, le=_MOST_ROWS)]
Resolution = Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...], Field(min_length=1)]
Steps = Annotated[
    tuple[Annotated[int, Field(ge=1, le=MOST_INTERPOLATED_K)], ...], Field(min_length=1)
]
Orders = Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_H)], ...], Field(min_length=1)]
OrdersOrLinear = Annotated[
    tuple[Annotated[int, Field(ge=INTERPOLATED, le=MOST_H)], ...], Field(min_length=1)
]


class StrictModel(BaseModel):
    """Base of the models: no value is converted to another type."""

    model_config = ConfigDict(
        strict=True, extra="ignore", allow_inf_nan=False, frozen=True, defer_build=True
    )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values of the keys that were written."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls.ready().model_validate_json(json.dumps(content))

    @classmethod
    def ready(cls) -> type[Self]:
        """Return the class, built under a lock: a deferred build is not safe for threads."""
        with _BUILDING:
            cls.model_rebuild()
        return cls


Model = TypeVar("Model", bound=StrictModel)


def parse_object(model: type[Model], text: bytes, where: str, name: str) -> Model:
    """Read an object's JSON by its model.

    `where`, `name`: the store and the object, for errors. Raises IntegrityError naming the object
    and the key.
    """
    try:
        content = model.ready().model_validate_json(text)
        json.dumps(json.loads(text), allow_nan=False)  # also of unknown keys
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"]))
        why = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):g}", problem["msg"])
        raise damaged(where, name, key, why) from None
    except (ValueError, RecursionError) as error:
        raise damaged(where, name, "", str(error)) from None
    return content


def damaged(where: str, name: str, key: str, why: str) -> IntegrityError:
    """Return the error for an object whose content no release writes."""
    key = f"{printable(key)}: " if key else ""
    return IntegrityError(
        f"{where}: {name} is damaged: {key}{why}. Copy the synopsis again, or ask whoever "
        "published it"
    )


def or_value_error(make: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the package and turn its errors into the ValueError of a model."""
    try:
        return make(*arguments)
    except (DbernError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ValueError(re.split(r"[;.] ", str(error))[0]) from None  # without the advice


def require(holds: object, why: str) -> None:
    """Raise the ValueError of a model unless a condition holds."""
    if not holds:
        raise ValueError(why)


def checked(check: Callable[[str], object]) -> AfterValidator:
    """Return a validator of texts that lets `check` raise a ValueError."""

    def unchanged(text: str) -> str:
        check(text)
        return text

    return AfterValidator(unchanged)


def listed_in(names: Collection[str]) -> AfterValidator:
    """Return a validator that refuses names that are not listed."""
    return checked(lambda name: require(name in names, f"is none of {', '.join(names)}"))


def as_float(text: str) -> float:
    """Return an exact decimal or fraction as a float.

    Raises ValueError for other texts and beyond the range of floats.
    """
    return float(or_value_error(lambda: float(exact(text, "value"))))


def _require_plain(name: str) -> None:
    require(PLAIN_NAME.fullmatch(name), "is not a plain name")


def _require_positive(text: str) -> None:
    require(as_float(text) >= MIN_NUMBER, f"must be above 0, and at least {MIN_NUMBER:g}")


Name = Annotated[str, StringConstraints(max_length=255), checked(_require_plain)]
Exact = Annotated[str, StringConstraints(max_length=4000), checked(as_float)]
PositiveDecimal = Annotated[str, StringConstraints(max_length=4000), checked(_require_positive)]
