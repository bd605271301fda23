"""Queries of a released synopsis against Definition 5, computed the slow obvious way."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import pickle
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import objects, records, released_in
from reference import bernstein
from threadpoolctl import threadpool_info, threadpool_limits

import dbern
from dbern.ask.points import read_beta
from dbern.bernstein.pieces import resample
from dbern.errors import IntegrityError, ReleaseError, SpecError
from dbern.synopsis.array_bands import SmoothedArray
from dbern.synopsis.evaluate import LEAST_RESAMPLED
from dbern.synopsis.released import ReleasedArray
from dbern.synopsis.tables import answer

ABSENT = -(2**63)
BOUNDS = {"x": [0.0, 10.0], "y": [-1.0, 1.0], "z": [-2.2, 1.7]}  # -2.2 + 3.9 is above 1.7
BANDWIDTH = {"x": 2.0, "y": 0.4, "z": 1.0}
K = {1: [9], 2: [6, 4], 3: [4, 3, 5]}


@pytest.fixture(scope="module")
def releases(tmp_path_factory, client):
    """One released synopsis of each dimension."""
    made = {}
    for dimensions in (1, 2, 3):
        names = list(BOUNDS)[:dimensions]
        made[dimensions] = released_in(
            tmp_path_factory.mktemp(f"l{dimensions}"),
            client,
            {**records(), "z": np.random.default_rng(2).uniform(*BOUNDS["z"], 240)},
            data__bounds={name: BOUNDS[name] if name in names else None for name in BOUNDS},
            target={"bandwidth": [BANDWIDTH[name] for name in names]},
            mechanism={"k": K[dimensions], "h": 3},
        )
    return made


@pytest.fixture
def two(releases):
    return releases[2]


def lattice_of(url):
    """The coefficients straight from the file, by zarr alone, times the scale factor."""
    import zarr

    array = zarr.open_group(url, mode="r")["components/density/coefficients"]
    return np.asarray(array[...]) * float(array.attrs["scale_factor"])


def iterated(values, h, y):
    """Definition 5: ``B^(h) = sum_{i=1..h} C(h,i) (-1)^(i-1) B^i``, straight from its terms."""
    total, k = 0.0, len(values) - 1
    for i in range(1, h + 1):
        total += math.comb(h, i) * (-1) ** (i - 1) * bernstein(values, y)
        values = [bernstein(values, v / k) for v in range(k + 1)]
    return total


def slow(values, h, point):
    """The tensor product: the last axis first, one point at a time."""
    if len(h) > 1:
        values = [slow(row, h[1:], point[1:]) for row in values]
    return iterated(list(values), h[0], point[0])


def points_of(synopsis, count=12, seed=5):
    low = [axis.low for axis in synopsis.domain.axes]
    high = [axis.high for axis in synopsis.domain.axes]
    generator = np.random.default_rng(seed)
    inside = generator.uniform(low, high, (count, len(low)))
    return np.vstack([inside, low, high])


@pytest.mark.slow
@pytest.mark.parametrize("h", [None, 1, 2, 5, "per axis"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_values_are_those_of_definition_5(releases, dimensions, h):
    synopsis = releases[dimensions]
    h = [1, 4, 2][:dimensions] if h == "per axis" else h
    order = [3] * dimensions if h is None else [h] * dimensions if isinstance(h, int) else h
    points = points_of(synopsis)
    values = synopsis(points, h=h)
    lattice = lattice_of(synopsis.url)
    low = np.array([axis.low for axis in synopsis.domain.axes])
    width = np.array([axis.width for axis in synopsis.domain.axes])
    slowly = [slow(lattice, order, point) for point in (points - low) / width]
    assert values.shape == (len(points),)
    np.testing.assert_allclose(values, slowly, rtol=1e-9, atol=1e-12 * np.abs(lattice).max())


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_a_grid_equals_a_call_at_its_points(releases, dimensions):
    synopsis = releases[dimensions]
    for h in (None, 2, [1, 4, 2][:dimensions]):
        grid = synopsis.grid([5, 4, 3][:dimensions], h=h)
        assert grid.dims == tuple(list(BOUNDS)[:dimensions])[::-1]  # upright
        grid = grid.transpose(*synopsis.domain.names)
        for name in grid.dims:
            assert [grid[name].values[0], grid[name].values[-1]] == BOUNDS[name]
        mesh = np.meshgrid(*(grid[name].values for name in grid.dims), indexing="ij")
        values = synopsis(np.column_stack([axis.ravel() for axis in mesh]), h=h)
        np.testing.assert_allclose(grid.values.ravel(), values, rtol=1e-10, atol=1e-12)
    assert synopsis.grid(3).shape == (3,) * dimensions


ORDER = r"(?i)write \(m, 2\) in the order x, y"
WRONG = [
    *((lambda two, shape=shape: two.grid(shape), "grid shape")
      for shape in (1, [3], [3, 3, 3], [3, 1])),
    *((lambda two, h=h: two(np.zeros((1, 2)), h=h), "h =")
      for h in (0, -1, 2.5, [1], [1, 0], [1, 2, 3], 10_001, [1, 10**18])),
    *((lambda two, shape=shape: two(np.zeros(shape)), ORDER)
      for shape in ((3,), (3, 1), (3, 3), (2, 2, 2), ())),
    *((lambda two, beta=beta: two.band(beta), "beta")
      for beta in ("x", float("nan"), 0, 1, -0.5)),
    (lambda two: two(np.zeros((1, 2)), method="closest"), "method"),
    (lambda two: two({"x": [1.0]}), 'has no column "y"; it needs the columns x, y'),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), WRONG)
def test_a_wrong_shape_order_confidence_method_or_table_is_refused(two, ask, message):
    with pytest.raises(SpecError, match=message):
        ask(two)


@pytest.mark.parametrize(("beta", "exact"), [(0.05, "1/20"), ("1/3", "1/3"), ("0.1", "1/10")])
def test_a_confidence_is_as_it_is_written(beta, exact):
    assert read_beta(beta) == Fraction(exact)


def test_bounds_are_closed_and_all_outside_is_nan(two):
    nan, inf = math.nan, math.inf
    inside = [[0.0, -1.0], [10.0, 1.0], [0.0, 1.0], [10.0, -1.0], [np.nextafter(10, 0), 0]]
    outside = [[nan, 0], [0, nan], [inf, 0], [0, -inf], [np.nextafter(10, 11), 0],
               [-5e-324, 0], [5, np.nextafter(-1, -2)], [1e300, 0]]  # fmt: skip
    values = two(np.array(inside + outside))
    assert np.isfinite(values[: len(inside)]).all()
    assert np.isnan(values[len(inside) :]).all()
    assert two(np.empty((0, 2))).shape == (0,)


def test_a_table_of_dask_is_told_how_it_is_asked(two):
    import dask.dataframe as dd

    points = points_of(two)
    table = pd.DataFrame({"y": points[:, 1], "x": points[:, 0]})
    parts = dd.from_pandas(table, npartitions=2)
    with pytest.raises(SpecError, match=r"Write table\.map_partitions\(synopsis, meta="):
        two(parts)
    answered = parts.map_partitions(two, meta=("value", "f8")).compute()
    pd.testing.assert_series_equal(answered, two(table))


def test_batches_are_answered_one_by_one_as_calls_are(two, tmp_path):
    points = np.random.default_rng(3).uniform([0, -1], [10, 1], (100, 2))
    pq.write_table(pa.table({"y": points[:, 1], "x": points[:, 0]}), tmp_path / "points.parquet")
    batches = pq.ParquetFile(tmp_path / "points.parquet").iter_batches(30)
    found = list(two.iter_batches(batches, h=2))
    assert [len(values) for values in found] == [30, 30, 30, 10]
    assert isinstance(found[0], pa.Array)  # in kind
    np.testing.assert_array_equal(np.concatenate(found), two(points, h=2))
    taken = iter([points[:10], points[10:20]])
    answers = two.iter_batches(taken)
    np.testing.assert_array_equal(next(answers), two(points[:10]))
    np.testing.assert_array_equal(next(taken), points[10:20])  # nobody took it yet


@pytest.mark.parametrize("one", [np.ones((3, 2)), {"x": [1.0], "y": [0.0]}, pa.table({"x": [1]})])
def test_one_batch_is_not_taken_apart(two, one):
    with pytest.raises(SpecError, match="points of one batch: call the synopsis"):
        two.iter_batches(one)
    with pytest.raises(SpecError, match="h"):
        two.iter_batches([one], h=0)


def test_dask_in_lazy_dask_out(two, releases, client, monkeypatch):
    import dask.array as da

    points = points_of(two, count=98)
    expected = two(points)
    fresh = releases[2]
    monkeypatch.setattr(
        ReleasedArray, "_lattice_values", lambda _self: pytest.fail("computed too early")
    )
    lazy = fresh(da.from_array(points, chunks=(13, 1)), h=[3, 3])
    monkeypatch.undo()
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (100,)
    assert lazy.dtype == np.float64
    assert lazy.numblocks == (8,)
    for values in (lazy.compute(scheduler="sync"), client.compute(lazy).result(timeout=300)):
        np.testing.assert_allclose(values, expected, rtol=1e-12)  # blocks change last bits
    flat = releases[1]
    one = flat(da.linspace(0, 10, 7, chunks=3))
    expected = flat(np.linspace(0, 10, 7))
    np.testing.assert_allclose(one.compute(scheduler="sync"), expected, rtol=1e-12)


def test_blocks_of_a_large_lazy_request_share_its_way_and_its_table(two, monkeypatch):
    import dask.array as da

    points = np.random.default_rng(4).uniform([0, -1], [10, 1], (LEAST_RESAMPLED, 2))
    expected = two(points, h=2)
    made = []
    monkeypatch.setattr("dbern.synopsis.evaluate.resample", lambda b: made.append(1) or resample(b))
    lazy = pickle.loads(pickle.dumps(two))(da.from_array(points, chunks=(5000, 2)), h=2)
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), expected)
    again = da.from_array(points, chunks=(5000, 2))
    some = two(again[again[:, 0] > 5], h=2)  # how many is not known
    np.testing.assert_array_equal(some.compute(scheduler="sync"), expected[points[:, 0] > 5])
    twice = [pickle.loads(pickle.dumps(two)) for _ in range(2)]
    assert twice[0] is twice[1]
    assert len(made) <= 1


def test_an_opened_synopsis_refuses_another_release_in_its_place(releases, tmp_path):
    place, first, second = tmp_path / "place", releases[2], releases[1]
    shutil.copytree(first.url, place)
    opened, never_asked = dbern.open(place), dbern.open(place)
    shaped, points = opened.shaped("nonnegative"), points_of(opened)
    sent = [pickle.dumps(one) for one in (opened, shaped)]
    expected, band = opened(points), shaped.interval(points)
    shutil.rmtree(place)
    shutil.copytree(second.url, place)
    np.testing.assert_array_equal(opened(points), expected)
    np.testing.assert_array_equal(shaped(points), np.maximum(expected, 0))
    np.testing.assert_array_equal(shaped.interval(points), band)
    for one in sent:
        with pytest.raises(IntegrityError, match="holds another release than was opened"):
            pickle.loads(one)
    with pytest.raises(IntegrityError, match="Copy the synopsis again"):
        never_asked(points)
    with pytest.raises(IntegrityError, match="Copy the synopsis again"):
        opened.shaped("normalized")(points)


# --- the format ------------------------------------------------------------------------------


def test_xarray_reads_the_same_lattice(two):
    import xarray

    with xarray.open_zarr(two.url, group="components/density", consolidated=False) as opened:
        released = opened["coefficients"].load()
    assert released.dims == ("x", "y")
    assert released.dtype == np.float64
    np.testing.assert_array_equal(released.values, lattice_of(two.url))
    np.testing.assert_allclose(released["x"], np.linspace(0, 10, 7), rtol=1e-15)
    np.testing.assert_allclose(released["y"], np.linspace(-1, 1, 5), atol=1e-15)
    assert released.notnull().all()


def test_the_format_is_what_its_page_says(two):
    import zarr

    root = zarr.open_group(two.url, mode="r")
    assert root.metadata.zarr_format == 3
    array = root["components/density/coefficients"]
    assert array.dtype == np.dtype("<i8")
    assert int(array.fill_value) == ABSENT
    assert array.shape == (7, 5)
    assert array.shards == (7, 5)
    assert array.metadata.dimension_names == ("x", "y")
    (component,) = two.metadata["components"]
    law = component["noise"]["law"]
    granule = math.ldexp(1.0, law["granularity_exponent"]) / two.metadata["domain"]["volume"]
    assert array.attrs["scale_factor"] == granule == component["noise"]["granularity"]
    assert array.attrs["add_offset"] == 0.0
    assert component["noise"]["scale"] == law["scale"] * granule
    assert two.metadata["domain"]["volume"] == 20.0
    for name in ("x", "y"):
        axis = root[f"components/density/{name}"]
        assert (axis.dtype, axis.metadata.dimension_names) == (np.dtype("<f8"), (name,))
    documented = {
        "format", "format_version", "dbern_version", "release_id", "name", "created",
        "combine", "domain", "target", "components", "epsilon", "delta", "rho", "neighbors", "unit",
        "certificate", "expected_error", "dataset", "ledger_id",
    }  # fmt: skip
    assert documented == set(two.metadata)
    facts = {
        "arrays", "axes", "share", "value_unit", "k", "h", "noise", "sensitivity", "certificate",
        "approximation", "errors", "additive", "counted_in",
    }  # fmt: skip
    assert facts == set(component)
    page = (Path(dbern.__file__).parent / "synopsis" / "FORMAT.md").read_text()
    assert [key for key in [*two.metadata, *component] if f"`{key}`" not in page] == []


def test_the_function_can_be_rebuilt_from_the_attributes(two):
    facts = two.metadata
    assert (facts["format"], facts["format_version"]) == ("dbern-synopsis", 1)
    assert facts["combine"] == {"kind": "linear"}
    assert facts["components"][0]["arrays"] == ["density"]
    assert facts["domain"]["axes"] == [
        {"name": "x", "low": 0.0, "high": 10.0},
        {"name": "y", "low": -1.0, "high": 1.0},
    ]
    assert facts["domain"]["outside"] == "drop"
    assert facts["target"] == {
        "kind": "kernel-density", "kernel": "gaussian", "bandwidth": [2.0, 0.4], "n": 240,
    }  # fmt: skip
    assert (facts["epsilon"], facts["delta"], facts["neighbors"], facts["unit"]) == (
        "1", "0", "replace-one", "row",
    )  # fmt: skip
    certificate = facts["certificate"]
    parts = sum(certificate[part] for part in ("approximation", "rounding", "noise"))
    assert certificate["total"] == parts


def test_the_manifest_lists_every_object_with_its_digest(two):
    stored = objects(Path(two.url))
    manifest = json.loads(stored.pop("manifest.json"))
    assert manifest["objects"] == {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in stored.items()
    }
    assert manifest["release_id"] == two.metadata["release_id"]
    assert manifest["created"] == two.metadata["created"]


@pytest.fixture
def copied(two, tmp_path):
    return shutil.copytree(two.url, tmp_path / "copy.zarr")


def test_changed_metadata_is_refused_when_opening(copied):
    path = copied / "zarr.json"
    path.write_text(path.read_text().replace('"epsilon": "1"', '"epsilon": "9"'))
    with pytest.raises(IntegrityError, match=r"zarr\.json is not what was released"):
        dbern.open(copied)


# --- Parquet to Parquet ----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    return tmp_path / "queries.parquet", tmp_path / "answers.parquet"


def asked(path, rows, **options):
    generator = np.random.default_rng(11)
    table = pa.table({
        "id": pa.array([f"q{i}" for i in range(rows)]),
        "y": generator.uniform(-1.2, 1.2, rows),
        "tags": pa.array([[i] for i in range(rows)], pa.list_(pa.int64())),
        "x": pa.array([None if i % 7 == 3 else i % 12 for i in range(rows)], pa.int16()),
        "when": pa.array(range(rows), pa.timestamp("us", "UTC")),
    })  # fmt: skip
    pq.write_table(table, path, **options)
    return table


@pytest.mark.parametrize(("rows", "batch"), [(0, 10), (1, 10), (1000, 37), (1000, 1 << 16)])
def test_answers_keep_the_order_and_every_column(two, files, rows, batch, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.tables.BATCH_ROWS", batch)
    table = asked(files[0], rows, row_group_size=300)
    told = []
    count = answer(two, *files, h=2, progress=lambda *told_: told.append(told_))
    answers = pq.read_table(files[1])
    assert count == (rows, np.isnan(answers["value"].to_numpy()).sum(), 0)
    assert answers.column_names == [*table.column_names, "value"]
    assert answers.drop_columns(["value"]).equals(table)
    x = table["x"].cast(pa.float64()).to_numpy()
    expected = two(np.column_stack([x, table["y"].to_numpy()]), h=2)
    np.testing.assert_allclose(answers["value"].to_numpy(), expected, rtol=1e-12, atol=1e-15)
    assert np.isnan(expected).sum() >= rows // 7
    if rows:
        assert told[-1] == ("answering", rows, rows)
    assert sorted(p.name for p in files[0].parent.iterdir()) == [files[1].name, files[0].name]


def test_times_of_96_bits_keep_their_century(two, files):
    when = pa.array([13_569_465_600_123_456, -14_831_769_600_000_000]).cast(pa.timestamp("us"))
    table = pa.table({"x": [1.0, 2.0], "y": [0.0, 0.5], "when": when})
    pq.write_table(table, files[0], use_deprecated_int96_timestamps=True)
    assert answer(two, *files).rows == 2
    assert pq.read_table(files[1])["when"].equals(table["when"])


@pytest.mark.parametrize(
    ("limit", "value", "groups"),
    [("_GROUP_ROWS", 120, [150, 150, 50]), ("_GROUP_BYTES", 1, [50] * 7)],
)
def test_row_groups_are_gathered_up_to_a_limit(two, files, limit, value, groups, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.tables.BATCH_ROWS", 50)
    monkeypatch.setattr(f"dbern.synopsis.tables.{limit}", value)
    asked(files[0], 350)
    assert answer(two, *files).rows == 350
    written = pq.ParquetFile(files[1]).metadata
    assert [written.row_group(i).num_rows for i in range(written.num_row_groups)] == groups
    encodings = {
        written.schema.column(i).path: written.row_group(0).column(i).has_dictionary_page
        for i in range(written.num_columns)
    }
    assert [path for path, dictionary in encodings.items() if dictionary] == ["id"]


@pytest.mark.parametrize("h", [None, "auto"])
def test_many_queries_are_answered_as_one_large_request(two, files, h):
    """More than one batch, so that a batch alone would be a smaller request."""
    count = LEAST_RESAMPLED + 10
    low, high = np.array([0.0, -1.0]), np.array([10.0, 1.0])
    points = np.random.default_rng(3).uniform(low, high, (count, 2))
    pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), files[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.synopsis.tables.BATCH_ROWS", 999)
        answer(two, *files, h=h)
    values = pq.read_table(files[1])["value"].to_numpy()
    np.testing.assert_array_equal(values, two(points, h=h))
    slow = two(points[:500], h=h)
    error = np.abs(values[:500] - slow).max()
    assert 0 < error <= 2e-9 * np.abs(slow).max()


def test_existing_answers_are_never_replaced(two, files):
    asked(files[0], 3)
    files[1].write_text("precious")
    with pytest.raises(SpecError, match="already exists"):
        answer(two, *files)
    assert files[1].read_text() == "precious"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": [1.0]}, 'no column "y"'),
        ({"x": [1.0], "y": ["a"]}, "column y is of type"),
        ({"x": [1.0], "y": [0.0], "value": [1]}, 'a column "value" already'),
        (None, "no such file"),
        (b"", "cannot be read as Parquet"),
        (b"PAR1 and nothing else", "cannot be read as Parquet"),
    ],
)
def test_unfit_queries_are_refused_and_leave_nothing(two, files, content, message):
    if isinstance(content, dict):
        pq.write_table(pa.table(content), files[0])
    elif content is not None:
        files[0].write_bytes(content)
    before = list(files[0].parent.iterdir())
    with pytest.raises(SpecError, match=message):
        answer(two, *files)
    assert list(files[0].parent.iterdir()) == before


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_failure_removes_the_draft(two, files, error, monkeypatch):
    asked(files[0], 100)
    monkeypatch.setattr("dbern.synopsis.tables.BATCH_ROWS", 10)
    monkeypatch.setattr("dbern.synopsis.tables._GROUP_ROWS", 20)
    original, calls = pq.ParquetWriter.write_table, []

    def full(self, table, *rest):
        calls.append(table)
        if len(calls) == 4:
            raise error
        return original(self, table, *rest)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises((ReleaseError, MemoryError)) as failure:
        answer(two, *files)
    if isinstance(error, OSError):
        assert failure.value.exit_code == 1
        assert "Free some space" in str(failure.value)
    assert list(files[0].parent.iterdir()) == [files[0]]


def test_answers_are_durable_before_they_have_their_name(two, files, monkeypatch):
    """A schedule that finds them leaves them: after a power cut they would stay torn."""
    asked(files[0], 100)
    done = []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor):
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append(("sync", name, os.fstat(descriptor).st_size if "tmp" in name else None))
        sync(descriptor)

    def renamed(path, target):
        done.append(("rename", path.name, path.stat().st_size))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    answer(two, *files)
    draft, size = done[0][1], files[1].stat().st_size
    folder = files[1].parent.name
    assert done == [("sync", draft, size), ("rename", draft, size), ("sync", folder, None)]


def test_drafts_of_killed_processes_are_removed_and_no_others(two, files):
    asked(files[0], 100)
    names = (f"{files[1].name}.{0:016}", f"{files[1].name}.{1:016}", f"else.parquet.{0:016}")
    drafts = [files[1].with_name(f".{name}.tmp") for name in names]
    for draft in drafts:
        draft.write_bytes(b"PAR1")
    with drafts[1].open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer(two, *files)
    assert [draft.exists() for draft in drafts] == [False, True, True]


def test_damaged_queries_are_named(two, files):
    asked(files[0], 1000)
    content = bytearray(files[0].read_bytes())
    start = pq.ParquetFile(files[0]).metadata.row_group(0).column(1).data_page_offset
    content[start : start + 40] = bytes(40)
    files[0].write_bytes(bytes(content))
    with pytest.raises(dbern.SpecError, match=r"queries\.parquet"):
        answer(two, *files)


@pytest.mark.parametrize(
    "points",
    [
        *(40.0, np.float64(3), "private", b"private", ["a", "b"], [["private", "value"]], None),
        *(object(), np.ones((1, 2)) * 1j, pd.Series(["private"]), pd.Series([1.0, 2.0])),
    ],
)
def test_points_of_a_wrong_type_are_refused_without_quoting_them(two, points):
    with pytest.raises(SpecError) as refused:
        two(points)
    assert "private" not in str(refused.value)
    assert "x, y" in str(refused.value)


def test_bands_cover_and_the_baseline_is_the_nearest_node(two):
    points = np.array([[5.0, 0.0], [0.0, -1.0], [10.0, 1.0]])
    low, high = two.interval(points, beta=0.05)
    assert np.allclose(high - low, 2 * two.band(0.05))
    assert two.band(0.01) > two.band(0.05)
    assert two.bound().lower_bound > 0
    nodes = two(points, method="nearest")
    inwards = np.array([[0.01, 0.01], [0.01, 0.01], [-0.01, -0.01]])
    shifted = two(points + inwards, method="nearest")
    assert np.array_equal(nodes, shifted)


def test_a_band_takes_one_thread_however_many_there_are(releases, monkeypatch):
    """Matrices are small: two threads took three times as long, most of it waiting."""
    seen, made = [], SmoothedArray.band

    def simultaneous(*given, **how):
        seen.extend(one["num_threads"] for one in threadpool_info())
        return made(*given, **how)

    monkeypatch.setattr(SmoothedArray, "band", simultaneous)
    with threadpool_limits(2):
        assert dbern.open(releases[2].url).band() == releases[2].band()
    assert set(seen) == {1}
