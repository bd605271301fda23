"""Public knowledge of a record: axes, bounds and the map to the unit cube."""

from __future__ import annotations

import enum
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dbern.data.resolution import MAX_STEPS, Multiples, decimal_of
from dbern.data.times import TimeUnit, are_hours
from dbern.errors import SpecError
from dbern.system import format_number
from dbern.types import BoolArray, FloatArray, Int64Array

Category: TypeAlias = str | int | bool

MOST_VALUES = 1000
"""Most values of an axis of categories."""

MIN_NUMBER, MAX_NUMBER = 1e-150, 1e150
"""Range of numbers that readers of a release compute with: their squares are floats."""

OTHER_UNITS = (
    "data.bounds: their volume, or the noise, is of numbers that 64-bit floats do not compute "
    "with. Count the columns in other units"
)
"""Refusal of a release with numbers outside that range."""

_MIN_WIDTH = 1e-100
PLAIN_NAME = re.compile(r"(?!__|\.)[^/\\\x00-\x1f]+")
"""One plain part of a path in a store."""
_MAX_NAME_BYTES = 200  # bytes of an axis's name: arrays are files that are named after it
LONGEST_NAME, LONGEST_TITLE, LONGEST_DESCRIPTION, LONGEST_UNITS = 255, 200, 2000, 60
"""Letters of a column's name and of the texts of a spec that are stored with a release."""
LONGEST_TEXT = 10_000
"""Letters of any other text that a store holds, such as a listed value."""

_RESERVED = ("coefficients", "spectral", "binned", "value", "zarr.json")


class Outside(enum.Enum):
    """Treatment of a finite value outside its public bounds."""

    DROP = "drop"
    CLAMP = "clamp"


@dataclass(frozen=True)
class Axis:
    """One column and its public bounds, in data units: of dates and times, those of `unit`.

    With `categories` a value is its position in that public list, and `of_values` makes the axis.
    `units` are those that a spec states of numbers, for people. With a `resolution` records are
    rounded to its multiples from the lower bound on.

    Raises SpecError for bounds that are not finite, reversed, or too close to tell apart, or that
    are no multiples of the resolution apart.
    """

    name: str
    low: float
    high: float
    unit: TimeUnit | None = None
    categories: tuple[Category, ...] = ()
    units: str = ""
    resolution: float | None = None

    def __post_init__(self) -> None:
        where = f"data.bounds.{self.name}"
        if self.categories and (self.low, self.high) != (0.0, len(self.categories) - 1.0):
            raise SpecError(
                f"{where}: a list of values has positions from 0 to {len(self.categories) - 1}. "
                f'Write {self.name} = {{ values = ["a", "b"] }}.'
            )
        long = len(self.name.encode(errors="surrogatepass")) > _MAX_NAME_BYTES
        if long or not PLAIN_NAME.fullmatch(self.name) or self.name in _RESERVED:
            raise SpecError(
                f"{where}: this name cannot be an axis of a synopsis. Rename the column: at most "
                f"{_MAX_NAME_BYTES} bytes, no slash, no leading '.' or '__', and none of "
                f"{', '.join(_RESERVED)}."
            )
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise SpecError(f"{where}: both bounds must be finite. Write {self.name} = [0.0, 1.0].")
        if not self.low < self.high:
            raise SpecError(
                f"{where}: the lower bound must be below the upper one. "
                f"Write {self.name} = [low, high]."
            )
        told_apart = (
            self.low + self.width * 1e-9 > self.low and self.high > self.high - self.width * 1e-9
        )
        if not (_MIN_WIDTH <= self.width <= 1 / _MIN_WIDTH and told_apart):
            raise SpecError(
                f"{where}: the bounds are too far apart or too close for 64-bit floats. "
                "Rescale the column."
            )
        _ = self.multiples  # refuses what the bounds are no multiples of

    @classmethod
    def of_values(cls, name: str, values: Sequence[Category]) -> Axis:
        """Return the axis of a public list of values.

        Raises SpecError for fewer than two values, more than `MOST_VALUES`, or a value that is
        listed twice.
        """
        where = f"data.bounds.{name}.values"
        if len(values) < 2:
            raise SpecError(
                f"{where}: one value tells no records apart. List all values of the column, or "
                "leave it out and write [data.filter]."
            )
        if len(values) > MOST_VALUES:
            raise SpecError(
                f"{where}: has {len(values)} values, and at most {MOST_VALUES} are available in "
                "this version. List the most frequent ones, or write coarser categories."
            )
        axis = cls(name, 0.0, len(values) - 1.0, categories=tuple(values))
        _ = axis.column  # refuses what is listed twice
        return axis

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Axis:
        """Read what `to_dict` wrote."""
        unit = TimeUnit(content["unit"]) if "unit" in content else None
        if "values" in content:
            return cls.of_values(content["name"], content["values"])
        resolution = content.get("resolution")
        return cls(content["name"], content["low"], content["high"], unit, resolution=resolution)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; a unit, values or a resolution only where there are some."""
        content: dict[str, Any] = {"name": self.name, "low": self.low, "high": self.high}
        content |= {"values": list(self.categories)} if self.categories else {}
        content |= {} if self.resolution is None else {"resolution": self.resolution}
        return content | ({"unit": self.unit.value} if self.unit else {})

    @property
    def width(self) -> float:
        """Length of the axis in data units."""
        return self.high - self.low

    @cached_property
    def multiples(self) -> Multiples | None:
        """Values that records are rounded to, if any.

        Raises SpecError where the bounds are not a whole number of them apart, or of too many.
        """
        if self.resolution is None:
            return None
        key = f"data.resolution.{self.name}"
        if self.categories:
            raise SpecError(f"{key}: a list of values counts in nothing. Leave it out")
        if not (math.isfinite(self.resolution) and self.resolution > 0):
            raise SpecError(f"{key}: must be a number above 0. Write {self.name} = 0.5")
        low, high, step = map(decimal_of, (self.low, self.high, self.resolution))
        count = (high - low) / step
        if count > MAX_STEPS:
            raise SpecError(
                f"{key}: the bounds {self._bounds_text(high)} are more than {MAX_STEPS} times "
                f"{self._step_text} apart. Write a larger {self.name}, or leave it out"
            )
        if count.denominator != 1:
            nearer = self._bounds_text(low + int(count) * step)
            bounds = f"bounds as {self.name} = {nearer}, or another resolution"
            raise SpecError(
                f"{key}: the bounds {self._bounds_text(high)} are not a whole number of times "
                f"{self._step_text} apart. Write {bounds if count > 1 else 'a smaller one'}"
            )
        return Multiples(low, step, int(count))

    def _bounds_text(self, high: Fraction) -> str:
        bounds = self.low, float(high)
        return f"[{', '.join(map(self.unit.text if self.unit else repr, bounds))}]"

    @property
    def _step_text(self) -> str:
        return f"{self.resolution:.12g}" + (f" {self.unit.name.lower()}" if self.unit else "")

    def at(self, positions: FloatArray) -> FloatArray:
        """Return positions of the unit interval in data units, never outside the bounds.

        ``low + 1 * (high - low)`` need not be `high`, and what is above it has no value.
        """
        inner = np.minimum(self.low + positions * self.width, self.high)
        return np.where(positions == 1.0, self.high, inner)

    def text(self, value: float) -> str:
        """Return a point of the axis in words: a number, or a date or time."""
        return self.unit.text(value) if self.unit else format_number(value)

    def plain_text(self, value: float) -> str:
        """Return a point of the axis as commands and specs read it."""
        return self.unit.text(value) if self.unit else f"{value:.12g}"

    @property
    def unit_suffix(self) -> str:
        """Unit of lengths along an axis of times, in parentheses; else nothing."""
        return f" ({self.unit.name.lower()})" if self.unit else ""

    @property
    def attributes(self) -> dict[str, str]:
        """Units of its numbers, as in the CF conventions: xarray.decode_cf makes dates of some."""
        units = self.unit.value if self.unit else self.units
        return {"units": units} if units else {}

    @property
    def label(self) -> str:
        """Name for people, with its units or the zone of times."""
        return named_with(self.name, "UTC" if self.unit is TimeUnit.SECONDS else self.units)

    @property
    def column(self) -> Column:
        """The column that is read."""
        key = f"data.bounds.{self.name}" + (".values" if self.categories else "")
        of_hours = are_hours(self.low, self.high, self.unit)
        names = self.name, key, self.categories, self.unit
        return Column(*names, multiples=self.multiples, of_hours=of_hours)


def rounded_text(axes: Sequence[Axis]) -> str:
    """Write what rows are rounded to on some axes of several, or on the only one; if they are."""
    texts = {axis.name: axis._step_text for axis in axes if axis.multiples is not None}
    if len(axes) == 1:
        return "".join(f"rounded to {text}" for text in texts.values())
    steps = " and ".join(f"{text} in {name}" for name, text in texts.items())
    return f"rounded to {steps}" if steps else ""


def volume_unit(axes: Sequence[Axis], *, labels: bool = False) -> str:
    """Return the unit of a density's volume in words: "unit of x and y", of dates "day of when"."""
    names = [axis.label if labels else axis.name for axis in axes]
    if not any(axis.unit for axis in axes):
        return f"unit of {' and '.join(names)}"
    units = [axis.unit.name.lower().removesuffix("s") if axis.unit else "unit" for axis in axes]
    return " and ".join(f"{unit} of {name}" for unit, name in zip(units, names, strict=True))


def named_with(name: str, units: str) -> str:
    """Return a column's name with its units in parentheses, where it has some."""
    return f"{name} ({units})" if units else name


class FeatureShape(NamedTuple):
    """Columns of `Domain.features`, `axes` of them, and a `constant` one after them unless 0."""

    axes: int
    constant: float


@dataclass(frozen=True)
class Domain:
    """The box of the public bounds; axis order is the order of every point and lattice.

    Examples
    --------
    >>> box = Domain((Axis("x", 0.0, 10.0), Axis("y", -1.0, 1.0)))
    >>> box.names, box.volume
    (('x', 'y'), 20.0)
    """

    axes: tuple[Axis, ...]
    outside: Outside = Outside.DROP

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in axis order."""
        return tuple(axis.name for axis in self.axes)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a record that are read."""
        return tuple(axis.column for axis in self.axes)

    @property
    def dimensions(self) -> int:
        """Number of axes, ``l`` in the paper."""
        return len(self.axes)

    @property
    def volume(self) -> float:
        """Volume of the box in data units: a density there is the unit-cube density over this."""
        return math.prod(axis.width for axis in self.axes)

    def density_unit(self, stretch: float = 1.0) -> float:
        """One over volume times `stretch`: what a unit-cube density is multiplied by.

        Raises
        ------
        SpecError
            Where readers cannot compute with it.
        """
        if not MIN_NUMBER <= self.volume <= MAX_NUMBER:
            raise SpecError(OTHER_UNITS)
        return 1 / (self.volume * stretch)

    def to_unit(self, points: FloatArray) -> FloatArray:
        """Map points (m, l) affinely to the unit cube; what lies outside stays outside."""
        low, _, width = self._ends
        return np.asarray((points - low) / width)

    def inside(self, points: FloatArray) -> BoolArray:
        """Return which points (m, l), in data units, lie in the closed box (NaN does not)."""
        low, high, _ = self._ends
        return np.asarray(((points >= low) & (points <= high)).all(axis=-1))

    @cached_property
    def _ends(self) -> FloatArray:
        ends = [(axis.low, axis.high, axis.width) for axis in self.axes]
        return np.reshape(ends, (-1, 3)).T.astype(np.float64, order="C")

    def bounded(self, columns: Mapping[str, FloatArray]) -> tuple[BoolArray, FloatArray]:
        """Return which records count (m,), and their unit-cube positions (m', l).

        A record with a value that is null, NaN or infinite is a missing record, and so is one
        outside the bounds under ``drop``. All arithmetic is single IEEE operations, so a record
        maps to the same position on every host.
        """
        points = np.column_stack([columns[name] for name in self.names])
        valid = np.asarray(np.isfinite(points).all(axis=1))
        if self.outside is Outside.CLAMP:
            low, high, _ = self._ends
            points = np.clip(points, low, high)
        else:
            valid &= self.inside(points)
        return valid, np.clip(self.to_unit(points[valid]), 0.0, 1.0)

    def axis(self, index: int) -> Domain:
        """Return the interval of one axis."""
        return Domain((self.axes[index],), self.outside)

    @property
    def numeric(self) -> tuple[Axis, ...]:
        """The axes that are numbers, not categories."""
        return tuple(axis for axis in self.axes if not axis.categories)

    @property
    def categorical(self) -> tuple[Axis, ...]:
        """The axes that are categories."""
        return tuple(axis for axis in self.axes if axis.categories)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of listed values, one for each axis of categories."""
        return tuple(len(axis.categories) for axis in self.categorical)

    def parted(self, unit: FloatArray) -> tuple[Int64Array, FloatArray]:
        """Split positions in the unit cube (m, l) into indices of listed values and numbers."""
        listed = np.array([bool(axis.categories) for axis in self.axes])
        widths = np.array([axis.width for axis in self.categorical])
        return np.rint(unit[:, listed] * widths).astype(np.int64), unit[:, ~listed]

    def features(self, points: FloatArray) -> FloatArray:
        """Return points (..., l) as 0 or 1 for each listed value, and then the unit interval.

        Examples
        --------
        >>> box = Domain((Axis("x", 0.0, 10.0), Axis.of_values("sex", ["Female", "Male"])))
        >>> box.features(np.array([[2.5, 1.0]])).tolist()
        [[0.0, 1.0, 0.25]]
        """
        unit = self.to_unit(points)
        if not self.categorical:
            return unit
        columns = [
            (points[..., [i]] == np.arange(len(axis.categories))).astype(np.float64)
            for i, axis in enumerate(self.axes)
            if axis.categories
        ]
        columns += [unit[..., [i]] for i, axis in enumerate(self.axes) if not axis.categories]
        return np.concatenate(columns, axis=-1)


@dataclass(frozen=True)
class Column:
    """A column to read: numbers, or with `categories` the position of its value among them.

    `key` is where the spec names it; `unit` is what dates and times are counted in. With `ids` the
    values, numbers or text, only tell apart what is not equal, as two floats each. Those of
    records are rounded to its `multiples`, if any. `of_hours`: its bounds are hours of a day, so
    that values may be times of day.
    """

    name: str
    key: str
    categories: tuple[Category, ...] = ()
    unit: TimeUnit | None = None
    ids: bool = False
    multiples: Multiples | None = None
    of_hours: bool = False

    def __post_init__(self) -> None:
        if len(set(self.categories)) < len(self.categories):
            raise SpecError(f"{self.key}: a value is listed twice. Write each value once.")


@dataclass(frozen=True)
class Response:
    """A numeric column and its public bounds: values outside are clamped to them."""

    name: str
    low: float
    high: float
    unit: TimeUnit | None = None

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        # Bounds that are nearly one have no half-width to divide by.
        largest = max(abs(self.low), abs(self.high))
        if not (
            finite
            and self.low < self.high
            and self.radius >= _MIN_WIDTH
            and largest <= 1 / _MIN_WIDTH
        ):
            raise SpecError(
                "data.response.bounds: must be two finite numbers up to 1e100, the lower first. "
                "Write bounds = [-1.0, 1.0]."
            )

    @property
    def middle(self) -> float:
        """Center of the bounds."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """Half their distance, rounded outward: no clamped value is farther from the middle."""
        return (self.high - self.low) / 2 * (1 + 2.0**-50)

    @property
    def column(self) -> Column:
        """The column that is read."""
        of_hours = are_hours(self.low, self.high, self.unit)
        return Column(self.name, "data.response.column", unit=self.unit, of_hours=of_hours)


@dataclass(frozen=True)
class RecordSchema:
    """Columns of a record, as the spec has them: axes, and a label, response or group, if any.

    A record whose value of `filter` is not one of its categories is a missing record, and so is
    one without an id of its `unit` of privacy, where that is not the record.
    """

    domain: Domain
    label: Column | None = None
    response: Response | None = None
    group: Column | None = None
    filter: Column | None = None
    unit: Column | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that is read."""
        response = self.response and self.response.column
        others = (self.label, response, self.group, self.filter, self.unit)
        return self.domain.columns + tuple(column for column in others if column)

    @property
    def classes(self) -> Column:
        """The label; refused where the spec has none."""
        if self.label is None:
            raise SpecError(
                "data.label: is missing. Write [data.label] with column and "
                'classes = ["no", "yes"].'
            )
        return self.label

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            twice, _ = Counter(names).most_common(1)[0]
            raise SpecError(
                f'data: the column "{twice}" has two roles. Write it once among bounds, label, '
                "response, group, filter and unit."
            )
