"""Samples per second of the release step and of opendp's exact Laplace, measured in one run.

``python tests/benchmarks/test_noise_speed.py`` prints the figures; the test only runs it small.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import opendp.prelude as dp
import pytest

from dbern.privacy.calibration import LaplaceNoise
from dbern.privacy.mechanism import CANONICAL_BLOCK, privatize


def rate(run: Callable[[], object], samples: int, repeats: int) -> float:
    """Median samples per second."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return samples / statistics.median(seconds)


def measure(scale: int, blocks: int, opendp_samples: int, repeats: int) -> dict[str, float]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    peer, data = dp.m.make_laplace(*space, scale=float(scale)), [0] * opendp_samples
    noise = LaplaceNoise(scale, 0, 1)
    center = np.zeros(blocks * CANONICAL_BLOCK, np.int64)
    ours = rate(lambda: privatize(center, 0, noise, bytes(32), "speed"), center.size, repeats)
    theirs = rate(lambda: peer(data), opendp_samples, repeats)
    return {"privatize": ours, "opendp": theirs, "ratio": ours / theirs}


def report(scale: int, found: dict[str, float]) -> str:
    return (
        f"scale {scale:>20}: privatize {found['privatize'] / 1e6:6.2f} M/s, "
        f"opendp {found['opendp'] / 1e6:.3f} M/s, ratio {found['ratio']:.0f}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 41965, 2**40 + 1])
def test_noise_speed(scale: int) -> None:
    found = measure(scale, blocks=1, opendp_samples=1000, repeats=1)
    print(report(scale, found))
    assert found["privatize"] > 0


if __name__ == "__main__":
    for some_scale in (1, 1000, 41965, 2**40 + 1, 2**61):
        print(report(some_scale, measure(some_scale, 16, 65536, 5)))
