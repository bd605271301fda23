"""Nights and blocks of a horizon."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.data.horizon import Horizon, day_of
from dbern.errors import SpecError

FIRST = date(2026, 1, 1)


@st.composite
def horizons(draw: st.DrawFn) -> Horizon:
    count, blocks, size = draw(st.integers(1, 60)), [], 1
    while (size := size * draw(st.integers(2, 5))) < count and draw(st.booleans()):
        blocks.append(size)
    return Horizon(FIRST, count, tuple(blocks))


@given(horizons())
def test_every_night_is_in_one_node_of_each_level(horizon):
    nights = Counter((node.level, night) for node in horizon.nodes() for night in node.nights)
    every = {(level, night) for level in range(horizon.levels) for night in range(horizon.count)}
    assert nights == dict.fromkeys(every, 1)
    assert len({horizon.name(node) for node in horizon.nodes()}) == len(horizon.nodes())
    assert [horizon.node(node.level, node.start) for node in horizon.nodes()] == horizon.nodes()


@pytest.mark.parametrize(("level", "start"), [(0, 10), (0, -1), (1, 2), (1, 12), (2, 0)])
def test_nodes_that_are_not_there_are_refused(level, start):
    with pytest.raises(SpecError, match="is none of this horizon"):
        Horizon(FIRST, 10, (4,)).node(level, start)


@pytest.mark.parametrize(
    ("count", "blocks", "says"),
    [
        (0, (), "stream.horizon: is .*1 to 3660"),
        (3661, (), "stream.horizon: is .*1 to 3660"),
        (10, (1,), "blocks of 1 nights are none of 1"),
        (10, (4, 6), "blocks of 6 nights are none of 4"),
        (10, (10,), "blocks of 10 nights are none of 1 in 10"),
    ],
)
def test_other_horizons_are_refused(count, blocks, says):
    with pytest.raises(SpecError, match=says):
        Horizon(FIRST, count, blocks)


@pytest.mark.parametrize("day", ["2025-12-31", "2026-01-11"])
def test_days_outside_are_refused(day):
    with pytest.raises(SpecError, match="outside the horizon, 2026-01-01 to 2026-01-10"):
        Horizon(FIRST, 10).night(day_of(day))


def test_a_text_that_is_no_date_is_refused():
    with pytest.raises(SpecError, match="is no date"):
        day_of("20th of November")
