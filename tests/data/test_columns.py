"""Numbers, times and ids of columns as floats: against exact arithmetic, and back."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.data.columns import from_stored, numbers, to_stored, value_of_text
from dbern.data.domain import Column
from dbern.data.times import TICKS, TimeUnit, bounds_of, moment_of
from dbern.errors import SpecError

KINDS = [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256]
MOST = [9, 18, 38, 76]


@st.composite
def decimals(draw):
    kind, most = draw(st.sampled_from(list(zip(KINDS, MOST, strict=True))))
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(0, precision))
    edge = 10**precision - 1
    near = st.sampled_from([0, 1, 2**53, 2**63, 2**64, 2**64 - 1, 2**64 + 1, 2**128, 2**192 + 1])
    whole = near.filter(lambda v: v <= edge) | st.integers(0, edge)
    signed = st.tuples(whole, st.sampled_from([1, -1])).map(lambda pair: pair[0] * pair[1])
    unscaled = draw(st.lists(st.none() | signed, min_size=1, max_size=6))
    return kind(precision, scale), unscaled, scale


@pytest.mark.slow
@given(st.lists(st.none() | st.integers(0, 1), max_size=20), st.integers(0, 21), st.integers(0, 9))
def test_plain_numbers_are_what_arrow_makes_of_them_null_is_nan(values, first, length):
    for kind in (pa.float64(), pa.float32(), pa.int8(), pa.uint64(), pa.bool_()):
        given_values = (
            values if kind != pa.bool_() else [None if v is None else bool(v) for v in values]
        )
        column = pa.array(given_values, kind).slice(first, length)
        expected = [float("nan") if v is None else float(v) for v in column.to_pylist()]
        np.testing.assert_array_equal(numbers(column), np.array(expected, dtype=np.float64))
    assert np.isnan(numbers(pa.nulls(3))).all()


@pytest.mark.slow
@given(decimals(), st.integers(0, 3))
def test_decimals_are_the_nearest_floats_or_next_to_them(case, skipped):
    kind, unscaled, scale = case
    with localcontext(prec=90):
        column = pa.array(
            [None if v is None else Decimal(v).scaleb(-scale) for v in unscaled], kind
        )
    got = numbers(column.slice(skipped))
    assert got.dtype == np.float64
    assert len(got) == len(unscaled[skipped:])
    for value, one in zip(got.tolist(), unscaled[skipped:], strict=True):
        if one is None:
            assert np.isnan(value)
            continue
        exact = Fraction(one, 10**scale)
        if abs(one) <= 2**53 and scale <= 22:
            assert value == float(exact)
        assert abs(Fraction(value) - exact) <= abs(exact) * Fraction(8, 2**53)


@given(
    st.sampled_from(sorted(TICKS)),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**10), 10**10),
    st.sampled_from(TimeUnit),
)
def test_times_are_within_two_roundings_of_the_exact_number(tick, count, unit):
    kind = pa.date32() if tick == "D" else pa.timestamp(tick)
    count = count % 2**31 if tick == "D" else count
    column = pa.array([count, None], pa.int32() if tick == "D" else pa.int64()).cast(kind)
    value, null = numbers(column, unit).tolist()
    exact = Fraction(count) * TICKS[tick] / unit.seconds
    assert np.isnan(null)
    assert abs(Fraction(value) - exact) <= abs(exact) * Fraction(2, 2**53)
    if abs(count) < 2**53:
        assert value == float(exact)
    if count > -(2**63) and tick != "D":  # which numpy takes for no time at all
        analyst = unit.of_datetimes(np.array([count, -(2**63)], f"datetime64[{tick}]")).tolist()
        np.testing.assert_array_equal(analyst, [value, np.nan])


@given(st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1)))
def test_bounds_and_records_of_one_time_are_one_number(moment):
    for unit in TimeUnit:
        column = numbers(pa.array([moment], pa.timestamp("us")), unit)
        assert unit.of(moment) == unit.of(moment.replace(tzinfo=UTC)) == column[0]
        assert unit.of_datetimes(np.array([moment], "datetime64[us]"))[0] == column[0]


@pytest.mark.parametrize("form", ["Y", "M", "W", "h", "m", "5m", "ps"])
def test_other_datetimes_of_numpy_are_taken_too(form):
    moments = np.array(["1970-01-01", "NaT"], f"datetime64[{form}]") + np.timedelta64(0, form)
    assert TimeUnit.DAYS.of_datetimes(moments)[0] == 0.0
    assert np.isnan(TimeUnit.DAYS.of_datetimes(moments)[1])


def test_two_dates_are_days_and_two_times_are_seconds():
    assert bounds_of([1, 2.5], "k") == (1.0, 2.5, None)
    days = [moment_of("2026-01-01"), date(2027, 1, 1)]
    assert bounds_of(days, "k") == (20454.0, 20819.0, TimeUnit.DAYS)
    times = [moment_of("2026-01-01T01:00:00+01:00"), moment_of("2026-01-01T00:00:01.5")]
    assert bounds_of(times, "k") == (1767225600.0, 1767225601.5, TimeUnit.SECONDS)
    for mixed in ([1.0, days[0]], [days[0], times[0]], [times[0], 2]):
        with pytest.raises(SpecError, match=r"^k: both bounds must be of one kind. Write two num"):
            bounds_of(mixed, "k")


@pytest.mark.parametrize(
    ("unit", "number", "text"),
    [
        (TimeUnit.DAYS, 20454.0, "2026-01-01"),
        (TimeUnit.DAYS, 20454.375, "2026-01-01T09:00Z"),
        (TimeUnit.SECONDS, 5400.0, "1970-01-01T01:30:00Z"),
    ],
)
def test_numbers_of_times_are_told_and_read_as_moments(unit, number, text):
    assert unit.text(number) == text
    (moment,) = unit.to_datetimes(np.array([number])).tolist()
    assert moment.replace(tzinfo=UTC).isoformat().startswith(text.rstrip("Z"))
    assert unit.of(moment_of(text)) == number
    with pytest.raises(ValueError, match="noon"):
        moment_of("noon")


def test_ids_are_stored_and_read_again():
    column = Column("who", "data.unit.column", ids=True)
    ids = np.array([[1.0, np.nan]])
    assert np.array_equal(from_stored(to_stored(ids, column), column), ids, equal_nan=True)


@pytest.mark.parametrize("text", ["1_0", "١٠", "1_0.0"])
def test_a_folder_s_text_that_is_no_plain_number_is_missing(text):
    """Python reads underscores and the digits of all scripts; what wrote the folder does not."""
    for column in (Column("x", "x"), Column("x", "x", (1, 10))):
        assert np.isnan(value_of_text(text, column))
        assert not np.isnan(value_of_text("10", column))
        assert not np.isnan(value_of_text("01", column))
