"""Bandwidths that are chosen from released bins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from questioned import asked, counted

from dbern.ask import kernel_envelopes
from dbern.ask.bins import NoisyMeasure
from dbern.ask.kernel_envelopes import _cross_validation, best_kernels, density_envelope
from dbern.ask.splines import AxisSplines
from dbern.bernstein.kernels import Gaussian
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import errors_of
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.public_numbers import public_stream

LAWS = {
    "laplace": LaplaceNoise(1 << 20, -28, 1 << 20),
    "gaussian": GaussianNoise(1 << 20, -28, 1),
    "k-norm": KNormNoise(1 << 20, -28, 1 << 20, values=8),
}


def surplus(law):
    """What noise adds to the estimate of a bandwidth in the mean, and how sure that is."""
    splines, kernels, draws = (AxisSplines(6, 2),), (Gaussian(0.4),), 4000
    exact = NoisyMeasure(np.zeros(8), splines, law, 0.0)  # the rest is linear in the noise
    drawn = errors_of(law).simulate(8, draws, public_stream("test", 0)) * 2.0**-28
    still = replace(exact, law=replace(law, granularity_exponent=-300))  # no noise to take off
    found = [
        _cross_validation(replace(exact, values=exact.values + one), kernels, 1000.0)
        for one in drawn.T
    ]
    apart = np.array(found) - _cross_validation(still, kernels, 1000.0)
    return apart.mean() / (apart.std() / np.sqrt(draws))


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_what_noise_adds_to_the_estimate_of_a_bandwidth_is_taken_off(law):
    assert abs(surplus(LAWS[law])) < 4


@pytest.mark.slow
def test_noise_that_keeps_the_total_taken_for_independent_is_caught(monkeypatch):
    """Bins of the K-norm law are correlated: the traces alone are not what it adds."""
    told = NoisyMeasure.covariance.fget
    alone = property(lambda measure: NoiseCovariance(told(measure).deviation))
    monkeypatch.setattr(NoisyMeasure, "covariance", alone)
    assert abs(surplus(LAWS["k-norm"])) > 8


def errors_of_choices(axes, rows, epsilon, draws=5):
    """Of uniform rows: the mean square error of what is chosen, and of cross-validation alone."""
    tried = [(Gaussian(b),) * axes for b in np.geomspace(0.03, 0.4, 11)]
    y, splines, found = np.linspace(0.025, 0.975, 20), AxisSplines(33, 2), np.zeros(2)
    made = [one[0].peak * density_envelope(splines, one[0], y).estimate for one in tried]
    exact = counted(rows, 33, 2)
    for key in range(1, draws + 1):
        measure = asked(rows, key, cells=33, degree=2, epsilon=epsilon, exact=exact).measures[0]
        estimates = [_cross_validation(measure, one, float(len(rows))) for one in tried]
        each = best_kernels([measure], tried, float(len(rows))), int(np.argmin(estimates))
        assert each[0] >= each[1]
        for at, one in enumerate(each):
            values = measure.values
            for _ in range(axes):
                values = np.tensordot(values, made[one], axes=(0, 1))
            found[at] += np.square(values - 1).mean() / draws
    return found


def test_on_several_axes_the_widest_that_noise_does_not_tell_from_the_best_errs_less():
    rows = np.random.default_rng(1).uniform(size=(20_000, 2))
    chosen, alone = errors_of_choices(2, rows, 0.1)
    assert chosen < 0.75 * alone


def test_on_one_axis_cross_validation_decides():
    rows = np.random.default_rng(1).uniform(size=(5000, 1))
    chosen, alone = errors_of_choices(1, rows, 0.03, draws=1)
    assert chosen == alone


@pytest.mark.slow
def test_what_noise_makes_of_two_estimates_apart_is_about_what_is_told():
    splines, wide, fine = (AxisSplines(8, 2),) * 2, (Gaussian(0.3),) * 2, (Gaussian(0.1),) * 2
    law, draws = LAWS["gaussian"], 600
    values = np.random.default_rng(2).uniform(size=(10, 10)) / 100
    drawn = errors_of(law).simulate(100, draws, public_stream("test", 1)) * 2.0**-28
    noisy = [NoisyMeasure(values + one.reshape(10, 10), splines, law, 0.0) for one in drawn.T]
    apart = [_cross_validation(one, wide, 900.0) - _cross_validation(one, fine, 900.0)
             for one in noisy]  # fmt: skip
    told = np.mean([kernel_envelopes._difference_variance(one, wide, fine, 900.0) for one in noisy])
    assert told == pytest.approx(np.var(apart), rel=0.25)
