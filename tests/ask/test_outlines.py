from __future__ import annotations

import itertools

import numpy as np
import pytest
from questioned import asked, databases

from dbern.ask import polygon_envelopes
from dbern.ask import regions as module
from dbern.ask.polygon_envelopes import polygon_envelope, smoothed_polygon_envelope
from dbern.ask.regions import Polygons, outline
from dbern.ask.splines import AxisSplines
from dbern.bernstein.kernels import kernel_of
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

TRIANGLE = np.array([[0.1, 0.1], [0.8, 0.2], [0.3, 0.9], [0.1, 0.1]])
HOLE = np.array([[0.3, 0.3], [0.3, 0.5], [0.5, 0.35], [0.3, 0.3]])
ISLAND = np.array([[0.32, 0.34], [0.42, 0.35], [0.33, 0.45], [0.32, 0.34]])
BESIDE = np.array([[0.1, 0.1], [0.1, 0.9], [0.3, 0.9], [0.1, 0.1]])
SQUARE = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])


def spans(parts, y):
    """Ends (m, 2) of the stretches of a line across that a region holds: the union of its parts.

    A part holds what is right of an odd number of its edges.
    """
    stretches = []
    for rings in parts:
        a, b = (np.concatenate([ring[end] for ring in rings]) for end in (np.s_[:-1], np.s_[1:]))
        met = (a[:, 1] <= y) != (b[:, 1] <= y)
        a, b = a[met], b[met]
        at = np.sort(a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0]))
        stretches += at.reshape(-1, 2).tolist()
    joined = []
    for start, stop in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], stop)
        else:
            joined.append([start, stop])
    return np.array(joined).reshape(-1, 2)


def heights(count):
    return (np.arange(count) + 0.5) / count


def shares(parts, kernels, rows, count=4000):
    """What a region holds of the kernels of rows, by lines across."""
    held = np.zeros(len(rows))
    for y in heights(count):
        start, stop = (
            kernels[0].cumulative(end[:, None] - rows[:, 0]) for end in spans(parts, y).T
        )
        held += (stop - start).sum(axis=0) * kernels[1](y - rows[:, 1]) / count
    return held


def area(pieces):
    """Area of what is on the left of pieces of an outline."""
    return float((pieces[..., 0].mean(axis=1) * np.diff(pieces[..., 1], axis=1)[:, 0]).sum())


def box(left, low, right, high):
    return np.array([[left, low], [right, low], [right, high], [left, high], [left, low]])


BIG, SMALL = box(0.1, 0.1, 0.9, 0.9), box(0.3, 0.3, 0.6, 0.6)
BOW = np.array([[0.1, 0.1], [0.5, 0.5], [0.9, 0.1], [0.9, 0.9], [0.5, 0.5], [0.1, 0.9], [0.1, 0.1]])
WEDGE = np.array([[0.1, 0.1], [0.9, 0.4], [0.1, 0.9], [0.1, 0.1]])
BELOW = np.array([[0.1, 0.1], [0.9, 0.1], [0.9, 0.4], [0.1 + 0.8 / 3, 0.1 + 0.3 / 3], [0.1, 0.1]])
REGIONS = {
    "triangle": [[TRIANGLE]],
    "backward": [[TRIANGLE[::-1]]],
    "all": [[SQUARE]],
    "hole": [[TRIANGLE, HOLE]],
    "a hole first": [[HOLE, TRIANGLE[::-1]]],
    "island in a hole": [[ISLAND, HOLE[::-1], TRIANGLE]],
    "island as a part": [[TRIANGLE, HOLE], [ISLAND]],
    "neighbors": [[TRIANGLE], [BESIDE]],
    "a part within a part": [[BIG], [SMALL]],
    "a part within a part, at its edge": [[BIG[::-1]], [box(0.1, 0.3, 0.6, 0.6)]],
    "a part twice": [[BIG], [BIG[::-1]]],
    "parts that share a stretch": [[box(0, 0.1, 0.6, 0.9)], [box(0.3, 0.1, 1, 0.9)]],
    "parts that share a part of an edge": [[box(0, 0.1, 0.6, 0.9)], [box(0.6, 0.3, 1, 0.7)]],
    "parts that share a corner": [[box(0.1, 0.1, 0.5, 0.5)], [box(0.5, 0.5, 0.9, 0.9)]],
    "a hole that is filled": [[BIG, SMALL], [SMALL]],
    "a hole at the edge": [[BIG, box(0.3, 0.1, 0.6, 0.6)]],
    "a hole at a corner": [[BIG, np.array([[0.1, 0.1], [0.5, 0.2], [0.3, 0.6], [0.1, 0.1]])]],
    "a ring that touches itself": [[BOW]],
    "a corner on a slope": [[WEDGE], [BELOW]],
}


def beyond(parts, name="gaussian", degree=2, b=0.15):
    """By how much what rows have leaves its sides, at most, and how far these are apart."""
    rows = np.random.default_rng(0).uniform(size=(60, 2))
    axes, kernels = [AxisSplines(12, degree)] * 2, (kernel_of(name, b), kernel_of(name, 1.2 * b))
    sides = smoothed_polygon_envelope(Polygons([parts], [None]), axes, kernels, 1e-5)
    beta = [one.values(column) for one, column in zip(axes, rows.T, strict=True)]
    low, near, high = (
        np.einsum("na,ab,nb->n", beta[0], one[0], beta[1])
        for one in (sides.lower, sides.estimate, sides.upper)
    )
    assert ((low <= near) & (near <= high)).all()
    truth = shares(parts, kernels, rows)
    return max((low - truth).max(), (truth - high).max()), (high - low).max()


@pytest.mark.slow
@pytest.mark.parametrize("region", list(REGIONS)[:12])
def test_what_polygons_hold_of_kernels_is_between_its_splines(region):
    over, apart = beyond(REGIONS[region])
    assert over < 0
    assert apart < 2.5e-3


@pytest.mark.slow
@pytest.mark.parametrize("degree", [1, 3, 7])
@pytest.mark.parametrize("name", ["triangle", "laplace", "epanechnikov", "matern-3/2", "triweight"])
def test_of_any_kernel_and_degree(name, degree):
    over, apart = beyond(REGIONS["hole"], name, degree, 0.3)
    assert over < 0
    assert apart < 0.05


def test_a_hole_that_is_not_turned_is_caught(monkeypatch):
    monkeypatch.setattr(
        polygon_envelopes,
        "outline",
        lambda parts: np.concatenate([np.stack([r[:-1], r[1:]], axis=1) for r in parts[0]]),
    )
    assert beyond([[TRIANGLE, HOLE[::-1]]])[0] > 0.01


def lengths(parts, count):
    """Mean length of what a region holds of so many lines across."""
    return np.mean([np.diff(spans(parts, y)).sum() for y in heights(count)])


@pytest.mark.parametrize("region", REGIONS)
def test_an_outline_has_the_region_on_its_left(region):
    """Corners are at multiples of a hundredth, so between lines nothing bends."""
    assert area(outline(REGIONS[region])) == pytest.approx(lengths(REGIONS[region], 100), abs=1e-12)


def test_outlines_of_parts_whose_corners_are_on_a_lattice():
    """Corners on edges, edges on edges and rings through corners: all that is no crossing."""
    rng, tried = np.random.default_rng(1), 0
    while tried < 60:
        parts = [
            [np.vstack([ring, ring[:1]]) for ring in rng.integers(5, size=(count, 3, 2)) / 4]
            for count in rng.integers(1, 3, size=rng.integers(1, 4))
        ]
        if not module._cross([ring for part in parts for ring in part]):
            tried += 1
            assert area(outline(parts)) == pytest.approx(lengths(parts, 12), abs=1e-12)


@pytest.mark.parametrize("region", REGIONS)
def test_a_region_lies_between_its_splines(region):
    parts, x, axes = REGIONS[region], (np.arange(37) + 0.3) / 37, [AxisSplines(11, 2)] * 2
    y = heights(23)
    ends = [spans(parts, height).T[..., None] for height in y]
    inside = np.stack([((start < x) & (x < stop)).any(axis=0) for start, stop in ends])
    sides = polygon_envelope(Polygons([parts], [None]), axes)
    low, high = (
        (axes[0].values(x) @ side[0] @ axes[1].values(y).T).T for side in (sides.lower, sides.upper)
    )
    assert ((low <= inside + 1e-12) & (inside <= high + 1e-12)).all()


@pytest.mark.slow
def test_a_fit_without_what_it_misses_is_caught(monkeypatch):
    monkeypatch.setattr(
        polygon_envelopes, "_over_supports", lambda _excess, axes: np.zeros_like(axes[0].gram)
    )
    assert beyond(REGIONS["triangle"], "triangle", 2, 0.3)[0] > 0


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_smoothed_shares_of_polygons_cover():
    rows = databases(2, 2000)["clustered"]
    kernels = (kernel_of("gaussian", 0.1),) * 2
    polygon = {"type": "Polygon", "coordinates": [TRIANGLE.tolist(), HOLE.tolist()]}
    exact = shares([[TRIANGLE, HOLE]], kernels, rows, 2000).mean()
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
        size = 10 ** rng.integers(1, 4)
        ring = rng.integers(size + 1, size=(5, 2))
        edges = list(itertools.pairwise([*ring, ring[0]]))
        crossed = any(
            module.side(a, b, c) * module.side(a, b, d) < 0
            and module.side(c, d, a) * module.side(c, d, b) < 0
            for (a, b), (c, d) in itertools.combinations(edges, 2)
        )
        assert module._cross([np.vstack([ring, ring[:1]]) / size]) == crossed


def test_polygons_whose_parts_cross_are_refused():
    moved = (TRIANGLE + 0.05).tolist()
    parts = {"type": "MultiPolygon", "coordinates": [[TRIANGLE.tolist()], [moved]]}
    with pytest.raises(SpecError, match=r"rings cross each other\. Unite the parts"):
        asked(np.full((50, 2), 0.3)).mass(parts)


@pytest.mark.parametrize("target", ["records", "smoothed"])
def test_a_part_within_a_part_and_a_part_twice_count_once(target):
    d = asked(databases(2, 400)["uniform"], key=0)
    rings = [[BIG.tolist()], [SMALL[::-1].tolist()], [BIG[::-1].tolist()]]
    whole = d.mass({"type": "Polygon", "coordinates": rings[0]}, target=target)
    for parts in (rings[:2], rings[1::-1], rings[::2], rings):
        answer = d.mass({"type": "MultiPolygon", "coordinates": parts}, target=target)
        assert answer.low <= whole.value <= answer.high
        assert answer.value == pytest.approx(whole.value, abs=0.01)


def test_parts_whose_corners_are_on_each_other_s_slopes_do_not_cross():
    """In degrees, whose last digits are lost: corners are on either side of the slope."""
    domain = Domain((Axis("lon", -74.05, -73.75), Axis("lat", 40.6, 40.9)))
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b, below, above = rng.uniform([-74.04, 40.61], [-73.76, 40.89], size=(4, 2))
        below, above = sorted((below, above), key=lambda c: module.side(a, b, c))
        if module.side(a, b, below) < 0 < module.side(a, b, above):
            corner = a + rng.uniform() * (b - a)
            parts = [[[a, b, above, a]], [[corner, b, below, corner]], [[a, corner, below, a]]]
            shape = {"type": "MultiPolygon", "coordinates": parts}
            assert len(module.polygons_of(shape, domain).regions[0]) == 3


@pytest.mark.parametrize("cells", [(88, 56), (8, 400), (400, 8)])
def test_small_cells_that_an_edge_goes_through_are_cut_and_few_others(cells):
    rings = [TRIANGLE, ISLAND, BOW[:, ::-1], circle(9), circle(30, radius=1e-3), SQUARE]
    shares = np.linspace(0, 1, 3000)[:, None]
    for ring in rings:
        met = np.zeros(cells, bool)
        for a, b in itertools.pairwise(ring):
            at = np.floor((a + shares * (b - a)) * cells).astype(int)
            met[tuple(at.clip(0, np.array(cells) - 1).T)] = True
        cut = polygon_envelopes._cut([[ring]], cells)
        assert cut[met].all()
        assert cut.sum() <= 1.1 * met.sum() + 3 * len(ring)


def test_work_on_a_large_map_is_by_cells_and_no_matrix_of_all_small_cells_is_made(monkeypatch):
    made, values = [], AxisSplines.values
    monkeypatch.setattr(
        AxisSplines, "values", lambda self, t: made.append((len(t), self)) or values(self, t)
    )
    polygon_envelope(Polygons([[[TRIANGLE]]], [None]), [AxisSplines(60, 1), AxisSplines(50, 2)])
    assert all(count <= splines.cells * (splines.degree + 1) for count, splines in made)
