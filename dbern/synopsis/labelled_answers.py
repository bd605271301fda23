"""``LabelledAnswers``: answers in the form of the points, and grids, with names and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbern.combination.base import Answer, Combination
from dbern.data.domain import Domain
from dbern.synopsis.labels import labelled, named_values
from dbern.synopsis.points import Points, gridded, like
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class LabelledAnswers:
    """Names that a function's values have, by its release's metadata."""

    combination: Combination
    domain: Domain
    metadata: Mapping[str, Any]

    def like(self, points: Points, values: Any, answer: Answer = "value") -> Any:
        """Return values (m,) or (m, classes) in the form of the points."""
        names = self.combination.columns_of(answer)
        attributes = self._attributes if answer == "value" else None
        return self._named(like(points, values, self.domain, names, self._labels, attributes))

    def gridded(self, points: Points, values: FloatArray) -> Any:
        """Return values (m,) or (m, classes) on the grid that the points span, if any."""
        return self._named(gridded(points, values, self.domain, self._labels))

    def grid(self, values: FloatArray, box: Domain | None) -> xarray.DataArray:
        """Return values on a regular grid over the domain, or over a box in it."""
        name, attributes = self.metadata["name"], self._attributes
        grid = labelled(values, box or self.domain, self._labels, name, attributes)
        named: xarray.DataArray = self._named(grid)
        return named

    @property
    def _labels(self) -> dict[str, Sequence[Any]]:
        """Dimension of several values: groups have functions, and classes are told apart."""
        grouped = self.combination.meaning(self.metadata["target"]) in ("density", "response")
        grouped &= "group" not in self.domain.names  # an axis has that name
        return {"group" if grouped else "class": self.combination.classes}

    @property
    def _attributes(self) -> dict[str, Any]:
        """Attributes of values, by the CF conventions where these have a word."""
        name, units = named_values(self.combination, self.domain, self.metadata)
        attributes = {"long_name": name} | ({"units": units} if units else {})
        for key in ("title", "description"):
            attributes |= {key: self.metadata[key]} if key in self.metadata else {}
        done = self.metadata.get("post_processing")  # netCDF 3 has no lists
        return attributes | ({"post_processing": ", ".join(done)} if done else {})

    def _named(self, answer: Any) -> Any:
        """Name the column that classes or groups are values of."""
        ((role, _),) = self._labels.items()
        if role in getattr(answer, "coords", ()):
            columns = self.metadata.get("columns", {})
            column = columns.get("group", columns.get("label", role))
            answer[role].attrs["long_name"] = str(column)
        return answer
