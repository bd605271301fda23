"""Minimizers of perturbed objectives: exact ones by another solver, certificates, what is kept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dbern.erm import objective, solver
from dbern.erm.losses import Hinge, Huber
from dbern.erm.objective import OutputwiseLoss, PerturbedObjective, PerturbedRisk, Softmax
from dbern.erm.solver import count_steps, minimize
from dbern.errors import SpecError
from dbern.privacy.keystream import KeyStream


def minimized(problem) -> np.ndarray:
    return minimize(problem, problem.risk.bounds.tolerance).state


def by_newton(problem) -> np.ndarray | None:
    solved = solver._by_newton(problem, problem.risk.bounds.tolerance)
    return solved and solved.state


def accelerated(problem) -> np.ndarray | None:
    tolerance = problem.risk.bounds.tolerance
    steps = count_steps(problem.bounds, tolerance)[1]
    solved = solver._by_acceleration(problem, tolerance, steps)
    return solved and solved.state


def plain(problem) -> np.ndarray:
    tolerance = problem.risk.bounds.tolerance
    steps = count_steps(problem.bounds, tolerance)[0]
    return solver._by_plain_steps(problem, tolerance, steps).state


SOLVERS = [minimized, accelerated, plain]
RISK = PerturbedRisk(Softmax(1), 60, (1.0, 1.0, 1.5), 0.2, 4.0)


def records(outputs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    features = np.column_stack([rng.uniform(-1, 1, (60, 2)), np.full(60, 1.5)])
    odds = features @ rng.normal(0, 3, (3, outputs + 1))
    return features, (odds + rng.gumbel(size=odds.shape)).argmax(axis=1).astype(float)


def problem(risk, features, labels, b) -> PerturbedObjective:
    return PerturbedObjective(risk, features, labels, np.ones(len(features)), b)


def exactly(risk, features, labels, b) -> np.ndarray:
    """Newton's method in numbers of 64 bits' precision, on the objective by its definition."""
    features, b = features.astype(np.longdouble), b.astype(np.longdouble)
    outputs, width = b.shape
    state = np.zeros_like(b)
    ours = (labels[:, None] == np.arange(outputs)).astype(np.longdouble)

    def value(state):
        odds = np.column_stack([features @ state.T, np.zeros(len(features), np.longdouble)])
        losses = np.log(np.exp(odds).sum(axis=1)) - (odds[:, :-1] * ours).sum(axis=1)
        return risk.weight * (losses.sum() + (b * state).sum()) + (state**2).sum() / 2

    for _ in range(60):
        odds = np.exp(features @ state.T)
        shares = odds / (1 + odds.sum(axis=1, keepdims=True))
        slope = state + risk.weight * ((shares - ours).T @ features + b)
        hessian = np.eye(outputs * width)
        for p, f in zip(shares.astype(float), features.astype(float), strict=True):
            hessian += risk.weight * np.kron(np.diag(p) - np.outer(p, p), np.outer(f, f))
        step = np.linalg.solve(hessian, slope.astype(float).ravel()).reshape(b.shape)
        share = 1.0
        while value(state - share * step) > value(state) and share > 1e-9:
            share /= 2
        state = state - share * step
    assert np.abs(slope).max() < 1e-12
    return state.astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("solve", SOLVERS)
def test_minimizers_are_those_of_another_solver(outputs, solve):
    rng = np.random.default_rng(1)
    risk = PerturbedRisk(Softmax(outputs), 60, (1.0, 1.0, 1.5), 0.2, 4.0)
    features, labels = records(outputs, rng)
    for scale in (0.0, 1.0, 30.0):
        b = scale * rng.normal(size=(outputs, 3))
        found = solve(problem(risk, features, labels, b))
        error = np.linalg.norm(found - exactly(risk, features, labels, b))
        assert error <= risk.bounds.distance < 1e-6


@pytest.mark.parametrize("solve", SOLVERS)
def test_a_category_is_as_many_features_as_there_are_values(solve):
    rng = np.random.default_rng(10)
    risk = PerturbedRisk(Softmax(1), 60, (1.0, 1.0, 1.5), 0.2, 4.0, (3, 2), 5.0)
    numbers, labels = records(1, rng)
    codes = np.column_stack([rng.integers(0, 3, 60), rng.integers(0, 2, 60)])
    listed = [objective.ONE_HOT_VALUE * np.equal.outer(codes[:, i], np.arange(q)) for i, q in
              enumerate((3, 2))]  # fmt: skip
    b = rng.normal(size=(1, 8))
    found = solve(problem(risk, np.column_stack([codes, numbers]), labels, b))
    exact = exactly(risk, np.column_stack([*listed, numbers]), labels, b)
    assert np.linalg.norm(found - exact) <= risk.bounds.distance < 1e-6
    assert risk.features == 8
    b = np.zeros((1, 8))
    b[0, :3] = (
        1.01 * risk.bounds.largest * objective.ONE_HOT_VALUE / 3
    )  # the shortest b of that norm
    found = solve(problem(risk, np.column_stack([codes, numbers]), labels, b))
    assert not risk.truncated(found).any()


SEPARATE = [(OutputwiseLoss(Hinge(1.0)), "classes"), (OutputwiseLoss(Hinge(0.1), 3), "several"),
            (OutputwiseLoss(Huber(0.3, 1.0)), "responses")]  # fmt: skip


def labels_of(kind: str, rows: int, rng: np.random.Generator, outputs: int = 1) -> np.ndarray:
    if kind == "codes":
        return rng.integers(0, outputs + 1, rows).astype(float)
    if kind == "responses":
        return rng.uniform(-1, 1, rows)
    return rng.integers(0, 3, rows) * 1.0 if kind == "several" else rng.choice([-1.0, 1.0], rows)


def slope_by_definition(loss, label, prediction) -> np.longdouble:
    """Of the hinge ``max(0, 1 - l f)``, rounded over its width, and of Huber's."""
    if "width" in vars(loss):
        return -label * np.clip((1 - label * prediction) / np.longdouble(loss.width), 0, 1)
    return np.clip(prediction - label, -np.longdouble(loss.threshold), loss.threshold)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(("loss", "kind"), SEPARATE)
def test_minimizers_of_other_losses_are_where_the_gradient_is_zero(loss, kind, solve):
    """By strong convexity no state is farther from the minimizer than its gradient is long."""
    rng = np.random.default_rng(13)
    risk = PerturbedRisk(loss, 60, (1.0, 1.0, 1.5), 0.2, 4.0)
    features, labels = records(1, rng)[0], labels_of(kind, 60, rng)
    for scale in (0.0, 1.0, 30.0):
        b = scale * rng.normal(size=(loss.outputs, 3))
        found = solve(problem(risk, features, labels, b)).astype(np.longdouble)
        slope = found + np.longdouble(risk.weight) * b
        for own, label in zip(features.astype(np.longdouble), labels, strict=True):
            for k in range(loss.outputs):
                target = label if loss.outputs == 1 else (1.0 if label == k else -1.0)
                derivative = slope_by_definition(loss.loss, target, own @ found[k])
                slope[k] += risk.weight * derivative * own
        assert np.sqrt((slope**2).sum()) <= risk.bounds.distance < 1e-6


@pytest.mark.parametrize(
    ("loss", "kind"), [*SEPARATE, *((Softmax(outputs), "codes") for outputs in (1, 2, 4))]
)
def test_constants_of_losses_are_bounds_and_are_attained(loss, kind):
    rng, outputs, bounds = np.random.default_rng(14), loss.outputs, loss.bounds
    predictions = rng.normal(0, 3.0 if kind == "codes" else 1.5, (4000, outputs))
    far = 40 * np.vstack([np.eye(outputs), -np.eye(outputs), np.ones((1, outputs))])
    predictions = np.vstack([np.zeros((1, outputs)), predictions, far])
    labels = labels_of(kind, len(predictions), rng, outputs)
    slopes, second = loss.derivative(labels, predictions), loss.second(labels, predictions)
    largest, norms = np.abs(slopes).max(), np.linalg.norm(slopes, axis=1)
    values, traces = np.linalg.eigvalsh(second), np.trace(second, axis1=1, axis2=2)
    assert 0.99 * bounds.gradient_entry_bound < largest <= bounds.gradient_entry_bound
    assert 0.95 * bounds.slope < norms.max() <= bounds.slope
    assert traces.max() <= bounds.trace * (1 + 1e-6)
    assert loss.value(labels, np.zeros_like(predictions)).max() <= bounds.at_zero
    if kind == "codes":
        assert values.min() > -1e-15
        assert 0.9 * bounds.curvature < values.max() <= bounds.curvature * (1 + 1e-12)
        assert 0.99 * bounds.trace < traces.max() <= bounds.trace * (1 + 1e-12)
        steps = 1e-6 * np.eye(outputs)
        numeric = np.column_stack([
            (loss.value(labels, predictions + h) - loss.value(labels, predictions - h)) / 2e-6
            for h in steps
        ])  # fmt: skip
        np.testing.assert_allclose(numeric, slopes, atol=1e-7)
    else:
        assert (second * (1 - np.eye(outputs)) == 0).all()
        assert values.min() > -1e-6
        bound = bounds.hessian_entry_bound
        assert 0.99 * bound < values.max() <= bound * (1 + 1e-6)


@pytest.mark.slow
def test_a_certificate_bounds_the_distance_of_any_state():
    rng = np.random.default_rng(2)
    features, labels = records(1, rng)
    b = rng.normal(size=(1, 3))
    exact, solved = exactly(RISK, features, labels, b), problem(RISK, features, labels, b)
    for size in (1e-9, 1e-4, 1.0, 50.0):
        state = exact + size * rng.normal(size=(1, 3))
        bound = RISK.bounds.floats.distance(float(np.linalg.norm(state)),
                               float(np.linalg.norm(state - solved.pull(state))))  # fmt: skip
        assert np.linalg.norm(state - exact) <= bound


@pytest.mark.parametrize("size", [math.nan, math.inf])
def test_a_state_that_is_no_number_is_certified_by_nothing(size):
    solved = problem(RISK, *records(1, np.random.default_rng(2)), np.zeros((1, 3)))
    state = np.full((1, 3), size)
    assert solved.certificate(state, state) == math.inf


def test_a_certificate_counts_what_floats_hide_of_a_gradient():
    """Where predictions are far from labels nothing bends, and the gradient is the distance."""
    rng, hidden = np.random.default_rng(21), 0
    features = np.column_stack([rng.uniform(0.9, 1, (60, 2)), np.full(60, 1.5)])
    labels = rng.integers(0, 2, 60).astype(float)
    for _ in range(200):
        state = rng.uniform(20, 30, (1, 3))
        shares = 1 / (1 + np.exp(-(features @ state[0]).astype(np.longdouble)))
        slopes = (shares - (labels == 0)) @ features.astype(np.longdouble)
        b = (-slopes - state / np.longdouble(RISK.weight)).astype(float)
        exact = np.linalg.norm((state + RISK.weight * (slopes + b)).astype(float))
        computed = np.linalg.norm(state - problem(RISK, features, labels, b).pull(state))
        assert exact <= RISK.bounds.floats.distance(float(np.linalg.norm(state)), float(computed))
        hidden += computed < exact
    assert hidden > 20


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("labels", ["none", "one class", "separable"])
def test_databases_without_a_minimizer_of_their_own_have_one(labels, solve):
    features, _ = records(1, np.random.default_rng(3))
    classes = (features[:, 0] > 0).astype(float) if labels == "separable" else np.zeros(60)
    features = features[:0] if labels == "none" else features
    b = np.array([[0.5, -1.0, 2.0]])
    found = solve(problem(RISK, features, classes[: len(features)], b))
    if labels == "none":
        np.testing.assert_allclose(found, -RISK.weight * b, atol=RISK.bounds.distance)
    assert np.linalg.norm(found) < RISK.bounds.radius
    slope = found - problem(RISK, features, classes[: len(features)], b).pull(found)
    assert np.linalg.norm(slope) <= RISK.bounds.tolerance


def test_what_is_kept_moves_no_more_than_the_minimizer_and_ends():
    rng = np.random.default_rng(4)
    lengths = RISK.bounds.radius * rng.uniform(0, 2.5, 2000)
    states = rng.normal(size=(2000, 1, 3))
    states *= (lengths / np.linalg.norm(states, axis=2)[:, 0])[:, None, None]
    near = states + 0.1 * RISK.bounds.radius * rng.normal(size=states.shape) * rng.uniform(
        size=(2000, 1, 1)
    )
    kept = [np.array([RISK.truncated(one) for one in some]) for some in (states, near)]
    moved = np.linalg.norm((kept[0] - kept[1])[:, 0], axis=1)
    assert (moved <= (1 + 1e-12) * np.linalg.norm((states - near)[:, 0], axis=1)).all()
    inside = lengths <= RISK.bounds.radius
    np.testing.assert_array_equal(kept[0][inside], states[inside])
    assert not kept[0][lengths >= 2 * RISK.bounds.radius].any()
    assert np.linalg.norm(kept[0][:, 0], axis=1).max() <= RISK.bounds.radius * (1 + 1e-12)


def test_beyond_the_largest_norm_of_b_nothing_is_kept_of_any_minimizer():
    features, labels = records(1, np.random.default_rng(5))
    for place in range(3):
        b = np.zeros((1, 3))
        b[0, place] = 1.01 * RISK.bounds.largest * RISK.radii[place]
        found = minimized(problem(RISK, features, labels, b))
        assert not RISK.truncated(found).any()


@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e7])
def test_digits_that_b_was_not_drawn_to_are_part_of_the_distance(scale, outputs):
    """Without records the minimizer is ``-a b``: of a wide law that is off by what digits miss."""
    risk = replace(RISK, loss=Softmax(outputs), scale=scale)
    law, rng = risk.laws[0], np.random.default_rng(8)
    b, largest = risk.draw_linear_term(KeyStream(bytes(32), 0))
    assert largest < 1.01 * risk.bounds.largest
    off = (
        law.error(1.01 * risk.bounds.largest) * rng.choice([-1, 1], b.shape) * np.array(risk.radii)
    )
    apart = np.linalg.norm(risk.weight * off)
    tight = {1.0: 0.0, 1e4: 0.1, 1e7: 0.9}[scale]
    assert tight * risk.bounds.distance < apart <= risk.bounds.distance


def test_nothing_is_kept_beyond_the_largest_norm_though_all_records_pull_the_other_way():
    """Of a narrow law records pull more than what is kept is long."""
    risk = PerturbedRisk(Softmax(1), 6000, (1.0, 1.0, 1.5), 0.2, 0.01)
    assert 2 * risk.bounds.radius / risk.weight < 0.1 * risk.bounds.largest
    features, counts = np.array([[1.0, 1.0, 1.5]]), np.array([6000.0])
    for label, sign in ((0.0, 1.0), (1.0, -1.0)):
        b = sign * 1.01 * risk.bounds.largest * np.array([[1.0, 0.0, 0.0]])
        state = minimized(PerturbedObjective(risk, features, np.array([label]), counts, b))
        assert not risk.truncated(state).any()


def test_no_usual_minimizer_is_cut():
    features, labels = records(1, np.random.default_rng(6))
    b = 20 * RISK.scale * np.array([[1.0, 1.0, 1.5]])
    found = minimized(problem(RISK, features, labels, b))
    np.testing.assert_array_equal(RISK.truncated(found), found)


@pytest.mark.parametrize("steps", [10**6, 3])
def test_newtons_steps_that_fail_are_followed_by_others(monkeypatch, steps):
    features, labels = records(1, np.random.default_rng(7))
    solved = problem(RISK, features, labels, np.ones((1, 3)))
    wanted = minimized(solved)
    monkeypatch.setattr(PerturbedObjective, "newton_step", lambda *_: np.full((1, 3), 1e9))
    plain_steps = count_steps(solved.bounds, RISK.bounds.tolerance)[0]
    monkeypatch.setattr(
        solver, "count_steps", lambda *_: (plain_steps, min(plain_steps - 1, steps))
    )
    found = minimized(solved)
    assert 0 < np.linalg.norm(found - wanted) <= 2 * RISK.bounds.distance
    assert by_newton(solved) is None


@pytest.mark.slow
def test_accelerated_steps_suffice_where_problems_are_badly_conditioned():
    """The worst of conditions that is planned, in directions of which records say little."""
    risk = PerturbedRisk(Softmax(1), 400, (1.0, 1.5), 2.0**20 / 400 / 3.25 / 0.25, 0.5)
    rng = np.random.default_rng(17)
    features = np.column_stack([rng.uniform(0.999, 1, 400), np.full(400, 1.5)])
    labels = rng.integers(0, 2, 400) * 1.0
    solved = problem(risk, features, labels, np.array([[0.3, -0.2]]))
    assert 0.99 * 2**20 < risk.bounds.undisturbed.smoothness < 1.01 * 2**20
    found, other = accelerated(solved), by_newton(solved)
    assert found is not None
    assert np.linalg.norm(found - other) <= 2 * risk.bounds.distance


@pytest.mark.parametrize(
    ("n", "weight", "scale", "b"),
    [
        (7855, 0.1279, 46.4, [[-366, 588, -954], [-211, -13, -794], [-282, 168, -344],
                              [79, 601, -819], [231, -643, -224]]),
        (2321, 0.0793, 14.6, [[-34, 5, -210], [118, -4, -283], [-196, -20, -314],
                              [208, -110, -1], [-163, 131, 283]]),
    ],
)  # fmt: skip
def test_newtons_steps_do_not_go_round_in_circles(n, weight, scale, b):
    """Here steps that make the gradient smaller make the value larger, and the other way round."""
    risk = PerturbedRisk(Softmax(5), n, (1.0, 1.0, 1.5), weight, scale)
    features = np.array([[x, y, 1.5] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])
    labels, counts = (features[:, 0] > 0) * 1.0, np.full(4, float(n // 4))
    solved = PerturbedObjective(risk, features, labels, counts, np.array(b, dtype=float))
    assert by_newton(solved) is not None


def test_problems_that_floats_cannot_solve_are_refused():
    with pytest.raises(SpecError, match=r"budget\.epsilon: too large"):
        replace(RISK, weight=1e12)
    with pytest.raises(SpecError, match=r"budget\.epsilon: too large"):
        replace(RISK, scale=1e-9)
    assert math.isfinite(RISK.bounds.distance)
