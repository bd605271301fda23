"""Shards by content: a record's shard is its own affair, and the mean is near the full solution."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from exact_learning import GRID, KERNELS, RADIUS
from fitting import Minimize, solve
from hypothesis import given
from hypothesis import strategies as st

from dbern.erm.losses import Hinge, Huber, Logistic
from dbern.erm.risk import Risk
from dbern.privacy.keystream import content_buckets, content_words, subkey

SALT = bytes(range(32))


def records(n, width, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7])
def test_words_are_the_mac_of_each_record_by_itself(width):
    values = records(20, width)
    words = content_words(values, SALT)
    for value, word in zip(values, words, strict=True):
        message = value.astype("<f8").tobytes()
        message += bytes(-len(message) % 16)
        key = algorithms.AES256(subkey(SALT, "content", str(width)))
        mac = Cipher(key, modes.CBC(bytes(16))).encryptor().update(message)[-16:]
        assert int(word) == int.from_bytes(mac[:8], "little")


@pytest.mark.slow
@given(seed=st.integers(0, 1000), cut=st.integers(0, 40), width=st.integers(1, 5))
def test_words_do_not_depend_on_order_partition_or_other_records(seed, cut, width):
    values = records(40, width, seed)
    words = content_words(values, SALT)
    parts = np.concatenate([content_words(values[:cut], SALT), content_words(values[cut:], SALT)])
    np.testing.assert_array_equal(words, parts)
    order = np.random.default_rng(seed).permutation(40)
    np.testing.assert_array_equal(content_words(values[order], SALT), words[order])
    other = values.copy()
    other[0] += 1
    np.testing.assert_array_equal(content_words(other, SALT)[1:], words[1:])
    assert content_words(other, SALT)[0] != words[0]
    np.testing.assert_array_equal(content_words(np.asfortranarray(values), SALT), words)


def test_zeros_are_one_value_and_so_are_all_nans():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], "<u8").view("<f8")
    values = np.array([[0.0], [-0.0], *odd[:, None], [np.inf], [-np.inf]])
    words = content_words(values, SALT).tolist()
    assert len(set(words[:2])) == 1
    assert len(set(words[2:5])) == 1
    assert len(set(words)) == 4


def test_every_value_and_its_place_count():
    values = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [1.0, 2.0, np.nextafter(3, 4)]])
    assert len(set(content_words(values, SALT).tolist())) == 3
    # Padding is no value: other widths have other keys.
    assert content_words(values[:1, :1], SALT) != content_words(
        [[1.0, 0.0]] * np.ones((1, 2)), SALT
    )


def test_buckets_are_even_and_change_with_the_salt():
    values = records(64000, 2)
    buckets = content_buckets(values, SALT, 64)
    counts = np.bincount(buckets, minlength=64)
    assert counts.sum() == 64000
    assert len(counts) == 64
    chi2 = ((counts - 1000) ** 2 / 1000).sum()
    assert 20 < chi2 < 130  # 63 degrees of freedom: far out either way below one in a million
    agree = (buckets == content_buckets(values, bytes(32), 64)).mean()
    assert agree == pytest.approx(1 / 64, abs=0.004)
    assert content_buckets(values[:0], SALT, 64).shape == (0,)


def mean_of_shards(risk, points, labels):
    buckets = content_buckets(np.column_stack([points, labels]), SALT, risk.shards)
    method = Minimize.for_sensitivity(risk, 0.01)
    total = sum(
        solve(risk, method, points[buckets == s], labels[buckets == s])(GRID)
        for s in range(risk.shards)
    )
    return total / risk.shards


@pytest.mark.parametrize(
    ("loss", "most"),
    [(Logistic(), 0.2), (Huber(1 + 2.0**0.5), 0.7), (Hinge(0.5), 1e-4)],
)
def test_the_mean_of_shards_nears_the_full_solution_as_they_grow(loss, most):
    # Figure 2's classes; C = 1. The distance is about const / rows of a shard (docs/benchmarks.md).
    rng = np.random.default_rng(0)
    n = 1600
    first = rng.normal([0.3, 0.5], 0.1, size=(n // 2, 2))
    other = rng.multivariate_normal([0.6, 0.4], [[0.01, 0.008], [0.008, 0.015]], n // 2)
    points = np.clip(np.concatenate([first, other]), 0, 1)
    labels = np.repeat([1.0, -1.0], n // 2)
    cost = 0.5 if isinstance(loss, Hinge) else 1.0

    def values(shards):
        risk = Risk(loss, KERNELS["gaussian"], cost, n, RADIUS, 2, shards=shards)
        return mean_of_shards(risk, points, labels)

    full = values(1)
    apart = {n // shards: np.abs(values(shards) - full).max() for shards in (16, 4)}
    assert all(distance <= most / rows for rows, distance in apart.items())
    if not isinstance(loss, Hinge):  # closed form: linear in the records, shards change nothing
        assert apart[400] < 0.6 * apart[100]
