"""The sampler: agreement with its twin, its law, saturation, and the rare paths."""

from __future__ import annotations

import ast
import hashlib
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laplace_law import fits
from reference_laplace import BATCH, INVERSE_E, HostileStream, Recorder, saturated, twin
from scipy import stats

from dbern.privacy import laplace
from dbern.privacy.laplace import SignedNoise, discrete_laplace

SCALES = [1, 2, 3, 2**20, 2**40 + 1, 2**61 - 1, 2**61]


def key(label: object) -> bytes:
    return hashlib.sha256(f"test {label}".encode()).digest()


def exact(noise: SignedNoise) -> list[int]:
    pairs = zip(noise.magnitude.tolist(), noise.negative.tolist(), strict=True)
    return [-m if negative else m for m, negative in pairs]


def capped(samples: list[int]) -> list[int]:
    return [max(-(2**64 - 1), min(2**64 - 1, x)) for x in samples]


@pytest.mark.parametrize("scale", SCALES)
def test_agrees_with_the_twin_word_for_word(scale: int) -> None:
    ours, theirs = Recorder(key(1), 7), Recorder(key(1), 7)
    assert exact(discrete_laplace(scale, 20000, ours)) == capped(twin(scale, 20000, theirs))
    assert ours.consumed == theirs.consumed


@settings(max_examples=20, deadline=None)
@given(scale=st.integers(1, 2**61) | st.integers(1, 200), block=st.integers(0, 2**64 - 1))
def test_agrees_with_the_twin_at_any_scale(scale: int, block: int) -> None:
    ours, theirs = Recorder(key(2), block), Recorder(key(2), block)
    assert exact(discrete_laplace(scale, 500, ours)) == capped(twin(scale, 500, theirs))
    assert ours.consumed == theirs.consumed


def special_words() -> list[int]:
    """Digits that tie with 1/e and 1/n, to two levels; words that rejection throws away."""
    first = int(INVERSE_E * 2**32)
    deep = [int(INVERSE_E * 2**bits) % 2**64 for bits in (96, 160)]
    halves = [2**32 // n for n in (2, 3, 4, 5)]
    ties = [(digit << 32) | digit for digit in (first, *halves)]
    return [*ties, *deep, 0, 2**64 - 1]


@pytest.mark.parametrize("scale", SCALES)
def test_rare_paths_agree_with_the_twin(scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    depths = []
    digits = laplace._inverse_e
    monkeypatch.setattr(laplace, "_inverse_e", lambda bits: depths.append(bits) or digits(bits))
    ours = HostileStream(key(3), 0, special_words())
    theirs = HostileStream(key(3), 0, special_words())
    assert exact(discrete_laplace(scale, 3000, ours)) == capped(twin(scale, 3000, theirs))
    assert ours.consumed == theirs.consumed
    assert max(depths) >= 160, "no tie went to the second word: the test tests nothing"


def test_fewer_samples_are_a_prefix() -> None:
    whole = exact(discrete_laplace(12345, 65536, Recorder(key(4), 0)))
    for count in (0, 1, 8333, BATCH, 65535):
        assert exact(discrete_laplace(12345, count, Recorder(key(4), 0))) == whole[:count]


@pytest.mark.parametrize("bits", [32, 96, 160, 1024])
def test_digits_of_one_over_e(bits: int) -> None:
    assert laplace._inverse_e(bits) == int(INVERSE_E * 2**bits)


def test_the_batch_is_part_of_version_one() -> None:
    assert (laplace.BATCH, laplace.STREAM_VERSION) == (BATCH, 1)


@pytest.mark.parametrize("scale", [*SCALES, 5, 17, 1000])
def test_right_scale_fits_and_wrong_scales_do_not(scale: int) -> None:
    noise = discrete_laplace(scale, 2 * 65536, Recorder(key(5), 0))
    assert fits(noise, scale)
    # The harness itself: samples of another law are told apart, in both directions.
    for factor in (Fraction(7, 10), Fraction(13, 10)):
        wrong = max(1, round(scale * factor))
        if wrong != scale and wrong <= 2**61:
            assert not fits(discrete_laplace(wrong, 65536, Recorder(key(5), 1)), scale)


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_minus_zero_is_rejected(scale: int) -> None:
    noise = discrete_laplace(scale, 2 * 65536, Recorder(key(6), 0))
    assert not (noise.negative & (noise.magnitude == 0)).any()
    zeros = int((noise.magnitude == 0).sum())
    q = math.exp(-1 / scale)
    assert stats.binomtest(zeros, len(noise), (1 - q) / (1 + q)).pvalue > 1e-9


@pytest.mark.parametrize("scale", [2**20, 2**40 + 1, 2**58 + 1])
def test_lowest_bits_are_uniform(scale: int) -> None:
    noise = discrete_laplace(scale, 65536, Recorder(key(7), 0))
    residues = np.bincount((noise.magnitude % np.uint64(64)).astype(int), minlength=64)
    assert stats.chisquare(residues).pvalue > 1e-9


def test_consecutive_samples_are_independent() -> None:
    noise = discrete_laplace(1000, 2 * 65536, Recorder(key(8), 0))
    cell = np.minimum(noise.magnitude // np.uint64(500), 5).astype(int) * 2 + noise.negative
    for lag in (1, 2, BATCH):
        table = np.bincount(cell[:-lag] * 12 + cell[lag:], minlength=144).reshape(12, 12)
        assert stats.chi2_contingency(table).pvalue > 1e-9


@given(
    center=st.integers(-(2**62) + 1, 2**62 - 1) | st.sampled_from([-(2**62) + 1, 2**62 - 1]),
    x=st.integers(-(2**65), 2**65) | st.integers(-(2**63) - 2**62 - 9, -(2**63) + 2**62 + 9),
)
def test_sum_saturates_exactly(center: int, x: int) -> None:
    noise = SignedNoise(np.array([min(abs(x), 2**64 - 1)], np.uint64), np.array([x < 0], np.bool_))
    given_center = np.array([center], np.int64)
    assert noise.added_to(given_center).tolist() == [saturated(center + x)]
    assert given_center.tolist() == [center]


def test_huge_noise_saturates_as_the_twin_says() -> None:
    center = np.random.default_rng(1).integers(-(2**62) + 1, 2**62, 20000)
    ours = discrete_laplace(2**61, 20000, Recorder(key(9), 0)).added_to(center)
    theirs = twin(2**61, 20000, Recorder(key(9), 0))
    totals = [saturated(c + x) for c, x in zip(center.tolist(), theirs, strict=True)]
    assert ours.tolist() == totals
    assert {2**63 - 1, -(2**63) + 1} <= set(totals)


@pytest.mark.parametrize("scale", [0, -1, 2**61 + 1])
def test_scale_out_of_range(scale: int) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(scale, 1, Recorder(key(0), 0))


def test_no_float_in_the_module() -> None:
    tree = ast.parse(Path(laplace.__file__).read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div)
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not (isinstance(node, ast.Name | ast.Attribute) and "float" in ast.unparse(node))
