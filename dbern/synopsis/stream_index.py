"""``stream.json``: what the nodes of a stream in a folder have in common, for readers.

It is public, and is written again whenever a night closes; each node says the same of itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from dbern.data.horizon import Horizon
from dbern.data.storage import Location, location_at, storage_errors
from dbern.model.strict import StrictModel, Text, or_value_error, parse_object

INDEX = "stream.json"


class StreamIndex(StrictModel):
    """The horizon of a stream, and its abandoned nights, by their numbers."""

    format: Literal["dbern-stream"]
    format_version: Literal[1]
    dataset: Text
    name: Text
    first: date = Field(strict=False)
    horizon: int
    levels: list[int]
    abandoned: list[int]

    @classmethod
    def of(cls, dataset: str, name: str, horizon: Horizon, abandoned: Iterable[int]) -> Self:
        """Return the index of a stream."""
        return cls.ready()(
            format="dbern-stream",
            format_version=1,
            dataset=dataset,
            name=name,
            first=horizon.first,
            horizon=horizon.count,
            levels=list(horizon.levels),
            abandoned=sorted(abandoned),
        )

    @classmethod
    def read(cls, location: Location) -> Self | None:
        """Return the index at a location, or None where there is none."""
        with storage_errors(location, "read"):
            try:
                text = location.read(INDEX)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return parse_object(cls, text, str(location), INDEX)

    def write(self, url: str | Path) -> None:
        """Write the index, unless it is there already."""
        location = location_at(url)
        if self.read(location) != self:
            with storage_errors(location):
                location.replace(INDEX, json.dumps(self.to_json(), indent=2).encode() + b"\n")

    @model_validator(mode="after")
    def _require_horizon(self) -> Self:
        or_value_error(self.to_horizon)
        return self

    def to_horizon(self) -> Horizon:
        """Return the horizon."""
        return Horizon(self.first, self.horizon, tuple(self.levels))
