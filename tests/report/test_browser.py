"""Reports in a real browser: nothing is asked for or complained about, and everything fits."""

from __future__ import annotations

import io
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from browser import ask, executable, look, started
from PIL import Image
from projects import Project

from dbern.ask.density import read_kernels
from dbern.ask.kernel_envelopes import density_envelope
from dbern.ask.quotients import confidence_set, product_sides, simultaneous_intervals
from dbern.ask.regions import read_region
from dbern.ask.splines import intervals
from dbern.report.budgets import ledger_page
from dbern.report.colours import INK, channels
from dbern.report.page import synopsis_page

pytestmark = pytest.mark.slow
KINDS = ["curve", "map", "groups", "bins", "slices", "regions", "regression", "response map"]
KINDS += ["group curves", "rounded", "rounded map", "chosen bandwidth"]


@pytest.fixture(scope="module")
def debugger(tmp_path_factory):
    program = executable()
    if program is None:
        pytest.skip("Chromium is not installed here: apt-get install chromium")
    with started(program, tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.fixture(scope="module")
def page_of(tmp_path_factory, made):
    """The page of a layout, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def text_of(kind: str) -> str:
        if kind != "budgets":
            return synopsis_page(made(kind))
        with Project(Path(made("curve").url).parent).ledger() as ledger:
            return ledger_page(ledger.status(), ledger.log(), pending=True)

    def page(kind: str) -> Path:
        path = folder / f"{kind}.html"
        if not path.exists():
            path.write_text(text_of(kind), encoding="utf-8")
        return path

    return page


@pytest.fixture
def script(debugger, page_of):
    """What the script of a kind's page tells after each step."""
    return lambda kind, *steps: ask(debugger, page_of(kind), *steps)


def drawn_points(domain, *places):
    """The middles of cells that a page draws, 200 along an axis or 401 along the only one."""
    count = 401 if len(places) == 1 else 200
    unit = (
        np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, len(places)) + 0.5
    ) / count
    return np.column_stack([axis.at(unit[:, i]) for i, axis in enumerate(domain.axes)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", [*KINDS, "budgets"])
def test_a_page_looks_right_in_a_browser(debugger, page_of, kind, width, scheme):
    seen = look(debugger, page_of(kind), width, scheme)
    assert seen.complaints == []
    assert seen.outside == []
    assert seen.overflow <= 0, f"{kind} at {width}: {seen.overflow} too wide"
    assert seen.visible == 1
    assert seen.focusable >= 4
    paper = 255 * channels(INK[scheme]["paper"])
    pixels = np.asarray(Image.open(io.BytesIO(seen.picture)).convert("RGB"), dtype=float)
    assert pixels.shape[1] == width
    np.testing.assert_allclose(pixels[0, 0], paper, atol=1)
    off = np.abs(pixels - paper).max(axis=2) > 24
    assert 0.02 < off.mean() < 0.7  # neither blank nor covered


def test_text_stands_in_the_middle_below_a_wide_picture(debugger, page_of):
    boxes = """["h1", "#live", ".lead", "#guarantee", "footer"].map((name) => {
        const element = document.querySelector(name), box = element.getBoundingClientRect();
        const padding = parseFloat(getComputedStyle(element).paddingLeft);
        return [box.left + padding, box.right - padding];
    })"""
    (told,) = ask(debugger, page_of("map"), boxes)
    heading, picture, lead, section, footer = told
    assert heading[0] == lead[0] == section[0] == footer[0] > picture[0] + 100
    assert lead[0] + lead[1] == pytest.approx(picture[0] + picture[1])


def mass(synopsis, box):
    """The integral of the released polynomial over a box, by Gauss's rule: no code of the page."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    axes = [low + (high - low) * (nodes + 1) / 2 for low, high in box]
    points = np.stack([one.reshape(-1) for one in np.meshgrid(*axes, indexing="ij")], axis=-1)
    values = np.asarray(synopsis(points)).reshape(*[64] * len(box), -1)
    for low, high in box:
        values = (high - low) / 2 * np.tensordot(weights, values, axes=(0, 0))
    return values


@pytest.mark.sample(verify=2)
@pytest.mark.parametrize("kind", ["curve", "map", "upright", "bins", "slices"])
def test_a_box_that_is_dragged_has_the_mass_that_python_finds(script, made, kind):
    synopsis = made(kind)
    told = script(kind, (0.2, 0.9, 0.7, 0.25), (0.9, 0.1, 0.45, 0.6))
    for one, shares in zip(told, ((0.2, 0.7), (0.45, 0.9)), strict=True):
        box = json.loads(one["box"])
        right = 1 if kind == "upright" else 0  # the axis that is drawn to the right
        axis = synopsis.domain.axes[right]
        np.testing.assert_allclose(box[right], axis.at(np.array(shares)), atol=0.02 * axis.width)
        value, low, high = json.loads(one["found"])
        if kind in ("bins", "upright"):
            region = dict(zip(synopsis.domain.names, box, strict=True))
            answer = synopsis.distribution().mass(region, target="smoothed")
            of_first, ends = np.ravel(answer.value)[0], np.ravel([answer.low, answer.high])
            assert abs(value - float(of_first)) < 1e-9
            assert low <= float(ends[0]) <= float(ends[len(ends) // 2]) <= high
            continue
        assert abs(value - mass(synopsis, box)[0]) < 1e-9
        size = np.prod([high - low for low, high in box])
        ends = np.clip(
            [value - size * synopsis.band(0.05), value + size * synopsis.band(0.05)], 0, 1
        )
        np.testing.assert_allclose([low, high], ends, rtol=1e-9)


def chosen(name, value, event):
    """An expression that writes into a field, and tells what the page then says."""
    return (
        f"(() => {{ const one = document.getElementById('live-{name}'); one.value = '{value}';"
        f"one.dispatchEvent(new Event('{event}'));"
        "return ['mass', 'records'].map((one) => "
        "({...document.getElementById('live-' + one)?.dataset})); })()"
    )


@pytest.mark.filterwarnings("ignore:each answer holds")
def test_the_rows_in_a_box_are_those_that_python_answers(script, made):
    synopsis = made("bins")
    asked = synopsis.distribution()
    ((told, records),) = script("bins", chosen("group", 2, "change"))
    box = json.loads(told["box"])
    value, low, high = json.loads(records["shares"])
    region = dict(zip(synopsis.domain.names, box, strict=True))
    found = asked.mass(region)
    assert abs(value - float(found.value[2])) < 1e-9
    # The page tells what is told of many boxes, which is not simulated: hardly wider.
    assert low <= float(found.low[2]) + 1e-9
    assert float(found.high[2]) <= high + 1e-9
    ends = synopsis.domain.to_unit(np.array(box).T)
    measure = asked.measures[2]
    sides = [
        intervals(splines, *(end[axis : axis + 1] for end in ends))
        for axis, splines in enumerate(measure.splines)
    ]
    beta = Fraction(1, 20) / 3
    band = simultaneous_intervals(1, [product_sides(measure, sides, of_total=True)], measure, beta)
    np.testing.assert_allclose([value, low, high], np.ravel(band[:3]), atol=1e-9)
    band = simultaneous_intervals(1, [product_sides(measure, sides, of_total=False)], measure, beta)
    counts = np.array(json.loads(records["counts"])) / asked.rows
    np.testing.assert_allclose(counts, np.ravel(band[:3]), atol=1e-9)


@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("kind", ["halved", "halved map"])
def test_rows_that_two_scales_count_are_those_that_python_answers(script, made, kind):
    asked = made(kind).distribution()
    measure = asked.measures[0]
    assert all(scales is not None for scales in measure.scales)
    ((told, records),) = script(kind, chosen("low-0", 4, "input"))
    box = dict(zip(asked.domain.names, json.loads(told["box"]), strict=True))
    for target, text in (("records", records["shares"]), ("smoothed", told["found"])):
        found, (value, low, high) = asked.mass(box, target=target), json.loads(text)
        assert abs(value - found.value) < 1e-9
        assert low <= found.low + 1e-9
        assert found.high <= high + 1e-9
    inside = asked.weights_for("records").axes(measure, read_region(box, asked.domain))
    beta = Fraction(1, 20)
    band = simultaneous_intervals(1, [product_sides(measure, inside, of_total=True)], measure, beta)
    np.testing.assert_allclose(json.loads(records["shares"]), np.ravel(band[:3]), atol=1e-9)


@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("kind", ["rounded", "rounded map"])
def test_rows_that_are_rounded_are_those_that_python_answers(script, page_of, made, kind):
    """Ends of a box are multiples, of which both count: also of a box that is one value."""
    asked = made(kind).distribution()
    cells = "document.getElementById('live-cells').hidden"
    dragged, *typed, hidden = script(kind, chosen("low-0", 2.1, "input"),
        chosen("high-0", 5.4, "input"), chosen("low-0", 5.6, "input"), cells,
    )  # fmt: skip
    for (told, records), ends in zip(
        [dragged, *typed], [(2, 7), (2, 5.5), (5.5, 5.5)], strict=True
    ):
        box = json.loads(told["box"])
        assert tuple(box[0]) == ends
        region = dict(zip(asked.domain.names, box, strict=True))
        found = asked.mass(region, target="records")
        value, low, high = json.loads(records["shares"])
        assert abs(value - found.value) < 1e-9
        assert low <= found.low + 1e-9
        assert found.high <= high + 1e-9
    assert hidden == (not found.note)
    words = page_of(kind).read_text(encoding="utf-8")
    assert f"Of rows rounded to 0.5{' in x' * (kind != 'rounded')}: " in words
    assert ("[data.resolution] y = .." in words) == (kind != "rounded")
    if kind == "rounded":  # a bin for each value: nothing is left open but the noise
        assert hidden


def test_a_slice_is_of_the_released_function(script, made):
    synopsis = made("slices")
    cells = "Array.from(Bokeh.documents.at(-1).get_model_by_name('cells').data.image[0])"
    _, values = script("slices", chosen("slice", 30, "input"), cells)
    places = np.array([0, 57, 110, 199])
    points = drawn_points(synopsis.domain, places, places, [30])
    shown = np.reshape(values, (200, 200))[np.ix_(places, places)].T.ravel()
    np.testing.assert_allclose(shown, synopsis(points), atol=1e-9)


_CELLS = """(() => {
    const data = Bokeh.documents.at(-1).get_model_by_name("cells").data;
    return [document.getElementById("live-bandwidth").textContent,
            Array.from(data.image[0]), Array.from(data.width[0])];
})()"""


@pytest.mark.parametrize("kind", ["bins", "normalized edges"])
def test_the_slider_shows_the_density_that_python_answers(script, made, kind):
    synopsis = made(kind)
    _, (told, values, widths) = script(kind, chosen("stop", 3, "input"), _CELLS)
    places = np.array([0, 57, 110, 199])
    points = drawn_points(synopsis.domain, places, places)
    factor = float(told.split()[0]) / synopsis.metadata["target"]["bandwidth"][0]
    assert factor > 1
    bandwidth = [factor * one for one in synopsis.metadata["target"]["bandwidth"]]
    asked = synopsis.distribution()
    answer = asked.density(points, bandwidth=bandwidth)
    shown = np.reshape(values, (200, 200))[np.ix_(places, places)].T.ravel()
    np.testing.assert_allclose(shown, answer.value[:, 0], atol=1e-9)
    # The band is that of as many places as there are, by the tail.
    measure, kernels = asked.measures[0], read_kernels(asked, bandwidth, None)
    parts = zip(measure.splines, kernels, synopsis.domain.to_unit(points).T, strict=True)
    sides = product_sides(measure, [density_envelope(*one) for one in parts], of_total=False)
    tail = measure.tail(2 * 200**2, Fraction(1, 20) / 3)
    low, high = confidence_set(sides, tail, (0.0, 1.0))
    peak = np.prod([one.highest for one in kernels]) / synopsis.domain.volume
    half = np.reshape(widths, (200, 200))[np.ix_(places, places)].T.ravel()
    np.testing.assert_allclose(half, peak * (high - low) / 2, rtol=1e-9)


@pytest.mark.sample(verify=1)
@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("kind", ["regression", "response map"])
def test_a_box_has_the_mean_response_that_python_answers(script, made, kind):
    asked = made(kind).distribution()
    records = "({...document.getElementById('live-records').dataset})"
    told, of_rows = script(kind, (0.2, 0.9, 0.7, 0.25), records)
    region = dict(zip(asked.domain.names, json.loads(told["box"]), strict=True))
    for found, target in ((told["found"], "smoothed"), (of_rows["shares"], "records")):
        value, low, high = json.loads(found)
        answer = asked.average(region, target=target)
        assert abs(value - answer.value) < 1e-9
        assert -1.5 <= low <= answer.low + 1e-9
        assert answer.high <= high + 1e-9 <= 1.5 + 2e-9
        if target == "smoothed":  # by the tail, and sides of differences: hardly wider
            assert high - low < 1.5 * (answer.high - answer.low) + 0.05
    cells = "document.getElementById('live-cells')"
    words = f"[{cells}.hidden, {cells}.textContent]"
    *_, (hidden, note) = script(kind, (0.2, 0.9, 0.7, 0.25), words)
    assert hidden == (not answer.note)
    assert "the cells' width" in note
    assert 'questions = ["mass", "quantile"]' in note
    counts, known = json.loads(of_rows["counts"]), asked.count(region)
    assert counts[1] <= known.low + 1e-6
    assert known.high - 1e-6 <= counts[2]


_SHOWN = """(() => {
    const data = Bokeh.documents.at(-1).get_model_by_name("cells").data;
    return ["value", "low", "high", "image"].map((one) => Array.from(data[one]?.[0]?.length
        ? data[one][0] : data[one] ?? []));
})()"""


@pytest.mark.parametrize(("kind", "stop"), [("regression", 4), ("response map", None)])
def test_a_regression_is_shown_as_python_answers_it(script, made, kind, stop, monkeypatch):
    asked = made(kind).distribution()
    widths = [own.bandwidth * axis.width for own, axis in
              zip(asked.kernels, asked.domain.axes, strict=True)]  # fmt: skip
    slide = [] if stop is None else [chosen("stop", stop, "input")]
    name = "document.getElementById('live-bandwidth').textContent"
    *_, told, shown = script(kind, *slide, name, _SHOWN)
    factor = float(told.split()[0]) / widths[0]
    assert (factor > 1) == (stop is not None)
    axes, count = asked.domain.axes, 401 if len(widths) == 1 else 200
    places = np.array([0, 57, 110, 199])
    points = drawn_points(asked.domain, *[places] * len(axes))
    which = places if len(axes) == 1 else np.add.outer(places, count * places).ravel()
    value, low, high = (np.array(one, dtype=float)[which] for one in shown[:3])
    bounds = asked.response.low, asked.response.high
    missing = np.isnan(value)
    np.testing.assert_allclose([low[missing], high[missing]], np.tile(bounds, (missing.sum(), 1)).T)
    if stop is None:  # one band: that of the synopsis, in halves of a number's digits
        synopsis = made(kind)
        ends = synopsis.interval(points, 0.05)
        np.testing.assert_array_equal(missing, np.isnan(ends[0]))
        found, told = np.array([value, low, high]), np.array([synopsis(points), *ends])
        np.testing.assert_allclose(found[:, ~missing], told[:, ~missing], atol=1e-6)
        return
    # The band is that of as many places as there are, by the tail.
    monkeypatch.setattr("dbern.ask.bins._MAX_WORK", 0)
    beta = 0.05 * len(places) ** len(axes) / count ** len(axes)
    answer = asked.curve(points, bandwidth=[factor * one for one in widths], beta=beta)
    np.testing.assert_allclose(value[~missing], np.asarray(answer.value)[~missing], atol=1e-9)
    assert (low <= answer.low + 1e-9).all()
    assert (answer.high <= high + 1e-9).all()
    np.testing.assert_allclose(low, answer.low, atol=1e-2)  # the largest weight is told more simply
    np.testing.assert_allclose(high, answer.high, atol=1e-2)


@pytest.mark.sample(verify=3)
@pytest.mark.parametrize(
    "kind",
    ["curve", "map", "bins", "slices", "group curves", "regression", "chosen bandwidth"],
)
def test_a_page_shows_what_interval_says(script, made, kind):
    synopsis = made(kind)
    (shown,) = script(kind, _SHOWN)
    axes = synopsis.domain.axes
    count = 401 if len(axes) == 1 else 200
    places = np.array([0, 57, 110, 199])
    middle = [[100]] * (len(axes) - 2)
    points = drawn_points(synopsis.domain, *[places] * min(len(axes), 2), *middle)
    which = places if len(axes) == 1 else np.add.outer(places, count * places).ravel()
    answers = [synopsis(points), *synopsis.interval(points, 0.05)]
    first = [np.reshape(one, (len(points), -1))[:, 0] for one in answers]
    width = np.max(first[2] - first[1])
    for found, wanted in zip(shown[:3], first, strict=True):
        np.testing.assert_allclose(np.array(found)[which], wanted, atol=1e-5 * width)


_HOVER = """(() => {
    const data = Bokeh.documents.at(-1).get_model_by_name("cells").data;
    return ["first_text", "value_text", "low_text"].map((one) => data[one].length === 1
        ? data[one][0][1000] : data[one][200]);
})()"""


@pytest.mark.parametrize(
    ("kind", "show", "pattern"),
    [
        ("regression", [], r"-?\d\.\d+"),
        ("bins", [], r"-?[\d.]+(×10[⁻\d⁰¹²³⁴-⁹]+)?"),
        ("bins", ["share"], r"[\d.]+\u00a0%|no rows here"),
    ],
)
def test_numbers_below_the_pointer_are_written_for_people(script, kind, show, pattern):
    steps = [chosen("show", one, "change") for one in show]
    *_, (place, value, low) = script(kind, *steps, _HOVER)
    assert re.fullmatch(r"[\d.]+", place)
    for text in (value, low):
        assert re.fullmatch(pattern, text), text
        assert "e" not in text or text == "no rows here"


_TICKS = """(() => {
    const ruler = Bokeh.documents.at(-1).roots()[0].below.find((one) => one.formatter);
    return [[0, 13000, 26000], [0.25, 0.5, 0.75], [0, 2e-6, 4e-6], [-50, 0, 50], [7]]
        .map((one) => ruler.formatter.doFormat(one));
})()"""


def test_ticks_have_the_digits_that_tell_them_apart(script):
    (told,) = script("curve", _TICKS)
    assert told == [
        ["0", "13\u202f000", "26\u202f000"], ["0.25", "0.50", "0.75"],
        ["0", "2×10⁻⁶", "4×10⁻⁶"], ["-50", "0", "50"], ["7"],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:each answer holds")
def test_the_largest_group_is_the_one_that_python_is_sure_of(script, made, monkeypatch):
    asked = made("bins").distribution()
    parts = "({...document.getElementById('live-parts').dataset})"
    show = chosen("show", "likeliest", "change")
    ((told, _), shown, found) = script("bins", show, _SHOWN, parts)
    region = dict(zip(asked.domain.names, json.loads(told["box"]), strict=True))
    answer = asked.average(region, target="smoothed")
    for group, (value, low, high) in enumerate(json.loads(found["found"])):
        assert abs(value - float(answer.value[group])) < 1e-9
        assert low <= float(answer.low[group]) + 1e-9
        assert float(answer.high[group]) <= high + 1e-9
    places = np.linspace(3, 196, 9).astype(int)
    points = drawn_points(asked.domain, places, places)
    monkeypatch.setattr("dbern.ask.bins._MAX_WORK", 0)
    shares = asked.curve(points, beta=0.05 * len(points) / 200**2)
    codes = np.array(shown[3])[np.add.outer(places, 200 * places).ravel()]
    check_winners(codes.astype(int), shares)


def check_winners(codes, shares):
    """Check the largest of three shares, and where it is surely above all others'."""
    np.testing.assert_array_equal(codes % 3, np.asarray(shares.value).argmax(axis=1))
    low, high = np.asarray(shares.low), np.asarray(shares.high)
    ranked = np.sort(high, axis=1)
    others = np.where(high == ranked[:, -1:], ranked[:, -2:-1], ranked[:, -1:])
    sure = ((low > others) | (low > 0.5)).any(axis=1)
    assert ((codes < 3) <= sure).all()
    assert 0 < (codes < 3).sum() <= sure.sum() <= (codes < 3).sum() + 3


@pytest.mark.filterwarnings("ignore:each answer holds")
def test_above_a_curve_is_the_group_that_python_is_sure_of(script, made, monkeypatch):
    asked = made("group curves").distribution()
    strip = "Array.from(Bokeh.documents.at(-1).get_model_by_name('strip').data.image[0])"
    show, group = chosen("show", "share", "change"), chosen("group", 1, "change")
    *_, shown, codes = script("group curves", show, group, _SHOWN, strip)
    places = np.linspace(3, 397, 60).astype(int)
    points = drawn_points(asked.domain, places)
    monkeypatch.setattr("dbern.ask.bins._MAX_WORK", 0)
    beta = 0.05 * len(points) / 401
    shares = asked.curve(points, beta=beta)
    np.testing.assert_allclose(np.array(shown[0])[places], shares.value[:, 1], atol=1e-9)
    check_winners(np.array(codes).astype(int)[places], shares)


def test_numbers_that_are_typed_move_the_box(script, made):
    synopsis = made("map")
    ((told, _),) = script("map", chosen("low-1", "-0.125", "input"))
    box = json.loads(told["box"])
    assert box[1][0] == -0.125
    assert abs(json.loads(told["found"])[0] - mass(synopsis, box)[0]) < 1e-9


@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("kind", ["bins", "rounded"])
def test_what_the_fields_say_is_what_is_answered(script, made, kind):
    """Twenty boxes whose ends are written as they come: 0 to 1000 was answered as 0 to 1004.5."""
    synopsis, draw = made(kind), np.random.default_rng(4)
    asked, axes = synopsis.distribution(), synopsis.domain.axes
    steps, boxes = [], []
    for _ in range(20):
        box = [np.sort(axis.low + axis.width * draw.uniform(0, 1, 2)) for axis in axes]
        boxes.append(box)
        ends = [(i, which, pair[which]) for i, pair in enumerate(box) for which in (0, 1)]
        steps.append(
            written([(f"{'high' if which else 'low'}-{i}", end) for i, which, end in ends])
        )
    for box, (fields, found, records) in zip(boxes, script(kind, *steps), strict=True):
        pairs = np.reshape([float(text) for text in fields], (-1, 2))
        near = 0.03 * np.array([[axis.width] for axis in axes])
        assert (np.abs(pairs - box) <= near).all()
        assert all(len(text) <= 6 for text in fields)  # a round number
        region = {axis.name: tuple(pair) for axis, pair in zip(axes, pairs, strict=True)}
        for told, target in ((records, "records"), (found, "smoothed")):
            answer = np.ravel(asked.mass(region, target=target).value)[0]
            assert json.loads(told)[0] == pytest.approx(answer, abs=1e-9)


def written(ends):
    """Write all ends of a box, leave the last field, and tell fields and answers."""
    fields = ", ".join(f"['live-{name}', '{end:.7g}']" for name, end in ends)
    return f"""(() => {{
        const all = [{fields}].map(([name, text]) => [document.getElementById(name), text]);
        for (const [field, text] of [...all, ...all]) {{
            field.focus();
            field.value = text;
            field.dispatchEvent(new Event("input"));
        }}
        for (const [field] of all) field.dispatchEvent(new Event("change"));
        const mass = document.getElementById("live-mass").dataset;
        return [all.map(([field]) => field.value), mass.found,
                document.getElementById("live-records").dataset.shares];
    }})()"""


def test_reversed_ends_and_no_number_are_refused(script):
    write = """(([low, high]) => {
        const [from, to] = ["low", "high"].map((end) => document.getElementById(`live-${end}-0`));
        from.value = low; from.dispatchEvent(new Event("input"));
        to.value = high; to.dispatchEvent(new Event("input"));
        return [document.getElementById("live-refused").textContent,
                document.getElementById("live-answer").hidden, to.validationMessage];
    })"""
    reversed_ends, empty, right = script(
        "bins", f"{write}([5, 3])", f"{write}([3, ''])", f"{write}([3, 5])"
    )
    assert reversed_ends == ["The first end is above the second", True, reversed_ends[0]]
    assert empty == ["No number", True, "No number"]
    assert right == ["", False, ""]


def test_the_browser_test_can_fail(debugger, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><script>console.error('no')</script>"
        '<img src="file:///nowhere.png"><div style="width:500px;height:9px">x</div>'
    )
    seen = look(debugger, page, 390, "light")
    assert any("no" in one for one in seen.complaints)
    assert seen.outside == ["file:///nowhere.png"]
    assert seen.overflow > 0
