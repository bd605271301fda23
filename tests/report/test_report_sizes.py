"""Reports are small: what a page has beside the plotting library, which it has once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from banding import in_memory
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from strategies import sections
from unpacking import unpacked

import dbern
from dbern.report.packing import pack
from dbern.report.page import synopsis_page

LARGEST = 1_500_000  # bytes beside the library
LIBRARY = 1_400_000  # of the library itself, which is twice as long unminified
ONE = {"target": {"kind": "kernel-density", "bandwidth": [0.05]}, "mechanism": {}}
TWO = {"target": {"kind": "kernel-density", "bandwidth": [0.06, 0.06]}, "mechanism": {}}
LATTICE = {"k": [399, 399], "h": [20, 20], "noise": "laplace"}
KINDS = {
    "one axis": ONE,
    "auto": {**ONE, "target": {"kind": "kernel-density", "bandwidth": "auto"}},
    "map": TWO,  # of the demo
    "map of 400 by 400 values": {**TWO, "mechanism": LATTICE},
    "many bins": {**ONE, "mechanism": {"questions": ["mass", "quantile"]}},
    "map of 369 by 369 bins": {**TWO, "target": {**TWO["target"], "bandwidth": [0.0055] * 2}},
}
SLOW = {"many bins", "map of 369 by 369 bins"}


def page_of(kind, rows=2_000_000):
    """The page of a release over the unit interval or square."""
    draw, names = np.random.default_rng(1), ("x", "y") if "map" in kind else ("x",)
    records = {name: draw.beta(2 + at, 3 - at, rows) for at, name in enumerate(names)}
    data = {"bounds": {name: [0.0, 1.0] for name in names}, "n": rows}
    return synopsis_page(
        in_memory(dbern.ReleaseSpec(**{**sections(data=data), **KINDS[kind]}), records)
    )


def sizes(page):
    """Bytes of the library's copies, and of all else."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    copies = [len(script.encode()) for script in scripts if "Bokeh Contributors" in script]
    return copies, len(page.encode()) - sum(copies)


def is_small(page):
    copies, others = sizes(page)
    return len(copies) == 1 and copies[0] < LIBRARY and others < LARGEST


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in KINDS]
)
def test_a_report_is_small_beside_the_library(kind):
    page = page_of(kind)
    assert 'id="live-facts"' in page
    assert is_small(page), sizes(page)


def test_a_library_that_is_there_twice_or_long_is_caught():
    page = page_of("auto", 10_000)
    library = re.search(r"<script>[^<]*Bokeh Contributors.*?</script>", page, re.DOTALL)[0]
    assert is_small(page)
    assert not is_small(page.replace(library, 2 * library))
    assert not is_small(page.replace(library, library.replace(";", ";\n" + 16 * " ")))


def test_a_library_is_minified_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("BOKEH_MINIFIED", "false")
    assert is_small(page_of("auto", 10_000))


@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 5), st.integers(1, 7)),
        elements=st.floats(-1e9, 1e9, allow_subnormal=False),
    ),
    st.integers(2, 50),
)  # fmt: skip
def test_numbers_are_unpacked_to_their_bits(values, bits):
    error = np.abs(unpacked(pack(values, bits)) - values.ravel()).max()
    assert error <= 2.0 ** -(bits - 1) * np.abs(values).max() / 2


def test_smooth_numbers_and_multiples_are_exact_and_short():
    draw = np.random.default_rng(2)
    multiples = 2.0**-35 * draw.integers(-(2**30), 2**30, (20, 30))
    np.testing.assert_array_equal(unpacked(pack(multiples, 50)), multiples.ravel())
    assert pack(multiples, 50).width == 4
    y = np.linspace(0, 1, 200)
    smooth = np.exp(-((y[:, None] - np.linspace(0, 1, 30)) ** 2) / 0.02)
    packed = pack(smooth, 46)
    assert np.abs(unpacked(packed) - smooth.ravel()).max() <= 2.0**-46
    assert len(packed.text) < 4.5 * smooth.size  # of 11 without differences
