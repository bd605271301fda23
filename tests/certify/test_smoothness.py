"""Stated smoothness: bounds against functions of each class, and against the paper's constants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dbern.bernstein.basis import bernstein_basis, iterated_matrix
from dbern.certify.approximation import Holder, Linear, Smooth
from dbern.errors import SpecError

Y = np.linspace(0, 1, 401)


def error_of(f, k, h):
    """Sup error on one axis, on a dense grid."""
    made = bernstein_basis(Y, k) @ iterated_matrix(k, h) @ f(np.arange(k + 1) / k)
    return np.abs(made - f(Y)).max()


def plane_error(f, k, h):
    y, v = np.linspace(0, 1, 81), [np.arange(each + 1) / each for each in k]
    matrices = [bernstein_basis(y, a) @ iterated_matrix(a, b) for a, b in zip(k, h, strict=True)]
    made = matrices[0] @ f(v[0][:, None], v[1]) @ matrices[1].T
    return np.abs(made - f(y[:, None], y)).max()


@pytest.mark.parametrize(("k", "h"), [(1, 1), (5, 1), (20, 1), (20, 3), (60, 8)])
@pytest.mark.parametrize("exponent", [0.25, 0.5, 1.0])
def test_holder_functions_stay_within(k, h, exponent):
    bound = Holder(2.0, exponent).error([k], [h], [None])
    for center in np.linspace(0, 1, 23):
        assert error_of(lambda x, c=center: 2.0 * np.abs(x - c) ** exponent, k, h) <= bound
    zigzag = 2.0 * (0.5 / k) ** exponent
    assert error_of(lambda x: zigzag * (1 - 2 * (np.rint(2 * k * x) % 2)), k, 1) <= 2 * bound


@pytest.mark.parametrize("k", [3, 30, 300])
@pytest.mark.parametrize("exponent", [0.3, 1.0])
def test_the_first_order_has_the_paper_s_constant(k, exponent):
    bound = Holder(1.0, exponent).error([k], [1], [None])
    assert (4 * k) ** (-exponent / 2) <= bound <= 1.04 * (4 * k) ** (-exponent / 2)


@pytest.mark.parametrize(("k", "h"), [(4, 1), (20, 1), (20, 2), (40, 3), (80, 4)])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
def test_smooth_functions_stay_within(k, h, order):
    bound = Smooth(order, 1.0).error([k], [h], [None])
    for rate, phase in itertools.product((0.5, 1.0, 3.0, 8.0), (0.0, 0.7, 1.9)):
        size = max(rate**j for j in range(1, order + 1))
        assert error_of(lambda x, r=rate, p=phase, s=size: np.sin(r * x + p) / s, k, h) <= bound
    assert error_of(lambda x: x**2 / 2, k, h) <= bound  # its derivatives are at most one


def test_higher_orders_gain_a_power_of_k():
    """Theorem 2's rate k^-h, with its constant."""
    for h in (1, 2, 3):
        coarse, fine = (Smooth(2 * h, 1.0).error([k], [h], [None]) for k in (40, 160))
        assert fine < 1.5 * coarse / 4**h


@pytest.mark.parametrize(("k", "h"), [((10, 20), (1, 2)), ((6, 6), (3, 1))])
def test_two_axes_add_up(k, h):
    bound = Smooth(2, 1.0).error(k, h, [None, None])
    for a, b in itertools.product((0.3, 1.0), (0.5, 1.0)):
        assert plane_error(lambda x, y, a=a, b=b: np.sin(a * x + b * y), k, h) <= bound
    kink = Holder(1.0, 1.0).error(k, h, [None, None])
    assert plane_error(lambda x, y: np.maximum(np.abs(x - 0.4), np.abs(y - 0.5)), k, h) <= kink


def test_linear_functions_are_reproduced():
    assert Linear().error([1, 3], [1, 5], [None, None]) == 0.0
    for k, h in ((1, 1), (7, 4)):
        assert error_of(lambda x: 3 * x - 1, k, h) < 1e-12


@pytest.mark.parametrize("wrong", [lambda: Holder(1.0, 1.5), lambda: Holder(0.0, 0.5),
                                   lambda: Smooth(0, 1.0), lambda: Smooth(2, -1.0)])  # fmt: skip
def test_impossible_classes_are_refused(wrong):
    with pytest.raises(SpecError, match=r"^target\.smoothness: .*[Ww]rite "):
        wrong()
