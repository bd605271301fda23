"""``dbern demo``: the whole way on a generated city, with the truth beside the release."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import common, print_line, show_progress
from dbern.errors import SpecError

if TYPE_CHECKING:
    import xarray

    from dbern.system import Progress
    from dbern.types import FloatArray

_MARKER = ".dbern-demo"
_FILES = 8
_GRID = 101
_QUERIES = 1_000_000
_BANDWIDTH = 0.6
# Hubs of the city: share of the trips, center and spread in kilometres.
_HUBS = (
    (0.34, 5.0, 5.2, 0.9), (0.18, 2.6, 6.9, 0.6), (0.16, 7.4, 3.1, 0.7), (0.10, 7.9, 7.6, 0.5),
    (0.07, 1.6, 2.2, 0.5), (0.15, 5.0, 5.0, 2.6),
)  # fmt: skip

_SPEC = """\
[release]
name   = "city-trips"
output = "trips.zarr"

[data]
source = "trips/*.parquet"
[data.bounds]            # public: the city's limits, in kilometres
x = [0.0, 10.0]
y = [0.0, 10.0]

[target]
kind      = "kernel-density"
bandwidth = [{bandwidth}, {bandwidth}]

[budget]
epsilon = "1.0"
ledger  = "sqlite:///ledger.db"
dataset = "city"
"""


@click.command()
@click.option(
    "--rows",
    default=2_000_000,
    show_default=True,
    type=click.IntRange(min=1000),
    help="How many trips to generate.",
)
@click.option(
    "--folder",
    default="demo-out",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where everything goes; an earlier demo's folder is replaced, no other.",
)
@common
def demo(rows: int, folder: Path, quiet: bool) -> tuple[Any, str]:
    """Release a generated city's trips beside the truth."""
    import numpy as np

    from dbern.data.storage import Folder, storage_errors
    from dbern.ledger import BudgetLedger
    from dbern.planning.planner import plan
    from dbern.planning.spec import ReleaseSpec
    from dbern.privacy.budget import Budget
    from dbern.privacy.public_numbers import public_stream, uniform
    from dbern.report.side_by_side import draw_beside
    from dbern.run.stages import release
    from dbern.system import file_url

    def say(text: str) -> None:
        if not quiet:
            print_line(text)

    with storage_errors(Folder(folder)), show_progress(quiet) as progress:
        _begin(folder)
        _write_trips(folder / "trips", rows, progress)
        (folder / "release.toml").write_text(_SPEC.format(bandwidth=_BANDWIDTH))
        url = file_url(folder.resolve() / "ledger.db")
        BudgetLedger.create(url)
        with BudgetLedger.open(url) as ledger:
            ledger.grant("city", Budget.parse("3.0"))
        spec = ReleaseSpec.load(folder / "release.toml")
        planned = plan(spec)
        say(planned.explain())
        started = time.perf_counter()
        out = release(spec, progress=progress)
        released_in = time.perf_counter() - started
        synopsis = out.synopsis
        positions = uniform(public_stream("demo queries", 0), 2 * _QUERIES)
        started = time.perf_counter()
        answers = synopsis(10 * positions.reshape(-1, 2))
        answered_in = time.perf_counter() - started
        released = synopsis.grid(_GRID)
        truth = _truth(folder / "trips", released, progress)
        error = float(np.abs(released - truth).max())
        picture = folder / "released.png"
        draw_beside(released, truth, picture, f"Where {rows:,} trips begin, at epsilon 1")
    content = {
        "synopsis": out.url, "picture": str(picture), "rows": rows, "release_seconds": released_in,
        "queries": len(answers), "query_seconds": answered_in, "sup_error": error,
        "certified_error": planned.certificate.total, "largest_value": float(truth.max()),
    }  # fmt: skip
    text = (
        f"released {rows:,} trips in {released_in:.1f} s, answered {len(answers):,} queries in "
        f"{answered_in:.1f} s\n"
        f"sup error {error:.6f} where the plan promised at most {planned.certificate.total:.6f}; "
        f"the density reaches {float(truth.max()):.4f}\n"
        f"picture: {picture}\n"
        f"next: dbern show {out.url}, or dbern report {out.url}"
    )
    return content, text


def _begin(folder: Path) -> None:
    """Make an empty folder: an earlier demo's is replaced, nothing else ever is."""
    if folder.exists() and not (folder / _MARKER).exists():
        raise SpecError(
            f"--folder: {folder} exists and was not made by dbern demo. Write another folder"
        )
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "trips").mkdir(parents=True)
    (folder / _MARKER).touch()


def _write_trips(folder: Path, rows: int, progress: Progress) -> None:
    from dbern.data.parquet import write_records

    counts = [rows // _FILES + (file < rows % _FILES) for file in range(_FILES)]
    for file, count in enumerate(counts):
        write_records(folder / f"part-{file}.parquet", _trips(file, count))
        progress("generating trips", file + 1, _FILES)


def _trips(file: int, count: int) -> dict[str, FloatArray]:
    """Draw trip origins from the hubs, reproducible: the stream's key is public."""
    import numpy as np

    from dbern.privacy.public_numbers import public_stream, uniform

    stream = public_stream("demo trips", file)
    shares = np.cumsum([hub[0] for hub in _HUBS])
    hub = np.searchsorted(shares, uniform(stream, count) * shares[-1], side="right")
    _, x, y, spread = np.array(_HUBS)[hub].T
    radius = spread * np.sqrt(-2 * np.log1p(-uniform(stream, count)))
    angle = 2 * np.pi * uniform(stream, count)
    return {"x": x + radius * np.cos(angle), "y": y + radius * np.sin(angle)}


def _truth(folder: Path, like: xarray.DataArray, progress: Progress) -> xarray.DataArray:
    """Density straight from its definition on the grid, by no code of the release's."""
    import numpy as np

    from dbern.data.domain import Column
    from dbern.data.footers import read_footers
    from dbern.data.parquet import read_batches
    from dbern.data.sources import discover

    total, rows = np.zeros(like.shape), 0
    names = [str(name) for name in like.dims]
    columns = [Column(name, name) for name in names]
    files = read_footers(discover(str(folder)), columns)
    for done, file in enumerate(files, start=1):
        for batch in read_batches(file.path, range(len(file.row_groups)), columns):
            inside = np.logical_and.reduce([(v >= 0) & (v <= 10) for v in batch.values()])
            left, right = (
                np.exp(-0.5 * ((batch[axis][inside, None] - like[axis].values) / _BANDWIDTH) ** 2)
                for axis in names
            )
            total += left.T @ right
            rows += len(inside)
        progress("computing the truth to compare with", done, len(files))
    return like.copy(data=total / (rows * 2 * np.pi * _BANDWIDTH**2))
