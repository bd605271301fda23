"""Sections of a spec: the keys of its TOML, one by one.

Rules between keys, and the limits of this version, are checked by `dbern.planning.spec`.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from dbern.data.domain import (
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_TEXT,
    LONGEST_TITLE,
    LONGEST_UNITS,
)
from dbern.data.times import from_text
from dbern.errors import printable
from dbern.privacy.families import FAMILIES
from dbern.reconstruct import noise_families, noise_names
from dbern.targets.parameters import Section

_Filled = Annotated[str, Field(pattern=r"\S")]
_Column = Annotated[str, Field(max_length=LONGEST_NAME)]
_UNIT = 'unit = { column = "user", max_contributions = 8 }'
_Category = bool | int | Annotated[str, Field(max_length=LONGEST_TEXT)]
_Bound = Annotated[float | datetime | date, BeforeValidator(from_text)]
_Bounds = Annotated[list[_Bound], Field(min_length=2, max_length=2)]
_Whole = Annotated[int, Field(ge=1)]


def needs_delta(noise: str) -> bool | None:
    """Whether a noise needs a delta; None for "auto", which has none where there is none."""
    families = noise_families(noise)
    return families[0].with_delta if families else None


def _noises(*, with_delta: bool) -> str:
    ours = (family for family in FAMILIES if family.with_delta is with_delta)
    names = dict.fromkeys(name for family in ours for name in noise_names(family).values())
    return ", ".join(f'"{name}"' for name in names)


def _known_noise(noise: str) -> str:
    if noise != "auto" and not noise_families(noise):
        raise PydanticCustomError("unknown", "is unknown")
    return noise


def _one_line(text: str) -> str:
    if not text.strip() or printable(text) != text:
        raise PydanticCustomError("one_line", "is no line of text")
    return text


_Title = Annotated[str, Field(max_length=LONGEST_TITLE), AfterValidator(_one_line)]


_Description = Annotated[str, Field(max_length=LONGEST_DESCRIPTION), AfterValidator(_one_line)]


_Units = Annotated[str, Field(max_length=LONGEST_UNITS), AfterValidator(_one_line)]


class ReleaseSection(Section):
    """``[release]``: what it is called and where it goes."""

    name: str = Field(description='name = "trip-density"')
    output: _Filled = Field(description='output = "out/trip-density.zarr"')
    title: _Title | None = Field(None, description='title = "Delay of flights by distance"')
    description: _Description | None = Field(
        None, description='description = "Flights of 2001, one row each"'
    )


class UnitTable(Section):
    """``unit = { column = .., max_contributions = .. }``."""

    column: str = Field(min_length=1, description=_UNIT)
    max_contributions: int = Field(description=_UNIT)


class ValuesTable(Section):
    """``column = { values = [..] }``: an axis of categories, and the public list of them."""

    values: list[_Category]


class LabelSection(Section):
    """``[data.label]``: the column of classes, and the public list of them."""

    column: _Column = Field(description='column = "churned"')
    classes: list[_Category] = Field(
        min_length=2, description='classes = ["no", "yes"]; with two, the second is +1'
    )


class ResponseSection(Section):
    """``[data.response]``: the column of responses, and their public bounds."""

    column: _Column = Field(description='column = "delay"')
    bounds: _Bounds = Field(description="bounds = [-1.0, 1.0]")


class GroupSection(Section):
    """``[data.group]``: the column of groups, and the public list of them."""

    column: _Column = Field(description='column = "carrier"')
    values: list[_Category] = Field(min_length=1, description='values = ["AA", "UA"]')


class FilterSection(Section):
    """``[data.filter]``: rows whose value is not in the public list count as missing records."""

    column: _Column = Field(description='column = "status"')
    values: list[_Category] = Field(min_length=1, description='values = ["done"]')


class DataSection(Section):
    """``[data]``: which records, and the public facts about them."""

    source: str | None = Field(
        None, description='source = "data/trips/*.parquet", unless a data frame is given as data='
    )
    bounds: dict[str, _Bounds | ValuesTable] = Field(
        min_length=1,
        description="[data.bounds] with one line per axis, such as x = [0.0, 10.0], "
        'when = [2026-01-01, 2027-01-01], "trip.start.x" = [0.0, 10.0], of times of day '
        'at = [0.0, 24.0] or, of categories, state = { values = ["NY", "CA"] } with whole numbers, '
        "true and false, or texts",
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
    units: dict[str, _Units] | None = Field(
        None, min_length=1, description='[data.units] with one line per column, as x = "miles"'
    )
    resolution: dict[str, float] | None = Field(
        None,
        min_length=1,
        description="[data.resolution] with one line per axis that counts in halves or whole "
        "numbers, as x = 0.5; in days of dates, in seconds of times",
    )


class TargetSection(Section):
    """``[target]``: the learner and its public parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    kind: str = Field(description='kind = "kernel-density"')


class MechanismSection(Section):
    """``[mechanism]``: lattice, order, noise and confidence."""

    k: Literal["auto"] | _Whole | list[_Whole] = Field(
        "auto", description='k = "auto", k = 20 or k = [20, 30]'
    )
    h: Literal["auto"] | _Whole | list[_Whole] = Field(
        "auto", description='h = "auto", h = 4 or h = [4, 2]'
    )
    noise: Annotated[str, AfterValidator(_known_noise)] = Field(
        "auto",
        description=f'noise = "auto"; with delta = "0" {_noises(with_delta=False)}; with a delta '
        f"{_noises(with_delta=True)}; spectral ones are of solved functions",
    )
    calibration: Literal["tight", "paper"] = Field(
        "tight", description='calibration = "tight" or "paper"'
    )
    beta: str = Field("0.05", description='beta = "0.05"')
    objective: Literal["typical", "certified"] = Field(
        "typical", description='objective = "typical" or "certified"'
    )
    reference: str = Field("uniform", description='reference = "uniform" or "module:name"')
    questions: list[Literal["density", "mass", "cdf", "quantile"]] | None = Field(
        None, min_length=1, description='questions = ["density", "mass", "cdf", "quantile"]'
    )


class BudgetSection(Section):
    """``[budget]``: what is charged, exactly, and to whose account."""

    epsilon: str = Field(description='epsilon = "1.0" (a string: budgets are exact)')
    delta: str = Field("0", description='delta = "0" (a string: budgets are exact)')
    ledger: _Filled = Field(description='ledger = "sqlite:///ledger.db"')
    dataset: _Filled = Field(
        description='dataset = "trips-2026", the name the budget was granted to'
    )
