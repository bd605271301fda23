"""``Answer``: a number or an array of them, where it surely lies, and what it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dbern.data.domain import Domain, TimeUnit
from dbern.errors import printable
from dbern.synopsis.points import conventional
from dbern.system import html_table
from dbern.types import FloatArray

if TYPE_CHECKING:
    from pathlib import Path

    import xarray

Target: TypeAlias = Literal["records", "smoothed"]
"""What is asked about: shares of the rows themselves, or the released function integrated."""

Interval: TypeAlias = Literal["these-data", "population"]
"""What the interval covers: the answer of the rows at hand, or of those that they were drawn of."""


_SHOWN = 60  # of the rows of a table; the others are in `to_dataset`


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a question is answered with. Print it, or take its numbers.

    With probability at least ``1 - beta`` what was asked for lies from `low` to `high`: all
    entries of an array at once.

    Attributes
    ----------
    value, low, high : float or xarray.DataArray
        The best guess and the ends of its interval.
    target : "records" or "smoothed"
    interval : "these-data" or "population"
    beta : float
    question : str
        In words.
    unit : TimeUnit, optional
        What the numbers count, where they are dates or times: they are printed as such.

    Examples
    --------
    >>> Answer(0.25, 0.2, 0.3, "records", "these-data", 0.05, "share of x up to 3")
    share of x up to 3: 0.25, from 0.2 to 0.3 with probability 0.95 (records, these data)
    """

    value: Any
    low: Any
    high: Any
    target: Target
    interval: Interval
    beta: float
    question: str
    unit: TimeUnit | None = None

    def _written(self, number: float) -> str:
        return self.unit.text(number) if self.unit else f"{number:.6g}"

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        about = f"({self.target}, {self.interval.replace('-', ' ')})"
        sure = f"with probability {1 - self.beta:.6g} {about}"
        if not hasattr(self.value, "dims"):
            value, low, high = map(self._written, (self.value, self.low, self.high))
            return printable(f"{self.question}: {value}, from {low} to {high} {sure}")
        table = (
            self.to_dataset().to_dataframe().to_string(max_rows=_SHOWN, float_format=self._written)
        )
        return printable(f"{self.question}, all at once {sure}\n{table}", keep="\n")

    def _repr_html_(self) -> str:
        sure = f"{1 - self.beta:.6g} ({self.target}, {self.interval.replace('-', ' ')})"
        rows = {"question": self.question, "with probability": sure}
        if not hasattr(self.value, "dims"):
            ends = {"value": self.value, "from": self.low, "to": self.high}
            return html_table(rows | {name: self._written(end) for name, end in ends.items()})
        table = (
            self.to_dataset().to_dataframe().to_html(max_rows=_SHOWN, float_format=self._written)
        )
        return html_table(rows) + str(table)

    def to_dataset(self) -> xarray.Dataset:
        """Return value, low and high as one labelled dataset."""
        import xarray

        return xarray.Dataset(self._numbers, attrs=self._facts)

    def to_geotiff(self, path: str | Path) -> None:
        """Write value, low and high on a grid of two axes as bands of a GeoTIFF.

        Raises
        ------
        SpecError
            For an answer that is not on a grid of two axes, evenly spaced.
        EnvironmentRefusedError
            Where the extra ``geo`` is not installed.
        """
        from dbern.synopsis.maps import write_geotiff

        write_geotiff(self._numbers, path, self._facts)

    def to_geojson(self) -> dict[str, Any]:
        """Return a level set on a grid of two axes as GeoJSON, a feature of polygons each.

        They are called ``where``: "surely", "probably", "possibly". `Distribution.mass` takes them.

        Raises
        ------
        SpecError, EnvironmentRefusedError
            As `to_geotiff`; or for another answer than a level set's.
        """
        from dbern.synopsis.maps import outlines

        sets = {"surely": self.low, "probably": self.value, "possibly": self.high}
        return outlines(sets, self._facts)

    @property
    def _how(self) -> dict[str, Any]:
        return {"max_rows": _SHOWN, "float_format": self._written}

    @property
    def _numbers(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high}

    @property
    def _facts(self) -> dict[str, Any]:
        facts = {"question": self.question, "target": self.target, "interval": self.interval}
        return {**facts, "beta": self.beta}


def labelled(
    numbers: FloatArray,
    labels: Mapping[str, Sequence[Any]],
    attributes: Mapping[str, str],
    domain: Domain,
) -> Any:
    """Return numbers with a dimension for each of the labels that has several, or one float.

    A dimension whose labels are empty is left out; so is one label that is None. Those of an axis
    of the domain have its attributes.
    """
    kept = {name: list(one) for name, one in labels.items() if list(one) != [None]}
    shape = [len(one) for one in kept.values()]
    if not kept:
        return float(np.reshape(numbers, ()))
    import xarray

    found = xarray.DataArray(np.reshape(numbers, shape), kept, list(kept), attrs=dict(attributes))
    for axis in domain.axes:
        if axis.name in kept:
            found[axis.name].attrs |= {"long_name": axis.name} | axis.attributes
    return conventional(found)
