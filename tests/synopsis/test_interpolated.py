"""Releases of narrow kernels: what readers evaluate is linear between lattice values."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray
from projects import fix_reservations, released_in

import dbern
from dbern.bernstein.basis import INTERPOLATED
from dbern.bernstein.kernels import Triangle
from dbern.bernstein.shapes import mean, positive_mean
from dbern.errors import IntegrityError, SpecError
from dbern.synopsis.evaluate import Interpolant

ROWS = 3000
RNG = np.random.default_rng(3)
AGES = np.where(RNG.random(ROWS) < 0.3, 40, RNG.normal(40, 12, ROWS).round()).clip(0, 100)
PLACES = RNG.normal(0.2, 0.2, ROWS).clip(-1, 1)


@pytest.fixture(scope="module", params=[1, 2])
def synopsis(tmp_path_factory, client, request):
    """Rounded rows on one axis; or on two, with a kernel that is wide along the second."""
    axes = request.param
    with pytest.MonkeyPatch.context() as patch:  # bands may fail: noise of one key does not
        fix_reservations(patch.setattr)
        return released_in(
            tmp_path_factory.mktemp(f"axes{axes}"),
            client,
            {"x": AGES, "y": PLACES},
            "30",
            data__bounds={"x": [0.0, 100.0], "y": [-1.0, 1.0] if axes == 2 else None},
            target={"kernel": "triangle", "bandwidth": [3.0, 0.5][:axes]},
            mechanism={"k": None, "h": None, "noise": "auto"},
            budget={"epsilon": "30"},
        )


def points_of(synopsis, count=2000):
    axes = synopsis.domain.axes
    low, high = ([getattr(axis, end) for axis in axes] for end in ("low", "high"))
    points = np.random.default_rng(0).uniform(low, high, (count, len(axes)))
    points[: len(low)] = low
    points[-1] = high
    return points


def truth(synopsis, points):
    columns = [(AGES, 3.0), (PLACES, 0.5)][: synopsis.domain.dimensions]
    rows = [
        Triangle(width)(y[:, None] - data)
        for y, (data, width) in zip(points.T, columns, strict=True)
    ]
    return np.prod(rows, axis=0).mean(axis=1)


@pytest.mark.slow
def test_a_narrow_kernel_is_released_with_lines(synopsis):
    (component,) = synopsis.metadata["components"]
    assert set(component["h"]) == {INTERPOLATED}
    assert component["noise"]["kind"].startswith("binned-")


@pytest.mark.slow
def test_values_are_lines_between_lattice_values(synopsis):
    """By xarray's own interpolation of the group of coefficients, which knows nothing of us."""
    group = xarray.open_zarr(synopsis.url, group="components/density", consolidated=False)
    points = points_of(synopsis)
    columns = dict(zip(synopsis.domain.names, points.T, strict=True))
    at = {name: xarray.DataArray(column, dims="point") for name, column in columns.items()}
    expected = group["coefficients"].interp(at).to_numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(synopsis(points), expected, atol=1e-9 * scale)
    grid = synopsis.grid(37)
    cells = np.stack(np.meshgrid(*[grid[name] for name in synopsis.domain.names], indexing="ij"))
    same = synopsis(cells.reshape(len(cells), -1).T).reshape(cells.shape[1:])
    ours = grid.transpose(*synopsis.domain.names).to_numpy()
    np.testing.assert_allclose(ours, same, atol=1e-12 * scale)
    assert np.isnan(synopsis(points[-1:] + 1)).all()


@pytest.mark.slow
def test_bands_cover_and_errors_are_small(synopsis):
    points = points_of(synopsis)
    low, high = synopsis.interval(points)
    exact = truth(synopsis, points)
    assert ((low <= exact) & (exact <= high)).all()
    assert np.abs(synopsis(points) - exact).max() <= synopsis.metadata["certificate"]["total"]
    assert np.abs(synopsis(points) - exact).max() < 0.05 * exact.max()


@pytest.mark.slow
def test_no_order_changes_lines(synopsis):
    points = points_of(synopsis, 30)
    with pytest.raises(SpecError, match="linear between lattice values"):
        synopsis(points, h=2)
    chosen = synopsis(points, h="auto")
    assert np.isfinite(chosen).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "shapes", [("nonnegative",), ("nonnegative", "normalized"), ("normalized",)]
)
def test_shapes_hold(synopsis, shapes):
    shaped = synopsis.shaped(*shapes)
    points = points_of(synopsis)
    values = shaped(points)
    if "nonnegative" in shapes:
        assert values.min() >= 0
    if shapes == ("normalized",):
        counts = synopsis.metadata["components"][0]["k"]
        grid = shaped.grid([count + 1 for count in counts])
        for name in grid.dims:
            grid = grid.integrate(name)
        assert float(grid) == pytest.approx(1, abs=1e-9)
    low, high = shaped.interval(points)
    exact = truth(synopsis, points)
    if "normalized" not in shapes:
        assert ((low <= exact) & (exact <= high)).all()


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_positive_means_are_enclosed(shape):
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape)
    domain = dbern.data.domain.Domain(
        tuple(dbern.data.domain.Axis(name, 0.0, 1.0) for name in "xyz"[: len(shape)])
    )
    function = Interpolant(values, domain)
    seen = function(rng.random((400_000, len(shape))), 1)
    assert mean(values, linear=True) == pytest.approx(seen.mean(), abs=0.01)
    low, gap = positive_mean(values, linear=True)
    assert low <= np.maximum(seen, 0).mean() + 0.01
    assert np.maximum(seen, 0).mean() <= low + gap + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("synopsis", [2], indirect=True)
@pytest.mark.parametrize(("change", "why"), [
    ({"h": [0, 2]}, "k and h"),
    ({"h": [2, 2], "k": [2000, 20]}, "k and h"),
    ({"h": [0, 0], "k": [4096, 4096]}, "lattice values"),
    ({"h": [0, 0], "k": [5000, 20]}, "k"),
])  # fmt: skip
def test_readers_refuse_what_no_release_says(synopsis, change, why):
    from dbern.model.component import LatticeComponent
    from dbern.model.strict import parse_object

    (component,) = synopsis.metadata["components"]
    LatticeComponent.from_json(component)
    with pytest.raises(IntegrityError, match=why):
        parse_object(LatticeComponent, json.dumps(component | change).encode(), "here", "x")
