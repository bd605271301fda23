"""Four axes and more: exact integers, the sensitivity of bins, certificates, and refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from conformance import LABEL, noiseless, release_spec

import dbern
from dbern.bernstein.basis import bernstein_basis
from dbern.certify.noise import _tail_at_nodes, noise_sups
from dbern.planning.planner import plan_files
from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise

WIDTH = 0.35


@pytest.fixture(autouse=True)
def few_candidates(request, monkeypatch):
    """One way of binning instead of many: the choice is not what is tested here."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr("dbern.planning.bin_grids.BIN_RESOLUTIONS", {2: (1.3,)})


def spec_of(axes, noise="binned-laplace", *, n=1000, target=None, data=None, **mechanism):
    target = target or {"kind": "kernel-density", "bandwidth": [WIDTH] * axes}
    names, mechanism = (f"x{i}" for i in range(axes)), {"noise": noise, **mechanism}
    return release_spec(target, names, n=n, mechanism=mechanism, **(data or {}))


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["binned-laplace", "laplace"])
def test_without_noise_a_density_of_four_axes_is_the_direct_sum_up_to_the_certificate(noise):
    given = {} if noise == "binned-laplace" else {"k": 5, "h": 8}
    rng = np.random.default_rng(4)
    points = np.concatenate([rng.uniform(size=(200, 4)), np.round(rng.uniform(size=(40, 4)))])
    clusters = np.repeat(np.array([[0.1, 0.9, 0.5, 0.0], [1.0, 1.0, 0.0, 0.3]]), 20, axis=0)
    databases = [np.zeros((40, 4)), np.full((40, 4), 0.5), clusters, rng.uniform(size=(40, 4))]
    spec = spec_of(4, noise, n=40, **given)
    plan = plan_files(spec, ())
    allowed = plan.certificate.approximation + plan.certificate.rounding
    errors = []
    for places in databases:
        exact = reference.density(points, places, (WIDTH,) * 4, len(places))
        errors.append(float(np.abs(noiseless(spec, plan, places, points) - exact).max()))
    assert 0.05 * allowed < max(errors) <= allowed


def test_a_record_is_products_of_its_weights_exactly():
    """Four axes, three weights each: 81 integers, from the definition of the B-splines."""
    spec = spec_of(4, n=1, k=4, h=2)
    plan = plan_files(spec, ())
    place = np.array([0.0, 0.3, 0.999, 1.0])
    counters = plan.counters(spec)
    state = counters.count(
        [{name: place[i : i + 1] for i, name in enumerate(spec.domain.names)}], b""
    )
    weights = []
    for t, axis in zip(place, plan.strategy.bins, strict=True):
        cell = min(int(t * axis.cells), axis.cells - 1)
        u = t * axis.cells - cell
        own = np.zeros(axis.rank)
        own[cell : cell + 3] = (1 - u) ** 2 / 2, 0.5 + u - u * u, u * u / 2
        weights.append(own)
    product = np.ones(())
    for own in weights:
        product = np.multiply.outer(product, own)
    bits = plan.components[0].counting["bits"]
    assert np.abs(state.reshape(product.shape) - product * 2.0**bits).max() <= 1.0
    assert abs(int(state.sum()) - 2**bits) <= 81


def sup_at_nodes(strategy, h, law, draws):
    y = (1 - np.cos(np.linspace(0, np.pi, 151 if len(h) == 1 else 41))) / 2
    matrices = strategy.matrices(h)
    bases = [bernstein_basis(y, k) @ m for k, m in zip(strategy.lattice.k, matrices, strict=True)]
    return (
        noise_sups(bases, errors_of(law).simulate, draws, label="test")
        * 2.0**law.granularity_exponent
    )


@pytest.mark.parametrize("noise", ["laplace", "binned-laplace", "binned-gaussian"])
@pytest.mark.parametrize("axes", [1, 2])
def test_the_tail_at_nodes_bounds_the_noise_and_is_near_it(axes, noise):
    """Where a quantile can be simulated too: no more than a few times that."""
    spec = spec_of(axes, noise, k=9, h=6)
    plan = plan_files(spec, ())
    strategy, law = plan.strategy, plan.noise.law
    sups = np.sort(sup_at_nodes(strategy, plan.h, law, 400))
    bound = _tail_at_nodes(strategy, plan.h, law, Fraction(1, 20))
    assert sups[380] <= bound <= 4 * sups[380]
    assert isinstance(law, GaussianNoise) == ("gaussian" in noise)


def test_the_tail_of_one_value_is_above_its_exact_law():
    """One coefficient that is the value everywhere: the bound against the law itself."""
    spec = spec_of(1, "laplace", k=1, h=1)
    plan = plan_files(spec, ())
    law = plan.noise.law
    for beta in (Fraction(1, 2), Fraction(1, 20), Fraction(1, 10**6)):
        bound = _tail_at_nodes(plan.strategy, plan.h, law, beta)
        exact = law.scale * -math.log(float(beta)) * 2.0**law.granularity_exponent
        assert exact <= bound


def test_lattices_that_are_too_large_are_refused_with_both_numbers():
    narrow = {"kind": "kernel-density", "bandwidth": [0.05] * 6}
    for noise in ("auto", "laplace", "binned-laplace"):
        with pytest.raises(
            dbern.SpecError, match=r"target\.bandwidth .*: .* \d{7,} .* 1000000 .*Write"
        ):
            plan_files(spec_of(6, noise, target=narrow), ())
    with pytest.raises(dbern.SpecError, match=r"mechanism\.k: 1544804416 coeff.* 1000000000"):
        plan_files(spec_of(6, k=33), ())


def test_more_axes_than_a_lattice_may_have_are_refused_where_there_is_a_lattice():
    with pytest.raises(dbern.SpecError, match=r"data\.bounds: 9 axes, .* at most 8"):
        spec_of(9)
    bayes = {"kind": "naive-bayes", "bandwidth": [0.3] * 9}
    spec = spec_of(9, "laplace", target=bayes, data={"label": LABEL}, k=5, h=2)
    plan = plan_files(spec, ())
    assert len(plan.components) == 10


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "rows", "width", "shape"), [(4, 400, WIDTH, (2, 3)), (8, 1000, 0.5, (3, 3))]
)
def test_a_release_answers_and_covers(release, axes, rows, width, shape):
    rng = np.random.default_rng(4 + axes)
    places = rng.beta(*shape, size=(rows, axes))
    target = {"kind": "kernel-density", "bandwidth": [width] * axes}
    spec = spec_of(axes, "binned-laplace", n=rows, target=target)
    _, synopsis = release(spec, dict(zip(spec.domain.names, places.T, strict=True)))
    points = rng.uniform(size=(300 if axes == 4 else 50, axes))
    exact = reference.density(points, places, (width,) * axes, rows)
    assert np.abs(synopsis(points) - exact).max() <= synopsis.band(0.05)
    assert synopsis.verify()
    if axes == 4:
        assert np.isfinite(synopsis(points, h="auto")).all()
        assert synopsis.grid(5).shape == (5, 5, 5, 5)
        many = np.tile(points, (120, 1))
        np.testing.assert_allclose(synopsis(many)[:300], synopsis(points), atol=1e-8)
