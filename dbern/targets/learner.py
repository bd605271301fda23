"""A learner: public parameters, statistics of records, and how these make the function.

*Components* are released (`dbern.measure.statistic`), and a public combination makes the
function of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationError

from dbern.bernstein.kernels import ALL_KERNELS
from dbern.combination.base import Combination
from dbern.combination.functions import Identity
from dbern.data.domain import Domain, RecordSchema, Response
from dbern.errors import SpecError
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.base import AnyStrategy
from dbern.targets.parameters import Section, explain

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Lengths = Annotated[tuple[Positive, ...], Field(strict=False)]
"""Positive and finite, one an axis, in data units; TOML has them as a list."""


def _known_kernel(name: str) -> str:
    ALL_KERNELS.get(name, "target.kernel")
    return name


KernelName = Annotated[str, AfterValidator(_known_kernel)]
"""One of `ALL_KERNELS`."""


@dataclass(frozen=True)
class DesignedStatistic:
    """A statistic, as it is for the rows, and the strategy, orders and noise of its release.

    A vector has no orders h.
    """

    statistic: Statistic
    strategy: AnyStrategy
    h: tuple[int, ...]
    law: NoiseLaw


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
    """Of label, response, group and categories (of axes): what it can use."""
    instead: ClassVar[Mapping[str, str]] = {}
    """By a parameter that it needs, another that may stand for it."""
    chooses: ClassVar[bool] = False
    """Whether `for_rows` chooses a parameter."""

    def __init__(self, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise SpecError("\n".join(explain(error, type(self), "target."))) from None

    def get_params(self) -> dict[str, Any]:
        """Return the constructor parameters by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def identity(self) -> dict[str, Any]:
        """Return what identifies this learner besides its parameters, as JSON values."""
        return {}

    def packages(self) -> dict[str, str]:
        """Return, by the parameter that names it, the package of what is not ours."""
        kernel = self.get_params().get("kernel", "gaussian")
        package = ALL_KERNELS.origin(kernel) if isinstance(kernel, str) else ""
        return {"kernel": package} if package else {}

    @abstractmethod
    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """Return what is released of records of this schema.

        Raises
        ------
        SpecError
            Where the schema lacks what the learner needs, or the parameters do not fit it.
        """

    def function_domain(self, schema: RecordSchema) -> Domain:
        """Return the domain of the released function: that of the records, mostly."""
        return schema.domain

    def combination(self, schema: RecordSchema) -> Combination:
        """Return the combination of the statistics to the function."""
        del schema
        return Identity()

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> Learner:
        """Return it with what it chooses, where it `chooses`, from n and the charge of a row."""
        del schema, n, charge
        return self

    def taken(self, counting: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters that a plan chose, from what its first component is counted by."""
        del counting
        return {}

    def notes(self, n: int) -> tuple[str, ...]:
        """Return what else a plan for n rows should say, in the words of other software."""
        del n
        return ()

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Return what to expect of a release in these designs, one for each statistic.

        They follow from public facts alone.
        """
        del schema, n, designs
        return ()


def response_of(schema: RecordSchema) -> Response:
    """The response, for a learner that needs one; a SpecError where there is none."""
    if schema.response is None:
        raise SpecError(
            "data.response: is missing. Write [data.response] with column and bounds = [-1.0, 1.0]"
        )
    return schema.response
