"""Explicit features: the cut kernel beside the whole one, and the primal path in floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_learning import EIGHTY_BITS, GRID, LOSSES, RADIUS, Plain, sample
from fitting import Minimize, solve
from test_stability import worst

from dbern.bernstein.reproducing import Gaussian, Linear
from dbern.erm import shards
from dbern.erm.float_errors import state_error, value_error
from dbern.erm.gaussian_features import ProjectedGaussian
from dbern.erm.losses import Logistic
from dbern.erm.risk import Risk

pytestmark = pytest.mark.slow  # searches

SCALES = (0.25, 0.4)
WHOLE = Gaussian(SCALES)


def cut_to(rank):
    return ProjectedGaussian.on_lattice(SCALES, [20, 16], [rank, rank])


def everywhere():
    rng = np.random.default_rng(0)
    edges = np.stack(np.meshgrid([0.0, 0.01, 0.03, 0.5, 0.97, 1.0], np.linspace(0, 1, 5)), -1)
    return np.concatenate([edges.reshape(-1, 2), rng.uniform(size=(300, 2))])


@pytest.mark.parametrize("rank", [3, 5, 8, 10])
def test_cut_bounds_the_difference_of_the_kernels_and_is_near_it(rank):
    kernel, x = cut_to(rank), everywhere()
    found = np.abs(kernel(x, x) - WHOLE(x, x)).max()
    assert found <= kernel.cut
    assert kernel.cut <= 3 * found + 1e-5


@pytest.mark.parametrize("rank", [3, 8, 12])
def test_features_are_no_longer_than_kappa(rank):
    kernel = cut_to(rank)
    longest = np.square(kernel.features(everywhere())).sum(axis=1).max()
    assert 0.9 * longest <= kernel.bound(RADIUS) * 1.0
    assert longest <= kernel.bound(RADIUS) <= 1.001


def long_features(kernel, x):
    """The features in eighty bits, from the stored integers."""
    result = np.ones((len(x), 1), np.longdouble)
    for axis, (scale, spectrum) in enumerate(zip(kernel.scales, kernel.spectra, strict=True)):
        scale = np.longdouble(scale)
        k = spectrum.integers.shape[1] - 1
        nodes = (np.arange(k + 1) / k).astype(np.longdouble)
        z = (x[:, axis, None].astype(np.longdouble) - nodes) / scale
        peak = 1 / (scale * np.sqrt(2 * np.longdouble("3.14159265358979323846")))
        factor = np.exp(-z * z / 2) @ spectrum.analysis.T.astype(np.longdouble) * np.sqrt(peak)
        result = (result[:, :, None] * factor[:, None, :]).reshape(len(x), -1)
    return result


@EIGHTY_BITS
def test_float_error_of_features_is_within_its_bound():
    for rank in (5, 10):
        kernel, x = cut_to(rank), everywhere()
        error = np.sqrt(np.square(kernel.features(x) - long_features(kernel, x)).sum(axis=1)).max()
        assert error <= kernel.feature_error <= 1e-9
        values = np.abs(kernel(x, x) - long_features(kernel, x) @ long_features(kernel, x).T).max()
        assert values <= kernel.error(2, RADIUS)


@EIGHTY_BITS
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["linear", "projected"])
def test_float_error_of_primal_iterates_is_within_its_bound(loss, name):
    points, labels = sample(2100, seed=1)
    kernel = Linear(constant=0.5) if name == "linear" else cut_to(4)
    risk = Risk(LOSSES[loss], kernel, 20.0, 2100, RADIUS, 2)
    labels = risk.loss.admissible(labels)
    if name == "linear":
        features = np.column_stack([points, np.full(2100, 0.5)]).astype(np.longdouble)
    else:
        features = long_features(kernel, points)
    step = np.longdouble(
        1 / (1 + risk.shard_bounds(risk.bounds.max_weight).smoothness) / (1 + 2.0**-40)
    )
    state = np.zeros(features.shape[1], np.longdouble)
    for _ in range(6):
        slopes = np.clip(
            risk.loss.derivative(labels.astype(np.longdouble), features @ state),
            -risk.bounds.slope,
            risk.bounds.slope,
        )
        pull = -np.longdouble(risk.bounds.weight) * (features.T @ slopes)
        state = (1 - step) * state + step * pull
    floats = solve(risk, Plain(6), points, labels).weights[:, 0]
    found = float(np.sqrt(np.square(floats - state).sum()))
    bound = state_error(risk, risk.bounds.max_weight)
    assert found <= bound <= 1e-5 * risk.bounds.sensitivity
    assert np.sqrt(np.square(floats.astype(np.float32) - state).sum()) > bound


@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber"])
@pytest.mark.parametrize("cost", [1.0, 30.0])
def test_what_the_cut_changes_of_the_minimizer_is_within_its_bound(loss, cost):
    points, labels = sample(300, seed=2)
    for rank in (3, 6):
        risks = [Risk(LOSSES[loss], k, cost, 300, RADIUS, 2) for k in (cut_to(rank), WHOLE)]
        cut, whole = (solve(risk, Minimize(1e-9), points, labels)(GRID) for risk in risks)
        bound = cut_to(rank).cut_error(risks[0])
        assert np.abs(cut - whole).max() <= bound
    assert bound < 0.2 * cost


def test_weights_are_the_spectral_coordinates_of_the_lattice_values():
    points, labels = sample(200, seed=3)
    kernel = cut_to(6)
    risk = Risk(Logistic(), kernel, 10.0, 200, RADIUS, 2)
    model = solve(risk, Minimize(1e-9), points, labels)
    values = model.on_grid([np.arange(21) / 20, np.arange(17) / 16])[:, :, 0]
    maps = [
        s.analysis / math.sqrt(b * math.sqrt(2 * math.pi))
        for b, s in zip(kernel.scales, kernel.spectra, strict=True)
    ]
    strategy = (maps[0] @ values @ maps[1].T).ravel()
    np.testing.assert_allclose(strategy, model.weights[:, 0], atol=1e-7)


@pytest.mark.parametrize("kernel", [Linear(constant=1.0), cut_to(5)])
def test_features_too_many_to_keep_are_recomputed(kernel, monkeypatch):
    points, labels = sample(2100, seed=4)
    risk = Risk(Logistic(), kernel, 10.0, 2100, RADIUS, 2)
    kept = solve(risk, Minimize(1e-9), points, labels)
    monkeypatch.setattr(shards, "STORED_FEATURES", 0)
    recomputed = solve(risk, Minimize(1e-9), points, labels)
    np.testing.assert_allclose(kept.weights, recomputed.weights, atol=1e-12)


def test_no_neighbor_moves_the_weights_further_than_r():
    risk = Risk(LOSSES["hinge"], cut_to(4), 0.7, 8, RADIUS, 2)
    assert 0.97 < worst(risk, np.random.default_rng(0)) <= 1 + 2e-5


def test_float_error_is_small_beside_r_at_a_million_rows():
    for cost in (1.0, 100.0):
        risk = Risk(Logistic(), cut_to(9), cost, 10**6, RADIUS, 2)
        assert state_error(risk, risk.bounds.max_weight) <= 0.001 * risk.bounds.sensitivity
        assert value_error(risk, RADIUS) <= 0.01 * risk.bounds.sensitivity
