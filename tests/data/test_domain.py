"""Records that count, and the missing record for all others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.data.domain import Axis, Domain, Outside
from dbern.data.times import TimeUnit
from dbern.errors import SpecError

BOX = (Axis("x", -1.0, 3.0), Axis("y", 10.0, 20.0))
NULLS = [math.nan, math.inf, -math.inf]


def bounded(outside, x, y):
    columns = {"y": np.array(y, dtype=float), "x": np.array(x, dtype=float), "other": np.zeros(0)}
    kept, positions = Domain(BOX, outside).bounded(columns)
    assert kept.sum() == len(positions)
    return positions.tolist()


@pytest.mark.parametrize("outside", Outside)
@pytest.mark.parametrize("null", NULLS)
def test_missing_and_infinite_values_make_a_missing_record(outside, null):
    assert bounded(outside, [null, 1.0, null], [15.0, null, null]) == []
    assert bounded(outside, [0.0, null, 3.0], [12.5, 15.0, 20.0]) == [[0.25, 0.25], [1.0, 1.0]]


def test_outside_values_are_dropped():
    beyond = [np.nextafter(-1.0, -2.0), np.nextafter(3.0, 4.0), 1e300, -1e300]
    assert bounded(Outside.DROP, beyond, [15.0] * 4) == []
    assert bounded(Outside.DROP, [1.0, 1.0], [9.0, 15.0]) == [[0.5, 0.5]]
    assert bounded(Outside.DROP, [-1.0, 3.0], [20.0, 10.0]) == [[0.0, 1.0], [1.0, 0.0]]


def test_outside_values_are_clamped_axis_by_axis():
    assert bounded(Outside.CLAMP, [-2.0, 1e300, 1.0], [15.0, 9.0, -1e300]) == [
        [0.0, 0.5], [1.0, 0.0], [0.5, 0.0]]  # fmt: skip


@given(
    low=st.floats(-1e12, 1e12),
    width=st.floats(1e-3, 1e12),
    values=st.lists(st.floats(), max_size=30),
    outside=st.sampled_from(Outside),
)
def test_positions_lie_in_the_unit_cube_and_are_those_of_each_record_alone(
    low, width, values, outside
):
    if low + width * 1e-9 <= low:
        return
    domain = Domain((Axis("x", low, low + width),), outside)
    kept, together = domain.bounded({"x": np.array(values)})
    alone = [domain.bounded({"x": np.array([value])})[1] for value in values]
    assert kept.tolist() == [len(one) == 1 for one in alone]
    np.testing.assert_array_equal(together, np.concatenate([np.empty((0, 1)), *alone]))
    assert ((together >= 0) & (together <= 1)).all()
    keep = [v for v in values if math.isfinite(v) and (outside is Outside.CLAMP
                                                       or low <= v <= low + width)]  # fmt: skip
    assert len(together) == len(keep)


def test_positions_of_an_axis_never_leave_its_bounds():
    assert Axis("y", -1.0, 1 / 3).at(np.array([0.0, 0.75, 1.0])).tolist() == [-1.0, 0.0, 1 / 3]


def test_an_axis_is_named_for_people():
    assert Axis("distance", 0.0, 9.0, units="miles").label == "distance (miles)"
    assert Axis("x", 0.0, 9.0).label == "x"
    assert Axis("when", 0.0, 9.0, TimeUnit.DAYS).unit_suffix == " (days)"
    assert Axis("x", 0.0, 9.0).unit_suffix == ""


def test_listed_values_span_their_positions():
    axis = Axis.of_values("sex", ["Female", "Male"])
    assert (axis.low, axis.high) == (0.0, 1.0)


def test_integers_and_unit_maps():
    domain = Domain((Axis("year", 1900.0, 2100.0),))
    assert domain.bounded({"year": np.array([1900, 2000, 2100, 2101])})[1].tolist() == [
        [0.0], [0.5], [1.0]]  # fmt: skip
    assert domain.to_unit(np.array([[2200.0]])).tolist() == [[1.5]]
    assert domain.inside(np.array([[1900.0], [2100.0], [np.nan], [1899.0]])).tolist() == [
        True, True, False, False]  # fmt: skip


@pytest.mark.parametrize(
    "bounds",
    [(1.0, 0.0), (0.0, 0.0), (math.nan, 1.0), (0.0, math.nan), (-math.inf, 0.0), (0.0, math.inf),
     (-1.7e308, 1.7e308), (1e16, 1e16 + 2.0)],
)  # fmt: skip
def test_impossible_bounds_are_refused_by_name(bounds):
    with pytest.raises(SpecError, match=r"^data\.bounds\.delay: "):
        Axis("delay", *bounds)


@pytest.mark.parametrize("name", ["a" * 201, "é" * 101, "a/b", ".a", "value", "a\nb"])
def test_names_that_no_store_can_hold_are_refused_before_anything_is_charged(name):
    """Arrays are files that are named after axes, and a file's name has at most 255 bytes."""
    with pytest.raises(SpecError, match="this name cannot be an axis of a synopsis"):
        Axis(name, 0.0, 1.0)
    assert Axis("a" * 200, 0.0, 1.0).width == 1.0
