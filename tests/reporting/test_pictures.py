"""Axes of dates and times are drawn as such, whichever direction they have."""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pytest

from dbern.data.domain import Axis, TimeUnit
from dbern.reporting.pictures import Panel, Picture, draw, parameters_of
from dbern.reporting.registry import _unprotected

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
            assert {"13:00", "15:00", "at (UTC)", "2026-Jan-01", "1.0"} <= set(said)


def test_every_date_that_a_spec_may_have_is_drawn():
    ends = [TimeUnit.DAYS.of(one) for one in (date.min, date.max)]
    ages = Axis("when", *ends, unit=TimeUnit.DAYS)
    for said in texts(Picture("curve", (ages,), (Panel("", BUMP),))):
        assert "4001" in said


def test_what_was_chosen_from_is_told_in_few_words():
    target = {"kind": "kernel-density", "n": 9, "bandwidth": [1 / 3], "chosen_of": [[1 / 3], [4.0]]}
    told = parameters_of(target)
    assert told["chosen_of"] == "2 bandwidths, 0.333 to 4, by the released numbers"
    assert told["bandwidth"] == [1 / 3]
    assert target["chosen_of"] == [[1 / 3], [4.0]]
    assert parameters_of({"kind": "oracle"}) == {}


def test_a_chosen_bandwidth_is_no_choice_made_without_the_data():
    target = {"kind": "kernel-density", "n": 9, "bandwidth": [1.0], "chosen_of": [[1.0], [4.0]]}
    before, after = _unprotected({"target": target, "domain": {}}).split(" Bandwidth ")
    assert "bandwidth" not in before
    assert after == "[1.0] was chosen of 2 bandwidths, 1 to 4, by the released numbers."
