"""``LabelledAnswers``: answers in the form of the points, and grids, with names and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbern.combination.base import Answer, Combination
from dbern.data.domain import Domain
from dbern.synopsis.labels import attributes_of, groups_column, labelled
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
        return attributes_of(self.combination, self.domain, self.metadata)

    def _named(self, answer: Any) -> Any:
        if "class" in getattr(answer, "coords", ()):
            answer["class"].attrs["long_name"] = groups_column(self.metadata)
        return answer
