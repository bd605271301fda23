from __future__ import annotations

from math import prod

import numpy as np
import pytest
from questioned import asked, databases

from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.synopsis.questions import densities as module
from dbern.synopsis.questions.splines import Sides

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")


@pytest.mark.parametrize("name", KERNELS)
def test_third_derivatives_are_bounded(name):
    kernel = kernel_of(name, 0.1)
    x = np.linspace(-0.4, 0.4, 4001)
    far = np.min([np.abs(np.abs(x) - one) for one in (0.0, 0.1)], axis=0)[:-3] > 1e-3
    third = np.abs(np.diff(kernel(x), 3))[far].max() / (x[1] - x[0]) ** 3
    assert 0.9 * kernel.third <= third + 1e-2 <= 1.01 * kernel.third + 2e-2


def slope_of(kernel, x):
    return (kernel(x + 1e-6) - kernel(x - 1e-6)) / 2e-6


def slopes(rows, points, kernel):
    """The gradient of the density of a kernel on every axis, (m, l)."""
    apart = np.moveaxis(points[:, None] - rows, -1, 0)
    return np.stack(
        [
            prod(
                slope_of(kernel, one) if axis == turn else kernel(one)
                for axis, one in enumerate(apart)
            ).mean(axis=1)
            for turn in range(len(apart))
        ],
        axis=1,
    )


def uncovered(axes, epsilon, degree=3, kernel="gaussian", draws=4, name="clustered"):
    rows, kernel = databases(axes, 5000)[name], kernel_of(kernel, 0.2)
    points = np.random.default_rng(1).uniform(size=(8, axes))
    points[0] = 0.4321
    truth, missed, widths = slopes(rows, points, kernel), 0, []
    for key in range(draws):
        d = asked(rows, key if epsilon > 1e3 else key + 1, degree=degree, epsilon=epsilon)
        answer = d.gradient(points, bandwidth=0.2, kernel=kernel.name)
        missed += int(not ((answer.low <= truth) & (truth <= answer.high)).all())
        widths.append(float((answer.high - answer.low).max()))
        assert answer.value.dims == ("point", "axis")
    return missed, max(widths) / (kernel.slope * kernel.peak ** (axes - 1))


@pytest.mark.parametrize(
    ("axes", "kernel"),
    [(1, "matern-3/2"), (1, "triweight"), (2, "biweight")],
)
def test_gradients_are_inside_their_band(axes, kernel):
    """Almost without noise nothing but the sides' own gap is left to cover what bins miss."""
    missed, width = uncovered(axes, 1e6, 2, kernel, 1, "one point")
    assert missed == 0
    assert 1e-4 < width < 0.6
    assert uncovered(axes, 1.0)[0] == 0


def test_a_slope_without_its_sides_is_caught(monkeypatch):
    sides = module.slope_sides
    monkeypatch.setattr(module, "slope_sides", lambda *one: Sides(*[sides(*one).near] * 3))
    assert uncovered(1, 1e6, 2, "biweight", 1, "one point")[0] == 1


@pytest.mark.slow
def test_gradients_cover_as_often_as_they_say():
    for name in databases(1, 10):
        assert uncovered(1, 1.0, draws=60, name=name)[0] <= 8


def two_bumps(axes):
    rng = np.random.default_rng(0)
    centers = rng.choice([0.25, 0.75], p=[0.6, 0.4], size=20_000)[:, None]
    return np.clip(centers + 0.05 * rng.normal(size=(20_000, axes)), 0, 1)


@pytest.mark.parametrize("axes", [1, 2])
def test_modes_are_told_from_what_is_around(axes):
    answer = asked(two_bumps(axes)).modes(61)
    assert answer.value.dims == ("mode",)
    assert answer.value.x.values == pytest.approx([0.25, 0.75], abs=0.02)
    for end, sign in (("x_low", 1), ("x_high", -1)):
        assert (sign * (np.array([0.25, 0.75]) - answer.value[end]) > -0.01).all()
    assert (answer.low <= answer.value).all()
    assert (answer.value <= answer.high).all()


def most_modes():
    """Of three releases of few rows with one bump."""
    rows = np.random.default_rng(0).beta(2, 2, size=(1000, 1))
    releases = [asked(rows, key, epsilon=0.2, cells=24) for key in (1, 2, 3)]
    return max(len(d.modes(51, bandwidth=0.05).value) for d in releases)


def test_noise_makes_no_modes(monkeypatch):
    assert most_modes() <= 1
    regions = module._regions
    monkeypatch.setattr(module, "_regions", lambda low, high: regions(low + high, low + high))
    assert most_modes() > 1
