"""Predicted risks of linear functions, by signal to noise: no noise is drawn.

*Moments.* The released rule solves for coefficients w of exact moments with the noise that the
plan has, and says the covariance S of their noise itself. With M the second moments of ones and
columns that adds ``tr(M S)`` to the risk; a stated ridge adds what it misses. Where the rule
shrinks by itself, slopes that explain a variance s, with noise t in that sum, lose ``s t/(s + t)``
as of Wiener's filter; the mean is not shrunk.

*A minimizer* of a penalized risk is solved for on typical records without noise. *By weights* noise
of deviation s on each weight of the features x has the variance ``s^2 |x|^2`` at x. *By objective*
noise enters before: b moves the minimizer by ``a H^-1 b`` to first order, H the Hessian of the
objective there, so that a score at features x has the variance ``a^2 x'H^-1 Cov(b) H^-1 x``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dbern.data.domain import RecordSchema
from dbern.erm.gaussian_features import GaussianFeatures
from dbern.erm.losses import Loss, one_vs_rest
from dbern.erm.objective import (
    ONE_HOT_VALUE,
    OutputwiseLoss,
    PerturbedObjective,
    PerturbedRisk,
    Softmax,
)
from dbern.erm.perturbed import (
    CONSTANT_FEATURE,
    OUTPUT_FRACTION,
    PerturbedFunctions,
    categorical_fraction,
)
from dbern.erm.solver import minimize
from dbern.erm.spaces import GramKernel, LinearFeatures
from dbern.privacy.noise_law import NoiseLaw
from dbern.privacy.perturbation import penalty_weight, tied_charge
from dbern.reconstruct.least_squares import NoisyMoments, least_squares
from dbern.reconstruct.moments import Moments
from dbern.system import one_thread
from dbern.targets.learner import DesignedStatistic
from dbern.targets.predicted_functions import Function, deviation_of
from dbern.targets.typical import (
    EXPLAINED,
    TYPICAL_STD,
    Typical,
    TypicalClasses,
    TypicalResponses,
)
from dbern.types import FloatArray

_RIDGE = 1e-8  # of a Gram matrix's largest entry
_ROWS = 512  # of a Gram matrix, which is decomposed
_MAX_STEPS, _MAX_HALVINGS, _DIFFERENCE_STEP = 40, 12, 2.0**-20
_NARROW_DEVIATION = 0.05
"""Deviation of numbers for which the penalty is chosen: noise and penalty are felt there."""
_RELATIVE_CURVATURE = 0.6
"""Mean second derivative of the logistic loss there, of its largest."""


def typical_records(schema: RecordSchema, loss: Loss) -> Typical:
    """Return typical records of a schema, with the risk that is predicted of a loss's minimizer."""
    numbers, lists = len(schema.domain.numeric), schema.domain.blocks
    if schema.response is not None:
        return TypicalResponses(numbers, lists, schema.response.radius)
    classes = len(schema.classes.categories)
    by_log_loss = loss.typical_risk == "log loss" and classes == 2
    return TypicalClasses(numbers, lists, classes, by_log_loss)


def predicted_moments(moments: Moments, law: NoiseLaw, ridge: float | None) -> float:
    """Predict the excess risk of least squares by moments with a law's noise."""
    axes, deviation = moments.columns - 1, deviation_of(law)
    products = _typical_products(moments)
    exact, second = moments.of_products(products), products[:-1, :-1]
    covariance = second[1:, 1:] - np.outer(second[0, 1:], second[0, 1:])
    exact_fit, noisy_fit = (
        least_squares(NoisyMoments.of(moments, exact, noise), axes, range(axes), penalty)
        for noise, penalty in ((0.0, None), (deviation, ridge))
    )
    spread = np.roll(noisy_fit.spread, 1, axis=(0, 1))  # the intercept first, as in the products
    noise = float((second * spread).sum())
    of_slopes = float((covariance * spread[1:, 1:]).sum())
    if ridge is None:
        explained = EXPLAINED * TYPICAL_STD**2
        return noise - of_slopes + explained * of_slopes / (explained + of_slopes)
    shrinkage = noisy_fit.slopes - exact_fit.slopes
    return noise + float(shrinkage @ covariance @ shrinkage)


def _typical_products(moments: Moments) -> FloatArray:
    """Means of products of all columns, the first of ones: values of lists are as frequent.

    Each number and each list explains the same share of the response's variance.
    """
    explained = math.sqrt(EXPLAINED / max(1, moments.numeric - 1 + len(moments.blocks)))
    products = np.zeros((1 + moments.columns,) * 2)
    products[0, 0], start = 1.0, 1
    means, covariance = products[0], products[1:, 1:]
    for size in moments.blocks:
        block = slice(start - 1, start - 1 + size)
        pattern = np.linspace(-1.0, 1.0, size)
        means[start : start + size] = 1 / size
        covariance[block, block] = np.eye(size) / size - 1 / size**2
        covariance[block, -1] = explained * TYPICAL_STD * pattern / pattern.std() / size
        start += size
    numbers = slice(start - 1, moments.columns)
    covariance[numbers, numbers] = TYPICAL_STD**2 * np.eye(moments.numeric)
    covariance[numbers, -1] = explained * TYPICAL_STD**2
    covariance[-1, -1] = TYPICAL_STD**2
    covariance[-1] = covariance[:, -1]
    products[1:, 1:] += np.outer(means[1:], means[1:])
    products[1:, 0] = means[1:]
    return products


def predicted_weights(
    typical: Typical, space: LinearFeatures, loss: Loss, cost: float, deviation: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Predict the risk of weights with noise of this deviation, and that without privacy.

    `cost` is the weight of all records. They are projected to the unit ball as released, and the
    function is asked for where they are.
    """
    constant = np.full((typical.count, 1), space.kernel.constant)
    features = np.hstack([space.points(typical.unit), constant])
    at_positions = np.hstack([typical.unit, constant])
    states = [state for state, _ in _minimizers(typical, features, loss, cost)]
    scores = at_positions @ np.column_stack(states) / typical.radius
    variance = (deviation / typical.radius) ** 2 * np.square(at_positions).sum(axis=1)
    return typical.risk(scores, variance), typical.risk(scores, 0 * variance)


def _minimizers(
    typical: Typical, features: FloatArray, loss: Loss, cost: float
) -> list[tuple[FloatArray, FloatArray]]:
    """Minimize the risk of each model without noise, for features (records, p).

    With each minimizer come the slopes of the loss at the records (records,), as they weigh. It has
    a bounded number of Newton's steps, or is near enough to predict with.
    """
    rows, labels, counts = typical.weighted(features, cost)
    targets = one_vs_rest(labels, typical.models).T if typical.models > 1 else [labels]
    solutions = []
    for target in targets:
        responses = typical.radius * target
        with one_thread():  # threads would wait for each other longer than this takes
            state = _minimized(loss, rows, responses, counts, _DIFFERENCE_STEP * typical.radius)
        slopes = counts * loss.derivative(responses, rows @ state)
        solutions.append((state, slopes.reshape(-1, len(features)).sum(axis=0)))
    return solutions


def minimizer_notes(
    typical: Typical,
    design: DesignedStatistic,
    space: GaussianFeatures | GramKernel,
    loss: Loss,
    cost: float,
) -> tuple[str, ...]:
    """Predict the minimizer of a risk with a kernel; `cost` is the weight of all records.

    Without noise it is solved for: no formula has its bias.
    """
    typical = replace(typical, rows=_ROWS)
    function, radius = Function(design, typical.unit), typical.radius
    gram, noiseless = _grams(function, space)
    features = np.linalg.cholesky(gram + _RIDGE * gram.diagonal().max() * np.eye(len(gram)))
    solved = _minimizers(typical, features, loss, cost)
    plain = np.column_stack([features @ state for state, _ in solved])
    slopes = np.column_stack([slopes for _, slopes in solved])
    released = plain - (noiseless - gram) @ slopes
    return typical.note_of_scores(released / radius, function.variance / radius**2, plain / radius)


def _grams(
    function: Function, space: GaussianFeatures | GramKernel
) -> tuple[FloatArray, FloatArray]:
    """The kernel of points with each other; and as it is released, for products over axes."""
    unit = function.unit
    if kernels := function.design.statistic.kernels:
        top = math.prod(kernel.peak for kernel in kernels)
        plain, released = (
            np.prod(function.translates(unit, plain=plain), axis=0) / top for plain in (True, False)
        )
        return plain, released
    gram = space.kernel(space.points(unit), space.points(unit))
    return gram, gram


def _minimized(
    loss: Loss, features: FloatArray, labels: FloatArray, weights: FloatArray, near: float
) -> FloatArray:
    def value(state: FloatArray) -> float:
        return float(weights @ loss.value(labels, features @ state) + state @ state / 2)

    state = np.zeros(features.shape[1])
    for _ in range(_MAX_STEPS):
        values = features @ state
        above, slopes, below = (loss.derivative(labels, values + h) for h in (near, 0.0, -near))
        curved = weights * np.maximum(above - below, 0.0) / (2 * near)
        gradient = state + features.T @ (weights * slopes)
        hessian = np.eye(len(state)) + (features * curved[:, None]).T @ features
        step, before = -np.linalg.solve(hessian, gradient), value(state)
        slope = float(gradient @ step)
        step_sizes = (2.0**-i for i in range(_MAX_HALVINGS))
        step_size = next(
            (t for t in step_sizes if value(state + t * step) <= before + 1e-4 * t * slope), 0
        )
        state = state + step_size * step
        if not step_size or -slope <= 1e-10 * (abs(before) + near):
            break
    return state


def predicted_perturbed(typical: Typical, functions: PerturbedFunctions) -> tuple[float, float]:
    """Predict the risk of a perturbed objective."""
    risk = functions.risk
    constants = np.full(typical.count, CONSTANT_FEATURE)
    features = np.column_stack([typical.codes, 2 * typical.unit - 1, constants])
    rows, labels, counts = typical.weighted(features, functions.model.n)
    no_linear_term = np.zeros((risk.loss.outputs, risk.features))
    problem = PerturbedObjective(risk, rows, risk.loss.labels(labels), counts, no_linear_term)
    state = minimize(problem, risk.bounds.tolerance).state
    points = problem.rows(slice(0, typical.count))
    moved = risk.weight * np.linalg.inv(problem.hessian(state)) * _deviations(risk).ravel()
    moves = np.moveaxis(moved.reshape(*state.shape, -1), 2, 0)  # of the state, by each entry of b
    noise = np.array([points @ risk.loss.output_weights(move).T for move in moves])
    variance = np.square(noise).sum(axis=(0, 2))
    if noise.shape[2] > 1:  # whose mean is no noise of a class
        variance = variance - np.square(noise.sum(axis=2)).sum(axis=0) / noise.shape[2]
        variance /= noise.shape[2] - 1
    return typical.risk(points @ risk.loss.output_weights(state).T, variance)


def _deviations(risk: PerturbedRisk) -> FloatArray:
    """Standard deviations (o, p) of b: of norm Gamma(d), and uniform in its ball but for that.

    Uniform in a cross-polytope of q coordinates they have the variance ``2 / ((q + 1) (q + 2))``.
    """
    parts = []
    for law in reversed(risk.laws):  # lists come first
        blocks, d = np.array(law.blocks or (1,) * len(law.radii)), len(law.radii)
        q = np.repeat(blocks, blocks)
        ratio = 2 * (d + 1) * (d + 2) / ((q + 1) * (q + 2))
        parts.append(
            (law.scale * np.array(law.radii) * np.sqrt(ratio)).reshape(risk.loss.outputs, -1)
        )
    return np.hstack(parts)


def determinant_fraction(
    n: int, epsilon: Fraction, loss: Softmax | OutputwiseLoss, typical: Typical
) -> Fraction:
    """Fraction of epsilon that the Jacobian of a perturbed objective should have.

    It makes the lost fraction of the explained risk small, to second order: with h the loss's
    curvature along an axis, Λ the penalty, v the variance of b and w a weight, ``(v/w^2 + Λ^2) / (h
    + Λ)^2``, in the mean over weights. Records spread over a fortieth of their bounds, so that
    noise and penalty are felt. A loss that is c times as curved has weights that are ``sqrt(c)``
    times smaller.
    """
    curve, lists = loss.bounds.hessian_entry_bound, len(typical.lists)
    curved, size = (
        n * _RELATIVE_CURVATURE * curve * _NARROW_DEVIATION**2,
        loss.outputs * (typical.axes + 1),
    )
    square = typical.axes + CONSTANT_FEATURE**2 + lists * ONE_HOT_VALUE**2
    numbers = 1 - categorical_fraction(typical.axes, typical.lists)

    def risk(determinant: Fraction) -> float:
        weight = penalty_weight(epsilon * determinant, curve, 1, square)
        charge = epsilon * (1 - OUTPUT_FRACTION)
        if loss.curvature_from_slope:
            charge = tied_charge(charge, weight, 1, 1, square)
        else:
            charge -= epsilon * determinant
        penalty, scale = 1 / weight, 2 * loss.bounds.gradient_entry_bound / float(charge * numbers)
        variance = scale**2 * (size + 1) * (size + 2) / 3
        lost = [variance / (w**2 / (4 * curve)) + penalty**2 for w in typical.weights]
        return sum(lost) / (curved + penalty) ** 2

    return min((Fraction(k, 32) for k in range(1, 30)), key=risk)
