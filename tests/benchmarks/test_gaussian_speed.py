"""Samples per second of Gaussian releases and of opendp's exact Gaussian, measured in one run.

``python tests/benchmarks/test_gaussian_speed.py`` prints the figures; the test only runs it small.
"""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest
from test_noise_speed import rate, report

from dbern.privacy.calibration import GaussianNoise
from dbern.privacy.mechanism import CANONICAL_BLOCK, privatize


def measure(sigma: int, blocks: int, opendp_samples: int, repeats: int) -> dict[str, float]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    peer, data = dp.m.make_gaussian(*space, scale=float(sigma)), [0] * opendp_samples
    noise = GaussianNoise(sigma, 0, 1)
    center = np.zeros(blocks * CANONICAL_BLOCK, np.int64)
    ours = rate(lambda: privatize(center, 0, noise, bytes(32), "speed"), center.size, repeats)
    theirs = rate(lambda: peer(data), opendp_samples, repeats)
    return {"privatize": ours, "opendp": theirs, "ratio": ours / theirs}


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1, 41965, 2**40 + 1])
def test_gaussian_speed(sigma: int) -> None:
    found = measure(sigma, blocks=1, opendp_samples=1000, repeats=1)
    print(report(sigma, found))
    assert found["privatize"] > 0


if __name__ == "__main__":
    for some_sigma in (1, 1000, 41965, 2**40 + 1, 2**61):
        print(report(some_sigma, measure(some_sigma, 16, 65536, 5)))
