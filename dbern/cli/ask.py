"""``dbern ask``: shares, counts, quantiles and means of the rows, each with its interval."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from dbern.cli.output import common, stdout_refusals
from dbern.cli.synopses import SYNOPSIS
from dbern.errors import SpecError, printable

if TYPE_CHECKING:
    import pandas as pd

    from dbern.data.domain import Axis, Domain
    from dbern.synopsis.questions.answers import Answer, Target
    from dbern.synopsis.questions.distribution import Distribution

_ENDS = ("value", "low", "high")
_COLUMNS = ("question", "region", "group", "quantile", "place", *_ENDS, "likely_error")
_AT_ONCE = 1 << 16  # boxes of a file
_NUMBERS = 1 << 21  # weights of bins, or draws of noise, of a file's polygons
_DRAWS = 1024
_LONGEST = 1 << 26  # characters of a GeoJSON file, or of one of its lines

_Asked = Callable[["Distribution", Fraction], Iterator["Answer"]]
"""From what is asked and its part of beta to answers."""


@click.command()
@SYNOPSIS
@click.option(
    "--mass",
    "masses",
    multiple=True,
    metavar="REGION",
    help='Share of the rows in a box such as "x=3..7,y=..5", or in each of the regions of a file: '
    "CSV with columns AXIS_low and AXIS_high, GeoJSON, or a line each of GeoJSON (.geojsonl), read "
    "in parts. May be repeated, as those below.",
)
@click.option("--count", "counts", multiple=True, metavar="REGION", help="How many rows.")
@click.option(
    "--quantile",
    "quantiles",
    multiple=True,
    metavar="AXIS=LEVELS",
    help='Quantiles of an axis, such as "x=.1,.5,.9".',
)
@click.option(
    "--cdf", "cdfs", multiple=True, metavar="AXIS=PLACES", help='Shares up to places, as "x=2,5".'
)
@click.option(
    "--marginal", "marginals", multiple=True, metavar="AXIS=PLACES", help="Density of one axis."
)
@click.option(
    "--density", "densities", multiple=True, metavar="POINT", help='The density at "x=3,y=5".'
)
@click.option("--mean", is_flag=True, help="The mean of each axis.")
@click.option("--cov", is_flag=True, help="The covariance of each two axes.")
@click.option("--correlation", is_flag=True, help="The correlation of each two axes.")
@click.option("--given", metavar="BOX", help="Only of the rows in a box, of other axes.")
@click.option(
    "--target",
    type=click.Choice(["records", "smoothed"]),
    default="records",
    show_default=True,
    help="What shares, counts and quantiles are about: the rows themselves, or the released "
    "density, in which each row is a kernel: narrower at sharp edges, but no share of rows.",
)
@click.option(
    "--beta",
    default="0.05",
    show_default=True,
    help="One minus the confidence of all answers at once.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print one line an answer, as they are found.")
@common
def ask(
    synopsis_path: str,
    masses: Sequence[str],
    counts: Sequence[str],
    quantiles: Sequence[str],
    cdfs: Sequence[str],
    marginals: Sequence[str],
    densities: Sequence[str],
    mean: bool,
    cov: bool,
    correlation: bool,
    given: str | None,
    target: Target,
    beta: str,
    as_csv: bool,
    as_json: bool,
) -> tuple[Any, str] | None:
    """Ask what the rows are like: shares, quantiles, densities.

    Each answer has an interval. All of them hold at once with probability 1 - beta, for the rows
    that were released; nothing is read but the synopsis, as often as you like.
    """
    if as_csv and as_json:
        raise click.UsageError("write either --csv or --json")
    from dbern.synopsis.points import confidence
    from dbern.synopsis.reader import open_synopsis

    distribution = open_synopsis(synopsis_path).distribution()
    axes = distribution.domain.axes
    where = None if given is None else _box(given, "--given")
    asked = [_about(text, "mass", where, target) for text in masses]
    asked += [_about(text, "count", where, target) for text in counts]
    asked += [_along(text, "quantile", where, {"target": target}) for text in quantiles]
    asked += [_along(text, "cdf", where, {"target": target}) for text in cdfs]
    asked += [_along(text, "marginal", where, {}) for text in marginals]
    asked += [_density(text, where) for text in densities]
    free = [axis.name for axis in axes if axis.name not in (where or {})]
    asked += [_of_axes("mean", [name], where) for name in free if mean]
    for question in ["cov"] * cov + ["correlation"] * correlation:
        asked += [_of_axes(question, two, where) for two in itertools.combinations(free, 2)]
    if not asked:
        raise click.UsageError(
            "write at least one of --mass, --count, --quantile, --cdf, --marginal, --density, "
            "--mean, --cov and --correlation"
        )
    whole = confidence(beta)
    with distribution.confidence(beta) as together:
        answers = itertools.chain.from_iterable(one(together, whole / len(asked)) for one in asked)
        if as_csv:
            _print(answers)
            return None
        found = list(answers)
    text = "\n".join(map(str, found))
    return {"beta": beta, "questions": [_content(answer) for answer in found]}, text


def _content(answer: Answer) -> dict[str, Any]:
    facts = {key: getattr(answer, key) for key in ("question", "target", "interval", "note")}
    return facts | {"answers": _table(answer).drop(columns="question").to_dict("records")}


def _print(answers: Iterator[Answer]) -> None:
    for place, answer in enumerate(answers):
        table = _table(answer)
        places = [name for name in table if name not in (*_COLUMNS, "point")]  # an axis's
        table = table.rename(columns=dict.fromkeys(places, "place")).reindex(columns=_COLUMNS)
        with stdout_refusals():
            table.map(_csv_cell).to_csv(sys.stdout, index=False, header=place == 0)
            sys.stdout.flush()


def _csv_cell(value: Any) -> Any:
    """Write out what a terminal would obey, and quote what a spreadsheet would compute."""
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else "") + printable(value)


def _table(answer: Answer) -> pd.DataFrame:
    labelled = answer.to_dataset().expand_dims("answer")
    table = labelled.to_dataframe().reset_index().drop(columns="answer")
    for name in table.select_dtypes("datetime"):
        table[name] = table[name].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    if answer.unit:
        table = table.assign(**{end: table[end].map(answer.unit.text) for end in _ENDS})
    table.insert(0, "question", answer.question)
    return table


# --- What is asked


def _along(text: str, question: str, given: Any, target: Mapping[str, Any]) -> _Asked:
    """Ask about levels or points of an axis, which may be dates."""
    name, _, numbers = text.partition("=")
    read, what = (float, "LEVELS") if question == "quantile" else (_end, "PLACES")
    try:
        parts: list[Any] = [read(one) for one in numbers.split(",")]
    except ValueError:
        parts = []
    if not parts or None in parts:
        raise SpecError(f'--{question}: "{text}" is none. Write AXIS={what}, such as x=.5')

    def answers(asked: Distribution, beta: Fraction) -> Iterator[Answer]:
        if question != "cdf":
            yield getattr(asked, question)(parts, name, given=given, beta=str(beta), **target)
            return
        for place in parts:
            box, part = {name: (None, place)}, str(beta / len(parts))
            yield asked.mass(box, given=given, beta=part, **target)

    return answers


def _density(text: str, given: Any) -> _Asked:
    if given is not None:
        raise SpecError("--given: the density at points has no condition. Ask for --marginal")
    pairs = [part.partition("=") for part in text.split(",")]
    point = {name.strip(): [_end(value)] for name, _, value in pairs}
    if [None] in point.values():
        raise SpecError(f'--density: "{text}" is no point. Write one such as x=3,y=5')

    def answers(asked: Distribution, beta: Fraction) -> Iterator[Answer]:
        found = asked.density(point, beta=str(beta))
        yield dataclasses.replace(found, question=f"{found.question}, at {text}")

    return answers


def _of_axes(question: str, names: Sequence[str], given: Any) -> _Asked:
    def answers(asked: Distribution, beta: Fraction) -> Iterator[Answer]:
        yield getattr(asked, question)(*names, given=given, beta=str(beta))

    return answers


def _about(text: str, question: str, given: Any, target: Target) -> _Asked:
    """Ask about one box, or a file's regions, a part at a time: each has its part of beta."""
    if question == "count" and given is not None:
        raise SpecError("--given: counts have no condition. Write it into the box of --count")
    settings = {"target": target} | ({} if question == "count" else {"given": given})
    path = Path(text)
    kind = _KINDS.get(path.suffix)
    box = _box(text, f"--{question}") if kind is None else {}

    def answers(asked: Distribution, beta: Fraction) -> Iterator[Answer]:
        ask_for = getattr(asked, question)
        if kind is None:
            yield ask_for(box, beta=str(beta), **settings)
            return
        total, done = sum(1 for _ in kind.rows(path)), 0
        if not total:
            raise SpecError(f"{path}: there is no {kind.row} in it. Write one at least")
        regions, at_once = kind.rows(path), kind.at_once(asked.measures[0].values.size)
        while rows := list(itertools.islice(regions, at_once)):
            part = beta * len(rows) / total
            try:
                region = kind.region(rows, asked.domain, path)
                answer = ask_for(region, beta=str(part), **settings)
            except SpecError as error:
                raise SpecError(f"{_place(kind, rows, asked, path, done)}: {error}") from None
            names = [kind.name(row) or i for i, row in enumerate(rows, start=done)]
            yield answer if region is rows[0] else _named(answer, names)
            done += len(rows)

    return answers


def _named(answer: Answer, names: Sequence[str | int]) -> Answer:
    """Return the answer with the names of a file's regions, or their numbers, as coordinates."""
    import xarray

    def labelled(numbers: Any) -> Any:
        array = xarray.DataArray(numbers)
        named = array if "region" in array.dims else array.expand_dims(region=len(names))
        return named.assign_coords(region=list(names))

    numbers = {key: getattr(answer, key) for key in ("value", "low", "high", "likely_error")}
    arrays = {key: labelled(value) for key, value in numbers.items() if value is not None}
    return dataclasses.replace(answer, **arrays)


def _place(kind: _Kind, rows: Sequence[Any], asked: Distribution, path: Path, done: int) -> str:
    """First row of a file that is no region; or the file, where that is not what is wrong."""
    for number, row in enumerate(rows, start=done + 1):
        try:
            kind.read(kind.region([row], asked.domain, path), asked.domain)
        except SpecError:
            return f"{path}: {kind.row} {number}"
    return str(path)


def _box(text: str, option: str) -> dict[str, tuple[Any, Any]]:
    """Read ``x=3..7,y=..5``; an end that is left out is open."""
    found = {}
    for part in text.split(","):
        name, equals, ends = part.partition("=")
        low, dots, high = ends.partition("..")
        if not (equals and dots):
            raise SpecError(
                f'{option}: "{text}" is neither a box nor a file of them. Write a box such as '
                "x=3..7,y=..5, or the path of a file whose name ends in .csv, .geojson or .geojsonl"
            )
        found[name.strip()] = (_end(low), _end(high))
    return found


def _end(text: str) -> float | str | None:
    try:
        return float(text)
    except ValueError:
        return text.strip() or None


# --- Files of regions


@dataclass(frozen=True)
class _Kind:
    """Kind of file: its rows, one at a time, and what makes some of them regions to ask about."""

    row: str
    name: Callable[[Mapping[str, Any]], str | None]
    rows: Callable[[Path], Iterator[Any]]
    region: Callable[[Sequence[Any], Domain, Path], Any]
    read: Callable[[Any, Domain], Any]
    at_once: Callable[[int], int]  # of how many bins


def _lines(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such file. Check the path") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(
            f"{path}: cannot be read as CSV ({type(error).__name__}). Write a file with columns "
            "AXIS_low and AXIS_high"
        ) from None


def _boxes(rows: Sequence[dict[str, str]], domain: Domain, path: Path) -> Any:
    return {axis.name: _ends(rows, axis, path) for axis in domain.axes}


def _shapes(path: Path) -> Iterator[Any]:
    """Features of GeoJSON: of the array of a collection, or one a line; or the one shape."""
    number, each = 0, _a_line_each if path.suffix in _BY_LINES else _collected
    try:
        with path.open(encoding="utf-8") as file:
            for shape in each(file):
                yield _object(shape)
                number += 1
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such file. Check the path") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read as GeoJSON ({type(error).__name__})") from None
    except (ValueError, RecursionError):
        raise SpecError(f"{path}: feature {number + 1}: cannot be read as GeoJSON") from None


def _object(value: Any) -> Any:
    if not hasattr(value, "keys"):
        raise ValueError("no object")
    return value


def _collection(rows: Sequence[Any], _domain: Domain, _path: Path) -> Any:
    if len(rows) == 1 and rows[0].get("type") in ("Polygon", "MultiPolygon"):
        return rows[0]
    return {"type": "FeatureCollection", "features": rows}


def _read_boxes(region: Any, domain: Domain) -> None:
    from dbern.synopsis.questions.regions import boxes_of

    boxes_of(region, domain)


def _read_polygons(region: Any, domain: Domain) -> None:
    from dbern.synopsis.questions.polygons import polygons_of

    polygons_of(region, domain)


def _name(shape: Mapping[str, Any]) -> str | None:
    from dbern.synopsis.questions.polygons import name_of

    return name_of(shape)


_BY_LINES = (".geojsonl", ".ndjson")
_CSV = _Kind(
    "row", lambda row: row.get("name"), _lines, _boxes, _read_boxes, lambda _bins: _AT_ONCE
)
_GEOJSON = _Kind(
    "feature",
    _name,
    _shapes,
    _collection,
    _read_polygons,
    lambda bins: max(1, _NUMBERS // max(bins, 1024)),
)
_KINDS = {".csv": _CSV, **dict.fromkeys((".geojson", ".json", *_BY_LINES), _GEOJSON)}


def _a_line_each(file: TextIO) -> Iterator[Any]:
    while line := file.readline(_LONGEST):
        if line.strip():
            yield json.loads(line)


def _collected(file: TextIO) -> Iterator[Any]:
    text = file.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise SpecError(
            f"{file.name}: has more than {_LONGEST} characters. Write one feature a line, into a "
            "file whose name ends in .geojsonl: it is read in parts"
        )
    content = _object(json.loads(text))
    features = content.get("features", [content])
    yield from features if isinstance(features, list) else [features]  # which is no object


def _ends(rows: Sequence[dict[str, str]], axis: Axis, path: Path) -> tuple[list[Any], list[Any]]:
    found = []
    for side, bound in (("low", axis.low), ("high", axis.high)):
        name = f"{axis.name}_{side}"
        if name not in rows[0]:
            raise SpecError(
                f'{path}: has no column "{name}". Write one, empty where the end is open'
            )
        ends = [_end(row[name] or "") for row in rows]
        found.append([bound if end is None else end for end in ends])
    return found[0], found[1]
