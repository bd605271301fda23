"""Grids as others take them: upright, a window of them, on the earth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import xarray
from banding import in_memory
from matplotlib.figure import Figure
from strategies import sections

import dbern
from dbern.ask.labels import upright
from dbern.errors import SpecError

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

EAST, NORTH = [-120.0, -60.0], [20.0, 50.0]
LOCATION = {"spatial_ref": ((), 0, {"grid_mapping_name": "latitude_longitude"})}
"""A coordinate system as rioxarray's write_crs puts it on a grid."""


def made(bounds, bandwidth, columns, **data):
    content = sections(
        data={"bounds": bounds, "n": 4000, **data}, target={"bandwidth": bandwidth},
        mechanism={"noise": "binned-laplace", "h": 4}, budget={"epsilon": "2"},
    )  # fmt: skip
    return in_memory(dbern.ReleaseSpec(**content), columns)


def rows():
    """More in the south-east than elsewhere."""
    generator = np.random.default_rng(3)
    places = generator.normal([-80.0, 30.0], [9.0, 4.0], size=(4000, 2))
    hours = generator.uniform(0, 24, 4000)
    side = np.where(places[:, 0] > -80, 0.0, 1.0)  # places in the list
    return {"longitude": places[:, 0], "latitude": places[:, 1], "hour": hours, "side": side}


BOX = {"longitude": EAST, "latitude": NORTH}


@pytest.fixture(scope="module")
def land():
    return made(BOX, [5.0, 3.0], rows())


@pytest.fixture(scope="module")
def degrees():
    """The same, whose spec states units."""
    units = {"longitude": "degrees_east", "latitude": "degrees_north"}
    return made(BOX, [5.0, 3.0], rows(), units=units)


@pytest.fixture(scope="module")
def sides():
    group = {"column": "side", "values": ["east", "west"]}
    return made(BOX, [5.0, 3.0], rows(), group=group)


@pytest.fixture(scope="module")
def days():
    moments = {"when": np.random.default_rng(1).uniform(20454, 20819, 4000)}
    return made({"when": ["2026-01-01", "2027-01-01"]}, [20.0], moments)


def points_of(grid, synopsis):
    mesh = np.meshgrid(*(grid[name] for name in synopsis.domain.names), indexing="ij")
    return np.column_stack([one.ravel() for one in mesh])


# --- Upright, and a part


@pytest.mark.slow
def test_a_grid_is_drawn_upright_without_being_asked(land):
    """Also where the first axis goes up."""
    assert upright(["a", "b", "c"]) == ("c", "b", "a")
    turned = made({"latitude": NORTH, "longitude": EAST}, [3.0, 5.0], rows())
    for synopsis in (land, turned):
        axes = Figure().add_subplot()
        synopsis.grid((7, 5)).plot(ax=axes)
        assert axes.get_xlabel() == "longitude"
        assert axes.get_xlim()[0] < -110
        axes = Figure().add_subplot()
        synopsis.plot(axes, window={"longitude": (-90, -70)})
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("longitude", "latitude")
        np.testing.assert_allclose(axes.get_xlim(), (-90, -70), atol=0.1)


@pytest.mark.slow
def test_a_window_has_its_own_resolution(land, days):
    grid = land.grid((9, 4), window={"longitude": (-90.1, -70.3)})
    assert grid.dims == ("latitude", "longitude")
    assert grid.longitude.values[[0, -1]].tolist() == [-90.1, -70.3]  # to the last bit
    assert grid.latitude.values[[0, -1]].tolist() == NORTH
    found = grid.transpose(*land.domain.names).values.ravel()
    np.testing.assert_allclose(found, land(points_of(grid, land)), rtol=1e-12, atol=1e-15)
    month = days.grid(3, window={"when": ("2026-02-01", None)})
    assert month.when.values.astype(str).tolist() == [
        "2026-02-01T00:00:00.000000", "2026-07-18T00:00:00.000000", "2027-01-01T00:00:00.000000"
    ]  # fmt: skip
    np.testing.assert_allclose(month, days(month.when.values), rtol=1e-12)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"x": (0, 1)}, r'window: there is no axis "x"'),
        ({"longitude": (-130, -70)}, r"window: longitude leaves its bounds"),
        ({"longitude": (-70, -90)}, r"lower end must be below"),
        ([{"longitude": (-90, -70)}], r"window: write one box"),
        ({"longitude": ([-90, -80], [-80, -70])}, r"window: write one box"),
        ("west", r"window: write one box"),
    ],
)
def test_a_window_that_is_none_is_refused(land, window, said):
    with pytest.raises(SpecError, match=said):
        land.grid(3, window=window)


# --- A grid in, a grid out


def test_a_grid_in_comes_back_with_all_that_it_had(land, days):
    given = land.grid((6, 4)).assign_coords(run=7, **LOCATION).rename(None).transpose()
    before = {name: dict(one.encoding) for name, one in given.coords.items()}
    found = land(given)
    assert found.dims == given.dims == ("longitude", "latitude")
    assert set(found.coords) == {"longitude", "latitude", "run", "spatial_ref"}
    assert found.attrs["long_name"] == "density per unit of longitude and latitude"
    np.testing.assert_allclose(found, given, atol=1e-12)
    assert {name: one.encoding for name, one in given.coords.items()} == before
    dataset = xarray.Dataset(coords={"longitude": given.longitude, "latitude": given.latitude})
    assert land(dataset).dims == ("latitude", "longitude")
    line = days.grid(5)
    np.testing.assert_allclose(days(line), line, atol=1e-12)
    assert days(line).dims == ("when",)
    assert days(line).attrs == line.attrs
    assert line.attrs["units"] == "days-1"


@pytest.mark.slow
def test_a_distribution_answers_on_the_grid_too(land, sides):
    grid = land.grid((5, 4)).assign_coords(LOCATION)
    asked = land.distribution()
    found = asked.density(grid)
    at = points_of(grid, land)
    np.testing.assert_allclose(
        found.value.transpose(*land.domain.names).values.ravel(), asked.density(at).value
    )
    assert found.value.dims == grid.dims
    assert (found.low <= found.high).all()
    several = sides.distribution().density(sides.grid((5, 4))).high
    assert several.dims == ("latitude", "longitude", "group")
    assert several.group.values.tolist() == ["east", "west"]
    east = several.sel(group="east").transpose(*land.domain.names).values.ravel()
    np.testing.assert_allclose(east, sides.distribution().density(at).high.sel(group="east"))


# --- The conventions of climate and forecast files


@pytest.mark.slow
def test_what_leaves_is_the_same_after_a_file(land, degrees, sides, days, tmp_path):
    grid = land.grid((6, 4)).assign_coords(LOCATION)
    asked, dated = land.distribution(), days.distribution()
    leaving = {
        "grid": land(grid).to_dataset(),
        "degrees": degrees.grid(4).to_dataset(),
        "shaped": land.shaped("nonnegative").grid(3).to_dataset(),
        "classes": sides.grid(3).to_dataset(),
        "interval": land.interval(grid)[0].to_dataset(),
        "density": asked.density(grid).to_dataset(),
        "boxes": asked.mass([{"longitude": (-90, -80)}, {"longitude": (-80, -70)}]).to_dataset(),
        "days": days.grid(4).to_dataset(),
        "quantiles": dated.quantile([0.25, 0.5], "when").to_dataset(),
        "marginal": dated.marginal([20500.0, 20600.0], "when").to_dataset(),
    }
    for name, one in leaving.items():
        one.to_netcdf(tmp_path / f"{name}.nc", engine="scipy")
        one.to_zarr(tmp_path / f"{name}.zarr", consolidated=False)
        dates = xarray.coders.CFDatetimeCoder(time_unit="us") if "when" in one.coords else False
        how = {"decode_coords": "all", "decode_times": dates}
        for back in (
            xarray.open_dataset(tmp_path / f"{name}.nc", engine="scipy", **how),
            xarray.open_zarr(tmp_path / f"{name}.zarr", consolidated=False, **how),
        ):
            xarray.testing.assert_identical(back.load(), one)
        raw = xarray.open_dataset(tmp_path / f"{name}.nc", engine="scipy", decode_cf=False)
        assert [key for key in raw.coords if "_FillValue" in raw[key].attrs] == []
        located = [key for key in raw.data_vars if raw[key].attrs.get("grid_mapping")]
        assert bool(located) == ("spatial_ref" in one.coords)
    decoded = xarray.open_dataset(tmp_path / "marginal.nc", engine="scipy")
    assert decoded.when.dtype.kind == "M"


def test_the_page_s_bands_of_a_map_are_its_value_and_interval(degrees, monkeypatch):
    """The lines that need no rioxarray, which is no dependency."""
    page = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")
    block = page.partition("import rioxarray")[2].partition("```")[0]
    lines = [line for line in block.splitlines()[1:] if ".rio." not in line]
    monkeypatch.setattr(dbern, "open", lambda url: degrees)
    names = {"dbern": dbern}
    exec("\n".join(lines), names)
    bands = names["bands"]
    assert list(bands.data_vars) == ["value", "low", "high"]
    assert (bands.low <= bands.value).all()
    assert (bands.value <= bands.high).all()
    assert bands.latitude.values[0] > bands.latitude.values[-1]


def test_degrees_are_said_as_the_conventions_say(land, degrees):
    grid = degrees.grid(3)
    assert grid.latitude.attrs["units"] == "degrees_north"
    assert grid.longitude.attrs["units"] == "degrees_east"
    assert "units" not in land.grid(3).longitude.attrs
    axes = Figure().add_subplot()
    degrees.plot(axes)
    assert axes.get_aspect() == pytest.approx(1 / math.cos(math.radians(35)))
    name, *what = axes.get_title().split("\n")
    assert name == degrees.metadata["name"]
    assert " ".join(what).startswith("density of longitude (degrees_east) and latitude (")
    assert "smoothed over 5 and 3, epsilon 2 within " in " ".join(what)
    axes = Figure().add_subplot()
    land.plot(axes)
    assert axes.get_aspect() == 1.0


def test_a_table_of_a_map_is_short(land):
    answer = land.distribution().density(land.grid(20))
    assert answer._repr_html_().count("<tr>") < 70
    assert str(answer).count("\n") < 70
