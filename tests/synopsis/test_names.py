"""What a release is about: names, units and texts in its store, its grids, plots and pages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from banding import in_memory
from matplotlib.figure import Figure
from shared import restated
from unpacking import unpacked

import dbern
from dbern.ask.labels import _as_datetimes, named_values
from dbern.cli.show import _describe
from dbern.data.domain import Axis
from dbern.data.times import TimeUnit
from dbern.errors import IntegrityError, SpecError
from dbern.model.strict import parse_object
from dbern.planning.planner import plan_files
from dbern.report.live import live
from dbern.report.page import synopsis_page
from dbern.synopsis.metadata import ReleaseMetadata

ROWS = 4000
RESPONSE = {"column": "delay", "bounds": [0.0, 60.0]}
GROUP = {"column": "carrier", "values": ["AA", "UA"]}
LABEL = {"column": "late", "classes": [False, True]}
REGRESSION = {"kind": "nadaraya-watson", "bandwidth": [300.0]}
TEXTS = {"title": "Delay by distance", "description": "Flights of 2001"}
UNITS = {"distance": "miles", "delay": "minutes"}


def spec_of(target, release=(), **data):
    bounds = {"distance": [0.0, 3000.0]}
    return dbern.ReleaseSpec(
        release={"name": "flights", "output": "flights.zarr", **dict(release)},
        data={"source": "*.parquet", "bounds": bounds, "n": ROWS, **data},
        target=target,
        mechanism={"noise": "auto"},
        budget={"epsilon": "2", "ledger": "sqlite:///l.db", "dataset": "flights"},
    )


def made(spec):
    generator = np.random.default_rng(2)
    distance = generator.uniform(0, 3000, ROWS)
    records = {"distance": distance, "delay": 10 + distance / 100}
    records |= {"carrier": generator.integers(0, 2, ROWS).astype(float)}
    records["late"] = np.where(distance > 1500, 1.0, 0.0)
    return in_memory(spec, records)


def renamed(synopsis, **facts):
    """The same numbers under other names; None takes one away."""
    kept = {**synopsis.metadata, **facts}
    return restated(synopsis, {key: one for key, one in kept.items() if one is not None})


@pytest.fixture
def delays():
    return made(spec_of(REGRESSION, TEXTS, response=RESPONSE, units=UNITS))


@pytest.fixture
def carriers():
    return made(spec_of({"kind": "kernel-density", "bandwidth": [300.0]}, group=GROUP))


# --- What is stored


@pytest.mark.slow
def test_a_store_names_columns_and_texts_and_none_that_were_not_stated(delays, carriers):
    facts = delays.metadata
    assert {key: facts[key] for key in ("title", "description")} == TEXTS
    assert (facts["columns"], facts["units"]) == ({"response": "delay"}, UNITS)
    facts = carriers.metadata
    assert facts["columns"] == {"group": "carrier"}
    assert not {"title", "description", "units"} & set(facts)
    alone = made(spec_of({"kind": "kernel-density", "bandwidth": [300.0]})).metadata
    assert not {"title", "description", "units", "columns"} & set(alone)


def test_texts_are_part_of_what_a_release_is():
    """A rerun with another title is refused: it neither pays again nor is it ignored."""
    plain = spec_of(REGRESSION, response=RESPONSE).identity()
    assert not {"title", "description"} & set(plain["release"])
    assert "units" not in plain["data"]
    for texts, units in (({"title": "a"}, {}), ({"description": "a"}, {}), ({}, {"delay": "h"})):
        data = {"units": units} if units else {}
        assert spec_of(REGRESSION, texts, response=RESPONSE, **data).identity() != plain


@pytest.mark.slow
def test_no_choice_depends_on_texts():
    plain = spec_of(REGRESSION, response=RESPONSE)
    texts = spec_of(REGRESSION, TEXTS, response=RESPONSE, units=UNITS)
    designs = [plan_files(spec, ()).components for spec in (plain, texts)]
    assert designs[0] == designs[1]


@pytest.mark.parametrize(
    ("release", "data", "said"),
    [
        ({"title": ""}, {}, r"release\.title: must be one line that can be printed. Write title ="),
        *(({"title": title}, {}, r"release\.title: must be one line")
          for title in ("a\nb", "a\x1b[2J", "a\u202eb")),
        ({"title": "a" * 201}, {}, r"release\.title: has more than 200 letters. Write title ="),
        ({"description": "a" * 2001}, {}, r"release\.description: has more than 2000 letters"),
        ({"title": 7}, {}, r"release\.title: .*Write title ="),
        ({}, {"units": {"delay": "m" * 61}}, r"data\.units\.delay: has more than 60 letters"),
        ({}, {"units": {"delay": " "}}, r"data\.units\.delay: must be one line"),
        ({}, {"units": {"speed": "mph"}}, r"data\.units\.speed: .* Write those of distance, delay"),
        ({}, {"bounds": {"when": ["2026-01-01", "2026-02-01"]}, "units": {"when": "days"}},
         r"data\.units\.when: .* Write those of delay"),
        ({}, {"response": {**RESPONSE, "column": "d" * 256}},
         r"data\.response\.column: has more than 255 letters"),
    ],
)  # fmt: skip
def test_texts_that_cannot_be_shown_are_refused(release, data, said):
    with pytest.raises(SpecError, match=said):
        spec_of(REGRESSION, release, **{"response": RESPONSE, **data})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title", "a" * 201),
        ("title", 3),
        ("description", "a" * 2001),
        ("columns", {"response": "a" * 256}),
        ("columns", ["delay"]),
        ("units", {"delay": "a" * 61}),
        ("units", {"delay": 1}),
    ],
)
def test_a_store_whose_texts_have_no_bounds_is_refused(delays, key, value):
    facts = {**delays.metadata, "release_id": "0" * 32, "created": "2026-01-01T00:00:00+00:00"}
    parse_object(ReleaseMetadata, json.dumps(facts).encode(), "case.zarr", "zarr.json")
    text = json.dumps({**facts, key: value}).encode()
    with pytest.raises(IntegrityError, match=key):
        parse_object(ReleaseMetadata, text, "case.zarr", "zarr.json")


# --- What is seen of it


@pytest.mark.slow
def test_grids_and_plots_are_labelled(delays, carriers):
    grid = delays.grid(5)
    words = {"long_name": "delay", "units": "minutes"}
    assert grid.attrs == {**words, **TEXTS}
    assert grid["distance"].attrs == {"long_name": "distance", "units": "miles"}
    axes = Figure().add_subplot()
    delays.plot(axes)
    assert axes.get_xlabel() == "distance [miles]"
    assert axes.get_ylabel() == "mean of delay [minutes]"
    title, *what, band = axes.get_title().split("\n")
    assert title == "Delay by distance"
    assert " ".join(what).startswith("mean of delay (")
    assert " ".join(what).endswith(" minutes) by distance (miles), smoothed over 300, epsilon 2")
    assert band == "the band holds everywhere at once, 95 % sure"
    grouped = carriers.grid(5)
    assert grouped.dims == ("distance", "group")
    assert grouped["group"].attrs["long_name"] == "carrier"
    assert carriers(grouped)["group"].attrs["long_name"] == "carrier"
    logs = carriers.score_samples(grouped)
    assert logs.dims == ("distance", "group")
    axes = Figure().add_subplot()
    carriers.plot(axes)
    assert axes.get_legend().get_title().get_text() == "carrier"
    assert axes.get_ylabel() == "density per unit of distance"
    renamed(carriers, units={"distance": "km/h"})
    axes = Figure().add_subplot()
    carriers.plot(axes)
    assert axes.get_xlabel() == "distance [km/h]"
    assert axes.get_ylabel() == "density per unit of distance"
    assert named_values(carriers.combination, carriers.domain, carriers.metadata) == (
        "density", "(km/h)-1"
    )  # fmt: skip


def test_a_band_far_wider_than_a_curve_does_not_flatten_it(delays, monkeypatch):
    def wide(points):
        return delays(points) - 1e6, delays(points) + 1e6

    monkeypatch.setattr(delays, "interval", wide)
    axes = Figure().add_subplot()
    (line,) = delays.plot(axes)
    bottom, top = axes.get_ylim()
    assert top - bottom <= 7.1 * np.ptp(line.get_ydata())


@pytest.mark.slow
def test_a_classifier_says_of_which_class_its_values_are():
    synopsis = made(
        spec_of({"kind": "logistic-regression", "method": "weights", "C": 1.0}, label=LABEL)
    )
    assert synopsis.grid(3).attrs["long_name"] == "log-odds of late = True"
    assert "Class of late (False, True) by distance (logistic" in synopsis_page(synopsis)


@pytest.mark.slow
def test_pages_and_show_name_what_a_release_is_about(delays, carriers):
    page, shown = synopsis_page(delays), _describe(delays.metadata)
    assert "<h1>Delay by distance</h1>" in page
    for words in (
        "Flights of 2001", "Mean of delay (",
        "Mean delay (minutes)", "0 to 3\u202f000 miles", "0 to 60 minutes", "Response delay",
    ):  # fmt: skip
        assert words in page, words
    assert "Mean response" not in page
    assert "title        Delay by distance" in shown
    assert "nadaraya-watson of delay (minutes): " in shown
    assert "distance (miles) in [0, 3000]" in shown
    assert delays.promises().unit == " of delay (minutes)"
    page = synopsis_page(carriers)
    assert ", for each carrier (" in page
    assert "Groups by carrier" in page
    assert "kernel-density by carrier: " in _describe(carriers.metadata)


@pytest.mark.slow
def test_a_store_without_names_is_shown_as_before(delays, carriers):
    renamed(delays, columns=None, units=None, title=None, description=None)
    assert delays.grid(3).attrs == {"long_name": "response"}
    page = synopsis_page(delays)
    assert "<h1>flights</h1>" in page
    assert "Mean response" in page
    assert delays.promises().unit == " of the response"
    renamed(carriers, columns=None)
    assert carriers.grid(3)["group"].attrs["long_name"] == "group"
    assert "Classes or groups" in synopsis_page(carriers)


@pytest.mark.slow
def test_texts_of_a_stranger_are_neither_obeyed_nor_computed(delays, carriers):
    evil = "<script>x</script> $\\foo{$ \x1b[2J\u202e {0}"
    renamed(delays, title=evil, description=evil, columns={"response": evil}, units={evil: evil})
    renamed(carriers, columns={"group": evil}, title=evil)
    for synopsis in (delays, carriers):
        page = synopsis_page(synopsis)
        assert "<script>x" not in page
        assert not {"\x1b", "\u202e"} & set(page)
        figure = Figure()
        synopsis.plot(figure.add_subplot())
        figure.savefig("/dev/null", format="svg")  # a formula that is none would be refused
        texts = "".join(
            one.get_text() for one in figure.findobj(lambda one: hasattr(one, "get_text"))
        )
        assert "$" in texts
        assert not {"\x1b", "\u202e"} & set(texts)


# --- Dates


@pytest.mark.parametrize("unit", TimeUnit)
def test_dates_are_datetimes_that_are_taken_back(unit):
    low = 20454.0 * (86400 // unit.seconds)
    axis = Axis("when", low, low + 365.0 * (86400 // unit.seconds), unit)
    numbers = axis.at(np.linspace(0, 1, 401))
    moments = _as_datetimes(numbers, axis)
    assert moments.dtype == np.dtype("datetime64[us]")
    assert moments[[0, -1]].astype(str).tolist() == [
        "2026-01-01T00:00:00.000000", "2027-01-01T00:00:00.000000"
    ]  # fmt: skip
    back = unit.of_datetimes(moments)
    assert np.abs(back - numbers).max() * unit.seconds < 1e-6
    assert (back[0], back[-1]) == (axis.low, axis.high)


@pytest.mark.parametrize(
    ("low", "high", "unit", "within"),
    [
        *((5e5 + shift, 9e5 + shift, TimeUnit.SECONDS, 1e-6) for shift in (1e-9, 3.3e-7, -4.1e-7)),
        (-700_000.0, 2_900_000.0, TimeUnit.DAYS, 0.0),  # the years 53 and 9909
    ],
)
def test_ends_between_microseconds_stay_within_the_bounds(low, high, unit, within):
    axis = Axis("when", low, high, unit)
    back = unit.of_datetimes(_as_datetimes(axis.at(np.linspace(0, 1, 5)), axis))
    assert low <= back[0] <= low + within
    assert high - within <= back[-1] <= high


def test_a_quantile_of_a_date_says_its_hour():
    assert TimeUnit.DAYS.text(20454.0) == "2026-01-01"
    assert TimeUnit.DAYS.text(20454.375) == "2026-01-01T09:00Z"
    assert TimeUnit.DAYS.text(20454.99999) == "2026-01-02"


# --- One band


def test_the_page_of_a_regression_has_the_interval(delays):
    facts = json.loads(live(delays)["facts"])
    value, below, above = unpacked(facts["drawn"]).reshape(3, facts["places"])
    points = delays.domain.axes[0].at((np.arange(facts["places"]) + 0.5) / facts["places"])
    ends = delays.interval(points, 0.05)
    found = value, value - below, value + above
    np.testing.assert_allclose(found, [delays(points), *ends], rtol=1e-6)
