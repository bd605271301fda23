"""What one record does to the integers that carry the noise of a spectral release."""

import numpy as np
import pytest

import dbern
from dbern.planning.planner import plan_files
from dbern.privacy.mechanism import to_grid


def planned(bandwidths, n, **mechanism):
    names = "xyz"[: len(bandwidths)]
    spec = dbern.ReleaseSpec(
        release={"name": "one", "output": "one.zarr"},
        data={"source": "*.parquet", "bounds": {name: [-1.0, 3.0] for name in names}, "n": n},
        target={"kind": "kernel-density", "bandwidth": list(bandwidths)},
        mechanism={"noise": "spectral-laplace", **mechanism},
        budget={"epsilon": "1.0", "ledger": "sqlite:///l.db", "dataset": "one"},
    )
    return spec, plan_files(spec, ())


def centers(spec, plan, records):
    """The integers of a database given as rows in data units, NaN for null."""
    counters = plan.counters(spec)
    state = counters.empty()
    columns = {name: records[:, i] for i, name in enumerate(spec.domain.names)}
    state += counters.count([columns], b"")
    values = [counters.finish(state, 0, 0, slab).ravel() for slab in plan.strategy.layout.slabs()]
    return to_grid(np.concatenate(values), plan.noise.law)


def candidates(dimensions, rng):
    """Records to replace by one another: edges, corners, near and far, null and out of bounds."""
    ends = np.array([-1.0, 3.0, 1.0, -0.999, 0.1])
    edges = rng.choice(ends, (20, dimensions))
    inside = rng.uniform(-1, 3, (60, dimensions))
    special = np.array([[np.nan] * dimensions, [np.inf] * dimensions, [9.0] * dimensions])
    return np.vstack([edges, inside, special])


WIDE = pytest.param((1.2, 1.0, 1.5), marks=pytest.mark.slow)
NARROW = pytest.param((0.1,), marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("bandwidths", [(0.4,), NARROW, (0.6, 0.9), WIDE])
def test_no_replacement_moves_the_integers_by_more_than_the_plan_says(bandwidths):
    rng = np.random.default_rng(3)
    spec, plan = planned(bandwidths, n=2)
    bound = plan.noise.law.l1_sensitivity_granules
    assert plan.noise.kind == "spectral-laplace"
    other = rng.uniform(-1, 3, (1, len(bandwidths)))
    rows = candidates(len(bandwidths), rng)
    staged = np.array([centers(spec, plan, np.vstack([other, row])) for row in rows])
    largest = max(int(np.abs(staged - one).sum(axis=1).max()) for one in staged)  # every pair
    assert largest <= bound
    assert largest > 0.5 * bound  # so half the scale would be caught


def test_the_coordinates_of_a_database_are_the_mean_of_its_records():
    spec, plan = planned((0.5,), n=4)
    rng = np.random.default_rng(1)
    records = rng.uniform(-1, 3, (4, 1))
    whole = centers(spec, plan, records)
    apart = sum(centers(spec, plan, records[i : i + 1]) for i in range(4))
    assert np.abs(whole - apart).max() <= 4  # each rounded to the grid once


def test_paper_calibration_is_refused_for_spectral_noise():
    with pytest.raises(dbern.SpecError, match=r'mechanism.calibration.*calibration = "tight"'):
        planned((0.5,), n=4, calibration="paper")
