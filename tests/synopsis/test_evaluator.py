"""Every fast way to a value against the slow one, and when which is taken."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dbern.bernstein.basis import bernstein_basis, iterate
from dbern.bernstein.pieces import TOLERANCE, Pieces, resample
from dbern.data.domain import Axis, Domain
from dbern.synopsis import evaluate as evaluator
from dbern.synopsis.evaluate import LEAST_RESAMPLED, Polynomial, _least_resampled, evaluate

BOX = Domain((Axis("x", -3.0, 7.0), Axis("y", 1e6, 1e6 + 1), Axis("z", 0.0, 1e-30)))
MANY = LEAST_RESAMPLED
EDGES = [-np.inf, np.inf, np.nan, 0.0, 1.0, -5e-324, 5e-324, -1e-16, 1 + 2**-52, 1e300, 0.5]


def bounds(domain):
    return [axis.low for axis in domain.axes], [axis.high for axis in domain.axes]


def domain_of(dimensions):
    return Domain(BOX.axes[:dimensions])


def polynomial(k, h=3, seed=0):
    values = np.random.default_rng(seed).laplace(size=[count + 1 for count in k])
    return Polynomial(iterate(values, [h] * len(k)), domain_of(len(k)))


def points_of(domain, count, seed=0):
    """Inside, outside, on the bounds and just beside them."""
    generator = np.random.default_rng(seed)
    unit = generator.uniform(-0.1, 1.1, (count, domain.dimensions))
    rare = generator.random(unit.shape) < 0.1
    unit[rare] = generator.choice(EDGES, rare.sum())
    low, high = (np.array(side) for side in bounds(domain))
    points = low + unit * (high - low)
    return np.where(generator.random(unit.shape) < 0.05, high, points)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    cells=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    order=st.sampled_from([8, 12, 16]),
    count=st.sampled_from([0, 1, 2, 700]),
    seed=st.integers(0, 2**32),
)
def test_the_compiled_loops_are_their_slow_twin(cells, order, count, seed):
    shape = (2 ** len(cells) * int(np.prod(cells)), order ** len(cells))
    table = np.random.default_rng(seed).normal(size=shape)
    pieces = Pieces(tuple(2 * cell for cell in cells), order, table, 0.0)
    domain = domain_of(len(cells))
    points = points_of(domain, count, seed)
    fast = evaluator._evaluate_pieces(pieces, points, *bounds(domain))
    slow = twins.evaluate_pieces(pieces, points, *bounds(domain))
    assert_array_equal(np.isnan(fast), ~domain.inside(points))
    np.testing.assert_allclose(fast, slow, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [(1,), (333,), (20, 7), (6, 5, 9)])
def test_a_large_request_is_within_the_tolerance_of_a_small_one(k):
    function = polynomial(k)
    points = points_of(domain_of(len(k)), 2000)
    small, large = function(points, len(points)), function(points, MANY)
    assert_array_equal(np.isnan(small), np.isnan(large))
    inside = ~np.isnan(small)
    assert 300 < inside.sum() < 1999
    unit = domain_of(len(k)).to_unit(points[inside]).clip(0, 1)
    assert_array_equal(small[inside], evaluate(function.bernstein, unit))  # the slow way itself
    assert 0 < np.abs(small - large)[inside].max() <= TOLERANCE * np.abs(small[inside]).max() * 2


@pytest.mark.parametrize("k", [(40,), (12, 7), (5, 5, 5)])
def test_the_way_depends_on_the_size_of_the_request_alone(k, monkeypatch):
    function, domain = polynomial(k), domain_of(len(k))
    points = points_of(domain, 5000)
    monkeypatch.setattr(evaluator, "_BATCH_POINTS", 1000)
    once = function(points, MANY)
    least = _least_resampled([one + 1 for one in k])
    assert not np.array_equal(once, function(points, least - 1), equal_nan=True)
    assert_array_equal(function(points, least), once)
    one_by_one = [function(points[i : i + 1], MANY) for i in range(300)]
    assert_array_equal(np.concatenate(one_by_one), once[:300])
    monkeypatch.setattr(evaluator, "_MIN_POINTS_OF_THREAD", 1000)
    assert_array_equal(function(points, MANY, threads=3), once)
    monkeypatch.setattr(evaluator, "_CACHED_TABLE", 0)  # in order of cells
    assert_array_equal(function(points, MANY), once)
    for same in (np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2], frozen(points)):
        assert_array_equal(function(same, MANY), once)


def frozen(points):
    copy = points.copy()
    copy.setflags(write=False)
    return copy


def test_pieces_are_made_once_and_only_for_a_large_request(monkeypatch):
    made = []
    monkeypatch.setattr(evaluator, "resample", lambda b: made.append(b) or resample(b))
    function, points = polynomial((5, 4)), points_of(domain_of(2), 10)
    function(points, MANY - 1)
    assert made == []
    function(points, MANY)
    function(points, MANY)
    assert len(made) == 1


def test_without_pieces_a_large_request_takes_the_slow_way(monkeypatch):
    monkeypatch.setattr(evaluator, "resample", lambda _bernstein: None)
    function, points = polynomial((5, 4)), points_of(domain_of(2), 100)
    assert_array_equal(function(points, MANY), function(points, 1))


@pytest.mark.parametrize(
    ("shape", "least"), [((13,), 32768), ((201, 201), 3216), ((201, 201, 201), 32768)]
)
def test_larger_requests_go_by_pieces(shape, least):
    assert _least_resampled(shape) == least


def test_points_of_a_large_lattice_use_the_nodes_near_them(monkeypatch):
    """Values are those of all nodes, and what is far away is not even looked at."""
    rng = np.random.default_rng(4)
    coefficients, points = rng.normal(size=(81, 61, 71)), rng.uniform(size=(400, 3))
    whole = evaluate(coefficients, points)
    monkeypatch.setattr(evaluator, "_LOCAL_VALUES", 1)
    np.testing.assert_allclose(evaluate(coefficients, points), whole, rtol=0, atol=1e-11)
    coefficients[60:] = np.nan
    low = points[:, 0] < 0.2
    np.testing.assert_allclose(evaluate(coefficients, points[low]), whole[low], rtol=0, atol=1e-11)
    assert len(evaluate(coefficients, points[:0])) == 0


@pytest.mark.parametrize("shape", [(9, 9), (9, 7), (6, 6, 6)])
def test_a_point_alone_has_the_bases_of_its_axes(shape):
    """Those of equal axes are evaluated at once, which changes no bit."""
    for point in np.random.default_rng(3).uniform(size=(50, 1, len(shape))):
        axes = zip(point.T, shape, strict=True)
        for basis, (y, nodes) in zip(evaluator._bases(point, shape), axes, strict=True):
            assert_array_equal(basis, bernstein_basis(y, nodes - 1))
