"""Axes of dates and times are drawn as such, whichever direction they have."""

from __future__ import annotations

import re
from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest

from dbern.certify.error_summary import ErrorSummary
from dbern.cli.show import _describe
from dbern.data.domain import Axis
from dbern.data.times import TimeUnit
from dbern.report.pictures import Panel, Picture, upright_picture
from dbern.report.svg import draw
from dbern.report.terminal import _curve, drawing
from dbern.report.wording import parameters_of

pytestmark = pytest.mark.slow  # matplotlib

YEAR = [TimeUnit.DAYS.of(date(year, 1, 1)) for year in (2026, 2027)]
BUMP = np.exp(-(np.linspace(-2.0, 2.0, 40) ** 2))


def texts(picture: Picture) -> list[list[str]]:
    return [re.findall(r"<text[^>]*>([^<]+)</text>", svg) for svg in draw(picture, "p").values()]


def test_a_curve_over_days_has_months_on_its_axis():
    days = Axis("when", *YEAR, unit=TimeUnit.DAYS)
    for said in texts(Picture("curve", (days,), (Panel("", BUMP),))):
        assert {"2026", "2027", "Jul", "when"} <= set(said)


def test_a_map_over_seconds_has_hours_on_its_axis_and_names_their_zone():
    noon = 86400 * YEAR[0] + 43200
    times = Axis("at", noon, noon + 14400, unit=TimeUnit.SECONDS)
    for axes in ((times, Axis("x", 0.0, 2.0)), (Axis("x", 0.0, 2.0), times)):
        for said in texts(Picture("map", axes, (Panel("", np.outer(BUMP, BUMP)),))):
            assert {"13:00", "15:00", "at (UTC)", "2026-01-01", "1.0"} <= set(said)


def test_every_date_that_a_spec_may_have_is_drawn():
    ends = [TimeUnit.DAYS.of(one) for one in (date.min, date.max)]
    ages = Axis("when", *ends, unit=TimeUnit.DAYS)
    for said in texts(Picture("curve", (ages,), (Panel("", BUMP),))):
        assert "4001" in said


@pytest.mark.parametrize("value", [0.0, -3.0, 5e19, 5e99])
def test_a_flat_curve_of_any_size_is_drawn(value):
    """Before, from 2^53 on one more was no other number, and `show` divided by zero."""
    panel = Panel("", np.full(120, value))
    lines = list(_curve(Picture("curve", (Axis("x", 0.0, 1.0),), (panel,)), panel))
    assert "⣀" in lines[-2]


def test_what_was_chosen_from_is_told_in_few_words():
    target = {"kind": "kernel-density", "n": 9, "bandwidth": [1 / 3], "chosen_of": [[1 / 3], [4.0]]}
    told = parameters_of(target)
    assert told["chosen_of"] == "2 bandwidths, 0.333 to 4, by the released numbers"
    assert told["bandwidth"] == [1 / 3]
    assert target["chosen_of"] == [[1 / 3], [4.0]]
    assert parameters_of({"kind": "oracle"}) == {}


def test_a_curve_is_no_flat_line_within_a_far_wider_band():
    """What is drawn of a band reaches three times as far beyond the values as they vary."""
    line, x = np.linspace(1.0, 2.0, 120), Axis("x", 0.0, 1.0)
    wide, near = (
        Picture("curve", (x,), (Panel("", line, line - width, line + width),))
        for width in (1000.0, 2.0)
    )
    assert (wide.low, wide.high, wide.beyond) == (-2.0, 5.0, True)
    assert (near.low, near.high, near.beyond) == (-1.0, 4.0, False)
    rows = [
        row for row in _curve(wide, wide.panels[0]) if any(0x2800 < ord(c) < 0x2900 for c in row)
    ]
    assert len(rows) >= 2
    flat = Picture("curve", (x,), (Panel("", 0 * line, 0 * line - 7.0, 0 * line + 7.0),))
    assert (flat.low, flat.high) == (-7.0, 7.0)  # which varies by nothing


@pytest.mark.parametrize(
    ("name", "turned"), [("lat", True), ("pickup_latitude", True), ("flat", False)]
)
def test_latitudes_are_drawn_upward_in_a_terminal(name, turned):
    axes = Axis(name, 40.0, 41.0), Axis("lon", -74.0, -73.0)
    found = upright_picture(Picture("map", axes, (Panel("", np.arange(6.0).reshape(2, 3)),)))
    assert found.axes == (axes[::-1] if turned else axes)
    assert found.panels[0].values.shape == ((3, 2) if turned else (2, 3))
    again = upright_picture(found)
    assert again.axes == found.axes


@pytest.mark.parametrize("axes", [("a",), ("a", "b")])
def test_thousands_are_plain_spaces_apart_in_a_terminal(axes, monkeypatch):
    curve = len(axes) == 1
    values = np.linspace(0.0, 14_000.0, 120 if curve else 60)
    panel = Panel("", values if curve else np.outer(values, np.linspace(0.5, 1.0, 60)))
    drawn_axes = tuple(Axis(name, 3000.0, 26_000.0) for name in axes)
    picture = Picture("curve" if curve else "map", drawn_axes, (panel,))
    monkeypatch.setattr("dbern.report.terminal.picture_of", lambda *_: picture)
    synopsis = SimpleNamespace(domain=SimpleNamespace(numeric=axes))
    drawn = drawing(synopsis)
    assert drawn.count("3 000") == drawn.count("26 000") == len(axes)
    assert "14 000" in drawn
    assert "?" not in drawn
    assert all(letter.isprintable() for letter in drawn.replace("\n", ""))


def test_a_terminal_cuts_no_name_of_an_axis_or_of_values(monkeypatch):
    names = "longitude (degrees_east)", "hours_per_week (degrees_north)"
    panel, axes = Panel("", np.outer(np.arange(60.0), np.ones(60))), [Axis(n, 0, 1) for n in names]
    picture = Picture(
        "map", tuple(axes), (panel,), value=f"density per unit of {' and '.join(names)}"
    )
    monkeypatch.setattr("dbern.report.terminal.picture_of", lambda *_: picture)
    lines = drawing(SimpleNamespace(domain=SimpleNamespace(numeric=names))).splitlines()
    assert lines[0].strip() == f"up: {names[1]}"
    assert names[0] in lines[21]
    assert " ".join(line.strip() for line in lines[23:]) == picture.value
    assert max(map(len, lines)) <= 72


def test_a_certificate_that_a_constant_keeps_is_shown_as_that():
    facts = {
        "name": "n", "created": "now", "target": {"kind": "logistic-regression"}, "components": [],
        "domain": {"axes": []}, "epsilon": "1", "delta": "0", "neighbors": "one", "unit": "row",
        "certificate": {"approximation": 0.0, "rounding": 0.0, "noise": 9.0, "beta": 0.05},
    }  # fmt: skip
    told = ErrorSummary(None, None, 9.0, 0.05, "", None, (-1.0, 1.0), True)
    assert "certificate  empty: a constant is never off by more than 1" in _describe(
        facts, told.constant
    )
    told = ErrorSummary(None, None, 0.5, 0.05, "", None, (-1.0, 1.0), True)
    assert "sup error <= 9 with" in _describe(facts, told.constant)


@pytest.mark.filterwarnings("error::UserWarning")  # of matplotlib: no room
def test_long_names_leave_room_for_the_axes():
    axis = Axis("x" * 200, 0.0, 9.0)
    for said in texts(Picture("curve", (axis,), (Panel("", BUMP),), value="delay " * 50)):
        assert {"delay " * 7 + "delay…", "x" * 47 + "…"} <= set(said)


def test_large_numbers_are_written_for_people():
    prices = Picture("curve", (Axis("x", 0.0, 9.0),), (Panel("", 13_000 + 4000 * BUMP),))
    for said in texts(prices):
        assert {"14\u202f000", "16\u202f000"} <= set(said)
