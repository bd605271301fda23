"""The Gaussian sampler's digits, golden values and key streams; `test_samplers` has the rest."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from reference_gaussian import cumulative, cuts, twin

from dbern.errors import IntegrityError
from dbern.privacy import gaussian
from dbern.privacy.keystream import KeyStream, subkey
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.mechanism import privatize, to_grid

KEY = hashlib.sha256(b"a fixed test key").digest()


@pytest.mark.parametrize("bits", [32, 96, 160, 352])
def test_digits_of_the_cumulative_law(bits: int) -> None:
    found = gaussian._thresholds(bits)
    assert found[-1] == 2**bits - 1
    assert found[-2] < 2**bits - 1
    assert list(found[:38]) == cuts(bits)[: len(found)][:38]
    assert all(f * 2**bits % 1 for f in cumulative()[:6])  # none is a floor's edge


# Stream format version 1 of the Gaussian. These numbers must never change: a retry of an unfinished
# release would draw other noise for a sealed center.
GOLDEN = {
    (1, 0): [-1, 0, 0, -1],
    (41965, 0): [34754, 19984, -81894, 10911],
    (41965, 65534): [-2090, -53117, 2613, -41674],
    (2**40 + 1, 10**9): [782546498601, 100081521470, 425660701837, 1203605120599],
    (2**61, 0): [
        1016312728770364932,
        276828966380639346,
        -1464104140091876115,
        6103678068016590922,
    ],
}
DIGEST = "5a7cfb976295e823b9bc160ea023f9df5170d9b305dc393d834f3af006a31e73"


@pytest.mark.parametrize(("sigma", "start"), GOLDEN)
def test_golden_values(sigma: int, start: int) -> None:
    drawn = privatize(np.zeros(4, np.int64), start, GaussianNoise(sigma, 0, 1), KEY, "density")
    assert drawn.tolist() == GOLDEN[sigma, start]


def test_golden_digest() -> None:
    drawn = privatize(
        np.zeros(3 * 65536 + 1234, np.int64), 0, GaussianNoise(41965, 0, 1), KEY, "density"
    )
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest() == DIGEST


LAW = GaussianNoise(sigma=41965, granularity_exponent=-21, l2_sensitivity_granules_squared=41965)
SIZE = 2 * 65536 + 1234
CENTER = np.random.default_rng(5).integers(-(2**40), 2**40, SIZE)


def test_privatize_draws_the_block_of_the_twin_and_slices_change_nothing() -> None:
    whole = privatize(CENTER, 0, LAW, KEY, "density")
    stream = KeyStream(subkey(KEY, "noise", "density", "gaussian-stream-1"), 1)
    drawn = twin(LAW.sigma, 1010, stream)
    start = 65536
    expected = [c + x for c, x in zip(CENTER[start : start + 1010].tolist(), drawn, strict=True)]
    assert whole[start : start + 1010].tolist() == expected
    for first, last in ((0, 1), (65530, 65540), (70000, SIZE)):
        part = privatize(CENTER[first:last], first, LAW, KEY, "density")
        assert np.array_equal(part, whole[first:last])


def test_laws_share_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, set[bytes]] = {"laplace": set(), "k-norm": set(), "discrete-gaussian": set()}
    for law in (LAW, LaplaceNoise(41965, -21, 41965), KNormNoise(41965, -21, 41965, values=5)):

        def recorded(key: bytes, block: int, kind: str = law.kind) -> KeyStream:
            keys[kind].add(key)
            return KeyStream(key, block)

        monkeypatch.setattr("dbern.privacy.mechanism.KeyStream", recorded)
        privatize(np.zeros(5, np.int64), 0, law, KEY, "density")
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == 3


def test_centers_are_refused_and_rounded_as_for_laplace() -> None:
    with pytest.raises(IntegrityError):
        privatize(np.array([2**62]), 0, LAW, KEY, "density")
    law = GaussianNoise(1, -2, 1)
    assert to_grid(np.array([0.3, -1.0]), law).tolist() == [1, -4]
