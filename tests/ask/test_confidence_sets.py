"""All that a contrast of released numbers does not deny: its ends are those of a dense grid."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from banding import drawn, planned

from dbern.ask import moments
from dbern.ask.quotients import Contrast, Sides, SquaredNorm, confidence_set, nearest_set
from dbern.certify.noise import Radius, largest_contrast

COUNT = 400


def contrasts(seed, correlated=True):
    """Contrasts of weights and released numbers of any sizes and signs."""
    rng = np.random.default_rng(seed)
    a, k = rng.normal(size=(2, COUNT)) * 10.0 ** rng.uniform(-2, 1, size=(2, COUNT))
    weights = rng.normal(size=(2, COUNT, 3)) * 10.0 ** rng.uniform(-2, 1, size=(2, COUNT, 1))
    if not correlated:
        weights *= [[[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]]
    products = np.einsum("icj,lcj->ilc", weights, weights)
    norm = SquaredNorm(products[0, 0], products[0, 1], products[1, 1])
    slack, largest = rng.exponential(size=(2, COUNT)) * 0.01
    return Contrast(a, k, norm, largest, slack)


def accepted(contrast, radius, sign, m):
    """Whether each m of a grid is accepted, (grid, contrasts), and how far from being denied."""
    noise = radius.q * np.sqrt(contrast.norm.at(m)) + radius.loose * contrast.largest
    left = sign * (contrast.a - m * contrast.k) + noise + contrast.slack
    return left >= 0, left


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("radius", [Radius(0.7), Radius(0.3, 0.5), Radius(0.0)])
@pytest.mark.parametrize("within", [(0.0, 1.0), (-1.0, 0.0), (-3.0, 40.0)])
def test_ends_of_a_contrast_are_those_of_a_dense_grid(sign, radius, within):
    """Also where the released denominator is below 0, or cannot be told from it."""
    contrast = contrasts(sign + 7)
    assert (contrast.k < 0).any()
    assert (contrast.k**2 < radius.q**2 * contrast.norm.kk).any() or not radius.q
    first, last = contrast.accepted(radius, sign, within)
    grid = np.linspace(*within, 4001)[:, None]
    kept, left = accepted(contrast, radius, sign, grid)
    step, some = (within[1] - within[0]) / 4000, kept.any(axis=0)
    assert 0 < some.sum() < COUNT
    low, high = (np.where(kept, grid, sign_ * np.inf) for sign_ in (1, -1))
    low, high = low.min(axis=0)[some], high.max(axis=0)[some]
    rounding = 1e-9 * max(map(abs, within))
    assert (first[some] <= low + rounding).all()
    assert (last[some] >= high - rounding).all()
    assert (first[some] >= low - step - rounding).all()
    assert (last[some] <= high + step + rounding).all()
    # Of no grid point are others that a part between two points, which is as good as none.
    assert ((first > last) | (left.max(axis=0) > -step * (np.abs(contrast.k) + 40)))[~some].all()


def test_a_set_is_what_no_side_denies():
    sides = Sides(np.zeros(COUNT), contrasts(1), contrasts(2))
    radius, grid = Radius(0.2), np.linspace(0, 1, 4001)[:, None]
    first, last = confidence_set(sides, radius, (0.0, 1.0))
    pairs = (sides.lower, -1), (sides.upper, 1)
    kept = np.all([accepted(side, radius, sign, grid)[0] for side, sign in pairs], axis=0)
    assert (np.where(kept, grid, np.inf).min(axis=0) >= first - 1e-9).all()
    assert (np.where(kept, grid, -np.inf).max(axis=0) <= last + 1e-9).all()
    assert (~kept).all(axis=0)[first > last].all()
    assert 0 < (first > last).sum() < COUNT


@pytest.mark.parametrize("within", [(0.0, 1.0), (-1.0, 1.0)])
def test_the_nearest_set_is_what_is_not_denied_or_denied_by_less(within):
    """An end of the range that a side denies with all others was taken for its other end."""
    sides, radius = Sides(np.zeros(COUNT), contrasts(1), contrasts(2)), Radius(0.2)
    first, last = confidence_set(sides, radius, within)
    nearest, grid = nearest_set(sides, radius, within), np.linspace(*within, 4001)[:, None]
    kept = first <= last
    np.testing.assert_array_equal(np.where(kept, nearest, 0), np.where(kept, (first, last), 0))
    assert (within[0] <= nearest[0]).all()
    assert (nearest[0] <= nearest[1]).all()
    assert (nearest[1] <= within[1]).all()
    for side, sign, other in ((sides.lower, -1, sides.upper), (sides.upper, 1, sides.lower)):
        some, left = accepted(side, radius, sign, grid)
        others = accepted(other, radius, -sign, grid)[0].all(axis=0)
        denied = ~some.any(axis=0) & others  # by this side alone, with all that is in the range
        least = grid[left.argmax(axis=0), 0]
        assert set(least[denied]) == set(within)
        np.testing.assert_array_equal(nearest[0][denied], least[denied])
        np.testing.assert_array_equal(nearest[1][denied], least[denied])


@pytest.mark.parametrize("roles", ["{}", '{"resolution": {"x": 0.01}}'])
def test_where_no_row_is_no_answer_is_that_all_are(roles):
    """Noise far below 0 denies every share: the nearest is none, and not all of the rows."""
    rows, boxes = np.full(4000, 0.37), [(low / 20, (low + 1) / 20) for low in range(20)]
    case, denied = planned(1, 4000, 0.05, roles=roles), 0
    for synopsis in drawn(case, {"x": rows}, range(40)):
        shares = synopsis.distribution().mass([{"x": box} for box in boxes])
        for box, low, high in zip(boxes, shares.low, shares.high, strict=True):
            holds = box[0] < 0.37 <= box[1]
            assert (high >= 0.9) == (low >= 0.9) == holds
            denied += low == high == 0
    assert denied > 0  # or the case is not met


@pytest.mark.parametrize(
    ("ends", "told"),
    [((0.1, 0.2), (0.1, 0.2)), ((0.002, -0.0024), (0.0, 0.002)), ((-3.0, -0.1), (0.0, 0.0)),
     ((0.4, 0.3), (0.25, 0.25)), ((-np.inf, np.inf), (0.0, 0.25))],
)  # fmt: skip
def test_a_statistic_s_ends_are_in_order_and_within_its_bounds(monkeypatch, ends, told):
    """A variance was below 0 where noise denied all that are not, and its root no number."""
    monkeypatch.setattr(moments, "center_axes", lambda _: None)
    span, bounds = SimpleNamespace(estimate=lambda _: 1.0), (0.0, 0.25)
    found = moments._statistic_interval(span, lambda *_: (9.0, *ends), bounds)
    assert (found.low[0], found.high[0]) == told
    assert found.value[0] == told[1]


def test_half_of_a_radius_leaves_true_quotients_out():
    """Of normal noise the set holds as often as its radius, and by half of it does not."""
    rng, m = np.random.default_rng(0), 0.3
    noise = rng.normal(size=(2, 20_000))
    zero, one = np.zeros(1), np.ones(1)
    side = Contrast(2.0 * m + 0.1 * noise[0], 2.0 + 0.1 * noise[1], SquaredNorm(one, zero, one))
    holds = []
    for q in (0.196, 0.098):  # of both ends
        first, last = confidence_set(Sides(zero, side, side), Radius(q), (0.0, 1.0))
        holds.append(float(((first <= m) & (m <= last)).mean()))
    assert abs(holds[0] - 0.95) < 0.01
    assert holds[1] < 0.7


def test_a_band_of_a_quotient_is_the_interval_of_two_measures():
    """With l = a - e and u = a + e: the rows in two parts, N = P - Q and D = P + Q."""
    rng = np.random.default_rng(3)
    a, p, q = rng.normal(size=(3, 100, 16))
    e = rng.exponential(size=(100, 16))
    top, below = (np.einsum("mj,mj->m", a, part) for part in (p - q, p + q))
    level, slope = np.einsum("mj,mj->m", e, p + q), -np.einsum("mj,mj->m", e, p - q)
    of_both = {sign: [((a + sign * e) * part).sum(axis=1) for part in (p, q)] for sign in (-1, 1)}
    size = np.abs(a).sum(axis=1) * (np.abs(p) + np.abs(q)).max()
    for m in np.linspace(-1, 1, 9):
        mu = (1 + m) / 2
        for sign in (-1, 1):
            band = (top + sign * level) - m * (below - sign * slope)
            interval = 2 * ((1 - mu) * of_both[sign][0] - mu * of_both[-sign][1])
            assert (np.abs(band - interval) <= 1e-15 * (size + e.sum(axis=1) * 16)).all()


def test_the_largest_contrast_is_that_of_dense_angles():
    x, y = np.random.default_rng(0).normal(size=(2, 500))
    m = np.linspace(-1, 1, 4001)[:, None]
    dense = (np.abs(x - m * y) / np.hypot(1.0, m)).max(axis=0)
    found = largest_contrast(x, y)
    assert (dense <= found * (1 + 1e-12)).all()
    np.testing.assert_allclose(dense, found, rtol=1e-6)
