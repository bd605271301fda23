"""The solver against eighty-bit arithmetic: distances, float errors, numbers of steps, shapes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from exact_learning import (
    EIGHTY_BITS,
    GRID,
    KERNELS,
    LOSSES,
    RADIUS,
    Plain,
    distance,
    exact_gram,
    iterate,
    risk_of,
    sample,
)
from fitting import Minimize, problem_of, solve

from dbern.erm import shards
from dbern.erm.float_errors import _prediction_error, mean_state_error, state_error, value_error
from dbern.erm.losses import Hinge, one_vs_rest
from dbern.erm.risk import Risk
from dbern.erm.shards import DualObjective, Expansion
from dbern.erm.solver import Objective, ProblemBounds, count_steps, minimize
from dbern.errors import SpecError


def norm_of(kernel, model) -> float:
    return distance(kernel, [(1.0, model)], [(0.0, model)])


# Distances, floats, the number of steps


def exact_minimizer(risk, points, labels):
    """Eighty-bit steps until nothing is left of the distance: coefficients and the Gram matrix."""
    gram = exact_gram(risk.kernel, points)
    total = risk.bounds.weight * len(points)
    step = 1 / (1 + risk.shard_bounds(total).smoothness)
    steps = math.ceil(45 / step)
    return iterate(risk, gram, labels, np.longdouble(risk.bounds.weight), step, steps), gram


def apart(gram, first, second):
    v = np.asarray(first, np.longdouble) - second
    return float(np.sqrt(np.maximum(v @ gram @ v, 0)))


def coefficients_by_record(model, points):
    """The model's coefficients in the order of `points`, which are distinct."""
    order = np.array([int(np.flatnonzero((model.records == p).all(1))[0]) for p in points])
    return model.coefficients[order, 0]


@EIGHTY_BITS
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_certified_distance_holds(loss, kernel):
    points, labels = sample(12, seed=3)
    risk = risk_of(loss, kernel, 1.5 if kernel == "polynomial" else 10.0, 12)
    labels = risk.loss.admissible(labels)
    truth, gram = exact_minimizer(risk, points, labels)
    for tolerance in (1e-2, 1e-5, 1e-9):
        model = solve(risk, Minimize(tolerance), points, labels)
        found = apart(gram, coefficients_by_record(model, points), truth)
        assert found <= tolerance + mean_state_error(risk)


@EIGHTY_BITS
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "polynomial"])
def test_float_error_of_the_iterates_is_within_its_bound(loss, kernel):
    points, labels = sample(16, seed=4)
    risk = risk_of(loss, kernel, 20.0, 16)
    labels = risk.loss.admissible(labels)
    gram = exact_gram(risk.kernel, points)
    step = 1 / (1 + risk.shard_bounds(risk.bounds.max_weight).smoothness) / (1 + 2.0**-40)
    for steps in (1, 10, 300):
        floats = coefficients_by_record(solve(risk, Plain(steps), points, labels), points)
        exact = iterate(risk, gram, labels, np.longdouble(risk.bounds.weight), step, steps)
        found = apart(gram, floats, exact)
        bound = state_error(risk, risk.bounds.max_weight)
        assert found <= bound <= 1e-4 * risk.bounds.sensitivity
        # A bound that single precision would meet as well bounds nothing.
        single = apart(gram, floats.astype(np.float32), exact)
        assert single > bound or risk.kernel.bound(RADIUS) > 1


def test_float_error_of_values_is_within_its_bound():
    points, labels = sample(1500, seed=5)
    risk = risk_of("logistic", "gaussian", 50.0, 1500)
    model = solve(risk, Plain(20), points, labels)
    at = GRID[:3]
    exact = [
        math.fsum(
            (np.exp(-0.5 * (((model.records - y) / risk.kernel.scales) ** 2).sum(1)))
            * model.coefficients[:, 0]
        )
        for y in at
    ]
    error = np.abs(model(at)[:, 0] - exact).max()
    assert error <= value_error(risk, RADIUS) <= 1e-9
    assert value_error(risk, RADIUS) == pytest.approx(
        _prediction_error(risk, risk.bounds.max_weight, RADIUS), rel=1e-6
    )


def test_the_gradient_s_norm_is_the_hilbert_space_s():
    # Near-equal records with equal signs: the Euclidean norm is too small by a factor of ten.
    rng = np.random.default_rng(6)
    points = 0.5 + 1e-6 * rng.uniform(size=(100, 2))
    risk = risk_of("logistic", "gaussian", 1.0, 100)
    problem = problem_of(risk, points, np.ones(100))
    for gradient in (np.full((100, 1), 1e-3), 1e-3 * rng.normal(size=(100, 1))):
        model = Expansion(risk.kernel, problem.model(gradient).records, gradient)
        true = norm_of(risk.kernel, model)
        exact = problem.exact_certificate(np.zeros(problem.shape), gradient)
        assert problem.certificate(np.zeros(problem.shape), gradient) >= exact >= true
        assert exact <= 1.01 * true + 1e-6
    same_signs = np.full((100, 1), 1e-3)
    assert np.linalg.norm(same_signs) < 0.11 * norm_of(
        risk.kernel, Expansion(risk.kernel, points, same_signs)
    )


class Uncertifiable(DualObjective):
    """A shard whose certificate never comes: floats at their worst."""

    pulls = 0

    def pull(self, state):
        self.pulls += 1
        return super().pull(state)

    def certificate(self, state, gradient):
        return math.inf

    exact_certificate = certificate


class Flat(Objective):
    """``P(w) = -w`` says that it may bend by 255, so that every step is a 256th of what is left."""

    bounds = ProblemBounds(norm=1.0, energy=1.0, smoothness=255.0)
    shape = (1, 1)

    def pull(self, state):
        return np.ones(self.shape)

    def certificate(self, state, gradient):
        return math.inf


def test_plain_steps_go_on_where_they_are_shorter_than_a_float_s_last_bit():
    (state,), distance = vars(minimize(Flat(), 2.0**-50)).values()
    assert abs(state.item() - 1) <= 2.0**-50 + 2.0**-53
    assert distance == math.inf  # that of proof, not of a certificate


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_proved_number_of_steps_is_enough_without_a_certificate(loss):
    points, labels = sample(30, seed=7)
    risk = risk_of(loss, "gaussian", 5.0, 30)
    sharp = solve(risk, Minimize(1e-11), points, labels)
    problem = Uncertifiable(risk, points, labels[:, None], np.ones(30))
    model = problem.model(minimize(problem, 1e-5).state)
    assert distance(risk.kernel, [(1.0, model)], [(1.0, sharp)]) <= 1.0001e-5
    steps, accelerated = count_steps(problem.bounds, 1e-5)
    assert problem.pulls == steps + 1 + (accelerated if accelerated < steps else 0)
    model = solve(risk, Plain(steps), points, labels)
    found = distance(risk.kernel, [(1.0, model)], [(1.0, sharp)])
    assert found <= 1e-5 + mean_state_error(risk) <= 1.0001e-5
    early = solve(risk, Plain(steps // 4), points, labels)
    assert distance(risk.kernel, [(1.0, early)], [(1.0, sharp)]) > 1e-5 or loss == "hinge"


def test_acceleration_certifies_within_its_expected_steps():
    points, labels = sample(300, seed=8)
    for loss, cost in (("hinge", 300.0), ("logistic", 300.0), ("tube", 50.0)):
        risk = risk_of(loss, "gaussian", cost, 300)
        tolerance = Minimize.for_sensitivity(risk).tolerance
        problem = problem_of(risk, points, labels)
        counted, pull = [], problem.pull
        problem.pull = lambda state, pull=pull, counted=counted: counted.append(1) or pull(state)
        minimize(problem, tolerance)
        plain, accelerated = count_steps(problem.bounds, tolerance)
        assert len(counted) <= accelerated < plain / 2


def test_float_error_is_small_beside_r_at_a_million_rows_in_one_shard():
    for loss in ("logistic", "hinge", "huber"):
        for cost in (1.0, 10.0, 100.0):
            risk = risk_of(loss, "gaussian", cost, 10**6, shards=1000)
            assert mean_state_error(risk) <= 0.01 * risk.bounds.sensitivity
            assert value_error(risk, RADIUS) <= 0.01 * risk.bounds.sensitivity


def test_ill_conditioned_problems_are_refused():
    risk = Risk(Hinge(1e-6), KERNELS["gaussian"], 1e9, 10, RADIUS, 2)
    with pytest.raises(SpecError, match=r"target\.C: too large.*smaller C"):
        mean_state_error(risk)


# Shapes and orders


def test_one_vs_rest_is_every_class_by_itself():
    points, _ = sample(60)
    classes = np.arange(60) % 3
    risk = risk_of("hinge", "gaussian", 5.0, 60)
    labels = one_vs_rest(classes.astype(float), 3)
    together = solve(risk, Minimize(1e-8), points, labels)
    assert together(GRID).shape == (49, 3)
    for c in range(3):
        alone = solve(risk, Minimize(1e-8), points, labels[:, c])
        np.testing.assert_allclose(together(GRID)[:, c], alone(GRID)[:, 0], atol=3e-8)


def test_the_order_and_the_sign_of_zero_of_records_leave_no_trace():
    points, labels = sample(200)
    points[:50] = points[50:100]
    points[:3] = 0.0
    shuffled = np.random.default_rng(9).permutation(200)
    negative = points.copy()
    negative[:3] = -0.0
    risk = risk_of("logistic", "gaussian", 5.0, 200)
    first = solve(risk, Minimize(1e-8), points, labels)
    second = solve(risk, Minimize(1e-8), negative[shuffled], labels[shuffled])
    np.testing.assert_array_equal(first(GRID), second(GRID))
    assert len(first.records) < 200


def test_equal_records_are_one_of_more_weight():
    points, labels = sample(20)
    risk = risk_of("hinge", "gaussian", 5.0, 60)
    merged = solve(risk, Minimize(1e-9), np.repeat(points, 3, 0), np.repeat(labels, 3))
    alone = solve(replace(risk, n=20), Minimize(1e-9), points, labels)
    assert len(merged.records) == 20
    np.testing.assert_allclose(merged(GRID), alone(GRID), atol=1e-8)


@pytest.mark.slow
def test_a_gram_matrix_too_large_to_keep_is_recomputed(monkeypatch):
    points, labels = sample(1100)
    risk = risk_of("logistic", "gaussian", 5.0, 1100)
    kept = solve(risk, Minimize(1e-8), points, labels)
    monkeypatch.setattr(shards, "STORED_ROWS", 10)
    recomputed = solve(risk, Minimize(1e-8), points, labels)
    np.testing.assert_allclose(kept(GRID), recomputed(GRID), atol=1e-10)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
@pytest.mark.parametrize("method", [Plain(5), Minimize(1e-6)])
def test_an_empty_shard_is_the_zero_function(kernel, method):
    risk = risk_of("hinge", kernel, 5.0, 100, shards=10)
    model = solve(risk, method, np.empty((0, 2)), np.empty(0))
    assert (model(GRID) == 0).all()
    assert (model.on_grid([np.zeros(2), np.zeros(3)]) == 0).all()


def test_a_user_s_loss_that_breaks_its_word_cannot_break_the_bound():
    points, labels = sample(20)
    liar = replace(LOSSES["user"], gradient=lambda y, f: np.where(y > 0, np.nan, 1e300 * (f - y)))
    risk = Risk(liar, KERNELS["gaussian"], 1.0, 20, RADIUS, 2)
    model = solve(risk, Plain(10), points, labels)
    assert np.abs(model.coefficients).sum() <= 1.0
    assert np.isfinite(model(GRID)).all()


def test_wrong_shapes_are_refused():
    risk = risk_of()
    for points, labels in (
        (np.zeros((3, 3)), np.zeros(3)),
        (np.zeros((3, 2)), np.zeros(4)),
        (np.zeros(3), np.zeros(3)),
    ):
        with pytest.raises(SpecError, match=r"points \(n, 2\)"):
            solve(risk, Plain(1), points, labels)
    with pytest.raises(ValueError, match="must be positive"):
        minimize(problem_of(risk, *sample(3)), 0.0)
