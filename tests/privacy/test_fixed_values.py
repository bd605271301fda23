"""Numbers of the privacy room that are known in advance: samples, calibrations and bounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dbern.privacy.advanced import _advanced_ratio, calibrate_advanced_laplace
from dbern.privacy.budget import Budget, decimal_text, exact
from dbern.privacy.calibration import calibrate_gaussian, calibrate_k_norm, calibrate_laplace
from dbern.privacy.contract import Contract, FloatBounds, Sensitivity, law_of
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.curves import _delta_at, squared_for
from dbern.privacy.families import errors_of
from dbern.privacy.gaussian import _inverse_root_e, _thresholds, discrete_gaussian
from dbern.privacy.keystream import KeyStream, content_words, subkey
from dbern.privacy.laplace import _inverse_e, discrete_laplace
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.perturbation import penalty_weight, tied_charge
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.tails import float_above, gaussian_tail
from dbern.privacy.zcdp import _delta_of, epsilon_of, pure_rho, rho_above, rho_for, rho_of

VECTORS = KNormNoise(2000, -10, 1000, values=3)
NARROW, WIDE = LaplaceNoise(100, 0, 100), LaplaceNoise(2**20, -20, 2**20)
ZERO, ONE, HALF, TINY = map(Fraction, ("0", "1", "1/2", "1e-6"))
FIFTIETH, HUNDREDTH, TENTH, FOUR = map(Fraction, ("1/50", "1/100", "1/10", "4"))
WEIGHT = penalty_weight(HALF, 0.25, 1, 3.0)
MOVED = Sensitivity.over(100, 1.0, 2.0, "two records", 1)
CONTRACT = Contract.of(MOVED, 100, FloatBounds(0.0, 0.0, 4.0), size=21, fraction=HALF)


def sampled(sampler):
    """Three samples of the zero key."""
    return sampler(1000, 3, KeyStream(bytes(32), block=0)).added_to(np.zeros(3, np.int64)).tolist()


def near(value, decimals):
    """A value that is known to so many decimals."""
    return pytest.approx(value, abs=0.5 * 10.0**-decimals, rel=0)


EXACT = {
    "Laplace samples": (lambda: sampled(discrete_laplace), [1723, -2544, 96]),
    "Gaussian samples": (lambda: sampled(discrete_gaussian), [-1527, 723, -544]),
    "labels of subkeys are not joined": (
        lambda: subkey(bytes(32), "noise", "a", "bc") == subkey(bytes(32), "noise", "ab", "c"),
        False,
    ),
    "content in another order has other words": (
        lambda: len({*content_words(np.array([[0.0, 1.0], [1.0, 0.0]]), bytes(32)).tolist()}), 2,
    ),
    "Laplace noise": (
        lambda: calibrate_laplace(FIFTIETH, ZERO, 21, HALF, FOUR), LaplaceNoise(83930, -21, 41965),
    ),
    "its epsilon": (lambda: LaplaceNoise(83930, -21, 41965).epsilon, HALF),
    "K-norm noise, for half of the move": (
        lambda: calibrate_k_norm(HUNDREDTH, ZERO, 21, HALF, FOUR),
        KNormNoise(167860, -22, 83930, values=21),
    ),
    "K-norm epsilon": (lambda: KNormNoise(200, -10, 100, values=12).epsilon, HALF),
    "Gaussian noise": (
        lambda: calibrate_gaussian(FIFTIETH, ZERO, 21, ONE, TINY, FOUR),
        GaussianNoise(22169, -18, 27535863),
    ),
    "rho": (lambda: GaussianNoise(200, -10, 800).rho, HUNDREDTH),
    "advanced composition": (
        lambda: calibrate_advanced_laplace(FIFTIETH, ZERO, 21, ONE, TINY, ONE),
        LaplaceNoise(63160, -16, 21 * 1311),
    ),
    "half of a charge": (lambda: law_of(CONTRACT, Budget.parse("1")).scale, 83930),
    "granules of a Gaussian tail": (
        lambda: gaussian_tail(1000, 1, Fraction(1, 20)), 2032,
    ),
    "a float above itself": (lambda: float_above(Fraction(0.1)), 0.1),
    "a float above a third": (lambda: float_above(Fraction(1, 3)), math.nextafter(1 / 3, 1)),
    "a scaled covariance": (
        lambda: NoiseCovariance(2.0, -0.25).scaled(0.5), NoiseCovariance(1.0, -0.25),
    ),
    "K-norm draws in columns": (
        lambda: errors_of(VECTORS).simulate(3, 2, public_stream("x", 0)).shape, (3, 2),
    ),
    "a decimal": (lambda: exact("0.1", "budget.epsilon"), TENTH),
    "its texts": (
        lambda: [decimal_text(value) for value in (TENTH, Fraction(1, 3), Fraction(3))],
        ["0.1", "1/3", "3"],
    ),
    "digits of 1/e": (lambda: _inverse_e(32), 1580030168),
    "digits of 1/sqrt(e)": (lambda: _inverse_root_e(32) / 2**32, 0.6065306595992297),
    "rho of a shift": (lambda: rho_of(9, 6), Fraction(1, 8)),
    "rho of a pure epsilon": (lambda: pure_rho(Fraction(1, 5)), FIFTIETH),
    "a rho above": (
        lambda: rho_above(Fraction(1, 3)) - Fraction(1, 3), Fraction(2, 3 * 10**28),
    ),
}  # fmt: skip
ROUNDED = {
    "public numbers": (
        lambda: uniform(public_stream("example", 0), 2).tolist(), near([0.0511, 0.392], 4),
    ),
    "the scale of advanced composition": (
        lambda: float(_advanced_ratio(21, ONE, TINY)), near(48.176818, 6),
    ),
    "a Laplace tail": (
        lambda: errors_of(WIDE).tail(21, Fraction(1, 20)), near(6.0403, 4),
    ),
    "a Gaussian tail": (
        lambda: errors_of(GaussianNoise(2**20, -20, 1)).tail(21, Fraction(1, 20)), near(3.0642, 4),
    ),
    "the tail of a weight": (
        lambda: float(errors_of(NARROW).weighted_tail(*np.ones((2, 1)), math.log(20))[0]),
        near(645.7, 1),
    ),
    "thresholds of the Gaussian": (
        lambda: [threshold / 2**32 for threshold in _thresholds(32)[:4]],
        near([0.570348, 0.916282, 0.993471, 0.999807], 6),
    ),
    "delta on the curve": (lambda: float(_delta_at(ONE, ONE)), near(0.126936737507, 12)),
    "noise by the curve; by zCDP 4.5309": (
        lambda: float(squared_for(ONE, TINY)) ** -0.5, near(4.2247, 4),
    ),
    "delta by zCDP": (lambda: float(_delta_of(FIFTIETH, ONE)), near(8.825255e-08, 15)),
    "rho by zCDP": (lambda: float(rho_for(ONE, TINY)), near(0.0243559703595, 13)),
    "epsilon by zCDP": (lambda: float(epsilon_of(FIFTIETH, TINY)), near(0.899935268, 9)),
    "what a penalty spends": (
        lambda: math.log1p(WEIGHT * 0.25 * 3.0), pytest.approx(0.49995, abs=0.00005),
    ),
    "a tied charge": (lambda: float(tied_charge(ONE, WEIGHT, 1, 1, 3.0)), near(0.645, 3)),
    "a tied charge of what is added": (
        lambda: float(tied_charge(ONE, WEIGHT, 1, 1, 3.0, added=True)), near(1.608, 3),
    ),
}  # fmt: skip
KNOWN = EXACT | ROUNDED


@pytest.mark.parametrize("name", KNOWN)
def test_a_value_is_as_it_is_known(name):
    computed, value = KNOWN[name]
    assert computed() == value
