"""What rows and epsilon buy: errors of densities by number of rows, axes and epsilon.

A number is the mean, over releases, of the largest error on a grid, in per cent of the density's
largest value. `make bench BENCH='-k rows_and_epsilon'` draws up to a million rows and writes the
page's table; as a test it runs small, so that it cannot rot.
"""

from __future__ import annotations

import numpy as np
import pytest
from panel import POINTS, Cell
from timing import BENCH, Table, keep, stored

BANDWIDTH, RELEASES = 0.1, 12
ROWS = (1000, 10_000, 100_000, 1_000_000) if BENCH else (1000, 10_000)
EPSILONS = (0.1, 1.0)
AXES = (1, 2, 3) if BENCH else (1, 2)


def clusters(axes: int, n: int) -> np.ndarray:
    """Rows (n, axes) of twelve clusters in the unit cube."""
    rng = np.random.default_rng(axes)
    centers, deviations = rng.uniform(0.15, 0.85, (12, axes)), rng.uniform(0.01, 0.08, 12)
    cluster = rng.choice(12, n, p=rng.dirichlet(np.ones(12)))
    rows = centers[cluster] + deviations[cluster, None] * rng.normal(size=(n, axes))
    return np.clip(rows, 0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("axes", AXES)
def test_errors_fall_with_rows_and_epsilon(axes):
    errors = np.zeros((len(EPSILONS), len(ROWS)))
    for column, n in enumerate(ROWS):
        y = np.linspace(0, 1, POINTS[axes])
        cell = Cell("clusters", clusters(axes, n), BANDWIDTH, y, RELEASES)
        for row, epsilon in enumerate(EPSILONS):
            error, promise, _ = cell.ours(epsilon)
            assert error <= promise
            errors[row, column] = 100 * error / cell.truth.max()
    assert (np.diff(errors, axis=0) < 0).all()
    assert (np.diff(errors, axis=1) < 0).all()
    unit = "1 axis" if axes == 1 else f"{axes} axes"
    rows = stored()["rows and epsilon"].rows if BENCH else {}
    for epsilon, values in zip(EPSILONS, errors, strict=True):
        rows[f"{unit}, epsilon {epsilon:g}"] = tuple(values.tolist())
    columns = tuple(f"{n:,} rows" for n in ROWS)
    keep("rows and epsilon", Table("error, per cent", columns, rows))
