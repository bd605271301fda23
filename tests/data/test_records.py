"""Parquet to batches: nulls as NaN, every numeric type, and fingerprints that need the salt."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbern.data.columns import check_kind
from dbern.data.domain import Axis, Column
from dbern.data.footers import UnreadableFileError, footer_tag, read_footers
from dbern.data.parquet import BATCH_ROWS, read_batches, write_records
from dbern.data.times import TimeUnit, hours_of
from dbern.errors import SpecError

DAYS = TimeUnit.DAYS


def plain(*names):
    return [Column(name, f"data.bounds.{name}") for name in names]


def read(path, groups=None):
    groups = range(pq.ParquetFile(path).metadata.num_row_groups) if groups is None else groups
    batches = list(read_batches(str(path), list(groups), plain("x")))
    return np.concatenate([np.empty(0), *(batch["x"] for batch in batches)])


KINDS = ("int8", "uint8", "int32", "int64", "uint64", "float32", "float64")
GREAT = [2**63 - 1, -(2**63), 2**53 + 1]
INFINITE = [np.nan, np.inf, -np.inf, -0.0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        *((pa.array([1, None, 3], getattr(pa, kind)()), [1.0, np.nan, 3.0]) for kind in KINDS),
        (pa.array([True, None, False]), [1.0, np.nan, 0.0]),
        (pa.array(np.array([0.5, 2.0], np.float16)), [0.5, 2.0]),
        (pa.array(INFINITE), INFINITE),
        (pa.array(GREAT, pa.int64()), [2.0**63, -(2.0**63), 2.0**53]),
    ],
    ids=[*KINDS, "booleans", "half floats", "infinities", "great integers"],
)
def test_every_numeric_type_is_read_as_floats_and_null_as_nan(tmp_path, column, expected):
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    read_footers([tmp_path / "a.parquet"], plain("x"))  # the plan takes it
    got = read(tmp_path / "a.parquet")
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, expected)


def test_batches_are_small_complete_and_in_order(tmp_path):
    values = np.arange(3 * BATCH_ROWS + 17, dtype=float)
    write_records(tmp_path / "a.parquet", {"x": values, "y": -values, "z": values})
    groups = range(pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups)
    batches = list(read_batches(str(tmp_path / "a.parquet"), list(groups), plain("y", "x")))
    assert all(set(batch) == {"x", "y"} for batch in batches)
    assert max(len(batch["x"]) for batch in batches) <= BATCH_ROWS
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in batches]), values)
    np.testing.assert_array_equal(np.concatenate([b["y"] for b in batches]), -values)


def test_only_the_row_groups_asked_for_are_read(tmp_path):
    pq.write_table(pa.table({"x": np.arange(10.0)}), tmp_path / "a.parquet", row_group_size=3)
    assert read(tmp_path / "a.parquet", [1, 3]).tolist() == [3, 4, 5, 9]
    assert read(tmp_path / "a.parquet", []).tolist() == []
    (facts,) = read_footers([tmp_path / "a.parquet"], plain("x"))
    assert (facts.row_groups, facts.rows) == ((3, 3, 3, 1), 10)
    assert facts.size == (tmp_path / "a.parquet").stat().st_size


def test_unreadable_files_tell_nothing_of_their_content(tmp_path):
    path = tmp_path / "a.parquet"
    write_records(path, {"x": np.arange(1000.0)})
    content = bytearray(path.read_bytes())
    content[10:200] = b"\xff" * 190
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError) as error:
        read(path, [0])
    assert str(error.value) == ""
    assert error.value.__suppress_context__
    with pytest.raises(UnreadableFileError):
        list(read_batches(str(tmp_path / "absent"), [0], plain("x")))
    with pytest.raises(UnreadableFileError):
        footer_tag(str(tmp_path / "absent"), b"salt")


def test_footer_tags_need_the_salt_and_follow_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    write_records(path, {"x": np.arange(10.0)})
    tag = footer_tag(str(path), b"salt")
    assert footer_tag(str(path), b"salt") == tag
    assert footer_tag(str(path), b"other") != tag
    write_records(path, {"x": np.arange(1.0, 11.0)})  # same size, other statistics
    assert footer_tag(str(path), b"salt") != tag
    short = tmp_path / "short"
    short.write_bytes(b"abc")
    assert footer_tag(str(short), b"salt") != tag


def test_a_file_of_the_same_footer_is_told_apart_by_its_time(tmp_path):
    """Without statistics a footer says where the columns are, and no more."""
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for file, values in [(path, np.arange(10.0)), (other, np.arange(1.0, 11.0))]:
        pq.write_table(
            pa.table({"x": values}), file, write_statistics=False, compression="none",
            use_dictionary=False,
        )  # fmt: skip
    assert path.read_bytes()[-200:] == other.read_bytes()[-200:]
    os.utime(path, (1, 1))
    tag = footer_tag(str(path), b"salt")
    other.replace(path)
    assert footer_tag(str(path), b"salt") != tag


# --- types, nested columns, folders, filters -----------------------------------------------------


def column(name, unit=None, categories=()):
    return Column(name, f"data.bounds.{name}", categories, unit)


def written(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def values(path, *columns, only=None):
    read_footers([path], [*columns, *([only] if only else [])])
    groups = range(pq.ParquetFile(path).metadata.num_row_groups)
    batches = list(read_batches(str(path), groups, columns, only))
    assert all(list(batch) == [c.name for c in columns] for batch in batches)
    return [np.concatenate([batch[c.name] for batch in batches]).tolist() for c in columns]


def same(got, wanted):
    np.testing.assert_array_equal(got, wanted)


def test_one_time_is_the_same_number_from_every_type_of_column(tmp_path):
    noon = datetime(2026, 3, 29, 12, tzinfo=timezone(timedelta(hours=2)))
    utc = noon.astimezone(UTC).replace(tzinfo=None)
    kinds = {
        **{unit: pa.array([utc, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
        "zoned": pa.array([noon, None], pa.timestamp("us", "+02:00")),
    }
    path = written(tmp_path / "a.parquet", **kinds)
    for unit, exact in ((TimeUnit.SECONDS, 1774778400.0), (TimeUnit.DAYS, 20541 + 10 / 24)):
        for got in values(path, *(column(name, unit) for name in kinds)):
            same(got, [exact, np.nan])
    day = date(2026, 3, 29)
    dates = {"d32": pa.array([day, None], pa.date32()), "d64": pa.array([day, None], pa.date64())}
    path = written(tmp_path / "b.parquet", **dates)
    for unit, exact in ((TimeUnit.SECONDS, 20541.0 * 86400), (TimeUnit.DAYS, 20541.0)):
        for got in values(path, *(column(name, unit) for name in dates)):
            same(got, [exact, np.nan])


LONG = [0, -1, 1, 1774778400_123456, 1774778400_000001, -9223372036_854776, 9223372036_854776]
LONG += [
    sign * 10**6 * year * 31556952 + 123457 for year in (9, 291, 293, 430, 6000) for sign in (1, -1)
]


@pytest.mark.parametrize("rows", [1, 4, 1 << 16])
@pytest.mark.parametrize("unit", TimeUnit)
def test_times_of_96_bits_are_read_exactly_whatever_their_century(
    tmp_path, monkeypatch, rows, unit
):
    """As Spark writes them; Arrow's nanoseconds wrap around after 584 years."""
    monkeypatch.setattr("dbern.data.parquet.BATCH_ROWS", rows)
    moments = pa.array([*LONG, None]).cast(pa.timestamp("us"))
    words = pa.array([f"w{i}" for i in range(len(moments))]).dictionary_encode()
    outer = pa.StructArray.from_arrays([moments], ["when"])
    table = pa.table({"when": moments, "trip": outer, "word": words})
    pq.write_table(
        table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=5
    )
    assert pq.ParquetFile(tmp_path / "a.parquet").schema.column(0).physical_type == "INT96"
    exact = [*(float(Fraction(moment, 10**6 * unit.seconds)) for moment in LONG), np.nan]
    roles = column("when", unit), column("trip.when", unit), column("word", None, ("w1", "w3"))
    when, nested, word = values(tmp_path / "a.parquet", *roles)
    np.testing.assert_allclose(when, exact, rtol=2.3e-16, atol=0)
    same(nested, when)
    same(np.flatnonzero(np.isfinite(word)), [1, 3])
    (of_day,) = values(tmp_path / "a.parquet", column("when", unit), only=roles[2])
    same(np.flatnonzero(np.isfinite(of_day)), [1, 3])


def test_times_of_96_bits_that_no_calendar_has_are_outside(tmp_path):
    """Days are numbered by 32 bits, up to eleven million years."""
    seconds = [86400 * (day - 2440588) for day in (1, 2**31 - 1, 2**31, 2**32 - 1)]
    moments = pa.array(seconds).cast(pa.timestamp("s"))
    pq.write_table(
        pa.table({"x": moments}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True
    )
    same(values(tmp_path / "a.parquet", column("x", TimeUnit.SECONDS)), [seconds])


def test_nested_columns_are_null_where_a_part_of_their_name_is(tmp_path):
    trips = [{"start": {"x": 1, "y": 9}}, None, {"start": None}, {"start": {"x": None, "y": 1}}]
    path = written(tmp_path / "a.parquet", trip=trips, x=[1.0, 2.0, 3.0, 4.0])
    got = values(path, column("trip.start.x"), column("x"), column("trip.start.y"))
    same(got, [[1, np.nan, np.nan, np.nan], [1, 2, 3, 4], [9, np.nan, np.nan, 1]])


def test_a_name_with_dots_is_still_a_name(tmp_path):
    path = written(tmp_path / "a.parquet", **{"a.b": [1.0, 2.0]})
    same(values(path, column("a.b")), [[1, 2]])
    both = written(tmp_path / "b.parquet", a=[{"b": 1}], **{"a.b": [2]})
    with pytest.raises(SpecError, match=r'data\.bounds\.a\.b: .* has "a\.b" twice'):
        values(both, column("a.b"))


def test_folders_name_values_as_the_spec_types_them(tmp_path):
    folder = tmp_path / "day=1999-01-01" / "day=2026-01-02" / "shop=07" / "who=A%20b" / "ok=true"
    path = written(folder / "a.parquet", x=[1.0, 2.0, 3.0])
    same(values(path, column("shop"), column("x")), [[7.0] * 3, [1, 2, 3]])
    same(values(path, column("day", TimeUnit.DAYS)), [[20455.0] * 3])
    listed = [("shop", (3, 7)), ("shop", ("7", "07")), ("who", ("c", "A b")), ("ok", (False, True))]
    for name, categories in listed:
        same(values(path, column(name, None, categories)), [[1.0] * 3])
    for name, unit, categories in (("who", None, ()), ("who", TimeUnit.DAYS, ()),
                                   ("day", None, ()), ("who", None, (1, 2))):  # fmt: skip
        same(values(path, column(name, unit, categories)), [[np.nan] * 3])
    nothing = written(tmp_path / "day=__HIVE_DEFAULT_PARTITION__" / "a.parquet", x=[1.0])
    same(values(nothing, column("day", None, ("__HIVE_DEFAULT_PARTITION__",))), [[np.nan]])


def test_the_files_own_column_comes_before_the_folders(tmp_path):
    path = written(tmp_path / "x=9" / "a.parquet", x=[1.0, 2.0])
    same(values(path, column("x")), [[1, 2]])


def test_rows_that_do_not_match_are_null_in_every_column_and_still_there(tmp_path):
    status = pa.array(["done", None, "late", "done"])
    path = written(
        tmp_path / "kind=a" / "f.parquet", x=[1, 2, 3, 4], status=status, g=["u", "u", "u", "v"]
    )
    group = column("g", None, ("u", "v"))
    wanted = [[1, np.nan, np.nan, 4], [0, np.nan, np.nan, 1]]
    same(values(path, column("x"), group, only=column("status", None, ("done",))), wanted)
    same(
        values(path, column("x"), only=column("status", None, ("late", "x"))),
        [[np.nan] * 2 + [3.0, np.nan]],
    )
    same(values(path, column("x"), only=column("kind", None, ("a",))), [[1, 2, 3, 4]])
    same(values(path, column("x"), only=column("kind", None, ("b",))), [[np.nan] * 4])


def test_types_may_differ_between_files_but_no_file_may_lack_a_column(tmp_path):
    moment = datetime(2026, 1, 2)
    forms = [
        (pa.array([7], pa.int32()), pa.array([moment], pa.timestamp("ns"))),
        (pa.array([7.0]), pa.array([moment], pa.timestamp("ms", "+09:00"))),
        (pa.array([Decimal("7.00")]), pa.array([moment.date()])),
    ]
    days, x = column("when", TimeUnit.DAYS), column("x")
    paths = [
        written(tmp_path / f"{i}.parquet", x=number, when=when)
        for i, (number, when) in enumerate(forms)
    ]
    read_footers(paths, [x, days])
    assert [values(path, x, days) for path in paths] == [[[7.0], [20455.0]]] * 3
    lacking = written(tmp_path / "3.parquet", x=[1.0])
    with pytest.raises(SpecError, match=r"data\.bounds\.when: .*3\.parquet has no column"):
        read_footers([*paths, lacking], [x, days])


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str
)
def test_times_of_day_are_hours_whatever_they_count_in(tmp_path, kind):
    """A minute is the same float of each, the last tick is below 24, and no id is of times."""
    a_day = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 86_400
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    ticks = pa.array([0, a_day // 1440, None, a_day // 2, a_day - 1], integers)
    path = written(tmp_path / "a.parquet", at=ticks.cast(kind))
    last = (a_day - 1) / (a_day // 24)
    assert 24 - 1e-3 < last < 24
    same(values(path, Axis("at", 0.0, 24.0).column), [[0, 1 / 60, np.nan, 12, last]])
    assert hours_of(time(0, 1)) == 1 / 60
    for other in (Axis("at", 0.0, 86_400.0), Axis("at", -1.0, 24.0), Axis("at", 0.0, 9.0, DAYS)):
        with pytest.raises(SpecError, match=r"Write two numbers of hours, such as \[0\.0, 24\.0\]"):
            values(path, other.column)
    with pytest.raises(SpecError, match="ids are numbers or text"):
        check_kind(path, kind, Column("at", "data.unit", ids=True))


@pytest.mark.parametrize(
    ("kind", "unit", "complaint"),
    [
        (pa.timestamp("us"), None, "Write two dates"),
        (pa.date32(), None, "Write two dates"),
        (pa.int64(), TimeUnit.DAYS, "its bounds are times. Write two numbers"),
        (pa.decimal128(5, 2), TimeUnit.SECONDS, "its bounds are times. Write two numbers"),
        (pa.string(), None, "only integers, floats, decimals, booleans, dates"),
        (pa.time32("s"), TimeUnit.SECONDS, "Write two numbers of hours, such as [0.0, 24.0]"),
        (pa.duration("s"), None, "only integers, floats, decimals, booleans, dates"),
        (pa.list_(pa.int64()), None, "only integers, floats, decimals, booleans, dates"),
        (pa.dictionary(pa.int8(), pa.string()), None, "in this version. Convert the column"),
    ],
)
def test_a_type_that_does_not_fit_its_bounds_is_refused_by_name(tmp_path, kind, unit, complaint):
    path = written(tmp_path / "a.parquet", x=pa.array([None], kind))
    with pytest.raises(SpecError, match=r"^data\.bounds\.x: is of type ") as error:
        values(path, column("x", unit))
    assert complaint in str(error.value)
