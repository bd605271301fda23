"""Where the number of rows is private: any number of them, however small the normalizer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from banding import columns, covers, drawn, in_memory, planned
from strategies import spec_of

from dbern.planning.planner import plan_files

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

ROWS = 1707
ADDED = {"neighbors": "add-or-remove-one", "normalizer": "100"}
RESPONSE = {"response": {"column": "r", "bounds": [0.0, 1.0]}}


def releases(keys):
    """Releases of rows that are many times the normalizer, and the rows."""
    x = np.random.default_rng(1).beta(2, 3, (ROWS, 1))
    return drawn(planned(n=None, roles=json.dumps(ADDED)), columns(x), range(keys)), x


def kernel_density(x, points):
    """What a density with a bandwidth of .1 is over the normalizer, on one axis."""
    z = (np.asarray(points)[:, None] - x[:, 0]) / 0.1
    return np.exp(-(z**2) / 2).sum(axis=1) / (100 * 0.1 * np.sqrt(2 * np.pi))


def test_counts_and_densities_may_be_above_the_normalizer():
    """An interval from 100 to 100 held no number of rows but that."""
    made, x = releases(4)
    points, part = np.array([[0.2], [0.4]]), (x[:, 0] > 0.25) & (x[:, 0] <= 0.5)
    misses = np.zeros(5, dtype=int)
    for synopsis in made:
        d = synopsis.distribution()
        whole, some = d.count({"x": (0, 1)}), d.count({"x": (0.25, 0.5)})
        answers = [
            (whole, ROWS),
            (some, part.sum()),
            (d.count({"x": (0, 1)}, population=True), ROWS),
            (d.density(points), kernel_density(x, points[:, 0])),
            (d.mass({"x": (0.25, 0.5)}), part.mean()),
        ]
        misses += [not covers(*pair) for pair in answers]
        assert whole.low < whole.value < whole.high
        assert whole.high - whole.low < 0.1 * ROWS
        assert some.value == pytest.approx(part.sum(), abs=80)
        assert float(d.mass({"x": (0, 1)}).high) == 1
    assert not misses.any()


def test_many_counts_at_once_may_be_above_the_normalizer():
    """By the tail alone: of so many no noise is drawn."""
    (synopsis,), x = releases(1)
    ends = np.linspace(0.5, 1, 3000)
    known = (x[:, 0, None] <= ends).sum(axis=0)
    answer = synopsis.distribution().count({"x": (np.zeros(len(ends)), ends)})
    assert covers(answer, known)
    assert float(answer.value[-1]) == pytest.approx(ROWS, rel=0.1)


def test_a_band_is_of_however_many_rows():
    """What is certified of the worst database of as many rows as the normalizer is too little."""
    spec = spec_of(
        data={"bounds": {"x": [0.0, 1.0]}, "n": None, **ADDED}, target={"bandwidth": [0.1]},
        mechanism={"k": 12, "h": 1, "noise": "binned-laplace"},
        budget={"epsilon": "3"},
    )  # fmt: skip
    x, points = np.full((50_000, 1), 0.437), np.linspace(0, 1, 41)
    known = kernel_density(x, points)
    for synopsis in drawn((spec, plan_files(spec, ())), columns(x), range(3)):
        low, high = synopsis.interval(points[:, None])
        error = np.abs(np.asarray(synopsis(points[:, None])) - known).max()
        assert error > synopsis.band(about="any-database")  # of up to 100 rows, as is said
        assert error <= synopsis.band()
        assert ((low <= known) & (known <= high)).all()


def test_a_regression_does_not_tell_the_share_of_rows_that_count():
    """Of moments over a normalizer it is not known: it was cut to 1."""
    counted = {}
    for rows in ({"n": 500}, {"n": None, **ADDED}):
        spec = spec_of(
            data={"bounds": {"x": [0.0, 1.0]}, **RESPONSE, **rows}, budget={"epsilon": "9"},
            target={"kind": "ridge-regression", "method": "moments"},
        )  # fmt: skip
        x = np.linspace(0, 1, 500)
        synopsis = in_memory(spec, {"x": x, "r": x})
        counted[bool(rows["n"])] = synopsis.regression().counted
    assert counted[True] == pytest.approx(1, abs=0.02)
    assert np.isnan(counted[False])
