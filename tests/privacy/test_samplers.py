"""What every sampler of one number keeps: its twin, its law, its batches, the rare paths."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import reference_gaussian
import reference_laplace
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_gaussian import cumulative, cuts
from reference_laplace import INVERSE_E, HostileStream, Recorder, saturated
from sampler_laws import (
    FALSE_ALARM,
    gaussian_cuts,
    gaussian_tails,
    laplace_cuts,
    laplace_tails,
    p_value,
)
from scipy import stats

from dbern.privacy import gaussian, laplace
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import SignedNoise

SCALES = [1, 2, 3, 2**20, 2**40 + 1, 2**61 - 1, 2**61]


@dataclass(frozen=True)
class Sampler:
    """A sampler of integers of a scale, its twin, and its law."""

    scale: str  # as its errors call it
    module: ModuleType
    draw: Callable[[int, int, KeyStream], SignedNoise]
    twin: Callable[[int, int, KeyStream], list[int]]
    batch: int
    digits: str  # the function that computes as many digits as a tie needs
    special: list[int]  # digits that tie, to two levels; words that rejection throws away
    cuts: Callable[[int], list[int]]
    tails: Callable[[list[int], int], np.ndarray]

    def fits(self, noise: SignedNoise, scale: int) -> bool:
        points = self.cuts(scale)
        return p_value(noise, points, self.tails(points, scale)) > FALSE_ALARM


def words(first: list[int], deep: list[int]) -> list[int]:
    return [*((digit << 32) | digit for digit in first), *deep, 0, 2**64 - 1]


SAMPLERS = {
    "laplace": Sampler(
        "scale", laplace, laplace.discrete_laplace, reference_laplace.twin,
        reference_laplace.BATCH, "_inverse_e",
        words([int(INVERSE_E * 2**32), *(2**32 // n for n in (2, 3, 4, 5))],
              [int(INVERSE_E * 2**bits) % 2**64 for bits in (96, 160)]),
        laplace_cuts, laplace_tails,
    ),
    "gaussian": Sampler(
        "sigma", gaussian, gaussian.discrete_gaussian, reference_gaussian.twin,
        reference_gaussian.BATCH, "_thresholds",
        words([*(cuts(32)[k] for k in (0, 1, 3)), *(2**32 // n for n in (2, 3, 4, 6))],
              [cuts(96)[0] % 2**64, cuts(160)[0] % 2**64, cuts(96)[3] % 2**64]),
        gaussian_cuts, gaussian_tails,
    ),
}  # fmt: skip
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def key(label: object) -> bytes:
    return hashlib.sha256(f"test {label}".encode()).digest()


def exact(noise: SignedNoise) -> list[int]:
    pairs = zip(noise.magnitude.tolist(), noise.negative.tolist(), strict=True)
    return [-m if negative else m for m, negative in pairs]


def capped(samples: list[int]) -> list[int]:
    return [max(-(2**64 - 1), min(2**64 - 1, x)) for x in samples]


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *(("laplace", scale) for scale in SCALES),
        ("gaussian", 1),
        *(pytest.param("gaussian", scale, marks=pytest.mark.slow) for scale in SCALES[1:]),
    ],
)
def test_agrees_with_the_twin_word_for_word(name: str, scale: int) -> None:
    sampler = SAMPLERS[name]
    ours, theirs = Recorder(key(1), 7), Recorder(key(1), 7)
    assert exact(sampler.draw(scale, 20000, ours)) == capped(sampler.twin(scale, 20000, theirs))
    assert ours.consumed == theirs.consumed


@pytest.mark.slow
@every_sampler
@settings(max_examples=20, deadline=None)
@given(scale=st.integers(1, 2**61) | st.integers(1, 200), block=st.integers(0, 2**64 - 1))
def test_agrees_with_the_twin_at_any_scale(sampler: Sampler, scale: int, block: int) -> None:
    ours, theirs = Recorder(key(2), block), Recorder(key(2), block)
    assert exact(sampler.draw(scale, 500, ours)) == capped(sampler.twin(scale, 500, theirs))
    assert ours.consumed == theirs.consumed


@pytest.mark.slow
@every_sampler
@pytest.mark.parametrize("scale", SCALES)
def test_rare_paths_agree_with_the_twin(
    sampler: Sampler, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths = []
    digits = getattr(sampler.module, sampler.digits)
    monkeypatch.setattr(
        sampler.module, sampler.digits, lambda bits: depths.append(bits) or digits(bits)
    )
    ours, theirs = (HostileStream(key(3), 0, sampler.special) for _ in range(2))
    samples = sampler.twin(scale, 3000, theirs)
    assert exact(sampler.draw(scale, 3000, ours)) == capped(samples)
    assert ours.consumed == theirs.consumed
    assert max(depths) >= 160, "no tie went to the second word: the test tests nothing"
    assert scale > 3 or max(map(abs, samples)) > 8 * scale, "nothing beyond the digits' table"


@every_sampler
def test_fewer_samples_are_a_prefix(sampler: Sampler) -> None:
    whole = exact(sampler.draw(12345, 65536, Recorder(key(4), 0)))
    for count in (0, 1, 8333, 9515, sampler.batch, 65535):
        assert exact(sampler.draw(12345, count, Recorder(key(4), 0))) == whole[:count]


@every_sampler
def test_the_batch_is_part_of_version_one(sampler: Sampler) -> None:
    assert (sampler.batch, 1) == (sampler.module.BATCH, sampler.module.STREAM_VERSION)


@pytest.mark.slow
@every_sampler
@pytest.mark.parametrize("scale", [*SCALES, 5, 17, 1000, 2**60])
def test_right_scale_fits_and_wrong_scales_do_not(sampler: Sampler, scale: int) -> None:
    assert sampler.fits(sampler.draw(scale, 4 * 65536, Recorder(key(5), 0)), scale)
    # The harness itself: samples of another law are told apart, in both directions.
    for factor in (Fraction(7, 10), Fraction(13, 10)):
        wrong = max(1, round(scale * factor))
        if wrong != scale and wrong <= 2**61:
            assert not sampler.fits(sampler.draw(wrong, 65536, Recorder(key(5), 1)), scale)


@every_sampler
@pytest.mark.parametrize("scale", [1, 2, 3])
def test_minus_zero_is_rejected(sampler: Sampler, scale: int) -> None:
    noise = sampler.draw(scale, 2 * 65536, Recorder(key(6), 0))
    assert not (noise.negative & (noise.magnitude == 0)).any()
    zeros = int((noise.magnitude == 0).sum())
    chance = 1 - float(sampler.tails([1], scale)[0])
    assert stats.binomtest(zeros, len(noise), chance).pvalue > FALSE_ALARM


@every_sampler
@pytest.mark.parametrize("scale", [2**20, 2**40 + 1, 2**58 + 1])
def test_lowest_bits_are_uniform(sampler: Sampler, scale: int) -> None:
    noise = sampler.draw(scale, 65536, Recorder(key(7), 0))
    residues = np.bincount((noise.magnitude % np.uint64(64)).astype(int), minlength=64)
    assert stats.chisquare(residues).pvalue > FALSE_ALARM


@every_sampler
def test_consecutive_samples_are_independent(sampler: Sampler) -> None:
    noise = sampler.draw(1000, 2 * 65536, Recorder(key(8), 0))
    cell = np.minimum(noise.magnitude // np.uint64(500), 5).astype(int) * 2 + noise.negative
    for lag in (1, 2, sampler.batch):
        table = np.bincount(cell[:-lag] * 12 + cell[lag:], minlength=144).reshape(12, 12)
        assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


@every_sampler
def test_huge_noise_saturates_as_the_twin_says(sampler: Sampler) -> None:
    center = np.random.default_rng(1).integers(-(2**62) + 1, 2**62, 20000)
    ours = sampler.draw(2**61, 20000, Recorder(key(9), 0)).added_to(center)
    theirs = sampler.twin(2**61, 20000, Recorder(key(9), 0))
    totals = [saturated(c + x) for c, x in zip(center.tolist(), theirs, strict=True)]
    assert ours.tolist() == totals
    assert {2**63 - 1, -(2**63) + 1} <= set(totals)


@every_sampler
@pytest.mark.parametrize("scale", [0, -1, 2**61 + 1])
def test_a_scale_out_of_range_is_refused(sampler: Sampler, scale: int) -> None:
    with pytest.raises(ValueError, match=sampler.scale):
        sampler.draw(scale, 1, Recorder(key(0), 0))


@every_sampler
def test_no_float_in_the_module(sampler: Sampler) -> None:
    tree = ast.parse(Path(sampler.module.__file__).read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Div)
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not (isinstance(node, ast.Name | ast.Attribute) and "float" in ast.unparse(node))
        # of math, only the integer square root
        assert not (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "math") or (
            node.attr == "isqrt"
        )


@pytest.mark.parametrize("bits", [32, 96, 160, 1024])
def test_digits_of_one_over_e(bits: int) -> None:
    assert laplace._inverse_e(bits) == int(INVERSE_E * 2**bits)


@pytest.mark.parametrize("bits", [32, 96, 160, 352])
def test_digits_of_the_cumulative_law(bits: int) -> None:
    found = gaussian._thresholds(bits)
    assert found[-1] == 2**bits - 1
    assert found[-2] < 2**bits - 1
    assert list(found[:38]) == cuts(bits)[: len(found)][:38]
    assert all(f * 2**bits % 1 for f in cumulative()[:6])  # none is a floor's edge


@given(
    center=st.integers(-(2**62) + 1, 2**62 - 1) | st.sampled_from([-(2**62) + 1, 2**62 - 1]),
    x=st.integers(-(2**65), 2**65) | st.integers(-(2**63) - 2**62 - 9, -(2**63) + 2**62 + 9),
)
def test_sum_saturates_exactly(center: int, x: int) -> None:
    noise = SignedNoise(np.array([min(abs(x), 2**64 - 1)], np.uint64), np.array([x < 0], np.bool_))
    given_center = np.array([center], np.int64)
    assert noise.added_to(given_center).tolist() == [saturated(center + x)]
    assert given_center.tolist() == [center]
