"""Tables in, tables out."""

from __future__ import annotations

from datetime import date, timedelta
from datetime import time as clock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from projects import released_in

from dbern.ask.points import as_numbers, as_points
from dbern.ask.regions import boxes_of
from dbern.data.domain import Axis, Domain, volume_unit
from dbern.data.times import TimeUnit
from dbern.errors import SpecError

POINTS = np.array([[1.0, 0.2], [9.0, -0.5], [11.0, 0.0]])


@pytest.mark.slow
def test_a_pandas_table_keeps_its_index(one, several):
    table = pd.DataFrame({"y": POINTS[:, 1], "x": POINTS[:, 0]}, index=["p", "q", "out"])
    values = one(table)
    pd.testing.assert_series_equal(values, pd.Series(one(POINTS), table.index, name="value"))
    assert table.assign(value=values).loc["p", "value"] == one(POINTS)[0]
    many = several(table)
    assert list(many.columns) == ["value_a", "value_b", "value_c"]
    assert list(many.index) == ["p", "q", "out"]
    np.testing.assert_array_equal(many.to_numpy(), several(POINTS))


@pytest.mark.parametrize("kind", [pa.table, pa.record_batch])
def test_an_arrow_table_is_answered_by_arrow(one, several, kind):
    table = kind({"y": POINTS[:, 1], "x": POINTS[:, 0]})
    values = one(table)
    assert isinstance(values, pa.Array)
    np.testing.assert_array_equal(values.to_numpy(zero_copy_only=False), one(POINTS))
    assert table.append_column("value", values).column_names == ["y", "x", "value"]
    many = several(table)
    assert type(many) is type(table)
    assert many.column_names == several.combination.columns_of("value")
    np.testing.assert_array_equal(many.column("value_b").to_numpy(), several(POINTS)[:, 1])


def test_other_tables_and_arrays_are_answered_by_numpy(one):
    columns = {"y": POINTS[:, 1].tolist(), "who": ["a"] * 3, "x": POINTS[:, 0].tolist()}
    for points in (columns, POINTS.tolist()):
        assert type(one(points)) is np.ndarray
        np.testing.assert_array_equal(one(points), one(POINTS))


def test_masked_points_are_missing(one):
    masked = np.ma.masked_array(POINTS, mask=POINTS == 0.2)
    np.testing.assert_array_equal(np.isnan(one(masked)), [True, False, True])
    np.testing.assert_array_equal(one({"x": masked[:, 0], "y": masked[:, 1]}), one(masked))
    days = np.ma.masked_array(["1970-01-02", "1970-01-03"], mask=[True, False], dtype="M8[D]")
    when = Domain((Axis("when", 0.0, 9.0, TimeUnit.DAYS),))
    np.testing.assert_array_equal(as_points(days, when), [[np.nan], [2.0]])


NUMBER, TEXT = Axis("x", 0.0, 9.0), Axis.of_values("x", ["a", "b", "c"])
DAY, JAN_3 = Axis("x", 0.0, 9.0, TimeUnit.DAYS), date(1970, 1, 3)


class Metres(pa.ExtensionType):
    """A type of somebody's own; its numbers are those that it stores."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "metres")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Metres:
        return cls(storage)


def layouts(value: object) -> dict[str, object]:
    """A value and two that are missing, in every layout of Arrow, by pandas and by polars."""
    plain = pa.array([value, None, None])
    indices, listed = pa.array([0, 1, None]), pa.array([value, None, value])
    numbered = pa.DictionaryArray.from_arrays(indices, listed)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3]), plain[:2])
    own = pa.ExtensionArray.from_storage(Metres(numbered.type), numbered)
    arrays = {
        "plain": plain, "dictionary": numbered, "runs": runs, "extension": own,
        "chunks": pa.chunked_array([numbered[:1], numbered[1:]]),
    }  # fmt: skip
    frames: dict[str, object] = {name: pa.table({"x": array}) for name, array in arrays.items()}
    for name in ("plain", "dictionary", "runs"):
        series = pd.Series(pd.arrays.ArrowExtensionArray(arrays[name]))
        frames[f"pandas {name}"] = pd.DataFrame({"x": series})
    frames["pandas objects"] = pd.DataFrame({"x": pd.Series([value, pd.NA, None], dtype=object)})
    frames["pandas category"] = pd.DataFrame({"x": pd.Categorical([value, None, None])})
    frames["polars"] = pl.DataFrame({"x": [value, None, None]})
    if isinstance(value, str):
        frames["polars category"] = frames["polars"].cast(pl.Categorical)
        frames["polars enum"] = frames["polars"].cast(pl.Enum(["c", "a"]))
    frames["masked"] = {"x": np.ma.masked_array([value] * 3, [False, True, True])}
    return frames


@pytest.mark.parametrize(
    ("axis", "value", "number"), [(NUMBER, 5.0, 5.0), (TEXT, "c", 2.0), (DAY, JAN_3, 2.0)]
)
def test_a_missing_point_is_missing_in_every_layout(axis, value, number):
    """numpy takes a row without an index in a dictionary for the last of its values."""
    frames = layouts(value)
    if axis is DAY:  # numpy and pandas have their own dates
        del frames["masked"], frames["pandas category"]
    for name, frame in frames.items():
        points = as_points(frame, Domain((axis,)))
        np.testing.assert_array_equal(points, [[number], [np.nan], [np.nan]], err_msg=name)
    if axis is NUMBER:  # a column by itself, as places of a question are
        for name in ("dictionary", "chunks"):
            column = as_numbers(frames[name].column("x"), None, Domain((axis,)))
            np.testing.assert_array_equal(column, [number, np.nan, np.nan])


@pytest.mark.slow
@pytest.mark.parametrize("axis", [NUMBER, DAY], ids=["numbers", "days"])
def test_texts_and_times_are_no_numbers(axis):
    """As `dbern query` has it, which goes by the type of a column."""
    moments, spans = np.array([2], "M8[ms]"), np.array([2], "m8[ms]")
    columns = [["2"], np.array(["2"]), spans, spans.astype(object), [spans[0]], [timedelta(2)]]
    if axis is NUMBER:
        columns += [moments, [moments[0]], [JAN_3], ["1970-01-03"], moments.astype(object)]
    frames = [np.array([b"2"])]
    for column in columns:
        table = pa.table({"x": pa.array(column)})
        frames += [column, {"x": column}, pd.DataFrame({"x": column}), table, pl.from_arrow(table)]
    for frame in frames:
        with pytest.raises(SpecError, match=r"must be numbers|are not dates"):
            as_points(frame, Domain((axis,)))


def test_times_of_day_are_hours_and_no_days():
    table = pa.table({"x": pa.array([clock(6, 30), None])})
    np.testing.assert_array_equal(as_points(table, Domain((NUMBER,))), [[6.5], [np.nan]])
    with pytest.raises(SpecError, match="are not dates"):
        as_points(table, Domain((DAY,)))


def test_a_region_beyond_dates_is_told_as_dates():
    domain = Domain((DAY,))
    with pytest.raises(SpecError) as refused:
        boxes_of({"x": ("1970-01-02", "2400-02-29")}, domain)
    said = 'x leaves its bounds, "1970-01-01" to "1970-01-10", with an end at "2400-02-29": nothing'
    assert said in str(refused.value)
    with pytest.raises(SpecError, match=r"with an end at 1000000000000000\.0: nothing"):
        boxes_of({"x": (None, 1e15)}, domain)


def test_a_density_of_dates_is_per_day():
    when = Axis("pickup", 0.0, 9.0, TimeUnit.DAYS)
    assert volume_unit((when,)) == "day of pickup"
    assert volume_unit((NUMBER, when)) == "unit of x and day of pickup"
    assert volume_unit((NUMBER, NUMBER)) == "unit of x and x"


def test_a_truth_is_no_number_that_is_listed():
    one, truth = Axis.of_values("x", [0, 1]), Axis.of_values("x", [False, True])
    for given, axis in (([[True]], one), ([[1]], truth)):
        assert np.isnan(as_points(given, Domain((axis,)))).all()
        with pytest.raises(SpecError, match="x is of type"):
            as_points(pa.table({"x": given[0]}), Domain((axis,)))


def test_bands_and_shapes_come_in_kind_too(one, several):
    table = pd.DataFrame({"x": POINTS[:2, 0], "y": POINTS[:2, 1]}, index=[7, 9])
    for synopsis in (one, one.shaped("nonnegative"), several):
        low, high = synopsis.interval(table)
        exact = synopsis.interval(POINTS[:2])
        assert list(low.index) == [7, 9]
        np.testing.assert_array_equal(low.to_numpy(), exact[0])
        np.testing.assert_array_equal(high.to_numpy(), exact[1])
    batch = pa.RecordBatch.from_pandas(table, preserve_index=False)
    assert isinstance(one.interval(batch)[0], pa.Array)
    np.testing.assert_array_equal(one.score_samples(table), one.score_samples(POINTS[:2]))
    assert several.predict(table).tolist() == several.predict(POINTS[:2]).tolist()


@pytest.mark.slow
def test_an_axis_of_dates_is_one_everywhere(tmp_path, client):
    from dbern.report.page import synopsis_page
    from dbern.report.terminal import drawing

    first = np.datetime64("2026-01-01", "D")
    days = first + np.random.default_rng(2).integers(0, 60, 300).astype("m8[D]")
    bounds = {"x": None, "y": None, "day": ["2026-01-01", "2026-03-02"]}
    synopsis = released_in(
        tmp_path, client, {"day": days}, data__bounds=bounds, target={"bandwidth": [9.0]}
    )
    assert "2026-01-01 to 2026-03-02" in synopsis_page(synopsis)
    assert "2026-01-01" in drawing(synopsis)
