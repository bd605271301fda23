"""The release step: noise is a function of key, component and canonical position alone."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
import reference_gaussian
import reference_laplace
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_laplace import saturated

from dbern.errors import IntegrityError
from dbern.privacy.keystream import KeyStream, subkey
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.mechanism import privatize, to_grid
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.types import Int64Array

KEY = hashlib.sha256(b"a fixed test key").digest()
Noise = type[LaplaceNoise] | type[GaussianNoise]
TWINS = {
    LaplaceNoise: (reference_laplace.twin, "stream-1"),
    GaussianNoise: (reference_gaussian.twin, "gaussian-stream-1"),
}
LAWS = {law: law(41965, -21, 41965) for law in TWINS}
SIZE = 3 * 65536 + 1234
CENTER = np.random.default_rng(5).integers(-(2**40), 2**40, SIZE)
WHOLE = {law: privatize(CENTER, 0, noise, KEY, "density") for law, noise in LAWS.items()}
every_law = pytest.mark.parametrize("law", LAWS)


def zeros(count: int) -> Int64Array:
    return np.zeros(count, np.int64)


# Stream format version 1. These numbers must never change: a retry of an unfinished release would
# draw other noise for a sealed center.
GOLDEN = {
    (LaplaceNoise, 1, 0): [0, -1, 0, -1],
    (LaplaceNoise, 41965, 0): [-44109, 88, -66417, 17890],
    (LaplaceNoise, 41965, 65534): [-21023, 15983, 42116, 31130],
    (LaplaceNoise, 2**40 + 1, 10**9): [-577728296837, 341433379339, 837376035983, -721621858679],
    (LaplaceNoise, 2**61, 0): [2462968986653162235, -1699590348206882638, 6457721325801228,
                               448376249933183604],
    (GaussianNoise, 1, 0): [-1, 0, 0, -1],
    (GaussianNoise, 41965, 0): [34754, 19984, -81894, 10911],
    (GaussianNoise, 41965, 65534): [-2090, -53117, 2613, -41674],
    (GaussianNoise, 2**40 + 1, 10**9): [782546498601, 100081521470, 425660701837, 1203605120599],
    (GaussianNoise, 2**61, 0): [1016312728770364932, 276828966380639346, -1464104140091876115,
                                6103678068016590922],
}  # fmt: skip
DIGESTS = {  # of centers with their noise
    LaplaceNoise: (CENTER, "807b2de3020179f316604f16abbf7f4583c386bc1c80abfe3defdf803316135a"),
    GaussianNoise: (
        zeros(SIZE), "5a7cfb976295e823b9bc160ea023f9df5170d9b305dc393d834f3af006a31e73",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("law", "scale", "start"), GOLDEN)
def test_golden_values(law: Noise, scale: int, start: int) -> None:
    drawn = privatize(zeros(4), start, law(scale, 0, 1), KEY, "density")
    assert drawn.tolist() == GOLDEN[law, scale, start]


@every_law
def test_golden_digest(law: Noise) -> None:
    center, digest = DIGESTS[law]
    noisy = privatize(center, 0, LAWS[law], KEY, "density")
    assert hashlib.sha256(noisy.astype("<i8").tobytes()).hexdigest() == digest


@every_law
def test_matches_the_twin_in_a_later_block(law: Noise) -> None:
    twin, stream = TWINS[law]
    start, count = 2 * 65536, 1010
    drawn = twin(41965, count, KeyStream(subkey(KEY, "noise", "density", stream), 2))
    centers = CENTER[start : start + count].tolist()
    expected = [saturated(c + x) for c, x in zip(centers, drawn, strict=True)]
    assert WHOLE[law][start : start + count].tolist() == expected


@pytest.mark.slow
@every_law
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, SIZE), max_size=6))
def test_slices_change_nothing(law: Noise, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), SIZE]
    slices = [
        privatize(CENTER[a:b], a, LAWS[law], KEY, "density") for a, b in itertools.pairwise(ends)
    ]
    assert np.array_equal(np.concatenate(slices), WHOLE[law])


@every_law
def test_inputs_are_untouched_and_views_allowed(law: Noise) -> None:
    center = np.arange(20, dtype=np.int64)
    noisy = privatize(center[::2], 0, LAWS[law], KEY, "density")
    assert noisy.tolist() == privatize(center[::2].copy(), 0, LAWS[law], KEY, "density").tolist()
    assert center.tolist() == list(range(20))
    assert privatize(zeros(0), 7, LAWS[law], KEY, "density").size == 0


@every_law
def test_noise_does_not_depend_on_the_center(law: Noise) -> None:
    noise = privatize(zeros(SIZE), 0, LAWS[law], KEY, "density")
    assert np.array_equal(WHOLE[law] - CENTER, noise)


@every_law
def test_keys_components_and_blocks_have_noise_of_their_own(law: Noise) -> None:
    base = privatize(zeros(1000), 0, LAWS[law], KEY, "density")
    others = [
        privatize(zeros(1000), 0, LAWS[law], bytes(32), "density"),
        privatize(zeros(1000), 0, LAWS[law], KEY, "other"),
        privatize(zeros(1000), 65536, LAWS[law], KEY, "density"),
        base[::-1],
    ]
    assert all((base == other).mean() < 0.01 for other in others)


def test_laws_share_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, set[bytes]] = {"laplace": set(), "k-norm": set(), "discrete-gaussian": set()}
    for noise in (*LAWS.values(), KNormNoise(41965, -21, 41965, values=5)):

        def recorded(key: bytes, block: int, kind: str = noise.kind) -> KeyStream:
            keys[kind].add(key)
            return KeyStream(key, block)

        monkeypatch.setattr("dbern.privacy.mechanism.KeyStream", recorded)
        privatize(zeros(5), 0, noise, KEY, "density")
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == 3


@every_law
@pytest.mark.parametrize("value", [2**62, -(2**62), -(2**63), 2**63 - 1])
def test_center_out_of_range(law: Noise, value: int) -> None:
    center = zeros(3)
    center[1] = value
    with pytest.raises(IntegrityError) as caught:
        privatize(center, 0, LAWS[law], KEY, "density")
    assert str(value) not in str(caught.value)


def test_largest_centers_are_accepted() -> None:
    center = np.array([2**62 - 1, -(2**62) + 1])
    assert privatize(center, 0, LAWS[LaplaceNoise], KEY, "density").size == 2


@pytest.mark.parametrize(
    ("center", "start", "key"),
    [
        (np.zeros(3), 0, KEY),
        (np.zeros(3, np.int32), 0, KEY),
        (np.zeros((2, 2), np.int64), 0, KEY),
        (np.zeros(3, np.uint64), 0, KEY),
        (zeros(1), -1, KEY),
        (zeros(1), 0, KEY[:16]),
    ],
    ids=["floats", "int32", "matrix", "unsigned", "position", "key"],
)
def test_what_no_noise_is_added_to_is_refused(center: Int64Array, start: int, key: bytes) -> None:
    with pytest.raises(IntegrityError):
        privatize(center, start, LAWS[LaplaceNoise], key, "density")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**42, 1e300])
def test_to_grid_refuses(value: float) -> None:
    with pytest.raises(IntegrityError):
        to_grid(np.array([0.0, value]), LaplaceNoise(1, -20, 1))


def test_public_stream_is_reproducible_and_apart_from_noise() -> None:
    first = uniform(public_stream("demo", 3), 1000)
    assert np.array_equal(first, uniform(public_stream("demo", 3), 1000))
    assert first.min() >= 0
    assert first.max() < 1
    assert abs(first.mean() - 0.5) < 0.06
    words = public_stream("density", 0).words(4).tolist()
    secret = KeyStream(subkey(bytes(32), "noise", "density", "stream-1"), 0)
    assert words != secret.words(4).tolist()
