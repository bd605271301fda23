"""``LabelledAnswers``: answers in the form of the points, and grids, with names and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbern.combination.base import Answer, Combination
from dbern.data.domain import Domain
from dbern.synopsis.labels import labelled, named_values
from dbern.synopsis.points import Points, like
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
        classes = self.combination.classes
        return self._named(like(points, values, self.domain, names, classes, attributes))

    def grid(self, values: FloatArray, box: Domain | None) -> xarray.DataArray:
        """Return values on a regular grid over the domain, or over a box in it."""
        name, attributes = self.metadata["name"], self._attributes
        grid = labelled(values, box or self.domain, self.combination.classes, name, attributes)
        named: xarray.DataArray = self._named(grid)
        return named

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
        if "class" in getattr(answer, "coords", ()):
            columns = self.metadata.get("columns", {})
            column = columns.get("group", columns.get("label", "class"))
            answer["class"].attrs["long_name"] = str(column)
        return answer
