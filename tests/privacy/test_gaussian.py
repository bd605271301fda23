"""The Gaussian sampler: agreement with its twin, its law, golden values and the rare paths."""

from __future__ import annotations

import ast
import hashlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_gaussian import BATCH, cumulative, cuts, twin
from reference_laplace import HostileStream, Recorder, saturated
from scipy import stats

from dbern.errors import IntegrityError
from dbern.privacy import gaussian
from dbern.privacy.calibration import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.gaussian import discrete_gaussian
from dbern.privacy.keystream import KeyStream, subkey
from dbern.privacy.laplace import SignedNoise
from dbern.privacy.mechanism import privatize, to_grid

SIGMAS = [1, 2, 3, 2**20, 2**40 + 1, 2**61 - 1, 2**61]
KEY = hashlib.sha256(b"a fixed test key").digest()
FALSE_ALARM = 1e-9  # of each call; the keys are fixed, so a test that passes passes for ever


def key(label: object) -> bytes:
    return hashlib.sha256(f"test gaussian {label}".encode()).digest()


def exact(noise: SignedNoise) -> list[int]:
    pairs = zip(noise.magnitude.tolist(), noise.negative.tolist(), strict=True)
    return [-m if negative else m for m, negative in pairs]


def capped(samples: list[int]) -> list[int]:
    return [max(-(2**64 - 1), min(2**64 - 1, x)) for x in samples]


@pytest.mark.thorough
@pytest.mark.parametrize("sigma", SIGMAS)
def test_agrees_with_the_twin_word_for_word(sigma: int) -> None:
    ours, theirs = Recorder(key(1), 7), Recorder(key(1), 7)
    assert exact(discrete_gaussian(sigma, 20000, ours)) == capped(twin(sigma, 20000, theirs))
    assert ours.consumed == theirs.consumed


@settings(max_examples=15, deadline=None)
@given(sigma=st.integers(1, 2**61) | st.integers(1, 200), block=st.integers(0, 2**64 - 1))
def test_agrees_with_the_twin_at_any_sigma(sigma: int, block: int) -> None:
    ours, theirs = Recorder(key(2), block), Recorder(key(2), block)
    assert exact(discrete_gaussian(sigma, 500, ours)) == capped(twin(sigma, 500, theirs))
    assert ours.consumed == theirs.consumed


def special_words() -> list[int]:
    """Digits that tie with F(k) and 1/2n, to two levels; words that rejection throws away."""
    firsts = [cuts(32)[k] for k in (0, 1, 3)] + [2**32 // n for n in (2, 3, 4, 6)]
    deep = [cuts(96)[0] % 2**64, cuts(160)[0] % 2**64, cuts(96)[3] % 2**64]
    return [*((digit << 32) | digit for digit in firsts), *deep, 0, 2**64 - 1]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_rare_paths_agree_with_the_twin(sigma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    depths = []
    floors = gaussian._thresholds
    monkeypatch.setattr(gaussian, "_thresholds", lambda bits: depths.append(bits) or floors(bits))
    ours = HostileStream(key(3), 0, special_words())
    theirs = HostileStream(key(3), 0, special_words())
    samples = twin(sigma, 3000, theirs)
    assert exact(discrete_gaussian(sigma, 3000, ours)) == capped(samples)
    assert ours.consumed == theirs.consumed
    assert max(depths) >= 160, "no tie went to the second word: the test tests nothing"
    assert sigma > 3 or max(map(abs, samples)) > 8 * sigma, "no K beyond the digits' table"


@pytest.mark.parametrize("bits", [32, 96, 160, 352])
def test_digits_of_the_cumulative_law(bits: int) -> None:
    found = gaussian._thresholds(bits)
    assert found[-1] == 2**bits - 1
    assert found[-2] < 2**bits - 1
    assert list(found[:38]) == cuts(bits)[: len(found)][:38]
    assert all(f * 2**bits % 1 for f in cumulative()[:6])  # none is a floor's edge


def test_fewer_samples_are_a_prefix() -> None:
    whole = exact(discrete_gaussian(12345, 65536, Recorder(key(4), 0)))
    for count in (0, 1, 9515, BATCH, 65535):
        assert exact(discrete_gaussian(12345, count, Recorder(key(4), 0))) == whole[:count]


def test_the_batch_is_part_of_version_one() -> None:
    assert (gaussian.BATCH, gaussian.STREAM_VERSION) == (BATCH, 1)


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


def tails(cuts_at: list[int], sigma: int) -> np.ndarray:
    """``P(|X| >= m)``: summed where sigma is small, else Gaussian with continuity correction."""
    if sigma > 2000:
        return np.array([1.0 if m == 0 else 2 * stats.norm.sf((m - 0.5) / sigma) for m in cuts_at])
    x = np.arange(-40 * sigma, 40 * sigma + 1)
    weight = np.exp(-(x**2) / (2 * sigma**2))
    return np.array([weight[abs(x) >= m].sum() for m in cuts_at]) / weight.sum()


def p_value(noise: SignedNoise, sigma: int) -> float:
    """Chi-square test of signed cells, zero among the first; rare ones are one cell."""
    points = (np.arange(1, 121) / 30 * sigma).round()
    cuts_at = sorted({0, 1, *(int(point) for point in points)})
    mass = -np.diff([*tails(cuts_at, sigma), 0.0])
    expected = np.concatenate([mass[:1], np.repeat(mass[1:] / 2, 2)]) * len(noise)
    cell = np.searchsorted(np.array(cuts_at, np.uint64), noise.magnitude, side="right") - 1
    cell = np.where(cell == 0, 0, 2 * cell - 1 + noise.negative)
    seen = np.bincount(cell, minlength=expected.size)
    small = expected < 10
    seen = np.append(seen[~small], seen[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 1:
        seen, expected = seen[:-1], expected[:-1]
    return float(stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue)


@pytest.mark.parametrize("sigma", [*SIGMAS, 5, 17, 1000])
def test_right_sigma_fits(sigma: int) -> None:
    noise = discrete_gaussian(sigma, 4 * 65536, Recorder(key(5), 0))
    assert p_value(noise, sigma) > FALSE_ALARM


@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("sigma", [3, 5, 17, 1000, 2**20, 2**40 + 1, 2**60])
def test_wrong_sigma_does_not_fit(sigma: int, factor: Fraction) -> None:
    noise = discrete_gaussian(round(sigma * factor), 65536, Recorder(key(6), 1))
    assert p_value(noise, sigma) < FALSE_ALARM


@pytest.mark.parametrize("sigma", [1, 2, 3])
def test_minus_zero_is_rejected(sigma: int) -> None:
    noise = discrete_gaussian(sigma, 2 * 65536, Recorder(key(7), 0))
    assert not (noise.negative & (noise.magnitude == 0)).any()
    zeros = int((noise.magnitude == 0).sum())
    chance = 1 - float(tails([1], sigma)[0])
    assert stats.binomtest(zeros, len(noise), chance).pvalue > FALSE_ALARM


@pytest.mark.parametrize("sigma", [2**20, 2**40 + 1, 2**58 + 1])
def test_lowest_bits_are_uniform(sigma: int) -> None:
    noise = discrete_gaussian(sigma, 65536, Recorder(key(8), 0))
    residues = np.bincount((noise.magnitude % np.uint64(64)).astype(int), minlength=64)
    assert stats.chisquare(residues).pvalue > FALSE_ALARM


def test_consecutive_samples_are_independent() -> None:
    noise = discrete_gaussian(1000, 2 * 65536, Recorder(key(9), 0))
    cell = np.minimum(noise.magnitude // np.uint64(500), 5).astype(int) * 2 + noise.negative
    for lag in (1, 2, BATCH):
        table = np.bincount(cell[:-lag] * 12 + cell[lag:], minlength=144).reshape(12, 12)
        assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_huge_noise_saturates_as_the_twin_says() -> None:
    center = np.random.default_rng(1).integers(-(2**62) + 1, 2**62, 20000)
    ours = discrete_gaussian(2**61, 20000, Recorder(key(10), 0)).added_to(center)
    theirs = twin(2**61, 20000, Recorder(key(10), 0))
    totals = [saturated(c + x) for c, x in zip(center.tolist(), theirs, strict=True)]
    assert ours.tolist() == totals
    assert {2**63 - 1, -(2**63) + 1} <= set(totals)


@pytest.mark.parametrize("sigma", [0, -1, 2**61 + 1])
def test_sigma_out_of_range(sigma: int) -> None:
    with pytest.raises(ValueError, match="sigma"):
        discrete_gaussian(sigma, 1, Recorder(key(0), 0))


def test_no_float_in_the_module() -> None:
    tree = ast.parse(Path(gaussian.__file__).read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div)
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not (isinstance(node, ast.Name | ast.Attribute) and "float" in ast.unparse(node))
        # of math, only the integer square root
        assert not (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "math") or (
            node.attr == "isqrt"
        )


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
