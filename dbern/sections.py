"""The sections of a spec: keys, types, and for each key what to write (its description)."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dbern.times import moment_of


class Section(BaseModel):
    """Strict and frozen; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ReleaseSection(Section):
    """``[release]``: what it is called and where it goes."""

    name: str = Field(description='name = "trip-density"')
    output: str = Field(description='output = "out/trip-density.zarr"')


_UNIT = 'unit = { column = "user", max_contributions = 8 }'


class UnitTable(Section):
    """``unit = { column = .., max_contributions = .. }``."""

    column: str = Field(min_length=1, description=_UNIT)
    max_contributions: int = Field(description=_UNIT)


def _from_text(value: Any) -> Any:
    """Texts in ISO form are the dates and times that TOML has without quotes."""
    return moment_of(value) if isinstance(value, str) else value


_Category = bool | int | str
_Bound = Annotated[float | datetime | date, BeforeValidator(_from_text)]
_Bounds = Annotated[list[_Bound], Field(min_length=2, max_length=2)]


class LabelSection(Section):
    """``[data.label]``: the column of classes, and the public list of them."""

    column: str = Field(description='column = "churned"')
    classes: list[_Category] = Field(
        min_length=2, description='classes = ["no", "yes"]; with two, the second is +1'
    )


class ResponseSection(Section):
    """``[data.response]``: the column of responses, and their public bounds."""

    column: str = Field(description='column = "delay"')
    bounds: _Bounds = Field(description="bounds = [-1.0, 1.0]")


class GroupSection(Section):
    """``[data.group]``: the column of groups, and the public list of them."""

    column: str = Field(description='column = "carrier"')
    values: list[_Category] = Field(min_length=1, description='values = ["AA", "UA"]')


class FilterSection(Section):
    """``[data.filter]``: rows whose value is not in the public list count as null records."""

    column: str = Field(description='column = "status"')
    values: list[_Category] = Field(min_length=1, description='values = ["done"]')


class DataSection(Section):
    """``[data]``: which records, and the public facts about them."""

    source: str = Field(description='source = "data/trips/*.parquet"')
    bounds: dict[str, _Bounds] = Field(
        min_length=1,
        description="[data.bounds] with one line per axis, such as x = [0.0, 10.0], "
        'when = [2026-01-01, 2027-01-01] or "trip.start.x" = [0.0, 10.0]',
    )
    unit: Literal["row"] | UnitTable = Field("row", description=f'unit = "row" or {_UNIT}')
    neighbors: Literal["replace-one", "add-or-remove-one"] = Field(
        "replace-one", description='neighbors = "replace-one" or "add-or-remove-one"'
    )
    n: int | None = Field(None, ge=1, description="n = 2000000, the public number of rows")
    normalizer: str | None = Field(
        None, description='normalizer = "2000000" (a string), in place of a private n'
    )
    outside: Literal["drop", "clamp"] = Field("drop", description='outside = "drop" or "clamp"')
    label: LabelSection | None = Field(
        None, description='[data.label] with column and classes = ["no", "yes"]'
    )
    response: ResponseSection | None = Field(
        None, description="[data.response] with column and bounds = [-1.0, 1.0]"
    )
    group: GroupSection | None = Field(
        None, description='[data.group] with column and values = ["a", "b"]'
    )
    filter: FilterSection | None = Field(
        None, description='[data.filter] with column and values = ["done"]'
    )


class TargetSection(Section):
    """``[target]``: the learner and its public parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    kind: str = Field(description='kind = "kernel-density"')


_Whole = Annotated[int, Field(ge=1)]


class MechanismSection(Section):
    """``[mechanism]``: lattice, order, noise and confidence."""

    k: Literal["auto"] | _Whole | list[_Whole] = Field(
        "auto", description='k = "auto", k = 20 or k = [20, 30]'
    )
    h: Literal["auto"] | _Whole | list[_Whole] = Field(
        "auto", description='h = "auto", h = 4 or h = [4, 2]'
    )
    noise: Literal[
        "auto", "laplace", "spectral-laplace", "binned-laplace", "discrete-gaussian",
        "spectral-gaussian", "binned-gaussian", "laplace-advanced",
    ] = Field("auto", description=(
        'noise = "auto"; with delta = "0" "laplace", "spectral-laplace" or "binned-laplace", with '
        'a delta "discrete-gaussian", "spectral-gaussian", "binned-gaussian" or "laplace-advanced"'
    ))  # fmt: skip
    calibration: Literal["tight", "paper"] = Field(
        "tight", description='calibration = "tight" or "paper"'
    )
    beta: str = Field("0.05", description='beta = "0.05"')
    objective: Literal["typical", "certified"] = Field(
        "typical", description='objective = "typical" or "certified"'
    )
    reference: str = Field("uniform", description='reference = "uniform" or "module:name"')


class BudgetSection(Section):
    """``[budget]``: what is charged, exactly, and to whose account."""

    epsilon: str = Field(description='epsilon = "1.0" (a string: budgets are exact)')
    delta: str = Field("0", description='delta = "0" (a string: budgets are exact)')
    ledger: str = Field(description='ledger = "sqlite:///ledger.db"')
    dataset: str = Field(description='dataset = "trips-2026", the name the budget was granted to')
