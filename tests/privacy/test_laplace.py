"""The Laplace sampler's digits, and how noise is added; `test_samplers` has the rest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_laplace import INVERSE_E, saturated

from dbern.privacy import laplace
from dbern.privacy.laplace import SignedNoise


@pytest.mark.parametrize("bits", [32, 96, 160, 1024])
def test_digits_of_one_over_e(bits: int) -> None:
    assert laplace._inverse_e(bits) == int(INVERSE_E * 2**bits)


@given(
    center=st.integers(-(2**62) + 1, 2**62 - 1) | st.sampled_from([-(2**62) + 1, 2**62 - 1]),
    x=st.integers(-(2**65), 2**65) | st.integers(-(2**63) - 2**62 - 9, -(2**63) + 2**62 + 9),
)
def test_sum_saturates_exactly(center: int, x: int) -> None:
    noise = SignedNoise(np.array([min(abs(x), 2**64 - 1)], np.uint64), np.array([x < 0], np.bool_))
    given_center = np.array([center], np.int64)
    assert noise.added_to(given_center).tolist() == [saturated(center + x)]
    assert given_center.tolist() == [center]
