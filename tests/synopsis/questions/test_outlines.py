from __future__ import annotations

import itertools

import numpy as np
import pytest
from questioned import asked, databases

from dbern.bernstein.kernels import kernel_of
from dbern.errors import SpecError
from dbern.synopsis.questions import polygons as module
from dbern.synopsis.questions.envelopes import smoothed_polygon
from dbern.synopsis.questions.envelopes.smoothed_polygon import smoothed_polygon_envelope
from dbern.synopsis.questions.envelopes.splines import AxisSplines
from dbern.synopsis.questions.polygons import Polygons

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

TRIANGLE = np.array([[0.1, 0.1], [0.8, 0.2], [0.3, 0.9], [0.1, 0.1]])
HOLE = np.array([[0.3, 0.3], [0.3, 0.5], [0.5, 0.35], [0.3, 0.3]])
ISLAND = np.array([[0.32, 0.34], [0.42, 0.35], [0.33, 0.45], [0.32, 0.34]])
BESIDE = np.array([[0.1, 0.1], [0.1, 0.9], [0.3, 0.9], [0.1, 0.1]])
SQUARE = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])


def shares(rings, kernels, rows, count=4000):
    """What an odd number of rings encloses of the kernels of rows: by lines across, and parity."""
    y, found = (np.arange(count) + 0.5) / count, np.zeros(len(rows))
    edges = np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring in rings])
    a, b = edges[:, 0], edges[:, 1]
    for height in y:
        met = (a[:, 1] <= height) != (b[:, 1] <= height)
        part = (height - a[met, 1]) / (b[met, 1] - a[met, 1])
        ends = np.sort(a[met, 0] + part * (b[met, 0] - a[met, 0]))
        signs = np.resize([-1.0, 1.0], len(ends))
        across = kernels[0].cumulative(ends[:, None] - rows[:, 0])
        found += signs @ across * kernels[1](height - rows[:, 1]) / count
    return found


REGIONS = {
    "triangle": [TRIANGLE],
    "backward": [TRIANGLE[::-1]],
    "all": [SQUARE],
    "hole": [TRIANGLE, HOLE],
    "island in a hole": [ISLAND, HOLE[::-1], TRIANGLE],
    "neighbors": [TRIANGLE, BESIDE],
}


def beyond(rings, name="gaussian", degree=2, b=0.15):
    """By how much what rows have leaves its sides, at most, and how far these are apart."""
    rows = np.random.default_rng(0).uniform(size=(60, 2))
    axes, kernels = [AxisSplines(12, degree)] * 2, (kernel_of(name, b), kernel_of(name, 1.2 * b))
    sides = smoothed_polygon_envelope(Polygons([rings], [None]), axes, kernels, 1e-5)
    beta = [one.values(column) for one, column in zip(axes, rows.T, strict=True)]
    low, near, high = (
        np.einsum("na,ab,nb->n", beta[0], one[0], beta[1])
        for one in (sides.lower, sides.estimate, sides.upper)
    )
    assert ((low <= near) & (near <= high)).all()
    truth = shares(rings, kernels, rows)
    return max((low - truth).max(), (truth - high).max()), (high - low).max()


@pytest.mark.slow
@pytest.mark.parametrize("region", REGIONS)
def test_what_polygons_hold_of_kernels_is_between_its_splines(region):
    over, apart = beyond(REGIONS[region])
    assert over < 0
    assert apart < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("degree", [1, 3, 7])
@pytest.mark.parametrize("name", ["triangle", "laplace", "epanechnikov", "matern-3/2", "triweight"])
def test_of_any_kernel_and_degree(name, degree):
    over, apart = beyond(REGIONS["hole"], name, degree, 0.3)
    assert over < 0
    assert apart < 0.05


def test_a_hole_that_is_not_turned_is_caught(monkeypatch):
    monkeypatch.setattr(
        smoothed_polygon,
        "_oriented",
        lambda i, rings: np.stack([rings[i][:-1], rings[i][1:]], axis=1),
    )
    assert beyond([TRIANGLE, HOLE[::-1]])[0] > 0.01


@pytest.mark.slow
def test_a_fit_without_what_it_misses_is_caught(monkeypatch):
    monkeypatch.setattr(
        smoothed_polygon, "_over_supports", lambda _excess, axes: np.zeros_like(axes[0].gram)
    )
    assert beyond(REGIONS["triangle"], "triangle", 2, 0.3)[0] > 0


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_smoothed_shares_of_polygons_cover():
    rows = databases(2, 2000)["clustered"]
    kernels = (kernel_of("gaussian", 0.1),) * 2
    polygon = {"type": "Polygon", "coordinates": [TRIANGLE.tolist(), HOLE.tolist()]}
    exact = shares([TRIANGLE, HOLE], kernels, rows, 2000).mean()
    for key in (1, 2, 3):
        d = asked(rows, key)
        answer, count = d.mass(polygon, target="smoothed"), d.count(polygon, target="smoothed")
        assert answer.low <= exact <= answer.high
        assert count.low <= 2000 * exact <= count.high
        assert answer.high - answer.low < 0.05


def circle(edges, center=0.5, radius=0.3):
    turns = np.linspace(0, 2 * np.pi, edges + 1)
    ring = np.column_stack([np.cos(turns), np.sin(turns)]) * radius + center
    ring[-1] = ring[0]
    return ring


def test_edges_are_compared_with_those_that_share_an_x(monkeypatch):
    """Of a circle of n edges some, not n, for each: work grows as n, and once for all rings."""
    looked_at, side = [], module.side
    monkeypatch.setattr(
        module, "side", lambda a, b, c: looked_at.append(np.size(c)) or side(a, b, c)
    )
    assert not module._cross([circle(2000), circle(1000, radius=0.1)])
    assert sum(looked_at) < 50 * 3000


@pytest.mark.parametrize("seed", range(5))
def test_crossings_are_those_of_all_pairs(seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        ring = rng.uniform(size=(5, 2)).round(rng.integers(1, 4))
        edges = list(itertools.pairwise([*ring, ring[0]]))
        crossed = any(
            module.side(a, b, c) * module.side(a, b, d) < 0
            and module.side(c, d, a) * module.side(c, d, b) < 0
            for (a, b), (c, d) in itertools.combinations(edges, 2)
        )
        assert module._cross([np.vstack([ring, ring[:1]])]) == crossed


def test_polygons_whose_parts_cross_are_refused():
    moved = (TRIANGLE + 0.05).tolist()
    parts = {"type": "MultiPolygon", "coordinates": [[TRIANGLE.tolist()], [moved]]}
    with pytest.raises(SpecError, match=r"rings cross each other\. Unite the parts"):
        asked(np.full((50, 2), 0.3)).mass(parts)
