"""Figures of ``Synopsis.plot``: what they say, that nothing is cut off, and what has no rows."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from banding import in_memory
from matplotlib.figure import Figure
from strategies import sections

import dbern
from dbern.ask.labels import function_title
from dbern.synopsis.bands import NO_ROWS
from dbern.synopsis.drawing import MAX_CURVES, MAX_PANELS

pytestmark = [
    pytest.mark.slow, pytest.mark.filterwarnings("ignore:each answer holds"),
]  # fmt: skip

ROWS, PLACES = 4000, 59
X, Y = {"hour": [0.0, 10.0]}, {"length": [0.0, 10.0]}
MINUTES = {"column": "minutes", "bounds": [0.0, 100.0]}
TITLE = "A title that is so long that it does not fit into one line of a figure, and goes on"


def columns(places):
    """Rides of which none is after six; groups and classes are positions in their lists."""
    generator = np.random.default_rng(3)
    hour, length = generator.uniform(0.0, 6.0, size=(2, ROWS))
    return {
        "hour": hour, "group": hour, "length": length,
        "minutes": 10 * hour + generator.normal(0, 3, ROWS),
        "late": generator.integers(0, 2, ROWS) * 1.0,
        "place": generator.integers(0, places, ROWS) * 1.0,
    }  # fmt: skip


def made(target, epsilon="20", title=None, **data):
    axes = len(data["bounds"])
    if target in ("kernel-density", "nadaraya-watson", "naive-bayes"):
        target = {"kind": target, "bandwidth": [0.5] * axes}
    release = {"title": title} if title else {}
    content = sections(
        release=release, data={"n": ROWS, **data}, target=target, budget={"epsilon": epsilon},
        mechanism={"k": None, "h": None, "noise": "binned-laplace"},
    )  # fmt: skip
    by = data.get("group", data.get("label", {}))
    count = len(by.get("values", by.get("classes", [0])))
    synopsis = in_memory(dbern.ReleaseSpec(**content), columns(count))
    synopsis._store.attributes["created"] = "2026-03-01T10:00:00Z"
    return synopsis


def places(count):
    return {"column": "place", "values": list(range(count))}


CASES = {
    "density": lambda: made("kernel-density", bounds=X, title=TITLE),
    "density map": lambda: made("kernel-density", bounds=X | Y),
    "regression": lambda: made("nadaraya-watson", bounds=X, response=MINUTES),
    "regression map": lambda: made("nadaraya-watson", bounds=X | Y, response=MINUTES),
    "curves": lambda: made("kernel-density", bounds=X, group=places(3)),
    "maps": lambda: made("kernel-density", bounds=X | Y, group=places(3)),
    "many curves": lambda: made("kernel-density", bounds=X, group=places(PLACES)),
    "many maps": lambda: made("kernel-density", bounds=X | Y, group=places(PLACES)),
    "regressions": lambda: made("nadaraya-watson", bounds=X, response=MINUTES, group=places(2)),
    "bayes": lambda: made(
        "naive-bayes", bounds=X | Y, label={"column": "late", "classes": [False, True]}
    ),
}


@pytest.fixture(scope="module")
def synopses():
    return {name: make() for name, make in CASES.items()}


@pytest.fixture
def drawn(synopses):
    """What `plot` returns of a case in a new figure, and the figure as it is saved."""
    import matplotlib.pyplot as plt

    mpl.use("agg")

    def draw(name):
        plt.close("all")
        result = synopses[name].plot()
        figure = plt.gcf()
        figure.canvas.draw()
        return result, figure

    yield draw
    plt.close("all")


def heading_of(figure):
    return figure.get_suptitle() or figure.axes[0].get_title()


@pytest.mark.parametrize("name", CASES)
def test_no_text_of_a_figure_is_cut_off(drawn, name):
    _, figure = drawn(name)
    width, height = figure.bbox.size
    assert width <= 1400 * figure.dpi / 100
    labels = [axes.yaxis.label for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    heads = [axes.title for axes in figure.axes] + [figure._suptitle]
    for text in filter(None, [*labels, *heads]):
        if (text.get_text() and text.axes is not None) or text is figure._suptitle:
            box = text.get_window_extent()
            assert box.x0 >= -1, text
            assert box.x1 <= width + 1, text
            assert box.y0 >= -1, text
            assert box.y1 <= height + 1, text


def test_the_title_of_maps_is_above_those_of_all_panels(drawn):
    maps, figure = drawn("maps")
    panels = [axes.title.get_window_extent().y1 for axes in maps.axs.flat]
    assert figure._suptitle.get_window_extent().y0 >= max(panels)


@pytest.mark.parametrize("name", CASES)
def test_a_title_says_what_it_is_what_it_cost_and_how_far_off(drawn, synopses, name):
    synopsis, metadata = synopses[name], synopses[name].metadata
    heading = " ".join(heading_of(drawn(name)[1]).split())
    assert metadata.get("title", metadata["name"]) in heading
    assert function_title(synopsis.combination, synopsis.domain, metadata) in heading
    assert "epsilon 20, 2026-03-01" in heading
    assert "everywhere at once, 95 % sure" in heading
    if len(synopses[name].domain.axes) == 2:
        values = synopsis.grid(201)
        low, high = synopsis.interval(values)
        widths = np.maximum(high - values, values - low).values  # a quotient is in no middle
        assert f"±{np.nanmax(widths):.6g}"[:3] in heading


def test_of_many_groups_the_first_are_drawn_and_it_says_so(drawn, synopses):
    lines, figure = drawn("many curves")
    assert len(lines) == MAX_CURVES
    assert f"the first {MAX_CURVES} of {PLACES} by place" in heading_of(figure)
    maps, figure = drawn("many maps")
    assert sum(axes.get_visible() for axes in maps.axs.flat) == MAX_PANELS
    assert f"the first {MAX_PANELS} of {PLACES} by place" in heading_of(figure)
    assert "first" not in heading_of(drawn("curves")[1])
    assert synopses["many maps"].grid(3).sizes["group"] == PLACES


def test_bands_of_many_curves_leave_each_other_seen(drawn):
    alone, several = (
        [one.get_alpha() for one in drawn(name)[1].axes[0].collections]
        for name in ("density", "many curves")
    )
    assert len(several) == MAX_CURVES
    assert 1 - np.prod([1 - alpha for alpha in several]) < 0.6
    assert several[0] < alone[0]


def test_a_regression_is_a_mean_with_a_gap_where_no_rows_are(drawn, synopses):
    (line,), figure = drawn("regression")
    (axes,) = figure.axes
    assert axes.get_ylabel() == "mean of minutes"
    x, y = line.get_data()
    assert np.isfinite(y[x < 5.5]).all()
    assert np.isnan(y[x > 9]).all()
    low, _ = synopses["regression"].interval(x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(low))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [NO_ROWS]
    hatched = axes.collections[-1]
    assert hatched.get_hatch()
    assert hatched.get_paths()[0].vertices[:, 0].max() == 10
    _, figure = drawn("regressions")
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert names == ["0", "1", NO_ROWS]
    assert drawn("density")[1].axes[0].get_legend() is None


def test_a_map_is_hatched_where_no_rows_are(drawn, synopses):
    mesh, figure = drawn("regression map")
    synopsis = synopses["regression map"]
    low, _ = synopsis.interval(synopsis.grid(201))
    missing = np.ma.getmaskarray(mesh.get_array()).reshape(201, 201)
    np.testing.assert_array_equal(missing, np.isnan(low.to_numpy()))
    assert 0.3 < missing.mean() < 0.9
    axes = figure.axes[0]
    assert axes.patch.get_hatch()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [NO_ROWS]
    plain = drawn("density map")[1].axes[0]
    assert not plain.patch.get_hatch()
    assert plain.get_legend() is None


def test_where_noise_hides_all_rows_a_map_says_so():
    synopsis = made("nadaraya-watson", epsilon="0.001", bounds=X | Y, response=MINUTES)
    figure = Figure()
    synopsis.plot(figure.add_subplot())
    assert f"{NO_ROWS} that the noise does not hide" in figure.axes[0].get_title()
    assert not figure.axes[1].get_visible()  # a bar of colours of nothing


def test_groups_are_a_dimension_of_that_name_and_classes_of_theirs(synopses):
    groups = synopses["regressions"].grid(5)
    assert groups.dims == ("hour", "group")
    assert synopses["regressions"].interval(groups)[0].dims == ("hour", "group")
    assert synopses["regressions"].predict(groups).dims == ("hour", "group")
    assert synopses["maps"](synopses["maps"].grid(4)).dims == ("length", "hour", "group")
    named = made(
        {"kind": "kernel-density", "bandwidth": [0.5]}, bounds={"group": [0.0, 10.0]},
        group=places(2),
    )  # fmt: skip
    assert named.grid(4).dims == ("group", "class")  # where an axis has that name
    three = {"column": "place", "classes": [0, 1, 2]}
    assert made("naive-bayes", bounds=X, label=three).grid(4).dims == ("hour", "class")
