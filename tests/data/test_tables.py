"""Tables as they are: released like the floats that they stand for, and inspected blindly."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern
from dbern.data import source_schemas

ROWS, DAYS = 60, (20454.0, 20819.0)
BOUNDS = {"trip.start.x": [0, 10], "when": ["2026-01-01", "2027-01-01"]}
KEPT = {"column": "status", "values": ["done", "paid"]}


def rich(**last):
    """Nested decimals, zoned timestamps and a status; `last` replaces the last row's values."""
    rng = np.random.default_rng(7)
    price = [Decimal(int(v)) / 100 for v in rng.integers(-50, 1050, ROWS)]
    ticks = (rng.uniform(20450, 20830, ROWS) * 86400e6).astype(np.int64).tolist()
    status = rng.choice(["done", "late", "paid"], ROWS).tolist()
    price[-1], ticks[-1] = last.get("price", Decimal("2.5")), last.get("ticks", 1780000000000000)
    status[-1] = last.get("status", "done")
    price[0] = status[1] = ticks[2] = None
    x = pa.array(price, pa.decimal128(30, 2))
    start = pa.StructArray.from_arrays([x], ["x"])
    return {
        "trip": pa.StructArray.from_arrays([start], ["start"]),
        "when": pa.array(ticks, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "status": status,
    }


def plain(table):
    """The same as floats, from the table's Python values."""
    price = [row["start"]["x"] for row in table["trip"].to_pylist()]
    seconds = table["when"].cast(pa.int64()).to_pylist()
    kept = [status in KEPT["values"] for status in table["status"]]
    x = [float(v) if k and v is not None else None for v, k in zip(price, kept, strict=True)]
    days = [None if v is None else v / 86400e6 for v in seconds]
    return {"x": pa.array(x, pa.float64()), "when": pa.array(days, pa.float64())}


def released(project, client, name, table, bounds, kept=None):
    other = type(project)(project.folder / name)
    (other.folder / "data").mkdir(parents=True)
    other.write(table)
    other.grant()
    changes = {"data__filter": kept} if kept else {}
    text = {json.dumps(axis): pair for axis, pair in bounds.items()}
    spec = other.spec(data__bounds={"x": None, "y": None} | text, target={"bandwidth": [2.0, 80.0]},
                      **changes)  # fmt: skip
    dbern.release(spec, client=client)
    return other


def coefficients(helpers, project):
    found = helpers.objects(project.output)
    return {name: text for name, text in found.items() if "/coefficients/c/" in name}


@pytest.mark.slow
def test_a_table_is_released_as_the_floats_it_stands_for(project, client, fixed, helpers):
    table = rich()
    typed = released(project, client, "typed", table, BOUNDS, KEPT)
    floats = released(project, client, "floats", plain(table), {"x": [0, 10], "when": DAYS})
    unfiltered = released(project, client, "all", table, BOUNDS)
    assert coefficients(helpers, typed) == coefficients(helpers, floats)
    assert coefficients(helpers, typed) != coefficients(helpers, unfiltered)
    domain = dbern.open(typed.output).metadata["domain"]
    assert domain["axes"] == [
        {"name": "trip.start.x", "low": 0.0, "high": 10.0},
        {"name": "when", "low": DAYS[0], "high": DAYS[1], "unit": "days since 1970-01-01"},
    ]
    assert domain["filter"] == KEPT
    assert "unit" not in json.dumps(dbern.open(floats.output).metadata["domain"])


@pytest.mark.slow
def test_one_record_of_a_table_changes_nothing_but_coefficients(project, client, fixed, helpers):
    base = released(project, client, "base", rich(), BOUNDS, KEPT)
    everything = helpers.objects(base.output)
    for name, last in {
        "other status": {"status": "never"},
        "no status": {"status": None},
        "nulls": {"ticks": None, "price": None},
        "least": {"ticks": -(2**63), "price": -(Decimal(10) ** 27)},
        "largest": {"ticks": 2**63 - 1, "price": Decimal(10) ** 27},
    }.items():
        other = released(project, client, name, rich(**last), BOUNDS, KEPT)
        objects = helpers.objects(other.output)
        assert objects.keys() == everything.keys()
        changed = {key for key, content in objects.items() if content != everything[key]}
        assert {key for key in changed if "/coefficients/c/" not in key} == {"manifest.json"}, name


@pytest.fixture
def dated(project, client, fixed):
    """A synopsis over a number and days."""
    return released(project, client, "dated", rich(), BOUNDS)


def test_dates_can_be_asked_for_in_any_form(dated):
    synopsis = dbern.open(dated.output)
    days = [20500.0, 20600.5, 20000.0]
    x = [1.0, 2.0, 3.0]
    wanted = synopsis(np.column_stack([x, days]))
    assert np.isfinite(wanted[:2]).all()
    assert np.isnan(wanted[2])
    moments = (np.array(days) * 86400).astype(np.int64).astype("datetime64[s]")
    forms = [
        moments, moments.astype("datetime64[ns]"), moments.astype(str),
        moments.astype(str).tolist(),
        moments.tolist(), pa.array(moments, pa.timestamp("s", "UTC")), days,
    ]  # fmt: skip
    for form in forms:
        np.testing.assert_array_equal(synopsis({"trip.start.x": x, "when": form}), wanted)
    assert np.isnan(synopsis({"trip.start.x": [1.0], "when": [None]}))
    with pytest.raises(dbern.SpecError, match="not dates or times") as error:
        synopsis({"trip.start.x": [1.0], "when": ["the 37.4219983th"]})
    assert "37.42" not in str(error.value)
    grid = synopsis.grid(3)
    assert grid["when"].attrs == {"long_name": "when"}
    assert grid["when"].dtype.kind == "M"
    assert grid["when"].encoding["units"] == "days since 1970-01-01"
    assert grid["trip.start.x"].attrs == {"long_name": "trip.start.x"}


def test_queries_may_have_timestamps(dated, run):
    x, days = [1.0, 2.0, 3.0], [20500.0, 20600.5, None]
    answers = []
    seconds = [None if day is None else int(day * 86400) for day in days]
    for i, when in enumerate((pa.array(days), pa.array(seconds).cast(pa.timestamp("s", "UTC")))):
        table = pa.table({"when": when, "trip.start.x": pa.array([Decimal(int(v)) for v in x])})
        pq.write_table(table, dated.folder / f"q{i}.parquet")
        assert run("query", "out.zarr", f"q{i}.parquet", "--out", f"a{i}.parquet",
                   project=dated).code == 0  # fmt: skip
        answers.append(pq.read_table(dated.folder / f"a{i}.parquet")["value"].to_numpy())
    np.testing.assert_array_equal(*answers)
    assert np.isnan(answers[0]).tolist() == [False, False, True]
    shown = run("show", "out.zarr", "--details", project=dated).out
    assert "when in [2026-01-01, 2027-01-01]" in shown
    pq.write_table(table.set_column(1, "trip.start.x", when), dated.folder / "bad.parquet")
    ran = run("query", "out.zarr", "bad.parquet", "--out", "b.parquet", project=dated)
    assert (ran.code, "its axis has numbers" in ran.err) == (2, True)


def test_an_array_of_datetimes_is_points_of_one_time_axis(project, client):
    table = {"when": rich()["when"]}
    spec = {"when": ["2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"]}
    project.write(table)
    text = project.spec(data__bounds={"x": None, "y": None} | spec, mechanism={"k": 6, "h": 2},
                        target={"bandwidth": [4e6]})  # fmt: skip
    synopsis = dbern.release(text, client=client).synopsis
    moments = np.array(["2026-03-01", "2026-09-01T12:00", "NaT"], "datetime64[m]")
    seconds = [1772323200.0, 1788264000.0, np.nan]
    np.testing.assert_array_equal(synopsis(moments), synopsis(np.array(seconds)))
    assert np.isfinite(synopsis(moments)[:2]).all()
    import dask.array as da

    np.testing.assert_array_equal(synopsis(da.from_array(moments)).compute(), synopsis(moments))


def test_dates_of_toml_and_texts_are_one_spec(project):
    loaded = project.spec(data__bounds={"y": ["2026-01-01", "2027-01-01"]})
    path = project.spec_path
    path.write_text(
        path.read_text().replace('"2026-01-01", "2027-01-01"', "2026-01-01, 2027-01-01")
    )
    again = dbern.ReleaseSpec.load(path)
    assert again.identity() == loaded.identity()
    assert json.loads(json.dumps(again.identity())) == again.identity()
    assert again.domain == loaded.domain
    assert again.certified_at(again.charge.epsilon).domain == again.domain
    with pytest.raises(dbern.SpecError, match=r"^data\.bounds\.y: both bounds must be of one kind"):
        project.spec(data__bounds={"y": ["2026-01-01", 3.0]})
    with pytest.raises(dbern.SpecError, match=r"^data: the column .x. has two roles"):
        project.spec(data__bounds={"y": [0, 1]}, data__filter={"column": "x", "values": [1]})


# --- init --show -----------------------------------------------------------------------------


def parts(project, table, **extra):
    """A file of the table for each of two days."""
    shutil.rmtree(project.folder / "data", ignore_errors=True)
    for day in (1, 2):
        folder = project.folder / "data" / f"day=2026-01-0{day}"
        folder.mkdir(parents=True)
        columns = table | (extra if day == 1 else {})
        pq.write_table(pa.table(columns), folder / "part.parquet", row_group_size=40)


def inspected(run):
    texts = [run("init", "--show", "data", *more) for more in ([], ["--json"])]
    return [(ran.code, ran.out, ran.err) for ran in texts]


TABLES = {
    "other values": rich(status="x" * 500, ticks=0, price=Decimal(3)),
    "nulls": {name: pa.nulls(ROWS, pa.array(values).type) for name, values in rich().items()},
    "one value": {name: pa.array([pa.array(values)[5].as_py()] * ROWS, pa.array(values).type)
                  for name, values in rich().items()},
}  # fmt: skip


def blind(project, run):
    """Names of the tables whose values show in what init --show says."""
    parts(project, rich())
    base = inspected(run)
    names = []
    for name, table in TABLES.items():
        parts(project, table)
        if inspected(run) != base:
            names.append(name)
    return names


def test_show_says_the_same_whatever_the_values(project, run):
    assert blind(project, run) == []


def test_a_statistic_in_show_is_caught(project, run, monkeypatch):
    original = source_schemas.read_footer_and_schema

    def leaking(path):
        footer, schema = original(path)
        column = pq.ParquetFile(path).metadata.row_group(1).column(1).statistics
        extra = pa.field(f"least_{column.min}" if column.has_min_max else "none", pa.int8())
        return footer, schema.append(extra)

    monkeypatch.setattr(source_schemas, "read_footer_and_schema", leaking)
    assert blind(project, run) == list(TABLES)


def test_show_reads_no_value_and_no_statistic(project, run, monkeypatch):
    parts(project, rich())

    def refuse(*_, **__):
        raise AssertionError

    for name in ("iter_batches", "read", "read_row_group", "read_row_groups"):
        monkeypatch.setattr(pq.ParquetFile, name, refuse)
    for name in ("as_floats", "numbers"):
        monkeypatch.setattr(f"dbern.data.columns.{name}", refuse)
    before = sorted(project.folder.iterdir())
    assert [code for code, *_ in inspected(run)] == [0, 0]
    assert sorted(project.folder.iterdir()) == before


def test_show_has_types_uses_and_what_differs(project, run):
    parts(project, rich(), extra=[1] * ROWS)
    ran = run("init", "--show", "data", "--json")
    found = json.loads(ran.out)
    columns = {column.pop("name"): column for column in found["columns"]}
    numeric, listed = "axis, response", "category, label, group, filter"
    assert columns == {
        "trip.start.x": {"types": ["decimal128(30, 2)"], "use": numeric},
        "when": {"types": ["timestamp[us, tz=UTC]"], "use": numeric},
        "status": {"types": ["string"], "use": listed},
        "extra": {"types": ["int64"],
                  "use": "none: missing in 1 file, such as data/day=2026-01-02/part.parquet"},
        "day": {"types": ["folder"], "use": f"{numeric}, {listed}"},
    }  # fmt: skip
    assert [list(file) for file in found["files"]] == [["path"], ["path"]]  # no count of rows
    assert run("init", "--show", "data/day=2026-01-01/part.parquet").out.startswith(
        "data/day=2026-01-01/part.parquet: 1 file\n"
    )
    assert " row" not in run("init", "--show", "data").out
    (project.folder / "data" / "bad.parquet").write_bytes(b"37.4219983")
    ran = run("init", "--show", "data")
    assert (ran.code, ran.out) == (2, "")
    assert "bad.parquet cannot be read as Parquet" in ran.err
    assert "37.42" not in ran.err
