"""Percentages are what shares say, and their intervals never say more."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbern.system.texts import IntervalDigits, percent

SHARES = st.floats(-1.0, 1.0)


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.25, 3, "25 %"),
        (0.4667, 3, "46.7 %"),
        (0.46, 1, "46 %"),
        (1.0, 2, "100 %"),
        (0.9951, 2, "100 %"),
        (0.0, 3, "0 %"),
        (12.5, 3, "1250 %"),
        (0.00123456, 3, "0.123 %"),
        (-0.25, 3, "-25 %"),
        (1.79e-7, 3, "1.79×10⁻⁵ %"),
    ],
)
def test_a_share_is_a_percentage(share, digits, text):
    assert percent(share, digits) == text


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.466, 0.468, ("46.60", "46.80")),
        (0.29, 0.31, ("29.0", "31.0")),  # read as they print, not as floats are
        (0.0, 1.0, ("0", "100")),
        (0.0, 0.0, ("0.00", "0.00")),
        (-0.0001, 0.0002, ("-0.010", "0.020")),
        (math.nan, 0.5, ("nan", "50.00")),
    ],
)
def test_an_interval_has_two_digits_of_its_half_width(low, high, texts):
    shares = IntervalDigits.of([low], [high], 100)
    assert (shares.low(low), shares.high(high)) == texts


@given(SHARES, SHARES, st.floats(0.0, 1.0))
@example(0.1, 0.1 + 1e-15, 0.5)
@example(-0.0, 0.5, 0.0)
def test_an_interval_as_printed_holds_the_interval(one, another, part):
    low, high = sorted((one, another))
    shares = IntervalDigits.of([low], [high], 100)
    near = 1e-13  # floats are read as they print
    assert float(shares.low(low)) <= 100 * low + near
    assert float(shares.high(high)) >= 100 * high - near
    value = min(max(low + part * (high - low), low), high)
    assert float(shares.low(low)) <= float(shares.value(value)) <= float(shares.high(high))
    assert not shares.value(value).startswith("-0.") or value < 0
    wider = float(shares.high(high)) - float(shares.low(low)) - 100 * (high - low)
    assert wider <= max(20 * (high - low), 2.1e-9) or high == low


def test_digits_are_those_of_the_narrowest_interval():
    assert IntervalDigits.of([0.1, 0.2], [0.2, 0.2002], 100).decimals == 4
    assert IntervalDigits.of([0.1, 0.3], [0.1, 0.32], 100).decimals == 1
