"""Questions about a box, or a file of regions that is read a part at a time, as `dbern ask` reads.

Files are CSV of boxes, and GeoJSON of polygons.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, TextIO, TypeAlias

from dbern.ask.answer import Answer
from dbern.ask.options import QuestionOption, read_box, read_end
from dbern.ask.question import DeferredQuestion, Question, ReleasedBins, deferred
from dbern.ask.regions import Region, name_of, read_region
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError

_BATCH_BOXES = 1 << 16  # of a file
_BATCH_NUMBERS = 1 << 21  # weights of bins, or draws of noise, of a file's polygons
_DRAWS = 1024
_MAX_CHARACTERS = 1 << 26  # of a GeoJSON file, or of one of its lines
_MAX_LINE = 1 << 20  # characters of a CSV file's
_BY_LINES = (".geojsonl", ".ndjson")


@dataclass(frozen=True)
class _BoxFile:
    """CSV: its rows, one at a time, and what makes boxes of some of them; `row` names a row."""

    path: Path
    row: ClassVar[str] = "row"

    def rows(self) -> Iterator[dict[str, str]]:
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                rows = csv.DictReader(iter(lambda: file.readline(_MAX_LINE), ""))
                _require_names(self.path, rows.fieldnames or ())
                for number, row in enumerate(rows, start=1):
                    _require_cells(f"{self.path}: row {number}", row)
                    yield row
        except FileNotFoundError:
            raise SpecError(f"{self.path}: there is no such file. Check the path") from None
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SpecError(
                f"{self.path}: cannot be read as CSV ({type(error).__name__}). Write a file with "
                "columns AXIS_low and AXIS_high"
            ) from None

    def region(self, rows: Sequence[dict[str, str]], domain: Domain) -> Any:
        return {axis.name: self._bounds(rows, axis) for axis in domain.axes}

    def _bounds(self, rows: Sequence[dict[str, str]], axis: Axis) -> tuple[list[Any], list[Any]]:
        columns = []
        for side, bound in (("low", axis.low), ("high", axis.high)):
            name = f"{axis.name}_{side}"
            if name not in rows[0]:
                raise SpecError(
                    f'{self.path}: has no column "{name}". Write one, empty where the end is open'
                )
            values = [read_end(row[name]) for row in rows]
            columns.append([bound if value is None else value for value in values])
        return columns[0], columns[1]

    def name(self, row: Mapping[str, str]) -> str | None:
        return row.get("name")

    def batch_size(self, bins: int) -> int:  # noqa: ARG002 - of whatever bins
        return _BATCH_BOXES


def _require_names(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise SpecError(f"{path}: two columns have the same name. Rename one of them")


def _require_cells(where: str, row: Mapping[Any, Any]) -> None:
    """Refuse a row of fewer or more cells than there are names: which end is which?"""
    if None in row or None in row.values():
        raise SpecError(
            f"{where}: has fewer or more cells than the first line. Write one for each column, "
            "empty where the end is open"
        )


@dataclass(frozen=True)
class _ShapeFile:
    """GeoJSON, as `_BoxFile`."""

    path: Path
    row: ClassVar[str] = "feature"

    def rows(self) -> Iterator[Any]:
        """Features of GeoJSON: of the array of a collection, or one a line; or the one shape."""
        by_lines = self.path.suffix in _BY_LINES
        number, read = 0, _features_by_line if by_lines else _features_of_collection
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                for shape in read(file):
                    yield _object(shape)
                    number += 1
        except FileNotFoundError:
            raise SpecError(f"{self.path}: there is no such file. Check the path") from None
        except OSError as error:
            raise SpecError(
                f"{self.path}: cannot be read as GeoJSON ({type(error).__name__})"
            ) from None
        except (ValueError, RecursionError):
            raise SpecError(
                f"{self.path}: feature {number + 1}: cannot be read as GeoJSON"
            ) from None

    def region(self, rows: Sequence[Any], domain: Domain) -> Any:  # noqa: ARG002 - of any axes
        if len(rows) == 1 and rows[0].get("type") in ("Polygon", "MultiPolygon"):
            return rows[0]
        return {"type": "FeatureCollection", "features": rows}

    def name(self, row: Mapping[str, Any]) -> str | None:
        return name_of(row)

    def batch_size(self, bins: int) -> int:
        return max(1, _BATCH_NUMBERS // max(bins, _DRAWS))


def _object(value: Any) -> Any:
    if not hasattr(value, "keys"):
        raise ValueError("no object")
    return value


def _features_by_line(file: TextIO) -> Iterator[Any]:
    while line := file.readline(_MAX_CHARACTERS):
        if line.strip():
            yield json.loads(line)


def _features_of_collection(file: TextIO) -> Iterator[Any]:
    text = file.read(_MAX_CHARACTERS + 1)
    if len(text) > _MAX_CHARACTERS:
        raise SpecError(
            f"{file.name}: has more than {_MAX_CHARACTERS} characters. Write one feature a line, "
            "into a file whose name ends in .geojsonl: it is read in parts"
        )
    content = _object(json.loads(text))
    features = content.get("features", [content])
    yield from features if isinstance(features, list) else [features]  # which is no object


RegionFile: TypeAlias = _BoxFile | _ShapeFile


def _region_file(text: str) -> RegionFile | None:
    """Return the file that a text names, by its ending; None for any other text."""
    path = Path(text)
    if path.suffix == ".csv":
        return _BoxFile(path)
    return _ShapeFile(path) if path.suffix in (".geojson", ".json", *_BY_LINES) else None


def _first_refused(file: RegionFile, rows: Sequence[Any], domain: Domain, start: int) -> str:
    """Name the first row that is no region; or the file, where that is not what is wrong."""
    for number, row in enumerate(rows, start=start + 1):
        try:
            read_region(file.region([row], domain), domain)
        except SpecError:
            return f"{file.path}: {file.row} {number}"
    return str(file.path)


def ask_regions(
    text: str, option: QuestionOption, read: Callable[[Region], Question]
) -> Sequence[DeferredQuestion]:
    """Read a box, or a file of regions, which have equal parts of beta."""
    file = _region_file(text)
    if file is None:
        box = read_box(text, option.name)
        return [deferred(lambda: read(box))]
    return [lambda payer, beta: _ask_file(payer, beta, file, read)]


def _ask_file(
    payer: ReleasedBins, beta: Fraction, file: RegionFile, read: Callable[[Region], Question]
) -> Iterator[Answer]:
    total, done = sum(1 for _ in file.rows()), 0
    if not total:
        raise SpecError(f"{file.path}: there is no {file.row} in it. Write one at least")
    regions, batch_size = file.rows(), file.batch_size(payer.measures[0].values.size)
    while rows := list(itertools.islice(regions, batch_size)):
        try:
            region = file.region(rows, payer.domain)
            question = read(region)
            named = region is not rows[0]
            if named:
                question = replace(question, labels={"region": range(len(rows))})
            answer = question.ask(payer, str(beta * len(rows) / total))
        except SpecError as error:
            raise SpecError(f"{_first_refused(file, rows, payer.domain, done)}: {error}") from None
        names = [file.name(row) or i for i, row in enumerate(rows, start=done)]
        yield _with_names(answer, names) if named else answer
        done += len(rows)


def _with_names(answer: Answer, names: Sequence[str | int]) -> Answer:
    """Return the answer with names of regions, or their numbers, as coordinates."""
    arrays = {
        key: getattr(answer, key).assign_coords(region=list(names))
        for key in ("value", "low", "high")
    }
    return replace(answer, **arrays)
