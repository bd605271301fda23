"""What a learner is: public parameters, what is released of records, how that makes the function.

What is released are *components* (`dbern.counting.measurement`), and a public combination makes the
function of them.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dbern.bernstein.kernels import KERNELS
from dbern.combination import Combination
from dbern.counting.kernel_sums import ByResponse, KernelSum, Present
from dbern.counting.measurement import Component, Vector
from dbern.data.domain import RecordSchema
from dbern.errors import SpecError


class Section(BaseModel):
    """Strict and frozen; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# --- What is wrong with a spec's schema, in the words of the file

_NEAR = 0.75
"""Below it "bandwidth" would be taken for "width", another key."""

_WHAT = {
    "missing": "is missing",
    "greater_than": "must be above {gt:g}",
    "finite_number": "must be finite",
    "too_short": "has too few entries",
    "too_long": "has too many entries",
}


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    """One line per wrong key: the key, what is wrong, what to write; repeats are merged."""
    seen = set()
    for problem in error.errors():
        names = _field_path(problem["loc"], model)
        if names in seen:
            continue
        seen.add(names)
        yield f"{prefix}{'.'.join(names)}: {_complaint(problem, names, model)}"


def _field_path(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, ...]:
    """The part of a location that names keys of the file, without pydantic's union branches."""
    fields: Any = model
    names = []
    for part in loc:
        if not isinstance(part, str):
            break
        names.append(part)
        field = fields.model_fields.get(part) if fields is not None else None
        fields = _section(field.annotation) if field is not None else None
        if fields is None and part != "bounds":
            break
    return tuple(names)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, if it holds one and nothing else but None."""
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return kinds[0]
    return None


def _complaint(problem: Any, names: tuple[str, ...], model: type[BaseModel]) -> str:
    fields: Any = model
    hint = ""
    for part in names:
        siblings = fields.model_fields if fields is not None else {}
        field = siblings.get(part)
        if field is None and problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(part, siblings, n=1, cutoff=_NEAR)
            return (
                f"unknown key; write {near[0]}"
                if near
                else (f"unknown key; write one of: {', '.join(siblings)}")
            )
        if field is None:
            break
        hint = field.description or hint
        fields = _section(field.annotation)
    what = _WHAT.get(problem["type"], "has a wrong value or type").format(**problem.get("ctx", {}))
    return f"{what}; write {hint}"


# --- What a learner is

Lengths = Annotated[
    tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(strict=False)
]
"""Positive and finite, one an axis, in data units; TOML has them as a list."""


def _known_kernel(name: str) -> str:
    if name not in KERNELS:
        others = ", ".join(f'"{one}"' for one in KERNELS if one != "gaussian")
        raise SpecError(
            f'target.kernel: "{name}" is unknown; write kernel = "gaussian", or one of {others}'
        )
    return name


KernelName = Annotated[str, AfterValidator(_known_kernel)]
"""One of `KERNELS`."""


class Learner(Section, ABC):
    """A target's public parameters, by keyword only; subclasses declare them as fields.

    Raises
    ------
    SpecError
        For a parameter that is missing, unknown, of the wrong type or out of range; it names the
        key of ``[target]`` and says what to write.
    """

    kind: ClassVar[str]
    uses: ClassVar[tuple[str, ...]] = ()
    """Of label, response and group: what it can use."""
    instead: ClassVar[Mapping[str, str]] = {}
    """By a parameter that it needs, another that may stand for it."""

    def __init__(self, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise SpecError("\n".join(explain(error, type(self), "target."))) from None

    def get_params(self) -> dict[str, Any]:
        """Constructor parameters by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def identity(self) -> dict[str, Any]:
        """What makes this learner this one besides its parameters, as JSON values."""
        return {}

    @abstractmethod
    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """What is released of records of this schema.

        Raises
        ------
        SpecError
            Where the schema lacks what the learner needs, or the parameters do not fit it.
        """

    def combination(self, schema: RecordSchema) -> Combination:
        """How the components make the function."""
        del schema
        return Combination()

    def notes(self, n: int) -> tuple[str, ...]:
        """What else a plan for n rows should say, in the words of other software."""
        del n
        return ()


# --- What else is known of a learner's kernel sums


def kernel_sum_of(component: Component | Vector) -> KernelSum | None:
    """The kernel sum that a component is, also under private rows; None for another."""
    inner = getattr(component, "component", component)
    return inner if isinstance(inner, KernelSum) else None


def counts_all_of(other: KernelSum, mine: KernelSum) -> bool:
    """Whether `other` gives each record of `mine`, at the same place, as large a weight or larger.

    Itself where no weight is negative; of responses the sum that counts the records that have one.
    """
    if type(mine.weighing) is ByResponse:  # another's may count other records
        same = (other.domain, other.box, other.oblique) == (mine.domain, mine.box, mine.oblique)
        return same and other.weighing == Present(mine.weighing.response)
    return other is mine and not mine.weighing.signed
