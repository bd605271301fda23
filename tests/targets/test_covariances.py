"""Full bandwidth matrices: against direct evaluation, by search, and through every query."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conformance import RESPONSE, noiseless, release_spec
from scipy.stats import gaussian_kde, multivariate_normal

import dbern
from dbern.planning.choice import make_search
from dbern.planning.planner import plan_files
from dbern.planning.resolved import ResolvedSpec
from dbern.run import publish as publishing
from dbern.targets import KernelDensity, NadarayaWatson

BOUNDS = {"x": [0.0, 10.0], "y": [-1.0, 1.0], "z": [100.0, 101.0]}
ANGLE = 0.5
TURN = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
ROTATED = TURN @ np.diag([0.3, 0.12]) ** 2 @ TURN.T  # of the unit square
SCALE = np.array([10.0, 2.0, 1.0])


def in_units(square: np.ndarray) -> list[list[float]]:
    """A covariance of the unit cube in data units, exactly symmetric."""
    axes = len(square)
    whole = square * np.outer(SCALE[:axes], SCALE[:axes])
    return ((whole + whole.T) / 2).tolist()


H2 = in_units(ROTATED)
H3 = in_units(np.array([[0.09, 0.05, -0.02], [0.05, 0.06, 0.0], [-0.02, 0.0, 0.08]]))


def spec_of(covariance, noise="binned-laplace", *, n=40, data=None, target=None, **mechanism):
    return release_spec(
        {"kind": "kernel-density", "covariance": covariance, **(target or {})},
        dict(list(BOUNDS.items())[: len(covariance)]),
        mechanism={"noise": noise, **mechanism}, n=n, **(data or {}),
    )  # fmt: skip


def corners(axes: int) -> np.ndarray:
    return np.array(list(itertools.product(*list(BOUNDS.values())[:axes])))


def scattered(rng: np.random.Generator, rows: int, axes: int) -> np.ndarray:
    low, high = np.array(list(BOUNDS.values())[:axes]).T
    return rng.uniform(low, high, size=(rows, axes))


def direct(points: np.ndarray, places: np.ndarray, covariance: Any, n: int) -> np.ndarray:
    """``(1/n) sum_i K_H(y - d_i)``, H in data units."""
    law = multivariate_normal(np.zeros(points.shape[1]), np.array(covariance))
    return np.sum([law.pdf(points - place) for place in places], axis=0) / n


def estimated(spec, plan, places: np.ndarray, points: np.ndarray) -> np.ndarray:
    (component,) = spec.components
    positions = component.oblique.positions(np.clip(spec.domain.to_unit(points), 0, 1))
    return noiseless(spec, plan, places, positions) * component.unit


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("covariance", "noise"),
    [
        (H2, "binned-laplace"), (H2, "laplace"), slow(H2, "binned-gaussian"), slow(H3, "laplace"),
    ],
)  # fmt: skip
def test_without_noise_it_is_the_direct_sum_up_to_the_certificate(covariance, noise):
    axes, rng = len(covariance), np.random.default_rng(4)
    resolution = {"k": [10, 20, 10][:axes], "h": 6} if noise == "laplace" else {}
    spec = spec_of(covariance, noise, **resolution)
    plan = plan_files(spec, ())
    allowed = plan.certificate.approximation + plan.certificate.rounding
    points = np.concatenate([scattered(rng, 300, axes), corners(axes)])
    ends = corners(axes)
    middle = ends.mean(axis=0)
    masses = [np.repeat(one[None], 40, axis=0) for one in (*ends, middle, *points[:2])]
    clusters = np.concatenate([np.repeat(ends[1:2], 20, axis=0), np.repeat(points[:1], 20, axis=0)])
    errors = []
    for places in (*masses, clusters, points[:40]):
        near = np.concatenate([points, places[:1]])
        found = estimated(spec, plan, places, near) - direct(near, places, covariance, 40)
        errors.append(float(np.abs(found).max()))
    assert 0.05 * allowed < max(errors) <= allowed


@pytest.mark.slow
def test_with_the_bandwidth_of_scipy_it_is_what_scipy_gives():
    rng = np.random.default_rng(9)
    places = rng.multivariate_normal([5.0, 0.0], np.array(H2), size=60)
    places = places[(np.abs(places - [5.0, 0.0]) < [5.0, 1.0]).all(axis=1)]
    known = gaussian_kde(places.T)
    covariance = ((known.covariance + known.covariance.T) / 2).tolist()
    n = 10**6  # so that many bins are kept; the other rows do not count
    spec = spec_of(covariance, "binned-laplace", n=n, k=[30, 60], h=24)
    plan = plan_files(spec, ())
    points = scattered(rng, 200, 2)
    exact = known(points.T) * len(places) / n
    error = np.abs(estimated(spec, plan, places, points) - exact).max()
    assert error <= plan.certificate.approximation + plan.certificate.rounding
    assert error < 0.1 * exact.max()


@pytest.mark.slow
@pytest.mark.parametrize("k", [[4, 4], [9, 14]])
def test_the_sum_over_the_lattice_is_bounded_where_marginal_maxima_are_not(k):
    """The lattice is that of the oblique box; K_H and its points are computed independently."""
    spec = spec_of(H2, "laplace", n=1, k=k, h=2)
    plan = plan_files(spec, ())
    (component,) = spec.components
    nodes = np.stack(np.meshgrid(*[np.arange(m + 1) / m for m in k], indexing="ij"), -1)
    lattice, _ = component.oblique.points(nodes.reshape(-1, 2))
    rng = np.random.default_rng(1)
    places = np.concatenate([corners(2), scattered(rng, 4000, 2)])
    unit = spec.domain.to_unit(places)
    law = multivariate_normal([0, 0], ROTATED)
    sums = np.array([law.pdf(lattice - t).sum() for t in unit])
    bound = plan.sensitivity.l1 / component.unit / np.prod(component.oblique.width)
    assert 0.8 * bound < 2 * sums.max() <= bound
    assert plan.sensitivity.function == pytest.approx(
        multivariate_normal([0, 0], np.array(H2)).pdf([0, 0]), rel=1e-9
    )


def test_a_reference_density_is_that_of_the_points():
    spec = spec_of(H2, "binned-laplace", reference="test_covariances:tilted")
    (component,) = spec.components
    given = make_search(component, ResolvedSpec.of(spec, 40)).reference
    inside = np.array([[0.2, 0.9], [0.5, 0.5]])
    outside = np.array([[1.0, 1.0], [0.0, 0.0]])
    outside = outside[~component.oblique.points(outside)[1]]
    assert len(outside)
    np.testing.assert_allclose(
        given(component.oblique.positions(inside)), tilted(inside * SCALE[:2] + [0.0, -1.0])
    )
    np.testing.assert_array_equal(given(outside), 0.0)
    assert plan_files(spec_of(H2, n=1000, reference="test_covariances:tilted"), ()).k


def tilted(points: np.ndarray) -> np.ndarray:
    """A public reference density in data units."""
    return 2.0 + points[:, 0] / 10 + points[:, 1]


@pytest.mark.slow
def test_every_query_of_a_release_agrees(exact_release):
    rng = np.random.default_rng(2)
    places = scattered(rng, 200, 2)
    columns = {"x": [None, 11.0, *places[:, 0]], "y": [0.0, 0.0, *places[:, 1]]}
    spec = spec_of(H2, n=202, k=[20, 36], h=16)
    plan, synopsis = exact_release(spec, columns)
    points = np.concatenate([scattered(rng, 100, 2), corners(2), [[5.0, 1.5], [-1.0, 0.0]]])
    exact = direct(points[:-2], places, H2, 202)
    found = synopsis(points)
    sure = plan.certificate
    assert np.abs(found[:-2] - exact).max() <= sure.approximation + sure.rounding
    assert np.isnan(found[-2:]).all()
    many = synopsis(np.tile(points, (400, 1)))
    np.testing.assert_allclose(many[: len(points)], found, atol=1e-8 * exact.max())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.synopsis.released._GRID_POINTS", 11)  # two rows at a time
        grid = synopsis.grid((7, 5))
    at = np.array(list(itertools.product(grid["x"].values, grid["y"].values)))
    np.testing.assert_allclose(grid.values.T.ravel(), synopsis(at), atol=1e-9 * exact.max())
    nearest = synopsis(points, method="nearest")
    assert np.abs(nearest[:-2] - exact).max() < 0.6 * exact.max()
    assert np.isfinite(synopsis(points[:-2], h="auto")).all()
    low, high = synopsis.interval(points[:-2])
    assert ((low <= exact) & (exact <= high)).all()
    shaped = synopsis.shaped("nonnegative")
    np.testing.assert_allclose(shaped(points[:-2]), np.maximum(found[:-2], 0), atol=1e-12)
    with pytest.raises(dbern.SpecError, match=r"shapes: .* covariance can only be"):
        synopsis.shaped("normalized")
    assert "oblique" in synopsis.metadata["components"][0]
    assert synopsis.metadata["target"]["covariance"] == H2
    assert "bandwidth" not in synopsis.metadata["target"]


@pytest.mark.slow
def test_regression_with_a_covariance_is_the_weighted_mean(exact_release):
    rng = np.random.default_rng(3)
    places = scattered(rng, 300, 2)
    response = np.clip(places[:, 0] / 4 + rng.normal(0, 0.2, 300), -1.0, 3.0)
    columns = {"x": places[:, 0], "y": places[:, 1], "response": response}
    target = {"kind": "nadaraya-watson"}
    spec = spec_of(H2, "laplace", n=300, data={"response": RESPONSE}, target=target, k=30, h=16)
    _, synopsis = exact_release(spec, columns)
    points = scattered(rng, 100, 2)
    law = multivariate_normal([0, 0], np.array(H2))
    weights = np.array([law.pdf(places - point) for point in points])
    exact = weights @ response / weights.sum(axis=1)
    plain = replace(synopsis.combination, noise=None)  # less of the noise that was not drawn
    parts = synopsis._function.parts(points, synopsis._function.smoothings(None), len(points))
    assert np.abs(plain.values(parts) - exact).max() < 0.05
    low, high = synopsis.interval(points)
    assert not ((exact < low) | (high < exact)).any()  # of few rows there is no interval


def test_a_covariance_is_of_a_gaussian_and_parameters_come_back():
    with pytest.raises(dbern.SpecError, match=r'^target\.kernel: .* Write kernel = "gaussian"'):
        KernelDensity(covariance=H2, kernel="laplace")
    with pytest.raises(dbern.SpecError, match=r"^target\.bandwidth: is missing\. Write bandwidth"):
        NadarayaWatson()
    for one in (KernelDensity(covariance=H2), NadarayaWatson(bandwidth=[1.0])):
        assert type(one)(**one.get_params()) == one


def test_the_oblique_axes_are_kept_where_rows_are_private():
    """What is published of them is what points are evaluated with."""
    private = {"neighbors": "add-or-remove-one", "normalizer": "40"}
    spec = spec_of(H2, n=None, data=private, k=6, h=2)
    (statistic,) = spec.components
    plan = plan_files(spec, ())
    (group,) = publishing._groups(publishing._components(spec, plan), plan)
    assert statistic.oblique is not None
    assert group.component.oblique.restore() == statistic.oblique
