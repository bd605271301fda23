"""Every constant of every loss, by dense search and by eighty-bit arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_learning import EIGHTY_BITS, LOSSES

from dbern.erm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Square, UserLoss
from dbern.errors import SpecError

PREDICTIONS = np.concatenate([np.linspace(-4, 4, 4001), [-1e6, -50.0, 50.0, 1e6]])
PREDICTIONS.sort()


def label_grid(loss):
    return loss.admissible(np.array([-1e9, -1.0, -0.3, 0.0, 0.4, 1.0, 1e9]))[:, None]


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def test_labels_are_brought_to_the_range_of_the_constants(loss):
    labels = label_grid(loss)
    assert np.abs(labels).max() == 1
    if isinstance(loss, Hinge | Logistic):
        assert set(labels.ravel()) == {-1.0, 1.0}


def test_derivative_is_that_of_the_value(loss):
    labels, f = label_grid(loss), np.linspace(-3, 3, 601)
    step = 1e-5
    numeric = (loss.value(labels, f + step) - loss.value(labels, f - step)) / (2 * step)
    np.testing.assert_allclose(loss.derivative(labels, f), numeric, atol=step * loss.curvature)


def test_value_is_nonnegative_convex_and_bounded_at_zero(loss):
    labels = label_grid(loss)
    assert (loss.value(labels, PREDICTIONS) >= 0).all()
    assert (np.diff(loss.derivative(labels, PREDICTIONS)) >= -1e-12).all()
    found = loss.value(labels, np.zeros(1)).max()
    assert found <= loss.at_zero <= 1.01 * found + 0.2


@pytest.mark.parametrize("reach", [0.0, 0.5, 2.0, 1e6])
def test_slope_bounds_the_derivative_within_reach_and_is_attained(loss, reach):
    f = np.append(PREDICTIONS[np.abs(PREDICTIONS) <= reach], [-reach, reach])
    found = np.abs(loss.derivative(label_grid(loss), f)).max()
    assert found <= loss.slope(reach)
    if reach >= 2:
        assert loss.slope(reach) <= 1.2 * found


def test_curvature_bounds_the_derivative_s_change_and_is_attained(loss):
    f = np.linspace(-3, 3, 6001)
    found = (np.diff(loss.derivative(label_grid(loss), f)) / np.diff(f)).max()
    assert found <= loss.curvature * (1 + 1e-9)
    assert loss.curvature <= 1.01 * found


@EIGHTY_BITS
def test_float_error_of_the_derivative(loss):
    rng = np.random.default_rng(0)
    f = np.concatenate([rng.uniform(-3, 3, 20000), rng.uniform(0.5, 1.5, 20000), [1e9, -1e9]])
    for label in label_grid(loss).ravel():
        exact = loss.derivative(np.full(f.shape, label, np.longdouble), f.astype(np.longdouble))
        error = np.abs(np.clip(loss.derivative(np.full(f.shape, label), f), -9, 9) - exact)
        within = np.abs(exact) <= 9
        rounding = 2.0**-53 * 9 if isinstance(loss, Square) else 0.0  # relative to M: see solver
        assert error[within].max() <= loss.derivative_error + rounding


def test_hinge_is_rounded_from_below_by_half_its_width():
    loss, f = Hinge(0.4), np.linspace(-3, 3, 2001)
    gap = np.maximum(0, 1 - f) - loss.value(np.ones(1), f)
    assert gap.min() >= -1e-15
    assert gap.max() == pytest.approx(0.2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hinge(0.0),
        lambda: Hinge(1.5),
        lambda: Square(-1.0),
        lambda: Huber(math.nan, 1.0),
        lambda: EpsilonInsensitive(tube=-0.1),
        lambda: UserLoss(abs, abs, math.inf, 1.0, 1.0),
    ],
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(SpecError, match=r"target\.loss: .*[Ww]rite"):
        make()


@pytest.mark.parametrize("name", ["square", "huber", "tube"])
def test_a_scaled_loss_is_that_of_labels_and_predictions_over_the_radius(name):
    loss, radius = LOSSES[name], 2.5
    scaled = loss.scaled(radius)
    times = radius if name == "tube" else radius**2
    labels, f = loss.admissible(label_grid(loss)), np.linspace(-3, 3, 601)
    values = scaled.value(labels / radius, f / radius) * times
    np.testing.assert_allclose(values, loss.value(labels, f), rtol=1e-12, atol=1e-14)
    assert scaled.admissible(np.array([9.0])) == pytest.approx(1 / radius)
    assert scaled.at_zero * times == pytest.approx(loss.at_zero)


def test_losses_of_classes_have_no_unit_and_a_loss_of_your_own_keeps_its_units():
    for loss in (LOSSES["hinge"], LOSSES["logistic"]):
        assert loss.scaled(2.5) == loss
    with pytest.raises(SpecError, match="released by weights"):
        LOSSES["user"].scaled(2.5)
