"""Open defects: rows the integers' bits cannot serve, and rho beyond a percent of the noise."""

from __future__ import annotations

import pytest
from strategies import density_plan, density_spec


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 10**7, 2**34, 2**45 - 1])
@pytest.mark.parametrize(("bandwidth", "k"), [((0.1,), (20,)), ((0.2, 0.2), (10, 10))])
@pytest.mark.parametrize("epsilon", ["1", "10"])
def test_every_number_of_rows_has_a_plan_that_cannot_overflow(bandwidth, k, n, epsilon):
    plan = density_plan(bandwidth, k, n=n, epsilon=epsilon)
    assert n * 2 ** plan.components[0].counting["bits"] < 2**62


@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("epsilon", ["0.1", "10"])
def test_the_kernel_error_is_a_percent_of_the_noise(bandwidth, epsilon):
    spec = density_spec((bandwidth,), (20,), n=10_000, epsilon=epsilon)
    plan = density_plan((bandwidth,), (20,), n=10_000, epsilon=epsilon)
    assert plan.counters(spec).parts[0].errors.kernel <= 0.0101 * plan.noise.scale
