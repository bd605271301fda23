"""Samplers beside those of OpenDP: the same law, and a comparison that notices another scale.

OpenDP draws from the operating system, so these are the tests with a real chance of a false alarm:
1e-9 in each case.
"""

from __future__ import annotations

import hashlib

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from dbern.privacy.gaussian import discrete_gaussian
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import discrete_laplace
from dbern.types import Int64Array

pytestmark = pytest.mark.slow

SAMPLERS = {
    "laplace": (discrete_laplace, dp.m.make_laplace, dp.l1_distance),
    "gaussian": (discrete_gaussian, dp.m.make_gaussian, dp.l2_distance),
}


def p_value(law: str, scale: int, opendp_scale: int) -> float:
    """Of samples of ours and of OpenDP's, in cells of as many of OpenDP's."""
    sampler, make, distance = SAMPLERS[law]
    stream = KeyStream(hashlib.sha256(f"opendp {law}".encode()).digest(), 0)
    ours = sampler(scale, 2 * 65536, stream).added_to(np.zeros(2 * 65536, np.int64))
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), distance(T="i64")
    theirs = np.array(make(*space, scale=float(opendp_scale))([0] * 60000))
    cuts = np.unique(np.quantile(theirs, np.linspace(0, 1, 25)[1:-1]).astype(np.int64))

    def counts(samples: Int64Array) -> Int64Array:
        return np.bincount(np.searchsorted(cuts, samples), minlength=cuts.size + 1)

    both = np.array([counts(ours), counts(theirs)], float)
    return float(stats.chi2_contingency(both[:, both.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("law", SAMPLERS)
@pytest.mark.parametrize("scale", [1, 3, 1000, 2**30])
def test_same_law_as_opendp(law: str, scale: int) -> None:
    assert p_value(law, scale, scale) > 1e-9


@pytest.mark.parametrize("law", SAMPLERS)
@pytest.mark.parametrize(
    ("scale", "wrong"),
    [(1, 2), (3, 2), (3, 4), (1000, 700), (1000, 1300), (2**30, 7 * 2**30 // 10)],
)
def test_the_comparison_with_opendp_notices_another_scale(law: str, scale: int, wrong: int) -> None:
    assert p_value(law, wrong, scale) < 1e-9
