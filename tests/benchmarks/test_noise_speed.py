"""Samples a second of the release step and of opendp's exact samplers, measured in one run.

The targets: 50 times opendp's Laplace, 20 times its Gaussian. numpy's floats are no private noise:
they show what a sampler costs that may be wrong in its last bits.
"""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest
from timing import BENCH, Table, keep, seconds

from dbern.privacy.laws import GaussianNoise, LaplaceNoise
from dbern.privacy.mechanism import CANONICAL_BLOCK, NoiseLaw, privatize

SCALES = {"1": 1, "1000": 1000, "41965": 41965, "2^40 + 1": 2**40 + 1}
BLOCKS, FEW = (16, 16384) if BENCH else (1, 1000)
LEAST = {"Laplace": 50, "Gaussian": 20}


def ours(noise: NoiseLaw) -> float:
    center = np.zeros(BLOCKS * CANONICAL_BLOCK, np.int64)
    spent = seconds(lambda: privatize(center, 0, noise, bytes(32), "speed"))
    return center.size / spent


def opendp(name: str, scale: int) -> float:
    dp.enable_features("contrib")
    distance = dp.l1_distance if name == "Laplace" else dp.l2_distance
    make = dp.m.make_laplace if name == "Laplace" else dp.m.make_gaussian
    space = dp.vector_domain(dp.atom_domain(T="i64")), distance(T="i64")
    peer, data = make(*space, scale=float(scale)), [0] * FEW
    return FEW / seconds(lambda: peer(data))


def numpy(name: str, scale: int) -> float:
    rng = np.random.default_rng(0)
    draw, count = rng.laplace if name == "Laplace" else rng.normal, BLOCKS * CANONICAL_BLOCK
    return count / seconds(lambda: draw(0.0, scale, count))


def measure(scale: int) -> dict[str, float | None]:
    """Million samples a second, and ratios."""
    found: dict[str, float | None] = {}
    for name, law in (("Laplace", LaplaceNoise), ("Gaussian", GaussianNoise)):
        mine, theirs = ours(law(scale, 0, 1)), opendp(name, scale)
        found[f"{name}: dbern"] = mine / 1e6
        found[f"{name}: opendp"] = theirs / 1e6
        found[f"{name}: numpy's floats"] = numpy(name, scale) / 1e6
        found[f"{name}: dbern to opendp"] = mine / theirs
    return found


@pytest.mark.slow
def test_noise_speed() -> None:
    found = {f"scale {name}": measure(scale) for name, scale in SCALES.items()}
    keep("noise", Table.of("million samples a second", found))
    for column in found.values():
        for name, least in LEAST.items():
            assert column[f"{name}: dbern to opendp"] >= (least if BENCH else 1)


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
