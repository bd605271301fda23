"""What a learner is: public parameters, what is released of records, how that makes the function.

What is released are *components* (`dbern.components`), and a public combination makes the function
of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationError

from dbern.bernstein.kernels import KERNELS
from dbern.combination import Combination
from dbern.complaints import explain
from dbern.components.base import Component, Vector
from dbern.domain import RecordSchema
from dbern.errors import SpecError
from dbern.sections import Section

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
