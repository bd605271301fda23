"""Values of axes: positions, dates, labels, and what text and Arrow say of them."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from dbern.data.columns import from_stored, numbers, of_text, to_stored
from dbern.data.domain import Axis, Column
from dbern.data.objects import check_url
from dbern.data.plain_files import is_object_name
from dbern.data.times import TimeUnit, bounds_of, moment_of


def test_positions_never_leave_the_bounds():
    positions = Axis("y", -1.0, 1 / 3).at(np.array([0.0, 0.75, 1.0]))
    assert positions.tolist() == [-1.0, 0.0, 1 / 3]


def test_an_axis_is_named_for_people():
    assert Axis("distance", 0.0, 9.0, units="miles").label == "distance (miles)"
    assert Axis("x", 0.0, 9.0).label == "x"
    assert Axis("when", 0.0, 9.0, TimeUnit.DAYS).counted == " (days)"
    assert Axis("x", 0.0, 9.0).counted == ""


def test_listed_values_span_their_positions():
    axis = Axis.of_values("sex", ["Female", "Male"])
    assert (axis.low, axis.high) == (0.0, 1.0)


def test_dates_are_numbers_and_back():
    assert TimeUnit.DAYS.of(date(1970, 1, 3)) == 2.0
    assert TimeUnit.SECONDS.of(datetime(1970, 1, 1, 1)) == 3600.0
    texts = [TimeUnit.DAYS.text(20454.0), TimeUnit.DAYS.text(20454.375)]
    assert texts == ["2026-01-01", "2026-01-01T09:00Z"]
    assert TimeUnit.SECONDS.text(5400.0) == "1970-01-01T01:30:00Z"


def test_arrays_of_dates_are_numbers_and_back():
    values = np.array(["1970-01-02T12", "NaT"], "datetime64[ms]")
    assert TimeUnit.DAYS.of_datetimes(values).tolist() == pytest.approx([1.5, np.nan], nan_ok=True)
    moments = TimeUnit.DAYS.to_datetimes(np.array([20454.0, 20454.5]))
    assert moments.tolist() == [datetime(2026, 1, 1), datetime(2026, 1, 1, 12)]


def test_moments_are_read_in_iso_form():
    assert moment_of("2026-01-01") == date(2026, 1, 1)
    assert moment_of("2026-01-01T12:30:00Z") == datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    with pytest.raises(ValueError, match="noon"):
        moment_of("noon")


def test_bounds_of_dates_have_a_unit():
    bounds = bounds_of([date(1970, 1, 2), date(1970, 1, 3)], "data.bounds.day")
    assert bounds == (1.0, 2.0, TimeUnit.DAYS)


def test_floats_are_stored_and_read_again():
    column = Column("who", "data.unit.column", ids=True)
    ids = np.array([[1.0, np.nan]])
    assert np.array_equal(from_stored(to_stored(ids, column), column), ids, equal_nan=True)


def test_booleans_are_numbers_and_null_is_not():
    values = numbers(pa.array([True, None]))
    assert values[0] == 1.0
    assert np.isnan(values[1])


def test_a_folder_is_a_value():
    assert of_text("7.5", Column("x", "data.bounds.x")) == 7.5
    assert of_text("no", Column("done", "data.group.values", ("yes", "no"))) == 1.0
    assert np.isnan(of_text("maybe", Column("done", "data.group.values", ("yes", "no"))))


def test_urls_and_names_of_objects():
    assert check_url("s3://bucket/a/b.zarr/", "release.output") == "s3://bucket/a/b.zarr"
    names = ["components/f/c/0", "a/../../b", "/etc/b"]
    assert [is_object_name(name) for name in names] == [True, False, False]
