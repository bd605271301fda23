"""Noise of the K-norm law: agreement with its twin, its law, what it covers, its covariance."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_k_norm import twin
from reference_laplace import INVERSE_E, HostileStream, Recorder
from scipy import stats
from strategies import POSITIVE

from dbern.errors import IntegrityError, SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import calibrate_k_norm, calibrate_laplace
from dbern.privacy.contract import Contract, FloatBounds, Sensitivity, law_of
from dbern.privacy.covariance import k_norm_covariance
from dbern.privacy.families import K_NORM, errors_of, family_of
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import SignedNoise, discrete_k_norm
from dbern.privacy.laws import KNormNoise, LaplaceNoise
from dbern.privacy.mechanism import place_of, privatize
from dbern.privacy.public_numbers import public_stream

KEY = hashlib.sha256(b"a fixed test key").digest()
SCALES = [1, 2, 3, 2**20, 2**40 + 1, 2**61]


def key(label: object) -> bytes:
    return hashlib.sha256(f"test {label}".encode()).digest()


def exact(vectors: list[SignedNoise]) -> list[list[int]]:
    return [
        [-m if n else m for m, n in zip(v.magnitude.tolist(), v.negative.tolist(), strict=True)]
        for v in vectors
    ]


def capped(vectors: list[list[int]]) -> list[list[int]]:
    return [[max(-(2**64 - 1), min(2**64 - 1, x)) for x in vector] for vector in vectors]


def both(make, scale, values, count):
    """Our vectors and the twin's, and the words that each read."""
    ours, theirs = [make(half) for half in (1, 2)], [make(half) for half in (1, 2)]
    drawn = list(itertools.islice(discrete_k_norm(scale, values, *ours), count))
    expected = twin(scale, values, count, *theirs)
    return (exact(drawn), [one.consumed for one in ours]), (
        capped(expected), [one.consumed for one in theirs],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "values"),
    [(2, 1), (2**40 + 1, 19), *(pytest.param(*one, marks=pytest.mark.slow)
                               for one in itertools.product(SCALES, (1, 2, 19, 4096)))],
)  # fmt: skip
def test_agrees_with_the_twin_word_for_word(scale, values):
    ours, theirs = both(lambda half: Recorder(key(half), 3), scale, values, 1 + 300 // values)
    assert ours == theirs


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(scale=st.integers(1, 2**61) | st.integers(1, 99), values=st.integers(1, 300))
def test_agrees_with_the_twin_at_any_scale(scale, values):
    ours, theirs = both(lambda half: Recorder(key(half), 5), scale, values, 3)
    assert ours == theirs


@pytest.mark.slow
def test_rare_paths_agree_with_the_twin():
    first, deep = int(INVERSE_E * 2**32), int(INVERSE_E * 2**96) % 2**64
    special = [(digit << 32) | digit for digit in (first, 2**31, 2**32 // 3)]
    special += [deep, 0, 2**64 - 1]
    for scale in (3, 2**61):
        ours, theirs = both(lambda half: HostileStream(key(half), 0, special), scale, 7, 40)
        assert ours == theirs


def mass(scale: int, values: int, reach: int) -> dict[tuple[int, ...], float]:
    """The law on a box, from its definition."""
    box = itertools.product(range(-reach, reach + 1), repeat=values)
    sides = {x: max(sum(v for v in x if v > 0), -sum(v for v in x if v < 0)) for x in box}
    weights = {x: math.exp(-2 * side / scale) for x, side in sides.items()}
    total = sum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


@pytest.mark.parametrize(
    ("scale", "values", "reach"), [(3, 2, 40), pytest.param(1, 3, 12, marks=pytest.mark.slow)]
)
def test_the_law_is_the_one_that_is_defined(scale, values, reach):
    law, runs = mass(scale, values, reach), 20_000
    vectors = discrete_k_norm(scale, values, KeyStream(KEY, 1), KeyStream(KEY, 2))
    drawn = map(tuple, exact(list(itertools.islice(vectors, runs))))
    cells = sorted((x for x, p in law.items() if p * runs >= 8), key=law.__getitem__)
    seen = dict.fromkeys(cells, 0)
    other = 0
    for x in drawn:
        other, seen = (other, {**seen, x: seen[x] + 1}) if x in seen else (other + 1, seen)
    found = np.array([*seen.values(), other])
    expected = np.array([law[x] for x in cells]) * runs
    expected = np.append(expected, runs - expected.sum())
    assert stats.chisquare(found, expected).pvalue > 1e-6


# --- What it covers


def side(x) -> Fraction:
    return max(
        sum((v for v in x if v > 0), Fraction(0)), -sum((v for v in x if v < 0), Fraction(0))
    )


@settings(max_examples=40)
@given(
    st.lists(st.integers(-30, 30), min_size=1, max_size=6),
    st.lists(st.integers(-30, 30), min_size=6, max_size=6),
)
def test_no_move_changes_the_likelihood_by_more_than_its_larger_side(x, z):
    z = z[: len(x)]
    moved = [a + b for a, b in zip(x, z, strict=True)]
    assert abs(side(moved) - side(x)) <= side(z)
    assert 2 * side(z) == sum(map(abs, z)) + abs(sum(z))


@settings(max_examples=40)
@given(bound=POSITIVE, eta=POSITIVE, epsilon=POSITIVE, size=st.integers(1, 4096))
def test_the_scale_is_for_the_larger_side_with_all_that_rounding_adds(bound, eta, epsilon, size):
    noise = calibrate_k_norm(bound, eta, size, epsilon, Fraction(5))
    g = noise.granularity
    least = (bound + size * (2 * eta + g)) / g
    moved = Fraction(noise.l1_sensitivity_granules, 2)
    assert least <= moved < least + 1
    assert moved * 2 / noise.scale == noise.epsilon <= epsilon
    assert noise.values == size


def test_laplace_noise_that_is_accepted_would_overspend():
    """Every value of one database is rounded up, and none of the other's: the larger side is all.

    Its l1 norm is within what Laplace noise is for, but the sides are not half of that.
    """
    size, bound, one = 2000, Fraction(1, 3), Fraction(1)

    def spent(noise):
        g = noise.granularity
        values = [g * Fraction(49, 100)] * size
        moves = [bound - (size - 1) * g / 50] + [g / 50] * (size - 1)
        assert side(moves) == bound
        moved = [round((a + b) / g) - round(a / g) for a, b in zip(values, moves, strict=True)]
        return 2 * side(moved) / noise.scale

    assert spent(calibrate_k_norm(bound, Fraction(0), size, one, Fraction(4))) <= 1
    assert spent(calibrate_laplace(2 * bound, Fraction(0), size, one, Fraction(4))) > 1.0004


def test_a_contract_says_whether_sides_are_known():
    for sides, kind in ((True, "k-norm"), (False, "laplace")):
        moved = Sensitivity(Fraction(1), Fraction(1, 50), "two records", 1, sides)
        contract = Contract.of(
            moved, 100, FloatBounds(0.5, 0.0, 4.0), size=21, fraction=Fraction(1, 2)
        )
        law = law_of(contract, Budget.parse("1"))
        assert law.kind == kind
        assert law.epsilon <= Fraction(1, 2)
        assert law.l1_sensitivity_granules * law.granularity >= Fraction(1, 50) + Fraction(1, 200)


def test_too_many_values_are_refused():
    for values in (0, 4097):
        with pytest.raises(SpecError, match="at most 4096 values"):
            KNormNoise(100, 0, 100, values=values)


# --- Noise as a function of key and position

NOISE = KNormNoise(41965, -21, 41965, values=24)

# Stream format version 1 of the K-norm law: as of `test_mechanism.GOLDEN`.
GOLDEN = {
    (41965, 24): [-12898, 383309, -36922],
    (2**40 + 1, 3): [998673031105, 645986605386, 580002961537],
}


def zeros(count):
    return np.zeros(count, np.int64)


def test_the_whole_vector_is_drawn_whatever_slice_is_asked_for():
    whole = privatize(zeros(24), 0, NOISE, KEY, "density")
    for start, stop in ((0, 1), (5, 9), (23, 24), (0, 24)):
        part = privatize(zeros(stop - start), start, NOISE, KEY, "density")
        assert part.tolist() == whole[start:stop].tolist()
    others = (privatize(zeros(24), 0, NOISE, KEY, "other"),
              privatize(zeros(24), 0, LaplaceNoise(41965, -21, 41965), KEY, "density"))  # fmt: skip
    assert all((whole == other).mean() < 0.1 for other in others)


def test_outputs_share_one_vector():
    arrays, size = ("groups_0", "groups_1", "groups_2"), 8
    whole = privatize(zeros(24), 0, NOISE, KEY, "groups_0")
    found = []
    for output in range(3):
        name, first = place_of(NOISE, arrays, output, size)
        found.append(privatize(zeros(size), first, NOISE, KEY, name))
    assert np.concatenate(found).tolist() == whole.tolist()
    assert place_of(LaplaceNoise(1, 0, 1), arrays, 1, size) == ("groups_1", 0)


@pytest.mark.parametrize(("start", "count"), [(0, 25), (24, 1), (65536, 2)])
def test_there_is_no_noise_beyond_the_values(start, count):
    with pytest.raises(IntegrityError, match="24 values"):
        privatize(zeros(count), start, NOISE, KEY, "density")
    with pytest.raises(ValueError, match="has no 25"):
        NOISE.draw(25, KeyStream(KEY, 0))


@pytest.mark.parametrize(("scale", "values"), GOLDEN)
def test_golden_values(scale, values):
    noise = KNormNoise(scale, 0, 1, values=values)
    assert privatize(zeros(values), 0, noise, KEY, "density")[:3].tolist() == GOLDEN[scale, values]


# --- Accuracy


@pytest.mark.parametrize("m", [1, 2, 3, 10, 40])
def test_the_covariance_is_that_of_the_definition(m):
    """Exact sums over how many coordinates are positive, in fractions."""
    value = total = volume = Fraction(0)
    for p in range(m + 1):
        weight = Fraction(math.comb(m, p), math.factorial(p) * math.factorial(m - p))
        square = lambda d: Fraction(2, (d + 1) * (d + 2))  # noqa: E731
        whole = lambda d: Fraction(d, d + 2)  # noqa: E731
        cross = Fraction(p, p + 1) * Fraction(m - p, m - p + 1)
        value += weight * (p * square(p) + (m - p) * square(m - p)) / m
        total += weight * (whole(p) + whole(m - p) - 2 * cross)
        volume += weight
    gamma = Fraction((m + 1) * (m + 2), 4)
    found = k_norm_covariance(m)
    assert found.deviation**2 == pytest.approx(float(gamma * value / volume))
    ones = found.variance(np.array(float(m)), np.array(float(m)))
    assert float(ones) == pytest.approx(float(gamma * total / volume))


@pytest.mark.parametrize("scale", [2, 5])  # as few as there are values, and more
def test_draws_for_simulations_have_the_very_law(scale):
    """Pearson's chi^2 of all vectors that are expected 20 times and more."""
    draws, law = 40_000, KNormNoise(scale, 0, scale, values=2)
    x = np.mgrid[-60:61, -60:61].reshape(2, -1).T
    norm = (np.abs(x).sum(axis=1) + np.abs(x.sum(axis=1))) / 2
    weights = np.exp(-2 * norm / scale)
    expected = draws * weights / weights.sum()
    drawn = errors_of(law).simulate(2, draws, public_stream("test", 2)).astype(int)
    counts = np.bincount((drawn[0] + 60) * 121 + drawn[1] + 60, minlength=121**2)
    often = expected >= 20
    found = (np.square(counts - expected) / expected)[often].sum()
    assert found < often.sum() + 5 * math.sqrt(2 * often.sum())
    wrong = draws * np.sqrt(weights) / np.sqrt(weights).sum()
    assert (np.square(counts - wrong) / wrong)[wrong >= 20].sum() > 1000


def test_covariance_and_tails_of_what_is_drawn():
    law, draws = KNormNoise(10_000, 0, 10_000, values=12), 20_000
    drawn = errors_of(law).simulate(12, draws, public_stream("test", 0))
    noise = errors_of(law).covariance
    weights = np.random.default_rng(1).normal(size=(20, 12)) + 1
    weights[0] = 1
    squares, sums = np.square(weights).sum(axis=1), weights.sum(axis=1)
    ratio = (weights @ drawn).var(axis=1) / noise.variance(squares, sums)
    assert np.abs(ratio - 1).max() < 0.06
    level = math.log(200)
    reached = errors_of(law).weighted_tail(np.sqrt(squares), np.abs(weights).max(axis=1), level)
    assert ((weights @ drawn) > np.asarray(reached)[:, None]).mean(axis=1).max() < 1 / 200
    assert (np.abs(drawn).max(axis=0) > errors_of(law).tail(12, Fraction(1, 20))).mean() < 1 / 20
    some = errors_of(law).simulate(5, 50, public_stream("test", 0))
    assert np.array_equal(some, drawn[:5, :50])
    assert family_of(law) is K_NORM
