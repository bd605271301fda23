"""Points in the forms that a query may have them, and answers in the same form."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.synopsis.grids import grid_axes
from dbern.synopsis.labels import of_columns, upright
from dbern.synopsis.points import as_points, confidence, like, orders, per_axis

LINE = Domain((Axis("x", 0, 9),))
PLANE = Domain((Axis("x", 0, 9), Axis("y", 0, 9)))


def test_columns_are_put_in_the_order_of_the_axes():
    assert as_points({"y": [1, 2], "x": [3, 4]}, PLANE).tolist() == [[3.0, 1.0], [4.0, 2.0]]


def test_an_arrow_table_is_answered_by_one_with_a_column_of_values():
    table = pa.table({"x": [1.0, 2.0]})
    assert like(table, np.array([0.5, 0.25]), LINE, ["value"]).to_pylist() == [0.5, 0.25]


@pytest.mark.parametrize(("beta", "exact"), [(0.05, "1/20"), ("1/3", "1/3"), ("0.1", "1/10")])
def test_a_confidence_is_as_it_is_written(beta, exact):
    assert confidence(beta) == Fraction(exact)


@pytest.mark.parametrize("beta", [0, 1, -0.1, "often", float("nan")])
def test_a_confidence_is_between_0_and_1(beta):
    with pytest.raises(SpecError):
        confidence(beta)


def test_an_order_holds_for_every_axis_unless_each_has_its_own():
    assert orders(4, PLANE) == {"x": 4, "y": 4}
    assert orders([4, 2], PLANE) == {"x": 4, "y": 2}
    with pytest.raises(SpecError):
        orders([4], PLANE)


@pytest.mark.parametrize(
    ("given", "integers"), [(3, [3, 3]), ([3, 4], [3, 4]), ([3], None), (0, None), (2.5, None)]
)
def test_integers_per_axis(given, integers):
    assert per_axis(given, 2, 1) == integers


def test_a_grid_has_both_ends_of_its_axes():
    (positions,) = grid_axes(3, LINE)
    assert positions.tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(SpecError):
        grid_axes(1, LINE)


def test_the_second_axis_goes_up_unless_the_first_one_says_that_it_does():
    assert upright(["x", "y", "hour"]) == ("hour", "y", "x")
    assert upright(["latitude", "longitude"]) == ("latitude", "longitude")


def test_columns_follow_the_kind_in_words():
    response = {"columns": {"response": "delay"}, "units": {"delay": "minutes"}}
    assert of_columns(response) == " of delay (minutes)"
    assert of_columns({"columns": {"group": "carrier"}}) == " by carrier"
