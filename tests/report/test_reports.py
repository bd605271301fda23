"""``dbern report``, ``show`` and ``export``: what they say is true, and safe to open."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from banding import in_memory, unshrunk
from pages_read import read
from samples import EVIL, KINDS
from strategies import sections
from unpacking import unpacked

import dbern
from dbern.certify.error_summary import ErrorSummary, lower_bound_text, upper_bound_text
from dbern.combination import combination_of
from dbern.report.colours import CLASSES, INK, SCHEMES, channels, class_colour
from dbern.report.live import live
from dbern.report.page import _queries, _template, synopsis_page
from dbern.report.pictures import picture_of
from dbern.report.terminal import drawing
from dbern.report.wording import guarantee_of

pytestmark = pytest.mark.slow

FAST = ("curve", "regions")
EVERY = [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", EVERY)
def test_every_page_and_drawing_keeps_the_rules_and_says_what_was_released(made, kind):
    synopsis = made(kind)
    facts, page = synopsis.metadata, read(synopsis_page(synopsis))
    for said in ("What is promised", f"one {facts['unit']}", facts["neighbors"], "How to query it"):
        assert said in page.words
    for line in facts["components"][0]["sensitivity"]["derivation"]:
        assert " ".join(line.split()) in page.words
    assert len(page.images()) == 1
    assert ("approximate" in page.words) == (facts["delta"] != "0")
    text = drawing(synopsis)
    assert max(map(len, text.splitlines())) <= 80
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_release_that_is_too_large_to_embed_says_so(made, monkeypatch):
    monkeypatch.setattr("dbern.report.live.MAX_EMBEDDED", 3)
    page = read(synopsis_page(made("curve")))
    assert not page.scripts
    assert (
        "7 numbers were released, more than a page holds: it shows a picture alone." in page.words
    )


def of_two_axes(records, target, **data):
    """The synopsis of records of two axes, by a plan that is free to choose."""
    content = sections(data={"bounds": {"x": [0, 1], "y": [0, 1]}, "n": len(records["x"]), **data})
    return in_memory(dbern.ReleaseSpec(**{**content, "target": target, "mechanism": {}}), records)


def test_a_regression_whose_bins_tell_no_boxes_has_a_picture_alone():
    x, y = np.random.default_rng(1).uniform(size=(5000, 2)).T.copy()
    width, tilted = (
        live(
            of_two_axes(
                {"x": x, "y": y, "r": x},
                {"kind": "nadaraya-watson", **target},
                response={"column": "r", "bounds": [-1.0, 3.0]},
            )
        )
        for target in ({"bandwidth": [0.1, 0.1]}, {"covariance": [[0.02, 0.01], [0.01, 0.03]]})
    )
    assert width["response"]
    assert tilted is None


def test_a_page_draws_each_group_by_its_own_bins():
    """One group is everywhere and the other at one place: only there are bins shrunk."""
    places, few = np.random.default_rng(1).uniform(size=(20_000, 2)), np.arange(20_000) < 2000
    places[few] = 0.2
    x, y = places.T.copy()
    synopsis = of_two_axes(
        {"x": x, "y": y, "g": few.astype(float)},
        {"kind": "kernel-density", "bandwidth": [0.1, 0.1]},
        group={"column": "g", "values": ["a", "b"]},
    )
    assert [bool(one.shrunk_distance) for one in synopsis.arrays] == [False, True]
    page = live(synopsis)
    facts = json.loads(page["facts"])
    assert not facts["private"]
    cells = facts["places"]
    (value, *_) = unpacked(facts["drawn"]).reshape(3, 2, cells**2)
    middles = (np.arange(cells) + 0.5) / cells
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    shown, raw = synopsis(points), unshrunk(synopsis)(points)
    atol, far = 1e-6 * np.abs(shown).max(), np.abs(shown - raw).max(axis=0)
    assert far[0] == 0
    assert far[1] > 100 * atol
    np.testing.assert_allclose(value.T, shown, atol=atol)


@pytest.mark.parametrize("kind", ["curve", "map", "bins", "boundary", "sigmoid"])
def test_a_notebook_draws_what_the_grid_holds(made, kind):
    from matplotlib.figure import Figure

    synopsis = made(kind)
    first = synopsis.domain.axes[0]
    if kind == "bins":
        drawn = synopsis.plot()  # a map for each group
        assert [one.get_aspect() for one in drawn.axs.flat] == ["auto"] * 3  # x is ten, y is two
        return
    axes = Figure().add_subplot()
    drawn = synopsis.plot(axes)
    assert axes.get_xlabel() == first.name
    if len(synopsis.domain.axes) == 1:
        (line,) = drawn
        low, high = synopsis.interval(line.get_xdata())
        (band,) = axes.collections
        heights = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [low.min(), high.max()])
        np.testing.assert_allclose(line.get_ydata(), synopsis(line.get_xdata()), atol=1e-12)
        return
    assert axes.get_ylabel() == synopsis.domain.axes[1].name  # upright
    values = np.asarray(drawn.get_array()).reshape(201, 201)
    np.testing.assert_array_equal(values, synopsis.grid(201).to_numpy())


def test_three_axes_have_no_plot(made):
    with pytest.raises(dbern.SpecError, match="there are 3 axes"):
        made("slices").plot()


def test_tables_of_a_notebook_hold_texts_alone(made):
    synopsis = dbern.open(made("map").url)
    synopsis._store.attributes = {**synopsis.metadata, "name": EVIL}
    told = synopsis._repr_html_()
    assert "<script" not in told
    assert "&lt;script" in told
    assert "epsilon 50" in told
    answer = made("bins").distribution().mean("x")
    assert "&lt;b&gt;c&lt;/b&gt;" in answer._repr_html_()
    assert "<b>" not in answer._repr_html_()
    plan = dbern.plan(dbern.ReleaseSpec.load(Path(made("map").url).parent / "release.toml"))
    assert "of memory a worker" in plan._repr_html_()


def test_a_page_of_a_copy_is_the_same_in_another_process(made, tmp_path):
    synopsis = made("curve")
    copied = shutil.copytree(synopsis.url, tmp_path / "out.zarr")
    os.utime(copied / "manifest.json", (1, 1))
    program = (
        "import sys, dbern; from dbern.report.page import synopsis_page as p; "
        "sys.stdout.write(p(dbern.open(sys.argv[1])))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONUTF8": "1"}
    arguments = [sys.executable, "-c", program, copied]
    ran = subprocess.run(arguments, capture_output=True, env=environment, check=True)
    assert ran.stdout.decode() == synopsis_page(synopsis)


def test_texts_of_a_synopsis_are_escaped_on_the_page(made, monkeypatch):
    synopsis = dbern.open(made("regions").url)
    synopsis_page(synopsis)  # what is kept by the names of the axes is read
    evil = [f'<script>{i}$ & "' for i, _ in enumerate(synopsis.domain.axes)]
    facts = {**synopsis.metadata, "name": EVIL, "dataset": EVIL}  # a unit is read as one
    pairs = zip(facts["domain"]["axes"], evil, strict=True)
    axes = [{**axis, "name": name} for axis, name in pairs]
    synopsis._store.attributes = facts | {"domain": {**facts["domain"], "axes": axes}}
    named = (
        replace(axis, name=name) for axis, name in zip(synopsis.domain.axes, evil, strict=True)
    )
    synopsis._function.domain = replace(synopsis.domain, axes=tuple(named))
    names = {"axes": tuple(evil)}
    for array in synopsis.arrays:
        monkeypatch.setattr(array, "component", array.component.model_copy(update=names))
    page = read(synopsis_page(synopsis))
    assert EVIL in page.words
    assert "<b>c</b>" in page.words


def program_of_the_format(synopsis):
    """The program of FORMAT.md, of this store and the middle of its domain."""
    page = (Path(dbern.__file__).parent / "synopsis" / "FORMAT.md").read_text()
    program = page.partition("## A program\n")[2].partition("```python\n")[2].partition("```")[0]
    middle = {axis.name: (axis.low + axis.high) / 2 for axis in synopsis.domain.axes}
    for shown, own in (('"rides.zarr"', repr(synopsis.url)), ('{"hour": 8.5}', repr(middle))):
        assert program.count(shown) == 1
        program = program.replace(shown, own)
    return program


@pytest.mark.parametrize("kind", EVERY)
def test_queries_of_a_page_and_the_program_of_the_format_agree(made, kind, monkeypatch, capfd):
    from dbern.cli import main as command_line

    synopsis = made(kind)
    texts = _queries(synopsis)
    folder = Path(synopsis.url).parent
    monkeypatch.chdir(folder)
    python, plain = {}, {}
    capfd.readouterr()
    exec(texts["python"], python)
    assert (
        capfd.readouterr().out.split()
        == f"{python['values']} {python['low']} {python['high']}".split()
    )
    exec(program_of_the_format(synopsis), plain)
    assert capfd.readouterr().out == f"{plain['value']}\n"
    found = np.atleast_1d(python["values"][0])
    scale = np.abs(found).max()
    np.testing.assert_allclose(np.atleast_1d(plain["value"]), found, atol=1e-9 * scale)
    assert (np.asarray(python["low"]) <= python["values"]).all()
    middle = {axis.name: [(axis.low + axis.high) / 2] for axis in synopsis.domain.axes}
    pq.write_table(pa.table(middle), "queries.parquet")
    for line in texts["shell"].splitlines():
        assert command_line.run(line.split()[1:]) == 0, line
    answers = pq.read_table("answers.parquet").to_pydict()
    values = [answers[name][0] for name in answers if name.startswith("value")]
    np.testing.assert_allclose(values, found, atol=1e-12 * scale)
    capfd.readouterr()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("four axes", "z = 4, a0 = 0.5"),
        ("twelve axes", "z = 4, a0 = 0.5, a1 = 0.5, a2 = 0.5, a3 = 0.5, a4 = 0.5, a5 = 0.5, "
         "a6 = 0.5 and 2 more in their middle"),
    ],
)  # fmt: skip
def test_a_picture_of_many_axes_is_a_named_slice_through_the_middle(made, kind, said):
    synopsis = made(kind)
    picture = picture_of(synopsis, 5)
    assert (picture.fixed, [axis.name for axis in picture.axes]) == (said, ["x", "y"])
    x, y = np.meshgrid(np.linspace(0, 10, 5), np.linspace(-1, 1, 5), indexing="ij")
    others = [(axis.low + axis.high) / 2 for axis in synopsis.domain.axes[2:]]
    points = np.column_stack([x.ravel(), y.ravel(), np.tile(others, (25, 1))])
    values = synopsis(points).reshape(5, 5)
    (panel,) = picture.panels
    if picture.kind == "map":
        np.testing.assert_allclose(panel.values, values)
    else:
        np.testing.assert_array_equal(panel.values, values > 0)
    page = read(synopsis_page(synopsis))
    assert f"A slice through the middle of the axes that are not drawn: {said}." in page.words
    assert f"at {said}" in page.images()[0]
    text = drawing(synopsis)
    assert f"at {said}" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pages_and_drawings_show_where_no_rows_are(axes):
    """A gap of a curve and a hatch of a map, which both name; the live page's values too."""
    rng, names = np.random.default_rng(3), "xyz"[:axes]
    columns = {name: rng.uniform(0, 6, 4000) for name in names}
    columns["minutes"] = 10 * columns["x"] + rng.normal(0, 3, 4000)
    content = sections(
        data={"bounds": {name: [0.0, 10.0] for name in names}, "n": 4000,
              "response": {"column": "minutes", "bounds": [0.0, 100.0]}},
        target={"kind": "nadaraya-watson", "bandwidth": [0.8] * axes}, budget={"epsilon": "40"},
        mechanism={"k": None, "h": None, "noise": "binned-laplace"},
    )  # fmt: skip
    synopsis = in_memory(dbern.ReleaseSpec(**content), columns)
    picture = picture_of(synopsis, 21)
    panel, height = picture.panels[0], [] if axes < 3 else [10 / 6]
    mesh = np.meshgrid(
        *[np.linspace(0, 10, 21)] * min(axes, 2), *map(np.array, height), indexing="ij"
    )
    points = np.stack([one.ravel() for one in mesh], axis=-1)
    missing = np.isnan(synopsis.interval(points)[0]).reshape(panel.values.shape)
    assert 0.1 < missing.mean() < 0.95
    if axes < 3:
        np.testing.assert_array_equal(np.isnan(panel.values), missing)
    assert picture.missing
    assert not picture.blank
    assert 0 <= picture.low < picture.high <= 100
    mark, shade = ("A gap", "gap:") if axes == 1 else ("Hatched", "╱")
    html = synopsis_page(synopsis)
    assert ("<pattern" in html) == (axes > 1)  # of the hatch
    page = read(html)
    assert f"{mark}: no rows here, or so few that the noise hides them" in page.words
    assert "nan" not in page.words.lower().split()
    assert f"{shade} no rows here" in drawing(synopsis)
    drawn = unpacked(json.loads(live(synopsis)["facts"])["drawn"])
    value, below, above = drawn.reshape(3, -1)
    unknown = above < 0  # all of the range, around its middle
    assert 0.1 < unknown.mean() < 0.95
    np.testing.assert_allclose(value[unknown] - below[unknown], 0, atol=1e-3)
    np.testing.assert_allclose(value[unknown] - above[unknown], 100, atol=1e-3)
    assert "no rows here" not in drawing(synopsis_of_density(columns))


def synopsis_of_density(columns):
    content = sections(
        data={"bounds": {"x": [0.0, 10.0]}, "n": 4000}, target={"bandwidth": [0.8]},
        mechanism={"k": None, "h": None, "noise": "binned-laplace"},
    )  # fmt: skip
    return in_memory(dbern.ReleaseSpec(**content), columns)


def contrast(first, second):
    def lightness(colour):
        line = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        return float(line @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([lightness(first), lightness(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read_on_what_is_behind_it(scheme):
    ink = {name: channels(colour) for name, colour in INK[scheme].items()}
    for text, behind in itertools.product(("ink", "muted", "accent"), ("paper", "card")):
        assert contrast(ink[text], ink[behind]) >= 4.5, (text, behind)
    for index, sure in itertools.product(range(len(CLASSES)), (True, False)):
        assert contrast(ink["ink"], class_colour(index, scheme, certain=sure)) >= 4.5
    assert contrast(ink["accent"], ink["wash"]) >= 3  # a curve on its band


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0"), ("1/3", "0"), ("0.1", "1e-6")])
def test_the_words_promise_no_more_than_the_symbols(epsilon, delta):
    facts = {"epsilon": epsilon, "delta": delta, "rho": None, "neighbors": "replace-one",
             "unit": "row"}  # fmt: skip
    promise = guarantee_of(facts)
    exact = math.exp(float(Fraction(epsilon)))
    factor = float(promise.words[0].split("a factor of ")[1].rstrip(".").split(",")[0])
    assert exact <= factor <= 1.01 * exact
    sure = [word for word in promise.words if "% sure" in word]
    assert bool(sure) == (delta == "0")
    if sure:
        told = float(sure[0].split("at most ")[1].split(" %")[0])
        assert exact / (1 + exact) <= told / 100 <= 1.01 * exact / (1 + exact)
    assert ("plus 1e-6" in promise.words[0]) == (delta != "0")


@pytest.mark.parametrize("kind", ["curve", "regression"])
def test_a_curve_has_the_band_of_the_synopsis(made, kind):
    synopsis = made(kind)
    (panel,) = picture_of(synopsis, 11).panels
    points = np.linspace(0, 10, 11)
    low, high = synopsis.interval(points, 0.05)
    np.testing.assert_allclose(panel.values, synopsis(points))
    np.testing.assert_allclose(panel.low, low, atol=1e-12)
    np.testing.assert_allclose(panel.high, high, atol=1e-12)


def test_regions_are_those_that_are_predicted(made):
    synopsis = made("regions")
    picture = picture_of(synopsis, 5)
    (panel,) = picture.panels
    x, y = np.meshgrid(np.linspace(0, 10, 5), np.linspace(-1, 1, 5), indexing="ij")
    predicted = synopsis.predict(np.column_stack([x.ravel(), y.ravel()]))
    drawn = [picture.classes[int(code)] for code in panel.values.ravel()]
    assert drawn == [str(one) for one in predicted]
    values = synopsis(np.column_stack([x.ravel(), y.ravel()]))
    lead = np.diff(np.sort(values, axis=1))[:, -1]
    np.testing.assert_allclose(panel.leads.max(axis=-1).ravel(), lead, atol=1e-12)
    low, high = synopsis.interval(np.column_stack([x.ravel(), y.ravel()]), 0.05)
    best = values.argmax(axis=1)
    for row, certain in enumerate(panel.certain.ravel()):
        assert certain == (low[row, best[row]] > np.delete(high[row], best[row]).max())


def test_the_drawn_curve_is_the_function(made):
    synopsis = made("curve")
    rows = [line.partition("▏")[2].ljust(60) for line in drawing(synopsis).splitlines()[:14]]
    (panel,) = picture_of(synopsis, 120).panels
    picture_low, picture_high = panel.low.min(), panel.high.max()
    for column in range(60):
        drawn = [i for i, row in enumerate(rows) if ord(row[column]) >= 0x2800]
        wanted = (picture_high - panel.values[2 * column]) / (picture_high - picture_low) * 13
        assert min(abs(row - wanted) for row in drawn) <= 1
    assert "░" in "".join(rows)


def test_labels_cannot_drive_the_terminal(made):
    synopsis = dbern.open(made("regions").url)
    combine = {**synopsis.metadata["combine"], "classes": ["a\x1b[2J", "b\n" * 90, "c"]}
    synopsis._store.attributes = {**synopsis.metadata, "combine": combine}
    synopsis._function.combination = combination_of(combine)
    lines = drawing(synopsis).splitlines()
    assert len(lines) == 24
    assert not any("\x1b" in line for line in lines)


def test_proved_bounds_are_rounded_away_from_what_they_bound(made, monkeypatch):
    """Four digits of a bound say no less than the bound, and of what none is below no more."""
    assert upper_bound_text(6.88507e-7) == "6.886×10⁻⁷"
    assert lower_bound_text(6.88567e-7) == "6.885×10⁻⁷"
    assert upper_bound_text(12341.0) == "12\u202f350"
    assert [upper_bound_text(number) for number in (0.0, math.inf)] == ["0", "inf"]
    synopsis = made("map")
    certificate = synopsis.metadata["certificate"]
    monkeypatch.setitem(certificate, "total", 6.88507e-7)
    monkeypatch.setitem(certificate, "lower_bound", 1.23456e-7)
    page = read(synopsis_page(synopsis)).words
    assert "off by more than 6.886×10⁻⁷" in page
    assert "can certify less than 1.234×10⁻⁷" in page
    headline = upper_bound_text(synopsis.promises().headline)
    assert f"Error at most {headline} everywhere" in page
    assert f"within ±{headline} everywhere" in page
    assert "at most 6.886×10⁻⁷ everywhere" in synopsis._repr_html_()


@pytest.mark.parametrize("kind", ["map", "boundary"])
def test_an_empty_promise_is_no_fact_in_a_notebook(made, kind, monkeypatch):
    synopsis = made(kind)
    for empty in (False, True):
        total = 1e9 if empty else 1e-7
        monkeypatch.setitem(synopsis.metadata["certificate"], "total", total)
        constant = synopsis.promises().constant
        assert bool(constant) == empty
        told = synopsis._repr_html_()
        assert (f"none is promised: {constant}" in told) == empty
        assert ("at most" in told) == (not empty)


@pytest.mark.parametrize("kind", ["map", "boundary", "regions"])
def test_an_empty_promise_is_no_fact_on_a_page(made, kind, monkeypatch):
    """Where a constant promises as much, the page says so as `show` does, and no such error."""
    synopsis = made(kind)
    for empty in (False, True):
        promises = ErrorSummary(None, None, 9.0, 0.05, "", 1.0, (-10.0, 10.0), released=True)
        promises = replace(promises, extent=(-1.0, 1.0)) if empty else promises
        monkeypatch.setattr(dbern.Synopsis, "promises", lambda *_, kept=promises: kept)
        page = read(synopsis_page(synopsis)).words
        for stated in ("Error at most 9", "no value anywhere in the domain", "±9"):
            assert (stated in page) != empty
        said = page.count("empty: a constant is never off by more than 1")
        assert said == (4 if empty else 0)  # beside the picture, below it, promised and proved


# --- the commands ----------------------------------------------------------------------------


def test_report_and_show_on_the_command_line(project, run):
    assert run("release", "release.toml").code == 0
    ran = run("report", "out.zarr")
    assert (ran.code, ran.out) == (0, "wrote out.html\n")
    first = (project.folder / "out.html").read_text()
    assert read(first).headings[0] == 1
    ran = run("report", "out.zarr", "--out", "again.html", "--json")
    assert ran.json == {"report": "again.html"}
    assert (project.folder / "again.html").read_text() == first
    assert "▏" in run("show", "out.zarr").out
    assert "▏" not in run("show", "out.zarr", "--quiet").out
    assert run("show", "out.zarr", "--json").json["name"] == "density"
    names = {path.name for path in project.folder.iterdir()}
    assert not any(name.endswith(".tmp") for name in names)


def test_reports_that_make_no_sense_are_refused(made, run):
    store = made("curve").url
    for arguments in ([], [store, "--ledger", "sqlite:///ledger.db"],
                      [store, "--dataset", "trips"]):  # fmt: skip
        run("report", *arguments).refused(2, "--ledger URL")
    said = "--out: no/such/folder.html cannot be written"
    run("report", store, "--out", "no/such/folder.html").refused(4, said)
    run("report", "nothing.zarr").refused(2)


@pytest.mark.parametrize("module", ["jinja2", "matplotlib", "bokeh.document"])
def test_a_report_without_its_packages_says_what_to_install(made, run, monkeypatch, module):
    store = made("curve").url
    monkeypatch.setitem(sys.modules, module, None)
    _template.cache_clear()  # as in a new process
    run("report", store).refused(4, "pip install 'dbern[report]'")
