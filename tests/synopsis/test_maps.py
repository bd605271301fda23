"""Grids as others take them: upright, a window of them, on the earth, in files."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import rasterio
import xarray
from banding import centers, synopsis_of
from matplotlib.figure import Figure

import dbern
from dbern.errors import EnvironmentRefusedError, ReleaseError, SpecError
from dbern.planning.planner import plan_files
from dbern.synopsis.maps import located
from dbern.synopsis.points import upright

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

EAST, NORTH = [-120.0, -60.0], [20.0, 50.0]
CRS = "EPSG:4326"


def made(bounds, bandwidth, columns, noise=True, **data):
    spec = dbern.ReleaseSpec(
        release={"name": "places", "output": "places.zarr"},
        data={"source": "*.parquet", "bounds": bounds, "n": 4000, **data},
        target={"kind": "kernel-density", "bandwidth": bandwidth},
        mechanism={"noise": "binned-laplace", "k": 20, "h": 4},  # quickly planned
        budget={"epsilon": "2", "ledger": "sqlite:///l.db", "dataset": "places"},
    )
    plan = plan_files(spec, ())
    return synopsis_of(spec, plan, centers(spec, plan, columns), b"k" * 32 if noise else None)


def rows():
    """More in the south-east than elsewhere."""
    generator = np.random.default_rng(3)
    places = generator.normal([-80.0, 30.0], [9.0, 4.0], size=(4000, 2))
    hours = generator.uniform(0, 24, 4000)
    side = np.where(places[:, 0] > -80, 0.0, 1.0)  # places in the list
    return {"longitude": places[:, 0], "latitude": places[:, 1], "hour": hours, "side": side}


@pytest.fixture(scope="module")
def land():
    return made({"longitude": EAST, "latitude": NORTH}, [5.0, 3.0], rows())


@pytest.fixture(scope="module")
def turned():
    """The same, whose first axis goes up."""
    return made({"latitude": NORTH, "longitude": EAST}, [3.0, 5.0], rows())


@pytest.fixture(scope="module")
def sides():
    group = {"column": "side", "values": ["east", "west"]}
    return made({"longitude": EAST, "latitude": NORTH}, [5.0, 3.0], rows(), group=group)


@pytest.fixture(scope="module")
def days():
    moments = {"when": np.random.default_rng(1).uniform(20454, 20819, 4000)}
    return made({"when": ["2026-01-01", "2027-01-01"]}, [20.0], moments)


def points_of(grid, synopsis):
    mesh = np.meshgrid(*(grid[name] for name in synopsis.domain.names), indexing="ij")
    return np.column_stack([one.ravel() for one in mesh])


# --- Upright, and a part


def test_a_grid_is_drawn_upright_without_being_asked(land, turned):
    assert upright(["a", "b", "c"]) == ("c", "b", "a")
    for synopsis in (land, turned):
        axes = Figure().add_subplot()
        synopsis.grid((7, 5)).plot(ax=axes)
        assert axes.get_xlabel() == "longitude"
        assert axes.get_xlim()[0] < -110
        axes = Figure().add_subplot()
        synopsis.plot(axes, window={"longitude": (-90, -70)})
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("longitude", "latitude")
        np.testing.assert_allclose(axes.get_xlim(), (-90, -70), atol=0.1)


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
    given = land.grid((6, 4), crs=CRS).assign_coords(run=7).rename(None).transpose()
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


def test_a_distribution_answers_on_the_grid_too(land, sides):
    grid = land.grid((5, 4), crs=CRS)
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
def test_what_leaves_is_the_same_after_a_file(land, sides, days, tmp_path):
    grid = land.grid((6, 4), crs=CRS)
    asked, dated = land.distribution(), days.distribution()
    leaving = {
        "grid": grid.to_dataset(),
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


def test_degrees_are_said_as_the_conventions_say(land):
    grid = land.grid(3, crs=CRS)
    assert grid.latitude.attrs["units"] == "degrees_north"
    assert grid.longitude.attrs["standard_name"] == "longitude"
    assert grid.attrs["units"] == "degree-2"
    assert grid.spatial_ref.attrs["grid_mapping_name"] == "latitude_longitude"
    assert rasterio.crs.CRS.from_user_input(grid.spatial_ref.attrs["crs_wkt"]).to_epsg() == 4326
    assert land.grid(3, crs=3857).longitude.attrs["units"] == "metre"
    assert "units" not in land.grid(3).longitude.attrs
    axes = Figure().add_subplot()
    land.plot(axes, crs=CRS)
    assert axes.get_aspect() == pytest.approx(1 / math.cos(math.radians(35)))
    assert axes.get_title() == ""
    axes = Figure().add_subplot()
    land.plot(axes)
    assert axes.get_aspect() == 1.0


def test_a_coordinate_system_that_cannot_be_is_refused(land, days, monkeypatch):
    with pytest.raises(SpecError, match='crs = "earth": is not known'):
        land.grid(3, crs="earth")
    with pytest.raises(SpecError, match="a coordinate system is of two axes"):
        days.grid(3, crs=CRS)
    swapped = land.grid(3).rename({"longitude": "b", "latitude": "a"}).transpose()
    with pytest.raises(SpecError, match="crs: b leaves -90 to 90"):
        located(swapped, CRS)
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(EnvironmentRefusedError, match=r"pip install 'dbern\[geo\]'"):
        land.grid(3, crs=CRS)
    with pytest.raises(EnvironmentRefusedError, match=r"pip install 'dbern\[geo\]'"):
        land.to_geotiff("a.tif", 3)
    land.grid(3)


# --- Files of maps


@pytest.mark.parametrize("kind", ["land", "turned"])
def test_a_geotiff_has_each_value_at_its_place(kind, request, tmp_path):
    synopsis = request.getfixturevalue(kind)
    shape = (13, 7) if kind == "land" else (7, 13)
    synopsis.to_geotiff(tmp_path / "a.tif", shape, crs=CRS)
    grid = synopsis.grid(shape)
    low, high = synopsis.interval(grid)
    at = np.array([[x, y] for x in grid.longitude.values for y in grid.latitude.values])
    with rasterio.open(tmp_path / "a.tif") as file:
        assert file.crs.to_epsg() == 4326
        assert file.descriptions == ("value", "low", "high")
        assert file.tags()["beta"] == "0.05"
        found = np.array(list(file.sample(at)))
    for band, one in enumerate((grid, low, high)):
        np.testing.assert_array_equal(
            found[:, band], one.transpose("longitude", ...).values.ravel()
        )


@pytest.mark.slow
def test_groups_are_bands_and_uneven_places_are_refused(sides, land, tmp_path):
    sides.to_geotiff(tmp_path / "g.tif", 4, window={"latitude": (25, 35)})
    with rasterio.open(tmp_path / "g.tif") as file:
        assert file.descriptions[:3] == ("value east", "value west", "low east")
        east = sides.grid(4, window={"latitude": (25, 35)}).sel({"class": "east"})
        np.testing.assert_array_equal(file.read(1)[::-1], east)
        assert file.crs is None
    uneven = xarray.Dataset(coords={"longitude": [-90.0, -80.0, -79.0], "latitude": [30.0, 31.0]})
    asked = land.distribution()
    for answer in (asked.density(uneven), asked.density(np.array([[-80.0, 30.0]]))):
        with pytest.raises(SpecError, match=r"maps need evenly spaced|maps are of two axes"):
            answer.to_geotiff(tmp_path / "u.tif")
    with pytest.raises(ReleaseError, match="cannot be written"):
        land.to_geotiff(tmp_path / "none" / "a.tif", 3)


def test_a_table_of_a_map_is_short(land):
    answer = land.distribution().density(land.grid(20))
    assert answer._repr_html_().count("<tr>") < 70
    assert str(answer).count("\n") < 70
