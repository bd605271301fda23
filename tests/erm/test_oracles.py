"""The solver against other people's: a cone solver, kernel ridge and logistic regression."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from closed_hinge import closed_form, is_closed
from exact_learning import GRID, KERNELS, RADIUS, distance, sample, smoothing_distance
from fitting import Minimize, solve
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression

from dbern.bernstein.reproducing import Linear
from dbern.erm.losses import Hinge, Logistic, Square
from dbern.erm.risk import Risk
from dbern.erm.shards import DualObjective, Expansion
from dbern.errors import SpecError

pytestmark = pytest.mark.slow  # searches


@pytest.mark.parametrize("cost", [0.5, 10.0, 1000.0])
@pytest.mark.parametrize("width", [0.1, 0.001])
def test_hinge_against_a_cone_solver(cost, width):
    points, labels = sample(40)
    risk = Risk(Hinge(width), KERNELS["gaussian"], cost, 40, RADIUS, 2)
    gram = risk.kernel(points, points)
    root = np.linalg.cholesky(gram + 1e-13 * np.eye(40))

    def conic(rounded):
        w = cp.Variable(40)
        z = 1 - cp.multiply(labels, root @ w)
        if rounded:  # the ramp is the Moreau envelope of the positive part
            v = cp.Variable(40)
            loss = cp.sum(cp.pos(v)) + cp.sum_squares(z - v) / (2 * width)
        else:
            loss = cp.sum(cp.pos(z))
        cp.Problem(cp.Minimize(cost / 40 * loss + 0.5 * cp.sum_squares(w))).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
        coefficients = np.linalg.solve(root.T, w.value)
        return Expansion(risk.kernel, points, coefficients[:, None])

    model = solve(risk, Minimize(1e-6), points, labels)
    np.testing.assert_allclose(model(GRID), conic(rounded=True)(GRID), atol=2e-4)
    apart = distance(risk.kernel, [(1.0, model)], [(1.0, conic(rounded=False))])
    assert apart <= smoothing_distance(risk.loss, cost) + 2e-4
    if cost * 1.0 <= 1 - width:
        assert apart < 1e-5  # the closed form is both solutions


@pytest.mark.parametrize("cost", [0.5, 30.0])
def test_square_loss_against_kernel_ridge(cost):
    points, _ = sample(60)
    responses = np.sin(5 * points[:, 0])
    for kernel in (KERNELS["gaussian"], KERNELS["matern-5/2"], KERNELS["arc-cosine"]):
        risk = Risk(Square(1.0), kernel, cost, 60, RADIUS, 2)
        model = solve(risk, Minimize(1e-11), points, responses)
        gram = kernel(points, points)
        ridge = KernelRidge(alpha=60 / cost, kernel="precomputed").fit(gram, responses)
        expected = ridge.predict(kernel(GRID, points))
        np.testing.assert_allclose(model(GRID)[:, 0], expected, atol=1e-9)


@pytest.mark.parametrize("cost", [1.0, 200.0])
def test_logistic_loss_against_scikit_learn(cost):
    points, labels = sample(300)
    risk = Risk(Logistic(), Linear(constant=1.0), cost, 300, RADIUS, 2)
    features = risk.kernel.features(points)
    theirs = LogisticRegression(C=cost / 300, fit_intercept=False, tol=1e-12, max_iter=10**5)
    theirs.fit(features, labels)
    ours = solve(risk, Minimize(1e-10), points, labels)
    np.testing.assert_allclose(ours.weights.ravel(), theirs.coef_.ravel(), atol=1e-6)


def test_primal_and_dual_paths_agree():
    points, labels = sample(1100)
    risk = Risk(Logistic(), Linear(constant=0.5), 20.0, 1100, RADIUS, 2)
    primal = solve(risk, Minimize(1e-9), points, labels)
    problem = DualObjective(risk, points, labels[:, None], np.ones(1100))
    dual = problem.model(Minimize(1e-9).run(problem))
    np.testing.assert_allclose(primal(GRID), dual(GRID), atol=1e-8)
    np.testing.assert_allclose(primal.on_grid([np.ones(1), np.ones(1)])[0, 0], primal(GRID[-1:])[0])


@pytest.mark.parametrize("cost", [0.5, 1.0])
def test_closed_form_is_what_the_solver_finds(cost):
    points, labels = sample(50)
    labels[:10] = 1
    points[:10] = points[0]  # duplicates on the margin
    width = 0.2 if cost < 0.8 else 1e-3
    risk = Risk(Hinge(width), KERNELS["gaussian"], cost, 50, RADIUS, 2)
    closed = closed_form(risk, points, labels)
    model = solve(risk, Minimize(1e-7), points, labels)
    apart = distance(risk.kernel, [(1.0, closed)], [(1.0, model)])
    assert apart <= (1e-6 if is_closed(risk, width) else smoothing_distance(risk.loss, cost))


def test_closed_form_is_refused_where_it_is_not_the_minimizer():
    points, labels = sample(50)
    risk = Risk(Hinge(0.1), KERNELS["gaussian"], 1.0, 50, RADIUS, 2)
    for wrong in (replace(risk, cost=1.0001), replace(risk, vanishing=256)):
        assert not is_closed(wrong)
        with pytest.raises(SpecError, match=r"target\.C"):
            closed_form(wrong, points, labels)
    with pytest.raises(SpecError, match=r"target\.C"):
        closed_form(replace(risk, loss=Logistic()), points, labels)
    # All records alike with one label: at twice the largest cost the closed form overshoots.
    same = np.tile(points[:1], (50, 1))
    model = solve(replace(risk, cost=2.0), Minimize(1e-8), same, np.ones(50))
    assert model(points[:1])[0, 0] < 1.01 < 2.0
