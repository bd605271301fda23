"""Pictures of where two releases differ, by ``dbern change``."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from projects import records

from dbern.report.changes import ProvenShares, _draw_figure, change_picture

pytestmark = pytest.mark.slow


def change_of(low, high):
    """A change with a band of given ends along x, or along y and x."""
    import xarray

    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    dims = ("y", "x")[-low.ndim :]
    arrays = {"value": (low + high) / 2, "low": low, "high": high}
    coordinates = {name: np.arange(size) + 0.5 for name, size in zip(dims, low.shape, strict=True)}
    return xarray.Dataset(
        {name: (dims, values) for name, values in arrays.items()}, coordinates,
        {"new": "new", "old": "old $_{x}$", "beta": 0.05},
    )  # fmt: skip


def test_legends_have_percentages():
    change = change_of([1, 1, -1, -3], [2, 2, 1, -2])
    assert list(ProvenShares.of(change).labels.values()) == [
        "surely more: 50 %", "surely less: 25 %", "no proof: 25 %",
    ]  # fmt: skip
    assert list(ProvenShares(0.001, 0.0).labels.values()) == [
        "surely more: under 1 %", "surely less: 0 %", "no proof: over 99 %",
    ]  # fmt: skip


def colours(picture):
    """How many pixels are teal, orange, and of the pale grey."""
    from matplotlib.image import imread

    red, green, blue, *_ = 255 * imread(io.BytesIO(picture), format="png").transpose(2, 0, 1)
    pale = np.abs([red - 240, green - 240, blue - 238]).max(axis=0) < 1
    return [int(one.sum()) for one in (green > red + 30, red > blue + 30, pale)]


def test_a_map_is_in_colour_where_the_sign_is_proven():
    ends = np.full((4, 4), -1.0), np.full((4, 4), 1.0)
    for low, high, seen in (
        (0.5, 1.5, [True, False, False]),
        (-1.5, -0.5, [False, True, False]),
        (-0.5, 1.5, [False, False, True]),
    ):
        low, high = (np.full((4, 4), end) for end in (low, high))
        found = colours(change_picture(change_of(low, high), "png", "density"))
        assert [count > 100_000 for count in found] == seen
    nothing = change_of(np.full((4, 4), np.nan), np.full((4, 4), np.nan))  # no rows here
    found = colours(change_picture(nothing, "png", "response"))
    assert [count > 100_000 for count in found] == [False, False, True]
    mixed = np.where(np.arange(4) < 2, 0.5, ends[0]), np.where(np.arange(4) < 2, 1.5, ends[1])
    found = colours(change_picture(change_of(*mixed), "png", "density"))
    assert found[0] > 50_000 < found[2]


def test_a_curve_is_in_colour_where_the_sign_is_proven():
    low = np.array([-1.0] * 5 + [0.5] * 10 + [-1.0] * 5)
    up = colours(change_picture(change_of(low, low + 1.2), "png", "density"))
    down = colours(change_picture(change_of(-low - 1.2, -low), "png", "density"))
    assert up[0] > 5_000 > down[0]
    assert down[1] > 5_000 > up[1]


def test_texts_of_strangers_are_written_as_they_are():
    picture = change_picture(change_of([1, 2], [2, 3]), "svg", "density").decode()
    assert "<svg" in picture
    assert change_picture(change_of([1, 2], [2, 3]), "pdf", "density").startswith(b"%PDF")


def test_long_names_fit_and_labels_are_apart():
    change = change_of(np.full((4, 4), 0.5), np.full((4, 4), 1.5))
    for name, low, high in (("x", -125.0, -66.0), ("y", 24.0, 50.0)):
        change[name] = np.linspace(low, high, 4)
        change[name].attrs = {"units": "degrees", "long_name": f"long_name_of_{name}"}
    change.attrs |= {"new": "airports-of-the-united-states-" + "w" * 30, "old": "o" * 60}
    figure = _draw_figure(change, "density per unit of long_name_of_x (degrees) and long_name_of_y")
    FigureCanvasAgg(figure).draw()
    heading, panel = figure._suptitle.get_window_extent(), figure.axes[0]
    assert 0 <= heading.x0 < heading.x1 <= figure.bbox.width
    legend, axis = panel.get_legend().get_window_extent(), panel.xaxis.label.get_window_extent()
    assert legend.y1 < axis.y0
    assert axis.y0 - legend.y1 < axis.height  # and no further apart than they must


@pytest.mark.parametrize(("groups", "labelled"), [(2, [0, 1]), (4, [2, 3]), (5, [2, 3, 4])])
def test_the_lowest_panel_of_each_column_labels_the_axis(groups, labelled):
    import xarray

    change = change_of(np.full((4, 4), 0.5), np.full((4, 4), 1.5))
    names = xarray.DataArray([*"abcde"[:groups]], dims="group")
    figure = _draw_figure(change.expand_dims({"group": names}), "density")
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    FigureCanvasAgg(figure).draw()
    seen = [
        index for index, axes in enumerate(panels)
        if axes.get_xlabel() and any(tick.label1.get_visible() for tick in axes.xaxis.majorTicks)
    ]  # fmt: skip
    assert seen == labelled


def test_one_command_draws_two_releases(project, run):
    for name, rows in (("new", records(400)), ("old", records(500, seed=8))):
        project.write(rows)
        project.spec(
            release={"name": name, "output": f"{name}.zarr"},
            mechanism={"k": None, "h": None, "noise": "binned-laplace"},
        )
        assert run("release", "release.toml").code == 0
    ran = run("change", "new.zarr", "old.zarr", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["picture"] == "change.png"
    assert (project.folder / "change.png").read_bytes().startswith(b"\x89PNG")
    assert 0 <= told["more"] + told["less"] <= 1
    ran = run("change", "new.zarr", "old.zarr", "--out", "map.svg", "--beta", "0.5")
    assert ran.out.startswith("wrote map.svg: surely more: ")
    counts = f"about {told['new_rows']:,} rows of the new and {told['old_rows']:,} of the old one"
    assert f"{counts.replace(',', ' ')} had a value" in ran.out
    assert "<svg" in (project.folder / "map.svg").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--out", "map.jpeg"], 2, "map.jpeg is no picture. Write one such as change.png"),
        (["--out", "nowhere/map.png"], 4, "cannot be written"),
        (["--beta", "2"], 2, "between 0 and 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(project, made, run, words, code, said):
    store = made("map").url
    run("change", store, store, *words).refused(code, said)
    assert not list(project.folder.glob("*.png"))
