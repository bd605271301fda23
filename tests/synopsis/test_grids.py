"""Grids that coordinates of xarray span, and regular ones in little more than their memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import xarray
from projects import records, released_in

import dbern
from dbern.errors import SpecError

X, Y = np.array([1.0, 4.0, 11.0]), np.array([-0.5, 0.0, 0.9])


def released(tmp_path_factory, client, **changes):
    columns = {**records(), "group": ["a", "b", "c"] * 80, "half": [True, False] * 120}
    return released_in(tmp_path_factory.mktemp("project"), client, columns, **changes)


@pytest.fixture(scope="module")
def machine(tmp_path_factory, client):
    return released(
        tmp_path_factory, client, data__label={"column": "half", "classes": [False, True]},
        target={"kind": "support-vector-machine", "bandwidth": None, "length_scale": [2.0, 0.4]},
        mechanism={"noise": None},
    )  # fmt: skip


def expected(ask):
    """Point by point."""
    mesh = np.array([[x, y] for y in Y for x in X])
    values = np.asarray(ask(mesh))
    return values.reshape(3, 3, *values.shape[1:])


def grids():
    """Coordinates of one length each: their diagonal has the shape of points."""
    dataset = xarray.Dataset(coords={"y": Y, "x": X})
    array = xarray.DataArray(np.zeros((3, 3)), coords={"y": Y, "x": X}, dims=("y", "x"))
    return {"dataset": dataset, "array": array, "dict": {"x": dataset["x"], "y": dataset["y"]}}


@pytest.mark.parametrize("kind", grids())
def test_a_grid_in_gives_a_grid_out(one, several, kind):
    points = grids()[kind]
    for synopsis in (one, one.shaped("nonnegative"), several):
        found = synopsis(points)
        assert found.dims[:2] == ("y", "x")
        np.testing.assert_array_equal(found["x"], X)
        np.testing.assert_array_equal(found["y"], Y)
        np.testing.assert_allclose(found, expected(synopsis), rtol=1e-12)
        assert np.isnan(found.sel(x=11.0)).all()
        low, high = synopsis.interval(points)
        np.testing.assert_allclose(low, expected(lambda p, s=synopsis: s.interval(p)[0]))
        assert low.dims == high.dims == found.dims
        logarithms = synopsis.score_samples(points)
        np.testing.assert_allclose(logarithms, expected(synopsis.score_samples))
        assert logarithms.dims == found.dims
    assert several(points)["group"].values.tolist() == ["a", "b", "c"]


@pytest.mark.slow
def test_classes_answer_grids_too(machine):
    found = machine.predict(grids()["dataset"])
    assert found.dims == ("y", "x")
    np.testing.assert_array_equal(found, expected(machine.predict))


def test_coordinates_along_one_dimension_are_points(one):
    points = xarray.Dataset({"x": ("ride", X), "y": ("ride", Y)})
    found = one(points)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, one(np.column_stack([X, Y])))
    stacked = grids()["dataset"].stack(ride=["y", "x"])
    np.testing.assert_allclose(one(stacked), expected(one).ravel(), rtol=1e-12)


def test_coordinates_that_are_neither_are_refused(one, monkeypatch):
    curved = xarray.Dataset(
        {"x": (("i", "j"), np.ones((3, 3))), "y": (("i", "j"), np.ones((3, 3)))}
    )
    with pytest.raises(
        SpecError, match=r"x over \(i, j\), y over \(i, j\)\. Write each over a dim"
    ):
        one(curved)
    with pytest.raises(SpecError, match=r"y over \(\)"):
        one(grids()["dataset"].sel(y=0.0))
    with pytest.raises(SpecError, match='no column "y"'):
        one(grids()["dataset"].drop_vars("y"))
    monkeypatch.setattr("dbern.ask.points.memory_limit", lambda: 100)
    with pytest.raises(SpecError, match="the coordinates span 9 points"):
        one(grids()["dataset"])


def test_a_logarithm_is_nan_outside_and_minus_infinity_where_there_is_no_density(one):
    points = np.array([[5.0, 0.0], [11.0, 0.0], [5.0, np.nan]])
    for synopsis in (one, one.shaped("nonnegative")):
        np.testing.assert_array_equal(np.isnan(synopsis.score_samples(points)), [False, True, True])
    found = one.shaped("nonnegative").grid(41)
    assert (found == 0).any()
    inside = np.array(np.meshgrid(found["x"], found["y"])).reshape(2, -1).T
    logarithms = one.shaped("nonnegative").score_samples(inside).reshape(41, 41)
    np.testing.assert_array_equal(logarithms == -np.inf, found == 0)
    assert "NaN outside the bounds" in dbern.Synopsis.score_samples.__doc__


# --- memory ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fine(tmp_path_factory, client):
    """Functions of a fine lattice: so many numbers a point is what must not be held at once."""
    line = {"data__bounds": {"y": None}, "target": {"bandwidth": [2.0]}, "mechanism": {"k": 200}}
    plane = {"mechanism": {"k": 40}}
    group = {"data__group": {"column": "group", "values": ["a", "b", "c"]}}
    kinds = {"line": line, "plane": plane, "groups": {**line, **group}}
    return {name: released(tmp_path_factory, client, **kinds[name]) for name in kinds}


SHAPES = {
    "line": (("line",), 400_000, 1),
    "wide": (("plane",), (100_000, 4), 1),
    "tall": (("plane",), (4, 100_000), 1),
    "square": (("plane",), (600, 600), 1),
    "groups": (("groups",), 200_000, 3),
    "shaped": (("line", "nonnegative"), 400_000, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_grid_takes_little_more_memory_than_its_values(fine, name):
    (kind, *shapes), shape, columns = SHAPES[name]
    synopsis = fine[kind].shaped(*shapes) if shapes else fine[kind]
    synopsis.grid(3)  # imports, tables
    tracemalloc.start()
    try:
        grid = synopsis.grid(shape)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grid.size * 8 < peak < 3.5 * grid.size * 8 + (24 << 20)
    assert grid.size // columns == np.prod(shape)
    grid = grid.transpose(*synopsis.domain.names, ...)
    places = np.random.default_rng(1).integers(
        0, grid.shape[: synopsis.domain.dimensions], (50, synopsis.domain.dimensions)
    )
    points = np.column_stack(
        [grid[axis].values[i] for axis, i in zip(synopsis.domain.names, places.T, strict=True)]
    )
    found = np.array([grid.values[tuple(place)] for place in places])
    np.testing.assert_allclose(found, synopsis(points), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_grid_that_does_not_fit_is_refused_before_anything_is_computed(fine, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.grids.memory_limit", lambda: 20 << 30)
    monkeypatch.setattr("dbern.synopsis.grids.memory_used", lambda: 1 << 30)
    for module in ("released.ReleasedArray.on_grid", "grids.np.linspace"):
        monkeypatch.setattr(f"dbern.synopsis.{module}", lambda *_: pytest.fail("computed"))
    with pytest.raises(SpecError, match=r"1000000000 points need .* may use 19456 more\. Write sm"):
        fine["line"].grid(1_000_000_000)  # values and coordinates: three numbers a point


_GRID = """
import json, re, sys
import dbern
synopsis = dbern.open(sys.argv[1])
synopsis.grid(3)
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
size = synopsis.grid(json.loads(sys.argv[2])).nbytes
print(json.dumps([peak() - before, size]))
"""


@pytest.mark.sample(verify=1)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "shape"), [("line", 4_000_000), ("plane", [1_000_000, 4])])
def test_a_process_grows_by_little_more_than_the_grid(fine, kind, shape):
    command = [sys.executable, "-c", _GRID, fine[kind].url, json.dumps(shape)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    grown, size = json.loads(done.stdout)
    assert grown < 4 * size + (96 << 20)
