"""Numbers of the privacy room that are known in advance: samples, calibrations and bounds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dbern.errors import SpecError
from dbern.privacy.advanced import _advanced_ratio, calibrate_advanced_laplace
from dbern.privacy.budget import Budget, decimal_text, exact
from dbern.privacy.calibration import (
    calibrate_gaussian,
    calibrate_k_norm,
    calibrate_laplace,
    floor_log2,
)
from dbern.privacy.contract import Contract, FloatBounds, Sensitivity, law_of
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.curves import _delta_at, squared_for
from dbern.privacy.families import errors_of
from dbern.privacy.gaussian import _inverse_root_e, _thresholds, discrete_gaussian
from dbern.privacy.keystream import KeyStream, content_words, subkey
from dbern.privacy.laplace import SignedNoise, _inverse_e, discrete_laplace
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.mechanism import to_grid
from dbern.privacy.perturbation import penalty_weight, tied_charge
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.random_privacy import fewest_samples, order_statistic
from dbern.privacy.tails import (
    float_above,
    gaussian_tail,
)
from dbern.privacy.zcdp import _delta_of, epsilon_of, pure_rho, rho_above, rho_for, rho_of

ONE, TINY = Fraction(1), Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("sampler", "samples"),
    [(discrete_laplace, [1723, -2544, 96]), (discrete_gaussian, [-1527, 723, -544])],
)
def test_samples_of_the_zero_key_never_change(sampler, samples):
    noise = sampler(1000, 3, KeyStream(bytes(32), block=0))
    assert noise.added_to(np.zeros(3, np.int64)).tolist() == samples


def test_public_numbers_never_change():
    assert uniform(public_stream("example", 0), 2).round(4).tolist() == [0.0511, 0.392]


def test_sums_saturate():
    noise = SignedNoise(np.array([5, 2**64 - 1], np.uint64), np.array([False, True]))
    assert noise.added_to(np.array([-7, 3])).tolist() == [-2, -(2**63 - 1)]


def test_labels_are_not_joined():
    assert subkey(bytes(32), "noise", "a", "bc") != subkey(bytes(32), "noise", "ab", "c")


def test_equal_content_has_equal_words():
    words = content_words(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), bytes(32))
    assert words[0] == words[1]
    assert words[0] != words[2]


def test_values_go_to_the_nearest_granule():
    noise = LaplaceNoise(scale=1, granularity_exponent=-2, l1_sensitivity_granules=1)
    assert to_grid(np.array([0.3, -1.0]), noise).tolist() == [1, -4]


def test_laplace_noise_is_calibrated():
    noise = calibrate_laplace(Fraction(1, 50), Fraction(0), 21, Fraction(1, 2), Fraction(4))
    assert noise == LaplaceNoise(83930, -21, 41965)
    assert noise.epsilon == Fraction(1, 2)


def test_k_norm_noise_is_calibrated_to_half_of_the_move():
    noise = calibrate_k_norm(Fraction(1, 100), Fraction(0), 21, Fraction(1, 2), Fraction(4))
    assert (noise.scale, noise.granularity_exponent) == (167860, -22)
    assert noise.l1_sensitivity_granules == 83930
    law = KNormNoise(200, -10, l1_sensitivity_granules=100, values=12)
    assert law.epsilon == Fraction(1, 2)


def test_gaussian_noise_is_calibrated_to_the_curve():
    noise = calibrate_gaussian(Fraction(1, 50), Fraction(0), 21, ONE, TINY, Fraction(4))
    assert noise == GaussianNoise(22169, -18, 27535863)
    law = GaussianNoise(200, -10, l2_sensitivity_granules_squared=800)
    assert law.rho == Fraction(1, 100)


def test_advanced_composition_has_its_scale():
    assert round(float(_advanced_ratio(21, ONE, TINY)), 6) == 48.176818
    noise = calibrate_advanced_laplace(Fraction(1, 50), Fraction(0), 21, ONE, TINY, ONE)
    assert (noise.scale, noise.granularity_exponent) == (63160, -16)
    assert noise.l1_sensitivity_granules // 21 == 1311


def test_a_contract_has_the_law_of_its_fraction_of_the_charge():
    moved = Sensitivity.over(100, 1.0, 2.0, "two records", 1)
    half = Contract.of(moved, 100, FloatBounds(0.0, 0.0, 4.0), size=21, fraction=Fraction(1, 2))
    assert law_of(half, Budget.parse("1")).scale == 83930


def test_tails_have_their_sizes():
    noise = LaplaceNoise(2**20, -20, l1_sensitivity_granules=2**20)
    assert round(errors_of(noise).tail(21, Fraction(1, 20)), 4) == 6.0403
    normal = GaussianNoise(2**20, -20, l2_sensitivity_granules_squared=1)
    assert round(errors_of(normal).tail(21, Fraction(1, 20)), 4) == 3.0642
    assert gaussian_tail(1000, 1, Fraction(1, 20)) == 2032


def test_the_tail_of_one_weight_is_no_smaller_than_that_of_a_draw():
    noise = LaplaceNoise(scale=100, granularity_exponent=0, l1_sensitivity_granules=100)
    bound = errors_of(noise).weighted_tail(np.array(1.0), np.array(1.0), math.log(20))
    assert float(bound.round(1)) == 645.7


def test_afloat_above_is_the_next_one_only_where_rounding_went_down():
    assert float_above(Fraction(0.1)) == 0.1
    assert float_above(Fraction(1, 3)) == math.nextafter(1 / 3, 1)


def test_a_covariance_scales_by_its_deviation():
    assert NoiseCovariance(2.0, -0.25).scaled(0.5) == NoiseCovariance(1.0, -0.25)


def test_k_norm_draws_are_vectors_in_columns():
    law = KNormNoise(2000, -10, l1_sensitivity_granules=1000, values=3)
    assert errors_of(law).simulate(3, 2, public_stream("example", 0)).shape == (3, 2)


def test_parameters_are_read_and_written_exactly():
    assert exact("0.1", "budget.epsilon") == Fraction(1, 10)
    texts = [decimal_text(value) for value in (Fraction(1, 10), Fraction(1, 3), Fraction(3))]
    assert texts == ["0.1", "1/3", "3"]


def test_powers_of_two_below_a_fraction():
    assert [floor_log2(Fraction(1, 3)), floor_log2(Fraction(8))] == [-2, 3]


def test_constants_of_the_samplers_are_floors():
    assert _inverse_e(32) == 1580030168
    assert _inverse_root_e(32) / 2**32 == 0.6065306595992297
    cumulative = [round(threshold / 2**32, 6) for threshold in _thresholds(32)[:4]]
    assert cumulative == [0.570348, 0.916282, 0.993471, 0.999807]


def test_the_curve_of_gaussian_noise():
    assert round(float(_delta_at(ONE, ONE)), 12) == 0.126936737507
    assert round(float(squared_for(ONE, TINY)) ** -0.5, 4) == 4.2247  # by zCDP 4.5309


def test_zcdp_and_its_conversions():
    assert rho_of(9, 6) == Fraction(1, 8)
    assert pure_rho(Fraction(1, 5)) == Fraction(1, 50)
    assert round(float(_delta_of(Fraction(1, 50), ONE)), 15) == 8.825255e-08
    rho = rho_for(ONE, TINY)
    assert round(float(rho), 13) == 0.0243559703595
    assert _delta_of(rho, ONE) <= TINY
    epsilon = epsilon_of(Fraction(1, 50), TINY)
    assert round(float(epsilon), 9) == 0.899935268
    assert _delta_of(Fraction(1, 50), epsilon) <= TINY
    assert rho_above(Fraction(1, 3)) - Fraction(1, 3) == Fraction(2, 3 * 10**28)


def test_penalties_and_tied_charges():
    weight = penalty_weight(Fraction(1, 2), 0.25, 1, 3.0)
    assert 0.4999 < math.log1p(weight * 0.25 * 3.0) < 0.5
    assert round(float(tied_charge(ONE, weight, 1, 1, 3.0)), 3) == 0.645
    assert round(float(tied_charge(ONE, weight, 1, 1, 3.0, added=True)), 3) == 1.608


def test_order_statistics_of_the_sampler():
    assert order_statistic(1000, Fraction(1, 10)) == 957
    assert order_statistic(10, Fraction(1, 10)) == 14  # more than there are
    assert fewest_samples(Fraction(1, 10)) == 285
    with pytest.raises(SpecError):
        fewest_samples(Fraction(0))
