"""Windows of a stream: their values, their noise, and everything that a synopsis answers."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from datetime import date

import numpy as np
import pyarrow.parquet as pq
import pytest
from nights import FIRST, Nights

import dbern
from dbern.errors import IntegrityError, SpecError
from dbern.nights.horizon import Horizon
from dbern.nights.stream import Stream
from dbern.nights.windows import WEIGHT_BITS, best_levels, running_variances, window_weights
from dbern.privacy.families import errors_of
from dbern.privacy.laws import LaplaceNoise
from dbern.privacy.public_numbers import public_stream

POINTS = np.linspace(0.5, 9.5, 19)


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Nights:
    """Seven of eight nights, without noise; blocks of three."""
    stream = Nights(tmp_path_factory.mktemp("stream"))
    stream.grant()
    stream.fill(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)
        for night in range(7):
            stream.release(night)
    return stream


@pytest.fixture
def stream(nights) -> Stream:
    return dbern.open_stream(nights.output)


def rows(nights: Nights, *which: int) -> np.ndarray:
    folders = [nights.folder / "data" / f"2026-01-0{night + 1}" for night in which]
    return np.concatenate([pq.read_table(folder)["x"].to_numpy() for folder in folders])


def density(x: np.ndarray, count: int) -> np.ndarray:
    """Gaussian kernels of width 1 over 100 rows a night."""
    kernels = np.exp(-((POINTS[:, None] - x) ** 2) / 2) / math.sqrt(2 * math.pi)
    return kernels.sum(axis=1) / (100 * count)


@pytest.mark.slow
@pytest.mark.parametrize("window", [(0, 6), (0, 2), (1, 4), (4, 4), (5, 6)])
def test_a_window_is_the_sum_of_its_nights(nights, stream, window):
    first, last = (date(2026, 1, 1 + night) for night in window)
    synopsis = stream.between(first, str(last))
    every = range(window[0], window[1] + 1)
    expected = density(rows(nights, *every), len(every))
    np.testing.assert_allclose(synopsis(POINTS), expected, atol=2e-3)
    assert synopsis.metadata["target"]["normalizer"] == 100 * len(every)
    assert synopsis.metadata["name"] == f"trips.{first}..{last}"
    assert synopsis.verify() > 0
    certificate = synopsis.metadata["certificate"]
    assert 0 < certificate["lower_bound"] < certificate["total"]
    assert synopsis.metadata["components"][0]["certificate"]["total"] == certificate["total"]
    assert str(synopsis.guarantee) == "epsilon 1"


def test_a_stream_answers_for_its_latest_night_and_every_day_before(nights, stream):
    assert repr(stream).startswith("<Stream trips, 7 of 8 nights at")
    latest, at = stream.latest(), stream.at("2026-01-07")
    np.testing.assert_array_equal(latest(POINTS), at(POINTS))
    for days in ("", "@2026-01-07", "@2026-01-01..2026-01-07"):
        url = f"{nights.output}{days}"
        np.testing.assert_array_equal(dbern.open(url)(POINTS), at(POINTS))
    again = pickle.loads(pickle.dumps(at))
    np.testing.assert_array_equal(again(POINTS), at(POINTS))
    grid = at.grid(20)
    assert grid.sizes == {"x": 20}


def test_bins_of_a_window_answer_questions(nights, stream):
    x = rows(nights, 3, 4, 5)
    window = stream.between("2026-01-04", "2026-01-06")
    answer = window.distribution().mass({"x": (2.0, 7.0)})
    share = ((x >= 2) & (x <= 7)).mean()
    assert answer.low <= share <= answer.high
    assert answer.value == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda s: s.at("2026-01-08"), "2026-01-08 of the window is not published"),
        (lambda s: s.at("2026-02-01"), "outside the horizon"),
        (lambda s: s.between("2026-01-05", "2026-01-03"), "the first day is after the last"),
        (lambda s: s.at("today"), "is no date"),
        (lambda s: dbern.open(f"{s.location}@2026-01-03.."), "the window has one day"),
        (lambda s: dbern.open(f"{s.location}@..2026-01-03"), "the window has one day"),
        (lambda s: s.series({"x": (0, 5)}, every="year"), 'write "day", "week" or "month"'),
        (lambda s: s.series({"x": (0, 5)}, every="month"), "no whole month is published yet"),
    ],
)
def test_windows_that_are_not_there_are_refused(stream, ask, says):
    with pytest.raises(SpecError, match=says):
        ask(stream)


def test_series_take_what_questions_and_points_take(stream):
    half_open = stream.series({"x": (5.0, None)}, every="week")
    assert half_open.label == "share of the rows in x from 5 up"
    same = [stream.series(what, every="week").values for what in ({"x": 4.0}, [4.0])]
    np.testing.assert_array_equal(*same)
    with pytest.raises(SpecError):
        stream.series({"y": 4.0})


def test_a_folder_may_have_an_at_sign(nights, tmp_path):
    folder = tmp_path / "people@work"
    folder.symlink_to(nights.output)
    np.testing.assert_array_equal(
        dbern.open(folder)(POINTS), dbern.open(f"{folder}@2026-01-07")(POINTS)
    )


def test_what_is_no_stream_is_refused(tmp_path, nights):
    for folder in (tmp_path, tmp_path / "none", nights.output / "2026-01-01.zarr"):
        with pytest.raises(SpecError, match=r"is no stream \(it has no stream.json\)"):
            dbern.open_stream(folder)
    index = json.loads((nights.output / "stream.json").read_text())
    for damaged in ({"format": "dbern-stream"}, index | {"levels": [1, 9]}, index | {"horizon": 0}):
        (tmp_path / "stream.json").write_text(json.dumps(damaged))
        with pytest.raises(IntegrityError, match=r"stream\.json"):
            dbern.open_stream(tmp_path)


def test_a_node_of_another_stream_is_refused(nights, tmp_path):
    index = json.loads((nights.output / "stream.json").read_text())
    (tmp_path / "stream.json").write_text(json.dumps(index | {"name": "others"}))
    (tmp_path / "2026-01-01.zarr").symlink_to(nights.output / "2026-01-01.zarr")
    with pytest.raises(IntegrityError, match="is not the node of"):
        dbern.open_stream(tmp_path).at("2026-01-01")


@pytest.mark.slow
@pytest.mark.parametrize("night", [0, 3])
def test_a_node_that_another_charge_paid_for_is_refused(nights, tmp_path, night):
    """As another ledger's stream of the same spec has it: its rows are no part of this."""
    other = Nights(tmp_path)
    other.grant()
    other.fill(night + 1)
    other.release(night, stream={"first": FIRST})
    mixed, name = tmp_path / "mixed", f"2026-01-0{night + 1}"
    shutil.copytree(nights.output, mixed)
    shutil.rmtree(mixed / f"{name}.zarr")
    shutil.copytree(other.output / f"{name}.zarr", mixed / f"{name}.zarr")
    opened = dbern.open_stream(mixed)
    for ask in (lambda: opened.between(name, name), lambda: opened.series([4.0], every="day")):
        with pytest.raises(IntegrityError, match="was paid by another charge"):
            ask()


def test_series_hold_all_windows_at_once(nights, stream):
    series = stream.series({"x": (2.0, 7.0)}, every="day")
    assert series.days == tuple(date(2026, 1, day) for day in range(1, 8))
    for night in range(7):
        x = rows(nights, night)
        assert series.low[night] <= ((x >= 2) & (x <= 7)).mean() <= series.high[night]
    assert series.label == "share of the rows in x 2 to 7"
    of_point = stream.series({"x": 4.0}, every="week")
    assert of_point.values == pytest.approx(stream.latest()(np.array([4.0])))
    axes = series.plot()
    assert axes.get_title().startswith(series.label)
    assert len(axes.lines[0].get_xdata()) == 7


@pytest.mark.slow
def test_a_year_of_totals_errs_as_planned():
    """By 2000 independent cells: draws of the nodes' own law, summed by the weights."""
    horizon, cells = Horizon(FIRST, 365, best_levels(365, float)), 2000
    law = LaplaceNoise(2000, 0, 2000)  # of two levels at epsilon 1, in thousandths of a row
    nodes = horizon.nodes()
    weights = np.zeros((365, len(nodes)))
    for night in range(365):
        closed = {node: frozenset(node.nights) for node in nodes if node.stop <= night + 1}
        for node, weight in window_weights(closed, range(night + 1)).items():
            weights[night, nodes.index(node)] = math.ldexp(weight, -WEIGHT_BITS)
    noise = errors_of(law).simulate(len(nodes), cells, public_stream("a year", 0)) / 1000
    found = math.sqrt(np.square(weights @ noise).mean())
    planned = math.sqrt(8 * running_variances(365, horizon.levels).mean())
    assert planned < 12
    assert found == pytest.approx(planned, rel=0.03)


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_bands_and_questions_cover_over_the_nights(nights, monkeypatch):
    """100 times all nodes with new noise: of 5 % claims more than 12 would fail once in 10^3."""
    failures = {"interval": 0, "mass": 0}
    x = rows(nights, 0, 1, 2, 3, 4)
    truth, share = density(x, 5), ((x >= 3) & (x <= 6)).mean()
    original, draws = Stream.values, 0

    def noisy(stream, node, path):
        values = original(stream, node, path)
        component = stream.node(node).released.components[0]
        law = component.noise.law
        name = f"{draws} {node}"
        noise = errors_of(law).simulate(values.size, 1, public_stream(name, 0))[:, 0]
        return values + component.noise.granularity * noise.reshape(values.shape)

    monkeypatch.setattr(Stream, "values", noisy)
    for draws in range(100):  # noqa: B007 -- read by `noisy`
        window = dbern.open_stream(nights.output).at("2026-01-05")
        low, high = window.interval(POINTS)
        failures["interval"] += not ((low <= truth) & (truth <= high)).all()
        answer = window.distribution().mass({"x": (3.0, 6.0)})
        failures["mass"] += not answer.low <= share <= answer.high
    assert max(failures.values()) <= 12, failures


@pytest.mark.slow
def test_commands_take_a_stream(nights, run, tmp_path):
    assert "trips.2026-01-01..2026-01-07" in run("show", str(nights.output)).out
    window = f"{nights.output}@2026-01-02..2026-01-03"
    assert " % of the rows lie in x 2 to 7 (" in run("ask", window, "--mass", "x=2..7").out
    page = tmp_path / "page.html"
    assert run("report", str(nights.output), "--out", str(page)).code == 0
    assert "trips.2026-01-01..2026-01-07" in page.read_text()
