"""Nights and blocks of a horizon."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.errors import SpecError
from dbern.nights.horizon import Horizon, day_of

FIRST = date(2026, 1, 1)


@st.composite
def horizons(draw: st.DrawFn) -> Horizon:
    count, levels, size = draw(st.integers(1, 60)), [1], 1
    while (size := size * draw(st.integers(2, 5))) < count and draw(st.booleans()):
        levels.append(size)
    return Horizon(FIRST, count, tuple(levels))


@pytest.mark.slow
@given(horizons())
def test_every_night_is_in_one_node_of_each_level(horizon):
    counts = Counter((node.level, night) for node in horizon.nodes() for night in node.nights)
    levels, nights = range(len(horizon.levels)), range(horizon.count)
    every = {(level, night) for level in levels for night in nights}
    assert counts == dict.fromkeys(every, 1)
    assert len({horizon.name(node) for node in horizon.nodes()}) == len(horizon.nodes())
    assert [horizon.node(node.level, node.start) for node in horizon.nodes()] == horizon.nodes()


@pytest.mark.parametrize(("level", "start"), [(0, 10), (0, -1), (1, 2), (1, 12), (2, 0)])
def test_nodes_that_are_not_there_are_refused(level, start):
    with pytest.raises(SpecError, match="is none of this horizon"):
        Horizon(FIRST, 10, (1, 4)).node(level, start)


@pytest.mark.parametrize(
    ("count", "levels", "says"),
    [
        (0, (1,), "stream.horizon: is .*1 to 3660"),
        (3661, (1,), "stream.horizon: is .*1 to 3660"),
        (10, (), "stream.levels: begins with nights"),
        (10, (2, 4), "stream.levels: begins with nights"),
        (10, (1, 1), "blocks of 1 nights are none of 1"),
        (10, (1, 4, 6), "blocks of 6 nights are none of 4"),
        (10, (1, 10), "blocks of 10 nights are none of 1 in 10"),
    ],
)
def test_other_horizons_are_refused(count, levels, says):
    with pytest.raises(SpecError, match=says):
        Horizon(FIRST, count, levels)


@pytest.mark.parametrize("day", ["2025-12-31", "2026-01-11"])
def test_days_outside_are_refused(day):
    with pytest.raises(SpecError, match="outside the horizon, 2026-01-01 to 2026-01-10"):
        Horizon(FIRST, 10).night(day_of(day))


def test_a_text_that_is_no_date_is_refused():
    with pytest.raises(SpecError, match="is no date"):
        day_of("20th of November")
