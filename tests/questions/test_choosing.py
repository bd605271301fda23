"""Bandwidths that are chosen from released bins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dbern.bernstein.kernels import Gaussian
from dbern.privacy.accuracy import Covariance, public_stream
from dbern.privacy.calibration import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.families import family_of
from dbern.synopsis.questions.functionals import cross_validation
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.splines import AxisSplines

LAWS = {
    "laplace": LaplaceNoise(1 << 20, -28, 1 << 20),
    "gaussian": GaussianNoise(1 << 20, -28, 1),
    "k-norm": KNormNoise(1 << 20, -28, 1 << 20, values=8),
}


def surplus(law):
    """What noise adds to the estimate of a bandwidth in the mean, and how sure that is."""
    splines, kernels, draws = (AxisSplines(6, 2),), (Gaussian(0.4),), 4000
    exact = Measure(np.zeros(8), splines, law, 0.0)  # the rest is linear in the noise
    drawn = family_of(law).drawn(law, 8, draws, public_stream("test", 0)) * 2.0**-28
    still = replace(exact, law=replace(law, granularity_exponent=-300))  # no noise to take off
    found = [
        cross_validation(replace(exact, values=exact.values + one), kernels, 1000.0)
        for one in drawn.T
    ]
    apart = np.array(found) - cross_validation(still, kernels, 1000.0)
    return apart.mean() / (apart.std() / np.sqrt(draws))


@pytest.mark.parametrize("law", LAWS)
def test_what_noise_adds_to_the_estimate_of_a_bandwidth_is_taken_off(law):
    assert abs(surplus(LAWS[law])) < 4


def test_noise_that_keeps_the_total_taken_for_independent_is_caught(monkeypatch):
    """Bins of the K-norm law are correlated: the traces alone are not what it adds."""
    told = Measure.covariance.fget
    alone = property(lambda measure: Covariance(told(measure).deviation))
    monkeypatch.setattr(Measure, "covariance", alone)
    assert abs(surplus(LAWS["k-norm"])) > 8
