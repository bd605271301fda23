"""Reports in a real browser: nothing is asked for or complained about, and everything fits."""

from __future__ import annotations

import io

import numpy as np
import pytest
from browser import executable, look, started
from PIL import Image
from projects import Project
from samples import make

from dbern.ledger import BudgetLedger
from dbern.reporting.budgets import ledger_page
from dbern.reporting.html import synopsis_page
from dbern.reporting.pictures import INK, channels

pytestmark = pytest.mark.slow
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def debugger(tmp_path_factory):
    program = executable()
    if program is None:
        pytest.skip("Chromium is not installed here: apt-get install chromium")
    with started(program, tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.fixture(scope="module")
def pages(tmp_path_factory, client):
    """A page of each layout: a curve, one map, many maps, regions, budgets."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for kind in ("curve", "map", "groups", "regions"):
        project = Project(tmp_path_factory.mktemp(kind))
        made[kind] = synopsis_page(make(project, kind, client))
    with BudgetLedger.open(project.url) as ledger:
        made["budgets"] = ledger_page(ledger.status(), ledger.log(), pending=True)
    for kind, text in made.items():
        (folder / f"{kind}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["curve", "map", "groups", "regions", "budgets"])
def test_a_page_looks_right_in_a_browser(debugger, pages, kind):
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            seen = look(debugger, pages / f"{kind}.html", width, scheme)
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
